// SPDX-License-Identifier: BSD-3-Clause
// An operation that outlives its call, and the pool of them.
//
// 1. The pool grows by slabs and keeps them: it holds as many operations as were under way at once.
// 2. A slab is aligned to its size, so that an operation leads to its slab, and an address that a
//    program hands in is checked in the logarithm of their number.
// 3. The index of contexts costs nothing until something is cancelled: a slab only notes that
//    operations have begun in it, and those are indexed by the next find().
#pragma once

#include <rdma/fabric.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tagwire::fi {

class Ep;

enum class OperationKind : std::uint8_t {
    kFree,
    kSend,
    kReceive,
    kListen,  ///< Takes all untagged messages of an endpoint with buffered receives.
    kShown    ///< A message that the program has been shown, to be claimed or discarded.
};

struct Operation {
    Ep* ep = nullptr;
    void* context = nullptr;
    OperationKind kind = OperationKind::kFree;
    bool is_reported = false;  ///< Success gets an entry.
    tw_request_h request = nullptr;
    Operation* next = nullptr;  ///< In the list of free ones.
    std::uint64_t flags = 0;    ///< Flags of its entry, besides those that the message decides.
    fi_recv_context shown{};    ///< kShown: what the program has of it.
    tw_message_h message = nullptr;  ///< kShown.
    Operation* chain = nullptr;      ///< The next one in its bucket of the index.
    Operation** link = nullptr;      ///< The pointer to it there; nullptr: it is not in the index.
};

/// Operations by the context that they were begun with. Those that have ended since are skipped.
class ContextIndex {
  public:
    /// Makes room for `count`; false: it had to drop everything for that, so add all again.
    bool reserve(std::size_t count);
    void add(Operation& begun);
    static void remove(Operation& known);
    Operation* find(OperationKind kind, const void* context);

  private:
    Operation*& bucket_of(const void* context);

    std::vector<Operation*> buckets_;  // a power of two
};

class OperationPool {
  public:
    explicit OperationPool(Ep& owner) : owner_(owner) {}

    /// nullptr: next() would have to make some.
    Operation* next_or_none() const { return free_; }
    /// The one that take() and begin() may be told; nullptr: no memory.
    Operation* next() {
        if (free_ == nullptr) [[unlikely]]
            grow();
        return free_;
    }
    /// `taken` is what next() has answered since the last call of these.
    void take(Operation& taken, OperationKind kind) {
        free_ = taken.next;
        taken.kind = kind;
    }
    /// A usual one: it has its context and its request already, is reported, and its callback knows
    /// the flags of its entry.
    void begin_usual(Operation& begun, OperationKind kind) {
        take(begun, kind);
        Slab::of(&begun)->is_indexed = false;
    }
    /// The same for what goes on behind its call.
    void begin(Operation& begun, OperationKind kind, void* context, std::uint64_t flags,
               bool is_reported, tw_request_h request) {
        free_ = begun.next;
        fill(begun, kind, context, flags, is_reported, request);
    }
    /// One that is nobody else's until begin_kept(); nullptr: no memory.
    Operation* keep() {
        Operation* const kept = next();
        if (kept != nullptr)
            free_ = kept->next;
        return kept;
    }
    void begin_kept(Operation& kept, OperationKind kind, void* context, std::uint64_t flags,
                    tw_request_h request) {
        fill(kept, kind, context, flags, true, request);
    }
    void put(Operation& done) {
        done.kind = OperationKind::kFree;
        done.next = free_;
        free_ = &done;
    }
    /// One of this kind that was begun with that context; nullptr: none such. May throw for want of
    /// memory.
    Operation* find(OperationKind kind, const void* context);
    /// The shown message of this record; nullptr: it is none. Any address may be asked for.
    Operation* find_shown(const void* record) const;

  private:
    static constexpr std::size_t kSlabBytes = 32768;
    static constexpr std::size_t kSlabOperations = (kSlabBytes - 64) / sizeof(Operation);

    struct alignas(kSlabBytes) Slab {
        bool is_indexed = true;
        Operation operations[kSlabOperations];

        static Slab* of(const void* inside) {
            return reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(inside) &
                                           ~std::uintptr_t{kSlabBytes - 1});
        }
    };
    static_assert(sizeof(Slab) == kSlabBytes);

    static void fill(Operation& begun, OperationKind kind, void* context, std::uint64_t flags,
                     bool is_reported, tw_request_h request) {
        begun.kind = kind;
        begun.context = context;
        begun.flags = flags;
        begun.is_reported = is_reported;
        begun.request = request;
        Slab::of(&begun)->is_indexed = false;
    }
    void grow();
    void index();

    Ep& owner_;
    Operation* free_ = nullptr;
    std::vector<std::unique_ptr<Slab>> slabs_;  // by address
    ContextIndex contexts_;
};

}  // namespace tagwire::fi
