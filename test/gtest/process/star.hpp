// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are connected to endpoints, between several processes: one survivor, a bystander
// that lives as long as it does, and a victim for each scene of a play.
//
//   test            survivor                  victim i                   bystander
//    |  addresses     |                           prepare_as_victim()        |  echoes
//    |--------------> act()                                                  |  until told
//    | <------------------ messages ------------> act_as_victim()            |
//    |                is_set(): waits             returns                    |
//    | <--- quiet ----|   (does nothing) <------- last_words()               |
//    | <--------------------- said --------------|                           |
//    |  SIGKILL ------------------------------->  X                          |
//    |  dead -------> goes on until the scenes are over and checked          |
//    |                says hello to the bystander once more                  |
//
// All scenes of a play happen at the same time, on one interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness.hpp"
#include "operations.hpp"

namespace tagwire::test {

/// One side's view of the other.
struct Stage {
    Entity& self;
    uct_ep_h peer;
    unsigned number;  // of the scene: its active messages have it as their id, its tags begin here
    Bytes props;      // of the peer: what its props() said

    [[nodiscard]] std::uint8_t am_id() const { return static_cast<std::uint8_t>(number); }
    [[nodiscard]] uct_tag_t tag(unsigned offset = 0) const { return number * 1000 + offset; }
};

/// A phase of some traffic in which one of two dies. An object of it acts in one process.
class Scene {
  public:
    Scene() = default;
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    virtual ~Scene() = default;

    // ---- The victim. Its memory is not looked after: it is killed.
    virtual Bytes props(Entity&) { return {}; }
    /// Before the survivor acts.
    virtual void prepare_as_victim(const Stage&) {}
    /// The survivor has acted, and progresses.
    virtual void act_as_victim(const Stage&) {}
    /// It does not any more. May end in the victim's own death.
    virtual void last_words(const Stage&) {}

    // ---- The survivor
    virtual void act(const Stage&) {}
    /// Whether the scene is ready for the death.
    virtual bool is_set(const Stage&) { return true; }
    /// The victim is dead, and that was not noticed yet.
    virtual void it_died(const Stage&) {}
    /// All that was under way has ended. The error handler has run, too, when check() is called.
    virtual bool is_over(const Stage&) { return true; }
    /// The same of the operations of the endpoint, when its error is told.
    virtual bool has_endpoint_ended(const Stage& stage) { return is_over(stage); }
    virtual void check(const Stage&) {}
    /// The endpoint is gone.
    virtual void after_close(Entity&) {}
};

struct ScenePlan {
    std::string name;
    std::function<std::unique_ptr<Scene>()> make;
};

/// Plays all scenes at once and expects what must hold in each: one error for each endpoint, none
/// for the bystander, no receive buffer lost.
void play(const std::string& transport, const EntityOptions& options,
          const std::vector<ScenePlan>& plans);

[[noreturn]] void die();

}  // namespace tagwire::test
