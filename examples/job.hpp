// SPDX-License-Identifier: BSD-3-Clause
// Shared parts of the examples with many processes: ranks, a worker each, endpoints to all, and
// waiting. Started by a PMIx launcher (mpirun -np 4 PROGRAM) or with TAGWIRE_BOOTSTRAP they are
// ranks of that job; run by hand they start the processes themselves.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <tagwire_bootstrap.hpp>
#include <tagwire_msg.hpp>
#include <vector>

namespace msg = tagwire::msg;

/// One process of the job.
class Rank {
  public:
    explicit Rank(tagwire::Bootstrap&& joined) : job_(std::move(joined)) {
        for (const std::vector<std::byte>& address : job_.exchange(worker_.address()))
            eps_.emplace_back(worker_, address);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    /// Everything that was sent is with its receiver, and nobody needs this process any more.
    ~Rank() {
        for (msg::Endpoint& ep : eps_) {
            msg::Request closing;
            if (ep.close(closing) == TW_INPROGRESS)
                worker_.finish(closing);
        }
        tw_worker_attr_t attr{};
        while (tw_worker_query(worker_.get(), &attr) == TW_OK && attr.endpoints > 0)
            worker_.wait(TW_WAIT_YIELD, kPatienceNs).ignore();
    }

    std::size_t rank() const { return job_.rank(); }
    std::size_t size() const { return job_.size(); }
    const msg::Context& context() const { return context_; }
    const msg::Worker& worker() const { return worker_; }
    /// Bytes of each rank for all. Every rank calls it.
    std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) {
        return job_.exchange(mine);
    }
    const msg::Endpoint& to(std::size_t peer) const { return eps_[peer]; }
    /// Which rank a completion came from.
    std::size_t source_of(const tw_completion_t& done) const {
        for (std::size_t peer = 0; peer < eps_.size(); ++peer)
            if (eps_[peer].get() == done.ep)
                return peer;
        throw std::runtime_error("a message of nobody in this job");
    }

    /// Progresses until the operation has ended well; nothing to do for an empty request.
    void wait(msg::Request& request, const char* what) const {
        if (request)
            msg::check(worker_.finish(request).status, what);
    }
    template <class T>
    void send(std::size_t peer, std::span<const T> data, std::uint64_t tag) const {
        msg::Request request;
        tw_status_t status = TW_OK;
        while ((status = to(peer).tag_send(std::as_bytes(data), tag, request)) ==
               TW_ERR_NO_RESOURCE)
            worker_.progress();
        msg::check(status, "send");
        wait(request, "send");
    }
    /// Posts a receive; the request is empty when the message was there already.
    template <class T>
    msg::Request post(std::size_t peer, std::span<T> data, std::uint64_t tag) const {
        msg::Request request;
        msg::check(worker_.tag_recv(std::as_writable_bytes(data), tag, 0,
                                    {msg::Op().from(to(peer).get()), request}),
                   "receive");
        return request;
    }

  private:
    static constexpr std::uint64_t kPatienceNs = 1000000;

    tagwire::Bootstrap job_;
    msg::Context context_;
    msg::Worker worker_{context_};
    std::vector<msg::Endpoint> eps_;
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
