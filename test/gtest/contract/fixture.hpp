// SPDX-License-Identifier: BSD-3-Clause
// The contract suite's fixture: every case runs for every resource of the library, between two
// entities of one process and within one entity that talks to itself. A case asks for the
// capabilities it needs by TW_NEED; where a transport does not advertise them the case is listed as
// skipped with the flag's name.
//
// Cases never sleep: they drive progress until a condition holds or a step limit is reached.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {

// Active message id, tag and mask that most cases use.
inline constexpr std::uint8_t kId = Entity::kAmId;
inline constexpr uct_tag_t kTag = 0xabcd000000000001;
inline constexpr uct_tag_t kExact = ~uct_tag_t{0};  // a mask

enum class Topology { kTwoEntities, kLoopback };

struct Setup {
    Resource resource;
    Topology topology;
};
void PrintTo(const Setup& setup, std::ostream* out);
std::vector<Setup> all_setups();
std::vector<Setup> pair_setups();  // those between two entities
std::string setup_label(const ::testing::TestParamInfo<Setup>& info);

/// Progress does not drive the device, which has a thread of its own as cards do
/// (TAGWIRE_TEST_DEVICE_ALONE).
bool device_is_alone();

class Contract : public ::testing::TestWithParam<Setup> {
  protected:
    static constexpr std::uint64_t kStepsMax = 4'000'000;

    void SetUp() override { reopen(); }
    void TearDown() override { close(); }

    /// Closes everything and opens the entities anew with these options.
    void reopen(const EntityOptions& both = {}) { reopen(both, both); }
    void reopen(const EntityOptions& sender, const EntityOptions& receiver);
    void close();

    Entity& sender() { return *sender_; }
    Entity& receiver() {
        return GetParam().topology == Topology::kLoopback ? *sender_ : *receiver_;
    }
    bool is_loopback() const { return GetParam().topology == Topology::kLoopback; }
    uct_ep_h ep() { return link_.forward; }
    uct_ep_h back_ep();  // receiver -> sender
    const uct_iface_attr_t& attr() { return sender_->attr(); }

    /// Receives are matched by the device: before software hears of it, and beyond the reach of a
    /// forced cancel.
    bool device_matches() { return attr().cap.tag.recv.min_recv > 0; }
    bool reads_unasked() const { return knobs_of(GetParam().resource).reads_unasked; }

    /// One more entity on the same resource; progressed along with the others.
    Entity& add_entity(const EntityOptions& options = {});
    /// Endpoint between any two entities, closed with the test.
    uct_ep_h connect_more(Entity& from, Entity& to);
    void destroy_ep() { link_.forward.reset(); }
    void close_receiver();
    /// Only its interface: memory of it can still be used.
    void close_receiver_iface();

    unsigned step();
    bool until(const std::function<bool()>& done, std::uint64_t steps_max = kStepsMax);
    /// Lets everything settle: progress until nothing moved for a while, which
    /// TAGWIRE_TEST_IDLE_FACTOR makes longer.
    void drain(unsigned idle_steps = 2000);

    /// Repeats `operation` while it answers NO_RESOURCE, progressing all entities between; gives
    /// its last answer.
    ucs_status_t retry(const std::function<ucs_status_t()>& operation);
    /// The same where only one side may progress, because the other one sleeps, and only where
    /// there is little room by design: elsewhere there is room.
    ucs_status_t retry_alone(Entity& entity, const std::function<ucs_status_t()>& operation);
    /// For sends in callbacks, where nobody may progress: UCS_OK is expected. Only where there is
    /// little room by design one that is refused becomes a pending request.
    void send_inside(uct_ep_h endpoint, const std::function<ucs_status_t()>& operation);
    /// Posts, once cancelled receives have given their places back: a device does that by itself.
    ucs_status_t post_again(Receive& receive, uct_tag_t tag);
    /// `send` with a fresh completion, repeated while resources lack, and driven until it is
    /// complete. Returns how it ended; expects exactly one completion.
    ucs_status_t run(const std::function<ucs_status_t(uct_completion_t*)>& operation);
    /// Flush of the endpoint until it is done.
    void flush_ep(uct_ep_h endpoint);

  private:
    struct Queued : uct_pending_req_t {
        std::function<ucs_status_t()> operation;
    };

    void close_endpoints_of_receiver();

    std::unique_ptr<Entity> sender_;
    std::unique_ptr<Entity> receiver_;
    std::vector<std::unique_ptr<Entity>> more_;
    Connection link_;
    Connection back_;
    std::vector<Connection> more_links_;
    std::vector<std::unique_ptr<Queued>> queued_;
};

#define TW_NEED(flag)                              \
    do {                                           \
        if (!sender().offers(flag))                \
            GTEST_SKIP() << "not offered: " #flag; \
    } while (false)

#define TW_NEED_RECEIVES(count)                                        \
    do {                                                               \
        if (attr().cap.tag.recv.max_outstanding < (count))             \
            GTEST_SKIP() << "not offered: " << (count) << " receives"; \
    } while (false)

#define TW_CONTRACT(suite)            \
    class suite : public Contract {}; \
    INSTANTIATE_TEST_SUITE_P(Contract, suite, ::testing::ValuesIn(all_setups()), setup_label)

/// For cases that need two sides: who closes itself hears nothing, who sleeps cannot wake itself.
#define TW_CONTRACT_OF_TWO(suite)     \
    class suite : public Contract {}; \
    INSTANTIATE_TEST_SUITE_P(Contract, suite, ::testing::ValuesIn(pair_setups()), setup_label)

}  // namespace tagwire::test
