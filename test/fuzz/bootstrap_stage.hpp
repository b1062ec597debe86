// SPDX-License-Identifier: BSD-3-Clause
// Where a job meets in a fuzz target: one thread, a clock of its own, and peers that do what an
// input says whenever the process under test waits. The target is linked with --wrap=poll and
// --wrap=clock_gettime: a wait performs acts of the script until something has come, and from the
// end of the script on time passes at once.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/secret.hpp"
#include "bootstrap/settings.hpp"
#include "bootstrap/tcp_stream.hpp"
#include "input.hpp"

namespace tagwire::fuzz {

using Bytes = std::vector<std::byte>;

/// The call that the process under test is in.
struct JobCall {
    bootstrap::Operation operation = bootstrap::Operation::kNone;
    std::uint32_t number = 0;
    std::uint32_t bytes = 0;
};

/// One end of a connection to the process under test, in the hands of the script.
class BootstrapPeer {
  public:
    BootstrapPeer(ucs::UniqueFd fd, const bootstrap::Settings& settings, std::uint32_t rank)
        : stream_(std::move(fd)), settings_(settings), rank_(rank) {}

    /// Takes what has come, which is always well formed.
    void hear();
    /// A frame as the input words it goes behind what waits to be sent.
    void compose(Input& input, const JobCall& call);
    /// The next frame of one that keeps to the protocol: as a member, or as rank 0.
    void compose_as_member(const JobCall& call);
    void compose_as_root(bool knows_secret);
    /// Sends so many bytes of those that wait.
    void deliver(std::size_t bytes);
    void finish_sending();

    std::uint32_t rank() const { return rank_; }
    /// It has said what only those can say who know the secret.
    bool has_proven() const { return has_proven_; }

  private:
    using Kind = bootstrap::FrameKind;

    void take(const bootstrap::Frame& frame, std::span<const std::byte> payload);
    void append(const bootstrap::Frame& frame, std::span<const std::byte> payload);
    void append_words(Kind kind, const std::string& text);
    Bytes proof() const;

    bootstrap::Stream stream_;
    const bootstrap::Settings& settings_;
    std::uint32_t rank_;  // whom it plays; of a false rank 0 the member that it has heard of
    Bytes out_;
    bool has_begun_ = false;  // hello, or challenge
    bool was_welcomed_ = false;
    bool has_proven_ = false;
    std::optional<bootstrap::Nonce> root_nonce_;
    std::optional<bootstrap::Nonce> member_nonce_;
    std::optional<bootstrap::Frame> share_;    // heard, and not answered
    std::optional<std::uint32_t> last_share_;  // the number of the last that was said
};

class BootstrapStage {
  public:
    /// `listens`: peers connect to the process under test; else they listen, as rank 0.
    BootstrapStage(Input& input, const bootstrap::Settings& settings, bool listens);
    BootstrapStage(const BootstrapStage&) = delete;
    BootstrapStage& operator=(const BootstrapStage&) = delete;
    ~BootstrapStage();

    ucs::UniqueFd take_listener() { return std::move(listener_); }
    const addrinfo* address() const { return &entry_; }
    JobCall call;

    /// Whether some peer that plays `rank` has proven that it knows the secret.
    bool has_proven(std::uint32_t rank) const;
    /// Peers take what is left.
    void hear_all();

    int poll(pollfd* fds, nfds_t count, int timeout_ms);
    std::uint64_t now_ns() const { return now_ns_; }
    /// The one that plays; null: waits and clocks are the kernel's.
    static BootstrapStage* current;

  private:
    static constexpr std::size_t kPeersMax = 4;
    static constexpr int kActsMax = 200;
    static constexpr int kIdlePollsMax = 1000;

    bool act();
    void act_of(BootstrapPeer& peer, unsigned act);
    void meet(std::size_t place);

    Input& input_;
    const bootstrap::Settings& settings_;
    bool listens_;
    sockaddr_un name_{};
    addrinfo entry_{};
    ucs::UniqueFd listener_;
    std::array<std::unique_ptr<BootstrapPeer>, kPeersMax> peers_;
    std::vector<std::uint32_t> proven_;  // ranks of peers that are gone
    std::uint64_t now_ns_ = 1'000'000'000;
    int acts_ = 0;
    int idle_polls_ = 0;
};

}  // namespace tagwire::fuzz
