// SPDX-License-Identifier: BSD-3-Clause
// Several peers flood a worker that receives nothing at first: its memory stays within its budget,
// the peers are made to wait, and later every message arrives, in its sender's order. One of them
// is killed in the middle: what it had sent comes without a gap, but for rendezvous, whose receives
// fail, and the others do not suffer.
#include <array>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "party.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

constexpr std::uint64_t kFloodTag = 5;
constexpr std::size_t kFloodRoom = 40'000;
constexpr std::size_t kFlooders = 3;
constexpr std::size_t kMiB = std::size_t{1} << 20;
// The default of TAGWIRE_UNEXPECTED_BYTES, once for what is kept and once for what keeps it; the
// rest are rings and the program.
#ifdef TAGWIRE_TORTURE_SANITIZED
constexpr std::size_t kMemoryMax = 1024 * kMiB;
#else
constexpr std::size_t kMemoryMax = 2 * 64 * kMiB + 128 * kMiB;
#endif

struct Task {
    std::uint32_t messages;
};

struct Flooder {
    std::unique_ptr<Child> child;
    std::uint32_t messages = 0;
    std::uint64_t next = 0;
    bool has_come = false;
    bool is_killed = false;
    bool has_gone = false;
};

class Flooded {
  public:
    explicit Flooded(Trial& trial) : trial_(trial), buffer_(kFloodRoom), party_(params()) {}

    void endure(unsigned round) {
        const std::string name = "round " + std::to_string(round);
        trial_.phase(name + ": nobody receives");
        const std::size_t before = resident_bytes();
        for (std::size_t i = 0; i < kFlooders; ++i)
            start();
        wait_until_full();
        Flooder& victim = by_id_.begin()->second;
        victim.child->kill();
        victim.is_killed = true;
        const std::size_t after = resident_bytes();
        if (after > before + kMemoryMax) {
            trial_.lose(name + ": unexpected messages take " +
                        std::to_string((after - before) / kMiB) + " MiB");
        }
        trial_.phase(name + ": all is received");
        receive_all();
        for (auto& [id, flooder] : by_id_)
            finish(flooder);
        by_id_.clear();
    }

  private:
    tw_worker_params_t params() {
        tw_worker_params_t params = {};
        params.peer_event = [](void* self, std::uint64_t id, tw_peer_event_t event, tw_status_t) {
            auto& by_id = static_cast<Flooded*>(self)->by_id_;
            const auto found = by_id.find(id);
            if (found == by_id.end() || event == TW_PEER_LEFT || event == TW_PEER_BACK)
                return;
            (event == TW_PEER_UP ? found->second.has_come : found->second.has_gone) = true;
        };
        params.peer_event_arg = this;
        return params;
    }

    void start() {
        const Task task = {static_cast<std::uint32_t>(3000 + trial_.random().below(3000))};
        auto child = std::make_unique<Child>("flooder", trial_.random().next());
        child->link().send(task);
        child->link().send(party_.address());
        const auto address = child->link().receive<Address>();
        if (!address) {
            trial_.lose("a flooder did not start");
            return;
        }
        Flooder& flooder = by_id_[id_of(*address)];
        flooder.child = std::move(child);
        flooder.messages = task.messages;
        trial_.count("flooders");
    }

    /// Until each has been made to wait, or has handed everything to its transport. One that waits
    /// may not be connected yet, and of a connection that never was no end is told.
    void wait_until_full() {
        for (const auto& entry : by_id_) {
            const Flooder& flooder = entry.second;
            party_.progress_until(
                [&] { return flooder.has_come && flooder.child->link().has_packet(); });
        }
    }

    bool is_over() const {
        for (const auto& [id, flooder] : by_id_) {
            const bool is_complete = flooder.next == flooder.messages;
            if (flooder.is_killed ? !flooder.has_gone : !is_complete)
                return false;
        }
        return true;
    }

    /// One receive at a time, so that the order of ends is the order of messages.
    void receive_all() {
        bool is_posted = false;
        tw_request_h request = nullptr;
        while (!is_over()) {
            tw_completion_t done = {};
            tw_message_info_t info{};
            tw_op_t op = {};
            op.info = &info;
            tw_status_t status = TW_OK;
            if (!is_posted) {
                status = tw_tag_recv(party_.worker(), buffer_.data(), buffer_.size(), kFloodTag, 0,
                                     &op, &request);
                is_posted = status == TW_INPROGRESS;
                done = msg::completion_of(status, info, buffer_.size());
            } else {
                party_.progress();
                status = tw_request_test(request, &done);
            }
            if (status == TW_INPROGRESS || status == TW_ERR_NO_RESOURCE)
                continue;
            if (is_posted) {
                tw_request_free(request);
                is_posted = false;
            }
            take(status, done);
        }
        drain(is_posted ? request : nullptr);
    }

