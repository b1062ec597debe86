// SPDX-License-Identifier: BSD-3-Clause
// Rank 0's listener while the job gathers: who connects says hello and is let in or refused.
//
// 1. Whoever is not of this job is sent away alone; the job goes on waiting.
// 2. A connection that says nothing costs a descriptor, and the oldest of too many goes.
// 3. A rank that goes before all are there may come again.
// 4. With a secret nobody takes a rank before he has proven that he knows it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/secret.hpp"
#include "bootstrap/settings.hpp"
#include "bootstrap/tcp_poll.hpp"
#include "bootstrap/tcp_stream.hpp"

namespace tagwire::bootstrap {

/// By rank; none for rank 0 itself.
using RankStreams = std::vector<std::unique_ptr<Stream>>;

class TcpAdmission {
  public:
    TcpAdmission(const Settings& settings, ucs::UniqueFd listener);

    /// On success all ranks are there and have been told.
    Result wait_for_all(const Deadline& deadline, RankStreams* ranks_p);

  private:
    Result gather_ranks(const Deadline& deadline);
    Result poll(int timeout_ms);
    Result accept_waiting();
    /// A peer that has connected, and with a secret the question that it was asked.
    struct Stranger {
        std::unique_ptr<Stream> stream;
        std::unique_ptr<Introduction> asked;
    };

    void hear_stranger(Stranger stranger);
    void hear_hello(Stranger stranger);
    void hear_proof(Stranger stranger);
    void let_in(std::uint32_t rank, std::unique_ptr<Stream> stream);
    void hear_rank(std::uint32_t rank);
    std::string why_not(const Stream& stranger) const;
    void refuse(Stream& stranger, const std::string& why);
    Result missing_result(const Deadline& deadline) const;
    void tell_ranks(FrameKind kind, ucs_status_t status, const std::string& text);

    const Settings& settings_;
    ucs::UniqueFd listener_;
    std::vector<Stranger> strangers_;  // oldest first
    RankStreams ranks_;
    RankSet missing_;
    unsigned refused_ = 0;
    std::string last_refusal_;
};

}  // namespace tagwire::bootstrap
