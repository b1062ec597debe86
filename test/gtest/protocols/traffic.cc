// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/nomem.hpp"

namespace tagwire::test {

/// A call may be refused so where allocations fail, and has done nothing then.
bool Traffic::is_for_lack_of_memory(tw_status_t status) {
    return nomem::is_there() && status == TW_ERR_NO_MEMORY;
}

Traffic::Traffic(std::uint64_t seed, tw_context_h context, const Options& options)
    : random_(seed), context_(context), options_(options) {
    for (unsigned i = 0; i < options_.workers; ++i)
        open_node();
}

Traffic::~Traffic() {
    for (const auto& node : nodes_) {
        memory_.close(*node);
        node->worker.reset();
    }
    for (const auto& op : ops_)
        if (op->mapped != nullptr)
            tw_mem_unmap(context_of(op->node->index), op->mapped);
}

TrafficNode& Traffic::open_node() {
    nodes_.push_back(std::make_unique<TrafficNode>());
    TrafficNode& node = *nodes_.back();
    node.traffic = this;
    node.index = static_cast<unsigned>(nodes_.size() - 1);
    tw_worker_params_t params{};
    params.ep_failed = [](void* arg, tw_ep_h ep, tw_status_t) {
        auto& of = *static_cast<TrafficNode*>(arg);
        EXPECT_EQ(std::ranges::count(of.failed, ep), 0) << "it failed twice";
        of.failed.push_back(ep);
    };
    params.ep_failed_arg = &node;
    params.rma_event = TrafficMemory::on_event;
    params.rma_event_arg = &node;
    params.thread_mode = chance(3) ? TW_THREAD_MULTI : TW_THREAD_SINGLE;
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context_of(node.index), &params, &worker), TW_OK);
    node.worker.reset(worker);
    node.address.resize(TW_ADDRESS_BYTES_MAX);
    std::size_t length = node.address.size();
    EXPECT_EQ(tw_worker_address(worker, node.address.data(), &length), TW_OK);
    node.address.resize(length);
    EXPECT_EQ(tw_address_worker_id(node.address.data(), length, &node.id), TW_OK);
    tw_worker_attr_t attr{};
    EXPECT_EQ(tw_worker_query(worker, &attr), TW_OK);
    node.buffered_limit = attr.buffered_bytes_limit;
    node.buffered_min = attr.buffered_bytes_min;
    for (const auto& each : nodes_) {
        each->eps.resize(nodes_.size());
        each->closing.resize(nodes_.size());
        each->closed.resize(nodes_.size());
        each->broken.resize(nodes_.size());
        each->sent.resize(nodes_.size());
        each->flushed.resize(nodes_.size());
    }
    memory_.open();
    ams_.open();
    return node;
}

TrafficNode& Traffic::pick_node() {
    for (;;) {
        TrafficNode& node = *nodes_[pick(nodes_.size())];
        if (node.is_alive())
            return node;
    }
}

void Traffic::act(TrafficNode& node) {
    if (options_.has_closes && chance(60))
        return close(node);
    const std::uint64_t what = pick(100);
    if (what < 10)
        return peek(node);
    if (what < 16)
        return claim(node);
    if (what < 20)
        return cancel(node);
    if (node.open >= options_.open_max)
        return;
    if (what < 23)
        return flush(node);
    if (what < 26)
        return receive_many(node);
    if (what < 34)
        return memory_.act(node);
    if (what < 40)
        return ams_.send(node);
    if (what < 42)
        return void(ams_.use_kept(node));
    if (what < 70)
        return receive(node);
    send(node);
}

void Traffic::run() {
    const NoMemory failing(nomem::Where::kAnywhere);
    const std::uint64_t death =
        options_.has_death ? options_.steps / 4 + pick(options_.steps / 2) : 0;
    for (unsigned step = 1; step <= options_.steps && ok(); ++step) {
        TrafficNode& node = pick_node();
        for (std::uint64_t left = 1 + pick(4); left > 0; --left)
            act(node);
        if (chance(100))
            pick_node().pause = static_cast<unsigned>(1 + pick(options_.steps / 8));
        for (std::uint64_t left = pick(6); left > 0; --left)
            progress(pick_node());
        if (step == death)
            kill();
        forget_ended();
    }
    if (ok())
        settle();
}

void Traffic::progress(TrafficNode& node) {
    if (node.pause > 0) {
        --node.pause;
        return;
    }
    ++clock_;
    tw_worker_progress(node.worker.get());
    test_handles(node);
    tw_completion_t polled[8];
    const auto room = static_cast<unsigned>(1 + pick(8));
    while (const unsigned count = tw_worker_poll(node.worker.get(), polled, room))
        for (unsigned i = 0; i < count; ++i)
            ended(*static_cast<TrafficOp*>(polled[i].context), polled[i]);
    if (!node.failed.empty())
        close_failed(node);
}

void Traffic::test_handles(TrafficNode& node) {
    for (std::size_t i = 0; i < tested_.size(); ++i) {
        TrafficOp& op = *tested_[i];
        if (op.node != &node)
            continue;
        tw_completion_t done{};
        const tw_request_h request = op.request;
        const tw_status_t status = tw_request_test(request, &done);
        const bool may_give_up = op.kind == Kind::kSend && op.cancelled == kNever;
        if (status == TW_INPROGRESS && !(may_give_up && chance(200)))
            continue;
        std::swap(tested_[i--], tested_.back());
        tested_.pop_back();
        if (status != TW_INPROGRESS) {
            EXPECT_EQ(status, done.status);
            EXPECT_EQ(done.request, request);
            ended(op, done);
        } else {  // gives up: nobody will tell
            op.report = Report::kNobody;
            op.request = nullptr;
            op.is_open = false;
            --node.open;
        }
        tw_request_free(request);
    }
}

/// Gives back what operations that have ended needed.
void Traffic::forget_ended() {
    std::erase_if(with_memory_, [&](TrafficOp* op) {
        if (!op->is_over() || (op->mapped == nullptr && may_be_read_still(*op)))
            return false;
        if (op->mapped != nullptr) {
            EXPECT_EQ(tw_mem_unmap(context_of(op->node->index), std::exchange(op->mapped, nullptr)),
                      TW_OK);
        }
        op->memory.reset();
        Bytes().swap(op->bytes);
        return true;
    });
}

// ---- Death

/// One worker is gone from now on; another one comes.
void Traffic::kill() {
    TrafficNode& victim = pick_node();
    ++dead_;
    memory_.close(victim);
    for (const auto& node : nodes_) {
        memory_.excuse(victim.index, node->index);
        ams_.excuse(victim.index, node->index);
    }
    victim.worker.reset();
    for (const auto& op : ops_) {
        if (op->node != &victim)
            continue;
        if (!op->is_over())
            memory_.never_ends(*op);
        op->ends = 1;
    }
    std::erase_if(tested_, [&](const TrafficOp* op) { return op->node == &victim; });
    for (const auto& node : nodes_) {
        for (Reference& space : node->spaces)
            for (RefMessage& message : space.messages())
                message.is_excused |= message.envelope.sender == victim.index;
    }
    nomem::arm(nomem::Where::kNowhere);  // a worker goes without a transport that lacks memory
    open_node();
    nomem::arm(nomem::Where::kAnywhere);
}

}  // namespace tagwire::test
