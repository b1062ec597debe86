// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp_admission.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/tcp_socket.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr std::size_t kStrangersMax = 256;
constexpr unsigned kRefusalsLoggedMax = 8;
/// The longest frame of a stranger before he is let in: the job's name, or a proof.
constexpr std::size_t kHelloBytesMax = std::max(TW_BOOTSTRAP_JOB_MAX, 2 * kDigestBytes);

}  // namespace

TcpAdmission::TcpAdmission(const Settings& settings, ucs::UniqueFd listener)
    : settings_(settings),
      listener_(std::move(listener)),
      ranks_(settings.size),
      missing_(settings.size, true) {
    missing_.remove(0);
}

Result TcpAdmission::wait_for_all(const Deadline& deadline, RankStreams* ranks_p) {
    Result result = gather_ranks(deadline);
    if (!result.ok()) {
        tell_ranks(FrameKind::kFailure, result.status, result.why);
        return result;
    }
    tell_ranks(FrameKind::kWelcome, UCS_OK, "");
    *ranks_p = std::move(ranks_);
    return {};
}

Result TcpAdmission::gather_ranks(const Deadline& deadline) {
    Beat beat(deadline);
    for (;;) {
        const bool seem_complete = missing_.is_empty();
        if (!seem_complete && deadline.is_over())
            return missing_result(deadline);
        // Once they seem complete, a last look for one that has died meanwhile.
        Result result = poll(seem_complete ? 0 : beat.left_ms(deadline));
        if (!result.ok() || (seem_complete && missing_.is_empty()))
            return result;
        if (!missing_.is_empty() && beat.is_due())
            tell_ranks(FrameKind::kWaiting, UCS_OK, missing_.text());
    }
}

Result TcpAdmission::missing_result(const Deadline& deadline) const {
    std::string refusals;
    if (refused_ != 0) {
        refusals = "; " + std::to_string(refused_) +
                   " connections were refused, the last because " + last_refusal_;
    }
    return failed(UCS_ERR_TIMED_OUT, "%s of %u did not come within %s%s", missing_.text().c_str(),
                  settings_.size, deadline.limit_text().c_str(), refusals.c_str());
}

Result TcpAdmission::poll(int timeout_ms) {
    PollSet poll_set;
    poll_set.add(listener_.get(), POLLIN);
    for (const auto& stranger : strangers_)
        poll_set.add(stranger.stream->fd(), stranger.stream->wanted_events());
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 1; rank < settings_.size; ++rank) {
        if (ranks_[rank] == nullptr)
            continue;
        poll_set.add(ranks_[rank]->fd(), ranks_[rank]->wanted_events());
        ranks.push_back(rank);
    }
    if (Result result = poll_set.wait(timeout_ms); !result.ok())
        return result;
    const std::size_t first_rank = 1 + strangers_.size();
    for (std::size_t i = 0; i < ranks.size(); ++i)
        if (poll_set.is_ready(first_rank + i))
            hear_rank(ranks[i]);
    auto waiting = std::move(strangers_);
    strangers_.clear();
    for (std::size_t i = 0; i < waiting.size(); ++i)
        if (poll_set.is_ready(1 + i))
            hear_stranger(std::move(waiting[i]));
        else
            strangers_.push_back(std::move(waiting[i]));
    return poll_set.is_ready(0) ? accept_waiting() : Result{};
}

