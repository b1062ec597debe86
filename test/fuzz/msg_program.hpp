// SPDX-License-Identifier: BSD-3-Clause
// A program that uses a worker as directed by the fuzz input, for targets that attack the worker:
// each of its operations has to end once.
#pragma once

#include <tagwire.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "input.hpp"

namespace tagwire::fuzz {

inline constexpr std::size_t kReceiveBytes = 3000;
inline constexpr std::size_t kLongReceiveBytes = 20000;
inline constexpr std::size_t kSharedBytes = 256;
inline constexpr std::size_t kAroundBytes = 64;  // nobody may write there
inline constexpr std::size_t kSendBytes[] = {0, 8, 80, 500, 9000, 70000};

/// An operation of a program. Its buffer stays for as long as the victim.
struct Operation {
    std::vector<std::byte> buffer;
    tw_request_h request = nullptr;
    bool is_pending = false;
    bool can_be_cancelled = true;
    bool stays = false;                          // takes many messages until it is told to end
    std::vector<tw_message_h>* shown = nullptr;  // buffered: where what it shows goes
    unsigned sum = 0;

    static void ended(const tw_completion_t* done) {
        auto& operation = *static_cast<Operation*>(done->context);
        require(operation.is_pending);
        if (done->message != nullptr && operation.shown != nullptr) {
            const auto* data = static_cast<const std::byte*>(done->buffer);
            require(done->length <= done->message_length && done->status == TW_OK);
            for (std::size_t i = 0; i < done->length; ++i)
                operation.sum += std::to_integer<unsigned>(data[i]);
            operation.shown->push_back(done->message);
            operation.is_pending = operation.stays;
            return;
        }
        operation.is_pending = operation.stays && (done->flags & TW_DONE_MULTI_RECV) == 0;
    }
};

/// Messages that a worker keeps, and the memory that they take.
struct Kept {
    std::size_t messages = 0, bytes = 0;
};

/// A worker, and the operations of its program.
class Program {
  public:
    explicit Program(tw_context_h context) {
        tw_worker_params_t params{};
        params.ep_failed = [](void* arg, tw_ep_h, tw_status_t) {
            static_cast<Program*>(arg)->has_failed_ = true;
        };
        params.ep_failed_arg = this;
        require(tw_worker_create(context, &params, &worker_) == TW_OK);
        for (const unsigned id : {kDrops, kKeeps, kReceives})
            require(tw_am_register(worker_, id, &Program::handle, this) == TW_OK);
        require(tw_call_register(worker_, kMethod, &Program::serve, this) == TW_OK);
        require(tw_mem_map(context, shared(), kSharedBytes, nullptr, &mem_) == TW_OK);
        context_ = context;
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        tw_key_free(key_);
        tw_worker_destroy(worker_);
        require(tw_mem_unmap(context_, mem_) == TW_OK);
        for (std::size_t i = 0; i < kAroundBytes; ++i)
            require(memory_[i] == std::byte{0} &&
                    memory_[kAroundBytes + kSharedBytes + i] == std::byte{0});
    }

    /// The packed key of memory that the peer may use.
    std::vector<std::byte> key() const {
        std::vector<std::byte> packed(TW_KEY_BYTES_MAX);
        std::size_t length = packed.size();
        require(tw_mem_pack(mem_, packed.data(), &length) == TW_OK);
        packed.resize(length);
        return packed;
    }
    /// The key of memory that the peer says to have.
    void use_key(std::vector<std::byte> packed) { peer_key_ = std::move(packed); }

    std::vector<std::byte> address() const {
        std::vector<std::byte> bytes(TW_ADDRESS_BYTES_MAX);
        std::size_t length = bytes.size();
        require(tw_worker_address(worker_, bytes.data(), &length) == TW_OK);
        bytes.resize(length);
        return bytes;
    }
    void connect(const std::vector<std::byte>& to) {
        const tw_ep_params_t params{
            .address = to.data(), .address_length = to.size(), .user_data = nullptr};
        require(tw_ep_create(worker_, &params, &ep_) == TW_OK);
    }
    /// A new endpoint in place of one that was closed, or has failed and is closed here.
    void connect_again(const std::vector<std::byte>& to) {
        if (ep_ != nullptr && !has_failed_)
            return;
        close_by_force();
        has_failed_ = false;
        const tw_ep_params_t params{
            .address = to.data(), .address_length = to.size(), .user_data = nullptr};
        if (tw_ep_create(worker_, &params, &ep_) != TW_OK)
            ep_ = nullptr;
    }
    void progress() { tw_worker_progress(worker_); }

