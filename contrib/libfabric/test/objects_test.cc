// SPDX-License-Identifier: BSD-3-Clause
// Queues, counters, event queues, address vectors, and the lifetimes of objects.
#include <poll.h>

#include <cstring>
#include <thread>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiObjects : public Pair {};
class FiWait : public Pair {};

TEST_F(FiObjects, every_format_has_what_it_promises) {
    for (const fi_cq_format format :
         {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
        open({.format = format});
        int mark = 0;
        Text got(4, ' ');
        trecv(got, 9, 0, &mark);
        tsendmsg("text", 9, FI_REMOTE_CQ_DATA);
        fi_cq_tagged_entry entry;
        std::memset(&entry, 0x55, sizeof entry);
        run_until([&] { return fi_cq_read(b.rx.get(), &entry, 1) == 1; });
        EXPECT_EQ(entry.op_context, &mark);
        EXPECT_TRUE(format < FI_CQ_FORMAT_MSG || entry.len == 4);
        EXPECT_TRUE(format < FI_CQ_FORMAT_DATA || entry.data == 0xda7a);
        EXPECT_EQ(entry.tag, format == FI_CQ_FORMAT_TAGGED ? 9U : 0x5555555555555555U);
        close();
    }
}

TEST_F(FiObjects, a_full_queue_makes_sends_wait_and_loses_nothing) {
    open({.cq_size = 4});
    Text got[100];
    for (auto& room : got) {
        room.resize(4);
        trecv(room, 1);
    }
    int sent = 0;
    ssize_t status = 0;
    for (; sent < 100 && status == 0; sent += status == 0 ? 1 : 0)
        status = fi_tsend(a.ep.get(), "text", 4, nullptr, to_b, 1, nullptr);
    EXPECT_EQ(status, -FI_EAGAIN);
    EXPECT_GE(sent, 4);
    for (; sent < 100; ++sent) {
        next(a.tx);
        tsend("text", 1);
    }
    for (int i = 0; i < 100; ++i)
        next(b.rx);
    EXPECT_TRUE(is_empty(b.rx));
}

/// Open MPI's threads handle an entry, send, and read no other meanwhile.
TEST_F(FiObjects, a_send_that_is_repeated_is_taken_though_nobody_reads) {
    open({.cq_size = 4});
    expect_taken_without_reading(
        [&] { return fi_tsend(a.ep.get(), "text", 4, nullptr, to_b, 1, nullptr); });
}

/// With entries before, between and behind errors, however few are read at a time.
TEST_F(FiObjects, errors_keep_their_place_among_the_entries) {
    for (const fi_cq_format format :
         {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
        open({.format = format});
        int marks[6] = {};
        Text got[6];
        for (std::size_t i = 0; i < 6; ++i) {
            got[i].resize(4);
            trecv(got[i], i, 0, &marks[i]);
        }
        // 1, 3 and 4 are cancelled.
        for (const std::size_t i : {0U, 1U, 2U, 3U, 4U, 5U}) {
            if (i == 1 || i == 3 || i == 4) {
                ASSERT_EQ(fi_cancel(&b.ep->fid, &marks[i]), 0);
            } else {
                tsend("text", i);
            }
            run_some();
        }
        std::byte entries[3 * sizeof(fi_cq_tagged_entry)];
        ssize_t count = 0;
        const auto context = [&] { return *reinterpret_cast<void**>(entries); };
        for (std::size_t i = 0; i < 6; ++i) {
            run_until([&] { return (count = fi_cq_read(b.rx.get(), entries, 3)) != -FI_EAGAIN; });
            if (i == 1 || i == 3 || i == 4) {
                fi_cq_err_entry error{};
                ASSERT_EQ(count, -FI_EAVAIL);
                ASSERT_EQ(fi_cq_readerr(b.rx.get(), &error, 0), 1);
                EXPECT_EQ(error.op_context, &marks[i]);
            } else {
                ASSERT_EQ(count, 1);
                EXPECT_EQ(context(), &marks[i]);
            }
        }
        EXPECT_TRUE(is_empty(b.rx));
        close();
    }
}

/// The core tells the provider which version the program has asked for; what is behind the entry of
/// that version is the program's.
TEST_F(FiObjects, an_error_entry_is_as_long_as_the_program_knows_it) {
    struct {
        std::uint32_t version;
        std::size_t bytes;
    } const programs[] = {
        {FI_VERSION(1, 4), offsetof(fi_cq_err_entry, err_data_size)},
        {FI_VERSION(1, 17),
         offsetof(fi_cq_err_entry, err_data_size) + sizeof(fi_cq_err_entry::err_data_size)},
    };
    constexpr unsigned char kCanary = 0xc5;
    for (const auto& program : programs) {
        open({.version = program.version});
        Text room(4, ' ');
        int mark = 0;
        trecv(room, 1, 0, &mark);
        ASSERT_EQ(fi_cancel(&b.ep->fid, &mark), 0);
        fi_cq_tagged_entry entry{};
        run_until([&] { return fi_cq_read(b.rx.get(), &entry, 1) == -FI_EAVAIL; });
        // Not with fi_cq_readerr(), which writes into the entry of its own headers from 1.20 on.
        struct {
            fi_cq_err_entry entry;
            char behind[64];
        } error;
        std::memset(&error, kCanary, sizeof error);
        ASSERT_EQ(b.rx->ops->readerr(b.rx.get(), &error.entry, 0), 1);
        EXPECT_EQ(error.entry.op_context, &mark);
        EXPECT_EQ(error.entry.err, FI_ECANCELED);
        const auto* bytes = reinterpret_cast<const unsigned char*>(&error);
        for (std::size_t i = program.bytes; i < sizeof error; ++i)
            EXPECT_EQ(bytes[i], kCanary) << "byte " << i;
        close();
    }
}

TEST_F(FiObjects, counters_count_successes_and_errors) {
    open({.has_counters = true});
    Text got(4, ' ');
    trecv(got, 1);
    trecv(got, 1);
    retry([&] { return fi_tinject(a.ep.get(), "text", 4, to_b, 1); });
    tsend("longer", 1);
    // Progress of the sender: without it tcp may keep the second message to send it with others.
    EXPECT_EQ(fi_cntr_wait(a.tx_cntr.get(), 2, 10000), 0);
    EXPECT_EQ(fi_cntr_wait(b.rx_cntr.get(), 2, 10000), -FI_EAVAIL);
    EXPECT_EQ(fi_cntr_read(b.rx_cntr.get()), 1U);
    EXPECT_EQ(fi_cntr_readerr(b.rx_cntr.get()), 1U);
    EXPECT_EQ(fi_cntr_wait(a.tx_cntr.get(), 3, 1), -FI_ETIMEDOUT);
    ASSERT_EQ(fi_cntr_set(a.tx_cntr.get(), 10), 0);
    ASSERT_EQ(fi_cntr_add(a.tx_cntr.get(), 5), 0);
    ASSERT_EQ(fi_cntr_seterr(a.tx_cntr.get(), 1), 0);
    ASSERT_EQ(fi_cntr_adderr(a.tx_cntr.get(), 2), 0);
    EXPECT_EQ(fi_cntr_read(a.tx_cntr.get()), 15U);
    EXPECT_EQ(fi_cntr_readerr(a.tx_cntr.get()), 3U);
}

TEST_F(FiObjects, what_is_in_use_cannot_be_closed) {
    open();
    EXPECT_EQ(fi_close(&fabric->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&domain->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&av->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&a.rx->fid), -FI_EBUSY);
}

TEST_F(FiObjects, an_endpoint_wants_a_vector_and_queues_before_it_works) {
    open();
    fid_ep* made = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &made, nullptr), 0);
    const Owner<fid_ep> ep(made);
    EXPECT_EQ(fi_enable(made), -FI_ENOAV);
    ASSERT_EQ(fi_ep_bind(made, &av->fid, 0), 0);
    EXPECT_EQ(fi_enable(made), -FI_ENOCQ);
    EXPECT_EQ(fi_tsend(made, "text", 4, nullptr, to_b, 1, nullptr), -FI_EOPBADSTATE);
    EXPECT_EQ(fi_recv(made, nullptr, 0, nullptr, to_b, nullptr), -FI_EOPBADSTATE);
    ASSERT_EQ(fi_ep_bind(made, &a.tx->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_ep_bind(made, &a.tx->fid, FI_RECV), -FI_EINVAL);
    EXPECT_EQ(fi_enable(made), 0);
    EXPECT_EQ(fi_ep_bind(made, &a.rx->fid, FI_RECV), -FI_EOPBADSTATE);
}

TEST_F(FiObjects, without_the_capability_a_call_is_refused) {
    open({.caps = FI_TAGGED});
    EXPECT_EQ(fi_send(a.ep.get(), "text", 4, nullptr, to_b, nullptr), -FI_EOPNOTSUPP);
}

TEST_F(FiObjects, a_message_that_was_sent_arrives_although_its_endpoint_is_closed) {
    open();
    tsend(Text(5000, 'x'), 1);
    a.ep.reset();
    Text got(5000, ' ');
    trecv(got, 1);
    next(b.rx);
    EXPECT_EQ(got, Text(5000, 'x'));
}

TEST_F(FiObjects, several_endpoints_share_a_queue) {
    open();
    Name name{};
    const Owner<fid_ep> third = open_third(&name);
    fi_addr_t to_third = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insert(av.get(), name.data(), 1, &to_third, 0, nullptr), 1);
    int marks[2] = {};
    Text got[2] = {Text(4, ' '), Text(4, ' ')};
    trecv(got[0], 1, 0, &marks[0]);
    ASSERT_EQ(fi_trecv(third.get(), got[1].data(), 4, nullptr, FI_ADDR_UNSPEC, 1, 0, &marks[1]), 0);
    retry([&] { return fi_tsend(a.ep.get(), "3333", 4, nullptr, to_third, 1, nullptr); });
    EXPECT_EQ(next(b.rx).op_context, &marks[1]);
    tsend("bbbb", 1);
    EXPECT_EQ(next(b.rx).op_context, &marks[0]);
}

