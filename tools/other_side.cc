// SPDX-License-Identifier: BSD-3-Clause
#include "tools/other_side.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "cli/failure.hpp"
#include "tools/child.hpp"

namespace tagwire::tools {

std::unique_ptr<Channel> start_other_side(const std::function<void(Channel&)>& run) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        throw Failure(text("socketpair: %s", std::strerror(errno)));
    const pid_t driver = getpid();
    const pid_t child = fork();
    if (child < 0)
        throw Failure(text("cannot start the other process: %s", std::strerror(errno)));
    if (child != 0) {
        close(fds[1]);
        return std::make_unique<Channel>(fds[0], child);
    }
    die_with(driver);
    close(fds[0]);
    Channel channel(fds[1]);
    int status = 0;
    try {
        run(channel);
    } catch (const std::exception& error) {
        status = 1;
        try {
            Encoder message;
            channel.send(MessageType::kError,
                         message.string(std::string(error.what()).substr(0, 1024)));
        } catch (const Failure&) {
            // The driver is gone: nobody to tell.
        }
    }
    std::fflush(nullptr);
    _exit(status);
}

}  // namespace tagwire::tools
