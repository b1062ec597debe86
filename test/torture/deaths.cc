// SPDX-License-Identifier: BSD-3-Clause
// Peers that die in every phase of a connection. The survivor has operations of all kinds under way
// with each: every operation ends once, the endpoint then fails once, and nothing of the peer is
// left.
#include <signal.h>

#include <array>
#include <deque>
#include <vector>

#include "party.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

enum class Phase : std::uint8_t {
    kBeforeContact,
    kContact,
    kEager,
    kRendezvousSend,
    kRendezvousReceive,
    kUnexpected,
    kFlush,
    kClose,
    kAsleep,   // the survivor kills it
    kStopped,  // the same
};
constexpr std::array kPhaseNames = {
    "before contact", "contact", "eager", "rendezvous send", "rendezvous receive",
    "unexpected",     "flush",   "close", "asleep",          "stopped"};

struct Plan {
    Phase phase;
    std::uint32_t steps;  // progress calls in the phase before the death
};

constexpr std::size_t kLong = std::size_t{2} << 20;
enum Tag : std::uint64_t { kHelloTag = 1, kShortTag, kLongTag, kBackTag, kNobodyTag };

[[noreturn]] void die() {
    raise(SIGKILL);
    abort();
}

// ---- The one that dies

class Mortal {
  public:
    Mortal(Link& parent, const Plan& plan) : parent_(parent), plan_(plan), long_(kLong) {
        fill(long_, 7);
    }

    [[noreturn]] void live(const Party& party, const Address& survivor) {
        if (plan_.phase == Phase::kBeforeContact)
            die();
        const tw_ep_h ep = party.connect(survivor);
        if (plan_.phase != Phase::kContact) {
            party.send(ep, {}, kHelloTag, TW_OP_DELIVERY_COMPLETE);
            begin(party, ep);
        }
        for (std::uint32_t i = 0; i < plan_.steps; ++i) {
            if (plan_.phase == Phase::kEager || plan_.phase == Phase::kUnexpected)
                send_short(ep, i);
            party.progress();
        }
        end(party);
    }

  private:
    void begin(const Party& party, tw_ep_h ep) {
        switch (plan_.phase) {
            case Phase::kRendezvousReceive:
                tw_tag_recv(party.worker(), long_.data(), long_.size(), kBackTag, 0, nullptr,
                            nullptr);
                break;
            case Phase::kRendezvousSend:
            case Phase::kFlush:
            case Phase::kClose:
                tw_tag_send(ep, long_.data(), long_.size(), kLongTag, nullptr, nullptr);
                send_short(ep, 0);
                break;
            default:
                break;
        }
        if (plan_.phase == Phase::kFlush)
            tw_ep_flush(ep, TW_FLUSH_DELIVERED, nullptr, nullptr);
        else if (plan_.phase == Phase::kClose)
            tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr);
    }

    void send_short(tw_ep_h ep, std::uint32_t i) {
        const std::size_t length = 16 + i * 97 % 9000;
        std::vector<std::byte>& message = sent_.emplace_back(length);
        fill(message, i);
        tw_tag_send(ep, message.data(), length,
                    plan_.phase == Phase::kUnexpected ? kNobodyTag : kShortTag, nullptr, nullptr);
        if (i % 8 == 0)
            tw_msg_send(ep, message.data(), length, nullptr, nullptr);
    }

    [[noreturn]] void end(const Party& party) {
        if (plan_.phase == Phase::kAsleep) {
            parent_.send(true);
            for (;;)
                tw_worker_wait(party.worker(), TW_WAIT_SLEEP, UINT64_MAX);
        }
        if (plan_.phase == Phase::kStopped) {
            parent_.send(true);
            raise(SIGSTOP);
        }
        die();
    }

    Link& parent_;
    Plan plan_;
    std::vector<std::byte> long_;
    std::deque<std::vector<std::byte>> sent_;
};

// ---- The survivor

class Survivor {
  public:
    explicit Survivor(Trial& trial) : trial_(trial), party_(params()) {}

    void outlive(unsigned round, const Plan& plan) {
        round_ = "round " + std::to_string(round) + ", a death in '" +
                 kPhaseNames.at(static_cast<std::size_t>(plan.phase)) + "' after " +
                 std::to_string(plan.steps) + " steps";
        trial_.phase(round_);
        Child child("mortal", trial_.random().next());
        child.link().send(plan);
        child.link().send(party_.address());
        const auto address = child.link().receive<Address>();
        failures_ = 0;
        tw_ep_h ep = nullptr;
        const tw_status_t status =
            address ? party_.try_connect(*address, &ep) : TW_ERR_CONNECTION_RESET;
        if (status == TW_ERR_UNREACHABLE) {
            child.join();  // it was gone before we asked
            trial_.count("unreachable");
            return;
        }
        if (status != TW_OK) {
            trial_.lose(round_ + ": tw_ep_create answers " + tw_status_string(status));
            return;
        }
        begin(ep);
        wait_for_death(child, plan);
        end(ep);
        trial_.count("deaths");
    }

  private:
    struct Operation {
        Survivor* owner;
        bool is_of_endpoint;
        int ends = 0;
        std::vector<std::byte> buffer;
    };

    tw_worker_params_t params() {
        tw_worker_params_t params = {};
        params.ep_failed = [](void* self, tw_ep_h, tw_status_t) {
            static_cast<Survivor*>(self)->failed();
        };
        params.ep_failed_arg = this;
        return params;
    }

