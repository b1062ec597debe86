// SPDX-License-Identifier: BSD-3-Clause
// One data call each.
#include "net.hpp"

namespace conformance {
namespace {

// libfabric's structures take data to send as not constant.
iovec list_of(const Bytes& bytes) {
    return {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

fi_msg_tagged tagged_of(const iovec& list, const Message& message, void* context) {
    fi_msg_tagged result{};
    result.msg_iov = &list;
    result.iov_count = 1;
    result.tag = message.tag;
    result.ignore = message.ignore;
    result.context = context;
    result.data = message.data;
    return result;
}

fi_msg untagged_of(const iovec& list, const Message& message, void* context) {
    fi_msg result{};
    result.msg_iov = &list;
    result.iov_count = 1;
    result.context = context;
    result.data = message.data;
    return result;
}

}  // namespace

// A case may forget what it sent before it was read, so a copy is sent: not of what is injected,
// which the case writes over.
const Bytes& Net::keep(const Bytes& bytes, std::uint64_t flags) {
    return (flags & FI_INJECT) != 0 ? bytes : kept_.emplace_back(bytes);
}

void Net::tsend(std::size_t from, std::size_t to, const Bytes& bytes, std::uint64_t tag,
                std::size_t n) {
    const Bytes& out = keep(bytes);
    post("fi_tsend", [&] {
        return fi_tsend(ep(from), out.data(), out.size(), nullptr, address(to), tag, context(n));
    });
}

void Net::trecv(std::size_t at, Bytes& bytes, std::uint64_t tag, std::size_t n) {
    post("fi_trecv", [&] {
        return fi_trecv(ep(at), bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, tag, 0,
                        context(n));
    });
}

void Net::send(std::size_t from, std::size_t to, const Bytes& bytes, std::size_t n) {
    const Bytes& out = keep(bytes);
    post("fi_send", [&] {
        return fi_send(ep(from), out.data(), out.size(), nullptr, address(to), context(n));
    });
}

void Net::recv(std::size_t at, Bytes& bytes, std::size_t n) {
    post("fi_recv", [&] {
        return fi_recv(ep(at), bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, context(n));
    });
}

void Net::tsendmsg(std::size_t from, std::size_t to, const Bytes& bytes, const Message& message) {
    const iovec list = list_of(keep(bytes, message.flags));
    fi_msg_tagged call = tagged_of(list, message, context(message.context));
    call.addr = address(to);
    post("fi_tsendmsg", [&] { return fi_tsendmsg(ep(from), &call, message.flags); });
}

void Net::trecvmsg(std::size_t at, Bytes& bytes, const Message& message) {
    const iovec list = list_of(bytes);
    fi_msg_tagged call = tagged_of(list, message, context(message.context));
    call.addr = message.from;
    post("fi_trecvmsg", [&] { return fi_trecvmsg(ep(at), &call, message.flags); });
}

void Net::sendmsg(std::size_t from, std::size_t to, const Bytes& bytes, const Message& message) {
    const iovec list = list_of(keep(bytes, message.flags));
    fi_msg call = untagged_of(list, message, context(message.context));
    call.addr = address(to);
    post("fi_sendmsg", [&] { return fi_sendmsg(ep(from), &call, message.flags); });
}

void Net::recvmsg(std::size_t at, Bytes& bytes, const Message& message) {
    const iovec list = list_of(bytes);
    fi_msg call = untagged_of(list, message, context(message.context));
    call.addr = message.from;
    post("fi_recvmsg", [&] { return fi_recvmsg(ep(at), &call, message.flags); });
}

void Net::settle(std::size_t from, std::size_t to) {
    constexpr std::uint64_t kTag = 0x5e771e;
    constexpr std::size_t kContext = 1000;
    const Bytes out(1, 7);
    Bytes in(1);
    const Message receive{.tag = kTag, .flags = FI_COMPLETION, .context = kContext};
    trecvmsg(to, in, receive);
    const Message send{.tag = kTag, .flags = FI_COMPLETION, .context = kContext + 1};
    tsendmsg(from, to, out, send);
    const auto take = [&](std::deque<Entry>& queue, void* wanted) {
        until("the message behind", [&] {
            for (auto it = queue.begin(); it != queue.end(); ++it) {
                if (it->op_context == wanted) {
                    queue.erase(it);
                    return true;
                }
            }
            return false;
        });
    };
    take(end(to).received, context(kContext));
    take(end(from).sent, context(kContext + 1));
}

}  // namespace conformance
