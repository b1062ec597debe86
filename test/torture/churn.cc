// SPDX-License-Identifier: BSD-3-Clause
// Peers that come and go, several at a time: in order, without a word, by force, killed. A host
// that knows none of them before receives from all. Each peer is reported once as connected and
// once as gone; every message of those that went in order arrives, and no message arrives twice.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "party.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

enum class Exit : std::uint8_t { kInOrder, kByForce, kNoWord, kKilled };
constexpr std::uint64_t kExits = 4;
constexpr std::array kExitNames = {"in order", "by force", "without a word", "killed"};

struct Visit {
    Exit exit;
    std::uint32_t messages;
};

constexpr std::size_t kChurnRoom = 200'000;
constexpr std::uint64_t kChurnTag = 1;
constexpr std::size_t kGuestsAtOnce = 4;

std::size_t length_of(Random& random) {
    const std::uint64_t kind = random.below(8);
    return kSelfDescribing + random.below(kind < 5 ? 200 : kind < 7 ? 9000 : kChurnRoom - 100);
}

// ---- The host

struct Record {
    Visit visit;
    std::unique_ptr<Child> child;
    std::vector<bool> seen;
    std::uint32_t received = 0;
    int ups = 0;
    int ends = 0;
    bool is_checked = false;
    tw_peer_event_t how = TW_PEER_UP;
};

class Host {
  public:
    explicit Host(Trial& trial) : trial_(trial), party_(params()) {
        for (int i = 0; i < 16; ++i)
            post(buffers_.emplace_back(Slot{this, std::vector<std::byte>(kChurnRoom)}));
    }

    void invite() {
        const Visit visit = {static_cast<Exit>(trial_.random().below(kExits)),
                             static_cast<std::uint32_t>(1 + trial_.random().below(300))};
        auto child = std::make_unique<Child>("guest", trial_.random().next());
        child->link().send(visit);
        child->link().send(party_.address());
        const auto address = child->link().receive<Address>();
        if (!address) {
            trial_.lose("a guest did not start");
            return;
        }
        Record& record = records_[id_of(*address)];
        record.visit = visit;
        record.child = std::move(child);
        record.seen.resize(visit.messages);
        child_of(record).send(true);
        trial_.count(std::string("guests gone ") +
                     kExitNames.at(static_cast<std::size_t>(visit.exit)));
    }

    /// Progresses until fewer than `limit` guests are here.
    void entertain(std::size_t limit) {
        party_.progress_until([&] {
            if (trial_.random().one_in(64))
                for (auto& [id, record] : records_)
                    maybe_kill(record);
            return see_off() < limit;
        });
    }

  private:
    struct Slot {
        Host* host;
        std::vector<std::byte> bytes;
    };

    static Link& child_of(Record& record) { return record.child->link(); }

    tw_worker_params_t params() {
        tw_worker_params_t params = {};
        params.peer_event = [](void* self, std::uint64_t id, tw_peer_event_t event, tw_status_t) {
            static_cast<Host*>(self)->hear(id, event);
        };
        params.peer_event_arg = this;
        return params;
    }

    void hear(std::uint64_t id, tw_peer_event_t event) {
        const auto found = records_.find(id);
        if (found == records_.end()) {
            trial_.lose("an event tells of a worker that is not there");
            return;
        }
        if (event == TW_PEER_LEFT || event == TW_PEER_BACK)
            return;
        Record& record = found->second;
        if (event == TW_PEER_UP) {
            ++record.ups;
        } else {
            ++record.ends;
            record.how = event;
        }
        if (record.ups > 1 || record.ends > record.ups) {
            trial_.lose("a guest came " + std::to_string(record.ups) + " times and went " +
                        std::to_string(record.ends) + " times");
        }
    }

    void post(Slot& slot) {
        tw_op_t op = {};
        op.flags = TW_OP_COMPLETION;
        op.context = &slot;
        op.complete = [](const tw_completion_t* done) {
            auto& of = *static_cast<Slot*>(done->context);
            of.host->take(of, *done);
        };
        must(tw_tag_recv(party_.worker(), slot.bytes.data(), slot.bytes.size(), kChurnTag, 0, &op,
                         nullptr),
             "tw_tag_recv");
    }

