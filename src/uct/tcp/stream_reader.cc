// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/stream_reader.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/checked_iov.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

/// The memory of one system call.
struct StreamReader::Plan {
    iovec iov[uct::kIovMax + 1];
    std::size_t count = 0;
    std::size_t placed = 0;  // bytes at most that go to the frame that came in part
    Registrations::Pin pin;

    void add(void* to, std::size_t bytes) { iov[count++] = {to, bytes}; }
};

StreamReader::~StreamReader() {
    if (descs_ != nullptr)
        descs_->abandon();
}

ucs_status_t StreamReader::open(const uct::IfaceParams& params) {
    descs_ = new uct::DescPool(params.rx_headroom, kSegBytesMax + kFrameUnit, params.am_alignment,
                               params.am_align_offset);
    shared_ = std::make_unique<std::byte[]>(kSharedBytes + kBodyBytesMax + sizeof(FrameHead));
    return incoming_.init({.name = "tcp frames in part", .elements_per_chunk = 16});
}

Incoming* StreamReader::create(Connection& connection) {
    Incoming* in = incoming_.create();
    if (in == nullptr)
        iface_.failures.fail(connection, UCS_ERR_NO_MEMORY);
    connection.incoming = in;
    return in;
}

void StreamReader::destroy(Incoming& in) {
    if (in.data != nullptr) {
        if (in.is_desc)
            descs_->put(in.data);
        else
            ucs::reserve_free(in.data);
    }
    incoming_.destroy(&in);
}

void StreamReader::drop(Connection& connection) {
    if (rest_.of == &connection)
        rest_ = {};
    Incoming* in = std::exchange(connection.incoming, nullptr);
    if (in == nullptr)
        return;
    if (in->posted != nullptr) {
        TagEagerBody body;
        std::memcpy(&body, in->body, sizeof body);
        iface_.tags.complete(*in->posted, body.tag, body.imm, 0, connection.failure);
    }
    destroy(*in);
}

void StreamReader::let_go(Connection& connection, const Posted& posted) {
    Incoming* in = connection.incoming;
    if (in == nullptr || in->posted != &posted)
        return;
    in->posted = nullptr;
    in->waste(UCS_OK);
}

// ---- Reading

ssize_t StreamReader::receive(Connection& connection, Plan* plan) {
    std::byte* shared = shared_.get();
    Incoming* in = connection.incoming;
    std::size_t behind = kSharedBytes;
    if (in != nullptr && in->mode == Incoming::Mode::kHead) {
        std::memcpy(shared, in->body, in->have);
        shared += in->have;
    } else if (in != nullptr && in->mode == Incoming::Mode::kMessage) {
        plan->placed = padded(in->head.bytes) - body_bytes(in->head.kind) - in->have;
        plan->add(in->data + in->have, plan->placed);
    } else if (in != nullptr) {
        iface_.remote.find_place(connection, *in, &plan->pin);
        if (in->place_left > 0) {
            uct::IovCursor cursor = in->cursor;
            plan->placed = cursor.pieces(plan->iov, uct::kIovMax, in->place_left, &plan->count);
        }
        if (plan->placed < in->place_left)
            behind = 0;
        else if (in->waste_left + in->place_left > kLongBytes)
            behind = std::min<std::size_t>(in->waste_left + kBehindLong, kSharedBytes);
    }
    if (behind > 0)
        plan->add(shared, behind);
    for (;;) {
        const ssize_t got = plan->count == 1 ? ::recv(connection.fd.get(), plan->iov[0].iov_base,
                                                      plan->iov[0].iov_len, MSG_DONTWAIT)
                                             : ::readv(connection.fd.get(), plan->iov,
                                                       static_cast<int>(plan->count));
        if (got >= 0 || errno != EINTR)
            return got;
    }
}

unsigned StreamReader::begin_turn() {
    work_left_ = kTurn;
    if (!has_rest()) [[likely]]
        return 0;
    const Rest rest = std::exchange(rest_, {});
    return parse(*rest.of, rest.from, rest.bytes);
}

unsigned StreamReader::read(Connection& connection) {
    if (!may_read()) [[unlikely]]
        return 0;
    ssize_t got = 0;
    unsigned count = 0;
    {
        Plan plan;
        got = receive(connection, &plan);
        if (got > 0) {
            plan.pin.release();  // no callback runs under a pin
            connection.empty_reads = 0;
            count = take(connection, static_cast<std::size_t>(got), plan);
            return std::max(count, 1U);
        }
    }
    if (got < 0 && errno == EFAULT && connection.incoming != nullptr) {
        iface_.remote.lose_place(connection, *connection.incoming);
        return 1;
    }
    if (got < 0 && errno == EAGAIN) {
        if (connection.empty_reads < UINT8_MAX)
            ++connection.empty_reads;
        return 0;
    }
    const bool is_silent = connection.is_silent || (got < 0 && errno == ETIMEDOUT);
    iface_.failures.fail(connection,
                         is_silent ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_ERR_CONNECTION_RESET);
    return 1;
}

