// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bootstrap/tcp.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr int kPauseMsMin = 5;
constexpr int kPauseMsMax = 200;

}  // namespace

TcpRank::~TcpRank() {
    tell(FrameKind::kLeave, {});
}

Result TcpRank::join(const addrinfo* addresses, const Deadline& deadline) {
    int pause_ms = kPauseMsMin;
    for (;;) {
        bool is_over = true;
        Result result = try_join(addresses, deadline, &is_over);
        if (is_over)
            return result;
        coordinator_.reset();
        if (deadline.is_over()) {
            return failed(UCS_ERR_TIMED_OUT,
                          "rank 0 is missing: no process of this job accepted a connection at %s "
                          "within %s: %s",
                          settings_.where.c_str(), deadline.limit_text().c_str(),
                          result.why.c_str());
        }
        ::poll(nullptr, 0, std::min(pause_ms, deadline.left_ms()));
        pause_ms = std::min(2 * pause_ms, kPauseMsMax);
    }
}

Result TcpRank::try_join(const addrinfo* addresses, const Deadline& deadline, bool* is_over_p) {
    ucs::UniqueFd fd;
    Result result = tcp_connect(addresses, deadline, &fd);
    if (!result.ok()) {
        *is_over_p = false;
        return result;
    }
    coordinator_ = std::make_unique<Stream>(std::move(fd));
    Frame hello = notice(FrameKind::kHello, UCS_OK, settings_.size, settings_.job);
    hello.rank = settings_.rank;
    coordinator_->send(hello, bytes_of(settings_.job));
    awaited_.clear();
    was_cut_ = false;
    if (!settings_.secret.empty())
        result = prove_and_check(deadline.with_grace());
    if (result.ok())
        result = await(FrameKind::kWelcome, 0, deadline.with_grace());
    // A listener of an earlier job closes what still waits there, without a word.
    *is_over_p = !was_cut_;
    return result;
}

/// Neither side tells anything else before both have proven that they know the secret.
Result TcpRank::prove_and_check(const Deadline& deadline) {
    Introduction introduction{settings_.job, settings_.size, settings_.rank, {}, {}};
    if (Result result = await(FrameKind::kChallenge, kDigestBytes, deadline); !result.ok())
        return result;
    std::ranges::copy(coordinator_->payload(), introduction.coordinator_nonce.begin());
    if (Result result = make_nonce(&introduction.rank_nonce); !result.ok())
        return result;
    const Digest digest = prove(settings_.secret, Prover::kRank, introduction);
    std::array<std::byte, 2 * kDigestBytes> proof;
    std::ranges::copy(digest, std::ranges::copy(introduction.rank_nonce, proof.begin()).out);
    coordinator_->send({.kind = FrameKind::kProof,
                        .rank = settings_.rank,
                        .size = settings_.size,
                        .bytes = 2 * kDigestBytes},
                       proof);
    if (Result result = await(FrameKind::kProven, kDigestBytes, deadline); !result.ok())
        return result;
    if (!are_equal(prove(settings_.secret, Prover::kCoordinator, introduction),
                   coordinator_->payload())) {
        return failed(UCS_ERR_REJECTED, "the process at %s does not have the secret of this job",
                      settings_.where.c_str());
    }
    return {};
}

Result TcpRank::allgather(const Step& step) {
    awaited_.clear();
    const Frame share = step.frame(FrameKind::kShare, settings_.rank, settings_.size);
    coordinator_->send_borrowed(share, step.mine);
    Result result = await(FrameKind::kResult, step.all.size(), step.deadline.with_grace());
    const Frame& answer = coordinator_->frame();
    if (result.ok() && (answer.operation != step.operation || answer.number != step.number ||
                        answer.bytes != share.bytes)) {
        result = failed(UCS_ERR_IO_ERROR, "rank 0 replied to another call");
    }
    if (result.ok() && !step.all.empty())
        std::memcpy(step.all.data(), coordinator_->payload().data(), step.all.size());
    if (coordinator_->has_output())
        coordinator_.reset();  // the unsent bytes are the caller's
    else if (result.status == UCS_ERR_TIMED_OUT)
        tell(FrameKind::kFailure, result);
    return result;
}

Result TcpRank::await(FrameKind kind, std::uint64_t payload_bytes, const Deadline& deadline) {
    for (;;) {
        switch (coordinator_->receive(std::max<std::uint64_t>(payload_bytes, kTextBytesMax))) {
            case Arrival::kNothing:
                if (Result result = wait_for_bytes(deadline); !result.ok())
                    return result;
                continue;
            case Arrival::kClosed:
                was_cut_ = true;
                return failed(UCS_ERR_CONNECTION_RESET, "rank 0 closed the connection, or died");
            case Arrival::kNonsense:
            case Arrival::kTooLong:
                return failed(UCS_ERR_REJECTED, "the process at %s is not rank 0 of this job",
                              settings_.where.c_str());
            case Arrival::kFrame:
                break;
        }
        const Frame& frame = coordinator_->frame();
        if (frame.kind == FrameKind::kWaiting) {
            awaited_ = text_of(coordinator_->payload());
        } else if (frame.kind == kind && frame.size == settings_.size && frame.rank == 0 &&
                   coordinator_->payload().size() == payload_bytes) {
            return {};
        } else {
            return hear_notice();
        }
    }
}

Result TcpRank::wait_for_bytes(const Deadline& deadline) {
    if (deadline.is_over()) {
        return failed(UCS_ERR_TIMED_OUT, "still missing after %s: %s",
                      deadline.limit_text().c_str(),
                      awaited_.empty() ? "rank 0" : awaited_.c_str());
    }
    PollSet poll_set;
    poll_set.add(coordinator_->fd(), coordinator_->wanted_events());
    Result result = poll_set.wait(deadline.left_ms());
    coordinator_->flush();
    return result;
}

Result TcpRank::hear_notice() const {
    const Frame& frame = coordinator_->frame();
    if (frame.kind == FrameKind::kFailure)
        return {frame.status, reason_of(coordinator_->payload())};
    if (frame.kind == FrameKind::kLeave)
        return failed(UCS_ERR_CONNECTION_RESET, "rank 0 has left the job");
    if (frame.kind == FrameKind::kChallenge) {
        return failed(UCS_ERR_REJECTED,
                      "rank 0 asks for the job's secret, and this process has none: set "
                      "TAGWIRE_BOOTSTRAP_SECRET_FILE or TAGWIRE_BOOTSTRAP_SECRET");
    }
    if (frame.kind == FrameKind::kWelcome && !settings_.secret.empty()) {
        return failed(
            UCS_ERR_REJECTED,
            "the process at %s asks for no secret, but this process has one: set it on all "
            "ranks or on none",
            settings_.where.c_str());
    }
    return failed(UCS_ERR_IO_ERROR, "rank 0 sent a malformed message");
}

void TcpRank::tell(FrameKind kind, const Result& result) {
    if (coordinator_ == nullptr)
        return;
    Frame frame = notice(kind, result.status, settings_.size, result.why);
    frame.rank = settings_.rank;
    coordinator_->send(frame, bytes_of(result.why));
}

}  // namespace tagwire::bootstrap
