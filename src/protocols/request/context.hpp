// SPDX-License-Identifier: BSD-3-Clause
// A context: the memory domains of the transports that may be used, and which transport on which
// device those are.
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "protocols/api/tw_context.h"
#include "protocols/api/tw_def.h"
#include "protocols/completion/completion_queue.hpp"
#include "protocols/cost/calibration.hpp"
#include "protocols/cost/given_options.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/request/mem_table.hpp"
#include "protocols/request/reg_cache.hpp"
#include "protocols/request/transport_list.hpp"
#include "ucs/memory/reserve.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_context {};

namespace tagwire::proto {

/// An open memory domain.
struct Domain {
    uct_component_h component;
    uct_md_h md;
    uct_md_attr_t attr;
    bool registers_cheaply;  // a message may register its buffer
};

/// A transport on a device, of domains()[domain].
struct Resource {
    std::size_t domain;
    uct_tl_resource_desc_t desc;
    bool is_auxiliary;  // not asked for: takes first contact for those that cannot
};

/// A device of the virtual HCA.
bool is_virtual(const uct_tl_resource_desc_t& desc);

/// The kinds of copies that this processor has: "libc nontemporal vector".
std::string copy_kinds_text();

class alignas(128) Context : public tw_context {
  public:
    /// `transports` as TAGWIRE_TRANSPORTS; null: that option.
    static ucs_status_t create(const char* transports, std::unique_ptr<Context>* context_p);
    /// As tw_context_create().
    static ucs_status_t create(const tw_context_params_t& params,
                               std::unique_ptr<Context>* context_p);
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();

    const Options& options() const { return options_; }
    /// For ucs::LogScope; 0: nobody listens to its lines.
    std::uint64_t log_id() const { return listens_ ? log_id_ : 0; }
    const GivenOptions& given() const { return given_; }
    /// The list of transports as it was written, and the transports that it stands for here.
    std::string transports_text() const;
    const Calibration& calibration() const { return calibration_; }
    std::span<const Domain> domains() const { return domains_; }
    std::span<const Resource> resources() const { return resources_; }
    /// Null: none was asked for.
    RegCache* cache() const { return cache_.get(); }

    /// The ids of its workers have the upper bits of this one (owner_of()); no other context does,
    /// by all likelihood.
    std::uint64_t name() const { return name_; }
    /// Memory that has keys.
    MemTable& memories() { return memories_; }
    /// Nothing but one device reaches memory of this context, and it carries out atomics.
    bool atomics_by_device() const {
        // Relaxed: nothing else goes with it.
        return atomics_by_device_.load(std::memory_order_relaxed);
    }
    /// The first worker has found out; the others find the same.
    void set_atomics_by_device(bool is_so) {
        atomics_by_device_.store(is_so, std::memory_order_relaxed);  // Relaxed: as above
    }

    /// Bits of a tag that tell who sent it; 0: none.
    std::uint64_t tag_sender_mask = 0;
    /// Workers, memory handles and completion queues that need it.
    std::atomic<std::size_t> users{0};

    // ---- Completion queues

    void add(CompletionQueue& queue);
    void remove(CompletionQueue& queue);
    /// A worker goes, and with it what queues keep of it.
    void drop_kept_of(const KeptReturns<CompletionEnv>& home);

  private:
    Context();
    /// Log lines go to the listener, or, with null, to the log of the process.
    Context(tw_log_cb_t listener, void* arg);
    ucs_status_t open(const tw_context_params_t& params);
    ucs_status_t name_transports(const char* parameter);
    ucs_status_t open(const std::string& transports);
    ucs_status_t open_components(const TransportList& wanted);
    void open_component(uct_component_h component, const TransportList& wanted);
    void open_domain(uct_component_h component, const char* md_name, const TransportList& wanted);
    void add_first_contact(const uct_tl_resource_desc_t* list, unsigned count);
    bool has(const TransportName& name) const;
    std::string problem_with(const TransportList& wanted) const;
    bool is_open(ucs_status_t status);
    ucs_status_t check_overrides() const;

    std::uint64_t log_id_ = 0;  // 0: it is none of the program's
    bool listens_ = false;
    struct LogListener {
        tw_log_cb_t callback;
        void* arg;
    } log_listener_{};
    /// The option or the parameter that named the transports.
    std::string source_ = "TAGWIRE_TRANSPORTS";
    std::string wanted_;           // the list of transports
    bool has_bad_option_ = false;  // of a memory domain; the log names it
    bool lacks_memory_ = false;    // for a domain that may have had what is absent
    const std::uint64_t name_;
    Options options_{};
    GivenOptions given_;
    Calibration calibration_;
    // On lines of their own: messages read them.
    ucs::ReserveVector<Domain> domains_;
    ucs::ReserveVector<Resource> resources_;
    std::unique_ptr<RegCache> cache_;
    MemTable memories_;
    std::atomic<bool> atomics_by_device_{false};
    std::mutex queues_lock_;
    std::vector<CompletionQueue*> queues_;
};

inline Context& context_of(tw_context_h handle) {
    return *static_cast<Context*>(handle);
}

}  // namespace tagwire::proto
