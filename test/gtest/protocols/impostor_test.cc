// SPDX-License-Identifier: BSD-3-Clause
// Invalid messages of a peer about requests, rails and itself: they are dropped and counted, and
// operations under way go on.
#include <cstring>
#include <deque>

#include "protocols/impostor.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;

class MsgImpostor : public MsgTest {
  protected:
    explicit MsgImpostor(std::uint64_t id = Impostor::kId)
        : impostor_(contact_of_transports(), id) {}

    Node& victim() { return node(0); }
    std::uint64_t garbage() { return victim().counter("garbage"); }
    void greet() {
        ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
        const Bytes address = impostor_.address();
        const tw_ep_params_t params{
            .address = address.data(), .address_length = address.size(), .user_data = nullptr};
        ASSERT_EQ(tw_ep_create(victim().worker(), &params, &ep_), TW_OK);
        impostor_.run(victim());
    }
    /// The one message of that kind that the victim has sent; waits for it.
    Bytes next(AmId am) {
        std::vector<Bytes> messages;
        EXPECT_TRUE(impostor_.run_until(victim(), [&] {
            messages = impostor_.taken(am);
            return !messages.empty();
        }));
        EXPECT_EQ(messages.size(), 1U);
        return messages.empty() ? Bytes{} : messages.front();
    }
    /// The victim sends `data_` and waits for an acknowledgement; its send id.
    std::uint32_t send_acknowledged(std::uint32_t flags) {
        const tw_op_t how = op(&mark_, flags | TW_OP_MATCH_COMPLETE);
        EXPECT_EQ(tw_tag_send(ep_, data_.data(), data_.size(), 7, &how, &request_), TW_INPROGRESS);
        proto::EagerBody body;
        return decode_as(next(AmId::kEager), &body) ? body.send_id : 0;
    }
    /// ... as a rendezvous.
    std::uint32_t send_rndv() {
        impostor_.control(victim(), proto::PauseEager{});
        impostor_.run(victim());
        const tw_op_t how = op(&mark_);
        EXPECT_EQ(tw_tag_send(ep_, data_.data(), data_.size(), 7, &how, &request_), TW_INPROGRESS);
        proto::RtsBody body;
        return decode_as(next(AmId::kRts), &body) ? body.rts.send_id : 0;
    }
    /// The next such message that the victim has sent; earlier ones are skipped.
    template <class Body>
    Body heard() {
        proto::Control message{};
        EXPECT_TRUE(impostor_.run_until(victim(), [&] {
            for (Bytes& bytes : impostor_.taken(AmId::kControl))
                controls_.push_back(std::move(bytes));
            while (!controls_.empty()) {
                const Bytes bytes = std::move(controls_.front());
                controls_.pop_front();
                if (proto::decode(bytes, &message) && message.operation() == Body::kOp)
                    return true;
            }
            return false;
        })) << static_cast<int>(Body::kOp);
        return message.as<Body>();
    }
    template <class Body>
    static bool decode_as(const Bytes& message, Body* body) {
        proto::Header header{};
        if (message.size() < sizeof header)
            return false;
        std::memcpy(&header, message.data(), sizeof header);
        return proto::decode(header, proto::WireBytes(message).subspan(sizeof header), body);
    }
    /// It is dropped, and nothing ends.
    template <class Body>
    void expect_garbage(const Body& body) {
        constexpr auto op = Body::kOp;
        const std::uint64_t before = garbage();
        impostor_.control(victim(), body);
        EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 1; }))
            << static_cast<int>(op);
        impostor_.run(victim());
        EXPECT_TRUE(victim().done.empty()) << static_cast<int>(op);
        EXPECT_TRUE(victim().failures.empty()) << static_cast<int>(op);
    }
    void expect_end(tw_status_t status) {
        ASSERT_TRUE(impostor_.run_until(victim(), [&] { return !victim().done.empty(); }));
        EXPECT_EQ(victim().done.front().status, status);
        EXPECT_EQ(victim().done.front().context, &mark_);
        victim().done.clear();
    }

    Impostor impostor_;
    tw_ep_h ep_ = nullptr;
    tw_request_h request_ = nullptr;
    int mark_ = 0;
    Bytes data_ = pattern(64, 1);
    std::deque<Bytes> controls_;
};

