// SPDX-License-Identifier: BSD-3-Clause
// kill -9 of a peer over verbs transports, in each phase of eager and rendezvous. Operations that a
// device has taken before the death may succeed; all others end with an error.
#include <cstdlib>
#include <cstring>

#include "star.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytes = 20'000;        // of a rendezvous; more than a segment
constexpr std::size_t kManyBytes = 32 << 20;  // that take a while to read

/// Everything that was sent is acknowledged by the peer's device.
void settle(const Stage& stage) {
    Completion completion;
    const ucs_status_t status =
        retry(stage.self, [&] { return uct_ep_check(stage.peer, 0, &completion); });
    ASSERT_EQ(UCS_INPROGRESS, status);
    EXPECT_TRUE(progress_until(stage.self, [&] { return completion.calls == 1; }));
    EXPECT_EQ(UCS_OK, completion.ended);
}

class Idle : public Scene {};

// ---- Eager, the receiver dies

/// Every kind of operation, posted when nobody is there any more.
class PostedToTheDead : public Scene {
  public:
    Bytes props(Entity& self) override {
        memory_ = std::make_unique<Buffer>(self, kBytes, Backing::kRegistered);
        const std::uint64_t address = memory_->address();
        const auto* first = reinterpret_cast<const std::byte*>(&address);
        return pack({memory_->packed_rkey(), Bytes(first, first + sizeof address)});
    }
    void it_died(const Stage& stage) override {
        const std::vector<Bytes> props = unpack(stage.props);
        const RemoteKey key(stage.self, props.at(0));
        std::uint64_t address = 0;
        std::memcpy(&address, props.at(1).data(), sizeof address);
        memory_ = std::make_unique<Buffer>(make_payload(stage.self, kBytes, 1));
        const uct_iov_t iov = memory_->iov(0, 5000);
        const uct_iov_t whole = memory_->iov();
        start([&](auto* done) {
            return uct_ep_am_zcopy(stage.peer, stage.am_id(), nullptr, 0, &iov, 1, 0, done);
        });
        start([&](auto* done) {
            return uct_ep_tag_eager_zcopy(stage.peer, stage.tag(), 0, &iov, 1, 0, done);
        });
        start([&](auto* done) {
            return uct_ep_put_zcopy(stage.peer, &whole, 1, address, key.get(), done);
        });
        start([&](auto* done) {
            return uct_ep_get_zcopy(stage.peer, &whole, 1, address, key.get(), done);
        });
        start([&](auto* done) {
            return uct_ep_atomic64_fetch(stage.peer, UCT_ATOMIC_OP_ADD, 1, &fetched_, address,
                                         key.get(), done);
        });
        start([&](auto* done) { return uct_ep_flush(stage.peer, 0, done); });
        EXPECT_EQ(UCS_OK, uct_ep_am_short(stage.peer, stage.am_id(), 0, nullptr, 0));
    }
    bool is_over(const Stage&) override {
        return std::all_of(operations_.begin(), operations_.end(),
                           [](const auto& operation) { return operation->calls > 0; });
    }
    void check(const Stage&) override {
        for (const auto& operation : operations_) {
            EXPECT_EQ(1, operation->calls);
            EXPECT_LT(operation->ended, UCS_OK);
        }
    }

  private:
    template <class Operation>
    void start(Operation&& operation) {
        operations_.push_back(std::make_unique<Completion>());
        EXPECT_EQ(UCS_INPROGRESS, operation(operations_.back().get()));
    }

    std::unique_ptr<Buffer> memory_;
    std::vector<std::unique_ptr<Completion>> operations_;
    std::uint64_t fetched_ = 0;
};

/// The stream goes on through the death.
class InFlight : public Scene {
  public:
    void act_as_victim(const Stage& stage) override {
        EXPECT_TRUE(progress_until(stage.self, [&] { return stage.self.am_count > 300; }));
    }
    bool is_set(const Stage& stage) override { return send(stage); }
    bool is_over(const Stage& stage) override { return send(stage); }