    void drain(tw_request_h request) {
        tw_completion_t done = {};
        if (request != nullptr) {
            must(tw_request_cancel(request), "tw_request_cancel");
            if (party_.finish(request, &done) == TW_OK)
                take(TW_OK, done);
        }
        while (party_.drop_one(0, true, kFloodTag)) {
        }
    }

    void take(tw_status_t status, const tw_completion_t& done) {
        const auto found = by_id_.find(done.source);
        if (found == by_id_.end()) {
            trial_.lose("a message of a worker that is not there");
            return;
        }
        Flooder& flooder = found->second;
        if (status != TW_OK) {
            if (!flooder.is_killed)
                trial_.lose(std::string("a receive ends with ") + tw_status_string(status));
            ++flooder.next;  // a rendezvous whose data died with its sender
            return;
        }
        const auto number = number_of(std::span(buffer_).first(done.length), done.message_length);
        if (!number) {
            trial_.lose("a message has other bytes than were sent");
        } else if (*number != flooder.next) {
            trial_.lose("message " + std::to_string(*number) + " came where " +
                        std::to_string(flooder.next) + " was due");
        }
        ++flooder.next;
        trial_.count("messages");
    }

    void finish(Flooder& flooder) {
        if (flooder.is_killed)
            return;
        party_.progress_until([&] { return !flooder.child->is_running(); });
        if (flooder.child->join() != 0)
            trial_.lose("a flooder ended with status " + std::to_string(flooder.child->join()));
    }

    Trial& trial_;
    std::vector<std::byte> buffer_;
    std::unordered_map<std::uint64_t, Flooder> by_id_;
    Party party_;
};

}  // namespace

int role_flooder(Link& parent, Random& random) {
    const auto task = parent.receive<Task>();
    const auto victim = parent.receive<Address>();
    if (!task || !victim)
        return 1;
    Party party;
    parent.send(party.address());
    const tw_ep_h ep = party.connect(*victim);
    constexpr std::size_t kInFlight = 512;
    struct Sent {
        std::vector<std::byte> bytes = std::vector<std::byte>(kFloodRoom);
        tw_request_h request = nullptr;
    };
    std::vector<Sent> ring(kInFlight);
    bool has_told = false;
    const auto tell = [&] {
        if (!std::exchange(has_told, true))
            parent.send(true);
    };
    for (std::uint32_t i = 0; i < task->messages; ++i) {
        Sent& sent = ring[i % kInFlight];
        const auto is_free = [&] {
            return sent.request == nullptr ||
                   tw_request_test(sent.request, nullptr) != TW_INPROGRESS;
        };
        for (unsigned steps = 0; !is_free(); ++steps) {
            if (party.progress() == 0)
                Party::idle();
            if (steps > 10'000)
                tell();
        }
        if (sent.request != nullptr)
            tw_request_free(std::exchange(sent.request, nullptr));
        const std::size_t length =
            kSelfDescribing + random.below(random.one_in(4) ? kFloodRoom - kSelfDescribing : 2000);
        fill(std::span(sent.bytes).first(length), i);
        tw_status_t status = TW_OK;
        while ((status = tw_tag_send(ep, sent.bytes.data(), length, kFloodTag, nullptr,
                                     &sent.request)) == TW_ERR_NO_RESOURCE) {
            tell();
            if (party.progress() == 0)
                Party::idle();
        }
        must(status, "tw_tag_send");
        if (status == TW_OK)
            sent.request = nullptr;
        party.progress();
    }
    tell();
    for (Sent& sent : ring)
        if (sent.request != nullptr)
            must(party.finish(sent.request), "a send");
    must(party.close_in_order(ep), "tw_ep_close");
    return 0;
}

void run_flood(Trial& trial) {
    { const Party warm; }
    trial.take_stock();
    Flooded flooded(trial);
    const unsigned rounds = trial.rounds(2);
    for (unsigned round = 0; round < rounds && !trial.is_lost(); ++round)
        flooded.endure(round);
}

}  // namespace tagwire::torture
