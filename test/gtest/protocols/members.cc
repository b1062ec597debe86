// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/members.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "common/network.hpp"

namespace tagwire::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSleepNs = 2'000'000;
constexpr auto kMemberPatience = std::chrono::seconds(60);  // then it hangs
constexpr std::uint64_t kFewMessages = 4;

}  // namespace

// ---- In the process of a member

Member::Member(unsigned rank, std::size_t bytes_max) : rank_(rank), bytes_max_(bytes_max) {
    tw_context_params_t params{};
    params.transports = "tcp";
    EXPECT_EQ(tw_context_create(&params, &context_), TW_OK);
    node_ = std::make_unique<Node>(context_);
}

Member::~Member() {
    node_.reset();
    tw_context_destroy(context_);
}

void Member::connect(const std::vector<Bytes>& addresses) {
    for (unsigned rank = 0; rank < addresses.size(); ++rank) {
        if (rank == rank_)
            continue;
        Peer& peer = peers_.emplace_back();
        peer.rank = rank;
        for (std::size_t i = 0; i < peer.slots.size(); ++i) {
            peer.slots[i].peer = &peer;
            peer.slots[i].is_send = i < kWindow;
        }
        const tw_ep_params_t params{.address = addresses[rank].data(),
                                    .address_length = addresses[rank].size(),
                                    .user_data = nullptr};
        EXPECT_EQ(tw_ep_create(node_->worker(), &params, &peer.ep), TW_OK);
    }
}

