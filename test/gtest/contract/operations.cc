// SPDX-License-Identifier: BSD-3-Clause
#include "operations.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace tagwire::test {

namespace {

constexpr std::size_t kAmHeaderBytes = sizeof(std::uint64_t);

std::size_t pack_span(void* dest, void* arg) {
    const auto& bytes = *static_cast<const std::span<const std::byte>*>(arg);
    if (!bytes.empty())
        std::memcpy(dest, bytes.data(), bytes.size());
    return bytes.size();
}

ucs_status_t status_of(ssize_t packed, std::size_t expected) {
    if (packed < 0)
        return static_cast<ucs_status_t>(packed);
    return static_cast<std::size_t>(packed) == expected ? UCS_OK : UCS_ERR_IO_ERROR;
}

std::vector<MethodInfo> offered(const Entity& entity, std::vector<MethodInfo> all) {
    std::erase_if(all, [&](const MethodInfo& info) { return !entity.offers(info.flag); });
    return all;
}

void on_consumed(uct_tag_context_t* self) {
    ++static_cast<Receive*>(self)->consumed;
}

void on_completed(uct_tag_context_t* self, uct_tag_t tag, std::uint64_t imm, std::size_t length,
                  void* inline_data, ucs_status_t status) {
    auto& receive = *static_cast<Receive*>(self);
    ++receive.completed;
    receive.sender_tag = tag;
    receive.imm = imm;
    receive.length = length;
    receive.status = status;
    if (inline_data != nullptr && status == UCS_OK)
        std::memcpy(receive.buffer.data(), inline_data, length);
    if (receive.on_done)
        receive.on_done(receive);
}

void on_rndv_request(uct_tag_context_t* self, uct_tag_t tag, const void* header,
                     unsigned header_length, ucs_status_t status, unsigned) {
    auto& receive = *static_cast<Receive*>(self);
    ++receive.rndv_requests;
    receive.sender_tag = tag;
    receive.status = status;
    const auto* first = static_cast<const std::byte*>(header);
    if (header_length > 0)
        receive.header.assign(first, first + header_length);
    if (receive.on_done)
        receive.on_done(receive);
}

}  // namespace

Completion::Completion(int operations) : uct_completion_t{} {
    count = operations;
    status = UCS_OK;
    func = [](uct_completion_t* self) {
        auto& completion = *static_cast<Completion*>(self);
        ++completion.calls;
        completion.ended = completion.status;
        if (completion.on_done)
            completion.on_done();
    };
}

const char* name_of(Method method) {
    switch (method) {
        case Method::kShort:
            return "short";
        case Method::kBcopy:
            return "bcopy";
        case Method::kZcopy:
            return "zcopy";
    }
    return "?";
}

std::vector<MethodInfo> am_methods(const Entity& entity) {
    const auto& am = entity.attr().cap.am;
    return offered(entity, {{Method::kShort, UCT_IFACE_FLAG_AM_SHORT, kAmHeaderBytes, am.max_short},
                            {Method::kBcopy, UCT_IFACE_FLAG_AM_BCOPY, 0, am.max_bcopy},
                            {Method::kZcopy, UCT_IFACE_FLAG_AM_ZCOPY, am.min_zcopy, am.max_zcopy}});
}

std::vector<MethodInfo> eager_methods(const Entity& entity) {
    const auto& eager = entity.attr().cap.tag.eager;
    return offered(entity, {{Method::kShort, UCT_IFACE_FLAG_TAG_EAGER_SHORT, 0, eager.max_short},
                            {Method::kBcopy, UCT_IFACE_FLAG_TAG_EAGER_BCOPY, 0, eager.max_bcopy},
                            {Method::kZcopy, UCT_IFACE_FLAG_TAG_EAGER_ZCOPY, 0, eager.max_zcopy}});
}

std::vector<MethodInfo> put_methods(const Entity& entity) {
    const auto& put = entity.attr().cap.put;
    return offered(entity,
                   {{Method::kShort, UCT_IFACE_FLAG_PUT_SHORT, 0, put.max_short},
                    {Method::kBcopy, UCT_IFACE_FLAG_PUT_BCOPY, 0, put.max_bcopy},
                    {Method::kZcopy, UCT_IFACE_FLAG_PUT_ZCOPY, put.min_zcopy, put.max_zcopy}});
}

std::vector<MethodInfo> get_methods(const Entity& entity) {
    const auto& get = entity.attr().cap.get;
    return offered(entity,
                   {{Method::kShort, UCT_IFACE_FLAG_GET_SHORT, 0, get.max_short},
                    {Method::kBcopy, UCT_IFACE_FLAG_GET_BCOPY, 0, get.max_bcopy},
                    {Method::kZcopy, UCT_IFACE_FLAG_GET_ZCOPY, get.min_zcopy, get.max_zcopy}});
}

