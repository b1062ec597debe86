// SPDX-License-Identifier: BSD-3-Clause
#include "buffer.hpp"

#include <stdexcept>
#include <utility>

namespace tagwire::test {

namespace {

std::byte pattern_byte(std::size_t i, std::uint64_t seed) {
    std::uint64_t x =
        (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15 + seed * 0xd1b54a32d192ed03;
    x ^= x >> 29;
    return static_cast<std::byte>(x * 0xbf58476d1ce4e5b9 >> 56);
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = pattern_byte(i, seed);
}

Bytes pattern(std::size_t length, std::uint64_t seed) {
    Bytes bytes(length);
    fill_pattern(bytes, seed);
    return bytes;
}

std::size_t first_mismatch(std::span<const std::byte> bytes, std::uint64_t seed) {
    std::size_t i = 0;
    while (i < bytes.size() && bytes[i] == pattern_byte(i, seed))
        ++i;
    return i;
}

bool has_pattern(std::span<const std::byte> bytes, std::uint64_t seed) {
    return first_mismatch(bytes, seed) == bytes.size();
}

const char* name_of(Backing backing) {
    switch (backing) {
        case Backing::kAllocated:
            return "allocated memory";
        case Backing::kRegistered:
            return "registered memory";
        case Backing::kUnknown:
            return "memory without a handle";
    }
    return "?";
}

Buffer::Buffer(Entity& owner, std::size_t length, Backing backing)
    : owner_(&owner), length_(length), backing_(backing) {
    const std::size_t bytes = std::max<std::size_t>(length, 1);  // an address even for nothing
    if (backing == Backing::kAllocated) {
        uct_md_h md = owner.md();
        const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
        uct_mem_alloc_params_t params = {};
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_NAME;
        params.flags = UCT_MD_MEM_ACCESS_ALL;
        params.mem_type = UCS_MEMORY_TYPE_HOST;
        params.mds.mds = &md;
        params.mds.count = 1;
        params.name = "contract";
        require_ok(uct_mem_alloc(bytes, &method, 1, &params, &allocated_), "uct_mem_alloc");
        data_ = static_cast<std::byte*>(allocated_.address);
        memh_ = allocated_.memh;
        return;
    }
    storage_.resize(bytes);
    data_ = storage_.data();
    if (backing == Backing::kRegistered) {
        require_ok(uct_md_mem_reg(owner.md(), data_, bytes, UCT_MD_MEM_ACCESS_ALL, &memh_),
                   "uct_md_mem_reg");
    }
}

Buffer::Buffer(Buffer&& other) noexcept
    : owner_(other.owner_),
      length_(other.length_),
      backing_(other.backing_),
      data_(std::exchange(other.data_, nullptr)),
      storage_(std::move(other.storage_)),
      allocated_(other.allocated_),
      memh_(std::exchange(other.memh_, nullptr)) {}

Buffer::~Buffer() {
    if (data_ == nullptr)
        return;
    if (backing_ == Backing::kAllocated)
        uct_mem_free(&allocated_);
    if (backing_ == Backing::kRegistered)
        uct_md_mem_dereg(owner_->md(), memh_);
}

Bytes Buffer::packed_rkey() const {
    Bytes packed(owner_->md_attr().rkey_packed_size);
    require_ok(uct_md_mkey_pack(owner_->md(), memh_, packed.data()), "uct_md_mkey_pack");
    return packed;
}

uct_iov_t Buffer::iov(std::size_t offset, std::size_t length) const {
    uct_iov_t entry = {};
    entry.buffer = data_ + offset;
    entry.length = length;
    entry.memh = memh_;
    entry.stride = 0;
    entry.count = 1;
    return entry;
}

bool can_make(const Entity& entity, Backing backing) {
    const std::uint64_t flags = entity.md_attr().cap.flags;
    switch (backing) {
        case Backing::kAllocated:
            return (flags & UCT_MD_FLAG_ALLOC) != 0;
        case Backing::kRegistered:
            return (flags & UCT_MD_FLAG_REG) != 0;
        case Backing::kUnknown:
            return true;
    }
    return false;
}

std::vector<Backing> remote_backings(const Entity& entity) {
    std::vector<Backing> kinds;
    for (const Backing backing : {Backing::kAllocated, Backing::kRegistered})
        if (can_make(entity, backing))
            kinds.push_back(backing);
    return kinds;
}

std::vector<Backing> local_backings(const Entity& entity) {
    std::vector<Backing> kinds = remote_backings(entity);
    if ((entity.md_attr().cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0)
        kinds.push_back(Backing::kUnknown);
    return kinds;
}

RemoteKey::RemoteKey(const Entity& user, const Bytes& packed) : component_(user.component()) {
    require_ok(uct_rkey_unpack(component_, packed.data(), &bundle_), "uct_rkey_unpack");
}

RemoteKey::~RemoteKey() {
    uct_rkey_release(component_, &bundle_);
}

}  // namespace tagwire::test