// Names come round: one of a connection that is over is that of a later one.
TEST_F(MsgImpostor, a_connection_may_have_the_name_of_one_that_is_over) {
    ASSERT_NO_FATAL_FAILURE(greet());
    impostor_.control(victim(), proto::Reset{0, 0, 1});
    ASSERT_TRUE(impostor_.run_until(victim(), [&] { return !victim().failures.empty(); }));
    ASSERT_EQ(tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    impostor_.run(victim());
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    EXPECT_NE(impostor_.name(), 0U);
}

// Strangers may send as many as they like.
TEST_F(MsgImpostor, hellos_of_another_version_do_not_fill_the_log) {
    constexpr unsigned kHellos = 64;
    ASSERT_NO_FATAL_FAILURE(greet());
    Bytes hello = impostor_.hello(0, {});
    hello[offsetof(proto::Wireup, version)] ^= std::byte{0x40};
    const std::uint64_t before = garbage();
    ::testing::internal::CaptureStderr();
    for (unsigned i = 0; i < kHellos; ++i)
        impostor_.send(victim(), proto::AmId::kWireup, hello);
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + kHellos; }));
    const std::string log = ::testing::internal::GetCapturedStderr();
    unsigned lines = 0;
    for (std::size_t at = 0; (at = log.find("refused", at)) != std::string::npos; ++at)
        ++lines;
    EXPECT_GE(lines, 1U);
    EXPECT_LE(lines, 7U) << log;
}

TEST_F(MsgImpostor, a_transmit_context_speaks_for_its_worker) {
    constexpr std::uint64_t kWorker = 77;
    impostor_.be_tx_context(1, kWorker);
    ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
    tw_completion_t done{};
    const tw_op_t how = op(&mark_, TW_OP_COMPLETION);
    Bytes to(8);
    ASSERT_EQ(tw_tag_recv(victim().worker(), to.data(), to.size(), 5, 0, &how, nullptr),
              TW_INPROGRESS);
    impostor_.send(victim(), AmId::kEager, impostor_.eager(proto::kTagged, 5, pattern(8, 1)));
    ASSERT_TRUE(impostor_.run_until(victim(), [&] { return !victim().done.empty(); }));
    done = victim().done.front();
    EXPECT_EQ(done.source, kWorker);
    EXPECT_EQ(done.ep, nullptr);
    EXPECT_EQ(to, pattern(8, 1));
    // The worker itself has never come, and nobody can be asked for it.
    tw_ep_h ep = nullptr;
    EXPECT_EQ(tw_ep_create_to(victim().worker(), kWorker, nullptr, &ep), TW_ERR_NO_ELEM);
    EXPECT_TRUE(victim().events.empty());
}

TEST_F(MsgImpostor, a_peer_cannot_become_a_transmit_context) {
    ASSERT_NO_FATAL_FAILURE(greet());
    impostor_.be_tx_context(1, 77);
    const std::uint64_t before = garbage();
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return impostor_.try_hello_again(); }));
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 1; }));
    EXPECT_TRUE(victim().failures.empty());
    EXPECT_EQ(tw_ep_find(victim().worker(), Impostor::kId), ep_);
}

/// Its victim has the lower id, and so is the one that asks whether the connection can go.
class MsgImpostorAbove : public MsgImpostor {
  protected:
    MsgImpostorAbove() : MsgImpostor(UINT64_MAX - 1) {}
};

TEST_F(MsgImpostorAbove, a_peer_that_cannot_leave_yet_is_asked_again) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const tw_op_t how = op(&mark_);
    ASSERT_EQ(tw_ep_close(ep_, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    impostor_.control(victim(), proto::Flushed{heard<proto::Flush>().flush_id});
    expect_end(TW_OK);
    heard<proto::Bye>();
    impostor_.control(victim(), proto::Bye{});
    // It may have something to send when it is asked: then it stays.
    for (int round = 0; round < 3; ++round) {
        heard<proto::Leave>();
        impostor_.control(victim(), proto::Left{0});
    }
    heard<proto::Leave>();
    impostor_.control(victim(), proto::Left{1});
    EXPECT_TRUE(impostor_.run_until(victim(), [&] {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(victim().worker(), &attr), TW_OK);
        return attr.endpoints == 0;
    }));
}

