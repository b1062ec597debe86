// SPDX-License-Identifier: BSD-3-Clause
// Remote calls and a peer that says anything: replies that it forges end no call of another worker,
// and requests that it makes up are refused or answered.
#include <deque>

#include "protocols/impostor.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/call_messages.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::AmWord;
using proto::CallHeader;
using proto::ReplyHeader;

class MsgCallImpostor : public MsgTest {
  protected:
    MsgCallImpostor() : impostor_(contact_of_transports()) {
        for (Node* each : {&victim(), &server()})
            EXPECT_EQ(tw_call_register(each->worker(), 1, &MsgCallImpostor::take, this), TW_OK);
    }

    Node& victim() { return node(0); }
    Node& server() { return node(1); }
    template <class Head>
    void send(std::uint32_t id, const Head& head, std::size_t more = 0) {
        Bytes bytes;
        append(&bytes, head);
        bytes.resize(bytes.size() + more);
        impostor_.send(victim(), AmId::kAm,
                       impostor_.eager(0, AmWord::encode(id, sizeof head), bytes));
    }
    void expect_refused(std::uint64_t count) {
        EXPECT_TRUE(impostor_.run_until(victim(),
                                        [&] { return victim().counter("call_refused") == count; }));
    }

    Impostor impostor_;
    std::deque<tw_call_request_t> seen_;

  private:
    static void take(void* arg, tw_call_request_t* request) {
        static_cast<MsgCallImpostor*>(arg)->seen_.push_back(*request);
    }
};

TEST_F(MsgCallImpostor, a_reply_counts_only_if_it_comes_from_the_worker_that_was_called) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    int ends = 0;
    tw_call_params_t params{};
    params.context = &ends;
    params.done = [](const tw_call_done_t* done) {
        EXPECT_EQ(done->status, TW_OK);
        EXPECT_EQ(done->reply_status, 8);
        ++*static_cast<int*>(done->context);
    };
    std::uint64_t id = 0;
    ASSERT_EQ(tw_call(victim().to(server()), 1, nullptr, 0, &params, &id), TW_OK);
    run_until([&] { return seen_.size() == 1; });
    ReplyHeader forged;
    forged.id = id;
    forged.status = 9;
    send(proto::kReplyAmId, forged);
    expect_refused(1);
    // A refusal, too, and whatever is no reply.
    forged.flags = ReplyHeader::kRefused;
    forged.status = TW_ERR_NO_ELEM;
    send(proto::kReplyAmId, forged);
    forged.flags = 4;
    send(proto::kReplyAmId, forged);
    send(proto::kReplyAmId, std::uint64_t{5});
    expect_refused(4);
    EXPECT_EQ(ends, 0);
    ASSERT_GE(tw_reply(server().worker(), seen_[0].id, 8, nullptr, 0, nullptr, nullptr), TW_OK);
    run_until([&] { return ends == 1; });
    // Too late from anybody.
    send(proto::kReplyAmId, ReplyHeader{.id = id});
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return victim().counter("call_late") == 1; }));
    EXPECT_EQ(ends, 1);
    EXPECT_TRUE(victim().failures.empty());
}

TEST_F(MsgCallImpostor, malformed_requests_are_dropped_and_others_get_a_reply) {
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    CallHeader head;
    head.method = 1;
    head.id = 77;
    CallHeader wrong = head;
    wrong.version = 3;
    send(proto::kCallAmId, wrong);
    wrong = head;
    wrong.reserved = 1;
    send(proto::kCallAmId, wrong);
    send(proto::kCallAmId, std::uint32_t{1});
    expect_refused(3);
    EXPECT_TRUE(seen_.empty());
    send(proto::kCallAmId, head, 10);
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return seen_.size() == 1; }));
    EXPECT_EQ(seen_[0].length, 10U);
    head.method = 2;
    send(proto::kCallAmId, head);
    ASSERT_GE(tw_reply(victim().worker(), seen_[0].id, 8, nullptr, 0, nullptr, nullptr), TW_OK);
    std::size_t replies = 0, refusals = 0;
    EXPECT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& bytes : impostor_.taken(AmId::kAm)) {
            ReplyHeader reply;
            EXPECT_TRUE(
                proto::decode(proto::WireBytes(bytes).subspan(sizeof(proto::Header)), &reply));
            EXPECT_EQ(reply.id, 77U);
            ++(reply.is_refusal() ? refusals : replies);
            EXPECT_EQ(reply.status, reply.is_refusal() ? std::int32_t{TW_ERR_NO_ELEM} : 8);
        }
        return replies == 1 && refusals == 1;
    }));
}

}  // namespace
}  // namespace tagwire::test
