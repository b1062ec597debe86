// SPDX-License-Identifier: BSD-3-Clause
// Remote calls by active messages, when things go wrong: calls that are not answered in time are
// made again, a client dies, and the server crashes and is started again at another address.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tagwire_msg.hpp>
#include <vector>

namespace msg = tagwire::msg;
using Clock = std::chrono::steady_clock;

namespace {

constexpr unsigned kClients = 3, kDiesAfter = 100, kCrashesAfter = 400, kForgetsEach = 97;
constexpr std::uint64_t kCalls = 300;
constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr std::uint64_t kNap = 1'000'000;   // ns
enum Handler : unsigned { kCall, kReply };  // ids

/// Where processes find the server: shared memory here, a directory service elsewhere.
struct Directory {
    struct Entry {
        std::size_t length;
        std::array<std::byte, TW_ADDRESS_BYTES_MAX> address;
    };
    std::atomic<unsigned> servers{0};  // so many have been started: the last one counts
    std::array<Entry, 2> entries{};
    std::atomic<unsigned> timeouts{0}, reconnects{0}, lost{0};  // Relaxed: read at the end
};

struct Call {
    std::uint64_t id;
};
struct Reply {
    std::uint64_t id, sum;
};

template <class Header>
Header header_of(const msg::ActiveMessage& message) {
    Header header{};
    if (message.header().size() != sizeof header)
        std::abort();
    std::memcpy(&header, message.header().data(), sizeof header);
    return header;
}

template <class Header>
std::span<const std::byte> bytes_of(const Header& header) {
    return std::as_bytes(std::span(&header, 1));
}

volatile std::sig_atomic_t is_over = 0;

class Server {
  public:
    Server(Directory& directory, unsigned number) : directory_(directory), number_(number) {
        msg::check(worker_.on_am(kCall, *this), "on_am");
        Directory::Entry& entry = directory.entries.at(number);
        const std::vector<std::byte> address = worker_.address();
        entry.length = address.size();
        std::memcpy(entry.address.data(), address.data(), address.size());
        // SYNC example_directory: clients that see it see the address.
        directory.servers.store(number + 1, std::memory_order_release);
    }
    void run() {
        (void)std::signal(SIGTERM, [](int) { is_over = 1; });
        while (is_over == 0)
            if (worker_.progress() == 0)
                (void)worker_.wait(TW_WAIT_SLEEP, kNap);
    }

    /// Adds up the bytes of a call. It is answered in the handler, which may send; short data is
    /// here, and what is not is received first in a real server.
    void operator()(const msg::ActiveMessage& message) {
        ++calls_;
        if (number_ == 0 && calls_ == kCrashesAfter)
            std::_Exit(9);
        if (calls_ % kForgetsEach == 0 || message.is_rndv())
            return;
        Reply reply{header_of<Call>(message).id, 0};
        for (const std::byte byte : message.data())
            reply.sum += static_cast<std::uint64_t>(byte);
        // A client that this server has not replied to has no endpoint yet.
        tw_ep_h ep = message.ep();
        if (ep == nullptr &&
            tw_ep_create_to(worker_.get(), message.source(), nullptr, &ep) != TW_OK)
            return;
        // No room for the reply: the client calls again.
        (void)tw_am_send(ep, kReply, &reply, sizeof reply, nullptr, 0, nullptr, nullptr);
    }
    /// An endpoint of ours has failed: its client has died.
    void operator()(tw_ep_h ep, tw_status_t) {
        (void)tw_ep_close(ep, TW_EP_CLOSE_FORCE, nullptr, nullptr);
        directory_.lost.fetch_add(1, std::memory_order_relaxed);  // Relaxed: as said
    }

