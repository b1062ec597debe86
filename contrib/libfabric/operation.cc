// SPDX-License-Identifier: BSD-3-Clause
#include "operation.hpp"

#include <exception>

namespace tagwire::fi {

void OperationPool::grow() {
    try {
        slabs_.reserve(slabs_.size() + 1);
        slabs_.push_back(std::make_unique<Operation[]>(kSlabOperations));
    } catch (const std::exception&) {
        return;
    }
    for (std::size_t i = kSlabOperations; i-- > 0;) {
        slabs_.back()[i].ep = &owner_;
        put(slabs_.back()[i]);
    }
}

Operation* OperationPool::find(OperationKind kind, const void* context) const {
    for (const auto& slab : slabs_) {
        for (std::size_t i = 0; i < kSlabOperations; ++i) {
            if (slab[i].kind == kind && slab[i].context == context)
                return &slab[i];
        }
    }
    return nullptr;
}

Operation* OperationPool::find_shown(const void* record) const {
    for (const auto& slab : slabs_) {
        for (std::size_t i = 0; i < kSlabOperations; ++i) {
            if (slab[i].kind == OperationKind::kShown && &slab[i].shown == record)
                return &slab[i];
        }
    }
    return nullptr;
}

}  // namespace tagwire::fi