  private:
    bool send(const Stage& stage) {
        const Bytes message = pattern(100, sent_);
        const ucs_status_t status = send_am_bytes(stage.peer, stage.am_id(), message);
        sent_ += status == UCS_OK ? 1 : 0;
        return sent_ > 300;
    }
    std::uint64_t sent_ = 0;
};

/// The receiver handles nothing any more, until the sender is out of credit.
class WithoutCredit : public Scene {
  public:
    bool is_set(const Stage& stage) override {
        while (uct_ep_am_short(stage.peer, stage.am_id(), 0, nullptr, 0) == UCS_OK) {
        }
        if (fact_of(stage.peer, "credits") > 0)
            return false;
        if (!is_waiting_) {
            request_.func = [](uct_pending_req_t* self) {
                ++reinterpret_cast<Request*>(self)->calls;
                return UCS_ERR_NO_RESOURCE;
            };
            is_waiting_ = uct_ep_pending_add(stage.peer, &request_, 0) == UCS_OK;
        }
        return is_waiting_;
    }
    void check(const Stage& stage) override {
        int purged = 0;
        uct_ep_pending_purge(
            stage.peer, [](uct_pending_req_t*, void* arg) { ++*static_cast<int*>(arg); }, &purged);
        EXPECT_EQ(1, purged);
    }

  private:
    struct Request : uct_pending_req_t {
        int calls = 0;
    } request_{};
    bool is_waiting_ = false;
};

// ---- Rendezvous, the receiver dies

class RndvToTheDead : public Scene {
  public:
    explicit RndvToTheDead(std::size_t bytes = kBytes) : bytes_(bytes) {}

    void act(const Stage& stage) override {
        payload_ = std::make_unique<Buffer>(make_payload(stage.self, bytes_, 1));
        const uct_iov_t iov = payload_->iov();
        retry(stage.self, [&] {  // others of dc may have what it takes
            handle_ = uct_ep_tag_rndv_zcopy(stage.peer, stage.tag(), "head", 4, &iov, 1, 0, &sent_);
            return UCS_PTR_STATUS(handle_);
        });
        ASSERT_FALSE(UCS_PTR_IS_ERR(handle_));
        EXPECT_EQ(UCS_INPROGRESS,
                  retry(stage.self, [&] { return uct_ep_flush(stage.peer, 0, &flushed_); }));
    }
    bool is_over(const Stage&) override { return sent_.calls > 0 && flushed_.calls > 0; }
    void check(const Stage&) override {
        EXPECT_EQ(1, sent_.calls);
        EXPECT_EQ(1, flushed_.calls);
        if (!may_succeed_) {
            EXPECT_LT(sent_.ended, UCS_OK);
            EXPECT_LT(flushed_.ended, UCS_OK);
        }
    }

  protected:
    bool may_succeed_ = false;
    std::size_t bytes_;
    std::unique_ptr<Buffer> payload_;
    Completion sent_, flushed_;
    ucs_status_ptr_t handle_ = nullptr;
};

/// It lies in the dead one's receive queue.
class RndvUnseen : public RndvToTheDead {};

class RndvUnexpected : public RndvToTheDead {
  public:
    void act_as_victim(const Stage& stage) override {
        EXPECT_TRUE(progress_until(stage.self, [&] { return stage.self.rndv_count == 1; }));
    }
};

class RndvCancelled : public RndvToTheDead {
  public:
    void act(const Stage& stage) override {
        RndvToTheDead::act(stage);
        EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(stage.peer, handle_));
    }
    bool is_over(const Stage&) override { return flushed_.calls > 0; }
    void check(const Stage&) override {
        EXPECT_EQ(0, sent_.calls);
        EXPECT_EQ(1, flushed_.calls);
    }
};