unsigned StreamReader::take(Connection& connection, std::size_t got, const Plan& plan) {
    Incoming* in = connection.incoming;
    std::byte* shared = shared_.get();
    if (in == nullptr)
        return parse(connection, shared, got);
    const std::size_t placed = std::min(got, plan.placed);
    std::size_t rest = got - placed;
    switch (in->mode) {
        case Incoming::Mode::kHead:
            rest = got + in->have;
            connection.incoming = nullptr;
            destroy(*in);
            break;
        case Incoming::Mode::kMessage:
            in->have += placed;
            if (placed < plan.placed)
                return 1;
            connection.incoming = nullptr;
            finish_message(connection, *in);
            break;
        case Incoming::Mode::kPlace: {
            in->cursor.skip(placed);
            in->place_left -= placed;
            in->put.address += placed;
            const std::size_t waste = std::min<std::size_t>(rest, in->waste_left);
            in->waste_left -= waste;
            iface_.remote.count_placed(connection, *in, placed);
            if (in->place_left > 0 || in->waste_left > 0)
                return 1;
            connection.incoming = nullptr;
            finish_place(connection, *in);
            rest -= waste;
            // The next frame begins where the waste ended, and is moved to where frames begin.
            if (waste % kFrameUnit != 0)
                std::memmove(shared, shared + waste, rest);
            else
                shared += waste;
            break;
        }
    }
    return rest > 0 && connection.failure == UCS_OK ? 1 + parse(connection, shared, rest) : 1;
}

/// Delivers whole frames and keeps the beginning of one that was cut.
unsigned StreamReader::parse(Connection& connection, std::byte* from, std::size_t bytes) {
    unsigned count = 0;
    while (bytes > 0 && connection.failure == UCS_OK) {
        if (work_left_ == 0) [[unlikely]] {
            rest_ = {&connection, from, bytes};
            return count;
        }
        Message message;
        if (bytes >= sizeof(FrameHead)) {
            std::memcpy(&message.head, from, sizeof(FrameHead));
            if (!is_possible(message.head)) [[unlikely]] {
                iface_.failures.violation(connection, "frame of an impossible kind or length");
                return count;
            }
        }
        const std::size_t body = body_bytes(message.head.kind);
        if (bytes < sizeof(FrameHead) + body) {
            Incoming* in = create(connection);
            if (in == nullptr)
                return count;
            in->have = bytes;
            std::memcpy(in->body, from, bytes);
            return count;
        }
        message.body = from + sizeof(FrameHead);
        message.data = from + sizeof(FrameHead) + body;
        message.bytes = message.head.bytes - body;
        const std::size_t frame = sizeof(FrameHead) + padded(message.head.bytes);
        if (bytes < frame) {
            const std::size_t whole =
                std::exchange(message.bytes, bytes - sizeof(FrameHead) - body);
            begin_part(connection, message, whole);
            return count;
        }
        deliver(connection, message);
        work_left_ -= std::min(work_left_, work_of(message.head.kind));
        ++count;
        from += frame;
        bytes -= frame;
    }
    return count;
}

// ---- Frames in part

/// `part` has the bytes that have come, of `whole` and the padding.
bool StreamReader::begin_part(Connection& connection, const Message& part, std::size_t whole) {
    Incoming* in = create(connection);
    if (in == nullptr)
        return false;
    in->head = part.head;
    std::memcpy(in->body, part.body, body_bytes(part.head.kind));
    if (begin_place(connection, *in, part, whole))
        return true;
    if (connection.failure != UCS_OK)
        return false;
    in->mode = Incoming::Mode::kMessage;
    in->bytes = whole;
    in->data = descs_->take();
    in->is_desc = in->data != nullptr;
    if (in->data == nullptr)  // the program holds all: it copies what it wants to keep
        in->data = static_cast<std::byte*>(ucs::reserve_try_allocate(padded(whole) + kFrameUnit));
    if (in->data == nullptr) {
        iface_.failures.fail(connection, UCS_ERR_NO_MEMORY);
        return false;
    }
    in->have = part.bytes;
    std::memcpy(in->data, part.data, part.bytes);
    return true;
}

