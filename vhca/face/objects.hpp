// SPDX-License-Identifier: BSD-3-Clause
// Objects behind the program's handles: the structure of <infiniband/verbs.h>, then fields of the
// face.
//
// Each owns its object of the device. All calls of the device happen under Engine::lock(); the
// fields of libibverbs' own structures are used as libibverbs uses them.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "ucs/sys/fd.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/engine/engine.hpp"
#include "vhca/engine/mutex.hpp"
#include "vhca/face/event_queue.hpp"
#include "vhca/setup/pinning.hpp"

namespace tagwire::vhca {

struct FaceCq;

struct CompletionEvent {
    FaceCq* cq;
    void note_delivered() const;
};

struct AsyncEvent {
    ibv_async_event event;
    std::uint32_t* delivered;  // of the object that it is about; nullptr: it is about none
    void note_delivered() const {
        if (delivered != nullptr)
            ++*delivered;
    }
};

struct FacePd {
    ibv_pd pd;
    Pd* core;
    ucs::ListLink<FacePd> of_context;
};

struct FaceMr {
    ibv_mr mr;
    Mr* core;
    Pinned pinned;
    ucs::ListLink<FaceMr> of_context;
};

struct FaceAh {
    ibv_ah ah;
    Route route;
    ucs::ListLink<FaceAh> of_context;
};

struct FaceChannel {
    ibv_comp_channel channel;
    EventQueue<CompletionEvent> events;
};

struct FaceCq {
    ibv_cq_ex cq;
    Cq* core;
    Engine* engine;
    std::int64_t wallclock_offset_ns;  // CLOCK_REALTIME less the engine's clock
    std::uint32_t comp_events_delivered;
    std::uint32_t async_events_delivered;
    bool is_plain;       // of ibv_create_cq(): tag matching has no use for it
    bool has_more;       // behind `current`, when that was taken
    Completion current;  // what read_*() reads
    ucs::ListLink<FaceCq> of_context;

    [[nodiscard]] ibv_cq* handle() { return ibv_cq_ex_to_cq(&cq); }
};

struct FaceSrq {
    ibv_srq srq;
    Srq* core;
    Engine* engine;
    std::uint32_t events_delivered;
    ucs::ListLink<FaceSrq> of_context;
};

/// Requests between ibv_wr_start() and ibv_wr_complete(); the lock is held in between, as libmlx5
/// holds that of the send queue.
struct SendBuilder {
    struct Entry {
        SendWork work;
        std::size_t sge_first, sge_count;
        std::size_t inline_first;
    };
    EngineMutex mutex;
    std::vector<Entry> entries;
    std::vector<ibv_sge> sges;
    std::vector<std::byte> inline_bytes;  // those in use, then room
    std::size_t inline_used;
    int error;  // of the first setter that failed
};

struct FaceQp {
    ibv_qp_ex qp;
    Qp* core;
    Engine* engine;
    std::uint32_t events_delivered;
    bool signals_all;
    SendBuilder* builder;  // owned; only with send_ops_flags
    mlx5dv_qp_ex dv;       // of a DCI
    DcKind dc;
    ucs::ListLink<FaceQp> of_context;
};

struct FaceContext;

/// Events of no object, into the queue of the context.
struct FaceListener final : DeviceListener {
    explicit FaceListener(FaceContext& owner_) : owner(owner_) {}
    void device_event(ibv_event_type type, unsigned port) override;
    FaceContext& owner;
};

struct FaceContext {
    verbs_context verbs{};  // verbs.context is the program's handle
    Engine* engine = nullptr;
    ucs::UniqueFd command_fd;
    EventQueue<AsyncEvent> async_events;
    FaceListener listener{*this};
    // Objects created in it; under the engine's lock.
    ucs::List<FaceQp, &FaceQp::of_context> qps;
    ucs::List<FaceSrq, &FaceSrq::of_context> srqs;
    ucs::List<FaceCq, &FaceCq::of_context> cqs;
    ucs::List<FaceMr, &FaceMr::of_context> mrs;
    ucs::List<FaceAh, &FaceAh::of_context> ahs;
    ucs::List<FacePd, &FacePd::of_context> pds;
};

// A handle is the address of what holds it.
static_assert(offsetof(FaceCq, cq) == 0 && offsetof(FaceQp, qp) == 0 && offsetof(FaceMr, mr) == 0);
static_assert(offsetof(FacePd, pd) == 0 && offsetof(FaceSrq, srq) == 0 &&
              offsetof(FaceAh, ah) == 0);
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);
static_assert(offsetof(verbs_context, context) - offsetof(verbs_context, sz) == sizeof(size_t));

inline FaceContext& face(ibv_context* context) {
    return *reinterpret_cast<FaceContext*>(reinterpret_cast<std::byte*>(context) -
                                           offsetof(verbs_context, context));
}
inline FacePd& face(ibv_pd* pd) {
    return *reinterpret_cast<FacePd*>(pd);
}
inline FaceMr& face(ibv_mr* mr) {
    return *reinterpret_cast<FaceMr*>(mr);
}
inline FaceAh& face(ibv_ah* ah) {
    return *reinterpret_cast<FaceAh*>(ah);
}
inline FaceChannel& face(ibv_comp_channel* channel) {
    return *reinterpret_cast<FaceChannel*>(channel);
}
inline FaceCq& face(ibv_cq* cq) {
    return *reinterpret_cast<FaceCq*>(cq);
}
inline FaceCq& face(ibv_cq_ex* cq) {
    return *reinterpret_cast<FaceCq*>(cq);
}
inline FaceSrq& face(ibv_srq* srq) {
    return *reinterpret_cast<FaceSrq*>(srq);
}
inline FaceQp& face(ibv_qp* qp) {
    return *reinterpret_cast<FaceQp*>(qp);
}
inline FaceQp& face(ibv_qp_ex* qp) {
    return *reinterpret_cast<FaceQp*>(qp);
}

inline FaceQp& face(mlx5dv_qp_ex* dv) {
    return *reinterpret_cast<FaceQp*>(reinterpret_cast<std::byte*>(dv) - offsetof(FaceQp, dv));
}

inline void CompletionEvent::note_delivered() const {
    ++cq->comp_events_delivered;
}

/// Sets errno unless `error` is 0, and returns nullptr: how verbs that make objects fail.
std::nullptr_t fail(int error);

/// Waits until the program acknowledged all `delivered` events of an object.
void wait_for_acks(pthread_mutex_t* mutex, pthread_cond_t* acked, const std::uint32_t& acknowledged,
                   std::uint32_t delivered);

}  // namespace tagwire::vhca
