// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/stream_writer.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "uct/tcp/frames.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::size_t kGatherMax = 32;
constexpr std::size_t kPinsMax = 8;
constexpr std::size_t kFramePieces = 4;  // at least: head, data, padding, Done
/// Stands for memory whose key has ended; a frame that has begun is sent to its end.
alignas(64) constinit std::array<std::byte, 4096> zeros{};

}  // namespace

/// Memory for one system call, and the pins that hold it until the call is over.
struct StreamWriter::Gathered {
    std::array<iovec, kGatherMax> iov;
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::array<Registrations::Pin, kPinsMax> pins;
    std::size_t pins_count = 0;

    [[nodiscard]] bool is_full() const { return count == kGatherMax; }
    void add(void* from, std::size_t length) {
        iov[count++] = {from, length};
        bytes += length;
    }
    /// False: does not fit.
    bool add_zeros(std::size_t length) {
        for (; length > 0 && !is_full(); length -= iov[count - 1].iov_len)
            add(zeros.data(), std::min(length, zeros.size()));
        return length == 0;
    }
    bool add_frame(TxStream& stream, Registrations& registrations);
};

bool StreamWriter::Gathered::add_frame(TxStream& stream, Registrations& registrations) {
    if (count + kFramePieces > kGatherMax)
        return false;
    if (stream.head_sent < stream.head_bytes)
        add(stream.head + stream.head_sent, stream.head_bytes - stream.head_sent);
    bool fits = true;
    if (stream.is_put) {
        uct::IovCursor cursor = stream.cursor;
        std::size_t pieces = 0;
        const std::size_t taken =
            cursor.pieces(iov.data() + count, kGatherMax - count, stream.frame_left, &pieces);
        count += pieces;
        bytes += taken;
        fits = taken == stream.frame_left;
    } else if (stream.frame_left > 0) {
        if (!stream.is_void) {
            pins[pins_count] = registrations.pin(stream.key, stream.address, stream.frame_left,
                                                 UCT_MD_MEM_ACCESS_REMOTE_GET);
            std::byte* from = pins[pins_count++].address();
            if (from != nullptr)
                add(from, stream.frame_left);
            else
                stream.set_void();
        }
        if (stream.is_void)
            fits = add_zeros(stream.frame_left);
    }
    if (!fits || count + 2 > kGatherMax)
        return false;
    if (stream.pad_left > 0)
        add(zeros.data(), stream.pad_left);
    if (stream.tail_left > 0)
        add(stream.tail_to_send(), stream.tail_left);
    return stream.left == 0;  // else the next frame of it has no head yet
}

void TxStream::begin_frame() {
    const auto data = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kFrameDataMax));
    left -= data;
    frame_left = data;
    head_sent = 0;
    const std::uint8_t more = left > 0 ? kMoreFollows : std::uint8_t{0};
    FrameHead frame{0, is_put ? Kind::kPut : Kind::kGetData, is_put ? more : kDoneFollows, 0};
    const std::size_t body = body_bytes(frame.kind);
    frame.bytes = static_cast<std::uint32_t>(body + data);
    pad_left = static_cast<std::uint32_t>(padded(frame.bytes) - frame.bytes);
    std::memcpy(head, &frame, sizeof frame);
    if (is_put) {
        const PutBody put{left == 0 ? op : 0, address, key};  // key.part names the put
        std::memcpy(head + sizeof frame, &put, sizeof put);
        address += data;
    } else {
        const GetDataBody get{op};
        std::memcpy(head + sizeof frame, &get, sizeof get);
    }
    head_bytes = static_cast<std::uint32_t>(sizeof frame + body);
    if (!is_put && left == 0)
        set_tail(UCS_OK);
}

void TxStream::set_tail(ucs_status_t status) {
    tail_left =
        static_cast<std::uint32_t>(put_frame(tail, Kind::kDone, 0, DoneBody{op, status, 0}, 0));
}

void TxStream::set_void() {
    is_void = true;
    set_tail(UCS_ERR_INVALID_ADDR);
}

ucs_status_t TxPools::open() {
    const ucs_status_t status = chunks.init({.name = "tcp send chunks",
                                             .element_bytes = sizeof(TxChunk) + kChunkBytes,
                                             .alignment = 64,
                                             .elements_per_chunk = 8});
    return status == UCS_OK ? streams.init({.name = "tcp streams", .elements_per_chunk = 16})
                            : status;
}

void StreamWriter::append(TxItem& item) {
    item.next = nullptr;
    (tail_ != nullptr ? tail_->next : head_) = &item;
    tail_ = &item;
}

void StreamWriter::destroy(TxPools& pools, TxItem& item) {
    if (item.type == TxItem::Type::kStream) {
        pools.streams.destroy(static_cast<TxStream*>(&item));
    } else if (static_cast<TxChunk&>(item).is_heap) {
        ucs::reserve_free(&item);
    } else {
        pools.chunks.put(&item);
    }
}

void StreamWriter::pop_front(TxPools& pools) {
    TxItem& item = *head_;
    head_ = item.next;
    if (head_ == nullptr)
        tail_ = nullptr;
    if (item.type == TxItem::Type::kStream)
        gets_ -= static_cast<TxStream&>(item).is_put ? 0 : 1;
    if (item.type == TxItem::Type::kStream || static_cast<TxChunk&>(item).is_counted)
        ++written_;
    destroy(pools, item);
}

std::byte* StreamWriter::reserve(TxPools& pools, std::size_t bytes) {
    if (tail_ != nullptr && tail_->type == TxItem::Type::kChunk) {
        auto& last = static_cast<TxChunk&>(*tail_);
        if (last.capacity - last.end >= bytes) [[likely]]
            return last.data() + last.end;
    }
    void* memory = pools.chunks.get();
    if (memory == nullptr)
        return nullptr;
    auto* chunk = ::new (memory) TxChunk;
    chunk->type = TxItem::Type::kChunk;
    chunk->capacity = TxPools::kChunkBytes;
    append(*chunk);
    return chunk->data();
}

