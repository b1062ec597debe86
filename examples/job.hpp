// SPDX-License-Identifier: BSD-3-Clause
// What the examples of many processes share: ranks, a worker each, endpoints to all, and waiting.
// Started by a PMIx launcher (mpirun -np 4 PROGRAM) or with TAGWIRE_BOOTSTRAP they are ranks of
// that job; started by hand they make the processes themselves.
#pragma once

#include <sys/wait.h>
#include <tagwire.h>
#include <unistd.h>
#include <tagwire_bootstrap.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

inline void check(tw_status_t status, const char* what) {
    if (status < TW_OK)
        throw std::runtime_error(std::string(what) + ": " + tw_status_string(status));
}

/// One process of the job.
class Rank {
  public:
    explicit Rank(tagwire::Bootstrap&& joined) : job_(std::move(joined)) {
        check(tw_context_create(nullptr, &context_), "tw_context_create");
        check(tw_worker_create(context_, nullptr, &worker_), "tw_worker_create");
        std::vector<std::byte> mine(TW_ADDRESS_BYTES_MAX);
        std::size_t length = mine.size();
        check(tw_worker_address(worker_, mine.data(), &length), "tw_worker_address");
        mine.resize(length);
        for (const std::vector<std::byte>& address : job_.exchange(mine)) {
            const tw_ep_params_t params{address.data(), address.size(), nullptr};
            check(tw_ep_create(worker_, &params, &eps_.emplace_back()), "tw_ep_create");
        }
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    /// Everything that was sent is with its receiver, and nobody needs this process any more.
    ~Rank() {
        for (tw_ep_h ep : eps_) {
            tw_request_h closing = nullptr;
            if (tw_ep_close(ep, 0, nullptr, &closing) == TW_INPROGRESS)
                wait(closing);
        }
        tw_worker_attr_t attr{};
        while (tw_worker_query(worker_, &attr) == TW_OK && attr.endpoints > 0)
            tw_worker_wait(worker_, TW_WAIT_YIELD, kPatienceNs);
        tw_worker_destroy(worker_);
        tw_context_destroy(context_);
    }

    std::size_t rank() const { return job_.rank(); }
    std::size_t size() const { return job_.size(); }
    tw_worker_h worker() const { return worker_; }
    tw_ep_h to(std::size_t peer) const { return eps_[peer]; }
    /// Which rank a completion came from.
    std::size_t source_of(const tw_completion_t& done) const {
        for (std::size_t peer = 0; peer < eps_.size(); ++peer) {
            if (eps_[peer] == done.ep)
                return peer;
        }
        throw std::runtime_error("a message of nobody in this job");
    }

    /// Progresses until the operation has ended, and frees it.
    tw_completion_t wait(tw_request_h request) const {
        tw_completion_t done{};
        while (tw_request_test(request, &done) == TW_INPROGRESS)
            tw_worker_wait(worker_, TW_WAIT_YIELD, UINT64_MAX);
        tw_request_free(request);
        return done;
    }
    template <class T>
    void send(std::size_t peer, std::span<const T> data, std::uint64_t tag) const {
        tw_request_h request = nullptr;
        tw_status_t status = TW_OK;
        while ((status = tw_tag_send(to(peer), data.data(), data.size_bytes(), tag, nullptr,
                                     &request)) == TW_ERR_NO_RESOURCE)
            tw_worker_progress(worker_);
        check(status, "tw_tag_send");
        if (status == TW_INPROGRESS)
            check(wait(request).status, "send");
    }
    /// Posts a receive; nullptr: the message was there already.
    template <class T>
    tw_request_h post(std::size_t peer, std::span<T> data, std::uint64_t tag) const {
        tw_op_t op{};
        op.source = to(peer);
        tw_request_h request = nullptr;
        check(tw_tag_recv(worker_, data.data(), data.size_bytes(), tag, 0, &op, &request),
              "tw_tag_recv");
        return request;
    }

  private:
    static constexpr std::uint64_t kPatienceNs = 1000000;

    tagwire::Bootstrap job_;
    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
    std::vector<tw_ep_h> eps_;
};

/// Runs `body(Rank&)` in each process; the exit status of the program.
template <class Body>
int run_ranks(unsigned count, Body body) {
    const auto run = [&](auto... params) {
        try {
            Rank rank{tagwire::Bootstrap(params...)};
            body(rank);
            return 0;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            return 1;
        }
    };
    if (std::getenv("PMIX_RANK") != nullptr || std::getenv("TAGWIRE_BOOTSTRAP") != nullptr)
        return run();
    std::string meeting = std::filesystem::temp_directory_path() / "tagwire-example-XXXXXX";
    if (::mkdtemp(meeting.data()) == nullptr)
        return 1;
    std::vector<pid_t> processes;
    for (unsigned i = 0; i < count; ++i) {
        const pid_t process = ::fork();
        if (process == 0) {
            tw_bootstrap_params_t params{};
            params.method = TW_BOOTSTRAP_DIR;
            params.size = count;
            params.rank = i;
            params.where = meeting.c_str();
            const int status = run(params);
            std::fflush(nullptr);
            std::_Exit(status);
        }
        processes.push_back(process);
    }
    int worst = 0;
    for (const pid_t process : processes) {
        int status = 1;
        if (process < 0 || ::waitpid(process, &status, 0) != process || status != 0)
            worst = 1;
    }
    std::filesystem::remove_all(meeting);
    return worst;
}
