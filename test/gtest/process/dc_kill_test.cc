// SPDX-License-Identifier: BSD-3-Clause
// kill -9 of a dc target while the endpoints to all other targets wait for DCIs that the endpoints
// to it hold, or share with them. The endpoints to it fail, each once, with all operations under
// way; the others lose nothing.
//
//   sender    as many endpoints to the victim as channels (DCIs or streams of them), and 50 to five
//             others
//   target    counts what comes, and holds each byte against what was sent
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "harness.hpp"
#include "ledger.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kTargets = 5;
constexpr unsigned kEndpoints = 50;
constexpr std::uint32_t kKillMessages = 200;  // of each endpoint, at least
constexpr std::uint32_t kWarm = 3;            // of each endpoint before the death
constexpr std::size_t kKillBytes = 5000;
constexpr int kKillLongMs = 120'000;

struct Pool {
    const char* policy;
    unsigned dcis;
    unsigned streams;

    [[nodiscard]] unsigned channels() const { return dcis * streams; }
    [[nodiscard]] bool is_shared() const { return policy[0] != 'd'; }
    [[nodiscard]] std::string name() const {
        return std::string(policy) + "_" + std::to_string(dcis) + "x" + std::to_string(streams);
    }
};

void PrintTo(const Pool& pool, std::ostream* out) {
    *out << pool.name();
}

EntityOptions options_of(const Pool& pool) {
    EntityOptions options;
    // Seven times 134 ms: a living peer is never kept from its processor that long.
    const char* given = std::getenv("TAGWIRE_TEST_RETRY_TIMEOUT");
    options.iface_config = {{"DC_POLICY", pool.policy},
                            {"DC_DCIS", std::to_string(pool.dcis)},
                            {"DC_STREAMS", std::to_string(pool.streams)},
                            {"DC_TIMEOUT", given == nullptr ? "134ms" : given},
                            {"DC_KEEPALIVE_INTERVAL", "100ms"}};
    return options;
}

// ---- The sender

/// One endpoint's messages: one for each turn that it gets.
struct Stream : uct_pending_req_t {
    Endpoint ep;
    std::uint32_t number = 0;
    std::uint32_t sent = 0, limit = 0;
    bool is_doomed = false;
    bool is_waiting = false;  // the request is in the pending queue
    int errors = 0;
    std::vector<std::unique_ptr<Completion>> operations;

    ucs_status_t send() {
        const ucs_status_t status = send_am_bytes(ep, Entity::kAmId, message_at({number, sent}));
        sent += status == UCS_OK ? 1 : 0;
        return status;
    }
    [[nodiscard]] bool has_ended() const {
        return std::ranges::all_of(operations, [](const auto& each) { return each->calls == 1; });
    }
};

class Sender {
  public:
    Sender(const Pool& pool, const std::vector<Bytes>& targets)
        : self_(resource_of("dc"), options_of(pool)),
          payload_(make_payload(self_, kKillBytes, 1)),
          doomed_(pool.channels()),
          is_shared_(pool.is_shared()) {
        self_.on_error = [this](const PeerError& error) { take_error(error); };
        for (unsigned i = 0; i < doomed_ + kEndpoints; ++i) {
            auto stream = std::make_unique<Stream>();
            stream->is_doomed = i < doomed_;
            stream->number = i;
            stream->ep =
                connect_to(self_, targets.at(stream->is_doomed ? 0 : 1 + (i - doomed_) % kTargets));
            stream->func = [](uct_pending_req_t* self) {
                return turn(*static_cast<Stream*>(self));
            };
            streams_.push_back(std::move(stream));
        }
    }

    void warm_up() {
        for (const auto& stream : streams_)
            wait(*stream, kWarm);
        EXPECT_TRUE(until([&] { return !is_any_waiting(); }));
        EXPECT_TRUE(until([&] { return uct_iface_flush(self_.iface(), 0, nullptr) == UCS_OK; }));
    }

