// SPDX-License-Identifier: BSD-3-Clause
// Objects are opened and bound while allocations fail: a call that is refused has done nothing, and
// the same call succeeds when there is memory again.
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "no_memory.hpp"

namespace tagwire::fi_test {

namespace {

class FiNoMemoryObjects : public NoMemoryPair {
  protected:
    /// The same call succeeds once there is memory.
    void refused_or_done(const std::function<ssize_t()>& call, ssize_t expected = 0) {
        ssize_t status = call();
        if (status == -FI_ENOMEM) {
            ++refused_;
            status = call();
        }
        EXPECT_EQ(status, expected) << fi_strerror(static_cast<int>(-status));
    }
    template <class Object>
    Owner<Object> made(const std::function<int(Object**)>& open) {
        Object* object = nullptr;
        refused_or_done([&] { return open(&object); });
        return Owner<Object>(object);
    }

    void ask_for_info() {
        const auto hints = hints_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT |
                                     FI_SOURCE | FI_DIRECTED_RECV);
        hints->domain_attr->data_progress = data_progress_;
        // libfabric tells of no error of a provider, but that none has an answer.
        fi_info* found = nullptr;
        for (int i = 0; i < 2 && found == nullptr; ++i)
            fi_getinfo(kVersion, "127.0.0.1", service_.c_str(), FI_SOURCE, hints.get(), &found);
        info.reset(found);
    }
    void open_domain() {
        fabric = made<fid_fabric>(
            [&](fid_fabric** object) { return fi_fabric(info->fabric_attr, object, nullptr); });
        domain = made<fid_domain>([&](fid_domain** object) {
            return fi_domain(fabric.get(), info.get(), object, nullptr);
        });
        fi_eq_attr eq_attr{};
        eq_attr.wait_obj = FI_WAIT_FD;
        eq = made<fid_eq>(
            [&](fid_eq** object) { return fi_eq_open(fabric.get(), &eq_attr, object, nullptr); });
        fi_av_attr av_attr{};
        av_attr.flags = FI_EVENT;
        av_attr.count = 4;
        av = made<fid_av>(
            [&](fid_av** object) { return fi_av_open(domain.get(), &av_attr, object, nullptr); });
        refused_or_done([&] { return fi_av_bind(av.get(), &eq->fid, 0); });
    }
    void open_queue(Owner<fid_cq>& cq) {
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        attr.wait_obj = FI_WAIT_FD;
        cq = made<fid_cq>(
            [&](fid_cq** object) { return fi_cq_open(domain.get(), &attr, object, nullptr); });
    }
    void bind(Side& side, fid_t other, std::uint64_t flags) {
        refused_or_done([&] { return fi_ep_bind(side.ep.get(), other, flags); });
    }
    void open_endpoint(Side& side) {
        open_queue(side.tx);
        open_queue(side.rx);
        side.writes = made<fid_cntr>([&](fid_cntr** object) {
            return fi_cntr_open(domain.get(), nullptr, object, nullptr);
        });
        side.remote_writes = made<fid_cntr>([&](fid_cntr** object) {
            return fi_cntr_open(domain.get(), nullptr, object, nullptr);
        });
        side.ep = made<fid_ep>([&](fid_ep** object) {
            return fi_endpoint(domain.get(), info.get(), object, nullptr);
        });
        info->src_addrlen = 0;  // one endpoint binds the port
        bind(side, &av->fid, 0);
        bind(side, &side.tx->fid, FI_TRANSMIT);
        bind(side, &side.rx->fid, FI_RECV);
        bind(side, &side.writes->fid, FI_WRITE);
        bind(side, &side.remote_writes->fid, FI_REMOTE_WRITE);
        refused_or_done([&] { return fi_enable(side.ep.get()); });
        refused_or_done([&] {
            std::size_t length = side.name.size();
            return fi_getname(&side.ep->fid, side.name.data(), &length);
        });
    }
    /// Insertions succeed as a whole, or not at all, and have as many events.
    void insert() {
        const std::array<Name, 3> names = {a.name, Name{}, b.name};
        fi_addr_t addrs[3] = {};
        int context = 0;
        refused_or_done(
            [&] { return fi_av_insert(av.get(), names.data(), 3, addrs, 0, &context); });
        to_a = addrs[0];
        to_b = addrs[2];
        EXPECT_EQ(to_a, 0U);
        EXPECT_EQ(to_b, 1U);
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        EXPECT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0), -FI_EAVAIL);
        fi_eq_err_entry error{};
        EXPECT_GT(fi_eq_readerr(eq.get(), &error, 0), 0);
        EXPECT_EQ(error.data, 1U);
        EXPECT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0),
                  static_cast<ssize_t>(sizeof entry));
        EXPECT_EQ(entry.data, 2U);
        EXPECT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0), -FI_EAGAIN);
        refused_or_done([&] { return fi_eq_write(eq.get(), 1, &context, sizeof context, 0); },
                        sizeof context);
    }
    void open_region() {
        memory = text_of(4096);
        mr = made<fid_mr>([&](fid_mr** object) {
            return fi_mr_reg(domain.get(), memory.data(), memory.size(), kRemote, 0, 7, 0, object,
                             nullptr);
        });
        reads_ = made<fid_cntr>([&](fid_cntr** object) {
            return fi_cntr_open(domain.get(), nullptr, object, nullptr);
        });
        refused_or_done(
            [&] { return fi_mr_bind(mr.get(), &reads_->fid, FI_REMOTE_READ | FI_REMOTE_WRITE); });
    }
    void wait_once() {
        fid* fids[] = {&a.tx->fid, &reads_->fid};
        refused_or_done([&] {
            int status = -FI_EAGAIN;
            for (int i = 0; i < 1000 && status == -FI_EAGAIN; ++i)
                status = fi_trywait(fabric.get(), fids, 2);
            return status;
        });
    }
    void open_all() {
        ask_for_info();
        ASSERT_NE(info, nullptr);
        open_domain();
        open_endpoint(a);
        open_endpoint(b);
        insert();
        open_region();
        wait_once();
    }
    void expect_all_works() {
        if (HasFailure())
            return;
        Text buffer(64, '-');
        int context = 0;
        trecv(buffer, 5, 0, &context, to_a);
        tsend("hello", 5);
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(next(b.rx, &source).len, 5U);
        EXPECT_EQ(source, to_a);
        write("works", 9);
        expect_held("works", 9);
        // The counters of the region and of the endpoint count it.
        run_until([&] {
            return fi_cntr_read(reads_.get()) == 1 && fi_cntr_read(b.remote_writes.get()) == 1;
        });
    }
    void close_all() {
        mr.reset();
        a.ep.reset();
        b.ep.reset();
        reads_.reset();
        a = {};
        b = {};
        av.reset();
        eq.reset();
        domain.reset();
        fabric.reset();
        info.reset();
        texts.clear();
        Text().swap(memory);
    }

    /// Sweeps, and again: what lasts for the process is there behind the first time, and each
    /// object, buffer or descriptor that a refused call leaves behind comes on top of it.
    void sweep_and_leave_nothing(const std::function<void()>& call,
                                 const std::function<void()>& finish) {
        ASSERT_NO_FATAL_FAILURE(sweep([] {}, call, finish));
        const Left before = Left::now();
        const unsigned long refusals = failed_;
        ASSERT_NO_FATAL_FAILURE(sweep([] {}, call, finish));
        const Left after = Left::now();
        EXPECT_EQ(after.descriptors, before.descriptors);
        EXPECT_LT(after.bytes, before.bytes + kNoiseBytes) << failed_ - refusals << " refusals";
    }

    struct Left {
        std::size_t bytes, descriptors;
        static Left now() {
            const std::filesystem::directory_iterator fds("/proc/self/fd");
            return {::mallinfo2().uordblks,
                    static_cast<std::size_t>(std::distance(begin(fds), end(fds)))};
        }
    };
    /// Where malloc(3) has no caches of its own, which count as in use.
    static constexpr std::size_t kNoiseBytes = 64;

    fi_progress data_progress_ = FI_PROGRESS_MANUAL;
    Text service_ = std::to_string(20000 + ::getpid() % 20000);
    Owner<fid_eq> eq;
    Owner<fid_cntr> reads_;
};

TEST_F(FiNoMemoryObjects, a_refused_call_has_done_nothing) {
    ask_for_info();  // loads the provider
    info.reset();
    sweep_and_leave_nothing([&] { open_all(); },
                            [&] {
                                expect_all_works();
                                close_all();
                            });
    EXPECT_GT(failed_, 40U);
    EXPECT_GT(refused_, failed_ / 2);
}

TEST_F(FiNoMemoryObjects, a_thread_of_the_provider_is_no_exception) {
    data_progress_ = FI_PROGRESS_AUTO;
    ask_for_info();
    sweep_and_leave_nothing([&] { open_domain(); },
                            [&] {
                                close_all();
                                ask_for_info();
                            });
    EXPECT_GT(failed_, 4U);
    close_all();
}

}  // namespace

}  // namespace tagwire::fi_test
