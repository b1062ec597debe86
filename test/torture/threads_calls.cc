// SPDX-License-Identifier: BSD-3-Clause
#include "threads.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::torture {
namespace {

constexpr std::size_t kCallRoom = 300'000;
constexpr std::size_t kInjectMax = 4096;
constexpr int kSendsMax = 200;
constexpr int kReceivesMax = 50;
constexpr std::uint64_t kTags = 8;

/// The memory of its buffer; the rest stays, so that a second end is seen. ThreadSanitizer would
/// take it for a race with the read of the other worker: what orders them is a message in memory
/// that the two have mapped at two addresses.
void give_back([[maybe_unused]] Operation& operation) {
#if !defined(__SANITIZE_THREAD__)
    std::vector<std::byte>().swap(operation.buffer);
#endif
}

}  // namespace

thread_local Threads::Self* Threads::t_self = nullptr;
thread_local int Threads::t_depth = 0;

// ---- Ends

Operation* Threads::begun(std::size_t worker, bool is_send, bool is_untagged, std::size_t length) {
    auto owned = std::make_unique<Operation>(this, worker, is_send, is_untagged, length);
    Operation* operation = owned.get();
    const std::lock_guard guard(live_lock_);
    live_.emplace(operation, std::move(owned));
    return operation;
}

void Threads::remove(Operation* operation) {
    const std::lock_guard guard(live_lock_);
    live_.erase(operation);
}

void Threads::ended(Operation* operation, const tw_completion_t& done) {
    if (operation->ends.fetch_add(1, std::memory_order_relaxed) != 0) {
        trial_.lose("an operation ends twice");
        return;
    }
    Shared& shared = *workers_[operation->worker];
    ++operations_;
    if (operation->is_send) {
        --shared.sends;
        give_back(*operation);
        return;
    }
    --shared.receives.at(operation->is_untagged ? 1 : 0);
    const bool has_data = done.status == TW_OK || done.status == TW_ERR_MESSAGE_TRUNCATED;
    if (has_data && done.length >= kSelfDescribing &&
        !number_of(std::span(operation->buffer).first(done.length), done.message_length)) {
        trial_.lose("a message of " + std::to_string(done.message_length) +
                    " bytes has other bytes than were sent");
    }
    give_back(*operation);
}

/// The call refused: it never began.
void Threads::dropped(Operation* operation) {
    Shared& shared = *workers_[operation->worker];
    if (operation->is_send)
        --shared.sends;
    else
        --shared.receives.at(operation->is_untagged ? 1 : 0);
    remove(operation);
}

void Threads::called_back(const tw_completion_t* done) {
    auto* operation = static_cast<Operation*>(done->context);
    Threads& owner = *operation->owner;
    const std::size_t worker = operation->worker;
    owner.ended(operation, *done);
    if (t_self != nullptr && t_depth == 0 && !owner.is_ending_) {
        ++t_depth;
        ++owner.calls_in_callbacks_;
        owner.call(worker, *t_self);
        --t_depth;
    }
}

Told Threads::choose(Self& self, tw_op_t* op) {
    const auto told = static_cast<Told>(self.random.below(t_depth > 0 ? 2 : 3));
    if (told != Told::kHandle)
        op->flags |= TW_OP_COMPLETION;
    if (told == Told::kCallback)
        op->complete = called_back;
    return told;
}

// ---- Calls

void Threads::send(std::size_t from, Self& self) {
    Shared& shared = *workers_[from];
    Way& to = way(from, self.random.below(workers_.size()));
    std::shared_lock use(to.lock, std::try_to_lock);
    if (!use || to.ep == nullptr || shared.sends > kSendsMax)
        return;
    const std::uint64_t kind = self.random.below(10);
    const std::size_t length = self.random.below(kind < 6 ? 200 : kind < 8 ? 9000 : kCallRoom);
    Operation* operation = begun(from, true, false, length);
    fill(operation->buffer, self.random.next());
    tw_op_t op = {};
    op.context = operation;
    const Told told = choose(self, &op);
    constexpr std::array<std::uint32_t, 5> kLevels = {0, 0, 0, TW_OP_MATCH_COMPLETE,
                                                      TW_OP_DELIVERY_COMPLETE};
    op.flags |= kLevels.at(self.random.below(kLevels.size()));
    std::vector<std::byte> injected;  // goes when this call returns
    if (length <= kInjectMax && self.random.one_in(8)) {
        op.flags |= TW_OP_INJECT;
        injected.swap(operation->buffer);
    }
    const std::byte* const data = injected.empty() ? operation->buffer.data() : injected.data();
    ++shared.sends;
    tw_request_h request = nullptr;
    tw_request_h* request_p = told == Told::kHandle ? &request : nullptr;
    tw_status_t status = TW_OK;
    {
        const Lock held = lock(from);
        status = self.random.one_in(3)
                     ? tw_msg_send(to.ep, data, length, &op, request_p)
                     : tw_tag_send(to.ep, data, length, self.random.below(kTags), &op, request_p);
    }
    begun_send(operation, self, status, {told, request});
    std::ranges::fill(injected, std::byte{0xdd});
}

