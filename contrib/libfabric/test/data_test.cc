// SPDX-License-Identifier: BSD-3-Clause
// Sends and receives: every call, matching, and memory.
#include <algorithm>
#include <cstring>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

/// Short, of some fragments, and long enough for a rendezvous.
constexpr std::size_t kLengths[] = {0, 1, 8, 100, 5000, 70000, 1000000};

class FiTagged : public Pair {};
class FiMsg : public Pair {};

TEST_F(FiTagged, messages_of_all_lengths_arrive_expected_and_unexpected) {
    open();
    int sent = 0;
    int received = 0;
    for (const std::size_t length : kLengths) {
        for (const bool is_expected : {true, false}) {
            const Text text = text_of(length);
            Text got(length, '\0');
            if (is_expected)
                trecv(got, 7, 0, &received);
            tsend(text, 7, &sent);
            if (!is_expected) {
                run_some();
                trecv(got, 7, 0, &received);
            }
            fi_addr_t source = FI_ADDR_NOTAVAIL;
            const auto in = next(b.rx, &source);
            EXPECT_EQ(in.op_context, &received);
            EXPECT_EQ(in.flags, kTaggedRecv);
            EXPECT_EQ(in.len, length);
            EXPECT_EQ(in.tag, 7U);
            EXPECT_EQ(source, to_a);
            EXPECT_EQ(got, text);
            const auto out = next(a.tx);
            EXPECT_EQ(out.op_context, &sent);
            EXPECT_EQ(out.flags, std::uint64_t{FI_TAGGED | FI_SEND});
        }
    }
}

TEST_F(FiMsg, all_nine_calls) {
    open();
    Text got(100, '\0');
    const Text text = "nine calls";
    const iovec from[] = {{const_cast<char*>(text.data()), 4},
                          {const_cast<char*>(text.data()) + 4, text.size() - 4}};
    const iovec to[] = {{got.data(), 3}, {got.data() + 3, got.size() - 3}};
    fi_msg out{from, nullptr, 2, to_b, nullptr, 5};
    fi_msg in{to, nullptr, 2, FI_ADDR_UNSPEC, nullptr, 0};
    fid_ep* ea = a.ep.get();
    fid_ep* eb = b.ep.get();
    const std::function<ssize_t()> receives[] = {
        [&] { return fi_recv(eb, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, nullptr); },
        [&] { return fi_recvv(eb, to, nullptr, 2, FI_ADDR_UNSPEC, nullptr); },
        [&] { return fi_recvmsg(eb, &in, 0); }};
    struct {
        std::function<ssize_t()> call;
        std::uint64_t data;
        bool is_reported;
    } const sends[] = {
        {[&] { return fi_send(ea, text.data(), text.size(), nullptr, to_b, nullptr); }, 0, true},
        {[&] { return fi_sendv(ea, from, nullptr, 2, to_b, nullptr); }, 0, true},
        {[&] { return fi_sendmsg(ea, &out, FI_REMOTE_CQ_DATA); }, 5, true},
        {[&] { return fi_inject(ea, text.data(), text.size(), to_b); }, 0, false},
        {[&] {
             return fi_senddata(ea, text.data(), text.size(), nullptr, UINT64_MAX, to_b, nullptr);
         },
         UINT64_MAX, true},
        {[&] { return fi_injectdata(ea, text.data(), text.size(), 9, to_b); }, 9, false}};
    for (const auto& receive : receives) {
        for (const auto& send : sends) {
            std::fill(got.begin(), got.end(), '\0');
            ASSERT_EQ(receive(), 0);
            retry(send.call);
            const auto entry = next(b.rx);
            EXPECT_EQ(entry.flags, kMsgRecv | (send.data != 0 ? FI_REMOTE_CQ_DATA : 0));
            EXPECT_EQ(entry.data, send.data);
            EXPECT_EQ(entry.len, text.size());
            EXPECT_EQ(got.substr(0, text.size()), text);
            if (send.is_reported)
                next(a.tx);
            EXPECT_TRUE(is_empty(a.tx));
        }
    }
}