void StreamWriter::commit(std::size_t bytes) {
    static_cast<TxChunk&>(*tail_).end += static_cast<std::uint32_t>(bytes);
    copied_bytes_ += static_cast<std::uint32_t>(bytes);
    queued_ += bytes;
}

void StreamWriter::push(TxStream& stream) {
    stream.type = TxItem::Type::kStream;
    stream.begin_frame();
    append(stream);
    gets_ += stream.is_put ? 0 : 1;
    ++queued_;
}

/// `bytes` were taken by the kernel.
void StreamWriter::consume(TxPools& pools, std::size_t bytes) {
    while (head_ != nullptr) {
        if (head_->type == TxItem::Type::kChunk) {
            auto& chunk = static_cast<TxChunk&>(*head_);
            const auto part =
                static_cast<std::uint32_t>(std::min<std::size_t>(bytes, chunk.end - chunk.begin));
            chunk.begin += part;
            bytes -= part;
            if (!chunk.is_heap) {
                copied_bytes_ -= part;
                written_ += part;
            }
            if (chunk.begin < chunk.end)
                return;
            pop_front(pools);
            continue;
        }
        auto& stream = static_cast<TxStream&>(*head_);
        const auto take = [&bytes](std::uint32_t most) {
            const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, most));
            bytes -= part;
            return part;
        };
        stream.head_sent += take(stream.head_bytes - stream.head_sent);
        const std::uint32_t data = take(stream.frame_left);
        stream.frame_left -= data;
        if (stream.is_put)
            stream.cursor.skip(data);
        else
            stream.address += data;
        stream.pad_left -= take(stream.pad_left);
        stream.tail_left -= take(stream.tail_left);
        if (stream.head_sent < stream.head_bytes || stream.frame_left > 0 || stream.pad_left > 0 ||
            stream.tail_left > 0)
            return;
        const bool is_void = stream.is_void;
        if (stream.left > 0 && !is_void) {
            stream.begin_frame();
            if (bytes == 0)
                return;
            continue;
        }
        if (stream.owner_op != 0)
            pools.sent.push_back({stream.owner_op, is_void ? UCS_ERR_INVALID_ADDR : UCS_OK});
        pop_front(pools);
        if (bytes == 0)
            return;
    }
}

bool StreamWriter::append_done(TxPools& pools, std::uint64_t op, ucs_status_t status) {
    std::byte* to = reserve(pools, frame_bytes<DoneBody>(0));
    if (to == nullptr)
        return false;
    commit(put_frame(to, Kind::kDone, 0, DoneBody{op, status, 0}, 0));
    return true;
}

namespace {

ucs_status_t status_of_errno(int error) {
    switch (error) {
        case EAGAIN:
        case ENOBUFS:
        case ENOMEM:
            return UCS_ERR_NO_RESOURCE;
        case EFAULT:
            return UCS_ERR_INVALID_ADDR;
        case EPIPE:
        case ECONNRESET:
            return UCS_ERR_CONNECTION_RESET;
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case ENETUNREACH:
            return UCS_ERR_ENDPOINT_TIMEOUT;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

}  // namespace

ucs_status_t StreamWriter::write(int fd, TxPools& pools, Registrations& registrations) {
    while (head_ != nullptr) {
        bool is_partial = false;
        ucs_status_t status = give(fd, pools, registrations, &is_partial);
        // One of several streams: the oldest is copied, until the one is found.
        if (status == UCS_ERR_INVALID_ADDR) [[unlikely]]
            status = copy_first_stream(pools, registrations);
        if (status != UCS_OK)
            return status;
        if (is_partial)
            return UCS_ERR_NO_RESOURCE;
    }
    return UCS_OK;
}

/// One system call.
ucs_status_t StreamWriter::give(int fd, TxPools& pools, Registrations& registrations,
                                bool* is_partial_p) {
    ssize_t done = 0;
    std::size_t wanted = 0;
    if (head_ == tail_ && head_->type == TxItem::Type::kChunk) [[likely]] {
        auto& chunk = static_cast<TxChunk&>(*head_);
        wanted = chunk.end - chunk.begin;
        if (wanted == 0) {  // reserved and not used
            pop_front(pools);
            return UCS_OK;
        }
        done = ::send(fd, chunk.data() + chunk.begin, wanted, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
        Gathered gathered;
        for (TxItem* item = head_; item != nullptr && !gathered.is_full(); item = item->next) {
            if (item->type == TxItem::Type::kChunk) {
                auto& chunk = static_cast<TxChunk&>(*item);
                gathered.add(chunk.data() + chunk.begin, chunk.end - chunk.begin);
            } else if (gathered.pins_count == kPinsMax ||
                       !gathered.add_frame(static_cast<TxStream&>(*item), registrations)) {
                break;
            }
        }
        msghdr message{};
        message.msg_iov = gathered.iov.data();
        message.msg_iovlen = gathered.count;
        wanted = gathered.bytes;
        done = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (done < 0)
        return errno == EINTR ? UCS_OK : status_of_errno(errno);
    consume(pools, static_cast<std::size_t>(done));
    *is_partial_p = static_cast<std::size_t>(done) < wanted;
    return UCS_OK;
}

void StreamWriter::clear(TxPools& pools) {
    while (head_ != nullptr)
        pop_front(pools);
    copied_bytes_ = 0;
    written_ = queued_;
}

}  // namespace tagwire::tcp
