// SPDX-License-Identifier: BSD-3-Clause
#include "letters.hpp"

#include <bit>
#include <memory>
#include <utility>

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

struct Outbox::Copy {
    Post& post;
    std::vector<std::byte> bytes;
};

// ---- Posts

/// May throw for want of memory. The post is in posts_, or it is the spare one, which there is room
/// for.
Outbox::Post& Outbox::post_to(std::uint64_t worker_id) {
    const auto found = posts_.empty() ? posts_.end() : posts_.find(worker_id);
    if (found != posts_.end())
        return found->second;
    posts_.reserve(posts_.size() + 1);
    if (spare_.empty()) {
        Posts made;
        made.try_emplace(worker_id);
        spare_ = made.extract(made.begin());
    }
    spare_.key() = worker_id;
    Post& post = spare_.mapped();
    post.owner = this;
    post.worker_id = worker_id;
    return post;
}

void Outbox::settle(Post& post) {
    const bool is_over = post.under_way == 0 && post.waiting.empty();
    const bool is_spare = !spare_.empty() && &spare_.mapped() == &post;
    if (is_spare && !is_over)
        posts_.insert(std::move(spare_));
    else if (!is_spare && is_over && !is_flushing_)
        posts_.erase(post.worker_id);
}

void Outbox::drop_waiting(std::uint64_t worker_id) {
    const auto found = posts_.find(worker_id);
    if (found == posts_.end())
        return;
    waiting_ -= found->second.waiting.size();
    for (const Waiting& waiting : found->second.waiting)
        found->second.data_replies -= waiting.id == kAtomicTell ? 1 : 0;
    found->second.waiting.clear();
    settle(found->second);
}

// ---- Sending

tw_status_t Outbox::post_now(Post& post, Letter id, LetterBytes header, LetterBytes data) {
    if (post.under_way >= kUnderWayMax)
        return TW_ERR_NO_RESOURCE;
    tw_status_t status = TW_OK;
    tw_ep_h const ep = owner_.reply_to(post.worker_id, &status);
    if (ep == nullptr)
        return status;
    const bool is_short = header.size() + data.size() <= owner_.inject_bytes_max;
    tw_op_t op;
    fill(op, TW_OP_URGENT | flag_if(is_short, TW_OP_INJECT));
    op.context = &post;
    op.complete = on_sent;
    std::unique_ptr<Copy> copy;
    if (!is_short && !data.empty()) {
        copy.reset(new Copy{post, {data.begin(), data.end()}});
        data = copy->bytes;
        op.context = copy.get();
        op.complete = on_copy_sent;
    }
    ++post.under_way;  // earlier ones may end in the call, and this one must find its post
    status =
        tw_am_send(ep, id, header.data(), header.size(), data.data(), data.size(), &op, nullptr);
    if (status == TW_INPROGRESS)
        static_cast<void>(copy.release());  // the completion's
    else
        --post.under_way;
    return status;
}

void Outbox::on_sent(const tw_completion_t* done) {
    auto& post = *static_cast<Post*>(done->context);
    post.owner->sent(post, *done);
}

void Outbox::on_copy_sent(const tw_completion_t* done) {
    const std::unique_ptr<Copy> copy(static_cast<Copy*>(done->context));
    copy->post.owner->sent(copy->post, *done);
}

/// The failure of its endpoint says what there is to say.
void Outbox::sent(Post& post, const tw_completion_t& done) {
    --post.under_way;
    if (done.tag == kAtomicTell)
        --post.data_replies;
    settle(post);
}

bool Outbox::is_above_limit(const Post& post, Letter id) const {
    const bool is_reply = id == kTellKey || id == kForgotKey || id == kAtomicTell;
    return (is_reply && post.under_way + post.waiting.size() >= kRepliesMax) ||
           (id == kAtomicTell && post.data_replies >= kDataRepliesMax);
}

bool Outbox::has_too_many(std::uint64_t worker_id) const {
    if (posts_.empty()) [[likely]]
        return false;
    const auto found = posts_.find(worker_id);
    return found != posts_.end() && is_above_limit(found->second, kAtomicTell);
}

/// May throw for want of memory: then it was not sent.
tw_status_t Outbox::post_or_wait(Post& post, Letter id, LetterBytes header, LetterBytes data) {
    if (is_above_limit(post, id))
        return TW_ERR_EXCEEDS_LIMIT;
    tw_status_t status = TW_ERR_NO_RESOURCE;
    if (post.waiting.empty())
        status = post_now(post, id, header, data);
    if (status == TW_ERR_NO_RESOURCE || status == TW_ERR_NO_MEMORY) {
        Waiting waiting{id, header.size(), {}};
        waiting.bytes.reserve(header.size() + data.size());
        waiting.bytes.insert(waiting.bytes.end(), header.begin(), header.end());
        waiting.bytes.insert(waiting.bytes.end(), data.begin(), data.end());
        post.waiting.push_back(std::move(waiting));
        ++waiting_;
        lacks_memory_ |= status == TW_ERR_NO_MEMORY;
        status = TW_INPROGRESS;
    }
    if (status == TW_INPROGRESS && id == kAtomicTell)
        ++post.data_replies;
    return status;
}

tw_status_t Outbox::try_send(std::uint64_t worker_id, Letter id, LetterBytes header,
                             LetterBytes data) {
    tw_status_t status = TW_ERR_NO_MEMORY;
    without_exceptions([&] {
        Post& post = post_to(worker_id);
        const int error = without_exceptions([&] {
            status = post_or_wait(post, id, header, data);
            return 0;
        });
        settle(post);
        return error;
    });
    owner_.backlog_changed();
    if (status < TW_OK && status != TW_ERR_NO_MEMORY)
        FI_INFO(&provider, FI_LOG_EP_DATA, "a letter to a peer was lost: %s\n",
                tw_status_string(status));
    return status == TW_INPROGRESS ? TW_OK : status;
}

void Outbox::end_connection(std::uint64_t worker_id) {
    FI_WARN(&provider, FI_LOG_EP_DATA,
            "no memory for a reply to worker %016llx: the connection to it ends\n",
            static_cast<unsigned long long>(worker_id));
    drop_waiting(worker_id);
    owner_.lose(worker_id);
}

void Outbox::flush() {
    if (waiting_ == 0)
        return;
    is_flushing_ = true;  // no post goes
    lacks_memory_ = false;
    for (auto& entry : posts_) {
        Post& post = entry.second;
        while (!post.waiting.empty()) {
            const Waiting& first = post.waiting.front();
            const LetterBytes bytes = first.bytes;
            tw_status_t status = TW_ERR_NO_MEMORY;
            without_exceptions([&] {
                status = post_now(post, first.id, bytes.first(first.header_bytes),
                                  bytes.subspan(first.header_bytes));
                return 0;
            });
            lacks_memory_ |= status == TW_ERR_NO_MEMORY;
            if (status == TW_ERR_NO_RESOURCE || status == TW_ERR_NO_MEMORY)
                break;
            if (status != TW_INPROGRESS && first.id == kAtomicTell)
                --post.data_replies;
            post.waiting.pop_front();
            --waiting_;
        }
    }
    is_flushing_ = false;
    std::erase_if(posts_, [](const auto& entry) {
        return entry.second.under_way == 0 && entry.second.waiting.empty();
    });
}

}  // namespace tagwire::fi