    void receive(Input& input) {
        const auto choice = input.take<std::uint8_t>();
        Operation& operation = add(choice & 16 ? kLongReceiveBytes : kReceiveBytes);
        tw_op_t op = op_of(operation);
        if ((choice & 1) != 0 && ep_ != nullptr && !has_failed_)
            op.source = ep_;
        const std::size_t length = choice & 2 ? 100 : operation.buffer.size();
        tw_status_t status;
        if ((choice & 4) != 0) {
            operation.stays = (choice & 8) != 0;
            status = (operation.stays ? tw_msg_recv_multi : tw_msg_recv)(
                worker_, operation.buffer.data(), length, &op, &operation.request);
        } else {
            const std::uint64_t ignore = choice & 8 ? ~std::uint64_t{0} : 0;
            status = tw_tag_recv(worker_, operation.buffer.data(), length, choice >> 6, ignore, &op,
                                 &operation.request);
        }
        operation.is_pending = status == TW_INPROGRESS;
    }

    /// A receive without a buffer; what it shows is read at once, and claimed or dropped later.
    void receive_buffered(Input& input) {
        Operation& operation = add(0);
        operation.shown = &shown_;
        tw_op_t op = op_of(operation);
        const auto choice = input.take<std::uint8_t>();
        if ((choice & 1) != 0 && ep_ != nullptr && !has_failed_)
            op.source = ep_;
        operation.stays = (choice & 2) != 0;
        operation.is_pending = true;  // it may show something before the call returns
        const tw_status_t status =
            operation.stays     ? tw_msg_recv_buffered_multi(worker_, &op, &operation.request)
            : (choice & 4) != 0 ? tw_msg_recv_buffered(worker_, &op, &operation.request)
                                : tw_tag_recv_buffered(worker_, choice >> 6, ~std::uint64_t{0}, &op,
                                                       &operation.request);
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
    }
    void take_shown(Input& input) {
        if (shown_.empty() && kept_.empty())
            return call();
        const auto choice = input.take<std::uint8_t>();
        if (!kept_.empty() && (shown_.empty() || choice >= 240))
            return take_kept(choice);
        const std::size_t at = (choice >> 1) % shown_.size();
        tw_message_h message = shown_[at];
        shown_.erase(shown_.begin() + static_cast<std::ptrdiff_t>(at));
        take_message(message, (choice & 1) != 0);
    }

    /// A remote call of the peer, which ends once. The handler's own requests get replies here.
    void call() {
        for (const std::uint64_t request : std::exchange(requests_, {}))
            static_cast<void>(tw_reply(worker_, request, 1, "late", 4, nullptr, nullptr));
        if (ep_ == nullptr || has_failed_ || calls_.size() >= kCallsMax)
            return;
        Call& one = calls_.emplace_back();
        tw_call_params_t params{};
        params.context = &one;
        params.reply = one.reply.data();
        params.reply_bytes = one.reply.size();
        params.done = [](const tw_call_done_t* done) {
            auto& ended = *static_cast<Call*>(done->context);
            require(ended.is_pending && done->length <= ended.reply.size());
            ended.is_pending = false;
        };
        one.is_pending = true;
        if (tw_call(ep_, kMethod, one.reply.data(), 0, &params, &one.id) != TW_OK)
            one.is_pending = false;
    }

    /// A message that a handler has kept.
    void take_kept(std::uint8_t choice) {
        const std::size_t at = (choice >> 1) % kept_.size();
        const tw_message_h message = kept_[at];
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(at));
        take_message(message, (choice & 1) != 0);
    }
    void take_message(tw_message_h message, bool is_dropped) {
        if (is_dropped)
            return require(tw_message_drop(worker_, message) == TW_OK);
        receive_message(message);
    }

    /// A put, a get or an atomic on memory that the peer says to have.
    void use_memory(std::uint8_t choice) {
        if (key_ == nullptr &&
            tw_key_unpack(worker_, peer_key_.data(), peer_key_.size(), &key_) != TW_OK)
            return;
        tw_key_attr_t attr{};
        require(tw_key_query(key_, &attr) == TW_OK);
        Operation& operation = add(choice % 2 == 0 ? 24 : 2500);
        tw_op_t op = op_of(operation);
        operation.is_pending = true;  // it may end before the call returns
        const std::size_t length = operation.buffer.size();
        tw_status_t status = TW_OK;
        switch (choice % 4) {
            case 0:
                op.flags |= choice % 8 == 0 ? unsigned{TW_OP_IMM} : 0U;
                status = tw_put(ep_, operation.buffer.data(), length, attr.address, key_, &op,
                                &operation.request);
                break;
            case 1:
                status = tw_get(ep_, operation.buffer.data(), length, attr.address, key_, &op,
                                &operation.request);
                break;
            case 2:
                status = tw_atomic_fetch(ep_, TW_ATOMIC_ADD, TW_UINT64, operation.buffer.data(),
                                         operation.buffer.data() + 8, attr.address, key_, &op,
                                         &operation.request);
                break;
            default:
                op.flags |= TW_OP_DELIVERY_COMPLETE;
                status = tw_put(ep_, operation.buffer.data(), length, attr.address, key_, &op,
                                &operation.request);
        }
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
    }