TEST_F(FiTagged, all_nine_calls) {
    open();
    Text got(100, '\0');
    const Text text = "nine calls";
    const iovec from[] = {{const_cast<char*>(text.data()), 4},
                          {const_cast<char*>(text.data()) + 4, text.size() - 4}};
    const iovec to[] = {{got.data(), 3}, {got.data() + 3, got.size() - 3}};
    fi_msg_tagged out{from, nullptr, 2, to_b, 3, 0, nullptr, 5};
    fi_msg_tagged in{to, nullptr, 2, FI_ADDR_UNSPEC, 1, 2, nullptr, 0};
    fid_ep* ea = a.ep.get();
    fid_ep* eb = b.ep.get();
    const std::function<ssize_t()> receives[] = {
        [&] {
            return fi_trecv(eb, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 2, nullptr);
        },
        [&] { return fi_trecvv(eb, to, nullptr, 2, FI_ADDR_UNSPEC, 1, 2, nullptr); },
        [&] { return fi_trecvmsg(eb, &in, 0); }};
    struct {
        std::function<ssize_t()> call;
        std::uint64_t data;
        bool is_reported;
    } const sends[] = {
        {[&] { return fi_tsend(ea, text.data(), text.size(), nullptr, to_b, 3, nullptr); }, 0,
         true},
        {[&] { return fi_tsendv(ea, from, nullptr, 2, to_b, 3, nullptr); }, 0, true},
        {[&] { return fi_tsendmsg(ea, &out, FI_REMOTE_CQ_DATA); }, 5, true},
        {[&] { return fi_tinject(ea, text.data(), text.size(), to_b, 3); }, 0, false},
        {[&] {
             return fi_tsenddata(ea, text.data(), text.size(), nullptr, UINT64_MAX, to_b, 3,
                                 nullptr);
         },
         UINT64_MAX, true},
        {[&] { return fi_tinjectdata(ea, text.data(), text.size(), 9, to_b, 3); }, 9, false}};
    for (const auto& receive : receives) {
        for (const auto& send : sends) {
            std::fill(got.begin(), got.end(), '\0');
            ASSERT_EQ(receive(), 0);
            retry(send.call);
            const auto entry = next(b.rx);
            EXPECT_EQ(entry.flags, kTaggedRecv | (send.data != 0 ? FI_REMOTE_CQ_DATA : 0));
            EXPECT_EQ(entry.data, send.data);
            EXPECT_EQ(entry.tag, 3U);
            EXPECT_EQ(got.substr(0, text.size()), text);
            if (send.is_reported)
                next(a.tx);
            EXPECT_TRUE(is_empty(a.tx));
        }
    }
}

TEST_F(FiTagged, the_earliest_receive_that_matches_gets_the_message) {
    open();
    int marks[3] = {};
    Text got[3] = {Text(4, ' '), Text(4, ' '), Text(4, ' ')};
    trecv(got[0], 0x10, 0x0f, &marks[0]);
    trecv(got[1], 0x12, 0, &marks[1]);
    trecv(got[2], 0, ~std::uint64_t{0}, &marks[2]);
    tsend("late", 0x22);
    EXPECT_EQ(next(b.rx).op_context, &marks[2]);
    tsend("wild", 0x12);
    EXPECT_EQ(next(b.rx).op_context, &marks[0]);
    tsend("same", 0x12);
    EXPECT_EQ(next(b.rx).op_context, &marks[1]);
}

