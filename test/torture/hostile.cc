// SPDX-License-Identifier: BSD-3-Clause
// A victim that serves a bystander goes on serving while others attack it: it lives, every byte of
// the bystander is right, and afterwards it has no descriptor more than before.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "attacker.hpp"
#include "party.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

constexpr std::uint64_t kHostileAskTag = 1;
constexpr std::uint64_t kHostileReplyTag = 2;
constexpr std::size_t kHostileRoom = 100'000;

struct Order {
    Attack attack;
    int victim;
    Address address;
};

/// Each process of the fabric over UDP has an address of its own.
void take_loopback_address(const char* address) {
    const char* fabric = std::getenv("TAGWIRE_VHCA_FABRIC");
    if (fabric != nullptr && std::string(fabric) == "udp")
        ::setenv("TAGWIRE_VHCA_ADDRESS", address, 1);
}

class Bystander {
  public:
    Bystander(Trial& trial, bool victim_sleeps)
        : trial_(trial), out_(kHostileRoom), back_(kHostileRoom) {
        take_loopback_address("127.0.0.3");
        victim_ = std::make_unique<Child>("victim", trial.random().next());
        take_loopback_address("127.0.0.2");
        party_ = std::make_unique<Party>();
        victim_->link().send(victim_sleeps);
        const auto address = victim_->link().receive<Address>();
        if (!address)
            throw std::runtime_error("the victim did not start");
        address_ = *address;
        ep_ = party_->connect(address_);
        for (int i = 0; i < 20; ++i)
            ping();
        descriptors_ = descriptors_of(victim_->pid());
    }

    void watch(Attack attack) {
        const std::string name = kAttackNames[static_cast<std::size_t>(attack)];
        trial_.phase("the attack '" + name + "'");
        Child attacker("attacker", trial_.random().next());
        attacker.link().send(Order{attack, victim_->pid(), address_});
        while (attacker.is_running())
            ping();
        if (attacker.join() != 0)
            trial_.lose("the attacker itself ended with status " + std::to_string(attacker.join()));
        if (const auto sent = attacker.link().receive<std::uint32_t>(); sent && *sent > 0)
            trial_.count("acts of " + name, *sent);
        trial_.phase("after the attack '" + name + "': the victim closes what it had opened");
        while (descriptors_of(victim_->pid()) > descriptors_ && !has_lost_)
            ping();
    }

    bool has_lost() const { return has_lost_; }

    void end() {
        trial_.phase("the end of the victim");
        must(party_->close_in_order(ep_), "tw_ep_close");
        victim_->link().send(true);
        party_->progress_until([&] { return !victim_->is_running(); });
        if (victim_->join() != 0)
            trial_.lose("the victim ended with status " + std::to_string(victim_->join()));
    }

  private:
    void ping() {
        if (has_lost_)
            return;
        const std::size_t length =
            kSelfDescribing +
            trial_.random().below(trial_.random().one_in(4) ? kHostileRoom - 100 : 300);
        fill(std::span(out_).first(length), ++number_);
        Receive receive(*party_, back_, kHostileReplyTag);
        tw_request_h send = nullptr;
        const tw_status_t status =
            tw_tag_send(ep_, out_.data(), length, kHostileAskTag, nullptr, &send);
        if (status < TW_OK) {
            lose(std::string("the bystander's send answers ") + tw_status_string(status));
            return;
        }
        const auto has_sent = [&] {
            return status != TW_INPROGRESS || tw_request_test(send, nullptr) != TW_INPROGRESS;
        };
        while (!receive.has_ended() || !has_sent()) {
            if (party_->progress() == 0)
                Party::idle();
            if (!victim_->is_running()) {
                lose("the victim ended with status " + std::to_string(victim_->join()));
                return;
            }
        }
        if (status == TW_INPROGRESS)
            tw_request_free(send);
        const tw_completion_t& done = receive.done();
        if (receive.status() != TW_OK) {
            lose(std::string("the bystander's receive ends with ") +
                 tw_status_string(receive.status()));
        } else if (number_of(std::span(back_).first(done.length), done.message_length) != number_) {
            lose("the bystander gets other bytes than it sent");
        }
        trial_.count("echoes");
    }

    void lose(const std::string& text) {
        trial_.lose(text);
        has_lost_ = true;
    }

    Trial& trial_;
    std::vector<std::byte> out_;
    std::vector<std::byte> back_;
    std::unique_ptr<Child> victim_;
    std::unique_ptr<Party> party_;
    Address address_;
    tw_ep_h ep_ = nullptr;
    std::uint64_t number_ = 0;
    std::size_t descriptors_ = 0;
    bool has_lost_ = false;
};

}  // namespace

int role_victim(Link& parent, Random& /*random*/) {
    const auto sleeps = parent.receive<bool>();
    if (!sleeps)
        return 1;
    const Party party;
    parent.send(party.address());
    std::vector<std::byte> buffer(kHostileRoom);
    for (;;) {
        Receive receive(party, buffer, kHostileAskTag);
        while (!receive.has_ended()) {
            constexpr std::uint64_t kLookNs = 20'000'000;
            tw_worker_wait(party.worker(), *sleeps ? TW_WAIT_SLEEP : TW_WAIT_YIELD, kLookNs);
            if (parent.has_packet())
                return 0;
        }
        const tw_completion_t& done = receive.done();
        tw_ep_h ep = done.ep;
        if (receive.status() != TW_OK ||
            (ep == nullptr &&
             tw_ep_create_to(party.worker(), done.source, nullptr, &ep) != TW_OK)) {
            continue;  // of an attacker
        }
        const tw_status_t status =
            party.send(ep, std::span(buffer).first(done.length), kHostileReplyTag);
        if (status < TW_OK)
            std::fprintf(stderr, "torture hostile: a reply of the victim ends with %s\n",
                         tw_status_string(status));
    }
}

int role_attacker(Link& parent, Random& random) {
    const auto order = parent.receive<Order>();
    if (!order)
        return 1;
    parent.send(Attacker(order->victim, order->address, random).run(order->attack));
    return 0;
}

void run_hostile(Trial& trial) {
    enter_private_network();  // where it is permitted, nobody else's socket is near
    take_loopback_address("127.0.0.2");
    { const Party warm; }
    trial.take_stock();
    const unsigned rounds = trial.rounds(2);
    for (unsigned round = 0; round < rounds && !trial.is_lost(); ++round) {
        trial.phase("a victim starts");
        Bystander bystander(trial, round % 2 == 1);
        for (std::size_t i = 0; i < static_cast<std::size_t>(Attack::kEnd); ++i) {
            bystander.watch(static_cast<Attack>(i));
            if (bystander.has_lost())
                return;
        }
        bystander.end();
    }
}

}  // namespace tagwire::torture