    /// The victim is dead, and each DCI has something for it.
    void hold_dcis() {
        for (unsigned i = 0; i < doomed_; ++i) {
            Stream& stream = *streams_[i];
            const uct_iov_t iov = payload_.iov();
            start(stream, [&](auto* done) {
                return uct_ep_am_zcopy(stream.ep, Entity::kAmId, nullptr, 0, &iov, 1, 0, done);
            });
            start(stream, [&](auto* done) {
                return uct_ep_tag_eager_zcopy(stream.ep, 1, 0, &iov, 1, 0, done);
            });
            start(stream, [&](auto* done) {
                const auto handle =
                    uct_ep_tag_rndv_zcopy(stream.ep, 2, nullptr, 0, &iov, 1, 0, done);
                return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_INPROGRESS;
            });
            start(stream, [&](auto* done) { return uct_ep_flush(stream.ep, 0, done); });
        }
        for (unsigned i = 0; i < kEndpoints; ++i) {
            const ucs_status_t status = streams_[doomed_ + i]->send();
            EXPECT_TRUE(status == UCS_ERR_NO_RESOURCE || (is_shared_ && status == UCS_OK));
            wait(*streams_[doomed_ + i], kKillMessages);
        }
    }

    /// All endpoints have something to send, those to the victim for ever.
    void begin_traffic() {
        for (const auto& stream : streams_)
            wait(*stream, stream->is_doomed ? UINT32_MAX : 2 * kKillMessages);
        EXPECT_TRUE(until([&] {
            std::uint64_t sent = 0;
            for (const auto& stream : streams_)
                sent += stream->sent;
            return sent >= 2 * kKillMessages;
        }));
    }

    void live_on() {
        EXPECT_TRUE(until([&] { return errors() == doomed_; }));
        for (const auto& stream : streams_)
            stream->limit = std::max(kKillMessages, stream->sent + 20);
        EXPECT_TRUE(until([&] { return !is_any_waiting(); }));
        EXPECT_TRUE(until([&] { return uct_iface_flush(self_.iface(), 0, nullptr) == UCS_OK; }));
        for (const auto& stream : streams_) {
            EXPECT_EQ(stream->is_doomed ? 1 : 0, stream->errors) << "endpoint " << stream->number;
            EXPECT_TRUE(stream->has_ended());
        }
        const auto channels = static_cast<long>(doomed_);  // all of which others have used since
        EXPECT_EQ(channels, fact_of(self_, "channels"));
        EXPECT_EQ(is_shared_ ? 0 : channels, fact_of(self_, "channels_idle"));
        EXPECT_EQ(0, fact_of(self_, "rendezvous_under_way"));
    }

    /// Messages for each target.
    [[nodiscard]] std::vector<std::uint64_t> sent() const {
        std::vector<std::uint64_t> all(kTargets);
        for (unsigned i = 0; i < kEndpoints; ++i)
            all[i % kTargets] += streams_[doomed_ + i]->sent;
        return all;
    }

  private:
    static ucs_status_t turn(Stream& stream) {
        if (stream.sent >= stream.limit) {
            stream.is_waiting = false;
            return UCS_OK;
        }
        const ucs_status_t status = stream.send();
        return status == UCS_OK ? UCS_INPROGRESS : status;
    }

    void wait(Stream& stream, std::uint32_t limit) {
        stream.limit = limit;
        ucs_status_t status = UCS_OK;
        while ((status = uct_ep_pending_add(stream.ep, &stream, 0)) == UCS_ERR_BUSY)
            if (stream.sent == limit || (status = stream.send()) < UCS_OK)
                break;
        EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_BUSY) << ucs_status_string(status);
        stream.is_waiting = status == UCS_OK;
    }

    template <class Operation>
    void start(Stream& stream, Operation&& operation) {
        stream.operations.push_back(std::make_unique<Completion>());
        EXPECT_EQ(UCS_INPROGRESS, operation(stream.operations.back().get()));
    }

    void take_error(const PeerError& error) {
        const auto at = std::ranges::find_if(
            streams_, [&](const auto& stream) { return stream->ep.get() == error.ep; });
        ASSERT_NE(streams_.end(), at);
        Stream& stream = **at;
        ++stream.errors;
        EXPECT_TRUE(stream.is_doomed)
            << "endpoint " << stream.number << ": " << ucs_status_string(error.status);
        EXPECT_TRUE(stream.has_ended()) << "the error is told before all operations ended";
        for (const auto& operation : stream.operations)
            EXPECT_LT(operation->ended, UCS_OK);
        uct_ep_pending_purge(
            stream.ep,
            [](uct_pending_req_t* request, void*) {
                static_cast<Stream*>(request)->is_waiting = false;
            },
            nullptr);
        EXPECT_FALSE(stream.is_waiting);
        const ucs_status_t refused = stream.send();
        EXPECT_TRUE(refused < UCS_OK && refused != UCS_ERR_NO_RESOURCE);
    }

    [[nodiscard]] unsigned errors() const {
        unsigned all = 0;
        for (const auto& stream : streams_)
            all += stream->errors > 0 ? 1 : 0;
        return all;
    }
    [[nodiscard]] bool is_any_waiting() const {
        return std::ranges::any_of(streams_, [](const auto& stream) { return stream->is_waiting; });
    }
    bool until(const std::function<bool()>& done) {
        return progress_until(self_, done, kKillLongMs);
    }

    Entity self_;
    Buffer payload_;
    unsigned doomed_;
    bool is_shared_;
    std::vector<std::unique_ptr<Stream>> streams_;
};

