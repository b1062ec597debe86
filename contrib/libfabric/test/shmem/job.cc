// SPDX-License-Identifier: BSD-3-Clause
#include "job.hpp"

#include <rdma/fi_errno.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "shmem.h"

namespace shmem {

namespace {

bool read_all(int fd, char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t got = read(fd, data, bytes);
        if (got <= 0)
            return false;
        data += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int fd, const char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t put = write(fd, data, bytes);
        if (put <= 0)
            return false;
        data += put;
        bytes -= static_cast<std::size_t>(put);
    }
    return true;
}

struct Child {
    pid_t pid = -1;
    int from = -1, to = -1;
};

Child start(int pe, int pes, int (*program)()) {
    int up[2], down[2];
    if (pipe(up) != 0 || pipe(down) != 0)
        fail("pipe");
    const pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // no PE outlives the job
        job() = {pe, pes, up[1], down[0]};
        shmem_init();
        const int status = program();
        shmem_finalize();
        std::fflush(nullptr);
        _exit(status == 0 ? 0 : 1);
    }
    close(up[1]);
    close(down[0]);
    return {pid, up[0], down[1]};
}

/// Hands out what all gave. A PE that has died gives nothing: its status tells.
void relay(const std::vector<Child>& children) {
    std::vector<char> all;
    for (const Child& child : children) {
        std::uint64_t bytes = 0;
        if (!read_all(child.from, reinterpret_cast<char*>(&bytes), sizeof bytes))
            return;
        std::vector<char> one(bytes);
        if (!read_all(child.from, one.data(), bytes))
            return;
        all.insert(all.end(), one.begin(), one.end());
    }
    for (const Child& child : children)
        if (!write_all(child.to, all.data(), all.size()))
            return;
}

}  // namespace

Job& job() {
    static Job of_this_process;
    return of_this_process;
}

void fail(const char* what, int error) {
    std::fprintf(stderr, "PE %d: %s%s%s\n", job().pe, what, error != 0 ? ": " : "",
                 error != 0 ? fi_strerror(error) : "");
    std::fflush(nullptr);
    _exit(1);
}

std::vector<char> Job::exchange(const void* mine, std::size_t bytes) const {
    const std::uint64_t length = bytes;
    std::vector<char> all(bytes * static_cast<std::size_t>(pes));
    if (!write_all(to_parent, reinterpret_cast<const char*>(&length), sizeof length) ||
        !write_all(to_parent, static_cast<const char*>(mine), bytes) ||
        !read_all(from_parent, all.data(), all.size()))
        fail("the other PEs are gone");
    return all;
}

}  // namespace shmem

int shmemx_run(int pes, int (*program)(void)) {
    using namespace shmem;
    std::signal(SIGPIPE, SIG_IGN);
    std::fflush(nullptr);
    std::vector<Child> children;
    for (int pe = 0; pe < pes; ++pe)
        children.push_back(start(pe, pes, program));
    relay(children);
    int failed = 0;
    for (int left = pes; left > 0; --left) {
        int status = 0;
        const pid_t ended = wait(&status);
        for (Child& child : children)
            if (child.pid == ended)
                child.pid = -1;
        if (status == 0 || failed != 0)
            continue;
        failed = 1;
        for (const Child& child : children)
            if (child.pid > 0)
                kill(child.pid, SIGKILL);
    }
    return failed;
}
