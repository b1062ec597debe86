// SPDX-License-Identifier: BSD-3-Clause
#include "operation.hpp"

#include <algorithm>
#include <bit>
#include <exception>

namespace tagwire::fi {

// ---- The index

bool ContextIndex::reserve(std::size_t count) {
    if (count <= buckets_.size())
        return true;
    std::vector<Operation*> larger(std::bit_ceil(count));
    for (Operation* bucket : buckets_)
        for (Operation* known = bucket; known != nullptr; known = known->chain)
            known->link = nullptr;
    buckets_ = std::move(larger);
    return false;
}

Operation*& ContextIndex::bucket_of(const void* context) {
    // Contexts are addresses or small numbers; the product's upper half has all their bits.
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(context) * kGolden;
    return buckets_[(mixed >> 32) & (buckets_.size() - 1)];
}

void ContextIndex::add(Operation& begun) {
    Operation*& bucket = bucket_of(begun.context);
    begun.chain = bucket;
    begun.link = &bucket;
    if (bucket != nullptr)
        bucket->link = &begun.chain;
    bucket = &begun;
}

void ContextIndex::remove(Operation& known) {
    *known.link = known.chain;
    if (known.chain != nullptr)
        known.chain->link = known.link;
    known.link = nullptr;
}

Operation* ContextIndex::find(OperationKind kind, const void* context) {
    Operation* next = nullptr;
    for (Operation* known = bucket_of(context); known != nullptr; known = next) {
        next = known->chain;
        if (known->kind == OperationKind::kFree)
            remove(*known);
        else if (known->kind == kind && known->context == context)
            return known;
    }
    return nullptr;
}

// ---- The pool

void OperationPool::grow() {
    Slab* made = nullptr;
    try {
        slabs_.reserve(slabs_.size() + 1);
        auto slab = std::make_unique<Slab>();
        made = slab.get();
        const auto place = std::ranges::upper_bound(slabs_, slab);
        slabs_.insert(place, std::move(slab));
    } catch (const std::exception&) {
        return;
    }
    for (std::size_t i = kSlabOperations; i-- > 0;) {
        made->operations[i].ep = &owner_;
        put(made->operations[i]);
    }
}

void OperationPool::index() {
    const bool holds_all = contexts_.reserve(slabs_.size() * kSlabOperations);
    for (const auto& slab : slabs_) {
        if (holds_all && slab->is_indexed)
            continue;
        for (Operation& operation : slab->operations) {
            if (operation.link != nullptr)
                ContextIndex::remove(operation);
            if (operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive)
                contexts_.add(operation);
        }
        slab->is_indexed = true;
    }
}

Operation* OperationPool::find(OperationKind kind, const void* context) {
    if (slabs_.empty())
        return nullptr;
    index();
    return contexts_.find(kind, context);
}

Operation* OperationPool::find_shown(const void* record) const {
    Slab* const slab = Slab::of(record);
    const auto found = std::ranges::lower_bound(
        slabs_, slab, {}, [](const std::unique_ptr<Slab>& owned) { return owned.get(); });
    if (found == slabs_.end() || found->get() != slab)
        return nullptr;
    const auto at = reinterpret_cast<std::uintptr_t>(record);
    const auto first = reinterpret_cast<std::uintptr_t>(&slab->operations[0].shown);
    const std::size_t number = (at - first) / sizeof(Operation);
    if (at < first || (at - first) % sizeof(Operation) != 0 || number >= kSlabOperations)
        return nullptr;
    Operation& operation = slab->operations[number];
    return operation.kind == OperationKind::kShown ? &operation : nullptr;
}

}  // namespace tagwire::fi
