// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations from `a` on memory of `b`.
#pragma once

#include <rdma/fi_atomic.h>

#include <array>
#include <deque>

#include "pair.hpp"

namespace tagwire::fi_test {

/// Bytes of the operands of one call; the greatest count is that of the datatype in them.
inline constexpr std::size_t kOperandBytesMax = 4096;

inline constexpr std::uint64_t kAtomicRights = FI_REMOTE_READ | FI_REMOTE_WRITE;
inline constexpr std::uint64_t kKey = 0x0123456789abcdef;

class AtomicPair : public Pair {
  protected:
    void open_with(Wanted wanted = {}) {
        wanted.caps |= FI_ATOMIC;
        ASSERT_NO_FATAL_FAILURE(open(wanted));
    }
    void TearDown() override {
        if (domain == nullptr)
            return;
        a.ep.reset();
        b.ep.reset();
        regions_.clear();
    }
    void add_region(void* memory, std::size_t bytes, std::uint64_t key = kKey,
                    std::uint64_t access = kAtomicRights) {
        fid_mr* made = nullptr;
        ASSERT_EQ(fi_mr_reg(domain.get(), memory, bytes, access, 0, key, 0, &made, nullptr), 0);
        regions_.emplace_back(made);
    }
    template <class T, std::size_t kCount>
    void add_region(std::array<T, kCount>& memory) {
        add_region(memory.data(), sizeof memory);
    }
    void expect_entry(std::uint64_t flags, const void* context) {
        const fi_cq_tagged_entry entry = next(a.tx);
        EXPECT_EQ(entry.op_context, context);
        EXPECT_EQ(entry.flags, FI_ATOMIC | flags);
    }
    void expect_error(int error, const void* context = nullptr) {
        const fi_cq_err_entry entry = next_error(a.tx);
        EXPECT_EQ(entry.err, error) << fi_strerror(entry.err);
        EXPECT_EQ(entry.op_context, context);
        EXPECT_NE(entry.flags & FI_ATOMIC, 0U);
    }

    std::deque<Owner<fid_mr>> regions_;
    int contexts_[8] = {};
};

}  // namespace tagwire::fi_test