TEST_F(FiObjects, insertions_are_reported_to_an_event_queue) {
    open();
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_UNSPEC;
    fid_eq* made_eq = nullptr;
    ASSERT_EQ(fi_eq_open(fabric.get(), &eq_attr, &made_eq, nullptr), 0);
    const Owner<fid_eq> eq(made_eq);
    fi_av_attr attr{};
    attr.flags = FI_EVENT;
    fid_av* made = nullptr;
    ASSERT_EQ(fi_av_open(domain.get(), &attr, &made, nullptr), 0);
    const Owner<fid_av> vector(made);
    const std::array<Name, 2> names = {a.name, Name{}};
    fi_addr_t addrs[2];
    int mark = 0;
    EXPECT_EQ(fi_av_insert(made, names.data(), 2, addrs, 0, &mark), -FI_ENOEQ);
    ASSERT_EQ(made->fid.ops->bind(&made->fid, &eq->fid, 0), 0);
    EXPECT_EQ(fi_close(&eq->fid), -FI_EBUSY);
    ASSERT_EQ(fi_av_insert(made, names.data(), 2, addrs, 0, &mark), 0);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0), -FI_EAVAIL);
    fi_eq_err_entry error{};
    ASSERT_EQ(fi_eq_readerr(eq.get(), &error, 0), ssize_t{sizeof error});
    EXPECT_EQ(error.data, 1U);
    EXPECT_EQ(error.context, &mark);
    ASSERT_EQ(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 1000, 0), ssize_t{sizeof entry});
    EXPECT_EQ(event, std::uint32_t{FI_AV_COMPLETE});
    EXPECT_EQ(entry.fid, &made->fid);
    EXPECT_EQ(entry.data, 1U);
}

