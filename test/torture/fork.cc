// SPDX-License-Identifier: BSD-3-Clause
// Forks in mid traffic. The parent exchanges checked messages with a peer of its own all the time;
// children do nothing, run another program, die, or open a context of their own and talk to their
// parent. Nothing of this disturbs the parent's traffic.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <vector>

#include "party.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

constexpr std::uint64_t kForkAskTag = 1;
constexpr std::uint64_t kForkReplyTag = 2;
constexpr std::uint64_t kChildTag = 3;
constexpr std::size_t kForkRoom = 300'000;

class Parent {
  public:
    explicit Parent(Trial& trial)
        : trial_(trial), out_(kForkRoom), back_(kForkRoom), echo_("echo", trial.random().next()) {
        echo_.link().send(party_.address());
        const auto address = echo_.link().receive<Address>();
        if (!address)
            throw std::runtime_error("the echo did not start");
        ep_ = party_.connect(*address);
    }

    /// One message to the echo and back, with a fork in the middle.
    template <class Between>
    void exchange(const Between& between) {
        const std::size_t length =
            kSelfDescribing +
            trial_.random().below(trial_.random().one_in(3) ? kForkRoom - 100 : 500);
        const std::span<std::byte> message = std::span(out_).first(length);
        fill(message, ++number_);
        Receive receive(party_, back_, kForkReplyTag);
        tw_request_h send = nullptr;
        const tw_status_t status =
            tw_tag_send(ep_, message.data(), message.size(), kForkAskTag, nullptr, &send);
        must(status, "tw_tag_send");
        between();
        if (status == TW_INPROGRESS)
            must(party_.finish(send), "the send");
        party_.progress_until([&] { return receive.has_ended(); });
        must(receive.status(), "the receive");
        const tw_completion_t& done = receive.done();
        if (number_of(std::span(back_).first(done.length), done.message_length) != number_)
            trial_.lose("a message has other bytes than were sent");
        trial_.count("messages");
    }

    void fork_one() {
        const std::uint64_t kind = trial_.random().below(5);
        const Address address = party_.address();
        std::unique_ptr<Child> child;
        exchange([&] {
            child =
                std::make_unique<Child>([&](Link& link) { return behave(kind, address, link); });
        });
        trial_.count("forks");
        if (kind == 3) {
            child->kill();
            return;
        }
        if (kind == 4)
            hear(*child);
        while (child->is_running())
            exchange([] {});
        if (child->join() != 0) {
            trial_.lose("a forked child of kind " + std::to_string(kind) + " ended with status " +
                        std::to_string(child->join()));
        }
    }

    void end() {
        must(party_.close_in_order(ep_), "tw_ep_close");
        echo_.link().send(true);
        party_.progress_until([&] { return !echo_.is_running(); });
        if (echo_.join() != 0)
            trial_.lose("the echo ended with status " + std::to_string(echo_.join()));
    }

  private:
    static int behave(std::uint64_t kind, const Address& parent, Link& link) {
        switch (kind) {
            case 0:
                return 0;
            case 1:
                ::execl("/bin/true", "true", static_cast<char*>(nullptr));
                return 1;
            case 2:
                for (int i = 0; i < 1000; ++i)
                    sched_yield();
                return 0;
            case 3:
                static_cast<void>(link.receive<bool>());  // until it is killed
                return 0;
            default:
                return talk(parent);
        }
    }

    static int talk(const Address& parent) {
        const Party own;
        const tw_ep_h ep = own.connect(parent);
        std::vector<std::byte> message(5000);
        fill(message, 77);
        must(own.send(ep, message, kChildTag, TW_OP_DELIVERY_COMPLETE), "the child's send");
        must(own.close_in_order(ep), "the child's close");
        return 0;
    }

    void hear(Child& child) {
        std::vector<std::byte> message(5000);
        Receive receive(party_, message, kChildTag);
        while (!receive.has_ended()) {
            exchange([] {});
            if (!child.is_running() && child.join() != 0)
                receive.cancel();
        }
        const tw_status_t status = receive.status();
        if (status != TW_OK || number_of(message, receive.done().message_length) != 77U) {
            trial_.lose(std::string("the message of a forked child ends with ") +
                        tw_status_string(status));
        }
    }

    Trial& trial_;
    std::vector<std::byte> out_;
    std::vector<std::byte> back_;
    Child echo_;
    Party party_;
    tw_ep_h ep_ = nullptr;
    std::uint64_t number_ = 0;
};

}  // namespace

int role_echo(Link& parent, Random& /*random*/) {
    const auto address = parent.receive<Address>();
    if (!address)
        return 1;
    const Party party;
    parent.send(party.address());
    const tw_ep_h ep = party.connect(*address);
    std::vector<std::byte> buffer(kForkRoom);
    for (;;) {
        Receive receive(party, buffer, kForkAskTag);
        while (!receive.has_ended()) {
            if (party.progress() == 0) {
                if (parent.has_packet()) {
                    must(party.close_in_order(ep), "the echo's close");
                    return 0;
                }
                Party::idle();
            }
        }
        must(receive.status(), "the echo's receive");
        must(party.send(ep, std::span(buffer).first(receive.done().length), kForkReplyTag),
             "the echo's send");
    }
}

void run_fork(Trial& trial) {
    { const Party warm; }
    trial.take_stock();
    Parent parent(trial);
    const unsigned rounds = trial.rounds(30);
    for (unsigned round = 0; round < rounds && !trial.is_lost(); ++round) {
        trial.phase("fork " + std::to_string(round));
        parent.fork_one();
    }
    trial.phase("the end of the peer");
    parent.end();
}

}  // namespace tagwire::torture