/// Told as a send is, and counted with them: it ends at the latest with its endpoint.
void Threads::flush(std::size_t from, Self& self) {
    Way& to = way(from, self.random.below(workers_.size()));
    std::shared_lock use(to.lock, std::try_to_lock);
    if (!use || to.ep == nullptr || workers_[from]->sends > kSendsMax)
        return;
    Operation* operation = begun(from, true, false, 0);
    tw_op_t op = {};
    op.context = operation;
    const Told told = choose(self, &op);
    ++workers_[from]->sends;
    tw_request_h request = nullptr;
    tw_status_t status = TW_OK;
    {
        const Lock held = lock(from);
        status = tw_ep_flush(to.ep, self.random.one_in(2) ? TW_FLUSH_SENT : TW_FLUSH_DELIVERED, &op,
                             told == Told::kHandle ? &request : nullptr);
    }
    begun_send(operation, self, status, {told, request});
}

/// Takes the status of a call that sends or flushes.
void Threads::begun_send(Operation* operation, Self& self, tw_status_t status,
                         const Answer& answer) {
    const auto& [told, request] = answer;
    if (status == TW_INPROGRESS) {
        if (told == Told::kHandle)
            self.held.push_back({operation, request});
    } else if (status == TW_OK && told == Told::kHandle) {
        ended(operation, {});
    } else {
        if (status == TW_OK)
            trial_.lose("a send or flush with TW_OP_COMPLETION answers TW_OK");
        dropped(operation);
    }
}

void Threads::receive(std::size_t at, Self& self) {
    Shared& shared = *workers_[at];
    const bool is_untagged = self.random.one_in(3);
    if (shared.receives.at(is_untagged ? 1 : 0) > kReceivesMax)
        return;
    const std::size_t length = self.random.one_in(10) ? self.random.below(3000) : kCallRoom;
    Operation* operation = begun(at, false, is_untagged, length);
    tw_message_info_t info{};
    tw_op_t op = {};
    op.context = operation;
    op.info = &info;
    const Told told = choose(self, &op);
    ++shared.receives.at(is_untagged ? 1 : 0);
    tw_request_h request = nullptr;
    tw_request_h* request_p = told == Told::kHandle ? &request : nullptr;
    const std::uint64_t ignore = self.random.one_in(4) ? 0 : kTags - 1;
    tw_status_t status = TW_OK;
    {
        const Lock held = lock(at);
        status = is_untagged
                     ? tw_msg_recv(handle(at), operation->buffer.data(), length, &op, request_p)
                     : tw_tag_recv(handle(at), operation->buffer.data(), length,
                                   self.random.below(kTags), ignore, &op, request_p);
    }
    if (status == TW_INPROGRESS) {
        if (told == Told::kHandle)
            self.held.push_back({operation, request});
    } else if (status != TW_ERR_NO_RESOURCE && told == Told::kHandle) {
        ended(operation, msg::completion_of(status, info, length, operation));
    } else {
        dropped(operation);
    }
}

void Threads::poll(std::size_t worker) {
    std::array<tw_completion_t, 16> done;
    unsigned count = 0;
    {
        const Lock held = lock(worker);
        count = tw_worker_poll(handle(worker), done.data(), done.size());
    }
    for (unsigned i = 0; i < count; ++i)
        if (done.at(i).context != nullptr)
            ended(static_cast<Operation*>(done.at(i).context), done.at(i));
}

