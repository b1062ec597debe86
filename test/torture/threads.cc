// SPDX-License-Identifier: BSD-3-Clause
#include "threads.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "tortures.hpp"

namespace tagwire::torture {
namespace {

tw_thread_mode_t mode_of(const std::string& name) {
    return name == "single"       ? TW_THREAD_SINGLE
           : name == "serialized" ? TW_THREAD_SERIALIZED
                                  : TW_THREAD_MULTI;
}

}  // namespace

Threads::Threads(Trial& trial)
    : trial_(trial), mode_(mode_of(trial.settings().mode)), busy_(trial.settings().threads) {
    const std::size_t count = is_single() ? trial.settings().threads : trial.settings().workers;
    for (std::size_t i = 0; i < count; ++i) {
        tw_worker_params_t params = {};
        params.thread_mode = mode_;
        Shared& shared = *workers_.emplace_back(std::make_unique<Shared>());
        shared.party = std::make_unique<Party>(params);
        shared.address = shared.party->address();
        int fd = -1;
        must(tw_worker_fd(shared.party->worker(), &fd), "tw_worker_fd");
    }
    for (std::size_t i = 0; i < count * count; ++i)
        ways_.emplace_back();
}

// ---- Threads

void Threads::step(Self& self) {
    const std::size_t worker = some_worker(self);
    const std::uint64_t kind = self.random.below(12);
    if (kind < 5) {
        call(worker, self);
    } else if (kind < 9) {
        progress(worker, 8);
    } else if (kind == 9) {
        const Lock held = lock(worker);
        tw_worker_wait(handle(worker), self.random.one_in(2) ? TW_WAIT_SLEEP : TW_WAIT_YIELD,
                       200'000);
    } else if (kind == 10) {
        test_held(self, false, 20);
    } else if (self.random.one_in(30)) {
        reopen(worker, self);
    }
}

/// Nobody receives any more: sends that wait for a receive, and orderly closes that wait for these,
/// end so.
void Threads::discard(std::size_t worker) {
    const Lock held = lock(worker);
    tw_message_h message = nullptr;
    while (tw_tag_probe(handle(worker), 0, UINT64_MAX, nullptr, nullptr, &message) == TW_OK ||
           tw_msg_probe(handle(worker), nullptr, nullptr, &message) == TW_OK) {
        if (tw_message_drop(handle(worker), message) != TW_OK)
            trial_.lose("a message is not dropped");
    }
}

/// Until every thread has what it began: the peers of its operations are others' workers.
void Threads::drain(Self& self) {
    bool was_busy = true;
    const Deadline before_cancel(trial_.settings().patience_s / 4.0);
    const Deadline before_loss(trial_.settings().patience_s / 2.0);
    bool is_lost = false;
    while (busy_ > 0) {
        if (!self.held.empty() && before_loss.has_passed() && !std::exchange(is_lost, true))
            lose_held(self);
        test_held(self, true, before_cancel.has_passed() ? 1 : 0);
        if (was_busy && self.held.empty()) {
            was_busy = false;
            --busy_;
        }
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            if (!is_single() || i == self.number) {
                progress(i, 4);
                poll(i);
                discard(i);
            }
        }
        Party::idle();
    }
}

/// Says what does not end, and what its worker knows of itself.
void Threads::lose_held(const Self& self) {
    for (const Held& held : self.held) {
        const Operation& operation = *held.operation;
        std::string text = operation.is_send
                               ? operation.buffer.empty() ? "a flush or short send" : "a send"
                               : "a receive";
        text += " of " + std::to_string(operation.buffer.size()) + " bytes does not end; worker " +
                std::to_string(operation.worker) + ":\n";
        const auto add = [](void* to, const char* key, const char* value) {
            *static_cast<std::string*>(to) += std::string("  ") + key + ": " + value + "\n";
        };
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            const Lock lock_held = lock(i);
            tw_worker_describe(handle(i), add, &text);
            std::array<tw_worker_counter_t, 256> counters;
            unsigned count = counters.size();
            tw_worker_counters(handle(i), counters.data(), &count);
            for (std::size_t k = 0; k < std::min<std::size_t>(count, counters.size()); ++k)
                if (counters.at(k).value != 0)
                    add(&text, counters.at(k).name, std::to_string(counters.at(k).value).c_str());
        }
        trial_.lose(text);
    }
}

void Threads::live(std::size_t number) {
    Self self = {number, Random(trial_.settings().seed * 1000 + number), {}};
    t_self = &self;
    const unsigned steps = trial_.rounds(4000);
    const unsigned seconds = trial_.settings().seconds;
    const Deadline end(seconds);
    for (unsigned i = 0; seconds != 0 ? !end.has_passed() : i < steps; ++i)
        step(self);
    drain(self);
    t_self = nullptr;
}

/// Sends end with their endpoints; receives from anybody stay posted until their worker goes.
void Threads::drain_sends() {
    for (Way& entry : ways_) {
        if (entry.ep != nullptr) {
            must(tw_ep_close(entry.ep, TW_CLOSE_FORCE, nullptr, nullptr), "tw_ep_close");
            entry.ep = nullptr;
        }
    }
    const auto is_left = [&] {
        int left = 0;
        for (const auto& worker : workers_)
            left += worker->sends;
        return left > 0;
    };
    while (is_left()) {
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            progress(i, 1);
            poll(i);
            discard(i);
        }
    }
}

void Threads::run() {
    trial_.phase("endpoints are made");
    for (std::size_t i = 0; i < workers_.size(); ++i)
        for (std::size_t k = 0; k < workers_.size(); ++k)
            open(i, k, way(i, k));
    trial_.phase("threads call; an operation that never ends, not even after a cancel, stops here");
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < trial_.settings().threads; ++i)
        threads.emplace_back([this, i] { live(i); });
    for (std::thread& thread : threads)
        thread.join();
    is_ending_ = true;
    trial_.phase("sends end after a forced close");
    drain_sends();
    trial_.count("threads", trial_.settings().threads);
    trial_.count("workers", workers_.size());
    trial_.count("operations", operations_);
    trial_.count("calls in callbacks", calls_in_callbacks_);
    trial_.count("endpoints made", reopened_);
    trial_.phase("workers are destroyed");
    workers_.clear();
}

void run_threads(Trial& trial) {
    { const Party warm; }
    trial.take_stock();
    Threads(trial).run();
}

}  // namespace tagwire::torture
