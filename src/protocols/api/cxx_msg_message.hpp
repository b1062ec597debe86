// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of the messaging layer's C++ wrapper that a program has taken, to receive them later.
// Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_MESSAGE_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_MESSAGE_HPP

#include <protocols/api/cxx_msg_op.hpp>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// A message that a probe has taken (Worker::tag_take(), take()), or that a buffered receive has
/// named. The destructor drops it. Destroy it before the worker.
class Message {
  public:
    Message() = default;
    /// Takes over tw_completion_t.message of a buffered receive.
    Message(tw_worker_h worker, tw_message_h message) : worker_(worker), message_(message) {}
    Message(Message&& other) noexcept
        : worker_(other.worker_), message_(std::exchange(other.message_, nullptr)) {}
    Message& operator=(Message&& other) noexcept {
        std::swap(worker_, other.worker_);
        std::swap(message_, other.message_);
        return *this;
    }
    ~Message() { drop(); }

    /// Whether there is a message.
    [[nodiscard]] explicit operator bool() const { return message_ != nullptr; }
    [[nodiscard]] tw_message_h get() const { return message_; }

    /// As tw_message_recv(). This object has no message afterwards, unless nothing happened.
    Status receive(std::span<std::byte> buffer, OpArgs args = {}) {
        return received({tw_message_recv(worker_, message_, buffer.data(), buffer.size(), args.op(),
                                         args.request()),
                         "tw_message_recv"});
    }
    Status receivev(std::span<const tw_iov_t> list, OpArgs args = {}) {
        return received({tw_message_recvv(worker_, message_, list.data(), list.size(), args.op(),
                                          args.request()),
                         "tw_message_recvv"});
    }
    void drop() {
        if (message_ != nullptr)
            (void)tw_message_drop(worker_, std::exchange(message_, nullptr));
    }
    /// The program drops it by itself.
    [[nodiscard]] tw_message_h release() { return std::exchange(message_, nullptr); }

  private:
    Status received(Status status) {
        if (status != TW_ERR_NO_RESOURCE && status != TW_ERR_NO_MEMORY &&
            status != TW_ERR_INVALID_PARAM)
            message_ = nullptr;
        return status;
    }

    tw_worker_h worker_ = nullptr;
    tw_message_h message_ = nullptr;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
