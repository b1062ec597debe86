// SPDX-License-Identifier: BSD-3-Clause
// Remote calls: a server that knows no address of a client. It replies to whoever a request comes
// from, has an account for each client while that is connected, and ends when all have gone.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <tagwire_msg.hpp>
#include <vector>

namespace msg = tagwire::msg;

namespace {

constexpr unsigned kClients = 3;
constexpr std::uint64_t kCalls = 500, kRequest = 1, kReply = 2;

std::span<std::byte> bytes_of(std::uint64_t& number) {
    return std::as_writable_bytes(std::span(&number, 1));
}

class Server {
  public:
    [[nodiscard]] std::vector<std::byte> address() const { return worker_.address(); }

    /// Until all clients have gone. Returns the exit status.
    int run() {
        post();
        while (gone_ < kClients)
            worker_.wait(TW_WAIT_SLEEP).or_throw();
        std::printf("rpc: %llu calls of %u clients, %u lost: %s\n",
                    static_cast<unsigned long long>(calls_), gone_, lost_,
                    calls_ == kClients * kCalls && lost_ == 0 ? "right" : "wrong");
        return calls_ == kClients * kCalls && lost_ == 0 ? 0 : 1;
    }

    /// A request is here. It is answered in the callback, which may do everything but progress.
    void operator()(const tw_completion_t& request) {
        if (request.status != TW_OK)
            return;
        Account& account = accounts_[request.source];
        if (!account.reply_to)
            account.reply_to.emplace(msg::Endpoint::to(worker_, request.source));
        account.sum += number_;
        ++calls_;
        (void)account.reply_to->tag_send(bytes_of(account.sum), kReply, msg::Op(TW_OP_INJECT));
        post();
    }
    /// A client comes or goes. It has closed its endpoint, and this side closes its own; or that
    /// has failed, or was never made.
    void operator()(std::uint64_t client, tw_peer_event_t event, tw_status_t) {
        if (event == TW_PEER_UP || event == TW_PEER_BACK)
            return;
        accounts_.erase(client);
        if (event == TW_PEER_LEFT)
            return;
        ++gone_;
        lost_ += event == TW_PEER_FAILED ? 1 : 0;
    }

  private:
    struct Account {
        std::optional<msg::Endpoint> reply_to;
        std::uint64_t sum = 0;
    };

    void post() {
        (void)worker_.tag_recv(bytes_of(number_), kRequest, 0,
                               msg::Op(TW_OP_COMPLETION).on_complete(*this));
    }

    std::uint64_t number_ = 0;
    std::uint64_t calls_ = 0;
    unsigned gone_ = 0, lost_ = 0;
    msg::Context context_;
    msg::Worker worker_{context_, msg::WorkerParams().on_peer(*this)};
    std::map<std::uint64_t, Account> accounts_;
};

/// The address of the server is all that a client needs; the server learns of the client from what
/// it sends.
int be_client(std::span<const std::byte> server) {
    const msg::Context context;
    const msg::Worker worker(context);
    msg::Endpoint ep(worker, server);
    std::uint64_t expected = 0;
    for (std::uint64_t i = 1; i <= kCalls; ++i) {
        std::uint64_t sum = 0;
        msg::Request reply;
        worker.tag_recv(bytes_of(sum), kReply, 0, reply).or_throw();
        ep.tag_send(bytes_of(i), kRequest, msg::Op(TW_OP_INJECT)).or_throw();
        msg::check(worker.finish(reply).status, "reply");
        expected += i;
        if (sum != expected)
            return 1;
    }
    msg::Request closing;
    if (ep.close(closing) == TW_INPROGRESS)
        worker.finish(closing);
    return 0;
}

struct Client {
    pid_t process;
    int address_to;  // a pipe
};

/// Starts a process that waits for the server's address. Before anything of the library is open.
Client start_client() {
    int pipes[2];
    if (::pipe(pipes) != 0)
        throw std::runtime_error("no pipe");
    const pid_t process = ::fork();
    if (process == 0) {
        ::close(pipes[1]);
        std::vector<std::byte> address(TW_ADDRESS_BYTES_MAX);
        const ssize_t length = ::read(pipes[0], address.data(), address.size());
        if (length <= 0)
            std::_Exit(1);
        address.resize(static_cast<std::size_t>(length));
        std::_Exit(be_client(address));
    }
    ::close(pipes[0]);
    return {process, pipes[1]};
}

int run() {
    std::vector<Client> clients;
    for (unsigned i = 0; i < kClients; ++i)
        clients.push_back(start_client());
    Server server;
    const std::vector<std::byte> address = server.address();
    for (const Client& client : clients)
        if (::write(client.address_to, address.data(), address.size()) < 0)
            return 1;
    int worst = server.run();
    for (const Client& client : clients) {
        int status = 1;
        if (::waitpid(client.process, &status, 0) != client.process || status != 0)
            worst = 1;
    }
    return worst;
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
