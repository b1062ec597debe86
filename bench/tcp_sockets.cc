// SPDX-License-Identifier: BSD-3-Clause
// The limit of the transport tcp: the same messages over one bare socket, without frames, tags or
// connections to others. bench/compare_tcp.py runs it.
//
// Usage: tcp_sockets latency|stream [--size N] [--iters N] [--server | --connect HOST] [--port P]
//
// Sockets are non-blocking and spun on, with TCP_NODELAY. Without --server and --connect a child
// process on the second CPU is the peer, over the loopback. latency: half the round trip, the
// median of batches of 32. stream: bytes per second from the first send until the receiver has said
// that it has all; each side uses one buffer again and again. One line is printed: the figure.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kBatch = 32;
constexpr std::size_t kAlignment = 4096;

struct Wanted {
    std::string test;
    std::size_t size = 8;
    std::uint64_t iterations = 40000;
    std::uint16_t port = 0;
    std::string host = "127.0.0.1";
    bool is_server = false;
    bool is_client = false;
    std::vector<int> cpus;
};

void must(bool is_good, const char* call) {
    if (is_good)
        return;
    std::fprintf(stderr, "tcp_sockets: %s: %s\n", call, std::strerror(errno));
    std::exit(1);
}

double now_ns() {
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// The first two CPUs that the program may use, or the same one twice.
std::vector<int> allowed_cpus() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    must(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu)
        if (CPU_ISSET(cpu, &allowed))
            cpus.push_back(cpu);
    if (cpus.size() == 1)
        cpus.push_back(cpus[0]);
    return cpus;
}

void pin_to(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

bool would_wait() {
    return errno == EAGAIN || errno == EINTR;
}

class Stream {
  public:
    Stream(int fd, std::size_t size) : fd_(fd), size_(size) {
        const int one = 1;
        must(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "setsockopt");
        buffer_ = static_cast<char*>(
            std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment));
        must(buffer_ != nullptr, "aligned_alloc");
        std::memset(buffer_, 1, size);
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
        std::free(buffer_);
        ::close(fd_);
    }

    void send_all() {
        for (std::size_t done = 0; done < size_;) {
            const ssize_t sent =
                ::send(fd_, buffer_ + done, size_ - done, MSG_NOSIGNAL | MSG_DONTWAIT);
            must(sent >= 0 || would_wait(), "send");
            done += sent > 0 ? static_cast<std::size_t>(sent) : 0;
        }
    }
    void receive_all() {
        for (std::size_t done = 0; done < size_;) {
            const ssize_t got = ::recv(fd_, buffer_ + done, size_ - done, MSG_DONTWAIT);
            must(got > 0 || (got < 0 && would_wait()), "recv");
            done += got > 0 ? static_cast<std::size_t>(got) : 0;
        }
    }
    void tell() {
        const char all = 1;
        must(::send(fd_, &all, 1, MSG_NOSIGNAL) == 1, "send");
    }
    void await() {
        char all = 0;
        ssize_t got = 0;
        while ((got = ::recv(fd_, &all, 1, MSG_DONTWAIT)) < 0 && would_wait()) {
        }
        must(got == 1, "recv");
    }

  private:
    int fd_;
    std::size_t size_;
    char* buffer_ = nullptr;
};

// ---- Measuring

double latency_ns(Stream& stream, std::uint64_t count) {
    std::vector<double> times;
    for (std::uint64_t batch = 0; batch < count / kBatch; ++batch) {
        const double before = now_ns();
        for (std::uint64_t i = 0; i < kBatch; ++i) {
            stream.send_all();
            stream.receive_all();
        }
        times.push_back((now_ns() - before) / (2 * kBatch));
    }
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
}

double bytes_per_s(Stream& stream, const Wanted& wanted) {
    const double before = now_ns();
    for (std::uint64_t i = 0; i < wanted.iterations; ++i)
        stream.send_all();
    stream.await();
    const double bytes = static_cast<double>(wanted.iterations) * static_cast<double>(wanted.size);
    return 1e9 * bytes / (now_ns() - before);
}

void measure(int fd, const Wanted& wanted) {
    Stream stream(fd, wanted.size);
    if (wanted.test == "latency")
        std::printf("%.1f\n", latency_ns(stream, wanted.iterations));
    else
        std::printf("%.0f\n", bytes_per_s(stream, wanted));
}

void serve(int fd, const Wanted& wanted) {
    Stream stream(fd, wanted.size);
    for (std::uint64_t i = 0; i < wanted.iterations; ++i) {
        stream.receive_all();
        if (wanted.test == "latency")
            stream.send_all();
    }
    if (wanted.test == "stream")
        stream.tell();
}

// ---- Connections

int listen_at(std::uint16_t port, bool is_loopback, sockaddr_in* bound) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0, "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(is_loopback ? INADDR_LOOPBACK : INADDR_ANY);
    must(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
    must(::listen(fd, 1) == 0, "listen");
    socklen_t length = sizeof *bound;
    must(::getsockname(fd, reinterpret_cast<sockaddr*>(bound), &length) == 0, "getsockname");
    return fd;
}

int accept_at(int listener) {
    const int fd = ::accept(listener, nullptr, nullptr);
    must(fd >= 0, "accept");
    ::close(listener);
    return fd;
}

int connect_to(const sockaddr_in& address) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0, "socket");
    must(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
         "connect");
    return fd;
}

void run(const Wanted& wanted) {
    sockaddr_in address{};
    if (wanted.is_server) {
        pin_to(wanted.cpus[1]);
        serve(accept_at(listen_at(wanted.port, false, &address)), wanted);
        return;
    }
    if (wanted.is_client) {
        pin_to(wanted.cpus[0]);
        address.sin_family = AF_INET;
        address.sin_port = htons(wanted.port);
        must(::inet_pton(AF_INET, wanted.host.c_str(), &address.sin_addr) == 1, "inet_pton");
        measure(connect_to(address), wanted);
        return;
    }
    const int listener = listen_at(0, true, &address);
    const pid_t child = ::fork();
    must(child >= 0, "fork");
    if (child == 0) {
        pin_to(wanted.cpus[1]);
        serve(accept_at(listener), wanted);
        std::_Exit(0);
    }
    ::close(listener);
    pin_to(wanted.cpus[0]);
    measure(connect_to(address), wanted);
    ::waitpid(child, nullptr, 0);
}

Wanted parse(int argc, char** argv) {
    Wanted wanted;
    wanted.cpus = allowed_cpus();
    CLI::App app{"Measures messages over a bare socket."};
    app.add_option("test", wanted.test, "latency or stream")
        ->required()
        ->check(CLI::IsMember({"latency", "stream"}));
    app.add_option("--size", wanted.size, "Bytes of a message")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_option("--iters", wanted.iterations, "Messages, or round trips")
        ->check(CLI::Range(kBatch, std::uint64_t{1} << 40))
        ->capture_default_str();
    app.add_option("--cpu", wanted.cpus, "CPUs of the client and of the server")
        ->delimiter(',')
        ->expected(2);
    CLI::Option* server = app.add_flag("--server", wanted.is_server, "Be the server alone");
    CLI::Option* connect = app.add_option("--connect", wanted.host, "IPv4 address of a server");
    app.add_option("--port", wanted.port, "TCP port of the server");
    connect->excludes(server);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    wanted.is_client = connect->count() > 0;
    return wanted;
}

}  // namespace

int main(int argc, char** argv) {
    run(parse(argc, argv));
    return 0;
}