// Its buffer is the program's again: what is there now is no business of the peer's.
TEST_F(MsgImpostor, data_of_an_eager_message_cannot_be_asked_for) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const std::uint32_t id = send_acknowledged(TW_OP_INJECT);
    ASSERT_NE(id, 0U);
    std::ranges::fill(data_, std::byte{0x5a});
    expect_garbage(proto::Cts{id, 77, data_.size()});
    Bytes put;
    append(&put, proto::Rtr{impostor_.name(), id, 77, 0, 0, 0, 0, data_.size(), 4096});
    const std::uint64_t before = garbage();
    impostor_.send(victim(), AmId::kRtr, put);
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 1; }));
    EXPECT_TRUE(impostor_.taken(AmId::kData).empty());
    impostor_.control(victim(), proto::Ack{id});
    expect_end(TW_OK);
}

TEST_F(MsgImpostor, an_eager_message_ends_by_its_acknowledgement_alone) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const std::uint32_t id = send_acknowledged(0);
    ASSERT_NE(id, 0U);
    expect_garbage(proto::Ats{id, UCS_OK});
    expect_garbage(proto::Flushed{id});
    expect_garbage(proto::Canceled{id});
    expect_garbage(proto::DataEnd{id, UCS_OK});
    expect_garbage(proto::Ack{id + 1});
    impostor_.control(victim(), proto::Ack{id});
    expect_end(TW_OK);
}

TEST_F(MsgImpostor, a_rendezvous_ends_when_its_data_is_not_under_way) {
    data_ = pattern(4'000'000, 2);  // more than is on its way at a time
    ASSERT_NO_FATAL_FAILURE(greet());
    const std::uint32_t id = send_rndv();
    ASSERT_NE(id, 0U);
    expect_garbage(proto::Ack{id});
    expect_garbage(proto::Canceled{id});
    expect_garbage(proto::Cts{id, 0, 64});
    expect_garbage(proto::Cts{id, 77, data_.size() + 1});
    impostor_.control(victim(), proto::Cts{id, 77, data_.size()});
    for (int i = 0; i < 200; ++i)
        victim().progress();
    const std::uint64_t before = garbage();
    impostor_.control(victim(), proto::Ats{id, UCS_OK});
    impostor_.control(victim(), proto::Cts{id, 78, 64});
    for (int i = 0; i < 200; ++i)
        victim().progress();
    EXPECT_EQ(garbage(), before + 2);
    EXPECT_TRUE(victim().done.empty());
    std::size_t bytes = 0;
    ASSERT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& piece : impostor_.taken(AmId::kData))
            bytes += piece.size() - sizeof(proto::RndvData);
        return bytes == data_.size();
    }));
    impostor_.run(victim());
    impostor_.control(victim(), proto::Ats{id, -9999});
    expect_end(TW_ERR_IO_ERROR);  // no status of ours is that
}

/// Memory that peers may write.
class Target {
  public:
    Target(Entity& owner, std::size_t bytes) : md_(owner.md()), memory_(bytes) {
        EXPECT_EQ(
            uct_md_mem_reg(md_, memory_.data(), bytes,
                           UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_LOCAL_WRITE, &handle_),
            UCS_OK);
        uct_md_attr_t attr{};
        EXPECT_EQ(uct_md_query(md_, &attr), UCS_OK);
        key_.resize(attr.rkey_packed_size);
        EXPECT_EQ(uct_md_mkey_pack(md_, handle_, key_.data()), UCS_OK);
    }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;
    ~Target() { uct_md_mem_dereg(md_, handle_); }