  private:
    Directory& directory_;
    unsigned number_, calls_ = 0;
    msg::Context context_;
    msg::Worker worker_{context_, *this};
};

class Client {
  public:
    explicit Client(Directory& directory) : directory_(directory) {
        msg::check(worker_.on_am(kReply, *this), "on_am");
    }
    /// The sum of the bytes, whatever happens to the server: a call may be made twice, so what is
    /// called must allow that.
    std::uint64_t sum(std::span<const std::byte> data) {
        ++call_.id;
        sum_.reset();
        for (;;) {
            if (!ep_)
                connect();
            if (ep_ && is_sent(ep_->am_send(kCall, bytes_of(call_), data, msg::Op(TW_OP_INJECT)))) {
                const auto end = Clock::now() + kPatience;
                while (!sum_ && !has_failed_ && Clock::now() < end)
                    if (worker_.progress() == 0)
                        (void)worker_.wait(TW_WAIT_SLEEP, kNap);
                if (sum_)
                    return *sum_;
                if (!has_failed_)
                    directory_.timeouts.fetch_add(1, std::memory_order_relaxed);  // Relaxed: so
            }
            worker_.progress();
            if (std::exchange(has_failed_, false))
                ep_.reset();
        }
    }
    void operator()(const msg::ActiveMessage& message) {
        const auto reply = header_of<Reply>(message);
        if (reply.id == call_.id)  // else of a call that was given up
            sum_ = reply.sum;
    }
    void operator()(tw_ep_h, tw_status_t) { has_failed_ = true; }

  private:
    static bool is_sent(tw_status_t status) { return status == TW_OK || status == TW_INPROGRESS; }
    void connect() {
        // SYNC example_directory: pairs with the server's.
        const unsigned servers = directory_.servers.load(std::memory_order_acquire);
        if (servers == 0)
            return;
        const Directory::Entry& entry = directory_.entries.at(servers - 1);
        try {
            ep_.emplace(worker_, std::span(entry.address).first(entry.length));
            if (servers > 1)
                directory_.reconnects.fetch_add(1, std::memory_order_relaxed);  // Relaxed: so
        } catch (const msg::Error&) {
            ::usleep(1000);  // it has gone, and the next one is not there yet
        }
    }

    Directory& directory_;
    Call call_{0};
    std::optional<std::uint64_t> sum_;
    bool has_failed_ = false;
    msg::Context context_;
    msg::Worker worker_{context_, *this};
    std::optional<msg::Endpoint> ep_;
};

int be_client(Directory& directory, unsigned number) {
    Client client(directory);
    std::array<std::byte, 64> data{};
    for (std::uint64_t i = 0; i < kCalls; ++i) {
        if (number == 0 && i == kDiesAfter)
            std::_Exit(0);  // without a word
        data.fill(static_cast<std::byte>(i));
        if (client.sum(data) != data.size() * (i % 256))
            return 1;
    }
    return 0;
}

template <class Work>
pid_t start(Work work) {
    const pid_t process = ::fork();
    if (process != 0)
        return process;
    int status = 1;
    try {
        status = work();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(status);
}

int run() {
    void* const memory = ::mmap(nullptr, sizeof(Directory), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw std::runtime_error("no shared memory");
    Directory& directory = *::new (memory) Directory;
    const auto start_server = [&](unsigned number) {
        return start([&] { return Server(directory, number).run(), 0; });
    };
    pid_t server = start_server(0);
    std::array<pid_t, kClients> clients{};
    for (unsigned i = 0; i < kClients; ++i)
        clients.at(i) = start([&] { return be_client(directory, i); });
    int status = 0;
    const bool has_crashed = ::waitpid(server, &status, 0) == server && WEXITSTATUS(status) == 9;
    server = start_server(1);
    bool is_right = has_crashed;
    for (const pid_t client : clients)
        is_right &= ::waitpid(client, &status, 0) == client && status == 0;
    ::kill(server, SIGTERM);
    is_right &= ::waitpid(server, &status, 0) == server && status == 0;
    std::printf(
        "rpc_am: %u clients, one died; %u calls timed out, %u connections to the second "
        "server, %u clients lost: %s\n",
        kClients, directory.timeouts.load(), directory.reconnects.load(), directory.lost.load(),
        is_right ? "right" : "wrong");
    return is_right ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