/// False: the message has no place, or the connection is over.
bool StreamReader::begin_place(Connection& connection, Incoming& in, const Message& part,
                               std::size_t whole) {
    std::uint64_t room = whole;
    switch (part.head.kind) {
        case Kind::kTagEager:
            in.posted = iface_.tags.begin_eager(connection, part.as<TagEagerBody>(), &in, &room);
            if (in.posted == nullptr)
                return false;
            break;
        case Kind::kPut:
            in.put = part.as<PutBody>();
            break;
        case Kind::kGetData:
            in.op = part.as<GetDataBody>().op;
            break;
        default:
            return false;
    }
    in.mode = Incoming::Mode::kPlace;
    const std::size_t behind = padded(part.head.bytes) - part.head.bytes;
    in.place_left = std::min<std::uint64_t>(room, whole);
    in.waste_left = whole - in.place_left + behind;
    place(connection, in, part.data, part.bytes);
    return true;
}

/// Bytes that are in the shared buffer already.
void StreamReader::place(Connection& connection, Incoming& in, const std::byte* from,
                         std::size_t bytes) {
    Registrations::Pin pin;
    iface_.remote.find_place(connection, in, &pin);
    std::size_t placed = std::min<std::size_t>(bytes, in.place_left);
    if (placed > 0 && !uct::scatter_checked(in.cursor, from, placed)) {
        pin.release();  // no callback runs under a pin
        iface_.remote.lose_place(connection, in);
        placed = 0;
    }
    in.place_left -= placed;
    in.put.address += placed;
    in.waste_left -= bytes - placed;
    iface_.remote.count_placed(connection, in, placed);
}

void StreamReader::finish_place(Connection& connection, Incoming& in) {
    Posted* posted = in.posted;
    const FrameHead head = in.head;
    const PutBody put = in.put;
    const std::uint64_t op = in.op;
    const ucs_status_t status = in.status;
    TagEagerBody eager;
    std::memcpy(&eager, in.body, sizeof eager);
    destroy(in);
    if (posted != nullptr)
        iface_.tags.complete(*posted, eager.tag, eager.imm, head.bytes - sizeof eager, status);
    else
        iface_.remote.finish_placed(connection, head, put, op, status);
}

void StreamReader::finish_message(Connection& connection, Incoming& in) {
    const Message message{in.head, in.body, in.data, in.bytes, in.is_desc};
    if (deliver(connection, message))
        in.data = nullptr;  // the program's
    destroy(in);
}

// ---- Delivery

namespace {

[[gnu::noinline, gnu::cold]] void complain_of_kept_message(unsigned id) {
    TW_LOG_ERROR(
        "the handler of active message %u returned UCS_INPROGRESS for a message without "
        "UCT_CB_PARAM_FLAG_DESC, which cannot be kept",
        id);
}

}  // namespace

/// True: the program keeps the descriptor.
bool StreamReader::deliver(Connection& connection, const Message& message) {
    switch (message.head.kind) {
        [[likely]] case Kind::kAm : {
            const unsigned flags = message.is_desc ? unsigned{UCT_CB_PARAM_FLAG_DESC} : 0U;
            const ucs_status_t status =
                iface_.invoke_am(message.head.value, message.data, message.bytes, flags);
            if (status == UCS_INPROGRESS && !message.is_desc) [[unlikely]]
                complain_of_kept_message(message.head.value);
            iface_.count(TcpCounter::kDelivered);
            return status == UCS_INPROGRESS && message.is_desc;
        }
        case Kind::kTagEager:
            iface_.count(TcpCounter::kDelivered);
            return iface_.tags.deliver(connection, message);
        case Kind::kTagRequest:
            return iface_.rendezvous.take_request(connection, message);
        case Kind::kRts:
            return iface_.rendezvous.take_rts(connection, message);
        case Kind::kPut:
            iface_.remote.take_put(connection, message);
            return false;
        case Kind::kGetRequest:
            iface_.remote.take_get_request(connection, message.as<GetRequestBody>());
            return false;
        case Kind::kGetData:
            iface_.remote.take_get_data(connection, message);
            return false;
        case Kind::kDone:
            iface_.remote.take_done(connection, message.as<DoneBody>());
            return false;
        case Kind::kFlushRequest:
            iface_.sender.send_done(connection, message.as<FlushRequestBody>().op, UCS_OK);
            return false;
        case Kind::kPing:
            return false;
    }
    return false;
}

}  // namespace tagwire::tcp
