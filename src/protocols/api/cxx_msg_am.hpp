// SPDX-License-Identifier: BSD-3-Clause
//
// Active messages of the messaging layer's C++ wrapper, as their handlers and the program have
// them. Worker::on_am() registers a handler, Endpoint::am_send() sends. Included by
// tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_AM_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_AM_HPP

#include <protocols/api/cxx_msg_op.hpp>

#include <cstring>
#include <optional>

namespace tagwire {
inline namespace v1 {
namespace msg {

namespace detail {

inline std::span<const std::byte> bytes_at(const void* data, std::size_t length) {
    return {static_cast<const std::byte*>(data), data == nullptr ? 0 : length};
}

template <class T>
requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> std::optional<T>
object_in(std::span<const std::byte> bytes) {
    if (bytes.size() != sizeof(T))
        return std::nullopt;
    T object{};
    std::memcpy(&object, bytes.data(), sizeof object);
    return object;
}

}  // namespace detail

/// An active message that its handler has kept. The destructor releases it.
class KeptMessage {
  public:
    KeptMessage() = default;
    KeptMessage(KeptMessage&& other) noexcept : am_(std::exchange(other.am_, {})) {}
    KeptMessage& operator=(KeptMessage&& other) noexcept {
        std::swap(am_, other.am_);
        return *this;
    }
    ~KeptMessage() { release(); }

    /// Whether there is a message.
    [[nodiscard]] explicit operator bool() const { return am_.message != nullptr; }
    [[nodiscard]] tw_message_h get() const { return am_.message; }
    [[nodiscard]] std::span<const std::byte> header() const {
        return detail::bytes_at(am_.header, am_.header_length);
    }
    /// The object that the header is a copy of (bytes_of()); nothing if its length is another one.
    template <class T>
    [[nodiscard]] std::optional<T> header_as() const {
        return detail::object_in<T>(header());
    }
    /// Empty with is_rndv().
    [[nodiscard]] std::span<const std::byte> data() const {
        return detail::bytes_at(am_.data, am_.length);
    }
    /// Bytes of data, wherever that is.
    [[nodiscard]] std::size_t length() const { return am_.length; }
    /// The data is still with the sender.
    [[nodiscard]] bool is_rndv() const { return (am_.flags & TW_AM_RNDV) != 0; }
    [[nodiscard]] std::uint64_t source() const { return am_.source; }

    /// As tw_message_recv(). This object has no message afterwards, unless nothing happened.
    Status receive(std::span<std::byte> buffer, OpArgs args = {}) {
        return received({tw_message_recv(am_.worker, am_.message, buffer.data(), buffer.size(),
                                         args.op(), args.request()),
                         "tw_message_recv"});
    }
    Status receivev(std::span<const tw_iov_t> list, OpArgs args = {}) {
        return received({tw_message_recvv(am_.worker, am_.message, list.data(), list.size(),
                                          args.op(), args.request()),
                         "tw_message_recvv"});
    }
    void release() {
        if (am_.message != nullptr)
            (void)tw_message_drop(am_.worker, std::exchange(am_.message, nullptr));
        am_ = {};
    }

  private:
    friend class ActiveMessage;
    Status received(Status status) {
        if (status != TW_ERR_NO_RESOURCE && status != TW_ERR_NO_MEMORY &&
            status != TW_ERR_INVALID_PARAM)
            am_ = {};
        return status;
    }

    tw_am_t am_{};
};

/// An active message while its handler runs.
class ActiveMessage {
  public:
    explicit ActiveMessage(tw_am_t& am) : am_(am) {}
    ActiveMessage(const ActiveMessage&) = delete;
    ActiveMessage& operator=(const ActiveMessage&) = delete;

    [[nodiscard]] const tw_am_t& get() const { return am_; }
    [[nodiscard]] std::span<const std::byte> header() const {
        return detail::bytes_at(am_.header, am_.header_length);
    }
    /// The object that the header is a copy of (bytes_of()); nothing if its length is another one.
    template <class T>
    [[nodiscard]] std::optional<T> header_as() const {
        return detail::object_in<T>(header());
    }
    /// Empty with is_rndv().
    [[nodiscard]] std::span<const std::byte> data() const {
        return detail::bytes_at(am_.data, am_.length);
    }
    /// Bytes of data, wherever that is.
    [[nodiscard]] std::size_t length() const { return am_.length; }
    /// The data is still with the sender.
    [[nodiscard]] bool is_rndv() const { return (am_.flags & TW_AM_RNDV) != 0; }
    [[nodiscard]] std::uint64_t source() const { return am_.source; }
    /// The program's endpoint to the sender, or nullptr: Endpoint::to() makes it.
    [[nodiscard]] tw_ep_h ep() const { return am_.ep; }

    /// Sends an active message back to the sender, by ep(). A program that has no endpoint to it
    /// gets one, without user data, and closes it as any other; Worker::find() tells it later. As
    /// tw_am_send(); TW_ERR_NO_ELEM when the sender has gone.
    Status reply(unsigned id, std::span<const std::byte> header,
                 std::span<const std::byte> data = {}, OpArgs args = {}) const {
        tw_ep_h to = am_.ep;
        if (to == nullptr) {
            const tw_status_t status = tw_ep_create_to(am_.worker, am_.source, nullptr, &to);
            // Another thread, or an earlier reply in this handler, has made it.
            if (status == TW_ERR_ALREADY_EXISTS)
                to = tw_ep_find(am_.worker, am_.source);
            else if (status != TW_OK)
                return {status, "tw_ep_create_to"};
            if (to == nullptr)
                return {TW_ERR_NO_ELEM, "tw_ep_find"};
        }
        return {tw_am_send(to, id, header.data(), header.size(), data.data(), data.size(),
                           args.op(), args.request()),
                "tw_am_send"};
    }
    /// As tw_am_keep(). On success `kept` has the message, and spans of this object are its spans.
    Status keep(KeptMessage& kept) const {
        kept.release();
        tw_message_h message = nullptr;
        const Status status{tw_am_keep(&am_, &message), "tw_am_keep"};
        if (status == TW_OK)
            kept.am_ = am_;
        return status;
    }
    /// As tw_message_recv(), with is_rndv(), in the handler.
    Status receive(std::span<std::byte> buffer, OpArgs args = {}) const {
        return {tw_message_recv(am_.worker, am_.message, buffer.data(), buffer.size(), args.op(),
                                args.request()),
                "tw_message_recv"};
    }
    Status receivev(std::span<const tw_iov_t> list, OpArgs args = {}) const {
        return {tw_message_recvv(am_.worker, am_.message, list.data(), list.size(), args.op(),
                                 args.request()),
                "tw_message_recvv"};
    }

  private:
    tw_am_t& am_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