    void failed() {
        ++failures_;
        if (of_endpoint_ != 0) {
            trial_.lose(round_ + ": ep_failed runs while " + std::to_string(of_endpoint_) +
                        " operations of the endpoint have not ended");
        }
    }

    static void ended(const tw_completion_t* done) {
        auto& operation = *static_cast<Operation*>(done->context);
        operation.owner->ended(operation, *done);
    }

    void ended(Operation& operation, const tw_completion_t& done) {
        if (++operation.ends != 1) {
            trial_.lose(round_ + ": an operation ends twice");
            return;
        }
        --outstanding_;
        of_endpoint_ -= operation.is_of_endpoint ? 1 : 0;
        trial_.count("operations");
        const bool is_message = (done.flags & TW_DONE_RECV) != 0 && done.status == TW_OK;
        if (is_message && done.length >= kSelfDescribing &&
            !number_of(std::span(operation.buffer).first(done.length), done.message_length)) {
            trial_.lose(round_ + ": a message of " + std::to_string(done.length) +
                        " bytes has other bytes than were sent");
        }
    }

    tw_op_t start(bool is_of_endpoint) {
        operations_.push_back({this, is_of_endpoint, 0, std::vector<std::byte>(kLong)});
        tw_op_t op = {};
        op.flags = TW_OP_COMPLETION;
        op.context = &operations_.back();
        op.complete = ended;
        ++outstanding_;
        of_endpoint_ += is_of_endpoint ? 1 : 0;
        return op;
    }

    void begin(tw_ep_h ep) {
        for (unsigned i = 0; i < 8; ++i) {
            const bool is_from_peer = i % 2 == 1;
            tw_op_t op = start(is_from_peer);
            op.source = is_from_peer ? ep : nullptr;
            std::vector<std::byte>& buffer = operations_.back().buffer;
            tw_request_h request = nullptr;
            const auto tag = std::uint64_t{kHelloTag} + i / 2;
            must(i < 6 ? tw_tag_recv(party_.worker(), buffer.data(), buffer.size(), tag, 0, &op,
                                     &request)
                       : tw_msg_recv(party_.worker(), buffer.data(), buffer.size(), &op, &request),
                 "a receive");
            if (!is_from_peer)
                from_anybody_.push_back({&operations_.back(), request});
        }
        for (const std::size_t length : {std::size_t{100}, kLong}) {
            const tw_op_t op = start(true);
            std::vector<std::byte>& buffer = operations_.back().buffer;
            fill(std::span(buffer).first(length), 9);
            must(tw_tag_send(ep, buffer.data(), length, kBackTag, &op, nullptr), "tw_tag_send");
        }
    }

    void wait_for_death(Child& child, const Plan& plan) {
        const bool is_killed = plan.phase == Phase::kAsleep || plan.phase == Phase::kStopped;
        if (is_killed) {
            party_.progress_until([&] { return child.link().has_packet(); });
            for (std::uint32_t i = 0; i < plan.steps; ++i)
                party_.progress();
            child.kill();
        }
        party_.progress_until([&] { return failures_ > 0 && of_endpoint_ == 0; });
        child.join();
    }

    void end(tw_ep_h ep) {
        must(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), "tw_ep_close of a failed endpoint");
        for (const auto& [operation, request] : from_anybody_)
            if (operation->ends == 0)
                must(tw_request_cancel(request), "tw_request_cancel");
        party_.progress_until([&] { return outstanding_ == 0; });
        for (int i = 0; i < 64; ++i)
            party_.progress();  // a second report would come now
        if (failures_ != 1)
            trial_.lose(round_ + ": ep_failed ran " + std::to_string(failures_) + " times");
        discard();
        from_anybody_.clear();
        operations_.clear();
    }

    /// Drops the messages that the dead peer had sent in full, which are still there.
    void discard() {
        while (party_.drop_one(UINT64_MAX, true) || party_.drop_one(UINT64_MAX, false))
            trial_.count("messages left by the dead");
    }

    struct Posted {
        Operation* operation;
        tw_request_h request;
    };

    Trial& trial_;
    std::string round_;
    Party party_;
    std::deque<Operation> operations_;
    std::vector<Posted> from_anybody_;
    int outstanding_ = 0;
    int of_endpoint_ = 0;
    int failures_ = 0;
};

}  // namespace

int role_mortal(Link& parent, Random& /*random*/) {
    const auto plan = parent.receive<Plan>();
    const auto survivor = parent.receive<Address>();
    if (!plan || !survivor)
        return 1;
    const Party party;
    parent.send(party.address());
    Mortal(parent, *plan).live(party, *survivor);
}

void run_deaths(Trial& trial) {
    { const Party warm; }
    trial.take_stock();
    Survivor survivor(trial);
    const unsigned rounds = trial.rounds(static_cast<unsigned>(3 * kPhaseNames.size()));
    for (unsigned round = 0; round < rounds && !trial.is_lost(); ++round) {
        const auto phase = static_cast<Phase>(round % kPhaseNames.size());
        const std::uint64_t steps_max = trial.random().one_in(2) ? 20 : 2000;
        survivor.outlive(round,
                         {phase, static_cast<std::uint32_t>(trial.random().below(steps_max))});
    }
}

}  // namespace tagwire::torture
