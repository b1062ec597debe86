// SPDX-License-Identifier: BSD-3-Clause
#include "fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace tagwire::test {

namespace {

/// Where a receiver is opened: beside its sender, or on the device that the environment names, so
/// that what they send goes over a wire.
const Resource& resource_of_receiver(const Resource& sender) {
    const char* device = std::getenv("TAGWIRE_TEST_RECEIVER_DEVICE");
    if (device == nullptr)
        return sender;
    for (const Resource& each : all_resources())
        if (each.transport == sender.transport && each.device == device)
            return each;
    throw std::runtime_error("no device '" + std::string(device) + "' for the receiver");
}

using Clock = std::chrono::steady_clock;

/// A device of its own that has work to do does not sleep for so long.
constexpr auto kQuiet = std::chrono::milliseconds(2);
/// So long it may take until it was given a processor, however many steps that are.
constexpr auto kPatience = std::chrono::seconds(20);

/// The threads of virtual devices in this process.
std::vector<std::string> find_device_threads() {
    std::vector<std::string> threads;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name == "tagwire-vhca")
            threads.push_back(task.path() / "stat");
    }
    return threads;
}

/// None of them runs, or waits for a processor. They live as long as the process.
bool devices_sleep() {
    static const std::vector<std::string> threads = find_device_threads();
    return std::ranges::all_of(threads, [](const std::string& thread) {
        std::string state;
        std::getline(std::ifstream(thread), state);
        return state.find(") S ") != std::string::npos;
    });
}

}  // namespace

bool device_is_alone() {
    static const bool is_alone = std::getenv("TAGWIRE_TEST_DEVICE_ALONE") != nullptr;
    return is_alone;
}

void PrintTo(const Setup& setup, std::ostream* out) {
    *out << setup.resource.label()
         << (setup.topology == Topology::kLoopback ? " to itself" : " between two entities");
}

std::vector<Setup> all_setups() {
    std::vector<Setup> setups;
    for (const auto& resource : all_resources()) {
        setups.push_back({resource, Topology::kTwoEntities});
        setups.push_back({resource, Topology::kLoopback});
    }
    return setups;
}

std::vector<Setup> pair_setups() {
    std::vector<Setup> setups;
    for (const auto& resource : all_resources())
        setups.push_back({resource, Topology::kTwoEntities});
    return setups;
}

std::string setup_label(const ::testing::TestParamInfo<Setup>& info) {
    const bool is_loopback = info.param.topology == Topology::kLoopback;
    return info.param.resource.label() + (is_loopback ? "_loopback" : "_pair");
}

void Contract::reopen(const EntityOptions& sender, const EntityOptions& receiver) {
    close();
    sender_ = std::make_unique<Entity>(GetParam().resource, sender);
    if (!is_loopback())
        receiver_ = std::make_unique<Entity>(resource_of_receiver(GetParam().resource), receiver);
    link_ = connect(*sender_, this->receiver());
}

void Contract::close() {
    more_links_.clear();
    back_ = {};
    link_ = {};
    queued_.clear();
    more_.clear();
    receiver_.reset();
    sender_.reset();
}

uct_ep_h Contract::back_ep() {
    if (link_.backward.get() != nullptr)
        return link_.backward;
    if (back_.forward.get() == nullptr)
        back_ = connect(receiver(), sender());
    return back_.forward;
}

Entity& Contract::add_entity(const EntityOptions& options) {
    more_.push_back(std::make_unique<Entity>(GetParam().resource, options));
    return *more_.back();
}

uct_ep_h Contract::connect_more(Entity& from, Entity& to) {
    more_links_.push_back(connect(from, to));
    return more_links_.back().forward;
}

void Contract::close_endpoints_of_receiver() {
    back_ = {};
    link_.backward.reset();
    for (Connection& link : more_links_) {
        for (Endpoint* end : {&link.forward, &link.backward})
            if (receiver_ != nullptr && end->get() != nullptr &&
                end->get()->iface == receiver_->iface())
                end->reset();
    }
}

void Contract::close_receiver() {
    close_endpoints_of_receiver();
    receiver_.reset();
}

void Contract::close_receiver_iface() {
    close_endpoints_of_receiver();
    if (receiver_ != nullptr)
        receiver_->close_iface();
}