    const Bytes& memory() const { return memory_; }
    /// For all of it.
    Bytes offer(std::uint32_t sender, std::uint32_t send_id, std::uint32_t receive_id) const {
        Bytes message;
        append(&message,
               proto::Rtr{sender, send_id, receive_id, 0, static_cast<std::uint8_t>(key_.size()), 0,
                          0, memory_.size(), reinterpret_cast<std::uintptr_t>(memory_.data())});
        message.insert(message.end(), key_.begin(), key_.end());
        return message;
    }

  private:
    uct_md_h md_;
    uct_mem_h handle_ = nullptr;
    Bytes memory_;
    Bytes key_;
};

/// Memory of others is written by messages, which the owner's progress answers.
class MsgImpostorWrites : private Settings, public MsgImpostor {
  protected:
    MsgImpostorWrites() : Settings({{"TAGWIRE_SM_CMA", "off"}}) {}
};

// The device has the buffer until the write has ended, whatever the receiver says.
TEST_F(MsgImpostorWrites, a_rendezvous_does_not_end_while_its_data_is_written) {
    if (contact_of_transports() != "sm")
        GTEST_SKIP() << "ud writes no memory of others";
    data_ = pattern(1'000'000, 3);
    ASSERT_NO_FATAL_FAILURE(greet());
    const std::uint32_t id = send_rndv();
    ASSERT_NE(id, 0U);
    const Target target(impostor_.entity(), data_.size());
    const std::uint64_t before = garbage();
    impostor_.send(victim(), AmId::kRtr, target.offer(impostor_.name(), id, 77));
    impostor_.control(victim(), proto::Ats{id, UCS_OK});
    for (int i = 0; i < 200; ++i)
        victim().progress();
    EXPECT_EQ(garbage(), before + 1);
    EXPECT_TRUE(victim().done.empty()) << "the receiver has not answered a single write";
    EXPECT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& message : impostor_.taken(AmId::kControl)) {
            proto::Control said{};
            if (proto::decode(message, &said) && said.operation() == proto::ControlOp::kDataEnd &&
                said.as<proto::DataEnd>().receive_id == 77)
                return true;
        }
        return false;
    }));
    EXPECT_EQ(target.memory(), data_);
    EXPECT_TRUE(victim().done.empty());
    impostor_.control(victim(), proto::Ats{id, UCS_OK});
    expect_end(TW_OK);
}

/// Requests with loans that were never given.
class MsgImpostorLends : public MsgImpostor {
  protected:
    void SetUp() override { ASSERT_NO_FATAL_FAILURE(greet()); }
    void request(const proto::KeyHead& head, const proto::Loan& loan) {
        Bytes message;
        append(&message, proto::Header{impostor_.name(), proto::kTagged, 7});
        append(&message, proto::Rts{data_.size(), 64, kSendId, 1, 0, {}});
        append(&message, head);
        append(&message, loan);
        message.resize(sizeof(proto::Header) + sizeof(proto::Rts) + sizeof head + head.bytes);
        impostor_.send(victim(), AmId::kRts, message);
    }
    tw_status_t receive() {
        const tw_op_t how = op(&mark_);
        return tw_tag_recv(victim().worker(), received_.data(), received_.size(), 7, 0, &how,
                           nullptr);
    }
    void send_data(std::uint32_t receive_id) {
        Bytes message;
        append(&message, proto::RndvData{0, receive_id, impostor_.name()});
        message.insert(message.end(), data_.begin(), data_.end());
        impostor_.send(victim(), AmId::kData, message);
    }

    static constexpr std::uint32_t kSendId = 0x01000003;
    Bytes received_ = Bytes(data_.size());
};

TEST_F(MsgImpostorLends, what_it_does_not_have_is_asked_for_in_messages) {
    const proto::Loan loans[] = {{0, {0, 0}}, {5, {7, 0}}, {~0U, {~0U, ~0U}}, {77, {2, 1}}};
    for (const proto::Loan& loan : loans) {
        ASSERT_EQ(receive(), TW_INPROGRESS);
        request({proto::kLoanDomain, sizeof loan}, loan);
        const auto cts = heard<proto::Cts>();
        EXPECT_EQ(cts.send_id, kSendId);
        EXPECT_EQ(cts.bytes, data_.size());
        send_data(cts.receive_id);
        expect_end(TW_OK);
        EXPECT_EQ(received_, data_);
        std::ranges::fill(received_, std::byte{0});
    }
    EXPECT_EQ(victim().counter("rndv_lent"), 0U);
}

