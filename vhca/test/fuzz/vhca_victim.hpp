// SPDX-License-Identifier: BSD-3-Clause
// A virtual HCA with every kind of object, attacked by peers that send nonsense: connected queue
// pairs of each type, regions with different rights, and memory around them that no packet may
// change.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "input.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"

namespace tagwire::fuzz {

inline constexpr vhca::Route kPeer{77};  // whom the queue pairs are connected to

class VhcaVictim final : public vhca::EventSink {
  public:
    explicit VhcaVictim(vhca::Wire& wire);
    ~VhcaVictim() override;
    VhcaVictim(const VhcaVictim&) = delete;
    VhcaVictim& operator=(const VhcaVictim&) = delete;

    vhca::Device& device() { return *device_; }
    [[nodiscard]] vhca::Time now() const { return now_; }

    /// A packet that is nearly right: known numbers, keys and addresses, PSNs close to the next
    /// ones. Returns how many bytes of `out` it has, a multiple of 4.
    std::size_t compose(Input& input, std::span<std::byte, vhca::kPacketBytesMax> out);

    /// One act of the program meanwhile: posts, polls, lets time pass, or restarts a queue pair.
    void act(Input& input);

    /// Traps if memory changed that no packet has a right to.
    void check();

  private:
    static constexpr std::size_t kRegionBytes = 3000, kEdgeBytes = 512;
    /** A region in the middle of a block of memory; exactly as long, so that the sanitizer sees
        what goes beyond the block. */
    struct Region {
        std::vector<std::byte> block;
        vhca::Pd* pd = nullptr;
        vhca::Mr* mr = nullptr;
        bool is_read_only = false;
    };

    void cq_event(vhca::Cq&) override {}
    void qp_event(ibv_event_type, vhca::Qp&) override {}
    void srq_event(ibv_event_type, vhca::Srq&) override {}
    void cq_error(vhca::Cq&) override {}

    void add_region(vhca::Pd* pd, unsigned access);
    void add_pair(ibv_qp_type type, vhca::Srq* srq);
    void connect(vhca::Qp& qp);
    void post_send(Input& input);
    void post_receive(Input& input);
    ibv_sge sge_in(Input& input, bool may_be_wrong);
    std::uint64_t address_in(Input& input, const Region& region);

    std::unique_ptr<vhca::Device> device_;
    vhca::Time now_ = 1'000'000;
    vhca::Pd* pd_ = nullptr;
    vhca::Pd* other_pd_ = nullptr;
    vhca::Cq* cq_ = nullptr;
    std::array<vhca::Srq*, 2> srqs_{};  // one of them matches tags
    std::vector<vhca::Qp*> pairs_;
    std::vector<Region> regions_;
};

}  // namespace tagwire::fuzz
