// SPDX-License-Identifier: BSD-3-Clause
// The bytes of one connection that the kernel has not taken yet, in order: copied messages in
// chunks of a pool, and memory of the program or of registrations that is sent from its place.
//
//   head -> Chunk -> Stream -> Chunk <- tail        one system call takes many of them
//
// Owner thread only. Invariants
//  (1) A frame that has begun is sent to its end, or the connection ends.
//  (2) write() runs no callback of the program.
//  (3) Registered memory is read under a pin, by one system call (registrations.hpp), and by ones
//      that fail where it cannot be read.
#pragma once

#include <sys/uio.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/iov.hpp"
#include "uct/tcp/registrations.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

struct alignas(16) TxItem {
    enum class Type : std::uint8_t { kChunk, kStream };
    TxItem* next = nullptr;
    Type type;
};

struct TxChunk : TxItem {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t capacity = 0;
    bool is_heap = false;     // not of the pool
    bool is_counted = false;  // heap: stands for a stream, which counts one
    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// Frames of a put or of the reply to a get: as many as the length needs.
struct TxStream : TxItem {
    uct::IovCopy iov;
    uct::IovCursor cursor;  // where the program's memory goes on; gets: unused
    bool is_put = false;
    std::uint64_t op = 0;          // put: ours; get: the reader's
    std::uint64_t owner_op = 0;    // get: our rendezvous that it serves, 0: none
    std::uint64_t address = 0;     // put: theirs; get: ours
    Key key{};                     // put: theirs; get: ours
    std::uint64_t left = 0;        // behind the current frame
    std::uint32_t frame_left = 0;  // data of the current frame
    std::uint32_t pad_left = 0;
    std::uint32_t head_bytes = 0;
    std::uint32_t head_sent = 0;
    std::byte head[sizeof(FrameHead) + sizeof(PutBody)];
    /// Get: the Done behind the last frame.
    std::byte tail[sizeof(FrameHead) + sizeof(DoneBody)];
    std::uint32_t tail_left = 0;
    bool is_void = false;  // get: the key has ended; the frame is filled up with zeros

    [[nodiscard]] bool is_in_frame() const { return head_sent > 0; }
    void begin_frame();
    void set_tail(ucs_status_t status);
    void set_void();
    [[nodiscard]] std::byte* tail_to_send() { return tail + sizeof tail - tail_left; }
};

/// The pools of an interface.
struct TxPools {
    static constexpr std::uint32_t kChunkBytes = kSegBytesMax + 512;
    ucs::Mpool chunks;
    ucs::ObjectPool<TxStream> streams;
    /// Rendezvous whose data the kernel has, and puts whose source cannot be read; progress ends
    /// them.
    struct Sent {
        std::uint64_t op;
        ucs_status_t status;
    };
    ucs::ReserveVector<Sent> sent;
    ucs_status_t open();
};

class StreamWriter {
  public:
    StreamWriter() = default;
    StreamWriter(const StreamWriter&) = delete;
    StreamWriter& operator=(const StreamWriter&) = delete;

    [[nodiscard]] bool empty() const { return head_ == nullptr; }
    /// Copied bytes that wait.
    [[nodiscard]] std::uint32_t copied_bytes() const { return copied_bytes_; }
    /// Position of the next byte that is queued, and of the next that the kernel takes. Streams
    /// count one each, when they are at their end.
    [[nodiscard]] std::uint64_t queued() const { return queued_; }
    [[nodiscard]] std::uint64_t written() const { return written_; }

    /// Room for a frame of up to `bytes` <= kChunkBytes; commit() what was used of it. Null: no
    /// memory.
    std::byte* reserve(TxPools& pools, std::size_t bytes);
    void commit(std::size_t bytes);
    void push(TxStream& stream);

    /// Gives the kernel as much as it takes. UCS_OK: all. UCS_ERR_NO_RESOURCE: it is full.
    /// UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT: the connection is broken. Else it must
    /// end. A stream whose memory cannot be read fails alone.
    ucs_status_t write(int fd, TxPools& pools, Registrations& registrations);

    /// The memory of a put, or of a get from rendezvous `op`, is the program's again: the rest of
    /// a frame that has begun is copied. False: no memory, the connection must end.
    bool let_go(TxPools& pools, Registrations& registrations, std::uint64_t op, bool is_put);
    [[nodiscard]] std::uint32_t gets() const { return gets_; }
    /// False: no memory.
    bool append_done(TxPools& pools, std::uint64_t op, ucs_status_t status);
    void clear(TxPools& pools);

  private:
    struct Gathered;
    void append(TxItem& item);
    void pop_front(TxPools& pools);
    void consume(TxPools& pools, std::size_t bytes);
    ucs_status_t give(int fd, TxPools& pools, Registrations& registrations, bool* is_partial_p);
    /// The current frame of the oldest stream becomes a chunk. UCS_ERR_NO_MEMORY.
    ucs_status_t copy_first_stream(TxPools& pools, Registrations& registrations);
    void drop_stream(TxPools& pools, TxStream& stream, TxItem* before);
    static TxChunk* copy_rest(TxStream& stream, Registrations& registrations, bool* is_good_p);
    static void destroy(TxPools& pools, TxItem& item);

    TxItem* head_ = nullptr;
    TxItem* tail_ = nullptr;
    std::uint64_t queued_ = 0;
    std::uint64_t written_ = 0;
    std::uint32_t copied_bytes_ = 0;
    std::uint32_t gets_ = 0;
};

}  // namespace tagwire::tcp
