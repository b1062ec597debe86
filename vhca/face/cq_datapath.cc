// SPDX-License-Identifier: BSD-3-Clause
// Polling and arming. A poll drives the device. After a number of empty polls the thread yields the
// processor, because on a small machine the peer may be waiting for it, or the helper thread: soon
// when another thread took it the last time, ever later while none did.
#include <algorithm>
#include <cerrno>

#include "ucs/sys/step_aside.hpp"
#include "vhca/engine/packet_kind.hpp"
#include "vhca/face/context.hpp"

namespace tagwire::vhca {
namespace {

constexpr unsigned kEmptyPollsMin = 32, kEmptyPollsMax = 4096;
constexpr std::uint64_t kTakenNs = 3'000;  // a yield that nobody took is shorter
thread_local unsigned empty_polls = 0;
thread_local unsigned empty_polls_max = kEmptyPollsMin;

[[gnu::noinline, gnu::cold]] void give_way() {
    const bool was_taken = ucs::step_aside() > kTakenNs;
    empty_polls = 0;
    empty_polls_max = was_taken ? kEmptyPollsMin : std::min(2 * empty_polls_max, kEmptyPollsMax);
}

void note_polled(bool got) {
    if (got)
        empty_polls = 0;
    else if (++empty_polls >= empty_polls_max)
        give_way();
}

// A node of the fabric is known to programs as a LID, or by the GRH.
std::uint8_t sl_of(const FaceCq& cq) {
    const bool is_receive = (cq.current.wc.opcode & IBV_WC_RECV) != 0;
    return is_receive ? static_cast<std::uint8_t>(packet_kind_of(*cq.engine)) : cq.current.wc.sl;
}
std::uint16_t slid_of(const FaceCq& cq) {
    if ((cq.current.wc.opcode & IBV_WC_RECV) == 0)
        return cq.current.wc.slid;
    return packet_kind_of(*cq.engine) == PacketKind::kInfiniband
               ? static_cast<std::uint16_t>(cq.current.from.node)
               : 0;
}

// The oldest completion, for read_*(). Fields that cost something are made when they are read.
bool take(FaceCq& cq) {
    if (!cq.core->poll(&cq.current))
        return false;
    cq.has_more = !cq.core->is_empty();
    return true;
}

// A poll: take_some() removes completions and returns their number; if there are none, the device
// works before the second look. It does not work while completions wait: a program that is behind
// would run out of receives.
template <typename F>
int poll(Engine& engine, F&& take_some) {
    int got = 0;
    {
        const auto guard = engine.lock();
        got = take_some();
        if (got == 0) {
            engine.progress_locked();
            got = take_some();
        }
    }
    engine.note_poll();
    note_polled(got > 0);
    return got;
}

// Result of start_poll() and next_poll() after they looked for a completion.
int show(ibv_cq_ex* cq, bool got) {
    if (!got)
        return ENOENT;
    const ibv_wc& wc = face(cq).current.wc;
    cq->wr_id = wc.wr_id;
    cq->status = wc.status;
    return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
    if (attr->comp_mask != 0)
        return EINVAL;
    FaceCq& queue = face(cq);
    const int got = poll(*queue.engine, [&] { return take(queue) ? 1 : 0; });
    return show(cq, got > 0);
}

// A completion that came since the last look waits for the next start_poll(), which looks anyway.
int next_poll(ibv_cq_ex* cq) {
    FaceCq& queue = face(cq);
    if (!queue.has_more) [[likely]]
        return ENOENT;
    const auto guard = queue.engine->lock();
    return show(cq, take(queue));
}

void end_poll(ibv_cq_ex*) {}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
    return face(cq).current.wc.opcode;
}
std::uint32_t read_vendor_err(ibv_cq_ex* cq) {
    return face(cq).current.wc.vendor_err;
}
unsigned int read_wc_flags(ibv_cq_ex* cq) {
    return face(cq).current.wc.wc_flags;
}
std::uint32_t read_byte_len(ibv_cq_ex* cq) {
    return face(cq).current.wc.byte_len;
}
__be32 read_imm_data(ibv_cq_ex* cq) {
    return face(cq).current.wc.imm_data;
}
std::uint32_t read_qp_num(ibv_cq_ex* cq) {
    return face(cq).current.wc.qp_num;
}
std::uint32_t read_src_qp(ibv_cq_ex* cq) {
    return face(cq).current.wc.src_qp;
}
std::uint32_t read_slid(ibv_cq_ex* cq) {
    return slid_of(face(cq));
}
std::uint8_t read_sl(ibv_cq_ex* cq) {
    return sl_of(face(cq));
}
std::uint8_t read_dlid_path_bits(ibv_cq_ex* cq) {
    return face(cq).current.wc.dlid_path_bits;
}
std::uint64_t read_completion_ts(ibv_cq_ex* cq) {
    return face(cq).current.time;
}
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
    const FaceCq& queue = face(cq);
    return queue.current.time + static_cast<std::uint64_t>(queue.wallclock_offset_ns);
}
void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
    const Completion& current = face(cq).current;
    info->tag = current.tm_tag;
    info->priv = current.tm_priv;
}

}  // namespace

int poll_cq_op(ibv_cq* cq, int entries, ibv_wc* wc) {
    FaceCq& queue = face(cq);
    return poll(*queue.engine, [&] {
        int got = 0;
        for (; got < entries && queue.core->poll(&queue.current); ++got) {
            wc[got] = queue.current.wc;
            wc[got].sl = sl_of(queue);
            wc[got].slid = slid_of(queue);
        }
        return got;
    });
}

int req_notify_cq_op(ibv_cq* cq, int solicited_only) {
    FaceCq& queue = face(cq);
    const auto guard = queue.engine->lock();
    queue.core->arm(solicited_only != 0);
    queue.engine->note_arm();
    return 0;
}

void fill_cq_readers(ibv_cq_ex* cq, std::uint64_t wc_flags) {
    const auto wants = [wc_flags](std::uint64_t flag) { return (wc_flags & flag) != 0; };
    cq->start_poll = start_poll;
    cq->next_poll = next_poll;
    cq->end_poll = end_poll;
    cq->read_opcode = read_opcode;
    cq->read_vendor_err = read_vendor_err;
    cq->read_wc_flags = read_wc_flags;
    cq->read_byte_len = wants(IBV_WC_EX_WITH_BYTE_LEN) ? read_byte_len : nullptr;
    cq->read_imm_data = wants(IBV_WC_EX_WITH_IMM) ? read_imm_data : nullptr;
    cq->read_qp_num = wants(IBV_WC_EX_WITH_QP_NUM) ? read_qp_num : nullptr;
    cq->read_src_qp = wants(IBV_WC_EX_WITH_SRC_QP) ? read_src_qp : nullptr;
    cq->read_slid = wants(IBV_WC_EX_WITH_SLID) ? read_slid : nullptr;
    cq->read_sl = wants(IBV_WC_EX_WITH_SL) ? read_sl : nullptr;
    cq->read_tm_info = wants(IBV_WC_EX_WITH_TM_INFO) ? read_tm_info : nullptr;
    cq->read_dlid_path_bits = wants(IBV_WC_EX_WITH_DLID_PATH_BITS) ? read_dlid_path_bits : nullptr;
    if (wants(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP))
        cq->read_completion_ts = read_completion_ts;
    if (wants(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
        cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
}

}  // namespace tagwire::vhca
