// SPDX-License-Identifier: BSD-3-Clause
// The calls of tagwire_bootstrap.h: arguments are checked, failures become the thread's last error.
#include <pthread.h>
#include <tagwire_bootstrap.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "bootstrap/method.hpp"
#include "ucs/log/log.hpp"

namespace boot = tagwire::bootstrap;

struct tw_bootstrap {
    boot::MethodPtr method;
    std::uint64_t timeout_ns = 0;
    std::uint32_t calls = 0;
    ucs_status_t status = UCS_OK;  // of the failure that ended the job
};

namespace {

static_assert(TW_BOOTSTRAP_BYTES_MAX == boot::kShareBytesMax);
static_assert(TW_BOOTSTRAP_RANKS_MAX == boot::kRanksMax);

constexpr std::size_t kErrorBytes = 1280;

/// The last error of each thread that had one, on the heap: thread-local variables of this library
/// take of the little static room that glibc keeps for all libraries loaded at run time.
class LastErrors {
  public:
    LastErrors() : exists_(::pthread_key_create(&key_, std::free) == 0) {}
    LastErrors(const LastErrors&) = delete;
    LastErrors& operator=(const LastErrors&) = delete;
    ~LastErrors() {
        if (exists_)
            ::pthread_key_delete(key_);
    }

    /// nullptr: none, or no memory for one.
    const char* get() const {
        return exists_ ? static_cast<const char*>(::pthread_getspecific(key_)) : nullptr;
    }
    /// kErrorBytes of this thread; nullptr: no memory.
    char* make() {
        if (!exists_)
            return nullptr;
        void* text = ::pthread_getspecific(key_);
        if (text == nullptr) {
            text = std::malloc(kErrorBytes);
            if (::pthread_setspecific(key_, text) != 0) {
                std::free(text);
                text = nullptr;
            }
        }
        return static_cast<char*>(text);
    }

  private:
    pthread_key_t key_{};
    bool exists_;
};

LastErrors& last_errors() {
    static LastErrors errors;
    return errors;
}

tw_status_t answer(const char* call, const boot::Result& result) {
    if (!result.ok()) {
        TW_LOG_ERROR("%s: %s", call, result.why.c_str());
        if (char* const text = last_errors().make())
            std::snprintf(text, kErrorBytes, "%s: %s", call, result.why.c_str());
    }
    return static_cast<tw_status_t>(result.status);
}

/// No exception leaves the library; memory and threads of others can fail.
template <class Body>
boot::Result guarded(const Body& body) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return {UCS_ERR_NO_MEMORY, "out of memory"};
    } catch (const std::exception& error) {
        return {UCS_ERR_IO_ERROR, error.what()};
    }
}

boot::Result join(const boot::Settings& settings, boot::MethodPtr* method_p) {
    switch (settings.method) {
        case TW_BOOTSTRAP_DIR:
            return boot::join_dir(settings, method_p);
        case TW_BOOTSTRAP_PMIX: {
            boot::Result result = boot::join_pmix(settings, method_p);
            if (result.status != UCS_ERR_UNREACHABLE || !settings.may_be_single)
                return result;
            TW_LOG_INFO("bootstrap: a job of one process: %s", result.why.c_str());
            break;
        }
        case TW_BOOTSTRAP_AUTO:
        case TW_BOOTSTRAP_SINGLE:
            break;
    }
    return boot::join_single(settings, method_p);
}

boot::Result create(const tw_bootstrap_params_t* params, tw_bootstrap_h* bs_p) {
    if (bs_p == nullptr)
        return boot::failed(UCS_ERR_INVALID_PARAM, "bs_p is NULL");
    boot::Settings settings;
    if (boot::Result result = choose_settings(params, &settings); !result.ok())
        return result;
    auto job = std::make_unique<tw_bootstrap>();
    job->timeout_ns = settings.timeout_ns;
    if (boot::Result result = join(settings, &job->method); !result.ok())
        return result;
    *bs_p = job.release();
    return {};
}

boot::Result check_buffers(const void* in, size_t bytes, const void* out) {
    if (bytes != 0 && (in == nullptr || out == nullptr))
        return boot::failed(UCS_ERR_INVALID_PARAM, "%s is NULL", in == nullptr ? "in" : "out");
    if (bytes > TW_BOOTSTRAP_BYTES_MAX) {
        return boot::failed(UCS_ERR_EXCEEDS_LIMIT, "%zu bytes per rank exceed the limit of %zu",
                            bytes, TW_BOOTSTRAP_BYTES_MAX);
    }
    return {};
}

boot::Result run(tw_bootstrap* bs, boot::Operation operation, std::span<const std::byte> mine,
                 void* out) {
    if (bs->status != UCS_OK)
        return boot::failed(bs->status, "this job has failed before");
    boot::Result result = guarded([&] {
        const boot::Step step{
            .operation = operation,
            .number = bs->calls,
            .mine = mine,
            .all = {static_cast<std::byte*>(out), mine.size() * std::size_t{bs->method->size()}},
            .deadline = boot::Deadline(bs->timeout_ns)};
        return bs->method->allgather(step);
    });
    ++bs->calls;
    bs->status = result.status;
    return result;
}

}  // namespace

extern "C" {

tw_status_t tw_bootstrap_create(const tw_bootstrap_params_t* params, tw_bootstrap_h* bs_p) {
    return answer(__func__, guarded([&] { return create(params, bs_p); }));
}

void tw_bootstrap_destroy(tw_bootstrap_h bs) {
    delete bs;
}

uint32_t tw_bootstrap_rank(tw_bootstrap_h bs) {
    return bs->method->rank();
}

uint32_t tw_bootstrap_size(tw_bootstrap_h bs) {
    return bs->method->size();
}

const char* tw_bootstrap_method_name(tw_bootstrap_h bs) {
    return bs->method->name();
}

tw_status_t tw_bootstrap_allgather(tw_bootstrap_h bs, const void* in, size_t bytes, void* out) {
    if (bs == nullptr)
        return answer(__func__, {UCS_ERR_INVALID_PARAM, "bs is NULL"});
    if (const boot::Result result = check_buffers(in, bytes, out); !result.ok())
        return answer(__func__, result);
    const std::span mine(static_cast<const std::byte*>(in), bytes);
    return answer(__func__, run(bs, boot::Operation::kAllgather, mine, out));
}

tw_status_t tw_bootstrap_barrier(tw_bootstrap_h bs) {
    if (bs == nullptr)
        return answer(__func__, {UCS_ERR_INVALID_PARAM, "bs is NULL"});
    return answer(__func__, run(bs, boot::Operation::kBarrier, {}, nullptr));
}

const char* tw_bootstrap_last_error(void) {
    const char* const text = last_errors().get();
    return text == nullptr ? "" : text;
}

}  // extern "C"

namespace tagwire::bootstrap {

Result check_share(const Frame& theirs, const Frame& mine) {
    if (theirs.kind == FrameKind::kShare && theirs.operation == mine.operation &&
        theirs.number == mine.number && theirs.bytes == mine.bytes && theirs.size == mine.size) {
        return {};
    }
    return failed(UCS_ERR_INVALID_PARAM,
                  "rank %u calls %s (call %u), but rank %u calls %s (call %u)", theirs.rank,
                  operation_text(theirs).c_str(), theirs.number, mine.rank,
                  operation_text(mine).c_str(), mine.number);
}

}  // namespace tagwire::bootstrap