std::vector<std::size_t> edge_sizes(std::size_t bytes_min, std::size_t bytes_max) {
    const std::size_t last = std::min(bytes_max, kBytesTried);
    std::set<std::size_t> sizes = {0,    1,    8,    9,    63,    64,    65,    127,    128,   129,
                                   4095, 4096, 8191, 8192, 65535, 65536, 65537, 131072, 262145};
    sizes.insert({bytes_min, bytes_min + 1, last, last > 0 ? last - 1 : 0});
    std::erase_if(sizes, [&](std::size_t size) { return size < bytes_min || size > last; });
    return {sizes.begin(), sizes.end()};
}

std::vector<std::size_t> edge_parts(std::size_t iov_max) {
    constexpr std::size_t kPartsTried = 64;
    const std::size_t last = std::min(iov_max, kPartsTried);
    std::set<std::size_t> parts = {1, 2, last};
    std::erase_if(parts, [&](std::size_t count) { return count == 0 || count > last; });
    return {parts.begin(), parts.end()};
}

std::vector<uct_iov_t> split(const Buffer& buffer, std::size_t bytes, std::size_t parts) {
    std::vector<uct_iov_t> iov;
    std::size_t offset = 0;
    for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t length = i + 1 == parts ? bytes - offset : bytes / parts;
        iov.push_back(buffer.iov(offset, length));
        offset += length;
    }
    return iov;
}

ucs_status_t send_am(uct_ep_h ep, const Entity& from, Method method, std::uint8_t id,
                     const Buffer& bytes, uct_completion_t* completion) {
    switch (method) {
        case Method::kShort: {
            std::uint64_t header = 0;
            std::memcpy(&header, bytes.data(), sizeof header);
            return uct_ep_am_short(ep, id, header, bytes.data() + sizeof header,
                                   static_cast<unsigned>(bytes.size() - sizeof header));
        }
        case Method::kBcopy: {
            std::span<const std::byte> span = bytes.span();
            return status_of(uct_ep_am_bcopy(ep, id, pack_span, &span, 0), bytes.size());
        }
        case Method::kZcopy: {
            const std::size_t header =
                std::min({bytes.size(), kAmHeaderBytes, from.attr().cap.am.max_hdr});
            const uct_iov_t iov = bytes.iov(header, bytes.size() - header);
            return uct_ep_am_zcopy(ep, id, bytes.data(), static_cast<unsigned>(header), &iov, 1, 0,
                                   completion);
        }
    }
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t send_eager(uct_ep_h ep, Method method, uct_tag_t tag, std::uint64_t imm,
                        const Buffer& bytes, uct_completion_t* completion) {
    switch (method) {
        case Method::kShort:
            return uct_ep_tag_eager_short(ep, tag, bytes.data(), bytes.size());
        case Method::kBcopy: {
            std::span<const std::byte> span = bytes.span();
            return status_of(uct_ep_tag_eager_bcopy(ep, tag, imm, pack_span, &span, 0),
                             bytes.size());
        }
        case Method::kZcopy: {
            const uct_iov_t iov = bytes.iov();
            return uct_ep_tag_eager_zcopy(ep, tag, imm, &iov, 1, 0, completion);
        }
    }
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t send_am_bytes(uct_ep_h ep, std::uint8_t id, std::span<const std::byte> bytes) {
    return status_of(uct_ep_am_bcopy(ep, id, pack_span, &bytes, 0), bytes.size());
}

ucs_status_t send_eager_bytes(uct_ep_h ep, uct_tag_t tag, std::uint64_t imm,
                              std::span<const std::byte> bytes) {
    return status_of(uct_ep_tag_eager_bcopy(ep, tag, imm, pack_span, &bytes, 0), bytes.size());
}

Receive::Receive(Entity& owner, std::size_t bytes) : Receive(owner, bytes, plain_backing(owner)) {}

Receive::Receive(Entity& owner, std::size_t bytes, Backing backing)
    : uct_tag_context_t{}, buffer(owner, bytes, backing), owner_(&owner) {
    tag_consumed_cb = on_consumed;
    completed_cb = on_completed;
    rndv_cb = on_rndv_request;
}

ucs_status_t Receive::post(uct_tag_t tag, uct_tag_t mask) {
    const uct_iov_t iov = buffer.iov();
    return post_iov(tag, mask, {&iov, 1});
}

ucs_status_t Receive::post_iov(uct_tag_t tag, uct_tag_t mask, std::span<const uct_iov_t> iov) {
    consumed = completed = rndv_requests = 0;
    status = UCS_INPROGRESS;
    length = 0;
    header.clear();
    return uct_iface_tag_recv_zcopy(owner_->iface(), tag, mask, iov.data(), iov.size(), this);
}

ucs_status_t Receive::cancel(bool force) {
    return uct_iface_tag_recv_cancel(owner_->iface(), this, force ? 1 : 0);
}

std::span<const std::byte> Receive::received() const {
    return {buffer.data(), std::min(length, buffer.size())};
}

Backing plain_backing(const Entity& entity) {
    return (entity.md_attr().cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0 ? Backing::kRegistered
                                                                     : Backing::kUnknown;
}

Buffer make_payload(Entity& owner, std::size_t length, std::uint64_t seed) {
    Buffer buffer(owner, length, plain_backing(owner));
    fill_pattern(buffer.span(), seed);
    return buffer;
}

}  // namespace tagwire::test
