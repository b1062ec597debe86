// SPDX-License-Identifier: BSD-3-Clause
#include "tools/session.hpp"

#include <sched.h>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"
#include "tools/pattern.hpp"
#include "tools/pinning.hpp"

namespace tagwire::tools {
void Session::open_links(const Setup& setup) {
    tests.clear();
    links.clear();
    msg_links.clear();
    cpus.clear();
    for (std::size_t i = side == Side::kDriver ? 0 : 1; i < setup.cpus.size(); i += 2)
        cpus.push_back(setup.cpus[i]);
    if (setup.level == Level::kMsg) {
        msg_links = make_msg_links(side, setup, channel.get());
        return;
    }
    for (std::uint64_t i = 0; i < setup.threads; ++i) {
        links.push_back(std::make_unique<Link>(side, setup, channel.get()));
        links.back()->connect();
    }
}

void Session::make_tests(const Job& job) {
    tests.clear();
    for (const std::unique_ptr<Link>& link : links)
        tests.push_back(make_test(*link, job));
    for (const std::unique_ptr<MsgLink>& link : msg_links)
        tests.push_back(make_test(*link, job));
}

void Session::serve_until_readable() {
    while (!channel->readable()) {
        // Looking at the channel is a system call: rare beside progress, often enough to end
        // promptly.
        for (int i = 0; i < 256; ++i) {
            for (const std::unique_ptr<Link>& link : links)
                uct_worker_progress(link->worker());
            for (const std::unique_ptr<MsgLink>& link : msg_links)
                tw_worker_progress(link->worker());
        }
        sched_yield();
    }
}

Outcome Session::outcome() const {
    Outcome sum;
    for (const std::unique_ptr<Test>& test : tests) {
        const Outcome one = test->outcome();
        sum.validated += one.validated;
        sum.errors += one.errors;
    }
    return sum;
}

Driver::Driver(std::unique_ptr<Channel> channel, const std::vector<int>& cpus)
    : session_{Side::kDriver, std::move(channel), nullptr, nullptr, {}, {}, {}, {}} {
    pin_to(cpus[0]);
    auto mapping = std::make_unique<SharedMapping>(CachelineFloor::kMappingBytes);
    const std::string my_version = tagwire_version_string();
    const Bytes name = mapping->name().bytes();
    Encoder hello;
    hello.string(my_version).blob(name.data(), name.size());
    hello.number(static_cast<std::uint64_t>(cpus[0])).number(static_cast<std::uint64_t>(cpus[1]));
    session_.channel->send(MessageType::kHello, hello);
    Decoder answer = session_.channel->expect(MessageType::kHello);
    const std::string version = answer.string(kHelloTextMax);
    const bool mapped = answer.number_up_to(1) != 0;
    answer.end();
    if (version != my_version) {
        throw Failure(text("the peer is tagwire %s, this is %s: use the same on both sides",
                           version.c_str(), my_version.c_str()));
    }
    if (mapped) {
        session_.floor = std::make_unique<CachelineFloor>(Side::kDriver, *mapping,
                                                          *session_.channel, cpus[0] == cpus[1]);
        session_.mapping = std::move(mapping);
    }
}

Driver::~Driver() {
    try {
        session_.channel->send(MessageType::kBye);
    } catch (const Failure&) {
        // The peer is gone already, which has been reported.
    }
}

void Driver::open(const Setup& setup) {
    session_.channel->send(MessageType::kSetup, setup.encode());
    session_.open_links(setup);
}

void Driver::start_job(const Job& job) {
    session_.channel->send(MessageType::kJob, job.encode());
}

Outcome Driver::finish_job() {
    session_.channel->send(MessageType::kFinish);
    session_.serve_until_readable();
    const Outcome theirs = Outcome::decode(session_.channel->expect(MessageType::kDone));
    const Outcome mine = session_.outcome();
    session_.tests.clear();
    return {mine.validated + theirs.validated, mine.errors + theirs.errors};
}

bool Driver::is_over_shared_memory() const {
    return session_.links.empty() ? msg_link().transport() == "sm"
                                  : link().resource().device_type == UCT_DEVICE_TYPE_SHM;
}

Measurement Driver::run(Job job, const OnProgress& on_progress) {
    job.floor = test_info(job.test).shape == Shape::kPingPong && is_over_shared_memory() &&
                session_.floor != nullptr;
    return run_as_is(job, on_progress);
}

Measurement Driver::run_alone(Job job) {
    job.floor = false;
    return run_as_is(job, nullptr);
}

Measurement Driver::run_as_is(const Job& job, const OnProgress& on_progress) {
    const Shape shape = test_info(job.test).shape;
    start_job(job);
    try {
        session_.make_tests(job);
        session_.channel->send(MessageType::kReady);
        session_.channel->expect(MessageType::kReady);
        Measurement result;
        switch (shape) {
            case Shape::kStream:
                result = run_streams(session_.tests, job, session_.cpus);
                break;
            case Shape::kFetch:
                result = run_fetch(session_.side, *session_.tests.front(), job, on_progress);
                break;
            default:
                result = run_ping_pong(session_.side, *session_.tests.front(), job,
                                       job.floor ? session_.floor.get() : nullptr, on_progress);
                break;
        }
        const Outcome outcome = finish_job();
        result.validated = outcome.validated;
        result.errors = outcome.errors;
        return result;
    } catch (const Failure&) {
        if (session_.channel->stalled()) {
            session_.channel
                ->receive();  // throws what the peer has to say, which is nearer to the cause
        }
        throw;
    }
}

std::vector<VariantMeasurement> Driver::run_cacheline(const Job& job,
                                                      const OnProgress& on_progress) {
    if (session_.floor == nullptr)
        throw Failure("the two processes cannot map the same memory");
    start_job(job);
    session_.channel->expect(MessageType::kReady);
    std::vector<VariantMeasurement> results =
        tools::run_cacheline(Side::kDriver, *session_.floor, job, on_progress);
    finish_job();
    return results;
}

Measurement Driver::run_memcpy(const Job& job) {
    const SharedMapping source(std::max<std::size_t>(job.size, 1));
    start_job(job);
    Encoder name;
    const Bytes bytes = source.name().bytes();
    session_.channel->send(MessageType::kRegion, name.blob(bytes.data(), bytes.size()));
    session_.channel->expect(MessageType::kReady);
    Measurement result = tools::run_memcpy(source, job);
    finish_job();
    return result;
}

}  // namespace tagwire::tools