TEST_F(FiObjects, a_program_writes_events_and_reads_them) {
    open();
    fi_eq_attr attr{};
    attr.flags = FI_WRITE;
    attr.wait_obj = FI_WAIT_FD;
    fid_eq* made = nullptr;
    ASSERT_EQ(fi_eq_open(fabric.get(), &attr, &made, nullptr), 0);
    const Owner<fid_eq> eq(made);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_read(made, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
    EXPECT_EQ(fi_eq_sread(made, &event, &entry, sizeof entry, 1, 0), -FI_EAGAIN);
    entry.data = 77;
    ASSERT_EQ(fi_eq_write(made, FI_NOTIFY, &entry, sizeof entry, 0), ssize_t{sizeof entry});
    int fd = -1;
    ASSERT_EQ(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
    pollfd readable{fd, POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 1);
    entry = {};
    EXPECT_EQ(fi_eq_read(made, &event, &entry, sizeof entry - 1, 0), -FI_ETOOSMALL);
    EXPECT_EQ(fi_eq_read(made, &event, &entry, sizeof entry, FI_PEEK), ssize_t{sizeof entry});
    EXPECT_EQ(fi_eq_read(made, &event, &entry, sizeof entry, 0), ssize_t{sizeof entry});
    EXPECT_EQ(event, std::uint32_t{FI_NOTIFY});
    EXPECT_EQ(entry.data, 77U);
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

/// The other side, in a thread of its own, answers messages until it is told to end.
void echo(Side& side, fi_addr_t to, int rounds) {
    char text[8];
    for (int i = 0; i < rounds; ++i) {
        fi_cq_tagged_entry entry;
        while (fi_trecv(side.ep.get(), text, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) != 0) {
        }
        while (fi_cq_sread(side.rx.get(), &entry, 1, nullptr, -1) != 1) {
        }
        while (fi_tinject(side.ep.get(), text, 8, to, 1) == -FI_EAGAIN) {
        }
    }
}

TEST_F(FiWait, two_threads_of_a_safe_domain_sleep_and_wake) {
    for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_YIELD}) {
        open({.threading = FI_THREAD_SAFE, .wait_obj = wait});
        constexpr int kRounds = 300;
        std::thread other([&] { echo(b, to_a, kRounds); });
        char text[8] = "ping";
        for (int i = 0; i < kRounds; ++i) {
            fi_cq_tagged_entry entry;
            EXPECT_EQ(fi_trecv(a.ep.get(), text, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
            while (fi_tinject(a.ep.get(), "ping", 5, to_b, 1) == -FI_EAGAIN) {
            }
            EXPECT_EQ(fi_cq_sread(a.rx.get(), &entry, 1, nullptr, 30000), 1);
        }
        other.join();
        EXPECT_STREQ(text, "ping");
        close();
    }
}

TEST_F(FiWait, a_read_that_waits_ends_at_its_time_or_when_it_is_signalled) {
    open({.threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_UNSPEC});
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(a.rx.get(), &entry, 1, nullptr, 1), -FI_EAGAIN);
    std::thread other([&] { EXPECT_EQ(fi_cq_signal(a.rx.get()), 0); });
    EXPECT_EQ(fi_cq_sread(a.rx.get(), &entry, 1, nullptr, -1), -FI_EAGAIN);
    other.join();
}

TEST_F(FiWait, a_queue_without_a_wait_object_does_not_wait) {
    open();
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(a.rx.get(), &entry, 1, nullptr, 1), -FI_EINVAL);
}

TEST_F(FiWait, a_descriptor_tells_that_something_has_come) {
    open({.wait_obj = FI_WAIT_FD});
    Text got(4, ' ');
    trecv(got, 1);
    run_some();
    int fd = -1;
    ASSERT_EQ(fi_control(&b.rx->fid, FI_GETWAIT, &fd), 0);
    fid* fids[] = {&b.rx->fid};
    run_until([&] { return fi_trywait(fabric.get(), fids, 1) == 0; });
    tsend("text", 1);
    pollfd readable{fd, POLLIN, 0};
    for (int i = 0; i < 1000 && poll(&readable, 1, 10) == 0; ++i)
        fi_cq_read(a.tx.get(), nullptr, 0);
    EXPECT_NE(readable.revents & POLLIN, 0);
    next(b.rx);
    EXPECT_EQ(got, "text");
}

}  // namespace

}  // namespace tagwire::fi_test
