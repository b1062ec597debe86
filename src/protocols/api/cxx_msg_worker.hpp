// SPDX-License-Identifier: BSD-3-Clause
//
// Workers of the messaging layer's C++ wrapper: progress, receives, probes, completions, sleeping.
// Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_WORKER_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_WORKER_HPP

#include <protocols/api/cxx_msg_am.hpp>
#include <protocols/api/cxx_msg_call.hpp>
#include <protocols/api/cxx_msg_context.hpp>
#include <protocols/api/cxx_msg_message.hpp>
#include <protocols/api/cxx_msg_op.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// Parameters of a worker that begin with the defaults; each call sets one thing. Callables are
/// referenced, not copied, and outlive the worker.
class WorkerParams : public tw_worker_params_t {
  public:
    explicit WorkerParams(tw_thread_mode_t mode = TW_THREAD_SINGLE) : tw_worker_params_t{} {
        thread_mode = mode;
    }

    /// As tw_worker_params_t::tx_contexts.
    WorkerParams& with_tx_contexts(unsigned count) {
        tx_contexts = count;
        return *this;
    }
    /// As tw_worker_params_t::progress.
    WorkerParams& with_progress(tw_progress_mode_t mode) {
        progress = mode;
        return *this;
    }
    /// `failed(tw_ep_h, tw_status_t)` runs once for each endpoint that fails.
    template <class Failed>
    WorkerParams& on_failure(Failed& failed) {
        ep_failed = [](void* arg, tw_ep_h ep, tw_status_t status) {
            (*static_cast<Failed*>(arg))(ep, status);
        };
        ep_failed_arg = detail::arg_of(failed);
        return *this;
    }
    /// `callback(std::uint64_t worker_id, tw_peer_event_t, tw_status_t)` runs when a peer comes,
    /// and when it goes.
    template <class Callback>
    WorkerParams& on_peer(Callback& callback) {
        peer_event = [](void* arg, std::uint64_t id, tw_peer_event_t event, tw_status_t status) {
            (*static_cast<Callback*>(arg))(id, event, status);
        };
        peer_event_arg = detail::arg_of(callback);
        return *this;
    }
    /// `callback(tw_away_t)` runs instead of progress giving the processor away.
    template <class Callback>
    WorkerParams& on_away(Callback& callback) {
        away = [](void* arg, tw_away_t how) { (*static_cast<Callback*>(arg))(how); };
        away_arg = detail::arg_of(callback);
        return *this;
    }
};

class Worker {
  public:
    /// No callback for endpoints that fail; the log has failures in any case.
    explicit Worker(const Context& context, tw_thread_mode_t mode = TW_THREAD_SINGLE) {
        open(context, WorkerParams(mode));
    }
    /// `failed(tw_ep_h, tw_status_t)` runs once for each endpoint that fails.
    template <class Failed>
    requires std::is_invocable_v<Failed&, tw_ep_h, tw_status_t> Worker(
        const Context& context, Failed& failed, tw_thread_mode_t mode = TW_THREAD_SINGLE) {
        open(context, WorkerParams(mode).on_failure(failed));
    }
    Worker(const Context& context, const WorkerParams& params) { open(context, params); }

    [[nodiscard]] tw_worker_h get() const { return worker_.get(); }
    void reset() { worker_.reset(); }

    [[nodiscard]] tw_worker_attr_t attr() const {
        tw_worker_attr_t attr{};
        check(tw_worker_query(get(), &attr), "tw_worker_query");
        return attr;
    }
    [[nodiscard]] std::vector<std::byte> address() const {
        std::vector<std::byte> bytes(TW_ADDRESS_BYTES_MAX);
        std::size_t length = bytes.size();
        check(tw_worker_address(get(), bytes.data(), &length), "tw_worker_address");
        bytes.resize(length);
        return bytes;
    }

    // ---- Progress and ends

