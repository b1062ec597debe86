// SPDX-License-Identifier: BSD-3-Clause
#include "loop.hpp"

#include <sched.h>

namespace tagwire::test {

namespace {

constexpr unsigned kEntries = 64;
constexpr std::size_t kReceiveAt = 4096;
constexpr std::uint32_t kReceiveBytes = 256;
constexpr int kPollsMax = 2'000'000;

}  // namespace

Loop::Loop(const LoopOptions& options) {
    const ib::VerbsTable& verbs = md->verbs();
    if (options.has_channel) {
        channel = ib::owned(verbs.create_comp_channel(md->device().context()),
                            verbs.destroy_comp_channel);
    }
    EXPECT_EQ(source_cq.open(*md, kEntries, nullptr, false), UCS_OK);
    EXPECT_EQ(target_cq.open(*md, kEntries, channel.get(), options.has_tags), UCS_OK);
    EXPECT_EQ(md->mem_reg(buffer.data(), buffer.size(), UCT_MD_MEM_ACCESS_ALL, &memory), UCS_OK);
    if (options.has_tags)
        make_srq();
    ibv_qp_init_attr attr{};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = kEntries;
    attr.send_cq = attr.recv_cq = source_cq.get();
    source = make_qp(*md, attr);
    attr.send_cq = attr.recv_cq = target_cq.get();
    attr.srq = srq.get();
    target = make_qp(*md, attr);
    connect(*md, *source, {.qp_num = target->qp_num});
    connect(*md, *target, {.qp_num = source->qp_num});
}

Loop::~Loop() {
    source.reset();
    target.reset();
    srq.reset();
    EXPECT_EQ(md->mem_dereg(memory), UCS_OK);
}

void Loop::make_srq() {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = kEntries, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = md->pd();
    attr.cq = target_cq.get();
    attr.tm_cap = {.max_num_tags = 8, .max_ops = 8};
    srq = ib::owned(ib::create_srq_ex(md->device().context(), &attr), md->verbs().destroy_srq);
    ASSERT_NE(srq, nullptr);
}

ibv_sge Loop::element(std::size_t offset, std::uint32_t bytes) const {
    return {.addr = reinterpret_cast<std::uintptr_t>(buffer.data()) + offset,
            .length = bytes,
            .lkey = ib::registration_of(memory).mr->lkey};
}

void Loop::post_receive(std::uint64_t wr_id) {
    ibv_sge data = element(kReceiveAt, kReceiveBytes);
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &data, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(srq != nullptr ? ibv_post_srq_recv(srq.get(), &wr, &bad)
                             : ibv_post_recv(target.get(), &wr, &bad),
              0);
}

void Loop::post(ibv_send_wr* wr, std::uint32_t bytes) {
    ibv_sge data = element(0, bytes);
    wr->sg_list = &data;
    wr->num_sge = 1;
    wr->send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(source.get(), wr, &bad), 0);
}

void Loop::send(std::uint64_t wr_id, std::uint32_t bytes) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    post(&wr, bytes);
}

void Loop::post_tag(std::uint64_t wr_id, std::uint64_t tag) {
    ibv_sge data = element(kReceiveAt, kReceiveBytes);
    ibv_ops_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_TAG_ADD;
    wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    wr.tm.add = {wr_id, &data, 1, tag, ~std::uint64_t{0}};
    ibv_ops_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_ops(srq.get(), &wr, &bad), 0);
}

void Loop::fail_target() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(md->verbs().modify_qp(target.get(), &attr, IBV_QP_STATE), 0);
}

std::vector<ib::Completion> Loop::wait(ib::CompletionQueue& queue, std::size_t count) {
    std::vector<ib::Completion> all;
    for (int polls = 0; polls < kPollsMax && all.size() < count; ++polls) {
        const ib::Completion* found = nullptr;
        const unsigned more = queue.poll(&found);
        EXPECT_LE(more, ib::CompletionQueue::kBatch);
        all.insert(all.end(), found, found + more);
        if (more == 0)
            sched_yield();
    }
    EXPECT_EQ(all.size(), count);
    all.resize(count);
    return all;
}

ib::Completion Loop::wait(ib::CompletionQueue& queue) {
    return wait(queue, 1).front();
}

}  // namespace tagwire::test
