// SPDX-License-Identifier: BSD-3-Clause
// Operations while allocations fail: a call that is refused has done nothing, each operation that
// has begun ends once, nobody waits for ever, and nothing is lost without an error.
#include <rdma/fi_atomic.h>

#include "no_memory.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::size_t kRegionBytes = 4096;
constexpr std::uint64_t kOtherKey = 8;

struct Kind {
    const char* name;
    ssize_t (*call)(class FiNoMemory& test, void* context);
    /// Messages that `b` receives for it.
    unsigned messages;
    /// Its data has come.
    bool (*is_there)(const class FiNoMemory& test);
};

class FiNoMemory : public NoMemoryPair, public testing::WithParamInterface<Kind> {
  public:
    fid_ep* from() const { return a.ep.get(); }
    fi_addr_t peer() const { return to_b; }
    std::uint64_t remote(std::size_t offset) const { return at(offset); }

    Text text = text_of(3000);
    Text long_text = text_of(300'000);
    Text got = Text(64, '-');
    Text received;
    std::vector<std::uint64_t> words;
    Text other;

  protected:
    void open_new() {
        mr.reset();
        other_.reset();
        close();
        texts.clear();
        Wanted wanted;
        wanted.caps |= FI_ATOMIC | FI_RMA_EVENT;
        wanted.has_rma_counters = true;
        wanted.is_inserted = false;
        if (sleeps_) {
            wanted.wait_obj = FI_WAIT_FD;
            wanted.data_progress = FI_PROGRESS_AUTO;
        }
        open_rma(wanted);
        other = Text(kRegionBytes, '.');
        ASSERT_EQ(enter_into(other_, other, kRemote, kOtherKey), 0);
        received = Text(long_text.size(), '-');
        got = Text(64, '-');
        words.assign(600, 1);
        entries_ = {};
        errors_ = {};
    }
    void insert() {
        const std::array<Name, 2> names = {a.name, b.name};
        fi_addr_t addrs[2] = {};
        EXPECT_EQ(
            repeated([&] { return fi_av_insert(av.get(), names.data(), 2, addrs, 0, nullptr); }),
            2);
        to_a = addrs[0];
        to_b = addrs[1];
    }
    /// Takes what has ended, of all queues.
    void take() {
        for (fid_cq* cq : {a.tx.get(), a.rx.get(), b.tx.get(), b.rx.get()}) {
            fi_cq_tagged_entry entry{};
            const ssize_t count = fi_cq_read(cq, &entry, 1);
            if (count == 1)
                ++entries_[entry.op_context];
            fi_cq_err_entry error{};
            if (count != -FI_EAVAIL || fi_cq_readerr(cq, &error, 0) != 1)
                continue;
            EXPECT_GT(error.err, 0);
            EXPECT_NE(error.err, FI_EOVERRUN);
            ++errors_[error.op_context];
        }
    }
    bool has_ended(const void* context) { return entries_[context] + errors_[context] > 0; }
    void receive() {
        if (GetParam().messages == 0)
            return;
        EXPECT_EQ(repeated([&] {
                      return fi_trecv(b.ep.get(), received.data(), received.size(), nullptr,
                                      FI_ADDR_UNSPEC, 1, 0, &receive_);
                  }),
                  0);
    }
    /// The operation, until it has ended. One may also be refused as its peer is lost.
    void operate(void* context) {
        const ssize_t status = repeated([&] {
            take();
            return GetParam().call(*this, context);
        });
        errors_[context] += status != 0 ? 1 : 0;
        if (sleeps_)
            return sleep_until_ended(context);
        run_until([&] {
            take();
            return has_ended(context) || HasFailure();
        });
        EXPECT_EQ(entries_[context] + errors_[context], 1);
    }
    /// The threads of the provider do the rest, and nobody polls.
    void sleep_until_ended(const void* context) {
        while (!has_ended(context)) {
            fi_cq_tagged_entry entry{};
            const ssize_t count = fi_cq_sread(a.tx.get(), &entry, 1, nullptr, kSleepMs);
            ASSERT_NE(count, -FI_EAGAIN) << "nothing came";
            entries_[entry.op_context] += count == 1 ? 1 : 0;
            fi_cq_err_entry error{};
            if (count == -FI_EAVAIL && fi_cq_readerr(a.tx.get(), &error, 0) == 1)
                ++errors_[error.op_context];
        }
    }
    /// When there is memory again an operation that has failed may be begun anew, on a new
    /// connection.
    void finish() {
        if (errors_[&first_] > 0) {
            // Errors of this side's peers end its receives only if they name the peer.
            EXPECT_EQ(fi_av_remove(av.get(), &to_a, 1, 0), 0);
            EXPECT_EQ(fi_av_remove(av.get(), &to_b, 1, 0), 0);
            run_some();
            insert();
            if (!has_ended(&receive_) && GetParam().messages > 0) {
                EXPECT_EQ(fi_cancel(&b.ep->fid, &receive_), 0);
            }
            take();
            receive();
            operate(&second_);
            EXPECT_EQ(errors_[&second_], 0);
        }
        run_until([&] {
            take();
            return GetParam().is_there(*this);
        });
        EXPECT_EQ(entries_[&first_] + errors_[&first_], 1);
    }

    void run() {
        sweep([&] { open_new(); },
              [&] {
                  insert();
                  receive();
                  operate(&first_);
              },
              [&] { finish(); });
        EXPECT_GT(failed_, 3U);
    }

    static constexpr int kSleepMs = 20'000;

    bool sleeps_ = false;
    std::map<const void*, int> entries_;
    std::map<const void*, int> errors_;
    Owner<fid_mr> other_;
    int first_ = 0;
    int second_ = 0;
    int receive_ = 0;
};

bool has_message(const FiNoMemory& test) {
    return test.received.starts_with(test.text);
}
bool has_long_message(const FiNoMemory& test) {
    return test.received == test.long_text;
}
bool has_lists(const FiNoMemory& test) {
    return test.received.starts_with(test.text.substr(0, 10) + test.text.substr(20, 10));
}
bool is_written(const FiNoMemory& test) {
    return test.other.starts_with(test.text.substr(0, 64));
}
bool is_read(const FiNoMemory& test) {
    return test.got == test.other.substr(0, 64);
}
// An atomic operation may have been carried out although its reply was lost with the connection.
bool has_results(const FiNoMemory& test) {
    return test.words[599] - 0x2e2e2e2e2e2e2e2e < 2;
}
bool has_sum(const FiNoMemory& test) {
    return test.other[0] > '.' && test.other[0] < '1' && test.other[8] == '.';
}

const Kind kKinds[] = {
    {"tsend",
     [](FiNoMemory& test, void* context) {
         return fi_tsend(test.from(), test.text.data(), test.text.size(), nullptr, test.peer(), 1,
                         context);
     },
     1, has_message},
    {"tsend_long",
     [](FiNoMemory& test, void* context) {
         return fi_tsend(test.from(), test.long_text.data(), test.long_text.size(), nullptr,
                         test.peer(), 1, context);
     },
     1, has_long_message},
    {"tsendv",
     [](FiNoMemory& test, void* context) {
         const iovec iov[] = {{test.text.data(), 10}, {test.text.data() + 20, 10}};
         return fi_tsendv(test.from(), iov, nullptr, 2, test.peer(), 1, context);
     },
     1, has_lists},
    {"write",
     [](FiNoMemory& test, void* context) {
         return fi_write(test.from(), test.text.data(), 64, nullptr, test.peer(), 0, kOtherKey,
                         context);
     },
     0, is_written},
    {"inject_list_write",
     [](FiNoMemory& test, void* context) {
         const iovec iov = {test.text.data(), 64};
         const fi_rma_iov remote[] = {{0, 32, kOtherKey}, {32, 32, kOtherKey}};
         fi_msg_rma msg{};
         msg.msg_iov = &iov;
         msg.iov_count = 1;
         msg.addr = test.peer();
         msg.rma_iov = remote;
         msg.rma_iov_count = 2;
         msg.context = context;
         msg.data = 0xda7a;
         return fi_writemsg(test.from(), &msg, FI_INJECT | FI_REMOTE_CQ_DATA | FI_COMPLETION);
     },
     0, is_written},
    {"fenced_write",
     [](FiNoMemory& test, void* context) {
         const iovec iov = {test.text.data(), 64};
         const fi_rma_iov remote = {0, 64, kOtherKey};
         fi_msg_rma msg{};
         msg.msg_iov = &iov;
         msg.iov_count = 1;
         msg.addr = test.peer();
         msg.rma_iov = &remote;
         msg.rma_iov_count = 1;
         msg.context = context;
         return fi_writemsg(test.from(), &msg, FI_FENCE | FI_COMPLETION);
     },
     0, is_written},
    {"read",
     [](FiNoMemory& test, void* context) {
         return fi_read(test.from(), test.got.data(), 64, nullptr, test.peer(), 0, kOtherKey,
                        context);
     },
     0, is_read},
    {"fetch_atomic",
     [](FiNoMemory& test, void* context) {
         return fi_fetch_atomic(test.from(), test.words.data(), 300, nullptr,
                                test.words.data() + 300, nullptr, test.peer(), 0, kOtherKey,
                                FI_UINT64, FI_SUM, context);
     },
     0, has_results},
    {"atomic",
     [](FiNoMemory& test, void* context) {
         return fi_atomic(test.from(), test.words.data(), 1, nullptr, test.peer(), 0, kOtherKey,
                          FI_UINT64, FI_SUM, context);
     },
     0, has_sum},
};

TEST_P(FiNoMemory, the_operation_ends_once_whatever_fails) {
    run();
}

TEST_P(FiNoMemory, who_sleeps_is_woken) {
    sleeps_ = true;
    run();
}

INSTANTIATE_TEST_SUITE_P(Kinds, FiNoMemory, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<Kind>& kind) {
                             return std::string(kind.param.name);
                         });

}  // namespace

}  // namespace tagwire::fi_test
