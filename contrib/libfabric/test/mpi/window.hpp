// SPDX-License-Identifier: BSD-3-Clause
// Memory of all ranks that the others reach, made in each of the ways that MPI has.
#pragma once

#include <algorithm>

#include "check.hpp"

namespace mpi_check {

enum class Memory {
    kOwn,        // MPI_Win_create()
    kAllocated,  // MPI_Win_allocate(): of processes of one host it may be shared memory
    kAttached,   // MPI_Win_create_dynamic(), MPI_Win_attach(): named by addresses
};

/// A window of `count` elements of each rank; all ranks make and free it together.
template <class T>
class Window {
  public:
    Window(Memory kind, std::size_t count, T value = {}) : kind_(kind) {
        const auto bytes = static_cast<MPI_Aint>(count * sizeof(T));
        constexpr int kUnit = static_cast<int>(sizeof(T));
        if (kind == Memory::kAllocated) {
            MPI_Win_allocate(bytes, kUnit, MPI_INFO_NULL, MPI_COMM_WORLD, &data_, &win_);
        } else {
            own_.resize(count);
            data_ = own_.data();
            if (kind == Memory::kOwn) {
                MPI_Win_create(data_, bytes, kUnit, MPI_INFO_NULL, MPI_COMM_WORLD, &win_);
            } else {
                MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win_);
                MPI_Win_attach(win_, data_, bytes);
            }
        }
        bases_.resize(static_cast<std::size_t>(size()));
        MPI_Aint mine = 0;
        MPI_Get_address(data_, &mine);
        MPI_Allgather(&mine, 1, MPI_AINT, bases_.data(), 1, MPI_AINT, MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank(), 0, win_);
        std::fill_n(data_, count, value);
        MPI_Win_unlock(rank(), win_);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    ~Window() {
        MPI_Barrier(MPI_COMM_WORLD);
        if (kind_ == Memory::kAttached)
            MPI_Win_detach(win_, data_);
        MPI_Win_free(&win_);
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    operator MPI_Win() const { return win_; }
    T* data() const { return data_; }
    T& operator[](std::size_t i) const { return data_[i]; }
    /// The displacement of element `i` of a rank.
    MPI_Aint at(int of, std::size_t i) const {
        if (kind_ != Memory::kAttached)
            return static_cast<MPI_Aint>(i);
        return bases_[static_cast<std::size_t>(of)] + static_cast<MPI_Aint>(i * sizeof(T));
    }
    /// An element of this rank's own memory, read as the standard wants it.
    T own(std::size_t i) const {
        MPI_Win_lock(MPI_LOCK_SHARED, rank(), 0, win_);
        const T value = data_[i];
        MPI_Win_unlock(rank(), win_);
        return value;
    }

  private:
    Memory kind_;
    std::vector<T> own_;
    std::vector<MPI_Aint> bases_;
    T* data_ = nullptr;
    MPI_Win win_ = MPI_WIN_NULL;
};

}  // namespace mpi_check