Result TcpAdmission::accept_waiting() {
    for (std::size_t i = 0; i < kStrangersMax; ++i) {
        ucs::UniqueFd fd(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            return failed_errno(UCS_ERR_NO_RESOURCE, errno, "rank 0 cannot accept a connection");
        if (!fd)
            return {};  // none waits, or one that went again
        const int on = 1;
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (strangers_.size() == kStrangersMax)
            strangers_.erase(strangers_.begin());
        strangers_.push_back({std::make_unique<Stream>(std::move(fd)), nullptr});
    }
    return {};
}

void TcpAdmission::hear_stranger(Stranger stranger) {
    switch (stranger.stream->receive(kHelloBytesMax)) {
        case Arrival::kNothing:
            stranger.stream->flush();
            strangers_.push_back(std::move(stranger));
            return;
        case Arrival::kClosed:
            return;
        case Arrival::kNonsense:
        case Arrival::kTooLong:
            refuse(*stranger.stream, "it is not a process of a tagwire job");
            return;
        case Arrival::kFrame:
            break;
    }
    stranger.asked == nullptr ? hear_hello(std::move(stranger)) : hear_proof(std::move(stranger));
}

void TcpAdmission::hear_hello(Stranger stranger) {
    Stream& stream = *stranger.stream;
    if (const std::string why = why_not(stream); !why.empty())
        return refuse(stream, why);
    const std::uint32_t rank = stream.frame().rank;
    if (settings_.secret.empty())
        return let_in(rank, std::move(stranger.stream));
    stranger.asked =
        std::make_unique<Introduction>(Introduction{settings_.job, settings_.size, rank, {}, {}});
    Nonce& nonce = stranger.asked->coordinator_nonce;
    if (const Result result = make_nonce(&nonce); !result.ok())
        return refuse(stream, result.why);
    stream.send({.kind = FrameKind::kChallenge, .size = settings_.size, .bytes = kDigestBytes},
                nonce);
    strangers_.push_back(std::move(stranger));
}

void TcpAdmission::hear_proof(Stranger stranger) {
    Stream& stream = *stranger.stream;
    Introduction& asked = *stranger.asked;
    const auto proof = stream.payload();
    if (stream.frame().kind != FrameKind::kProof || proof.size() != 2 * kDigestBytes)
        return refuse(stream, "it did not reply to the challenge");
    std::ranges::copy(proof.first(kDigestBytes), asked.rank_nonce.begin());
    const Digest expected = prove(settings_.secret, Prover::kRank, asked);
    if (!are_equal(expected, proof.subspan(kDigestBytes)))
        return refuse(stream, "it does not have the secret of this job");
    if (ranks_[asked.rank] != nullptr)
        return refuse(stream, "rank " + std::to_string(asked.rank) + " has joined already");
    const Digest own = prove(settings_.secret, Prover::kCoordinator, asked);
    stream.send({.kind = FrameKind::kProven, .size = settings_.size, .bytes = kDigestBytes}, own);
    let_in(asked.rank, std::move(stranger.stream));
}

void TcpAdmission::let_in(std::uint32_t rank, std::unique_ptr<Stream> stream) {
    ranks_[rank] = std::move(stream);
    missing_.remove(rank);
}

/// Empty: it is one of us.
std::string TcpAdmission::why_not(const Stream& stranger) const {
    const Frame& hello = stranger.frame();
    if (hello.kind != FrameKind::kHello)
        return "its first message is not a hello";
    const std::string job = text_of(stranger.payload());
    if (job != settings_.job)
        return "it belongs to job '" + job + "', this is '" + settings_.job + "'";
    if (hello.size != settings_.size) {
        return "it expects a job of " + std::to_string(hello.size) +
               " processes, but rank 0 one of " + std::to_string(settings_.size);
    }
    const std::string rank = std::to_string(hello.rank);
    if (hello.rank >= settings_.size)
        return "it calls itself rank " + rank + " of " + std::to_string(settings_.size);
    if (hello.rank == 0 || ranks_[hello.rank] != nullptr)
        return "rank " + rank + " has joined already";
    return "";
}

void TcpAdmission::refuse(Stream& stranger, const std::string& why) {
    const std::string peer = ucs::peer_text(stranger.fd());
    last_refusal_ = why;
    if (++refused_ <= kRefusalsLoggedMax)
        TW_LOG_WARN("bootstrap: refused %s: %s", peer.c_str(), why.c_str());
    const std::string text = "rank 0 refuses this process: " + why;
    stranger.send(notice(FrameKind::kFailure, UCS_ERR_REJECTED, settings_.size, text),
                  bytes_of(text));
}

void TcpAdmission::hear_rank(std::uint32_t rank) {
    Stream& stream = *ranks_[rank];
    stream.flush();
    // Nobody has to say anything before the welcome, so it is an end or a mistake.
    if (stream.receive(kTextBytesMax) == Arrival::kNothing)
        return;
    TW_LOG_INFO("bootstrap: rank %u left before all ranks had joined", rank);
    ranks_[rank].reset();
    missing_.add(rank);
}

void TcpAdmission::tell_ranks(FrameKind kind, ucs_status_t status, const std::string& text) {
    for (const auto& stream : ranks_)
        if (stream != nullptr)
            stream->send(notice(kind, status, settings_.size, text), bytes_of(text));
}

}  // namespace tagwire::bootstrap