    void take(Slot& slot, const tw_completion_t& done) {
        const auto found = records_.find(done.source);
        if (done.status == TW_OK && found != records_.end()) {
            Record& record = found->second;
            const auto number =
                number_of(std::span(slot.bytes).first(done.length), done.message_length);
            if (!number || *number >= record.seen.size()) {
                trial_.lose("a message has other bytes than were sent");
            } else if (record.seen[*number]) {
                trial_.lose("a message came twice");
            } else {
                record.seen[*number] = true;
                ++record.received;
                trial_.count("messages");
            }
        } else if (done.status == TW_OK) {
            trial_.lose("a message of a worker that is not there");
        }
        post(slot);
    }

    static void maybe_kill(Record& record) {
        if (record.visit.exit == Exit::kKilled && record.ups > 0)
            record.child->kill();
    }

    /// Returns how many guests are here: those that run, and those that are connected. A packet
    /// that a guest sent before it died may connect it later.
    std::size_t see_off() {
        std::size_t here = 0;
        for (auto& [id, record] : records_) {
            const auto code = record.child->try_join();
            const int ends_min = record.visit.exit == Exit::kInOrder ? 1 : record.ups;
            if (!code || record.ends < ends_min)
                ++here;
            else if (!std::exchange(record.is_checked, true))
                check(record, *code);
        }
        return here;
    }

    void check(const Record& record, int code) {
        const std::string who = std::string("a guest that went ") +
                                kExitNames.at(static_cast<std::size_t>(record.visit.exit));
        if (code != 0 && !(record.visit.exit == Exit::kKilled && code == 128 + SIGKILL))
            trial_.lose(who + " ended with status " + std::to_string(code));
        if (record.visit.exit == Exit::kInOrder) {
            if (record.received != record.visit.messages) {
                trial_.lose(who + ": " + std::to_string(record.received) + " of " +
                            std::to_string(record.visit.messages) + " messages came");
            }
            if (record.how != TW_PEER_CLOSED)
                trial_.lose(who + " is told of as failed");
        }
    }

    Trial& trial_;
    std::unordered_map<std::uint64_t, Record> records_;
    std::deque<Slot> buffers_;
    Party party_;
};

}  // namespace

int role_guest(Link& parent, Random& random) {
    const auto visit = parent.receive<Visit>();
    const auto host = parent.receive<Address>();
    Party party;
    parent.send(party.address());
    if (!visit || !host || !parent.receive<bool>())
        return 1;
    const tw_ep_h ep = party.connect(*host);
    std::deque<std::vector<std::byte>> sent;
    for (std::uint32_t i = 0; i < visit->messages; ++i) {
        std::vector<std::byte>& message = sent.emplace_back(length_of(random));
        fill(message, i);
        tw_status_t status = TW_OK;
        while ((status = tw_tag_send(ep, message.data(), message.size(), kChurnTag, nullptr,
                                     nullptr)) == TW_ERR_NO_RESOURCE) {
            party.progress();
        }
        must(status, "tw_tag_send");
        party.progress();
    }
    switch (visit->exit) {
        case Exit::kInOrder:
            must(party.close_in_order(ep), "tw_ep_close");
            party.close();
            break;
        case Exit::kByForce:
            must(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), "tw_ep_close by force");
            party.close();
            break;
        case Exit::kNoWord:
            _exit(0);
        case Exit::kKilled:
            for (;;) {
                party.progress();
                Party::idle();
            }
    }
    return 0;
}

void run_churn(Trial& trial) {
    { const Party warm; }
    trial.take_stock();
    Host host(trial);
    const unsigned guests = trial.rounds(40);
    for (unsigned i = 0; i < guests && !trial.is_lost(); ++i) {
        trial.phase("guest " + std::to_string(i));
        host.entertain(kGuestsAtOnce);
        host.invite();
    }
    trial.phase("the last guests");
    host.entertain(1);
}

}  // namespace tagwire::torture
