// SPDX-License-Identifier: BSD-3-Clause
// Many allocations fail, one of TAGWIRE_TEST_NOMEM_RATE: each operation that has begun ends once,
// and what is begun when there is memory again works.
#include <rdma/fi_atomic.h>

#include "no_memory.hpp"

namespace tagwire::fi_test {

namespace {

class FiNoMemoryStorm : public NoMemoryPair {
  protected:
    ssize_t call(unsigned which) {
        fid_ep* const ep = a.ep.get();
        char* const data = text_.data();
        std::uint64_t* const words = words_.data();
        const iovec iov[] = {{data, 10}, {data + 20, 10}};
        switch (which % 8) {
            case 0:
                return fi_tsend(ep, data, text_.size(), nullptr, to_b, 1, nullptr);
            case 1:
                return fi_sendv(ep, iov, nullptr, 2, to_b, nullptr);
            case 2:
                return fi_write(ep, data, 64, nullptr, to_b, at(0), kKey, nullptr);
            case 3:
                return fi_read(ep, read_.data(), 64, nullptr, to_b, at(64), kKey, nullptr);
            case 4:
                return fi_writev(ep, iov, nullptr, 2, to_b, at(0), kKey, nullptr);
            case 5:
                return fi_fetch_atomic(ep, words, 300, nullptr, words + 300, nullptr, to_b, at(0),
                                       kKey, FI_UINT64, FI_SUM, nullptr);
            case 6:
                return fi_atomic(ep, words, 1, nullptr, to_b, at(0), kKey, FI_UINT64, FI_SUM,
                                 nullptr);
            default:
                return fi_read(ep, read_.data(), 64, nullptr, to_b, at(64), 1000 + which, nullptr);
        }
    }
    /// Takes what has ended; entries that were lost are told by their number.
    void take() {
        fi_cq_tagged_entry entries[8];
        const ssize_t count = fi_cq_read(a.tx.get(), entries, 8);
        if (count > 0)
            ended_ += static_cast<std::size_t>(count);
        fi_cq_err_entry error{};
        if (count == -FI_EAVAIL && fi_cq_readerr(a.tx.get(), &error, 0) == 1)
            ended_ += error.err == FI_EOVERRUN ? error.data : 1;
        fi_cq_tagged_entry received{};
        while (fi_cq_read(b.rx.get(), &received, 1) == -FI_EAVAIL)
            fi_cq_readerr(b.rx.get(), &error, 0);
    }
    void run_to_the_end() {
        run_until([&] {
            take();
            return ended_ >= begun_;
        });
        run_some();
        take();
        ASSERT_EQ(ended_, begun_);
    }
    /// A connection that was lost is made anew.
    void reconnect() {
        for (fi_addr_t* addr : {&to_a, &to_b}) {
            ASSERT_EQ(fi_av_remove(av.get(), addr, 1, 0), 0);
        }
        run_some();
        const std::array<Name, 2> names = {a.name, b.name};
        fi_addr_t addrs[2] = {};
        ASSERT_EQ(fi_av_insert(av.get(), names.data(), 2, addrs, 0, nullptr), 2);
        to_a = addrs[0];
        to_b = addrs[1];
    }

    static constexpr std::uint64_t kKey = 7;

    Text text_ = text_of(3000);
    Text read_ = Text(64, '-');
    std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(600);
    std::size_t begun_ = 0;
    std::size_t ended_ = 0;
};

TEST_F(FiNoMemoryStorm, each_operation_ends_once_and_later_ones_work) {
    Wanted wanted;
    wanted.caps |= FI_ATOMIC | FI_RMA_EVENT;
    wanted.has_rma_counters = true;
    wanted.cq_size = 4;
    open_rma(wanted);
    for (unsigned round = 0; round < 20 && !HasFatalFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        NoMemory::arm(true);
        for (unsigned i = 0; i < 100; ++i) {
            begun_ += call(round * 7 + i) == 0 ? 1 : 0;
            if (i % 3 == 0)
                take();
        }
        // Peers forget a key, and learn it anew.
        if (round % 4 == 3)
            mr.reset();
        NoMemory::arm(false);
        if (mr == nullptr)
            enter(kRemote, kKey);
        run_to_the_end();
        reconnect();
    }
    EXPECT_GT(begun_, 200U);
    write("works", 9);
    ++begun_;
    run_to_the_end();
    expect_held("works", 9);
}

}  // namespace

}  // namespace tagwire::fi_test
