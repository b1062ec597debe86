// SPDX-License-Identifier: BSD-3-Clause
// A context with one worker, and messages that say what they are: one of 16 bytes or more begins
// with its number and its length, and every further byte follows from the number.
#pragma once

#include <tagwire.h>
#include <tagwire_msg.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tagwire::torture {

struct Address {
    std::size_t length = 0;
    std::array<char, TW_ADDRESS_BYTES_MAX> bytes{};
};

/// Throws std::runtime_error that names `what` unless the status is none of an error.
void must(tw_status_t status, const char* what);

/// Owner. Used as tw_worker_params_t::thread_mode says.
class Party {
  public:
    explicit Party(const tw_worker_params_t& params = {});
    Party(const Party&) = delete;
    Party& operator=(const Party&) = delete;
    ~Party() { close(); }

    tw_context_h context() const { return context_; }
    tw_worker_h worker() const { return worker_; }
    Address address() const;
    std::uint64_t id() const;
    tw_status_t try_connect(const Address& to, tw_ep_h* ep_p) const;
    tw_ep_h connect(const Address& to) const;
    unsigned progress() const { return tw_worker_progress(worker_); }
    /// Progresses until `done`, giving the processor away while nothing happens. Without a limit:
    /// the watchdog has one.
    template <class Done>
    void progress_until(const Done& done) const {
        while (!done())
            if (progress() == 0)
                idle();
    }
    /// Sends from a buffer that stays; waits for the end.
    tw_status_t send(tw_ep_h ep, std::span<const std::byte> bytes, std::uint64_t tag,
                     std::uint32_t flags = 0) const;
    /// Waits until what was sent before has arrived, and closes.
    tw_status_t close_in_order(tw_ep_h ep) const;
    tw_status_t finish(tw_request_h request, tw_completion_t* done = nullptr) const;
    void close();

    /// Drops a message that no receive has matched. False: there is none.
    bool drop_one(std::uint64_t ignore, bool is_tagged, std::uint64_t tag = 0) const;
    static void idle();

  private:
    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
};

/// A posted receive of a tag from anybody, which may have ended within the call. Goes on without
/// its owner when that leaves first, so the buffer must stay.
class Receive {
  public:
    Receive(const Party& party, std::span<std::byte> buffer, std::uint64_t tag);
    Receive(const Receive&) = delete;
    Receive& operator=(const Receive&) = delete;
    ~Receive();

    /// Does not progress.
    bool has_ended();
    tw_status_t status() const { return status_; }
    const tw_completion_t& done() const { return done_; }
    void cancel();

  private:
    tw_request_h request_ = nullptr;
    tw_completion_t done_ = {};
    tw_status_t status_;
};

std::uint64_t id_of(const Address& address);

constexpr std::size_t kSelfDescribing = 16;
void fill(std::span<std::byte> message, std::uint64_t number);
/// The number of the message whose first bytes these are; nothing when a byte is wrong.
std::optional<std::uint64_t> number_of(std::span<const std::byte> received,
                                       std::size_t message_length);

}  // namespace tagwire::torture
