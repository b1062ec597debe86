// SPDX-License-Identifier: BSD-3-Clause
// Streams that end before their last byte, or whose memory is to be left alone: the rest of a frame
// that has begun is copied.
#include <cstring>
#include <new>

#include "ucs/sys/checked_copy.hpp"
#include "uct/checked_iov.hpp"
#include "uct/tcp/frames.hpp"
#include "uct/tcp/stream_writer.hpp"

namespace tagwire::tcp {

namespace {

/// Behind the bytes of its frame, in the room that copy_rest() has left for it.
void append_tail(TxChunk& chunk, TxStream& stream, std::size_t bytes) {
    std::memcpy(chunk.data() + chunk.end, stream.tail_to_send(), bytes);
    chunk.end += static_cast<std::uint32_t>(bytes);
    chunk.capacity = chunk.end;
}

}  // namespace

/// The rest of the frame that has begun, as a chunk of its own; zeros where *is_good_p becomes
/// false: the memory cannot be read. Null: no memory.
TxChunk* StreamWriter::copy_rest(TxStream& stream, Registrations& registrations, bool* is_good_p) {
    const std::size_t head = stream.head_bytes - stream.head_sent;
    const std::size_t bytes = head + stream.frame_left + stream.pad_left + sizeof stream.tail;
    void* memory = ucs::reserve_try_allocate(sizeof(TxChunk) + bytes);
    if (memory == nullptr)
        return nullptr;
    auto* chunk = ::new (memory) TxChunk;
    chunk->type = TxItem::Type::kChunk;
    chunk->is_heap = true;
    std::byte* const data = chunk->data() + head;
    std::memset(chunk->data(), 0, bytes);
    std::memcpy(chunk->data(), stream.head + stream.head_sent, head);
    *is_good_p = true;
    if (stream.is_put) {
        uct::IovCursor from = stream.cursor;
        *is_good_p = uct::gather_checked(from, data, stream.frame_left);
    } else if (stream.frame_left > 0 && !stream.is_void) {
        const Registrations::Pin pin = registrations.pin(
            stream.key, stream.address, stream.frame_left, UCT_MD_MEM_ACCESS_REMOTE_GET);
        *is_good_p = pin.address() != nullptr &&
                     ucs::read_checked(data, pin.address(), stream.frame_left) == UCS_OK;
    }
    if (!*is_good_p)
        std::memset(data, 0, stream.frame_left);
    chunk->end = chunk->capacity =
        static_cast<std::uint32_t>(head + stream.frame_left + stream.pad_left);
    return chunk;
}

/// `stream` is behind `before`, null: the first.
void StreamWriter::drop_stream(TxPools& pools, TxStream& stream, TxItem* before) {
    (before != nullptr ? before->next : head_) = stream.next;
    if (tail_ == &stream)
        tail_ = before;
    gets_ -= stream.is_put ? 0 : 1;
    ++written_;
    pools.streams.destroy(&stream);
}

ucs_status_t StreamWriter::copy_first_stream(TxPools& pools, Registrations& registrations) {
    TxItem* before = nullptr;
    TxItem* item = head_;
    while (item != nullptr && item->type != TxItem::Type::kStream) {
        before = item;
        item = item->next;
    }
    if (item == nullptr)
        return UCS_ERR_INVALID_ADDR;  // chunks are our own memory
    auto& stream = static_cast<TxStream&>(*item);
    bool is_good = true;
    TxChunk* chunk = copy_rest(stream, registrations, &is_good);
    if (chunk == nullptr)
        return UCS_ERR_NO_MEMORY;
    if (!is_good && stream.is_put) {
        pools.sent.push_back({stream.op, UCS_ERR_INVALID_ADDR});
        if (!stream.is_in_frame()) {
            ucs::reserve_free(chunk);
            drop_stream(pools, stream, before);
            return UCS_OK;
        }
        stream.left = 0;
    } else if (!is_good) {
        stream.set_void();
    }
    append_tail(*chunk, stream, stream.tail_left);
    chunk->next = &stream;
    (before != nullptr ? before->next : head_) = chunk;
    stream.cursor.skip(stream.is_put ? stream.frame_left : 0);
    stream.address += stream.is_put ? 0 : stream.frame_left;
    stream.head_sent = stream.head_bytes;
    stream.frame_left = stream.pad_left = stream.tail_left = 0;
    return UCS_OK;
}

bool StreamWriter::let_go(TxPools& pools, Registrations& registrations, std::uint64_t op,
                          bool is_put) {
    TxItem* before = nullptr;
    for (TxItem* item = head_; item != nullptr;) {
        TxItem* next = item->next;
        auto* stream = item->type == TxItem::Type::kStream ? static_cast<TxStream*>(item) : nullptr;
        if (stream == nullptr || stream->is_put != is_put ||
            (is_put ? stream->op : stream->owner_op) != op) {
            before = item;
            item = next;
            continue;
        }
        TxItem* instead = next;
        if (stream->is_in_frame()) {
            bool is_good = true;  // or not: nobody counts on the data
            TxChunk* rest = copy_rest(*stream, registrations, &is_good);
            if (rest == nullptr)
                return false;
            // A Done of which nothing was sent is not: another one follows.
            if (stream->tail_left < sizeof stream->tail)
                append_tail(*rest, *stream, stream->tail_left);
            rest->is_counted = true;
            rest->next = next;
            instead = rest;
        } else {
            ++written_;
        }
        (before != nullptr ? before->next : head_) = instead;
        if (tail_ == item)
            tail_ = instead == next ? before : instead;
        before = instead == next ? before : instead;
        gets_ -= is_put ? 0 : 1;
        const std::uint64_t reader_op = stream->op;
        pools.streams.destroy(stream);
        if (!is_put && !append_done(pools, reader_op, UCS_ERR_CANCELED))
            return false;
        item = before != nullptr ? before->next : head_;
    }
    return true;
}

}  // namespace tagwire::tcp
