// SPDX-License-Identifier: BSD-3-Clause
// Method TCP: a star around rank 0, which collects what the others share and sends all of it to
// each.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/method.hpp"
#include "bootstrap/tcp_admission.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "bootstrap/tcp_stream.hpp"

namespace tagwire::bootstrap {

class TcpCoordinator final : public Method {
  public:
    TcpCoordinator(std::uint32_t size, RankStreams ranks) : size_(size), ranks_(std::move(ranks)) {}
    ~TcpCoordinator() override;

    const char* name() const override { return "tcp"; }
    std::uint32_t rank() const override { return 0; }
    std::uint32_t size() const override { return size_; }
    Result allgather(const Step& step) override;

  private:
    Result collect(const Step& step);
    Result poll(const Step& step, int timeout_ms, RankSet* missing);
    Result hear(const Step& step, std::uint32_t rank, RankSet* missing);
    Result spread(const Step& step);
    void drop_broken();
    void tell(FrameKind kind, const Result& result);

    std::uint32_t size_;
    RankStreams ranks_;  // null: gone
};

class TcpRank final : public Method {
  public:
    explicit TcpRank(const Settings& settings) : settings_(settings) {}
    ~TcpRank() override;

    /// Finds rank 0 and waits until it says that all are there.
    Result join(const addrinfo* addresses, const Deadline& deadline);

    const char* name() const override { return "tcp"; }
    std::uint32_t rank() const override { return settings_.rank; }
    std::uint32_t size() const override { return settings_.size; }
    Result allgather(const Step& step) override;

  private:
    /// `is_over_p` false: the connection was no success, and another may be.
    Result try_join(const addrinfo* addresses, const Deadline& deadline, bool* is_over_p);
    Result prove_and_check(const Deadline& deadline);
    Result await(FrameKind kind, std::uint64_t payload_bytes, const Deadline& deadline);
    Result wait_for_bytes(const Deadline& deadline);
    Result hear_notice() const;
    void tell(FrameKind kind, const Result& result);

    Settings settings_;
    std::unique_ptr<Stream> coordinator_;
    bool was_cut_ = false;  // the connection ended without a word
    std::string awaited_;   // whom rank 0 waits for; empty: it has not said
};

}  // namespace tagwire::bootstrap
