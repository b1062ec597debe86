// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <algorithm>

#include "bootstrap_stage.hpp"

namespace tagwire::fuzz {

using bootstrap::Arrival;
using bootstrap::Frame;
using bootstrap::kDigestBytes;

namespace {

constexpr std::uint64_t kHeardBytesMax = 4 * bootstrap::kShareBytesMax;
constexpr std::uint32_t kLengths[] = {0, 1, 8, 31, 32, 64, 1000, bootstrap::kShareBytesMax};
constexpr std::size_t kSentBytesMax = 2000;  // of a payload; what a head announces may be more

bootstrap::Introduction introduction_of(const bootstrap::Settings& settings, std::uint32_t rank,
                                        const bootstrap::Nonce& root,
                                        const bootstrap::Nonce& member) {
    return {settings.job, settings.size, rank, root, member};
}

}  // namespace

void BootstrapPeer::hear() {
    for (;;) {
        const Arrival arrival = stream_.receive(kHeardBytesMax);
        require(arrival != Arrival::kNonsense && arrival != Arrival::kTooLong);
        if (arrival != Arrival::kFrame)
            return;
        take(stream_.frame(), stream_.payload());
    }
}

void BootstrapPeer::take(const Frame& frame, std::span<const std::byte> payload) {
    require(frame.size == settings_.size && frame.rank < settings_.size);
    switch (frame.kind) {
        case Kind::kHello:
            rank_ = frame.rank;
            break;
        case Kind::kChallenge:
            require(payload.size() == kDigestBytes);
            root_nonce_.emplace();
            std::ranges::copy(payload, root_nonce_->begin());
            break;
        case Kind::kProof:
            require(payload.size() == 2 * kDigestBytes);
            member_nonce_.emplace();
            std::ranges::copy(payload.first(kDigestBytes), member_nonce_->begin());
            break;
        case Kind::kWelcome:
            was_welcomed_ = true;
            break;
        case Kind::kShare:
            share_ = frame;
            break;
        default:
            break;
    }
}

void BootstrapPeer::append(const Frame& frame, std::span<const std::byte> payload) {
    const Bytes bytes = bootstrap::with_payload(frame, payload);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void BootstrapPeer::append_words(Kind kind, const std::string& text) {
    Frame frame = bootstrap::notice(kind, UCS_OK, settings_.size, text);
    frame.rank = kind == Kind::kHello ? rank_ : 0;
    append(frame, bootstrap::bytes_of(text));
}

/// A peer that keeps to the protocol says now what the input leaves alone.
void BootstrapPeer::compose(Input& input, const JobCall& call) {
    const auto lies = input.take<std::uint8_t>();
    const auto kind =
        static_cast<Kind>(1 + input.take<std::uint8_t>() % static_cast<unsigned>(Kind::kLast));
    const bool is_share = kind == Kind::kShare || kind == Kind::kResult;
    Frame frame{.kind = kind,
                .operation = is_share ? call.operation : bootstrap::Operation::kNone,
                .status = kind == Kind::kFailure ? UCS_ERR_TIMED_OUT : UCS_OK,
                .number = call.number,
                .rank = rank_,
                .size = settings_.size,
                .bytes = is_share ? call.bytes : 0};
    if (kind == Kind::kHello)
        frame.bytes = static_cast<std::uint32_t>(settings_.job.size());
    if ((lies & 1) != 0)
        frame.operation = static_cast<bootstrap::Operation>(input.take<std::uint8_t>() % 4);
    if ((lies & 2) != 0)
        frame.number = input.take<std::uint8_t>();
    if ((lies & 4) != 0)
        frame.rank = input.take<std::uint8_t>() % 8;
    if ((lies & 8) != 0)
        frame.size = input.take<std::uint8_t>() % 8;
    if ((lies & 16) != 0)
        frame.bytes = kLengths[input.take<std::uint8_t>() % std::size(kLengths)];
    if ((lies & 32) != 0)
        frame.status = static_cast<ucs_status_t>(input.take<std::int8_t>());
    Bytes payload(std::min<std::uint64_t>(frame.payload_bytes(), kSentBytesMax));
    if (kind == Kind::kHello && (lies & 64) == 0) {
        const auto job = bootstrap::bytes_of(settings_.job);
        std::ranges::copy(job.first(std::min(job.size(), payload.size())), payload.begin());
    }
    const std::size_t at = out_.size();
    append(frame, payload);
    if ((lies & 128) != 0)  // one byte of the head
        out_[at + input.take<std::uint8_t>() % bootstrap::kFrameBytes] = input.take<std::byte>();
}

void BootstrapPeer::compose_as_member(const JobCall& call) {
    const bool wants_proof = root_nonce_.has_value() && !member_nonce_.has_value();
    if (!std::exchange(has_begun_, true)) {
        append_words(Kind::kHello, settings_.job);
    } else if (wants_proof) {
        member_nonce_ = bootstrap::Nonce{std::byte{1}};
        const auto digest =
            bootstrap::prove(settings_.secret, bootstrap::Prover::kRank,
                             introduction_of(settings_, rank_, *root_nonce_, *member_nonce_));
        Bytes proof(member_nonce_->begin(), member_nonce_->end());
        proof.insert(proof.end(), digest.begin(), digest.end());
        append({.kind = Kind::kProof,
                .rank = rank_,
                .size = settings_.size,
                .bytes = 2 * kDigestBytes},
               proof);
        has_proven_ = true;
    } else if (was_welcomed_ && call.operation != bootstrap::Operation::kNone &&
               last_share_ != call.number) {
        last_share_ = call.number;
        append({.kind = Kind::kShare,
                .operation = call.operation,
                .number = call.number,
                .rank = rank_,
                .size = settings_.size,
                .bytes = call.bytes},
               Bytes(call.bytes, static_cast<std::byte>(rank_)));
    }
}

void BootstrapPeer::compose_as_root(bool knows_secret) {
    const bool asks = !settings_.secret.empty();
    if (asks && !std::exchange(has_begun_, true)) {
        root_nonce_ = bootstrap::Nonce{std::byte{2}};
        append({.kind = Kind::kChallenge, .size = settings_.size, .bytes = kDigestBytes},
               *root_nonce_);
    } else if (asks && member_nonce_.has_value() && !has_proven_) {
        has_proven_ = knows_secret;
        const auto digest = bootstrap::prove(
            knows_secret ? settings_.secret : "not the secret", bootstrap::Prover::kCoordinator,
            introduction_of(settings_, rank_, *root_nonce_, *member_nonce_));
        append({.kind = Kind::kProven, .size = settings_.size, .bytes = kDigestBytes}, digest);
    } else if (!std::exchange(was_welcomed_, true)) {
        append_words(Kind::kWelcome, "");
    } else if (share_.has_value()) {
        Frame result = *share_;
        result.kind = Kind::kResult;
        result.rank = 0;
        append(result, Bytes(result.payload_bytes(), std::byte{0x5a}));
        share_.reset();
    }
}

void BootstrapPeer::deliver(std::size_t bytes) {
    const std::size_t most = std::min(bytes, out_.size());
    if (most == 0)
        return;
    const ssize_t sent = ::send(stream_.fd(), out_.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
        out_.erase(out_.begin(), out_.begin() + sent);
}

void BootstrapPeer::finish_sending() {
    ::shutdown(stream_.fd(), SHUT_WR);
}

}  // namespace tagwire::fuzz
