// SPDX-License-Identifier: BSD-3-Clause
// Remote calls by active messages, when things go wrong: calls that are not answered in time are
// made again, a client dies, and the server crashes and is started again at another address.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <tagwire_msg.hpp>

namespace msg = tagwire::msg;

namespace {

constexpr unsigned kClients = 3, kDiesAfter = 100, kCrashesAfter = 400, kForgetsEach = 97;
constexpr std::uint64_t kCalls = 300, kPatienceNs = 100'000'000;
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

/// The header of a reply; that of a call is its id.
struct Reply {
    std::uint64_t id, sum;
};

volatile std::sig_atomic_t is_over = 0;

class Server {
  public:
    Server(Directory& directory, unsigned number) : directory_(directory), number_(number) {
        worker_.on_am(kCall, *this).or_throw();
        const auto address = worker_.address();
        Directory::Entry& entry = directory.entries.at(number);
        entry.length = address.size();
        std::ranges::copy(address, entry.address.begin());
        // SYNC example_directory: clients that see it see the address.
        directory.servers.store(number + 1, std::memory_order_release);
    }
    int run() {
        (void)std::signal(SIGTERM, [](int) { is_over = 1; });
        const auto is_told = [] { return is_over != 0; };
        return msg::progress_until(worker_, is_told, TW_WAIT_SLEEP) ? 0 : 1;
    }
    /// Adds up the bytes of a call. It is answered in the handler, which may send; short data is
    /// here, and what is not is received first in a real server.
    void operator()(const msg::ActiveMessage& message) {
        ++calls_;
        if (number_ == 0 && calls_ == kCrashesAfter)
            std::_Exit(9);
        const auto call = message.header_as<std::uint64_t>();
        if (!call || calls_ % kForgetsEach == 0 || message.is_rndv())
            return;
        Reply reply{*call, 0};
        for (const std::byte byte : message.data())
            reply.sum += static_cast<std::uint64_t>(byte);
        // No room for the reply: the client calls again.
        (void)message.reply(kReply, msg::bytes_of(reply));
    }
    /// An endpoint of ours has failed: its client has died.
    void operator()(tw_ep_h ep, tw_status_t) {
        (void)tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr);
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
        worker_.on_am(kReply, *this).or_throw();
    }
    /// The sum of the bytes, whatever happens to the server: a call may be made twice, so what is
    /// called must allow that.
    std::uint64_t sum(std::span<const std::byte> data) {
        ++id_;
        sum_.reset();
        for (;;) {
            if (!ep_)
                connect();
            if (ep_ && ep_->am_send(kCall, msg::bytes_of(id_), data, inject_) >= TW_OK) {
                const auto has_ended = [&] { return sum_ || has_failed_; };
                if (!msg::progress_until(worker_, has_ended, TW_WAIT_SLEEP, kPatienceNs))
                    directory_.timeouts.fetch_add(1, std::memory_order_relaxed);  // Relaxed: so
                if (sum_)
                    return *sum_;
            }
            worker_.progress();
            if (std::exchange(has_failed_, false))
                ep_.reset();
        }
    }
    void operator()(const msg::ActiveMessage& message) {
        const auto reply = message.header_as<Reply>();
        if (reply && reply->id == id_)  // else of a call that was given up
            sum_ = reply->sum;
    }
    void operator()(tw_ep_h, tw_status_t) { has_failed_ = true; }

  private:
    void connect() {
        // SYNC example_directory: pairs with the server's.
        const unsigned servers = directory_.servers.load(std::memory_order_acquire);
        if (servers == 0)
            return;
        const Directory::Entry& entry = directory_.entries.at(servers - 1);
        try {
            ep_.emplace(worker_, std::span(entry.address).first(entry.length));
            directory_.reconnects.fetch_add(servers - 1, std::memory_order_relaxed);  // Relaxed: so
        } catch (const msg::Error&) {
            ::usleep(1000);  // it has gone, and the next one is not there yet
        }
    }

    Directory& directory_;
    const msg::Op inject_{TW_OP_INJECT};
    std::uint64_t id_ = 0;  // of the last call
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
    if (process == 0)
        std::_Exit(work());
    return process;
}

bool ends_with(pid_t process, int expected) {
    int status = 0;
    return ::waitpid(process, &status, 0) == process && WIFEXITED(status) &&
           WEXITSTATUS(status) == expected;
}

}  // namespace

int main() {
    try {
        void* const memory = ::mmap(nullptr, sizeof(Directory), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            throw msg::Error("mmap", TW_ERR_NO_MEMORY);
        Directory& directory = *::new (memory) Directory;
        pid_t server = start([&] { return Server(directory, 0).run(); });
        std::array<pid_t, kClients> clients{};
        for (unsigned i = 0; i < kClients; ++i)
            clients.at(i) = start([&] { return be_client(directory, i); });
        bool is_right = ends_with(server, 9);
        server = start([&] { return Server(directory, 1).run(); });
        for (const pid_t client : clients)
            is_right &= ends_with(client, 0);
        ::kill(server, SIGTERM);
        is_right &= ends_with(server, 0);
        std::printf("rpc_am: %u timeouts, %u reconnects, %u clients lost: %s\n",
                    directory.timeouts.load(), directory.reconnects.load(), directory.lost.load(),
                    is_right ? "right" : "wrong");
        return is_right ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