/// Sends that go on behind their calls, and receives, begin in turn: each operation ends once.
TEST_F(FiTagged, long_messages_cross_in_both_directions) {
    open();
    constexpr std::size_t kMessages = 40;
    const Text text = text_of(100'000);
    Text got[2][kMessages];
    int marks[4][kMessages] = {};  // sends of a, receives of a, those of b
    const Side* const sides[] = {&a, &b};
    for (std::size_t i = 0; i < kMessages; ++i) {
        for (const std::size_t k : {0U, 1U}) {
            Text& room = got[k][i];
            room.assign(text.size(), ' ');
            fid_ep* const ep = sides[k]->ep.get();
            ASSERT_EQ(fi_trecv(ep, room.data(), room.size(), nullptr, FI_ADDR_UNSPEC, i, 0,
                               &marks[2 * k + 1][i]),
                      0);
            retry([&] {
                return fi_tsend(ep, text.data(), text.size(), nullptr, k == 0 ? to_b : to_a, i,
                                &marks[2 * k][i]);
            });
        }
    }
    for (std::size_t i = 0; i < kMessages; ++i)
        for (const auto* cq : {&a.tx, &a.rx, &b.tx, &b.rx})
            ++*static_cast<int*>(next(*cq).op_context);
    for (const auto& of_kind : marks)
        for (const int mark : of_kind)
            EXPECT_EQ(mark, 1);
    for (const auto& of_side : got)
        for (const Text& room : of_side)
            EXPECT_EQ(room, text);
}

TEST_F(FiTagged, a_directed_receive_takes_from_its_source_only) {
    open();
    int marks[2] = {};
    Text from_b(4, ' ');
    Text from_a(4, ' ');
    trecv(from_b, 1, 0, &marks[0], to_b);
    trecv(from_a, 1, 0, &marks[1], to_a);
    tsend("aaaa", 1);
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(next(b.rx, &source).op_context, &marks[1]);
    EXPECT_EQ(source, to_a);
    retry([&] { return fi_tsend(b.ep.get(), "bbbb", 4, nullptr, to_b, 1, nullptr); });
    EXPECT_EQ(next(b.rx, &source).op_context, &marks[0]);
    EXPECT_EQ(source, to_b);
}

TEST_F(FiTagged, without_the_capability_the_source_of_a_receive_is_ignored) {
    open({.caps = FI_TAGGED});
    Text got(4, ' ');
    trecv(got, 1, 0, nullptr, to_b);
    tsend("aaaa", 1);
    fi_addr_t source = 0;
    next(b.rx, &source);
    EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

TEST_F(FiTagged, a_longer_message_is_an_error_with_both_lengths) {
    open();
    for (const std::size_t length : {20UL, 70000UL}) {
        int mark = 0;
        Text got(5, ' ');
        trecv(got, 1, 0, &mark);
        tsend(text_of(length), 1);
        const auto error = next_error(b.rx);
        EXPECT_EQ(error.err, FI_ETRUNC);
        EXPECT_EQ(error.op_context, &mark);
        EXPECT_EQ(error.len, 5U);
        EXPECT_EQ(error.olen, length - 5);
        EXPECT_EQ(got, text_of(length).substr(0, 5));
    }
}

TEST_F(FiTagged, errors_keep_their_place_among_the_entries) {
    open();
    int marks[3] = {};
    Text got[3] = {Text(8, ' '), Text(2, ' '), Text(8, ' ')};
    for (int i = 0; i < 3; ++i)
        trecv(got[i], 1, 0, &marks[i]);
    for (int i = 0; i < 3; ++i)
        tsend("message", 1);
    run_some();
    fi_cq_tagged_entry entries[3];
    ASSERT_EQ(fi_cq_read(b.rx.get(), entries, 3), 1);
    EXPECT_EQ(entries[0].op_context, &marks[0]);
    ASSERT_EQ(fi_cq_read(b.rx.get(), entries, 3), -FI_EAVAIL);
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(b.rx.get(), &error, 0), 1);
    EXPECT_EQ(error.op_context, &marks[1]);
    EXPECT_STRNE(fi_cq_strerror(b.rx.get(), error.prov_errno, nullptr, nullptr, 0), "");
    ASSERT_EQ(fi_cq_readerr(b.rx.get(), &error, 0), -FI_EAGAIN);
    ASSERT_EQ(fi_cq_read(b.rx.get(), entries, 3), 1);
    EXPECT_EQ(entries[0].op_context, &marks[2]);
}

TEST_F(FiTagged, registered_memory_is_used) {
    open();
    Text text = text_of(300000);
    Text got(text.size(), ' ');
    fid_mr* made = nullptr;
    ASSERT_EQ(fi_mr_reg(domain.get(), text.data(), text.size(), FI_SEND, 0, 1, 0, &made, nullptr),
              0);
    const Owner<fid_mr> out(made);
    EXPECT_EQ(fi_mr_reg(domain.get(), got.data(), got.size(), FI_RECV, 0, 1, 0, &made, nullptr),
              -FI_ENOKEY);
    ASSERT_EQ(fi_mr_reg(domain.get(), got.data(), got.size(), FI_RECV, 0, 2, 0, &made, nullptr), 0);
    const Owner<fid_mr> in(made);
    for (const std::size_t length :
         {std::size_t{8}, std::size_t{1023}, std::size_t{1024}, text.size()}) {
        std::ranges::fill(got, ' ');
        ASSERT_EQ(fi_trecv(b.ep.get(), got.data(), length, fi_mr_desc(in.get()), FI_ADDR_UNSPEC, 1,
                           0, nullptr),
                  0);
        retry([&] {
            return fi_tsend(a.ep.get(), text.data(), length, fi_mr_desc(out.get()), to_b, 1,
                            nullptr);
        });
        next(b.rx);
        next(a.tx);
        EXPECT_EQ(got.substr(0, length), text.substr(0, length));
    }
}

TEST_F(FiTagged, an_endpoint_sends_to_itself) {
    open();
    Text got(4, ' ');
    trecv(got, 1);
    retry([&] { return fi_tsend(b.ep.get(), "self", 4, nullptr, to_b, 1, nullptr); });
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    next(b.rx, &source);
    EXPECT_EQ(source, to_b);
    EXPECT_EQ(got, "self");
}

TEST_F(FiTagged, an_address_that_was_removed_can_be_inserted_again) {
    open();
    Text got(4, ' ');
    trecv(got, 1);
    tsend("once", 1);
    next(b.rx);
    next(a.tx);
    ASSERT_EQ(fi_av_remove(av.get(), &to_b, 1, 0), 0);
    EXPECT_EQ(fi_tsend(a.ep.get(), "none", 4, nullptr, to_b, 1, nullptr), -FI_EINVAL);
    run_some();
    ASSERT_EQ(fi_av_insert(av.get(), b.name.data(), 1, &to_b, 0, nullptr), 1);
    trecv(got, 1);
    tsend("back", 1);
    next(b.rx);
    EXPECT_EQ(got, "back");
}

}  // namespace

}  // namespace tagwire::fi_test
