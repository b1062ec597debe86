// SPDX-License-Identifier: BSD-3-Clause
#include "ib/tag_receiver.hpp"

#include <algorithm>
#include <cstring>

namespace tagwire::test {

namespace {

using Kind = ib::TagEvent::Kind;

}  // namespace

TagReceiver::TagReceiver(const ib::IbMd& md, const TagReceiverOptions& options)
    : memory(md, std::max(options.buffers, options.tags + 1) * kBufferBytes) {
    const unsigned ops = options.ops != 0 ? options.ops : 2 * options.tags + 2;
    EXPECT_EQ(UCS_OK, cq.open(md, options.depth + 2 * options.tags + ops, nullptr, true));
    ib::ReceiveQueueParams params;
    params.depth = options.depth;
    params.message_bytes = Sender::kMessageBytesMax;
    params.tags = options.tags;
    params.tag_ops = ops;
    params.cq = cq.get();
    const auto no_credit = [](void*, std::uint64_t) {};
    EXPECT_EQ(UCS_OK, queue.open(md, params, no_credit, nullptr));
    EXPECT_EQ(UCS_OK, list.open(queue.srq(), cq, options.tags, ops));
}

bool TagReceiver::step() {
    if (left_ == 0)
        left_ = cq.poll(&batch_);
    if (left_ == 0)
        return false;
    --left_;
    const ib::Completion completion = *batch_++;
    if (on_completion)
        on_completion(completion);
    if (ib::TagList::is_own(completion.wr_id))
        handle_own(completion);
    else
        handle_buffer(completion);
    list.sync_if_needed();
    EXPECT_EQ(UCS_OK, queue.refill());
    return true;
}

void TagReceiver::handle_own(const ib::Completion& completion) {
    const ib::TagEvent event = list.handle(completion);
    if (event.kind == Kind::kNone)
        return;
    if (event.entry->ctx == nullptr) {  // cancelled by force, then matched by what did not fit
        EXPECT_EQ(Kind::kIncomplete, event.kind);
        return list.finish(*event.entry);
    }
    if (on_event)
        on_event(event);
    TagReceive& receive = static_cast<TagReceive&>(*event.entry->ctx);
    receive.consumed += event.was_consumed_now ? 1 : 0;
    if (event.kind == Kind::kConsumed)
        return;
    ++receive.ended;
    receive.kind = event.kind;
    receive.status = event.status;
    receive.result = *event.entry;
    list.finish(*event.entry);
    if (receive.on_end)
        receive.on_end(receive);
}

void TagReceiver::handle_buffer(const ib::Completion& completion) {
    queue.consumed();
    std::byte* message = queue.message(completion.wr_id);
    if (completion.status == IBV_WC_SUCCESS && completion.opcode == IBV_WC_TM_RECV) {
        ibv_tmh tmh;
        std::memcpy(&tmh, message, sizeof tmh);
        if (keeps_unexpected) {
            unexpected.push_back({be64toh(tmh.tag),
                                  be32toh(tmh.app_ctx),
                                  tmh.opcode,
                                  {message + sizeof tmh, message + completion.byte_len}});
            if (on_unexpected)
                on_unexpected(unexpected.back());
        }
        ++unexpected_count;
        list.count_unexpected(completion.flags);
    } else if (completion.status == IBV_WC_SUCCESS) {
        EXPECT_EQ(IBV_WC_TM_NO_TAG, completion.opcode);
        ++no_tag;
    }
    queue.put_back(message);
}

}  // namespace tagwire::test