void be_sender(Channel& control, const Pool& pool, bool is_amid) {
    const auto targets = control.receive();
    Sender sender(pool, unpack(targets.value()));
    sender.warm_up();
    if (is_amid)
        sender.begin_traffic();
    control.signal();  // the victim dies
    ASSERT_TRUE(control.await_signal());
    if (!is_amid)
        sender.hold_dcis();
    sender.live_on();
    const std::vector<std::uint64_t> sent = sender.sent();
    const auto* first = reinterpret_cast<const std::byte*>(sent.data());
    control.send(Bytes(first, first + sent.size() * sizeof sent[0]));
    ASSERT_TRUE(control.await_signal());
}

// ---- A target

void be_target(Channel& control, const Pool& pool) {
    Entity self(resource_of("dc"), options_of(pool));
    self.keep_record = false;
    Ledger ledger;
    self.on_am = [&](const AmMessage& message) {
        ledger.take(message.bytes);
        return UCS_OK;
    };
    control.send(address_of(self));
    EXPECT_TRUE(progress_until(
        self, [&] { return control.has_message(); }, kKillLongMs));
    const auto sent = control.receive_value<std::uint64_t>();
    ASSERT_TRUE(sent.has_value());
    EXPECT_TRUE(progress_until(self, [&] { return ledger.total() >= *sent; }));
    EXPECT_EQ(*sent, ledger.total());
    EXPECT_TRUE(self.errors.empty());
}

// ---- The cases

class DcKill : public ProcessTest, public ::testing::WithParamInterface<Pool> {
  protected:
    static void play(bool is_amid) {
        const Pool& pool = GetParam();
        Child sender([&](Channel& control) { be_sender(control, pool, is_amid); });
        std::vector<std::unique_ptr<Child>> targets;  // the first is the victim
        std::vector<Bytes> addresses;
        for (unsigned i = 0; i <= kTargets; ++i)
            targets.push_back(
                std::make_unique<Child>([&](Channel& control) { be_target(control, pool); }));
        for (const auto& target : targets) {
            const auto address = target->channel().receive();
            ASSERT_TRUE(address.has_value());
            addresses.push_back(*address);
        }
        sender.channel().send(pack(addresses));
        ASSERT_TRUE(sender.channel().receive(kKillLongMs).has_value()) << sender.join();
        targets[0]->kill_now();
        sender.channel().signal();
        const auto sent = sender.channel().receive(kKillLongMs);
        ASSERT_TRUE(sent.has_value()) << "the sender ended with " << sender.join();
        for (unsigned i = 0; i < kTargets; ++i) {
            constexpr std::size_t kEach = sizeof(std::uint64_t);
            targets[1 + i]->channel().send(
                {sent->data() + i * kEach, sent->data() + (i + 1) * kEach});
            EXPECT_EQ(0, targets[1 + i]->join(kKillLongMs));
        }
        sender.channel().signal();
        EXPECT_EQ(0, sender.join(kKillLongMs));
    }
};

TEST_P(DcKill, of_a_target_while_all_others_wait_for_its_dcis) {
    play(false);
}

TEST_P(DcKill, of_a_target_amid_traffic_to_all) {
    play(true);
}

INSTANTIATE_TEST_SUITE_P(Process, DcKill,
                         ::testing::Values(Pool{"dcs", 1, 1}, Pool{"dcs", 2, 1},
                                           Pool{"dcs_quota", 1, 1}, Pool{"dcs_quota", 2, 1},
                                           Pool{"dcs_quota", 2, 2}, Pool{"rand", 1, 1},
                                           Pool{"rand", 2, 2}, Pool{"hash", 1, 1},
                                           Pool{"hash", 2, 1}),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace tagwire::test