    unsigned progress() const { return tw_worker_progress(get()); }
    /// Fills `completions` from its beginning; returns how many were written.
    unsigned poll(std::span<tw_completion_t> completions) const {
        return tw_worker_poll(get(), completions.data(), static_cast<unsigned>(completions.size()));
    }
    /// Progresses until the operation has completed, then frees the request. The result has the
    /// operation's status, or the reason not to wait (in a callback: TW_ERR_INVALID_PARAM).
    tw_completion_t finish(Request& request, tw_wait_mode_t mode = TW_WAIT_YIELD) const {
        tw_completion_t done{};
        done.status = request.wait(mode, UINT64_MAX, &done);
        request.reset();
        return done;
    }
    /// Flushes all endpoints.
    Status flush(tw_flush_level_t level = TW_FLUSH_DELIVERED, OpArgs args = {}) const {
        return {tw_worker_flush(get(), level, args.op(), args.request()), "tw_worker_flush"};
    }
    Status wait(tw_wait_mode_t mode, std::uint64_t timeout_ns = UINT64_MAX) const {
        return {tw_worker_wait(get(), mode, timeout_ns), "tw_worker_wait"};
    }
    [[nodiscard]] int fd() const {
        int fd = -1;
        check(tw_worker_fd(get(), &fd), "tw_worker_fd");
        return fd;
    }
    Status arm() const { return {tw_worker_arm(get()), "tw_worker_arm"}; }
    Status signal() const { return {tw_worker_signal(get()), "tw_worker_signal"}; }

    // ---- Receives

    Status tag_recv(std::span<std::byte> buffer, std::uint64_t tag, std::uint64_t ignore,
                    OpArgs args = {}) const {
        return {tw_tag_recv(get(), buffer.data(), buffer.size(), tag, ignore, args.op(),
                            args.request()),
                "tw_tag_recv"};
    }
    Status tag_recvv(std::span<const tw_iov_t> list, std::uint64_t tag, std::uint64_t ignore,
                     OpArgs args = {}) const {
        return {
            tw_tag_recvv(get(), list.data(), list.size(), tag, ignore, args.op(), args.request()),
            "tw_tag_recvv"};
    }
    Status recv(std::span<std::byte> buffer, OpArgs args = {}) const {
        return {tw_msg_recv(get(), buffer.data(), buffer.size(), args.op(), args.request()),
                "tw_msg_recv"};
    }
    Status recvv(std::span<const tw_iov_t> list, OpArgs args = {}) const {
        return {tw_msg_recvv(get(), list.data(), list.size(), args.op(), args.request()),
                "tw_msg_recvv"};
    }
    /// Many messages, one behind the other.
    Status recv_multi(std::span<std::byte> buffer, OpArgs args) const {
        return {tw_msg_recv_multi(get(), buffer.data(), buffer.size(), args.op(), args.request()),
                "tw_msg_recv_multi"};
    }

    // ---- Active messages

    /// `handler(ActiveMessage&)` runs for each message to this id.
    template <class Handler>
    Status on_am(unsigned id, Handler& handler) const {
        const auto call = [](void* arg, tw_am_t* am) {
            ActiveMessage message(*am);
            (*static_cast<Handler*>(arg))(message);
        };
        return {tw_am_register(get(), id, call, detail::arg_of(handler)), "tw_am_register"};
    }
    /// The id has no handler from now on.
    Status remove_am(unsigned id) const {
        return {tw_am_register(get(), id, nullptr, nullptr), "tw_am_register"};
    }

    // ---- Remote calls

    /// `handler(CallRequest&)` runs for each request of this method, and replies, then or later.
    template <class Handler>
    Status on_call(std::uint32_t method, Handler& handler) const {
        const auto call = [](void* arg, tw_call_request_t* request) {
            CallRequest taken(*request);
            (*static_cast<Handler*>(arg))(taken);
        };
        return {tw_call_register(get(), method, call, detail::arg_of(handler)), "tw_call_register"};
    }
    /// The method has no handler from now on.
    Status remove_call(std::uint32_t method) const {
        return {tw_call_register(get(), method, nullptr, nullptr), "tw_call_register"};
    }
    /// Ends a call of Endpoint::call() with TW_ERR_CANCELED; tw_call_cancel().
    Status cancel_call(std::uint64_t id) const {
        return {tw_call_cancel(get(), id), "tw_call_cancel"};
    }

    // ---- Messages that are there already. TW_OK: `info` tells which; TW_ERR_NO_MESSAGE.