    void send(Input& input) {
        if (ep_ == nullptr || has_failed_)
            return;
        const auto choice = input.take<std::uint8_t>();
        if (choice >= 192 && choice < 224)
            return use_memory(choice);
        Operation& operation = add(kSendBytes[choice % std::size(kSendBytes)]);
        tw_op_t op = op_of(operation);
        constexpr std::uint32_t kFlags[] = {0, TW_OP_MATCH_COMPLETE, TW_OP_DELIVERY_COMPLETE,
                                            TW_OP_TRANSMIT_COMPLETE};
        op.flags |= kFlags[choice / std::size(kSendBytes) % std::size(kFlags)];
        operation.is_pending = true;  // it may end before the call returns
        const tw_status_t status =
            choice >= 224
                ? tw_am_send(ep_, choice % 5, kSendBytes, choice % 9, operation.buffer.data(),
                             operation.buffer.size(), &op, &operation.request)
                : tw_tag_send(ep_, operation.buffer.data(), operation.buffer.size(), 0, &op,
                              &operation.request);
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
    }

    /// Waits for the peer's answer to what was sent, or every other time for the transport, and
    /// closes the endpoint if told to.
    void flush(bool closes) {
        if (ep_ == nullptr || has_failed_)
            return;
        Operation& operation = add(0);
        const tw_op_t op = op_of(operation);
        operation.is_pending = true;
        level_ = level_ == TW_FLUSH_SENT ? TW_FLUSH_DELIVERED : TW_FLUSH_SENT;
        const tw_status_t status = closes ? tw_ep_close(ep_, level_, &op, &operation.request)
                                          : tw_ep_flush(ep_, level_, &op, &operation.request);
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
        operation.can_be_cancelled = false;
        if (closes && status != TW_ERR_NO_RESOURCE)
            ep_ = nullptr;
    }

    /// Looks for a message and takes or drops it.
    void peek(Input& input) {
        const auto choice = input.take<std::uint8_t>();
        tw_message_h message = nullptr;
        tw_message_info_t info{};
        const tw_status_t status = (choice & 2) != 0
                                       ? tw_msg_probe(worker_, nullptr, &info, &message)
                                       : tw_tag_probe(worker_, 0, ~std::uint64_t{0}, nullptr, &info,
                                                      (choice & 4) != 0 ? nullptr : &message);
        require(status == TW_OK || status == TW_ERR_NO_MESSAGE);
        if (message != nullptr)
            take_message(message, (choice & 1) == 0);
    }

    void cancel_some(Input& input) {
        if (operations_.empty())
            return;
        Operation& operation = operations_[input.take<std::uint8_t>() % operations_.size()];
        if (operation.is_pending && operation.can_be_cancelled)
            require(tw_request_cancel(operation.request) == TW_OK);
    }

