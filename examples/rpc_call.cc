// SPDX-License-Identifier: BSD-3-Clause
// Remote calls (tw_call.h), when things go wrong: calls without a reply in time are made again, a
// client dies, and the server crashes and is started again at another address.
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
constexpr std::uint32_t kSum = 1;  // the method

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

volatile std::sig_atomic_t is_over = 0;

class Server {
  public:
    Server(Directory& directory, unsigned number) : directory_(directory), number_(number) {
        worker_.on_call(kSum, *this).or_throw();
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
    /// Adds up the bytes of a request, however long it is. One that is forgotten ends by its time,
    /// as one does whose reply finds no room.
    void operator()(const msg::CallRequest& request) {
        ++calls_;
        if (number_ == 0 && calls_ == kCrashesAfter)
            std::_Exit(9);
        if (calls_ % kForgetsEach == 0)
            return;
        std::uint64_t sum = 0;
        for (const std::byte byte : request.data())
            sum += static_cast<std::uint64_t>(byte);
        (void)request.reply(0, msg::bytes_of(sum), inject_);
    }
    /// A peer has gone: its client has left, or has died.
    void operator()(std::uint64_t, tw_peer_event_t event, tw_status_t) {
        if (event == TW_PEER_FAILED)
            directory_.lost.fetch_add(1, std::memory_order_relaxed);  // Relaxed: as said
    }

  private:
    Directory& directory_;
    const msg::Op inject_{TW_OP_INJECT};
    unsigned number_, calls_ = 0;
    msg::Context context_;
    msg::Worker worker_{context_, msg::WorkerParams().on_peer(*this)};
};

class Client {
  public:
    explicit Client(Directory& directory) : directory_(directory) {}
    /// The sum of the bytes, whatever happens to the server: a call may be made twice, so what is
    /// called must allow that.
    std::uint64_t sum(std::span<const std::byte> data) {
        std::uint64_t sum = 0;
        msg::CallParams params;
        params.on_done(*this)
            .timeout(kPatienceNs)
            .reply_into(std::as_writable_bytes(std::span(&sum, 1)));
        for (;;) {
            if (!ep_)
                connect();
            end_.reset();
            if (ep_ && ep_->call(kSum, data, params) == TW_OK) {
                (void)msg::progress_until(
                    worker_, [&] { return end_.has_value(); }, TW_WAIT_SLEEP);
                if (*end_ == TW_OK)
                    return sum;
                if (*end_ == TW_ERR_TIMED_OUT)
                    directory_.timeouts.fetch_add(1, std::memory_order_relaxed);  // Relaxed: so
                else
                    ::usleep(1000);  // it has gone, and the next one is not there yet
            }
            worker_.progress();
            if (std::exchange(has_failed_, false))
                ep_.reset();
        }
    }
    void operator()(const tw_call_done_t& done) { end_ = done.status; }
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
    std::optional<tw_status_t> end_;  // of the last call
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
        std::printf("rpc_call: %u timeouts, %u reconnects, %u clients lost: %s\n",
                    directory.timeouts.load(), directory.reconnects.load(), directory.lost.load(),
                    is_right ? "right" : "wrong");
        return is_right ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