/// The receiver is reading, or has read and not said so.
class RndvBeingRead : public RndvToTheDead {
  public:
    explicit RndvBeingRead(std::size_t bytes) : RndvToTheDead(bytes) { may_succeed_ = true; }

    void prepare_as_victim(const Stage& stage) override {
        receive_ = std::make_unique<Receive>(stage.self, bytes_);
        std::memset(receive_->buffer.data(), 0, bytes_);
        EXPECT_EQ(UCS_OK, receive_->post(stage.tag()));
    }
    void act_as_victim(const Stage& stage) override {
        EXPECT_TRUE(progress_until(stage.self, [&] { return receive_->consumed == 1; }));
    }
    void last_words(const Stage&) override {
        if (bytes_ == kManyBytes)
            return;
        const volatile std::byte* last = receive_->buffer.data() + bytes_ - 1;
        const std::byte wanted = pattern(bytes_, 1).back();
        while (*last != wanted) {
        }
    }

  private:
    std::unique_ptr<Receive> receive_;
};

// ---- Eager, the sender dies

constexpr unsigned kMessages = 10;  // ud sends no more than 16 unanswered ones

/// Messages sent before the death are delivered before the error.
class SentBefore : public Scene {
  public:
    void act(const Stage& stage) override {
        has_tags_ = stage.self.offers(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
        for (unsigned i = 0; has_tags_ && i < kMessages; ++i) {
            receives_.push_back(std::make_unique<Receive>(stage.self, kBytes));
            EXPECT_EQ(UCS_OK, receives_.back()->post(stage.tag(i)));
        }
    }
    void act_as_victim(const Stage& stage) override {
        EXPECT_EQ(UCS_OK, retry(stage.self, [&] {  // ud sends nothing before it was answered
                      return uct_ep_am_short(stage.peer, stage.am_id(), 0, nullptr, 0);
                  }));
        EXPECT_TRUE(progress_until(stage.self,
                                   [&] { return uct_ep_flush(stage.peer, 0, nullptr) == UCS_OK; }));
    }
    void last_words(const Stage& stage) override {
        const bool has_tags = stage.self.offers(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
        for (unsigned i = 0; i < kMessages; ++i) {
            const Bytes message = pattern(200, i);
            EXPECT_EQ(UCS_OK, retry(stage.self, [&] {
                          return send_am_bytes(stage.peer, stage.am_id(), message);
                      }));
            if (has_tags) {
                EXPECT_EQ(UCS_OK, retry(stage.self, [&] {
                              return send_eager_bytes(stage.peer, stage.tag(i), 0, message);
                          }));
            }
        }
        if (has_tags)
            settle(stage);
    }
    void it_died(const Stage& stage) override {
        uct_ep_am_short(stage.peer, stage.am_id(), 0, nullptr, 0);  // ud notices by that alone
    }
    bool is_over(const Stage& stage) override {
        return std::count_if(stage.self.am.begin(), stage.self.am.end(),
                             [&](const AmMessage& am) { return am.id == stage.am_id(); }) ==
                   1 + kMessages &&
               std::all_of(receives_.begin(), receives_.end(),
                           [](const auto& receive) { return receive->completed == 1; });
    }
    void check(const Stage&) override {
        for (unsigned i = 0; i < receives_.size(); ++i) {
            EXPECT_EQ(UCS_OK, receives_[i]->status);
            EXPECT_TRUE(has_pattern(receives_[i]->received(), i));
        }
    }

  private:
    bool has_tags_ = false;
    std::vector<std::unique_ptr<Receive>> receives_;
};

/// Kept descriptors stay what they are when their sender, and then its endpoint, is gone.
class Held : public Scene {
  public:
    void act_as_victim(const Stage& stage) override {
        for (unsigned i = 0; i < kMessages; ++i) {
            const Bytes message = pattern(300, 0);
            EXPECT_EQ(UCS_OK, retry(stage.self, [&] {
                          return send_am_bytes(stage.peer, stage.am_id(), message);
                      }));
            EXPECT_EQ(UCS_OK, retry(stage.self, [&] {
                          return send_eager_bytes(stage.peer, stage.tag(), 0, message);
                      }));
        }
        settle(stage);
    }
    void act(const Stage& stage) override {
        stage.self.on_am = [this, id = stage.am_id()](const AmMessage& message) {
            return message.id == id ? keep(message.data) : UCS_OK;
        };
        stage.self.on_eager = [this, tag = stage.tag()](const EagerFragment& fragment) {
            return fragment.tag == tag ? keep(fragment.data) : UCS_OK;
        };
    }
    bool is_set(const Stage&) override { return kept_.size() == 2 * kMessages; }
    void check(const Stage& stage) override {
        EXPECT_EQ(long{2 * kMessages}, fact_of(stage.self, "receive_buffers_held"));
        for (int i = 0; i < 10; ++i)
            release();
    }
    void after_close(Entity& self) override {
        while (!kept_.empty()) {
            self.progress();
            release();
        }
    }

  private:
    ucs_status_t keep(void* data) {
        kept_.push_back(data);
        return UCS_INPROGRESS;
    }
    void release() {
        void* data = kept_.back();
        kept_.pop_back();
        EXPECT_TRUE(has_pattern({static_cast<const std::byte*>(data), 300}, 0));
        uct_iface_release_desc(data);
    }
    std::vector<void*> kept_;
};

/// A receive that nothing came for belongs to nobody: it stays posted.
class NotConsumed : public Scene {
  public:
    void act(const Stage& stage) override {
        receive_ = std::make_unique<Receive>(stage.self, kBytes);
        EXPECT_EQ(UCS_OK, receive_->post(stage.tag()));
    }
    void check(const Stage& stage) override {
        EXPECT_EQ(0, receive_->consumed + receive_->completed);
        EXPECT_EQ(UCS_OK, receive_->cancel(false));
        EXPECT_TRUE(progress_until(stage.self, [&] { return receive_->completed == 1; }));
        EXPECT_EQ(UCS_ERR_CANCELED, receive_->status);
    }

  private:
    std::unique_ptr<Receive> receive_;
};

// ---- Rendezvous, the sender dies

class RndvOfTheDead : public Scene {
  public:
    explicit RndvOfTheDead(std::size_t bytes = kBytes) : bytes_(bytes) {}
    void act(const Stage& stage) override {
        receive_ = std::make_unique<Receive>(stage.self, bytes_);
        EXPECT_EQ(UCS_OK, receive_->post(stage.tag()));
    }
    bool is_over(const Stage&) override { return receive_->completed == receive_->consumed; }
    // Where anybody may send to an interface the receive is no operation of the endpoint: a device
    // that reads its data gives the dead one up in its own time.
    bool has_endpoint_ended(const Stage& stage) override {
        return stage.self.offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE) || is_over(stage);
    }
    void check(const Stage&) override {
        EXPECT_EQ(1, receive_->completed);
        if (receive_->status == UCS_OK) {
            EXPECT_TRUE(has_pattern(receive_->received(), 1));
        }
    }

  protected:
    void send(const Stage& stage) {
        payload_ = std::make_unique<Buffer>(make_payload(stage.self, bytes_, 1));
        const uct_iov_t iov = payload_->iov();
        EXPECT_FALSE(UCS_PTR_IS_ERR(
            uct_ep_tag_rndv_zcopy(stage.peer, stage.tag(), nullptr, 0, &iov, 1, 0, &sent_)));
    }
    std::size_t bytes_;
    std::unique_ptr<Buffer> payload_;
    std::unique_ptr<Receive> receive_;
    Completion sent_;
};

/// The device has it, and reads, or software will when its sender is dead already.
class RndvLastWords : public RndvOfTheDead {
  public:
    using RndvOfTheDead::RndvOfTheDead;
    void last_words(const Stage& stage) override {
        send(stage);
        settle(stage);
    }
};

/// Dead before it could answer: the device reads nothing.
class RndvThenDead : public RndvOfTheDead {
  public:
    using RndvOfTheDead::RndvOfTheDead;
    void last_words(const Stage& stage) override {
        send(stage);
        die();
    }
};

/// Dead somewhere in the data.
class RndvHalfRead : public RndvOfTheDead {
  public:
    RndvHalfRead() : RndvOfTheDead(kManyBytes) {}
    void act_as_victim(const Stage& stage) override { send(stage); }
    bool is_set(const Stage&) override { return receive_->consumed == 1; }
};

/// Nobody had posted a receive: the layer above reads by itself.
class RndvReadByTheUser : public RndvOfTheDead {
  public:
    void act(const Stage&) override {}
    void act_as_victim(const Stage& stage) override { send(stage); }
    bool is_set(const Stage& stage) override { return message(stage) != nullptr; }
    void it_died(const Stage& stage) override {
        const RndvMessage& from = *message(stage);
        EXPECT_EQ(bytes_, from.length);
        key_ = std::make_unique<RemoteKey>(stage.self, from.rkey);
        payload_ = std::make_unique<Buffer>(make_payload(stage.self, bytes_, 2));
        read(stage);
    }
    bool is_over(const Stage& stage) override {
        if (read_ == UCS_ERR_NO_RESOURCE)
            read(stage);  // other dead ones had what it takes
        return sent_.calls > 0 || read_ < UCS_OK;
    }
    void check(const Stage&) override {
        EXPECT_EQ(read_ == UCS_INPROGRESS ? 1 : 0, sent_.calls);
        EXPECT_NE(UCS_OK, sent_.ended);
    }

