// SPDX-License-Identifier: BSD-3-Clause
// The victim of a hostile test: an interface with a good peer, and receives of it that strangers
// may match. A test adds its stranger. Whatever the stranger does, the good peer is served, and no
// receive buffer is lost.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "operations.hpp"

namespace tagwire::test {

class Siege {
  public:
    static constexpr std::size_t kSegBytes = 512;

    Siege(const char* transport, const EntityOptions& options, std::uint64_t seed);
    virtual ~Siege();
    Siege(const Siege&) = delete;
    Siege& operator=(const Siege&) = delete;

    /// Messages, a receive and rendezvous of both directions with the good peer.
    void check_good_peer();
    /// Nothing is held for strangers that are gone.
    void check_nothing_is_held();

    virtual void step() {
        victim.progress();
        good.progress();
    }
    void until(const std::function<bool()>& done);

    std::mt19937_64 random;
    Entity victim;
    Entity good;
    Buffer exposed;

  private:
    static constexpr int kStepsMax = 2'000'000;
    static constexpr uct_tag_t kGoodTag = 1ULL << 40;
    static constexpr std::size_t kGoodBytes = 3000;

    void post(Receive& receive, uct_tag_t tag);
    ucs_status_t look_at(void* data);
    void release_kept();
    void send_until_taken(const std::function<ucs_status_t()>& send);
    void exchange(Entity& from, uct_ep_h ep, Entity& to, bool is_rndv);
    bool is_exchanged(Entity& from, uct_ep_h ep, Entity& to, bool is_rndv);

    std::vector<std::unique_ptr<Receive>> receives_;
    std::vector<void*> kept_;
    bool seen_good_ = false;
    bool keeps_ = true;
    long posted_ = 0;
    Endpoint there_, back_;
};

}  // namespace tagwire::test