/// Most are short, some are as long as may be.
Bytes Member::content(unsigned from, unsigned to, std::uint64_t number) const {
    const std::uint64_t seed = (std::uint64_t{from} << 40 | std::uint64_t{to} << 32 | number) + 1;
    const std::uint64_t mixed = seed * 0x9e3779b97f4a7c15 >> 20;
    const std::size_t most[] = {64, 4096, 20'000, bytes_max_};
    return pattern(mixed % (most[mixed / 7 % 4] + 1), seed * 131);
}

bool Member::begin(Slot& slot) {
    Peer& peer = *slot.peer;
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &slot;
    tw_status_t status = TW_OK;
    slot.number = slot.is_send ? peer.sends : peer.receives;
    if (slot.is_send) {
        slot.bytes = content(rank_, peer.rank, slot.number);
        status = tw_tag_send(peer.ep, slot.bytes.data(), slot.bytes.size(), rank_, &how, nullptr);
    } else {
        slot.bytes = Bytes(content(peer.rank, rank_, slot.number).size() + 1);
        how.source = peer.ep;
        status = tw_tag_recv(node_->worker(), slot.bytes.data(), slot.bytes.size(), peer.rank, 0,
                             &how, nullptr);
    }
    if (status == TW_ERR_NO_RESOURCE)
        return false;
    ++(slot.is_send ? peer.sends : peer.receives);
    slot.is_used = status >= TW_OK;
    report_.refused += status < TW_OK ? 1 : 0;
    return true;
}

void Member::fill(Peer& peer, std::uint64_t end) {
    for (Slot& slot : peer.slots) {
        while (!slot.is_used && (slot.is_send ? peer.sends : peer.receives) < end)
            if (!begin(slot))
                break;
    }
}

void Member::take_ends() {
    node_->progress();
    for (const tw_completion_t& done : std::exchange(node_->done, {})) {
        Slot& slot = *static_cast<Slot*>(done.context);
        slot.is_used = false;
        if (done.status != TW_OK) {
            ++report_.refused;
        } else if (slot.is_send) {
            ++report_.sent;
        } else {
            ++report_.received;
            const Bytes expected = content(slot.peer->rank, rank_, slot.number);
            const bool is_right = done.length == expected.size() &&
                                  std::equal(expected.begin(), expected.end(), slot.bytes.begin());
            report_.wrong += is_right ? 0 : 1;
        }
    }
    for (const auto& [ep, status] : node_->failures) {
        for (const Peer& peer : peers_)
            report_.failed_peers |= peer.ep == ep ? std::uint64_t{1} << peer.rank : 0;
        report_.failure = status;
    }
}

bool Member::is_idle() const {
    return std::ranges::all_of(peers_, [this](const Peer& peer) {
        return peer.sends == messages_ && peer.receives == messages_ &&
               std::ranges::none_of(peer.slots, &Slot::is_used);
    });
}

void Member::sleep() {
    static_cast<void>(tw_worker_wait(node_->worker(), TW_WAIT_SLEEP, kSleepNs));
    take_ends();
}

Report Member::exchange(const Command& command, const Channel& control) {
    report_ = {};
    messages_ += command.messages;
    const auto end = Clock::now() + kMemberPatience;
    bool is_told = false;
    const auto is_over = [&] { return is_idle() && node_->failures.size() >= command.failures; };
    while (!is_over() && Clock::now() < end) {
        for (Peer& peer : peers_)
            fill(peer, messages_);
        sleep();
        if (!is_told && report_.received + report_.refused >= kFewMessages) {
            control.signal();
            is_told = true;
        }
    }
    report_.is_over = is_over();
    return report_;
}

Command Member::await_command(const Channel& control) {
    while (!control.has_message())
        sleep();
    return control.receive_value<Command>().value_or(Command{});
}

namespace {

void be_member(const Channel& control, unsigned rank, bool has_namespace, std::size_t bytes_max,
               const Environment& environment) {
    if (has_namespace && unshare(CLONE_NEWNET) != 0)
        throw std::runtime_error("no network namespace");
    control.signal();
    if (!control.await_signal())
        throw std::runtime_error("the test went away");
    setenv("TAGWIRE_TCP_DEVICES", has_namespace ? "wire0" : "lo", 1);
    setenv("TAGWIRE_CALIBRATION", "none", 1);
    for (const auto& [name, value] : environment)
        setenv(name.c_str(), value.c_str(), 1);
    Member self(rank, bytes_max);
    control.send(self.address());
    const auto addresses = control.receive();
    if (!addresses)
        throw std::runtime_error("no addresses");
    self.connect(unpack(*addresses));
    for (;;) {
        const Command command = self.await_command(control);
        if (command.messages == 0)
            return;
        control.send_value(self.exchange(command, control));
    }
}

}  // namespace

// ---- In the process of the test

Members::Members(unsigned count, bool have_namespaces, std::size_t bytes_max,
                 const Environment& environment)
    : have_namespaces_(have_namespaces) {
    if (have_namespaces &&
        !run_in_network_of(getpid(), "ip link add bridge0 type bridge; ip link set bridge0 up"))
        return;
    for (unsigned rank = 0; rank < count; ++rank)
        children_.push_back(std::make_unique<Child>([&, rank](const Channel& control) {
            be_member(control, rank, have_namespaces, bytes_max, environment);
        }));
    for (unsigned rank = 0; rank < count; ++rank)
        if (!children_[rank]->channel().await_signal() || (have_namespaces && !join(rank)))
            return;
    is_up_ = introduce();
}

Members::~Members() {
    children_.clear();
    if (have_namespaces_)
        run_in_network_of(getpid(), "ip link del bridge0");
}

std::string Members::address_of(unsigned rank) {
    return "10.93.9." + std::to_string(rank + 1);
}

/// Retransmissions of the kernel come soon, so that a case takes no minutes. A busy system tells of
/// the carrier later, and until then an interface does not count.
bool Members::join(unsigned rank) {
    static unsigned ports = 0;  // those of a test before may still be there
    const std::string port = "port" + std::to_string(ports++);
    const std::string pid = std::to_string(children_[rank]->pid());
    const std::string address = address_of(rank);
    return run_in_network_of(getpid(), "ip link add " + port + " type veth peer name wire0 netns " +
                                           pid + "; ip link set " + port + " master bridge0 up") &&
           run_in_network_of(children_[rank]->pid(),
                             "ip link set lo up; ip address add " + address +
                                 "/24 dev wire0; ip link set wire0 up; until ip link show wire0 "
                                 "| grep -q LOWER_UP; do sleep 0.01; done; ip route replace "
                                 "10.93.9.0/24 dev wire0 src " +
                                 address +
                                 " rto_min 5ms; nft 'table inet faults { chain in { type filter "
                                 "hook input priority 0; }; chain out { type filter hook output "
                                 "priority 0; }; }'");
}

/// Each learns the addresses of all.
bool Members::introduce() {
    for (const auto& child : children_)
        child->channel().signal();
    std::vector<Bytes> addresses;
    for (const auto& child : children_) {
        const auto address = child->channel().receive();
        if (!address)
            return false;
        addresses.push_back(*address);
    }
    for (const auto& child : children_)
        child->channel().send(pack(addresses));
    return true;
}

void Members::command_all(const Command& command) {
    for (const auto& child : children_)
        child->channel().send_value(command);
}

bool Members::are_under_way() {
    return std::ranges::all_of(children_,
                               [](const auto& child) { return child->channel().await_signal(); });
}

Report Members::report(unsigned rank) {
    // Behind the signal, where that was not awaited.
    for (;;) {
        const auto bytes = children_[rank]->channel().receive(2 * kPatienceMs);
        if (!bytes)
            return {};
        if (bytes->size() != sizeof(Report))
            continue;
        Report report;
        std::memcpy(static_cast<void*>(&report), bytes->data(), sizeof report);
        return report;
    }
}

bool Members::add_rule(unsigned rank, const std::string& chain, const std::string& rule) {
    return run_in_network_of(children_[rank]->pid(),
                             "nft 'add rule inet faults " + chain + " " + rule + "'");
}

bool Members::flush_rules(unsigned rank) {
    return run_in_network_of(children_[rank]->pid(), "nft flush table inet faults");
}

}  // namespace tagwire::test
