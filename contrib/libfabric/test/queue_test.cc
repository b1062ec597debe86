// SPDX-License-Identifier: BSD-3-Clause
// Many operations and many entries: cancelling, rings that grow, and their memory.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <random>

#include "pair.hpp"

namespace {

/// Allocations of this size fail.
std::size_t refused_bytes = SIZE_MAX;

void* allocate(std::size_t bytes) {
    return bytes == refused_bytes ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// The provider's, too: the program's definitions come first. Those with a size are undeclared for
// clang, and would be hidden.
#pragma GCC visibility push(default)
void* operator new(std::size_t bytes) {
    if (void* const made = allocate(bytes))
        return made;
    throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) {
    return operator new(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
#pragma GCC visibility pop

namespace tagwire::fi_test {

namespace {

class FiQueue : public Pair {
  protected:
    /// So many messages arrive, in order, with their number as CQ data; nothing is read meanwhile.
    void exchange(int count) {
        for (int i = 0; i < count; ++i) {
            ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
            const auto data = static_cast<std::uint64_t>(sent_++);
            retry([&] { return fi_tinjectdata(a.ep.get(), nullptr, 0, data, to_b, 1); });
        }
        run_some();
    }
    void expect_next(int count) {
        for (int i = 0; i < count; ++i)
            ASSERT_EQ(next(b.rx).data, static_cast<std::uint64_t>(seen_++));
    }

  private:
    int sent_ = 0;
    int seen_ = 0;
};

std::size_t resident_bytes() {
    std::size_t total = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(FiQueue, entries_keep_their_order_while_the_ring_grows) {
    open();
    exchange(50);
    expect_next(40);
    exchange(100);  // wraps, then grows within its room
    expect_next(70);
    exchange(3000);  // and beyond it
    expect_next(3040);
    EXPECT_TRUE(is_empty(b.rx));
}

TEST_F(FiQueue, a_queue_that_is_not_used_takes_no_memory) {
    open();
    constexpr std::size_t kQueues = 1000;
    constexpr std::size_t kBytesMax = 24 << 10;  // of a ring of 56 KiB, and with a sanitizer's own
    std::vector<Owner<fid_cq>> queues;
    const std::size_t before = resident_bytes();
    fi_cq_attr attr{};
    for (std::size_t i = 0; i < kQueues; ++i) {
        fid_cq* made = nullptr;
        ASSERT_EQ(fi_cq_open(domain.get(), &attr, &made, nullptr), 0);
        queues.emplace_back(made);
    }
    EXPECT_LT(resident_bytes(), before + kQueues * kBytesMax);
}

TEST_F(FiQueue, entries_that_there_is_no_memory_for_are_told_as_lost) {
    open();
    constexpr int kMessages = 3000;
    for (int i = 0; i < kMessages; ++i)
        ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    // The memory of a queue of the default size, doubled.
    refused_bytes = std::size_t{2048} * sizeof(fi_cq_tagged_entry);
    for (int i = 0; i < kMessages; ++i)
        retry([&] { return fi_tinject(a.ep.get(), nullptr, 0, to_b, 1); });
    run_some();
    refused_bytes = SIZE_MAX;
    fi_cq_tagged_entry entry{};
    std::uint64_t seen = 0;
    while (fi_cq_read(b.rx.get(), &entry, 1) == 1)
        ++seen;
    EXPECT_EQ(seen, 1024U);
    const auto error = next_error(b.rx);
    EXPECT_EQ(error.err, FI_EOVERRUN);
    EXPECT_EQ(seen + error.data, std::uint64_t{kMessages});
    // It works on.
    Text got(4, ' ');
    trecv(got, 1);
    tsend("text", 1);
    next(b.rx);
    EXPECT_EQ(got, "text");
    EXPECT_TRUE(is_empty(b.rx));
}

TEST_F(FiQueue, any_of_many_receives_is_cancelled_by_its_context) {
    open();
    constexpr std::size_t kReceives = 2000;
    std::vector<int> marks(kReceives);
    std::vector<std::size_t> order(kReceives);
    for (std::size_t i = 0; i < kReceives; ++i) {
        order[i] = i;
        ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, i, 0, &marks[i]), 0);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (const std::size_t i : order) {
        // Every third ends by a message, and its operation begins anew under another context.
        if (i % 3 == 0) {
            retry([&] { return fi_tinject(a.ep.get(), nullptr, 0, to_b, i); });
            ASSERT_EQ(next(b.rx).op_context, &marks[i]);
            ASSERT_EQ(fi_cancel(&b.ep->fid, &marks[i]), -FI_ENOENT);
            int again = 0;
            ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, i, 0, &again), 0);
            ASSERT_EQ(fi_cancel(&b.ep->fid, &again), 0);
            ASSERT_EQ(next_error(b.rx).op_context, &again);
        } else {
            ASSERT_EQ(fi_cancel(&b.ep->fid, &marks[i]), 0);
            const auto error = next_error(b.rx);
            ASSERT_EQ(error.op_context, &marks[i]);
            ASSERT_EQ(error.err, FI_ECANCELED);
        }
    }
    EXPECT_TRUE(is_empty(b.rx));
}

TEST_F(FiQueue, receives_with_the_same_context_are_cancelled_one_by_one) {
    open();
    for (std::size_t i = 0; i < 500; ++i)
        ASSERT_EQ(fi_trecv(b.ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, i, 0, nullptr), 0);
    for (std::size_t i = 0; i < 500; ++i) {
        ASSERT_EQ(fi_cancel(&b.ep->fid, nullptr), 0);
        ASSERT_EQ(next_error(b.rx).err, FI_ECANCELED);
    }
    EXPECT_EQ(fi_cancel(&b.ep->fid, nullptr), -FI_ENOENT);
}

/// An error entry as programs of an older interface have it, and what lies behind.
TEST_F(FiQueue, an_error_entry_is_not_longer_than_the_programs_interface_has_it) {
    open();
    fi_info* found = nullptr;
    ASSERT_EQ(fi_getinfo(FI_VERSION(1, 4), nullptr, nullptr, 0, hints_for(FI_TAGGED).get(), &found),
              0);
    const Owner<fi_info> old(found);
    fid_fabric* made_fabric = nullptr;
    ASSERT_EQ(fi_fabric(old->fabric_attr, &made_fabric, nullptr), 0);
    const Owner<fid_fabric> old_fabric(made_fabric);
    fid_domain* made_domain = nullptr;
    ASSERT_EQ(fi_domain(made_fabric, old.get(), &made_domain, nullptr), 0);
    const Owner<fid_domain> old_domain(made_domain);
    fi_av_attr av_attr{};
    fid_av* made_av = nullptr;
    ASSERT_EQ(fi_av_open(made_domain, &av_attr, &made_av, nullptr), 0);
    const Owner<fid_av> old_av(made_av);
    fi_cq_attr attr{};
    fid_cq* cq = nullptr;
    ASSERT_EQ(fi_cq_open(made_domain, &attr, &cq, nullptr), 0);
    const Owner<fid_cq> old_cq(cq);
    fid_ep* ep = nullptr;
    ASSERT_EQ(fi_endpoint(made_domain, old.get(), &ep, nullptr), 0);
    const Owner<fid_ep> old_ep(ep);
    ASSERT_EQ(fi_ep_bind(ep, &made_av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    ASSERT_EQ(fi_enable(ep), 0);
    int mark = 0;
    ASSERT_EQ(fi_trecv(ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, &mark), 0);
    ASSERT_EQ(fi_cancel(&ep->fid, &mark), 0);
    ASSERT_TRUE(run_until([&] { return fi_cq_read(cq, nullptr, 0) == -FI_EAVAIL; }));
    fi_cq_err_entry entry;
    std::memset(&entry, 0x55, sizeof entry);
    ASSERT_EQ(fi_cq_readerr(cq, &entry, 0), 1);
    EXPECT_EQ(entry.op_context, &mark);
    EXPECT_EQ(entry.err_data, nullptr);
    EXPECT_EQ(entry.err_data_size, 0x5555555555555555U);
}

}  // namespace

}  // namespace tagwire::fi_test
