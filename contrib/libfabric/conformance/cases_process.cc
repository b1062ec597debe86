// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of two processes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void write_all(int fd, const Bytes& bytes) {
    holds("a name is written to the other process",
          write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

Bytes read_some(int fd) {
    Bytes bytes(256);
    const auto got = read(fd, bytes.data(), bytes.size());
    holds("a name is read from the other process", got > 0);
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
}

constexpr std::array<std::size_t, 5> kProcessLengths{0, 64, 5000, 100000, 3000000};

// Address 0 of each process is its own, 1 the other's.
void meet(Net& net, int in, int out) {
    write_all(out, net.name_of(0));
    net.add_address(read_some(in));
}

void answer(Net& net) {
    for (const std::size_t length : kProcessLengths) {
        Bytes bytes(length);
        net.trecv(0, bytes, 1, 1);
        net.received(0);
        net.tsend(0, 1, bytes, 2, 2);
        net.sent(0);
    }
    for (int i = 0; i < 2000; ++i)
        net.progress();  // the other process may need this one's progress for its last entries
    Bytes last(1);
    net.trecv(0, last, 3, 1);
    net.received(0);
}

void ask_back(Net& net) {
    for (const std::size_t length : kProcessLengths) {
        const Bytes out = pattern(length);
        Bytes in(length);
        net.trecv(0, in, 2, 1);
        net.tsend(0, 1, out, 1, 2);
        net.sent(0);
        same("length", length, net.received(0).len);
        same_bytes("message", out, in);
    }
    const Bytes last(1);
    net.tsend(0, 1, last, 3, 2);
    net.sent(0);
}

void two_processes() {
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    holds("there are pipes", pipe(down.data()) == 0 && pipe(up.data()) == 0);
    const pid_t other = fork();  // before the provider has done anything
    if (other == 0) {
        int status = 0;
        try {
            Net net({.ends = 1});
            meet(net, down[0], up[1]);
            answer(net);
        } catch (const std::exception&) {
            status = 1;
        }
        _exit(status);
    }
    Net net({.ends = 1});
    meet(net, up[0], down[1]);
    ask_back(net);
    int status = 0;
    net.until("the end of the other process",
              [&] { return waitpid(other, &status, WNOHANG) == other; });
    same("status of the other process", 0, status);
}

constexpr std::array kProcessCases{
    Case{"two_processes", "processes", "T3", "fi_tagged DESCRIPTION", two_processes},
};

}  // namespace

std::span<const Case> process_cases() {
    return kProcessCases;
}

std::vector<Case> all_cases() {
    std::vector<Case> all;
    for (const auto list : {matching_cases, data_cases, completion_cases, flag_cases, peek_cases,
                            receive_cases, rma_cases, buffered_cases, queue_cases, address_cases,
                            info_cases, life_cases, process_cases, atomic_cases}) {
        const auto cases = list();
        all.insert(all.end(), cases.begin(), cases.end());
    }
    return all;
}

}  // namespace conformance
