// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "bootstrap/dir.hpp"

namespace tagwire::bootstrap {

DirRank::DirRank(const Settings& settings) : DirJob(settings), nonce_(draw_id()) {}

Result DirRank::join(const Deadline& deadline) {
    if (Result result = open_place(); !result.ok())
        return result;
    Pause pause;
    for (;;) {
        if (Result result = follow_current(); !result.ok())
            return result;
        bool is_in = false;
        if (Result result = look_for_welcome(&is_in); is_in || !result.ok())
            return result;
        // Rank 0 tells the reason, if there is one that could.
        if (id().empty() ? deadline.is_over() : deadline.with_grace().is_over())
            return missing_result(deadline);
        pause.wait(id().empty() ? deadline : deadline.with_grace());
    }
}

/// Says hello where `current` points, unless that run is over.
Result DirRank::follow_current() {
    const std::string now = read_current();
    if (now.empty() || now == id() || now == ignored_)
        return {};
    forget_session();
    if (!open_session(now))
        return {};  // it is about to appear, or was removed
    if (session().has("welcome") || session().has("failure")) {
        ignored_ = now;
        forget_session();
        return {};
    }
    const Frame hello{.kind = FrameKind::kHello, .rank = rank(), .size = size()};
    const std::string name = "hello." + std::to_string(rank()) + "." + nonce_;
    Result result = session().write(name, with_payload(hello, {}));
    if (!result.ok() && session().is_gone()) {
        forget_session();
        return {};
    }
    return result;
}

bool DirRank::has_new_run() const {
    const std::string now = read_current();
    return !now.empty() && now != id();
}

/// In this order: a job that began may have failed since, of which its next call will tell.
Result DirRank::look_for_welcome(bool* is_in_p) {
    if (id().empty())
        return {};
    if (Result result = read_refusal(); !result.ok())
        return result;
    Result failure = read_failure();
    const std::size_t nonces_bytes = std::size_t{size() - 1} * nonce_.size();
    const auto bytes = session().read("welcome", kFrameBytes + nonces_bytes);
    const auto frame = bytes ? decode_whole(*bytes) : std::nullopt;
    if (!frame || frame->bytes != nonces_bytes || frame->size != size())
        return has_new_run() ? Result{} : failure;
    const auto* mine = bytes->data() + kFrameBytes + (rank() - 1) * nonce_.size();
    *is_in_p = std::memcmp(mine, nonce_.data(), nonce_.size()) == 0;
    if (*is_in_p)
        return {};
    forget_session();
    return failed(UCS_ERR_REJECTED, "rank %u has joined already", rank());
}

Result DirRank::read_refusal() {
    const auto bytes = session().read("refused." + nonce_, kFrameBytes + kTextBytesMax);
    if (!bytes)
        return {};
    session().remove("hello." + std::to_string(rank()) + "." + nonce_);
    session().remove("refused." + nonce_);
    forget_session();
    const auto frame = decode_whole(*bytes);
    return failed(UCS_ERR_REJECTED, "%s",
                  frame ? text_of(std::span(*bytes).subspan(kFrameBytes)).c_str()
                        : "rank 0 refuses this process");
}

Result DirRank::missing_result(const Deadline& deadline) const {
    const std::string limit = deadline.limit_text();
    const char* where = settings().where.c_str();
    const char* job = settings().job.c_str();
    if (id().empty()) {
        return failed(UCS_ERR_TIMED_OUT,
                      "rank 0 is missing: no run of job '%s' could be joined in %s for %s%s", job,
                      where, limit.c_str(),
                      ignored_.empty() ? "" : " (one is there, but it has started already)");
    }
    RankSet missing = ranks_with("hello", false);
    missing.remove(0);
    if (missing.is_empty())
        missing.add(0);
    return failed(UCS_ERR_TIMED_OUT, "%s of %u did not come to %s within %s; rank 0 does not reply",
                  missing.text().c_str(), size(), where, limit.c_str());
}

Result DirRank::allgather(const Step& step) {
    Result result = write_share(step);
    if (result.ok())
        result = await_result(step);
    if (!result.ok())
        write_failure(result);
    return result;
}

Result DirRank::await_result(const Step& step) const {
    const Deadline deadline = step.deadline.with_grace();
    Pause pause;
    for (;;) {
        const bool is_last_look = deadline.is_over();
        // Before the result: what comes after it concerns the next call.
        const bool coordinator_has_left = session().has("bye.0");
        Result failure = read_failure();
        Result result;
        if (take_result(step, &result))
            return result;
        if (!failure.ok())
            return failure;
        if (result = check_session(); !result.ok())
            return result;
        if (coordinator_has_left)
            return failed(UCS_ERR_CONNECTION_RESET, "rank 0 has left the job");
        if (is_last_look)
            break;
        pause.wait(deadline);
    }
    const RankSet missing = ranks_with("share." + std::to_string(step.number), false);
    const Frame call = step.frame(FrameKind::kShare, rank(), size());
    return failed(UCS_ERR_TIMED_OUT, "%s of %u did not call %s within %s",
                  missing.is_empty() ? "rank 0" : missing.text().c_str(), size(),
                  operation_text(call).c_str(), deadline.limit_text().c_str());
}

/// False: it is not there yet.
bool DirRank::take_result(const Step& step, Result* result_p) const {
    const std::string name = "result." + std::to_string(step.number);
    if (!session().has(name))
        return false;
    const auto bytes = session().read(name, kFrameBytes + step.all.size());
    const auto frame = bytes ? decode_whole(*bytes) : std::nullopt;
    if (!frame || frame->kind != FrameKind::kResult || frame->operation != step.operation ||
        frame->size != size() || bytes->size() != kFrameBytes + step.all.size()) {
        *result_p = failed(UCS_ERR_IO_ERROR, "rank 0 wrote a malformed file");
    } else if (!step.all.empty()) {
        std::memcpy(step.all.data(), bytes->data() + kFrameBytes, step.all.size());
    }
    return true;
}

}  // namespace tagwire::bootstrap
