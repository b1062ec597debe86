// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/completion_queue.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::ib {

namespace {

// A tag-matching SRQ has no datagrams, so nobody asks where a message comes from.
constexpr std::uint64_t kExtendedFields =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_TM_INFO;

Completion from_plain(const ibv_wc& wc) {
    Completion completion{};
    completion.wr_id = wc.wr_id;
    completion.status = wc.status;
    completion.qp_num = wc.qp_num;
    completion.opcode = wc.opcode;
    completion.byte_len = wc.byte_len;
    completion.flags = wc.wc_flags;
    completion.imm = be32toh(wc.imm_data);
    completion.src_qp = wc.src_qp;
    return completion;
}

}  // namespace

ucs_status_t CompletionQueue::open(const IbMd& md, unsigned entries, ibv_comp_channel* channel,
                                   bool has_tags, void* cq_context) {
    const int entries_max = md.device().attr().orig_attr.max_cqe;
    const char* name = md.device().name().c_str();
    if (entries > static_cast<unsigned>(std::max(entries_max, 0))) {
        TW_LOG_ERROR("%s: a completion queue of %u entries is needed; the device allows at most %d",
                     name, entries, entries_max);
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    const unsigned wanted = std::max(entries, 1U);
    ibv_context* context = md.device().context();
    ibv_cq_ex* extended = nullptr;
    ibv_cq* cq = nullptr;
    errno = 0;
    if (has_tags) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = wanted;
        attr.cq_context = cq_context;
        attr.channel = channel;
        attr.wc_flags = kExtendedFields;
        extended = create_cq_ex(context, &attr);
        cq = extended != nullptr ? ibv_cq_ex_to_cq(extended) : nullptr;
    } else {
        cq = md.verbs().create_cq(context, static_cast<int>(wanted), cq_context, channel, 0);
    }
    if (cq == nullptr) {
        const int error = errno;
        TW_LOG_ERROR("%s: cannot create a completion queue of %u entries: %s", name, wanted,
                     std::strerror(error));
        return error == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
    }
    cq_ = owned(cq, md.verbs().destroy_cq);
    extended_ = extended;
    entries_ = static_cast<unsigned>(cq->cqe);
    return UCS_OK;
}

unsigned CompletionQueue::take_plain(int count) {
    if (count < 0) [[unlikely]] {
        TW_LOG_ERROR("ibv_poll_cq failed: %s", std::strerror(errno));
        return 0;
    }
    std::transform(plain_, plain_ + count, batch_, from_plain);
    return static_cast<unsigned>(count);
}

/// One was read; `error` is the answer of ibv_next_poll().
unsigned CompletionQueue::take_more(int error) {
    ibv_cq_ex* const cq = extended_;
    Completion* next = batch_ + 1;
    while (error == 0) {
        read_extended(cq, *next++);
        if (next == batch_ + kBatch)
            break;
        error = ibv_next_poll(cq);
    }
    ibv_end_poll(cq);
    if (error != 0 && error != ENOENT) [[unlikely]]
        poll_failed(error);
    return static_cast<unsigned>(next - batch_);
}

unsigned CompletionQueue::poll_failed(int error) {
    TW_LOG_ERROR("polling a completion queue failed: %s", std::strerror(error));
    return 0;
}

unsigned CompletionQueue::take_stash() {
    unsigned count = std::exchange(stashed_, 0U);
    if (count == 0) {
        count = static_cast<unsigned>(std::min<std::size_t>(ahead_.size(), kBatch));
        std::copy_n(ahead_.begin(), count, batch_);
        ahead_.erase(ahead_.begin(), ahead_.begin() + count);
        newest_ = count;
    }
    has_stash_ = !ahead_.empty();
    return count;
}

void CompletionQueue::look_ahead() {
    Completion kept[kBatch];
    std::copy_n(batch_, kBatch, kept);
    const unsigned count = poll_device();
    ahead_.insert(ahead_.end(), batch_, batch_ + count);
    std::copy_n(kept, kBatch, batch_);
    has_stash_ |= count != 0;
}

ucs_status_t CompletionQueue::arm(bool solicited_only) {
    if (has_stash_)
        return UCS_ERR_BUSY;
    if (const int error = ibv_req_notify_cq(cq_.get(), solicited_only ? 1 : 0); error != 0) {
        TW_LOG_ERROR("ibv_req_notify_cq failed: %s", std::strerror(error));
        return UCS_ERR_IO_ERROR;
    }
    // Completions that came before the request make no event.
    newest_ = poll_device();
    stashed_ = newest_;
    has_stash_ = stashed_ != 0;
    return stashed_ == 0 ? UCS_OK : UCS_ERR_BUSY;
}

}  // namespace tagwire::ib
