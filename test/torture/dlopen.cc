// SPDX-License-Identifier: BSD-3-Clause
// Copies of the library, loaded by dlopen() as programs of libfabric and Python load it: two at
// once beside the one that this program is linked with, while threads run, again and again, each
// used by several threads. A copy is a memfd, so nothing is left behind.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "party.hpp"
#include "sockets.hpp"
#include "tortures.hpp"

namespace tagwire::torture {
namespace {

/// Where the library lies that this program is linked with.
std::string path_of_library() {
    Dl_info info = {};
    if (dladdr(reinterpret_cast<void*>(&tw_context_create), &info) == 0)
        throw std::runtime_error("dladdr does not know tw_context_create");
    return info.dli_fname;
}

class Copy {
  public:
    explicit Copy(const std::string& path) : fd_(memfd_create("tagwire-torture", MFD_CLOEXEC)) {
        const Fd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        struct stat status = {};
        bool is_copied = fstat(from.get(), &status) == 0;
        for (off_t at = 0; is_copied && at < status.st_size;) {
            is_copied = sendfile(fd_.get(), from.get(), &at,
                                 static_cast<std::size_t>(status.st_size - at)) > 0;
        }
        if (!is_copied)
            throw std::runtime_error("cannot copy " + path);
        const std::string copy = "/proc/self/fd/" + std::to_string(fd_.get());
        handle_ = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr)
            throw std::runtime_error(std::string("dlopen: ") + dlerror());
    }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    ~Copy() { dlclose(handle_); }

    template <class Function>
    Function* find(Function* /*of_this_name*/, const char* name) const {
        void* symbol = dlsym(handle_, name);
        if (symbol == nullptr)
            throw std::runtime_error(std::string(name) + " is not in the copy");
        return reinterpret_cast<Function*>(symbol);
    }

  private:
    Fd fd_;
    void* handle_ = nullptr;
};

/// Calls of one copy.
struct Calls {
    explicit Calls(const Copy& copy)
        : context_create(copy.find(&tw_context_create, "tw_context_create")),
          context_destroy(copy.find(&tw_context_destroy, "tw_context_destroy")),
          worker_create(copy.find(&tw_worker_create, "tw_worker_create")),
          worker_destroy(copy.find(&tw_worker_destroy, "tw_worker_destroy")),
          worker_address(copy.find(&tw_worker_address, "tw_worker_address")),
          worker_progress(copy.find(&tw_worker_progress, "tw_worker_progress")),
          ep_create(copy.find(&tw_ep_create, "tw_ep_create")),
          tag_send(copy.find(&tw_tag_send, "tw_tag_send")),
          tag_recv(copy.find(&tw_tag_recv, "tw_tag_recv")),
          request_test(copy.find(&tw_request_test, "tw_request_test")),
          request_free(copy.find(&tw_request_free, "tw_request_free")) {}

    decltype(&tw_context_create) context_create;
    decltype(&tw_context_destroy) context_destroy;
    decltype(&tw_worker_create) worker_create;
    decltype(&tw_worker_destroy) worker_destroy;
    decltype(&tw_worker_address) worker_address;
    decltype(&tw_worker_progress) worker_progress;
    decltype(&tw_ep_create) ep_create;
    decltype(&tw_tag_send) tag_send;
    decltype(&tw_tag_recv) tag_recv;
    decltype(&tw_request_test) request_test;
    decltype(&tw_request_free) request_free;
};

/// A message of each size from one worker of the copy to another and back into this program.
/// Returns how many arrived whole.
unsigned use(const Calls& calls) {
    tw_context_h context = nullptr;
    tw_worker_h from = nullptr;
    tw_worker_h to = nullptr;
    tw_ep_h ep = nullptr;
    must(calls.context_create(nullptr, &context), "tw_context_create of a copy");
    must(calls.worker_create(context, nullptr, &from), "tw_worker_create of a copy");
    must(calls.worker_create(context, nullptr, &to), "tw_worker_create of a copy");
    Address address;
    address.length = address.bytes.size();
    must(calls.worker_address(to, address.bytes.data(), &address.length), "tw_worker_address");
    tw_ep_params_t params = {};
    params.address = address.bytes.data();
    params.address_length = address.length;
    must(calls.ep_create(from, &params, &ep), "tw_ep_create of a copy");

    unsigned arrived = 0;
    for (const std::size_t length : {std::size_t{16}, std::size_t{9000}, std::size_t{1} << 20}) {
        std::vector<std::byte> out(length);
        std::vector<std::byte> in(length);
        fill(out, length);
        tw_request_h receive = nullptr;
        tw_request_h send = nullptr;
        const tw_status_t received = calls.tag_recv(to, in.data(), length, 1, 0, nullptr, &receive);
        must(received, "tw_tag_recv of a copy");
        const tw_status_t sent = calls.tag_send(ep, out.data(), length, 1, nullptr, &send);
        must(sent, "tw_tag_send of a copy");
        const auto wait = [&](tw_status_t status, tw_request_h request) {
            if (status != TW_INPROGRESS)
                return;
            while (calls.request_test(request, nullptr) == TW_INPROGRESS) {
                calls.worker_progress(from);
                calls.worker_progress(to);
                Party::idle();
            }
            calls.request_free(request);
        };
        wait(received, receive);
        wait(sent, send);
        arrived += number_of(in, length) == length ? 1 : 0;
    }
    calls.worker_destroy(from);
    calls.worker_destroy(to);
    calls.context_destroy(context);
    return arrived;
}

constexpr unsigned kSizes = 3;

void use_by_threads(Trial& trial, const std::vector<const Calls*>& copies) {
    std::atomic<unsigned> whole = 0;
    std::vector<std::thread> threads;
    for (const Calls* calls : copies) {
        threads.emplace_back([&whole, &trial, calls] {
            try {
                whole += use(*calls);
            } catch (const std::exception& error) {
                trial.lose(error.what());
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    if (whole != kSizes * copies.size())
        trial.lose(std::to_string(kSizes * copies.size() - whole) + " messages of a copy");
    trial.count("messages", whole);
}

/// Is there before any copy, so each copy's thread-local data must find room in it.
class OldThread {
  public:
    OldThread() : thread_([this] { go_.wait(false); }) {}
    OldThread(const OldThread&) = delete;
    OldThread& operator=(const OldThread&) = delete;
    ~OldThread() {
        go_ = true;
        go_.notify_one();
        thread_.join();
    }

  private:
    std::atomic<bool> go_ = false;
    std::thread thread_;
};

}  // namespace

void run_dlopen(Trial& trial) {
    const std::string path = path_of_library();
    {
        const Party warm;
        const Copy first(path);
        const Calls calls(first);
        use(calls);
    }
    trial.take_stock();
    const Party own;
    const OldThread old;
    const unsigned rounds = trial.rounds(10);
    for (unsigned round = 0; round < rounds && !trial.is_lost(); ++round) {
        trial.phase("round " + std::to_string(round));
        const Copy first(path);
        const Copy second(path);
        const Calls of_first(first);
        const Calls of_second(second);
        use_by_threads(trial, {&of_first, &of_second, &of_first, &of_second});
        trial.count("copies", 2);
        own.progress();
    }
}

}  // namespace tagwire::torture
