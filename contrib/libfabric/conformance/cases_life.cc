// SPDX-License-Identifier: BSD-3-Clause
// The beginning and the end of endpoints, and threads.
#include <array>
#include <atomic>
#include <thread>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void receive_before_enable(bool tagged) {
    Net net({.enable = false});
    Bytes in(8);
    const auto status =
        tagged ? fi_trecv(net.ep(0), in.data(), 8, nullptr, FI_ADDR_UNSPEC, 1, 0, net.context(1))
               : fi_recv(net.ep(0), in.data(), 8, nullptr, FI_ADDR_UNSPEC, net.context(1));
    holds("a receive on an endpoint that is not enabled is refused", status < 0);
}

void tagged_before_enable() {
    receive_before_enable(true);
}
void untagged_before_enable() {
    receive_before_enable(false);
}

void enable_without_queue() {
    Net net;
    fid_ep* raw = nullptr;
    done("fi_endpoint", fi_endpoint(net.domain(), &net.info(), &raw, nullptr));
    const Owned<fid_ep> ep(raw);
    done("fi_ep_bind", fi_ep_bind(raw, &net.av()->fid, 0));
    same("fi_enable without queues", -FI_ENOCQ, fi_enable(raw));
}

void enable_without_vector() {
    Net net;
    fid_ep* raw = nullptr;
    done("fi_endpoint", fi_endpoint(net.domain(), &net.info(), &raw, nullptr));
    const Owned<fid_ep> ep(raw);
    done("fi_ep_bind", fi_ep_bind(raw, &net.end(0).tx_queue->fid, FI_TRANSMIT | FI_RECV));
    same("fi_enable without a vector", -FI_ENOAV, fi_enable(raw));
}

void bound_objects_are_busy() {
    Net net;
    same("fi_close of a vector in use", -FI_EBUSY, fi_close(&net.av()->fid));
}

void close_with_receives() {
    Net net;
    Bytes in(64);
    for (std::size_t i = 0; i < 16; ++i)
        net.trecv(1, in, i, i);
    done("fi_close", fi_close(&net.end(1).ep.release()->fid));
}

void close_with_unexpected() {
    Net net;
    const Bytes out = pattern(100);
    const Bytes large = pattern(500000);
    for (int i = 0; i < 8; ++i)
        net.tsend(0, 1, out, 1, 2);
    net.tsend(0, 1, large, 1, 3);
    net.settle(0, 1);
    done("fi_close", fi_close(&net.end(1).ep.release()->fid));
}

void close_with_sends() {
    Net net;
    const Bytes out = pattern(500000);
    for (std::size_t i = 0; i < 4; ++i)
        net.tsend(0, 1, out, 1, i);
    done("fi_close", fi_close(&net.end(0).ep.release()->fid));
}

void opened_again() {
    for (int i = 0; i < 4; ++i) {
        Net net;
        Bytes in(8);
        net.trecv(1, in, 1, 1);
        net.tsend(0, 1, pattern(8), 1, 2);
        net.received(1);
    }
}

constexpr std::uint32_t kMessages = 1000;

std::int64_t read_one(fid_cq* queue) {
    fi_cq_tagged_entry entry{};
    const auto got = fi_cq_read(queue, &entry, 1);
    if (got != -FI_EAGAIN)
        done("fi_cq_read", got);
    return got == 1 ? 1 : 0;
}

// One thread's part: messages to the other endpoint, and those that it sends.
void exchange(Net& net, std::size_t self, std::atomic<int>& finished) {
    auto& end = net.end(self);
    std::uint32_t sent = 0;
    std::uint32_t posted = 0;
    std::uint32_t received = 0;
    std::uint32_t in = 0;
    const auto deadline = std::chrono::steady_clock::now() + patience();
    bool told = false;
    while (finished < 2) {  // the other may need this one's progress
        if (!told && sent == kMessages && received == kMessages) {
            told = true;
            ++finished;
        }
        if (sent < kMessages) {
            const auto status =
                fi_tinject(net.ep(self), &sent, sizeof sent, net.address(1 - self), 1);
            sent += status == 0 ? 1 : 0;
            done("fi_tinject", status == -FI_EAGAIN ? 0 : status);
        }
        if (posted == received && received < kMessages) {
            const auto status = fi_trecv(net.ep(self), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 1,
                                         0, net.context(self));
            posted += status == 0 ? 1 : 0;
            done("fi_trecv", status == -FI_EAGAIN ? 0 : status);
        }
        read_one(end.tx_queue.get());
        if (read_one(end.rx_queue.get()) == 1) {
            same("number of the message", received, in);
            ++received;
        }
        if (std::chrono::steady_clock::now() > deadline)
            throw Hung("nothing came: messages between threads");
    }
}

void two_threads() {
    Net net({.threading = FI_THREAD_SAFE});
    std::array<std::exception_ptr, 2> errors;
    std::array<std::thread, 2> threads;
    std::atomic<int> finished{0};
    for (std::size_t i = 0; i < 2; ++i) {
        threads.at(i) = std::thread([&net, &errors, &finished, i] {
            try {
                exchange(net, i, finished);
            } catch (...) {
                errors.at(i) = std::current_exception();
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    for (const auto& error : errors)
        if (error)
            std::rethrow_exception(error);
}

constexpr const char* kEnable = "receive before enable";
constexpr const char* kClose = "close";
constexpr std::array kLifeCases{
    Case{"receive_before_enable", kEnable, "T6", "fi_tagged DESCRIPTION", tagged_before_enable},
    Case{"recv_before_enable", kEnable, "T6", "fi_msg DESCRIPTION", untagged_before_enable},
    Case{"enable_without_queue", kEnable, "", "fi_endpoint fi_enable", enable_without_queue},
    Case{"enable_without_vector", kEnable, "", "fi_endpoint fi_enable", enable_without_vector},
    Case{"close_busy", kClose, "", "fi_av fi_close", bound_objects_are_busy},
    Case{"close_with_receives", kClose, "W8", "fi_endpoint fi_close", close_with_receives},
    Case{"close_with_unexpected", kClose, "W8", "fi_endpoint fi_close", close_with_unexpected},
    Case{"close_with_sends", kClose, "W8", "fi_endpoint fi_close", close_with_sends},
    Case{"opened_again", kClose, "", "fi_endpoint fi_close", opened_again},
    Case{"two_threads", "threads", "", "fi_domain FI_THREAD_SAFE", two_threads},
};

}  // namespace

std::span<const Case> life_cases() {
    return kLifeCases;
}

}  // namespace conformance
