// SPDX-License-Identifier: BSD-3-Clause
// A pool of equal memory elements: taken and put back in a few instructions, grown by chunks up to
// a maximum.
//
// One thread at a time. Free elements are kept on a stack of pointers in private memory, last in
// first out: so the warmest one is taken first, and elements that lie in memory a peer can write
// carry nothing that we trust.
//
// 1. elements taken + elements free = elements_total() <= elements_max.
// 2. An element stays where it is until the pool is cleaned up; chunks are never given back before.
// 3. get() allocates only when no element is free; after reserve(n) the first n do not.
// 4. clean_up() reports elements that were never put back by a warning, then frees their memory all
// the same.
//
// With checks (Mpool in a build with TAGWIRE_DEBUG_CHECKS) a free element is filled with a pattern
// and, under AddressSanitizer, made inaccessible; a write to it, a second put and a foreign pointer
// end the program.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ucs/debug/check.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::ucs {

/// Where chunks come from. `allocate` returns memory aligned to `alignment`, or nullptr. The
/// default is the heap.
struct ChunkSource {
    void* (*allocate)(void* arg, std::size_t bytes, std::size_t alignment) = nullptr;
    void (*release)(void* arg, void* memory, std::size_t bytes) = nullptr;
    void* arg = nullptr;
};

struct MpoolParams {
    const char* name = "";
    std::size_t element_bytes = 0;
    std::size_t alignment = 64;  // of each element; a power of two
    std::size_t elements_per_chunk = 128;
    std::size_t elements_max = SIZE_MAX;
    ChunkSource source = {};
};

template <bool Checked>
class BasicMpool {
  public:
    BasicMpool() = default;
    BasicMpool(const BasicMpool&) = delete;
    BasicMpool& operator=(const BasicMpool&) = delete;
    ~BasicMpool() { clean_up(); }

    /// UCS_ERR_INVALID_PARAM: a size of 0, or an alignment that is no power of two. Allocates
    /// nothing yet.
    ucs_status_t init(const MpoolParams& params);

    /// Makes `elements` in all available without further allocation. UCS_ERR_EXCEEDS_LIMIT beyond
    /// elements_max, UCS_ERR_NO_MEMORY.
    ucs_status_t reserve(std::size_t elements);

    /// Allows `elements` more than there were to be at most.
    void raise_max(std::size_t elements) { params_.elements_max += elements; }

    /// nullptr when elements_max are taken or the source has no memory. The contents are undefined.
    void* get() {
        if (*top_ == nullptr && !grow()) [[unlikely]]
            return nullptr;
        void* element = *top_--;
        if constexpr (Checked)
            check_get(element);
        return element;
    }

    void put(void* element) {
        if constexpr (Checked)
            check_put(element);
        *++top_ = element;  // grow() made a place for every element
    }

    /// Ends the pool's use; returns how many elements had not been put back. init() may follow.
    std::size_t clean_up();

    std::size_t elements_total() const { return elements_total_; }
    std::size_t elements_free() const {
        return free_.empty() ? 0 : static_cast<std::size_t>(top_ - free_.data());
    }
    std::size_t elements_taken() const { return elements_total_ - elements_free(); }
    bool has_free() const { return *top_ != nullptr; }
    std::size_t element_bytes() const { return params_.element_bytes; }

  private:
    struct Chunk {
        std::byte* memory = nullptr;
        std::size_t bytes = 0;
        ReserveVector<bool> taken;  // checked pools only
    };

    bool grow();
    void check_get(void* element);
    void check_put(void* element);
    std::pair<Chunk*, std::size_t> locate(void* element);

    void* none_ = nullptr;
    void** top_ = &none_;  // the free element that is taken next, in free_; null: none is free
    ReserveVector<void*> free_;  // behind a null; a place for each element
    MpoolParams params_;
    std::string name_;
    std::size_t stride_ = 0;
    std::size_t elements_total_ = 0;
    ReserveVector<Chunk> chunks_;
};

extern template class BasicMpool<false>;
extern template class BasicMpool<true>;

using Mpool = BasicMpool<kDebugChecks>;

/// A pool of objects of one type.
template <class T>
class ObjectPool {
  public:
    /// `params` without size and alignment: those are T's.
    ucs_status_t init(MpoolParams params) {
        params.element_bytes = sizeof(T);
        params.alignment = alignof(T);
        return pool_.init(params);
    }

    /// nullptr when the pool is exhausted.
    template <class... Args>
    T* create(Args&&... args) {
        void* memory = pool_.get();
        if (memory == nullptr) [[unlikely]]
            return nullptr;
        return ::new (memory) T(std::forward<Args>(args)...);
    }

    void destroy(T* object) {
        object->~T();
        pool_.put(object);
    }

    Mpool& pool() { return pool_; }
    const Mpool& pool() const { return pool_; }

  private:
    Mpool pool_;
};

}  // namespace tagwire::ucs