unsigned Contract::step() {
    unsigned moved = sender_->progress();
    if (receiver_ != nullptr)
        moved += receiver_->progress();
    for (const auto& entity : more_)
        moved += entity->progress();
    if (moved == 0 && device_is_alone())
        std::this_thread::yield();
    return moved;
}

bool Contract::until(const std::function<bool()>& done, std::uint64_t steps_max) {
    const auto began = Clock::now();
    const auto is_over = [&](std::uint64_t steps) {
        return steps >= steps_max && (!device_is_alone() || Clock::now() - began > kPatience);
    };
    for (std::uint64_t i = 0; !is_over(i); ++i) {
        if (done())
            return true;
        step();
    }
    return done();
}

void Contract::drain(unsigned idle_steps) {
    // A device whose completions come late is idle in between: more steps are nothing then.
    static const char* const given = std::getenv("TAGWIRE_TEST_IDLE_FACTOR");
    static const std::uint64_t factor = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
    std::uint64_t idle = 0;
    auto moved = Clock::now();
    const auto is_over = [&] {
        return idle >= idle_steps * factor && (!device_is_alone() || Clock::now() - moved > kQuiet);
    };
    for (std::uint64_t i = 0; i < kStepsMax && !is_over(); ++i) {
        if (step() == 0 && (!device_is_alone() || devices_sleep())) {
            ++idle;
        } else {
            idle = 0;
            moved = Clock::now();
        }
    }
}

ucs_status_t Contract::retry(const std::function<ucs_status_t()>& operation) {
    ucs_status_t status = operation();
    for (std::uint64_t i = 0; i < kStepsMax && status == UCS_ERR_NO_RESOURCE; ++i) {
        step();
        status = operation();
    }
    return status;
}

ucs_status_t Contract::retry_alone(Entity& entity, const std::function<ucs_status_t()>& operation) {
    ucs_status_t status = operation();
    if (!knobs_of(GetParam().resource).has_little_room)
        return status;
    for (std::uint64_t i = 0; i < kStepsMax && status == UCS_ERR_NO_RESOURCE; ++i) {
        entity.progress();
        status = operation();
    }
    return status;
}

void Contract::send_inside(uct_ep_h endpoint, const std::function<ucs_status_t()>& operation) {
    ucs_status_t status = operation();
    if (knobs_of(GetParam().resource).has_little_room) {
        while (status == UCS_ERR_NO_RESOURCE) {
            auto request = std::make_unique<Queued>();
            request->operation = operation;
            request->func = [](uct_pending_req_t* self) {
                return static_cast<Queued*>(self)->operation();
            };
            status = uct_ep_pending_add(endpoint, request.get(), 0);
            if (status == UCS_OK)
                queued_.push_back(std::move(request));
            else if (status == UCS_ERR_BUSY)
                status = operation();
        }
    }
    EXPECT_EQ(UCS_OK, status);
}

ucs_status_t Contract::post_again(Receive& receive, uct_tag_t tag) {
    ucs_status_t status = receive.post(tag);
    for (std::uint64_t i = 0; device_matches() && i < kStepsMax && status == UCS_ERR_EXCEEDS_LIMIT;
         ++i) {
        step();
        status = receive.post(tag);
    }
    return status;
}

ucs_status_t Contract::run(const std::function<ucs_status_t(uct_completion_t*)>& operation) {
    Completion completion;
    const ucs_status_t status = retry([&] { return operation(&completion); });
    if (status != UCS_INPROGRESS) {
        EXPECT_EQ(0, completion.calls) << "completed, although the call itself said how it ended";
        return status;
    }
    EXPECT_TRUE(until([&] { return completion.calls > 0; })) << "never completed";
    EXPECT_EQ(1, completion.calls);
    return completion.calls > 0 ? completion.ended : UCS_INPROGRESS;
}

void Contract::flush_ep(uct_ep_h endpoint) {
    EXPECT_TRUE(
        until([&] { return uct_ep_flush(endpoint, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK; }));
}

// An empty list would let the whole suite pass by testing nothing.
TEST(ContractSuite, finds_a_transport_to_test) {
    EXPECT_FALSE(all_resources().empty());
}

}  // namespace tagwire::test
