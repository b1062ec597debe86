// SPDX-License-Identifier: BSD-3-Clause
// A process that is to be killed, and its worker.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <type_traits>

#include "protocols/fixture.hpp"

namespace tagwire::test {

inline const char* kill_transports() {
    const char* named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
    return named == nullptr ? "sm" : named;
}

/// A worker of a process that is to die, with an endpoint to the parent's. Where it cannot be made
/// the process ends.
class DoomedNode {
  public:
    DoomedNode(int to_parent, int from_parent, const char* transports) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        tw_context_params_t params{};
        params.transports = transports;
        tw_context_h context = nullptr;
        if (tw_context_create(&params, &context) != TW_OK)
            _exit(2);
        context_ = context;
        node_.emplace(context);
        const Bytes address = node_->address();
        Bytes theirs(TW_ADDRESS_BYTES_MAX);
        if (::write(to_parent, address.data(), address.size()) < 0)
            _exit(3);
        const ssize_t length = ::read(from_parent, theirs.data(), theirs.size());
        if (length <= 0)
            _exit(4);
        const tw_ep_params_t ep_params{.address = theirs.data(),
                                       .address_length = static_cast<std::size_t>(length),
                                       .user_data = nullptr};
        if (tw_ep_create(node_->worker(), &ep_params, &ep_) != TW_OK)
            _exit(5);
    }

    Node& node() { return *node_; }
    tw_context_h context() const { return context_; }
    tw_ep_h ep() const { return ep_; }

  private:
    tw_context_h context_ = nullptr;
    std::optional<Node> node_;
    tw_ep_h ep_ = nullptr;
};

/// The victim, from its birth to its death.
class Victim {
  public:
    template <class Body>
    requires std::is_invocable_v<Body&, int, int>
    explicit Victim(Body body) {
        EXPECT_EQ(::pipe(up_), 0);
        EXPECT_EQ(::pipe(down_), 0);
        process_ = ::fork();
        EXPECT_GE(process_, 0);
        if (process_ == 0)
            body(up_[1], down_[0]);
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;
    ~Victim() {
        for (const int fd : {up_[0], up_[1], down_[0], down_[1]})
            ::close(fd);
    }
    /// It begins to send to this worker. Returns its own address.
    Bytes start(const Bytes& address) const {
        EXPECT_EQ(::write(down_[1], address.data(), address.size()),
                  static_cast<ssize_t>(address.size()));
        Bytes theirs(TW_ADDRESS_BYTES_MAX);
        const ssize_t length = ::read(up_[0], theirs.data(), theirs.size());
        EXPECT_GT(length, 0);
        theirs.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
        return theirs;
    }
    /// Lets it go on: its `from_parent` becomes readable.
    void tell() const { EXPECT_EQ(::write(down_[1], "x", 1), 1); }
    /// Waits for a byte of it.
    void await() const {
        char byte = 0;
        EXPECT_EQ(::read(up_[0], &byte, 1), 1);
    }
    /// Becomes readable when it has said something.
    int from() const { return up_[0]; }
    void kill() const {
        EXPECT_EQ(::kill(process_, SIGKILL), 0);
        EXPECT_EQ(::waitpid(process_, nullptr, 0), process_);
    }

  private:
    int up_[2], down_[2];
    pid_t process_;
};

/// A worker of the process that lives on, in a context of its own.
class LivingNode {
  public:
    LivingNode() : context_(make_context()), node_(context_.get()) {}

    Node& operator*() { return node_; }
    /// Lets the victim begin. The endpoint to its worker.
    tw_ep_h meet(const Victim& victim) {
        const Bytes theirs = victim.start(node_.address());
        const tw_ep_params_t params{
            .address = theirs.data(), .address_length = theirs.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        EXPECT_EQ(tw_ep_create(node_.worker(), &params, &ep), TW_OK);
        return ep;
    }

  private:
    static tw_context_h make_context() {
        tw_context_params_t params{};
        params.transports = kill_transports();
        tw_context_h context = nullptr;
        EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        return context;
    }

    std::unique_ptr<tw_context, ContextDeleter> context_;
    Node node_;
};

}  // namespace tagwire::test
