// SPDX-License-Identifier: BSD-3-Clause
// A service at a host and port, by tw_listen() and tw_ep_connect(). Clients connect by name and
// prove themselves by a word; one has a wrong one and is turned away. The server crashes, another
// one takes its port, and the clients connect again.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tagwire_msg.hpp>

namespace msg = tagwire::msg;

namespace {

constexpr unsigned kClients = 3;
constexpr std::uint64_t kQuestions = 200, kCrashesAfter = 250, kPatienceNs = 1'000'000'000;
constexpr std::string_view kWord = "sesame";
enum Handler : unsigned { kQuestion, kAnswer };  // ids

/// The configuration of all processes: a port that the first server has chosen.
struct Shared {
    std::atomic<unsigned> port{0};                        // 0: not yet
    std::atomic<unsigned> connections{0}, rejections{0};  // Relaxed: read at the end
};

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

volatile std::sig_atomic_t is_over = 0;

class Server {
  public:
    Server(Shared& shared, std::uint64_t crashes_after)
        : crashes_after_(crashes_after),
          listener_(worker_, "127.0.0.1:" + std::to_string(shared.port.load()), *this) {
        worker_.on_am(kQuestion, *this).or_throw();
        const std::string address = listener_.address();
        // SYNC example_port: pairs with the clients' acquire.
        shared.port.store(static_cast<unsigned>(std::stoul(address.substr(address.find(':') + 1))),
                          std::memory_order_release);
    }
    int run() {
        (void)std::signal(SIGTERM, [](int) { is_over = 1; });
        const auto is_told = [] { return is_over != 0; };
        return msg::progress_until(worker_, is_told, TW_WAIT_SLEEP) ? 0 : 1;
    }
    /// A peer asks for a connection. One that is not accepted is rejected.
    void operator()(msg::ConnRequest request) {
        const auto word = request.private_data();
        if (std::string_view(reinterpret_cast<const char*>(word.data()), word.size()) != kWord)
            return;
        std::optional<msg::Endpoint> ep;
        if (request.accept(ep, bytes("welcome")) == TW_OK)
            clients_.push_back(std::move(*ep));
    }
    void operator()(const msg::ActiveMessage& message) {
        if (++questions_ == crashes_after_)
            std::_Exit(9);
        if (const auto number = message.header_as<std::uint64_t>())
            (void)message.reply(kAnswer, msg::bytes_of(*number * *number));
    }
    /// A client has gone.
    void operator()(tw_ep_h ep, tw_status_t) {
        clients_.remove_if([ep](const msg::Endpoint& each) { return each.get() == ep; });
    }

  private:
    const std::uint64_t crashes_after_;
    std::uint64_t questions_ = 0;
    msg::Context context_;
    msg::Worker worker_{context_, *this};
    std::list<msg::Endpoint> clients_;
    msg::Listener listener_;
};

class Client {
  public:
    Client(Shared& shared, std::string_view word) : shared_(shared), word_(word) {
        worker_.on_am(kAnswer, *this).or_throw();
    }
    /// The answer, whatever happens to the server; nothing: it does not know us.
    std::optional<std::uint64_t> ask(std::uint64_t number) {
        for (answer_.reset(); !answer_ && status_ != TW_ERR_REJECTED;) {
            if (!ep_ && !connect())
                continue;
            (void)ep_->am_send(kQuestion, msg::bytes_of(number), {}, inject_);
            const auto has_ended = [&] { return answer_ || has_failed_; };
            (void)msg::progress_until(worker_, has_ended, TW_WAIT_SLEEP, kPatienceNs);
            if (std::exchange(has_failed_, false))
                ep_.reset();
        }
        return answer_;
    }
    void operator()(const msg::ActiveMessage& message) {
        answer_ = message.header_as<std::uint64_t>();
    }
    void operator()(std::optional<msg::Endpoint> ep, tw_status_t status,
                    std::span<const std::byte>) {
        ep_ = std::move(ep);
        status_ = status;
    }
    void operator()(tw_ep_h, tw_status_t) { has_failed_ = true; }

  private:
    bool connect() {
        // SYNC example_port: pairs with the server's release.
        const unsigned port = shared_.port.load(std::memory_order_acquire);
        if (port == 0)
            return false;
        status_ = TW_INPROGRESS;
        msg::connect(worker_, "localhost:" + std::to_string(port), *this,
                     {.private_data = bytes(word_)});
        const auto is_known = [&] { return status_ != TW_INPROGRESS; };
        (void)msg::progress_until(worker_, is_known, TW_WAIT_SLEEP);
        // Relaxed: as said.
        if (ep_)
            shared_.connections.fetch_add(1, std::memory_order_relaxed);
        else if (status_ == TW_ERR_REJECTED)
            shared_.rejections.fetch_add(1, std::memory_order_relaxed);
        else
            ::usleep(1000);  // it has gone, and the next one is not there yet
        return ep_.has_value();
    }

    Shared& shared_;
    const std::string_view word_;
    const msg::Op inject_{TW_OP_INJECT};
    tw_status_t status_ = TW_INPROGRESS;
    bool has_failed_ = false;
    std::optional<std::uint64_t> answer_;
    msg::Context context_;
    msg::Worker worker_{context_, *this};
    std::optional<msg::Endpoint> ep_;
};

int be_client(Shared& shared, unsigned number) {
    const bool is_stranger = number == 0;
    Client client(shared, is_stranger ? "open" : kWord);
    for (std::uint64_t i = 0; i < kQuestions; ++i) {
        const std::optional<std::uint64_t> answer = client.ask(i);
        if (is_stranger)
            return answer ? 1 : 0;
        if (answer != i * i)
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
        void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            throw msg::Error("mmap", TW_ERR_NO_MEMORY);
        Shared& shared = *::new (memory) Shared;
        pid_t server = start([&] { return Server(shared, kCrashesAfter).run(); });
        std::array<pid_t, kClients> clients{};
        for (unsigned i = 0; i < kClients; ++i)
            clients.at(i) = start([&] { return be_client(shared, i); });
        bool is_right = ends_with(server, 9);
        server = start([&] { return Server(shared, 0).run(); });
        for (const pid_t client : clients)
            is_right &= ends_with(client, 0);
        ::kill(server, SIGTERM);
        is_right &= ends_with(server, 0);
        std::printf("by_port: %u connections, %u rejected: %s\n", shared.connections.load(),
                    shared.rejections.load(), is_right ? "right" : "wrong");
        return is_right ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