    Status tag_probe(std::uint64_t tag, std::uint64_t ignore, tw_message_info_t& info,
                     tw_ep_h from = nullptr) const {
        return {tw_tag_probe(get(), tag, ignore, from, &info, nullptr), "tw_tag_probe"};
    }
    Status probe(tw_message_info_t& info, tw_ep_h from = nullptr) const {
        return {tw_msg_probe(get(), from, &info, nullptr), "tw_msg_probe"};
    }
    /// No receive takes the message any more: `message` receives or drops it.
    Status tag_take(std::uint64_t tag, std::uint64_t ignore, tw_message_info_t& info,
                    Message& message, tw_ep_h from = nullptr) const {
        tw_message_h taken = nullptr;
        const Status status{tw_tag_probe(get(), tag, ignore, from, &info, &taken), "tw_tag_probe"};
        if (status == TW_OK)
            message = Message(get(), taken);
        return status;
    }
    Status take(tw_message_info_t& info, Message& message, tw_ep_h from = nullptr) const {
        tw_message_h taken = nullptr;
        const Status status{tw_msg_probe(get(), from, &info, &taken), "tw_msg_probe"};
        if (status == TW_OK)
            message = Message(get(), taken);
        return status;
    }

    // ---- Receives in buffers of the library. The completion names the message: Message

    Status tag_recv_buffered(std::uint64_t tag, std::uint64_t ignore, OpArgs args) const {
        return {tw_tag_recv_buffered(get(), tag, ignore, args.op(), args.request()),
                "tw_tag_recv_buffered"};
    }
    Status recv_buffered(OpArgs args) const {
        return {tw_msg_recv_buffered(get(), args.op(), args.request()), "tw_msg_recv_buffered"};
    }
    Status recv_buffered_multi(OpArgs args) const {
        return {tw_msg_recv_buffered_multi(get(), args.op(), args.request()),
                "tw_msg_recv_buffered_multi"};
    }

    // ---- Facts

    /// The endpoint to the worker of this id, nullptr when there is none.
    [[nodiscard]] tw_ep_h find(std::uint64_t id) const { return tw_ep_find(get(), id); }
    [[nodiscard]] std::vector<tw_worker_counter_t> counters() const {
        unsigned count = 0;
        const tw_status_t status = tw_worker_counters(get(), nullptr, &count);
        if (status != TW_ERR_BUFFER_TOO_SMALL)
            check(status, "tw_worker_counters");
        std::vector<tw_worker_counter_t> all(count);
        check(tw_worker_counters(get(), all.data(), &count), "tw_worker_counters");
        return all;
    }
    /// `visit(const char* key, const char* value)` gets facts for people.
    template <class Visit>
    void describe(Visit&& visit) const {
        const auto call = [](void* arg, const char* key, const char* value) {
            (*static_cast<std::remove_reference_t<Visit>*>(arg))(key, value);
        };
        check(tw_worker_describe(get(), call, detail::arg_of(visit)), "tw_worker_describe");
    }
    /// Explains which protocol a message of `length` bytes uses over a transport ("sm",
    /// "rc:mlx5_0:1"), and why.
    [[nodiscard]] tw_explanation_t explain(const std::string& transport, std::size_t length,
                                           tw_buffer_kind_t buffer = TW_BUFFER_PLAIN) const {
        tw_explanation_t explanation{};
        check(tw_worker_explain(get(), transport.c_str(), length, buffer, &explanation),
              "tw_worker_explain");
        return explanation;
    }

  private:
    void open(const Context& context, const tw_worker_params_t& params) {
        tw_worker_h worker = nullptr;
        check(tw_worker_create(context.get(), &params, &worker), "tw_worker_create");
        worker_.reset(worker);
    }
    detail::Owner<tw_worker_h, tw_worker_destroy> worker_;
};

/// Progresses until `condition()` holds, and waits by `mode` while there is nothing to do. A
/// condition that a signal or another thread changes is looked at once in a millisecond at least.
/// Returns whether it holds: false after `timeout_ns`, or where nobody may wait (in a callback).
template <class Condition>
bool progress_until(const Worker& worker, Condition&& condition,
                    tw_wait_mode_t mode = TW_WAIT_YIELD, std::uint64_t timeout_ns = UINT64_MAX) {
    using Clock = std::chrono::steady_clock;
    constexpr std::uint64_t kLookNs = 1'000'000;
    const Clock::time_point begin = Clock::now();
    while (!condition()) {
        const std::chrono::nanoseconds passed = Clock::now() - begin;
        const auto passed_ns = static_cast<std::uint64_t>(passed.count());
        if (passed_ns >= timeout_ns)
            return false;
        if (worker.progress() > 0)
            continue;
        const tw_status_t status = worker.wait(mode, std::min(kLookNs, timeout_ns - passed_ns));
        if (status != TW_OK && status != TW_ERR_TIMED_OUT)
            return condition();
    }
    return true;
}

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