  private:
    void read(const Stage& stage) {
        const uct_iov_t iov = payload_->iov();
        read_ =
            uct_ep_get_zcopy(stage.peer, &iov, 1, message(stage)->remote_addr, key_->get(), &sent_);
    }
    static const RndvMessage* message(const Stage& stage) {
        for (const RndvMessage& each : stage.self.rndv)
            if (each.tag == stage.tag())
                return &each;
        return nullptr;
    }
    std::unique_ptr<RemoteKey> key_;
    ucs_status_t read_ = UCS_OK;
};

// ---- Half of an eager message

/// More messages than the receiver has buffers for: it gets some of them.
class HalfAMessage : public RndvOfTheDead {
  public:
    HalfAMessage() : RndvOfTheDead(8 * kSegBytes) {}
    static constexpr std::size_t kSegBytes = 1024;

    void last_words(const Stage& stage) override {
        payload_ = std::make_unique<Buffer>(make_payload(stage.self, bytes_, 1));
        const uct_iov_t iov = payload_->iov();
        EXPECT_EQ(UCS_INPROGRESS,
                  uct_ep_tag_eager_zcopy(stage.peer, stage.tag(), 5, &iov, 1, 0, &sent_));
        die();
    }
    void check(const Stage&) override {
        EXPECT_EQ(1, receive_->completed);
        EXPECT_LT(receive_->status, UCS_OK);
    }
};

template <class Kind, auto... Arguments>
ScenePlan plan(const char* name) {
    return {name, [] { return std::make_unique<Kind>(Arguments...); }};
}

// ---- The cases

struct Way {
    const char* name;
    const char* transport;
    std::vector<std::pair<std::string, std::string>> config;
    bool is_short = false;  // of what it takes to send, so that the dead end one after the other
};

void PrintTo(const Way& way, std::ostream* out) {
    *out << way.name;
}

EntityOptions options_of(const Way& way) {
    EntityOptions options;
    const std::string prefix = way.transport == std::string("rc") ? "RC" : "DC";
    // Seven times 268 ms: longer than a living peer is ever kept from its processor.
    const char* given = std::getenv("TAGWIRE_TEST_RETRY_TIMEOUT");
    options.iface_config = {{prefix + "_TIMEOUT", given == nullptr ? "268ms" : given},
                            {prefix + "_KEEPALIVE_INTERVAL", "100ms"}};
    options.iface_config.insert(options.iface_config.end(), way.config.begin(), way.config.end());
    return options;
}

class VerbsKill : public ProcessTest, public ::testing::WithParamInterface<Way> {};

TEST_P(VerbsKill, of_a_receiver_ends_what_was_sent_to_it) {
    std::vector<ScenePlan> plans = {plan<Idle>("idle"),
                                    plan<InFlight>("in_flight"),
                                    plan<RndvUnseen>("rndv_unseen"),
                                    plan<RndvUnexpected>("rndv_unexpected"),
                                    plan<RndvCancelled>("rndv_cancelled"),
                                    plan<RndvBeingRead, kManyBytes>("rndv_being_read"),
                                    plan<RndvBeingRead, kBytes>("rndv_read_but_not_ended")};
    if (!GetParam().is_short) {
        plans.push_back(plan<WithoutCredit>("without_credit"));
        plans.push_back(plan<PostedToTheDead>("posted_to_the_dead"));
    }
    play(GetParam().transport, options_of(GetParam()), plans);
}

TEST_P(VerbsKill, of_a_sender_ends_what_it_had_begun) {
    play(GetParam().transport, options_of(GetParam()),
         {plan<SentBefore>("sent_before"), plan<Held>("held"), plan<NotConsumed>("not_consumed"),
          plan<RndvLastWords, kBytes>("rndv_last_words"),
          plan<RndvThenDead, kBytes>("rndv_then_dead"),
          plan<RndvThenDead, kManyBytes>("rndv_then_dead_long"),
          plan<RndvHalfRead>("rndv_half_read"), plan<RndvReadByTheUser>("rndv_read_by_the_user")});
}

const Way kWays[] = {
    {"rc_device", "rc", {{"RC_TAG_MATCHING", "device"}}},
    {"rc_software", "rc", {{"RC_TAG_MATCHING", "software"}}},
    {"dc", "dc", {}},
    {"dc_software", "dc", {{"DC_TAG_MATCHING", "software"}}},
    {"dc_one_dci", "dc", {{"DC_DCIS", "1"}, {"DC_STREAMS", "1"}, {"DC_TIMEOUT", "67ms"}}, true},
    {"dc_two_dcis_dcs",
     "dc",
     {{"DC_DCIS", "2"}, {"DC_STREAMS", "1"}, {"DC_POLICY", "dcs"}, {"DC_TIMEOUT", "67ms"}},
     true},
    {"dc_rand", "dc", {{"DC_POLICY", "rand"}}},
    {"dc_hash_one_dci",
     "dc",
     {{"DC_DCIS", "1"}, {"DC_STREAMS", "1"}, {"DC_POLICY", "hash"}, {"DC_TIMEOUT", "67ms"}},
     true},
};

INSTANTIATE_TEST_SUITE_P(Process, VerbsKill, ::testing::ValuesIn(kWays),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST_F(ProcessTest, kill_of_a_sender_within_an_eager_message_over_rc) {
    EntityOptions options = options_of(kWays[1]);
    for (const auto& [name, value] : {std::pair{"RC_SEG_BYTES", "1024"},
                                      {"RC_RX_DEPTH", "2"},
                                      {"RC_RNDV_MAX", "1"},
                                      {"RC_RNR_TIMER", "400ms"}}) {
        options.iface_config.emplace_back(name, value);
    }
    play("rc", options, {plan<HalfAMessage>("half_a_message")});
}

TEST_F(ProcessTest, kill_over_ud) {
    EntityOptions options;
    options.iface_config = {{"UD_PEER_TIMEOUT", "50ms"}, {"UD_REMOTE_TIMEOUT", "inf"}};
    play("ud", options, {plan<InFlight>("in_flight"), plan<SentBefore>("sent_before")});
}

}  // namespace
}  // namespace tagwire::test
