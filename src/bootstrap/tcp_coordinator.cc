// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "bootstrap/tcp.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::bootstrap {

TcpCoordinator::~TcpCoordinator() {
    tell(FrameKind::kLeave, {});
}

Result TcpCoordinator::allgather(const Step& step) {
    if (!step.mine.empty())
        std::memmove(step.all.data(), step.mine.data(), step.mine.size());
    Result result = collect(step);
    if (result.ok())
        return spread(step);
    tell(FrameKind::kFailure, result);
    return result;
}

Result TcpCoordinator::collect(const Step& step) {
    RankSet missing(size_, true);
    missing.remove(0);
    Beat beat(step.deadline);
    for (std::uint32_t rank = 1; rank < size_; ++rank)
        if (ranks_[rank] == nullptr)
            return failed(UCS_ERR_CONNECTION_RESET, "rank %u is gone", rank);
    while (!missing.is_empty()) {
        const Frame call = step.frame(FrameKind::kShare, 0, size_);
        if (step.deadline.is_over()) {
            return failed(UCS_ERR_TIMED_OUT, "%s of %u did not call %s within %s",
                          missing.text().c_str(), size_, operation_text(call).c_str(),
                          step.deadline.limit_text().c_str());
        }
        if (Result result = poll(step, beat.left_ms(step.deadline), &missing); !result.ok())
            return result;
        if (!missing.is_empty() && beat.is_due())
            tell(FrameKind::kWaiting, {UCS_OK, missing.text()});
    }
    return {};
}

Result TcpCoordinator::poll(const Step& step, int timeout_ms, RankSet* missing) {
    PollSet poll_set;
    for (std::uint32_t rank = 1; rank < size_; ++rank)
        poll_set.add(ranks_[rank]->fd(), ranks_[rank]->wanted_events());
    if (Result result = poll_set.wait(timeout_ms); !result.ok())
        return result;
    for (std::uint32_t rank = 1; rank < size_; ++rank) {
        if (!poll_set.is_ready(rank - 1))
            continue;
        ranks_[rank]->flush();
        if (Result result = hear(step, rank, missing); !result.ok())
            return result;
    }
    return {};
}

Result TcpCoordinator::hear(const Step& step, std::uint32_t rank, RankSet* missing) {
    Stream& stream = *ranks_[rank];
    const Frame mine = step.frame(FrameKind::kShare, 0, size_);
    const Arrival arrival =
        stream.receive(std::max<std::uint64_t>(step.mine.size(), kTextBytesMax));
    if (arrival == Arrival::kNothing)
        return {};
    if (arrival == Arrival::kClosed)
        return failed(UCS_ERR_CONNECTION_RESET, "rank %u has died", rank);
    const Frame& frame = stream.frame();
    if (arrival == Arrival::kNonsense || frame.rank != rank || !missing->contains(rank))
        return failed(UCS_ERR_IO_ERROR, "rank %u sent a malformed message", rank);
    if (frame.kind == FrameKind::kLeave)
        return failed(UCS_ERR_CONNECTION_RESET, "rank %u has left the job", rank);
    if (frame.kind == FrameKind::kFailure) {
        return failed(frame.status, "rank %u gave up: %s; rank 0 waits for %s", rank,
                      reason_of(stream.payload()).c_str(), missing->text().c_str());
    }
    if (Result result = check_share(frame, mine); !result.ok())
        return result;
    if (frame.bytes != 0)
        std::memcpy(&step.all[std::size_t{rank} * frame.bytes], stream.payload().data(),
                    frame.bytes);
    missing->remove(rank);
    return {};
}

/// Sends the result to all ranks. One that has gone by now does not spoil this call for the others;
/// the next call reports it.
Result TcpCoordinator::spread(const Step& step) {
    const Frame frame = step.frame(FrameKind::kResult, 0, size_);
    const Deadline deadline = step.deadline.with_grace();  // that of the others
    for (std::uint32_t rank = 1; rank < size_; ++rank)
        ranks_[rank]->send_borrowed(frame, step.all);
    for (;;) {
        drop_broken();
        PollSet poll_set;
        RankSet busy(size_);
        for (std::uint32_t rank = 1; rank < size_; ++rank) {
            if (ranks_[rank] == nullptr || !ranks_[rank]->has_output())
                continue;
            poll_set.add(ranks_[rank]->fd(), POLLOUT);
            busy.add(rank);
        }
        if (busy.is_empty())
            return {};
        Result result = poll_set.wait(deadline.left_ms());
        if (result.ok() && deadline.is_over()) {
            result = failed(UCS_ERR_TIMED_OUT, "%s did not receive the result within %s",
                            busy.text().c_str(), deadline.limit_text().c_str());
        }
        for (std::uint32_t rank = 1; rank < size_; ++rank) {
            if (!busy.contains(rank))
                continue;
            ranks_[rank]->flush();
            if (!result.ok())
                ranks_[rank].reset();  // its bytes are the caller's
        }
        if (!result.ok())
            return result;
    }
}

void TcpCoordinator::drop_broken() {
    for (std::uint32_t rank = 1; rank < size_; ++rank) {
        if (ranks_[rank] != nullptr && ranks_[rank]->is_broken()) {
            TW_LOG_WARN("bootstrap: rank %u died before it received the result", rank);
            ranks_[rank].reset();
        }
    }
}

void TcpCoordinator::tell(FrameKind kind, const Result& result) {
    for (const auto& stream : ranks_)
        if (stream != nullptr)
            stream->send(notice(kind, result.status, size_, result.why), bytes_of(result.why));
}

}  // namespace tagwire::bootstrap
