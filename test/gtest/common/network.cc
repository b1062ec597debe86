// SPDX-License-Identifier: BSD-3-Clause
#include "common/network.hpp"

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace tagwire::test {

bool enter_private_network() {
    static const bool entered = ::unshare(CLONE_NEWNET) == 0;
    return entered;
}

bool enter_network_with_loopback() {
    static const bool is_up =
        enter_private_network() && run_in_network_of(::getpid(), "ip link set lo up");
    return is_up;
}

bool run_in_network_of(pid_t process, const std::string& commands) {
    std::vector<std::string> words = {"nsenter", "--net", "--target", std::to_string(process),
                                      "/bin/sh", "-ec",   commands};
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = -1;
    int status = 0;
    return ::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0 &&
           ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tagwire::test
