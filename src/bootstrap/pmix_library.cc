// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmix_library.hpp"

#if TW_HAVE_PMIX

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>

namespace tagwire::bootstrap {
namespace {

constexpr const char* kLibrary = "libpmix.so.2";

struct Loaded {
    PmixFunctions functions{};
    Result result;
};

/// Once for the process, for ever: libpmix has threads, and does not like to be unloaded.
Loaded load() {
    Loaded loaded;
    void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        loaded.result =
            failed(UCS_ERR_UNSUPPORTED, "method pmix needs the library libpmix: %s", ::dlerror());
        return loaded;
    }
    const auto find = [&](const char* name, auto* function_p) {
        *function_p =
            reinterpret_cast<std::remove_reference_t<decltype(*function_p)>>(::dlsym(handle, name));
        if (*function_p == nullptr)
            loaded.result = failed(UCS_ERR_UNSUPPORTED, "%s has no function %s", kLibrary, name);
    };
    find("PMIx_Init", &loaded.functions.init);
    find("PMIx_Finalize", &loaded.functions.finalize);
    find("PMIx_Put", &loaded.functions.put);
    find("PMIx_Commit", &loaded.functions.commit);
    find("PMIx_Get_nb", &loaded.functions.get_nb);
    find("PMIx_Fence_nb", &loaded.functions.fence_nb);
    find("PMIx_Error_string", &loaded.functions.error_string);
    return loaded;
}

const Loaded& library() {
    static const Loaded loaded = load();
    return loaded;
}

/// Where the answer of libpmix's thread arrives. Shared, since it may come when nobody waits any
/// more.
class Answer {
  public:
    using Ptr = std::shared_ptr<Answer>;

    /// For libpmix to give back, once, to one of the callbacks below.
    static void* ticket(const Ptr& answer) { return new Ptr(answer); }
    static void return_ticket(void* ticket) { delete static_cast<Ptr*>(ticket); }

    static void on_status(pmix_status_t status, void* ticket) { on_value(status, nullptr, ticket); }
    static void on_value(pmix_status_t status, pmix_value_t* value, void* ticket) {
        const std::unique_ptr<Ptr> answer(static_cast<Ptr*>(ticket));
        (*answer)->arrive(status, value);
    }

    /// False: nothing came in time.
    bool wait(const Deadline& deadline) {
        std::unique_lock lock(mutex_);
        return arrived_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms()),
                                 [this] { return is_there_; });
    }

    // After a wait() that was true.
    pmix_status_t status() const { return status_; }
    std::vector<std::byte>& bytes() { return bytes_; }

  private:
    void arrive(pmix_status_t status, const pmix_value_t* value) {
        const std::lock_guard lock(mutex_);
        status_ = status;
        if (status == PMIX_SUCCESS && value != nullptr)
            copy(*value);
        is_there_ = true;
        arrived_.notify_all();
    }

    void copy(const pmix_value_t& value) {
        if (value.type == PMIX_BYTE_OBJECT && value.data.bo.size != 0) {
            const auto* first = reinterpret_cast<const std::byte*>(value.data.bo.bytes);
            bytes_.assign(first, first + value.data.bo.size);
        } else if (value.type == PMIX_UINT32) {
            const auto bytes = std::as_bytes(std::span(&value.data.uint32, 1));
            bytes_.assign(bytes.begin(), bytes.end());
        }
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    bool is_there_ = false;
    pmix_status_t status_ = PMIX_SUCCESS;
    std::vector<std::byte> bytes_;
};

pmix_info_t flag(const char* key) {
    pmix_info_t info{};
    std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = true;
    return info;
}

}  // namespace

PmixClient::~PmixClient() {
    if (is_open_)
        pmix_->finalize(nullptr, 0);
}

Result PmixClient::open() {
    if (!library().result.ok())
        return library().result;
    pmix_ = &library().functions;
    const pmix_status_t status = pmix_->init(&self_, nullptr, 0);
    if (status == PMIX_ERR_UNREACH) {
        return failed(UCS_ERR_UNREACHABLE,
                      "no PMIx launcher answers: start the program with mpirun, srun --mpi=pmix "
                      "or another PMIx launcher");
    }
    if (status != PMIX_SUCCESS)
        return failed_pmix("PMIx_Init", status);
    is_open_ = true;
    return {};
}

Result PmixClient::job_size(const Deadline& deadline, std::uint32_t* size_p) const {
    const auto bytes = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, Look::kWait, deadline);
    if (!bytes || bytes->size() != sizeof *size_p)
        return failed(UCS_ERR_IO_ERROR, "the PMIx launcher does not report the job's size");
    std::memcpy(size_p, bytes->data(), sizeof *size_p);
    return {};
}

Result PmixClient::put(const std::string& key, const std::vector<std::byte>& value) const {
    // libpmix copies both, and writes to neither.
    pmix_value_t object{};
    object.type = PMIX_BYTE_OBJECT;
    object.data.bo.bytes = const_cast<char*>(reinterpret_cast<const char*>(value.data()));
    object.data.bo.size = value.size();
    pmix_status_t status = pmix_->put(PMIX_GLOBAL, key.c_str(), &object);
    if (status != PMIX_SUCCESS)
        return failed_pmix("PMIx_Put", status);
    status = pmix_->commit();
    return status == PMIX_SUCCESS ? Result{} : failed_pmix("PMIx_Commit", status);
}

Result PmixClient::fence(const Deadline& deadline) const {
    const pmix_info_t collect = flag(PMIX_COLLECT_DATA);
    const auto answer = std::make_shared<Answer>();
    void* ticket = Answer::ticket(answer);
    const pmix_status_t begun =
        pmix_->fence_nb(nullptr, 0, &collect, 1, &Answer::on_status, ticket);
    if (begun != PMIX_SUCCESS) {
        Answer::return_ticket(ticket);
        return begun == PMIX_OPERATION_SUCCEEDED ? Result{} : failed_pmix("PMIx_Fence", begun);
    }
    if (!answer->wait(deadline))
        return failed(UCS_ERR_TIMED_OUT, "no reply within %s", deadline.limit_text().c_str());
    if (answer->status() != PMIX_SUCCESS)
        return failed(UCS_ERR_CONNECTION_RESET, "%s", pmix_->error_string(answer->status()));
    return {};
}

std::optional<std::vector<std::byte>> PmixClient::get(std::uint32_t rank, const std::string& key,
                                                      Look look, const Deadline& deadline) const {
    pmix_proc_t whose = self_;
    whose.rank = rank;
    const pmix_info_t at_once = flag(PMIX_IMMEDIATE);
    const std::size_t infos = look == Look::kLocal ? 1 : 0;
    const auto answer = std::make_shared<Answer>();
    void* ticket = Answer::ticket(answer);
    const pmix_status_t begun = pmix_->get_nb(&whose, key.c_str(), infos == 0 ? nullptr : &at_once,
                                              infos, &Answer::on_value, ticket);
    if (begun != PMIX_SUCCESS) {
        Answer::return_ticket(ticket);
        return std::nullopt;
    }
    if (!answer->wait(deadline) || answer->status() != PMIX_SUCCESS)
        return std::nullopt;
    return std::move(answer->bytes());
}

Result PmixClient::failed_pmix(const char* what, pmix_status_t status) const {
    return failed(UCS_ERR_IO_ERROR, "%s: %s", what, pmix_->error_string(status));
}

}  // namespace tagwire::bootstrap

#endif