void Threads::progress(std::size_t worker, unsigned times) {
    const Lock held = lock(worker);
    for (unsigned i = 0; i < times; ++i)
        tw_worker_progress(handle(worker));
}

/// Calls that change nothing, or nothing that lasts.
void Threads::look(std::size_t worker, Self& self) {
    const Lock held = lock(worker);
    switch (self.random.below(7)) {
        case 0: {
            std::array<tw_worker_counter_t, 128> counters;
            unsigned count = counters.size();
            tw_worker_counters(handle(worker), counters.data(), &count);
            break;
        }
        case 1: {
            std::size_t facts = 0;
            const auto count = [](void* number, const char*, const char*) {
                ++*static_cast<std::size_t*>(number);
            };
            tw_worker_describe(handle(worker), count, &facts);
            break;
        }
        case 2: {
            tw_worker_attr_t attr = {};
            tw_worker_query(handle(worker), &attr);
            break;
        }
        case 3: {
            std::array<std::byte, 5000> memory;
            tw_mem_h mem = nullptr;
            const tw_context_h context = workers_[worker]->party->context();
            if (tw_mem_map(context, memory.data(), memory.size(), nullptr, &mem) == TW_OK)
                tw_mem_unmap(context, mem);
            break;
        }
        case 4: {
            int fd = -1;
            tw_worker_fd(handle(worker), &fd);
            tw_worker_signal(handle(worker));
            break;
        }
        case 5: {
            tw_message_info_t info{};
            tw_tag_probe(handle(worker), self.random.below(kTags), 0, nullptr, &info, nullptr);
            break;
        }
        default:
            tw_worker_arm(handle(worker));
            break;
    }
}

void Threads::call(std::size_t worker, Self& self) {
    const std::uint64_t kind = self.random.below(21);
    if (kind == 20)
        flush(worker, self);
    else if (kind < 6)
        send(worker, self);
    else if (kind < 12)
        receive(worker, self);
    else if (kind < 14)
        poll(worker);
    else
        look(worker, self);
}

void Threads::test_held(Self& self, bool cancels_receives, std::uint64_t one_in) {
    for (std::size_t i = 0; i < self.held.size();) {
        const Held entry = self.held[i];
        tw_completion_t done = {};
        tw_status_t status = TW_INPROGRESS;
        {
            const Lock held = lock(entry.operation->worker);
            const bool is_unwanted = cancels_receives && !entry.operation->is_send;
            if (is_unwanted || (one_in != 0 && self.random.one_in(one_in)))
                tw_request_cancel(entry.request);
            status = tw_request_test(entry.request, &done);
            if (status != TW_INPROGRESS)
                tw_request_free(entry.request);
        }
        if (status == TW_INPROGRESS) {
            ++i;
            continue;
        }
        self.held[i] = self.held.back();
        self.held.pop_back();
        ended(entry.operation, done);
    }
}

void Threads::open(std::size_t from, std::size_t to, Way& way) {
    for (int i = 0; i < 30 && way.ep == nullptr; ++i) {
        tw_ep_h ep = nullptr;
        tw_status_t status = TW_OK;
        {
            const Lock held = lock(from);
            status = workers_[from]->party->try_connect(workers_[to]->address, &ep);
        }
        if (status == TW_OK) {
            way.ep = ep;
            ++reopened_;
        } else if (status != TW_ERR_ALREADY_EXISTS) {
            trial_.lose(std::string("tw_ep_create answers ") + tw_status_string(status));
            return;
        } else {
            progress(from, 1);  // the one before is still being closed
            if (!is_single())
                progress(to, 1);
            Party::idle();
        }
    }
}

void Threads::reopen(std::size_t from, Self& self) {
    const std::size_t to = self.random.below(workers_.size());
    Way& entry = way(from, to);
    const std::unique_lock alone(entry.lock);
    if (entry.ep != nullptr) {
        const tw_flush_level_t level = self.random.one_in(2) ? TW_CLOSE_FORCE : TW_FLUSH_DELIVERED;
        const Lock held = lock(from);
        const tw_status_t status = tw_ep_close(entry.ep, level, nullptr, nullptr);
        // Whatever else it says, the endpoint is gone.
        if (status != TW_ERR_NO_RESOURCE && status != TW_ERR_NO_MEMORY)
            entry.ep = nullptr;
    }
    open(from, to, entry);
}

}  // namespace tagwire::torture
