// SPDX-License-Identifier: BSD-3-Clause
#include "letters.hpp"

#include <bit>
#include <cstring>

#include "ep.hpp"
#include "flags.hpp"

namespace tagwire::fi {

void Refusals::add(std::uint64_t worker_id, const char* why) {
    if (std::has_single_bit(++count_))
        FI_WARN(&provider, FI_LOG_EP_DATA,
                "worker %016llx sent a message that is refused: %s; %llu are until now\n",
                static_cast<unsigned long long>(worker_id), why,
                static_cast<unsigned long long>(count_));
}

tw_status_t Outbox::try_send(Post& post, Letter id, const void* header, std::size_t bytes) {
    tw_status_t status = TW_OK;
    tw_ep_h const ep = owner_.reply_to(post.worker_id, &status);
    if (ep == nullptr)
        return status;
    tw_op_t op;
    fill(op, 0);
    op.context = &post;
    op.complete = on_sent;
    status = tw_am_send(ep, id, header, bytes, nullptr, 0, &op, nullptr);
    post.under_way += status == TW_INPROGRESS ? 1 : 0;
    return status;
}

/// The failure of its endpoint says what there is to say.
void Outbox::on_sent(const tw_completion_t* done) {
    auto& post = *static_cast<Post*>(done->context);
    --post.under_way;
    post.owner->settle(post);
}

void Outbox::settle(Post& post) {
    if (post.under_way == 0 && post.waiting.empty())
        posts_.erase(post.worker_id);
}

void Outbox::send(std::uint64_t worker_id, Letter id, const void* header, std::size_t bytes) {
    tw_status_t status = TW_ERR_NO_MEMORY;
    without_exceptions([&] {
        Post& post = posts_[worker_id];
        post.owner = this;
        post.worker_id = worker_id;
        const bool is_reply = id == kTellKey || id == kForgotKey;
        if (is_reply && post.under_way + post.waiting.size() >= kRepliesMax)
            status = TW_ERR_EXCEEDS_LIMIT;
        else if (post.waiting.empty())
            status = try_send(post, id, header, bytes);
        else
            status = TW_ERR_NO_RESOURCE;
        if (status == TW_ERR_NO_RESOURCE) {
            status = TW_ERR_NO_MEMORY;
            Waiting& last = post.waiting.emplace_back();
            last.id = id;
            last.bytes = bytes;
            std::memcpy(last.header.data(), header, bytes);
            ++waiting_;
            status = TW_OK;
        }
        settle(post);
        return 0;
    });
    owner_.backlog_changed();
    if (status != TW_OK && status != TW_INPROGRESS)
        FI_INFO(&provider, FI_LOG_EP_DATA, "a letter to a peer was lost: %s\n",
                tw_status_string(status));
}

void Outbox::flush() {
    if (waiting_ == 0)
        return;
    for (auto next = posts_.begin(); next != posts_.end();) {
        Post& post = (next++)->second;
        while (!post.waiting.empty()) {
            const Waiting& first = post.waiting.front();
            if (try_send(post, first.id, first.header.data(), first.bytes) == TW_ERR_NO_RESOURCE)
                break;
            post.waiting.pop_front();
            --waiting_;
        }
        settle(post);
    }
}

}  // namespace tagwire::fi
