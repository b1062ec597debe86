// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/remote_host.hpp"

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "common/network.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kBytesMax = std::size_t{8} << 20;

/// Returns each message to its sender, for ever.
[[noreturn]] void return_messages(Node& node) {
    Bytes buffer(kBytesMax);
    int mark = 0;
    tw_op_t how{};
    how.context = &mark;
    how.flags = TW_OP_COMPLETION;
    for (;;) {
        if (tw_tag_recv(node.worker(), buffer.data(), buffer.size(), 0, UINT64_MAX, &how, nullptr) <
            TW_OK)
            _exit(6);
        while (node.done.empty())
            node.progress();
        const tw_completion_t done = node.done.front();
        node.done.clear();
        tw_ep_h ep = tw_ep_find(node.worker(), done.source);
        if (done.status != TW_OK ||
            (ep == nullptr && tw_ep_create_to(node.worker(), done.source, nullptr, &ep) != TW_OK) ||
            tw_tag_send(ep, buffer.data(), done.length, done.tag, &how, nullptr) < TW_OK)
            _exit(7);
        while (node.done.empty())
            node.progress();
        node.done.clear();
    }
}

/// The kernel tells a wire that both ends are up a little later. False: that takes too long.
bool await_carrier(unsigned wires) {
    constexpr int kLooksMax = 10'000;
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unsigned running = 0;
    for (int look = 0; look < kLooksMax && running < wires; ++look) {
        ifreq request{};
        RemoteHost::wire(running).copy(request.ifr_name, IFNAMSIZ - 1);
        if (::ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0)
            ++running;
        else
            ::poll(nullptr, 0, 1);
    }
    ::close(fd);
    return running == wires;
}

}  // namespace

RemoteHost::RemoteHost(unsigned wires, const std::string& transports) : wires_(wires) {
    EXPECT_EQ(::pipe(up_), 0);
    EXPECT_EQ(::pipe(down_), 0);
    process_ = ::fork();
    if (process_ == 0)
        be_child(transports);
    char mark = 0;
    EXPECT_EQ(::read(up_[0], &mark, 1), 1);
    EXPECT_TRUE(join() && await_carrier(wires_));
    EXPECT_EQ(::write(down_[1], &mark, 1), 1);
    ::close(std::exchange(up_[1], -1));
    address_.resize(TW_ADDRESS_BYTES_MAX);
    const ssize_t length = ::read(up_[0], address_.data(), address_.size());
    EXPECT_GT(length, 0);
    address_.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
}

RemoteHost::~RemoteHost() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    // They would go with the namespace, too, but later, and the next test makes these names anew.
    for (unsigned i = 0; i < wires_; ++i)
        run_in_network_of(::getpid(), "ip link delete dev " + wire(i) + " 2>/dev/null");
    for (const int fd : {up_[0], up_[1], down_[0], down_[1]})
        if (fd >= 0)
            ::close(fd);
}

bool RemoteHost::join() const {
    const pid_t pids[] = {::getpid(), process_};
    bool is_done = run_in_network_of(process_, "ip link set lo up");
    for (unsigned i = 0; is_done && i < wires_; ++i) {
        is_done = run_in_network_of(pids[0], "ip link add " + wire(i) + " type veth peer name " +
                                                 wire(i) + " netns " + std::to_string(process_));
        for (unsigned side = 0; is_done && side < 2; ++side) {
            const std::string address =
                "10.94." + std::to_string(i) + "." + std::to_string(side + 1) + "/24";
            is_done =
                run_in_network_of(pids[side], "ip address add " + address + " dev " + wire(i) +
                                                  "; ip link set " + wire(i) + " up");
        }
    }
    return is_done;
}

void RemoteHost::be_child(const std::string& transports) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char mark = 1;
    if (::unshare(CLONE_NEWNET) != 0 || ::write(up_[1], &mark, 1) != 1 ||
        ::read(down_[0], &mark, 1) != 1 || !await_carrier(wires_))
        _exit(2);
    tw_context_params_t params{};
    params.transports = transports.c_str();
    tw_context_h context = nullptr;
    if (tw_context_create(&params, &context) != TW_OK)
        _exit(3);
    Node node(context);
    const Bytes address = node.address();
    if (::write(up_[1], address.data(), address.size()) < 0)
        _exit(4);
    return_messages(node);
}

}  // namespace tagwire::test
