// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/send_pool.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::ib {

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;

}  // namespace

SendPool::~SendPool() {
    for (Chunk& chunk : chunks_) {
        chunk.mr.reset();
        std::free(chunk.memory);
    }
}

void SendPool::init(const IbMd& md, std::size_t data_bytes, unsigned elements_max) {
    md_ = &md;
    stride_ = (sizeof(SendOp) + data_bytes + kLine - 1) / kLine * kLine;
    elements_max_ = elements_max;
}

/// Where there is no memory for a whole chunk a few buffers do, so that sends go on.
bool SendPool::grow() {
    const unsigned room = elements_max_ - elements_;
    if (room == 0)
        return false;
    chunks_.reserve(chunks_.size() + 1);
    for (const unsigned wanted : {kPerChunk, kPerChunkMin})
        if (grow_by(std::min(wanted, room)))
            return true;
    if (!std::exchange(has_told_, true)) {
        TW_LOG_ERROR(
            "%s: no memory for more send buffers of %zu bytes: sends wait for one of the %u there",
            md_->device().name().c_str(), stride_, elements_);
    }
    return false;
}

bool SendPool::grow_by(unsigned count) {
    const std::size_t bytes = (count * stride_ + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, bytes);
    if (memory == nullptr)
        return false;
    ibv_mr* mr = md_->reg_mr(memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) {
        TW_LOG_ERROR("%s: ibv_reg_mr of %zu bytes for send buffers failed: %s%s",
                     md_->device().name().c_str(), bytes, std::strerror(errno),
                     errno == ENOMEM ? " (see ulimit -l)" : "");
        std::free(memory);
        return false;
    }
    chunks_.push_back({memory, bytes, owned(mr, md_->verbs().dereg_mr)});
    elements_ += count;
    for (unsigned i = count; i-- > 0;) {
        auto* op = reinterpret_cast<SendOp*>(static_cast<std::byte*>(memory) + i * stride_);
        op->pool = this;
        op->lkey = mr->lkey;
        op->next = free_;
        free_ = op;
    }
    return true;
}

}  // namespace tagwire::ib