TEST_F(MsgImpostorLends, a_message_that_is_not_there_any_more_ends_its_receive) {
    ASSERT_EQ(receive(), TW_INPROGRESS);
    request({proto::kLoanDomain, sizeof(proto::Loan)}, {5, {7, 0}});
    const auto cts = heard<proto::Cts>();
    impostor_.control(victim(), proto::DataEnd{cts.receive_id, UCS_ERR_CANCELED});
    expect_end(TW_ERR_CANCELED);
}

TEST_F(MsgImpostorLends, a_loan_of_another_length_is_none) {
    ASSERT_EQ(receive(), TW_INPROGRESS);
    request({proto::kLoanDomain, sizeof(proto::Loan) - 1}, {5, {7, 0}});
    send_data(heard<proto::Cts>().receive_id);
    expect_end(TW_OK);
    EXPECT_EQ(received_, data_);
}

TEST_F(MsgImpostor, advice_is_taken_where_it_can_be_followed) {
    ASSERT_NO_FATAL_FAILURE(greet());
    tw_explanation_t before{};
    ASSERT_EQ(tw_ep_explain(ep_, 100'000, TW_BUFFER_PLAIN, &before), TW_OK);
    const proto::Advice good{131072, 2, 3, 1, 0, 55, 70};
    for (const std::uint32_t length : {0U, 1U, 16383U, ~0U})
        expect_garbage(proto::Advice{length, 2, 3, 1, 0, 55, 70});
    // No such regime, more regimes than can be, no such reason, neither a length nor trials.
    expect_garbage(proto::Advice{131072, 0, 3, 1, 0, 55, 70});
    expect_garbage(proto::Advice{131072, 4, 3, 1, 0, 55, 70});
    expect_garbage(proto::Advice{131072, 2, 5, 1, 0, 55, 70});
    expect_garbage(proto::Advice{131072, 2, 3, 3, 0, 55, 70});
    expect_garbage(proto::Advice{0, 2, 3, 1, proto::kTrialsOfEager, 55, 70});
    tw_explanation_t after{};
    ASSERT_EQ(tw_ep_explain(ep_, 100'000, TW_BUFFER_PLAIN, &after), TW_OK);
    EXPECT_EQ(after.rndv_from, before.rndv_from);
    if (contact_of_transports() != "sm")
        return expect_garbage(good);
    impostor_.control(victim(), good);
    victim().progress();
    ASSERT_EQ(tw_ep_explain(ep_, 100'000, TW_BUFFER_PLAIN, &after), TW_OK);
    EXPECT_EQ(after.rndv_from, 131072U);
    EXPECT_STREQ(after.protocols[after.chosen].name, "parts");
    EXPECT_STREQ(after.source,
                 "the receiver: regime 2 of 3 (remembered, because its times fit), since 0 "
                 "messages; at a length near the change, a byte takes 0.055 ns eager, 0.070 ns by "
                 "rendezvous");
    impostor_.control(victim(), proto::Advice{0, 3, 3, 2, 1, 55, 0});
    victim().progress();
    ASSERT_EQ(tw_ep_explain(ep_, 100'000, TW_BUFFER_PLAIN, &after), TW_OK);
    EXPECT_EQ(after.rndv_from, 131072U) << "advice without a length changes none";
    const std::string source = after.source;
    EXPECT_NE(source.find("regime 3 of 3 (new, because no"), std::string::npos) << source;
    EXPECT_NE(source.find("0.055 ns eager, unknown by rendezvous"), std::string::npos) << source;
}

TEST_F(MsgImpostor, the_next_messages_go_the_other_way_if_the_receiver_asks) {
    if (contact_of_transports() != "sm")
        GTEST_SKIP() << "messages over shared memory are learnt from";
    ASSERT_NO_FATAL_FAILURE(greet());
    const Bytes data = pattern(40'000, 1);
    const tw_op_t how = op(&mark_);
    impostor_.control(victim(), proto::Advice{131072, 1, 1, 0, 2, 55, 0});
    victim().progress();
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(tw_tag_send(ep_, data.data(), data.size(), 7, &how, &request_), TW_INPROGRESS);
        proto::RtsBody body;
        ASSERT_TRUE(decode_as(next(AmId::kRts), &body)) << i;
        impostor_.control(victim(), proto::Ats{body.rts.send_id, UCS_OK});
        expect_end(TW_OK);
    }
    tw_tag_send(ep_, data.data(), data.size(), 7, nullptr, nullptr);
    proto::EagerBody eager;
    ASSERT_TRUE(decode_as(next(AmId::kEager), &eager));
    EXPECT_NE(eager.begun, 0U) << "the receiver may time it";
    // The other way round; messages that go that way anyway are none of the trial. By now they are
    // a stream, since the peer has sent none: what is said of others does not count.
    impostor_.control(victim(), proto::Advice{131072, 1, 1, 0, 5, 55, 0});
    impostor_.control(victim(), proto::Advice{32768, 1, 1, proto::kAdviceOfStream,
                                              proto::kTrialsOfEager + 1, 55, 50});
    impostor_.run(victim());
    tw_tag_send(ep_, data.data(), 1000, 7, nullptr, nullptr);
    next(AmId::kEager);
    tw_tag_send(ep_, data.data(), data.size(), 7, nullptr, nullptr);
    ASSERT_TRUE(decode_as(next(AmId::kEager), &eager));
    EXPECT_EQ(eager.begun, 0U) << "one of a stream";
    ASSERT_EQ(tw_tag_send(ep_, data.data(), data.size(), 7, &how, &request_), TW_INPROGRESS);
    proto::RtsBody body;
    ASSERT_TRUE(decode_as(next(AmId::kRts), &body));
    EXPECT_NE(body.rts.flags & proto::kRtsOfStream, 0);
    impostor_.control(victim(), proto::Ats{body.rts.send_id, UCS_OK});
    expect_end(TW_OK);
}

TEST_F(MsgImpostor, a_flush_is_answered_by_its_answer_alone) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const tw_op_t how = op(&mark_);
    ASSERT_EQ(tw_tag_send(ep_, data_.data(), data_.size(), 7, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_ep_flush(ep_, TW_FLUSH_DELIVERED, &how, &request_), TW_INPROGRESS);
    const std::uint32_t id = heard<proto::Flush>().flush_id;
    expect_garbage(proto::Ack{id});
    expect_garbage(proto::Ats{id, UCS_OK});
    impostor_.control(victim(), proto::Flushed{id});
    expect_end(TW_OK);
}

using MsgFarewell = MsgTest;

// Its last words may be lost with what its transports had under way.
TEST_F(MsgFarewell, a_peer_whose_close_was_answered_has_not_failed) {
    Node& victim = node(0);
    for (const bool closes : {true, false}) {
        victim.events.clear();
        {
            Impostor peer(contact_of_transports(), Impostor::kId + (closes ? 1 : 0));
            ASSERT_NO_FATAL_FAILURE(peer.greet(victim));
            peer.control(victim, proto::Flush{5, closes ? 1U : 0U});
            ASSERT_TRUE(peer.run_until(victim, [&] {
                for (const Bytes& message : peer.taken(AmId::kControl)) {
                    proto::Control answer{};
                    if (proto::decode(message, &answer) &&
                        answer.operation() == proto::ControlOp::kFlushed &&
                        answer.as<proto::Flushed>().flush_id == 5)
                        return true;
                }
                return false;
            }));
        }
        run_until([&] { return victim.events.size() == 2; });
        EXPECT_EQ(victim.events.back().event, closes ? TW_PEER_CLOSED : TW_PEER_FAILED);
    }
}

TEST_F(MsgImpostor, a_peer_that_asks_on_and_reads_no_replies_loses_its_endpoint) {
    if (contact_of_transports() != "sm")
        GTEST_SKIP()
            << "over ud a peer that does not progress acknowledges nothing, and sends little";
    greet();
    for (int i = 0; i < 100'000 && victim().failures.empty(); ++i) {
        static_cast<void>(impostor_.try_hello_again());
        victim().progress();
    }
    ASSERT_EQ(victim().failures.size(), 1U);
    EXPECT_EQ(victim().failures.front().second, TW_ERR_EXCEEDS_LIMIT);
    // The worker goes on.
    Bytes received(data_.size());
    const tw_op_t how = op(&mark_);
    ASSERT_EQ(tw_tag_recv(victim().worker(), received.data(), received.size(), 7, 0, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(victim().to(victim()), data_.data(), data_.size(), 7, nullptr, nullptr),
              TW_OK);
    expect_end(TW_OK);
    EXPECT_EQ(received, data_);
}

/// Over rc the impostor has said that it has rails of which it tells no address, or a wrong one.
class MsgImpostorOffers : public MsgImpostor {
  protected:
    void SetUp() override {
        if (contact_of_transports() != "ud")
            GTEST_SKIP() << "endpoints of sm connect to interfaces";
        ASSERT_NO_FATAL_FAILURE(
            impostor_.greet(victim(), {{"rc", 0, 0, {}, {}},
                                       {"rc", 0, 0, Bytes(1), {}},
                                       {"rc", 0, 0, Bytes(200), Bytes(200)},
                                       {std::string(10, 'x'), 0, 0, Bytes(3), Bytes(3)}}));
        rc_ = impostor_.rail_of("rc");
    }
    std::size_t refusals() {
        std::size_t count = 0;
        for (const Bytes& message : impostor_.taken(AmId::kWireup)) {
            proto::Wireup head{};
            proto::WireBytes behind;
            proto::OfferMessage offer{};
            if (proto::decode(message, &head, &behind) && proto::decode(behind, &offer) &&
                head.op == static_cast<std::uint32_t>(proto::WireupOp::kRefuse))
                ++count;
        }
        return count;
    }

    std::uint8_t rc_ = 0;
};

TEST_F(MsgImpostorOffers, rails_without_addresses_of_the_right_length_are_refused) {
    for (std::uint8_t rail = 1; rail <= 4; ++rail) {
        for (const std::size_t bytes : {0U, 1U, 20U, 255U}) {
            impostor_.offer(victim(), proto::WireupOp::kOffer, {0, rail, rc_, 0, 0}, Bytes(bytes));
            std::size_t refused = 0;
            EXPECT_TRUE(impostor_.run_until(victim(), [&] { return (refused += refusals()) == 1; }))
                << int{rail} << " " << bytes;
        }
    }
    const std::uint64_t before = garbage();
    for (const auto op : {proto::WireupOp::kOffer, proto::WireupOp::kStripeOffer}) {
        impostor_.offer(victim(), op, {0, 5, rc_, 0, 0}, Bytes(20));
        impostor_.offer(victim(), op, {0, 1, 200, 0, 0}, Bytes(20));
    }
    for (std::uint8_t rail = 1; rail <= 4; ++rail)
        impostor_.offer(victim(), proto::WireupOp::kStripeOffer, {0, rail, rc_, 0, 0}, Bytes(20));
    EXPECT_TRUE(impostor_.run_until(victim(), [&] { return garbage() == before + 8; }));
    EXPECT_TRUE(victim().failures.empty());
}

TEST_F(MsgImpostorOffers, a_refused_offer_leads_to_another_lane) {
    // The worker offers only what it could reach; here it sends over what took first contact.
    const Bytes address = impostor_.address();
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = nullptr};
    tw_ep_h ep = nullptr;
    ASSERT_EQ(tw_ep_create(victim().worker(), &params, &ep), TW_OK);
    impostor_.offer(victim(), proto::WireupOp::kOffer, {0, 1, rc_, 1, 0}, Bytes(20));
    ASSERT_EQ(tw_tag_send(ep, data_.data(), data_.size(), 7, nullptr, nullptr), TW_OK);
    const auto message = next(AmId::kEager);
    proto::EagerBody body;
    ASSERT_TRUE(decode_as(message, &body));
    EXPECT_TRUE(std::ranges::equal(body.data, data_));
}

}  // namespace
}  // namespace tagwire::test
