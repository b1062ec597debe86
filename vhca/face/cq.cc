// SPDX-License-Identifier: BSD-3-Clause
// Completion queues and completion channels.
#include <cerrno>
#include <new>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca {
namespace {

constexpr std::uint64_t kWcFlags =
    std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_TM_INFO;

std::uint64_t offered_wc_flags() {
    constexpr std::uint64_t kTimestamps = std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
                                          IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    return hardware_profile().has_timestamps ? kWcFlags : kWcFlags & ~kTimestamps;
}

int check(const FaceContext& context, const ibv_cq_init_attr_ex& attr) {
    if (attr.cqe == 0 || attr.cqe > context.engine->device().config().cqe_max ||
        attr.comp_vector >= kCompVectors) {
        return EINVAL;
    }
    const bool flags_known = (attr.comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) == 0;
    const bool has_flags = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
    const std::uint32_t flags = has_flags ? attr.flags : 0;
    const bool plain = (flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) == 0;
    return flags_known && plain && (attr.wc_flags & ~offered_wc_flags()) == 0 ? 0 : EOPNOTSUPP;
}

std::int64_t wallclock_offset_ns(Engine& engine) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec - static_cast<std::int64_t>(engine.now());
}

void fill(FaceCq& made, FaceContext& context, const ibv_cq_init_attr_ex& attr) {
    made.engine = context.engine;
    made.cq.context = &context.verbs.context;
    made.cq.channel = attr.channel;
    made.cq.cq_context = attr.cq_context;
    pthread_mutex_init(&made.cq.mutex, nullptr);
    pthread_cond_init(&made.cq.cond, nullptr);
    if ((attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0)
        made.wallclock_offset_ns = wallclock_offset_ns(*context.engine);
    if (attr.channel != nullptr) {
        pthread_mutex_lock(&context.verbs.context.mutex);
        ++attr.channel->refcnt;
        pthread_mutex_unlock(&context.verbs.context.mutex);
    }
}

}  // namespace

ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    FaceContext& owner = face(context);
    if (const int error = check(owner, *attr))
        return fail(error);
    auto* made = new (std::nothrow) FaceCq{};
    if (made == nullptr)
        return fail(ENOMEM);
    int error = 0;
    {
        const auto guard = owner.engine->lock();
        error = owner.engine->device().create_cq({.cqe = attr->cqe, .user = made}, &made->core);
        if (error == 0)
            owner.cqs.push_back(*made);
    }
    if (error != 0) {
        delete made;
        return fail(error);
    }
    made->cq.cqe = static_cast<int>(made->core->cqe());
    fill(*made, owner, *attr);
    fill_cq_readers(&made->cq, attr->wc_flags);
    return &made->cq;
}

int remove(FaceCq& cq) {
    FaceContext& owner = face(cq.cq.context);
    {
        const auto guard = cq.engine->lock();
        if (const int error = cq.engine->device().destroy_cq(*cq.core))
            return error;
        owner.cqs.erase(cq);
    }
    if (cq.cq.channel != nullptr) {
        face(cq.cq.channel).events.erase_if([&](const CompletionEvent& e) { return e.cq == &cq; });
        pthread_mutex_lock(&owner.verbs.context.mutex);
        --cq.cq.channel->refcnt;
        pthread_mutex_unlock(&owner.verbs.context.mutex);
    }
    owner.async_events.erase_if(
        [&](const AsyncEvent& e) { return e.delivered == &cq.async_events_delivered; });
    return 0;
}

void dispose(FaceCq& cq) {
    pthread_cond_destroy(&cq.cq.cond);
    pthread_mutex_destroy(&cq.cq.mutex);
    delete &cq;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_cq* tagwire_vhca_ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                   ibv_comp_channel* channel, int comp_vector) {
    if (cqe <= 0 || comp_vector < 0)
        return fail(EINVAL);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = static_cast<std::uint32_t>(cqe);
    attr.cq_context = cq_context;
    attr.channel = channel;
    attr.comp_vector = static_cast<std::uint32_t>(comp_vector);
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex* made = create_cq_ex_op(context, &attr);
    if (made == nullptr)
        return nullptr;
    face(made).is_plain = true;
    return ibv_cq_ex_to_cq(made);
}

int tagwire_vhca_ibv_resize_cq(ibv_cq* cq, int cqe) {
    FaceCq& queue = face(cq);
    if (cqe <= 0 || static_cast<std::uint32_t>(cqe) > queue.engine->device().config().cqe_max)
        return EINVAL;
    const auto guard = queue.engine->lock();
    if (const int error = queue.core->resize(static_cast<std::uint32_t>(cqe)))
        return error;
    cq->cqe = static_cast<int>(queue.core->cqe());
    return 0;
}

int tagwire_vhca_ibv_destroy_cq(ibv_cq* cq) {
    FaceCq& queue = face(cq);
    if (const int error = remove(queue))
        return error;
    wait_for_acks(&cq->mutex, &cq->cond, cq->comp_events_completed, queue.comp_events_delivered);
    wait_for_acks(&cq->mutex, &cq->cond, cq->async_events_completed, queue.async_events_delivered);
    dispose(queue);
    return 0;
}

ibv_comp_channel* tagwire_vhca_ibv_create_comp_channel(ibv_context* context) {
    auto* made = new (std::nothrow) FaceChannel{};
    if (made == nullptr)
        return fail(ENOMEM);
    if (made->events.fd() < 0) {
        const int error = errno;
        delete made;
        return fail(error);
    }
    made->channel.context = context;
    made->channel.fd = made->events.fd();
    return &made->channel;
}

int tagwire_vhca_ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    pthread_mutex_t& mutex = channel->context->mutex;
    pthread_mutex_lock(&mutex);
    const bool is_used = channel->refcnt != 0;
    pthread_mutex_unlock(&mutex);
    if (is_used)
        return EBUSY;
    delete &face(channel);
    return 0;
}
