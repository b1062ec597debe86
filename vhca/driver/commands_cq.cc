// SPDX-License-Identifier: BSD-3-Clause
// Completion queues and completion channels.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::uint32_t kEntryBytesPlain = 64, kEntryBytesWide = 128;

/// Identity of a pipe. 0: no descriptor.
ChannelObject* find_channel(const Context& context, int fd) {
    const auto found = context.channels.find(inode_of(fd));
    return found == context.channels.end() ? nullptr : found->second.get();
}

/// Channels whose descriptor the program closed: the kernel is told, we look.
void drop_closed(Context& context) {
    std::erase_if(context.channels, [](const auto& item) {
        const auto& [inode, channel] = item;
        return channel->users == 0 && inode_of(channel->pipe->program_fd()) != inode;
    });
}

/// Entries of a ring for `cqe` completions: a power of two, one more than is told. 0: too many.
std::uint32_t entries_for(const Context& context, std::uint32_t cqe) {
    const std::uint32_t entries_max = context.engine.device().config().cqe_max + 1;
    return cqe == 0 || cqe >= entries_max ? 0 : std::bit_ceil(cqe + 1);
}

int read_ring(const Context& context, const Call& call, mlx5_ib_create_cq* ring) {
    if (call.driver_in.bytes < offsetof(mlx5_ib_create_cq, flags))
        return EINVAL;
    if (const int error = read_user(call.driver_in, ring))
        return error;
    constexpr unsigned kKnown = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD |
                                MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX |
                                MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
    if ((ring->flags & ~kKnown) != 0 || ring->reserved0 != 0 || ring->reserved1 != 0 ||
        (ring->cqe_size != kEntryBytesPlain && ring->cqe_size != kEntryBytesWide)) {
        return EINVAL;
    }
    if ((ring->flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0 &&
        !has_doorbell_page(context, ring->uar_page_index)) {
        return EINVAL;
    }
    const bool pads = (ring->flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0;
    const bool is_real_time = (ring->flags & MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) != 0;
    if (ring->cqe_comp_en != 0 || is_real_time || (pads && ring->cqe_size != kEntryBytesWide))
        return EOPNOTSUPP;
    return 0;
}

CqeOwner owner_of(const Completion& completion) {
    CqeOwner owner{.qpn = completion.wc.qp_num};
    if (completion.tag_srq_user != nullptr) {
        owner.user_index = static_cast<const SrqObject*>(completion.tag_srq_user)->user_index;
        owner.is_tag_matching = true;
    } else if (completion.qp_user != nullptr) {
        owner.user_index = static_cast<const QpObject*>(completion.qp_user)->user_index;
    }
    return owner;
}

/// In the table; nothing was answered yet.
int make_cq(Context& context, const ib_uverbs_ex_create_cq& request, const Call& call,
            std::uint32_t* handle_p) {
    if (request.comp_vector >= kCompVectors)
        return EINVAL;
    ChannelObject* channel = nullptr;
    if (request.comp_channel >= 0) {
        channel = find_channel(context, request.comp_channel);
        if (channel == nullptr)
            return EBADF;
    }
    const std::uint32_t entries = entries_for(context, request.cqe);
    if (entries == 0)
        return EINVAL;
    constexpr std::uint32_t kFlags =
        IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    if ((request.flags & ~kFlags) != 0)
        return EOPNOTSUPP;
    mlx5_ib_create_cq ring;
    if (const int error = read_ring(context, call, &ring))
        return error;
    const RingMemory memory{
        .address = ring.buf_addr, .entries = entries, .entry_bytes = ring.cqe_size};
    if (const int error = check_ring(memory.address, memory.bytes(), ring.db_addr))
        return error;
    auto cq = std::make_unique<CqObject>();
    cq->context = &context;
    cq->user_handle = request.user_handle;
    cq->channel = channel;
    cq->ring = std::make_unique<CqRing>(
        CqRing::Config{.ring = memory,
                       .record = ring.db_addr,
                       .number = context.poller.take_cq_number(),
                       .ignores_overrun = (request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0,
                       .kind = packet_kind_of(context.engine),
                       .channel = channel != nullptr ? channel->pipe.get() : nullptr,
                       .user_handle = request.user_handle,
                       .owner_of = owner_of});
    if (const int error = context.engine.device().create_cq(
            {.cqe = entries - 1, .user = cq.get(), .consumer = cq->ring.get()}, &cq->core)) {
        return error;
    }
    if (channel != nullptr)
        ++channel->users;
    context.poller.add(*cq);
    *handle_p = context.cqs.add(std::move(cq));
    return 0;
}

int answer(const Context& context, std::uint32_t handle, const Call& call,
           ib_uverbs_create_cq_resp* response) {
    const CqRing& ring = *context.cqs.find(handle)->ring;
    response->cq_handle = handle;
    response->cqe = ring.entries() - 1;
    return write_user(call.driver_out, mlx5_ib_create_cq_resp{.cqn = ring.number(), .reserved = 0});
}

}  // namespace

int check_ring(std::uint64_t address, std::uint64_t bytes, std::uint64_t record) {
    constexpr std::uint64_t kRecordBytes = 8, kRingAlignment = 64;
    const auto is_there = [](std::uint64_t first, std::uint64_t count) {
        return check_mapping(reinterpret_cast<const void*>(first), count, true) == 0;
    };
    if (address % kRingAlignment != 0 || record % kRecordBytes != 0)
        return EINVAL;
    return is_there(address, bytes) && is_there(record, kRecordBytes) ? 0 : EFAULT;
}

int create_comp_channel(Context& context, const Call& call) {
    drop_closed(context);
    auto channel = std::make_unique<ChannelObject>();
    channel->pipe = EventPipe::create(sizeof(ib_uverbs_comp_event_desc));
    if (channel->pipe == nullptr)
        return errno;
    const int fd = channel->pipe->program_fd();
    const ib_uverbs_create_comp_channel_resp response{.fd = static_cast<std::uint32_t>(fd)};
    if (const int error = write_response(call.core_out, response)) {
        ::close(fd);
        return error;
    }
    context.channels[inode_of(fd)] = std::move(channel);
    return 0;
}

int create_cq(Context& context, const Call& call) {
    ib_uverbs_create_cq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    const ib_uverbs_ex_create_cq full{.user_handle = request.user_handle,
                                      .cqe = request.cqe,
                                      .comp_vector = request.comp_vector,
                                      .comp_channel = request.comp_channel,
                                      .comp_mask = 0,
                                      .flags = 0,
                                      .reserved = 0};
    std::uint32_t handle = 0;
    if (const int error = make_cq(context, full, call, &handle))
        return error;
    ib_uverbs_create_cq_resp response{};
    int error = answer(context, handle, call, &response);
    if (error == 0)
        error = write_response(call.core_out, response);
    if (error != 0)
        static_cast<void>(end_object(context, context.cqs, handle));
    return error;
}

int create_cq_ex(Context& context, const Call& call) {
    ib_uverbs_ex_create_cq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if (request.comp_mask != 0 || request.reserved != 0)
        return EINVAL;
    std::uint32_t handle = 0;
    if (const int error = make_cq(context, request, call, &handle))
        return error;
    ib_uverbs_ex_create_cq_resp response{};
    response.response_length = response_length<ib_uverbs_ex_create_cq_resp>(call.core_out);
    int error = answer(context, handle, call, &response.base);
    if (error == 0)
        error = write_response(call.core_out, response);
    if (error != 0)
        static_cast<void>(end_object(context, context.cqs, handle));
    return error;
}

int resize_cq(Context& context, const Call& call) {
    ib_uverbs_resize_cq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    CqObject* cq = find_named(context.cqs, call, request.cq_handle);
    if (cq == nullptr)
        return EINVAL;
    const std::uint32_t entries = entries_for(context, request.cqe);
    if (entries == 0)
        return EINVAL;
    if (entries != cq->ring->entries()) {
        mlx5_ib_resize_cq ring;
        if (call.driver_in.bytes < sizeof ring)
            return EINVAL;
        if (const int error = read_user(call.driver_in, &ring))
            return error;
        if (ring.reserved0 != 0 || ring.reserved1 != 0 ||
            ring.cqe_size != cq->ring->entry_bytes()) {  // queue pairs were made for these
            return EINVAL;
        }
        const RingMemory memory{
            .address = ring.buf_addr, .entries = entries, .entry_bytes = ring.cqe_size};
        if (const int error = check_ring(memory.address, memory.bytes(), memory.address))
            return error;
        // The completions of all that was posted before the command count, as with a card, which
        // is faster than a command.
        context.qps.for_each([&](std::uint32_t, QpObject& qp) {
            if (qp.send_cq == cq || qp.recv_cq == cq)
                context.poller.settle(qp, context.engine.now());
        });
        if (const int error = cq->ring->resize(memory))
            return error;
    }
    ib_uverbs_resize_cq_resp response{};
    response.cqe = entries - 1;
    return write_user(call.core_out, response);
}

// The device has no moderation of completion events.
int modify_cq_ex(Context& context, const Call& call) {
    ib_uverbs_ex_modify_cq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if (request.attr_mask == 0 || request.reserved != 0)
        return EINVAL;
    if (request.attr_mask > IBV_CQ_ATTR_MODERATE)
        return EOPNOTSUPP;
    return find_named(context.cqs, call, request.cq_handle) == nullptr ? EINVAL : EOPNOTSUPP;
}

int Context::remove(CqObject& cq) {
    if (const int error = engine.device().destroy_cq(*cq.core))
        return error;
    poller.remove(cq);
    cq.comp_events = cq.ring->retire();
    cq.async_events = retire_events(cq.user_handle, cq.async_events,
                                    [](std::uint32_t type) { return type == IBV_EVENT_CQ_ERR; });
    if (cq.channel != nullptr)
        --cq.channel->users;
    return 0;
}

int destroy_cq(Context& context, const Call& call) {
    ib_uverbs_destroy_cq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    CqObject* cq = find_named(context.cqs, call, request.cq_handle);
    if (cq == nullptr)
        return ENOENT;
    if (const int error = context.remove(*cq))
        return error;
    const ib_uverbs_destroy_cq_resp response{.comp_events_reported = cq->comp_events,
                                             .async_events_reported = cq->async_events};
    static_cast<void>(context.cqs.take(request.cq_handle));
    drop_closed(context);
    return write_response(call.core_out, response);
}

}  // namespace tagwire::vhca::driver
