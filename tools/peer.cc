// SPDX-License-Identifier: BSD-3-Clause
// The peer of a measurement: does what the driver says over the control channel.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"
#include "tools/child.hpp"
#include "tools/pattern.hpp"
#include "tools/pinning.hpp"
#include "tools/session.hpp"

namespace tagwire::tools {
namespace {

constexpr int kNextMessageTimeoutMs = 600000;
constexpr char kPeerArgument[] = "peer-process";

void greet(Session* session, int own_cpu) {
    Decoder hello = session->channel->expect(MessageType::kHello);
    const std::string version = hello.string(kHelloTextMax);
    const Bytes mapping_name = hello.blob(kHelloTextMax);
    const int driver_cpu = static_cast<int>(hello.number_up_to(kCpuMax));
    const int peer_cpu = static_cast<int>(hello.number_up_to(kCpuMax));
    hello.end();
    session->mapping = SharedMapping::open(Decoder(mapping_name), CachelineFloor::kMappingBytes);
    if (session->mapping != nullptr) {
        session->floor = std::make_unique<CachelineFloor>(
            Side::kPeer, *session->mapping, *session->channel, driver_cpu == peer_cpu);
        pin_to(own_cpu >= 0 ? own_cpu : peer_cpu);
    } else {
        pin_to(own_cpu >= 0 ? own_cpu : allowed_cpus().front());
    }
    Encoder answer;
    answer.string(tagwire_version_string()).number(session->mapping != nullptr);
    session->channel->send(MessageType::kHello, answer);
}

void run_floor_job(Session* session, const Job& job) {
    if (job.test == TestId::kCacheline) {
        if (session->floor == nullptr)
            throw Failure("the two processes cannot map the same memory");
        session->channel->send(MessageType::kReady);
        run_cacheline(Side::kPeer, *session->floor, job, nullptr);
        return;
    }
    Decoder region = session->channel->expect(MessageType::kRegion);
    const std::unique_ptr<SharedMapping> target = SharedMapping::open(
        Decoder(region.blob(kHelloTextMax)), std::max<std::size_t>(job.size, 1));
    if (target == nullptr)
        throw Failure("the two processes cannot map the same memory");
    Pattern(stream_from(Side::kPeer, job), 0).fill(target->data(), job.size);
    session->channel->send(MessageType::kReady);
}

void run_transport_job(Session* session, const Job& job) {
    if (!session->is_connected())
        throw Failure("a measurement before any connection");
    session->make_tests(job);
    session->channel->expect(MessageType::kReady);
    session->channel->send(MessageType::kReady);
    switch (test_info(job.test).shape) {
        case Shape::kStream:
            run_streams(session->tests, job, session->cpus);
            break;
        case Shape::kFetch:
            break;
        default:
            run_ping_pong(Side::kPeer, *session->tests.front(), job,
                          job.floor ? session->floor.get() : nullptr, nullptr);
            break;
    }
}

void run_job(Session* session, const Job& job) {
    if (test_info(job.test).shape == Shape::kFloor)
        run_floor_job(session, job);
    else
        run_transport_job(session, job);
    session->serve_until_readable();
    session->channel->expect(MessageType::kFinish);
    session->channel->send(MessageType::kDone, session->outcome().encode());
    session->tests.clear();
}

/// The driver names cpus of its own host. On another one the threads take turns at those that this
/// process may use, unless it was told where to run.
void open_links(Session* session, const Setup& setup, int own_cpu,
                const std::vector<int>& allowed) {
    session->open_links(setup);
    if (own_cpu >= 0)
        session->cpus.clear();
    if (session->mapping == nullptr)
        for (std::size_t i = 0; i < session->cpus.size(); ++i)
            session->cpus[i] = allowed[i % allowed.size()];
}

void serve(Session* session, int own_cpu) {
    const std::vector<int> allowed = allowed_cpus();
    greet(session, own_cpu);
    for (;;) {
        Message message = session->channel->receive(kNextMessageTimeoutMs);
        switch (message.type) {
            case MessageType::kSetup:
                open_links(session, Setup::decode(Decoder(std::move(message.payload))), own_cpu,
                           allowed);
                break;
            case MessageType::kJob:
                run_job(session, Job::decode(Decoder(std::move(message.payload))));
                break;
            case MessageType::kBye:
                return;
            default:
                throw Failure(text("the driver sent control message %u out of turn",
                                   static_cast<unsigned>(message.type)));
        }
    }
}

[[noreturn]] void become_peer(int fd, pid_t driver) {
    die_with(driver);
    const std::string number = std::to_string(fd);
    char name[] = "tagwire";
    char argument[sizeof(kPeerArgument)];
    std::memcpy(argument, kPeerArgument, sizeof(kPeerArgument));
    std::string fd_text = number;
    char* const arguments[] = {name, argument, fd_text.data(), nullptr};
    execv("/proc/self/exe", arguments);
    _exit(127);
}

}  // namespace

void serve_driver(std::unique_ptr<Channel> channel, int own_cpu) {
    Session session{Side::kPeer, std::move(channel), nullptr, nullptr, {}, {}, {}, {}};
    try {
        serve(&session, own_cpu);
    } catch (const std::exception& error) {
        try {
            Encoder message;
            session.channel->send(MessageType::kError,
                                  message.string(std::string(error.what()).substr(0, 1024)));
        } catch (const Failure&) {
            // The driver is gone: nobody to tell.
        }
        throw;
    }
}

std::unique_ptr<Channel> start_peer_process() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        throw Failure(text("socketpair: %s", std::strerror(errno)));
    const pid_t driver = getpid();
    const pid_t child = fork();
    if (child < 0)
        throw Failure(text("cannot start the peer process: %s", std::strerror(errno)));
    if (child == 0) {
        const int fd = dup(fds[1]);  // the copy survives exec
        become_peer(fd, driver);
    }
    close(fds[1]);
    return std::make_unique<Channel>(fds[0], child);
}

std::optional<int> run_if_peer_process(int argc, char** argv) {
    if (argc != 3 || std::strcmp(argv[1], kPeerArgument) != 0)
        return std::nullopt;
    const int fd = std::atoi(argv[2]);
    int type = 0;
    socklen_t length = sizeof(type);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
        std::fprintf(stderr, "tagwire: %s is started by the command itself\n", kPeerArgument);
        return 2;
    }
    try {
        serve_driver(std::make_unique<Channel>(fd), -1);
    } catch (const std::exception&) {
        return 1;  // the driver was told
    }
    return 0;
}

}  // namespace tagwire::tools