    void close_by_force() {
        if (ep_ != nullptr)
            require(tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr) == TW_OK);
        ep_ = nullptr;
    }
    void cancel_all() {
        for (const Call& one : calls_)
            if (one.is_pending)
                tw_call_cancel(worker_, one.id);
        for (Operation& operation : operations_)
            if (operation.is_pending && operation.can_be_cancelled)
                tw_request_cancel(operation.request);
    }
    /// Drops all messages that nobody has received, those that were shown and not taken too.
    void drop_messages() {
        for (tw_message_h message : std::exchange(shown_, {}))
            require(tw_message_drop(worker_, message) == TW_OK);
        // Notices of puts, which wait until they are polled.
        tw_completion_t notice{};
        while (tw_worker_poll(worker_, &notice, 1) != 0)
            require((notice.flags & TW_DONE_REMOTE) != 0);
        for (tw_message_h message : std::exchange(kept_, {}))
            require(tw_message_drop(worker_, message) == TW_OK);
        for (const bool is_tagged : {true, false}) {
            for (;;) {
                tw_message_h message = nullptr;
                const tw_status_t status =
                    is_tagged
                        ? tw_tag_probe(worker_, 0, ~std::uint64_t{0}, nullptr, nullptr, &message)
                        : tw_msg_probe(worker_, nullptr, nullptr, &message);
                require(status == TW_OK || status == TW_ERR_NO_MESSAGE);
                if (status != TW_OK)
                    break;
                require(tw_message_drop(worker_, message) == TW_OK);
            }
        }
    }
    /// Messages that the worker keeps because no receive has taken them.
    Kept kept() const {
        Kept kept;
        const auto look = [](void* arg, const char* key, const char* value) {
            auto& found = *static_cast<Kept*>(arg);
            if (std::strcmp(key, "unexpected") == 0)
                require(std::sscanf(value, "%zu messages in %zu bytes", &found.messages,
                                    &found.bytes) == 2);
        };
        require(tw_worker_describe(worker_, look, &kept) == TW_OK);
        return kept;
    }
    bool is_anything_pending() const {
        for (const Operation& operation : operations_)
            if (operation.is_pending)
                return true;
        for (const Call& one : calls_)
            if (one.is_pending)
                return true;
        return false;
    }

  private:
    struct Call {
        std::vector<std::byte> reply = std::vector<std::byte>(kReceiveBytes);
        std::uint64_t id = 0;
        bool is_pending = false;
    };
    static constexpr std::size_t kCallsMax = 64;
    static constexpr std::uint32_t kMethod = 0;

    /// Replies at once to every other request, which is read.
    static void serve(void* arg, tw_call_request_t* request) {
        auto& self = *static_cast<Program*>(arg);
        for (std::size_t i = 0; i < request->length; ++i)
            self.sum_ += std::to_integer<unsigned>(static_cast<const std::byte*>(request->data)[i]);
        if (++self.served_ % 2 == 0)
            static_cast<void>(
                tw_reply(request->worker, request->id, 0, "now", 3, nullptr, nullptr));
        else
            self.requests_.push_back(request->id);
    }

    /// Ids of handlers, by what they do. No other id has one.
    static constexpr unsigned kDrops = 0, kKeeps = 1, kReceives = 2;

    static void handle(void* arg, tw_am_t* am) { static_cast<Program*>(arg)->handle(*am); }
    void handle(tw_am_t& am) {
        const auto read = [&](const void* from, std::size_t length) {
            for (std::size_t i = 0; from != nullptr && i < length; ++i)
                sum_ += std::to_integer<unsigned>(static_cast<const std::byte*>(from)[i]);
        };
        tw_message_h message = am.message;
        require((am.flags & TW_AM_RNDV) == 0 || (am.data == nullptr && message != nullptr));
        read(am.header, am.header_length);
        read(am.data, am.length);
        if (am.id == kKeeps && tw_am_keep(&am, &message) == TW_OK) {
            read(am.header, am.header_length);
            read(am.data, am.length);
            kept_.push_back(message);
        } else if (am.id == kReceives && message != nullptr) {
            receive_message(message);
        }
    }
    void receive_message(tw_message_h message) {
        Operation& operation = add(kReceiveBytes);
        const tw_op_t op = op_of(operation);
        operation.is_pending = true;  // it may end before the call returns
        if (tw_message_recv(worker_, message, operation.buffer.data(), kReceiveBytes, &op,
                            &operation.request) != TW_INPROGRESS)
            operation.is_pending = false;
    }

    Operation& add(std::size_t bytes) {
        operations_.push_back({std::vector<std::byte>(bytes), nullptr, false});
        return operations_.back();
    }
    static tw_op_t op_of(Operation& operation) {
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION;
        op.context = &operation;
        op.complete = Operation::ended;
        return op;
    }

    std::byte* shared() { return memory_.data() + kAroundBytes; }

    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
    std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kAroundBytes + kSharedBytes);
    tw_mem_h mem_ = nullptr;
    std::vector<std::byte> peer_key_;
    tw_key_h key_ = nullptr;
    tw_flush_level_t level_ = TW_FLUSH_SENT;  // of the last flush or close
    tw_ep_h ep_ = nullptr;
    bool has_failed_ = false;
    std::deque<Operation> operations_;
    std::vector<tw_message_h> shown_;  // by buffered receives
    std::vector<tw_message_h> kept_;   // by a handler
    std::deque<Call> calls_;
    std::vector<std::uint64_t> requests_;  // that wait for a reply
    unsigned served_ = 0;
    unsigned sum_ = 0;
};

}  // namespace tagwire::fuzz
