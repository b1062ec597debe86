// SPDX-License-Identifier: BSD-3-Clause
// Two processes, one message, in C++: the first program of the guide (docs/start/first-program.md).
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <span>
#include <stdexcept>
#include <tagwire_msg.hpp>
#include <vector>

namespace msg = tagwire::msg;

namespace {

constexpr std::uint64_t kGreetingTag = 7;

/// The addresses of both workers cross by any way there is; here: by a socket.
std::vector<std::byte> swap_addresses(int socket, const std::vector<std::byte>& mine) {
    const std::size_t length = mine.size();  // the same on both sides of one machine
    std::vector<std::byte> theirs(length);
    if (::write(socket, mine.data(), length) != static_cast<ssize_t>(length) ||
        ::recv(socket, theirs.data(), length, MSG_WAITALL) != static_cast<ssize_t>(length))
        throw std::runtime_error("the addresses do not cross");
    return theirs;
}

void greet(const msg::Worker& worker, const msg::Endpoint& peer) {
    const char text[] = "hello from the other process";
    msg::Request request;
    peer.tag_send(std::as_bytes(std::span(text)), kGreetingTag, request).or_throw();
    if (request)  // else it ended within the call
        msg::check(worker.finish(request).status, "the send");
}

void listen(const msg::Worker& worker) {
    char text[64];
    msg::Request request;
    worker.tag_recv(std::as_writable_bytes(std::span(text)), kGreetingTag, 0, request).or_throw();
    const tw_completion_t done = worker.finish(request);
    msg::check(done.status, "the receive");
    std::printf("%zu bytes with tag %d: %s\n", done.length, static_cast<int>(done.tag), text);
}

void talk(int socket, bool is_child) {
    const msg::Context context;
    const msg::Worker worker(context);
    msg::Endpoint peer(worker, swap_addresses(socket, worker.address()));
    if (is_child)
        greet(worker, peer);
    else
        listen(worker);
    // A close flushes: what was sent is with the peer when it ends.
    msg::Request closing;
    peer.close(closing).or_throw();
    if (closing)
        worker.finish(closing);
}

}  // namespace

int main() {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return 1;
    const pid_t child = ::fork();  // before anything of the library is open
    try {
        talk(sockets[child == 0], child == 0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    if (child == 0)
        return 0;
    int ended = 1;
    ::waitpid(child, &ended, 0);
    return ended != 0;
}
