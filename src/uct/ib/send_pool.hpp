// SPDX-License-Identifier: BSD-3-Clause
// A pool of send operations, each followed by registered memory for packed data, headers, or the
// data of a read.
//
//   element | SendOp | data: data_bytes |
//
// Threads: owner of the interface.
// Invariants
//  (1) An element is free or out; elements out + free = all. It never moves.
//  (2) get() allocates and registers only when none is free and fewer than `elements_max` exist.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

class MessageEp;
class SendPool;

struct SendOp {
    enum class Kind : std::uint8_t {
        kBuffer,    // data may be reused
        kUser,      // the completion runs
        kUnpack,    // get_bcopy: data is unpacked, then the completion
        kFetch,     // an atomic's old value goes to `result`
        kFlush,     // everything before it is done
        kCancel,    // the same of the flush that cancelled it: the only one that then succeeds
        kRndvRead,  // a part of a rendezvous that software carries out
    };

    struct Unpack {
        uct_unpack_callback_t call;
        void* arg;
        std::size_t bytes;
    };
    struct Result {
        void* to;
        std::uint8_t bytes;
    };

    SendOp* next;
    SendPool* pool;
    MessageEp* ep;
    uct_completion_t* comp;  // may be null
    union {
        Unpack unpack;
        Result result;
        void* read;            // kRndvRead: RndvRead
        std::uint64_t serial;  // kFlush, kCancel
    };
    std::uint32_t sn;  // of its last request in the send queue
    std::uint32_t lkey;
    Kind kind;

    [[nodiscard]] bool is_flush() const { return kind == Kind::kFlush || kind == Kind::kCancel; }
    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

class SendPool {
  public:
    SendPool() = default;
    ~SendPool();
    SendPool(const SendPool&) = delete;
    SendPool& operator=(const SendPool&) = delete;

    void init(const IbMd& md, std::size_t data_bytes, unsigned elements_max);

    /// Null: all are out, or there is no memory.
    SendOp* get() {
        if (free_ == nullptr && !grow()) [[unlikely]]
            return nullptr;
        SendOp* op = free_;
        free_ = op->next;
        ++out_;
        return op;
    }
    void put(SendOp* op) {
        op->next = free_;
        free_ = op;
        --out_;
    }
    [[nodiscard]] bool has_one() { return free_ != nullptr || grow(); }
    /// All that there may be are out.
    [[nodiscard]] bool is_exhausted() const { return free_ == nullptr && out_ >= elements_max_; }
    [[nodiscard]] unsigned out() const { return out_; }

  private:
    static constexpr unsigned kPerChunk = 64;
    static constexpr unsigned kPerChunkMin = 4;
    struct Chunk {
        void* memory;
        std::size_t bytes;
        OwnedMr mr;
    };

    bool grow();
    bool grow_by(unsigned count);

    const IbMd* md_ = nullptr;
    std::size_t stride_ = 0;
    unsigned elements_max_ = 0;
    unsigned elements_ = 0;
    unsigned out_ = 0;
    SendOp* free_ = nullptr;
    bool has_told_ = false;  // that there is no memory
    ucs::ReserveVector<Chunk> chunks_;
};

}  // namespace tagwire::ib
