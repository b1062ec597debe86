// SPDX-License-Identifier: BSD-3-Clause
// The C API: contexts, memory, workers, endpoints. Arguments are checked here.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "protocols/api/tw_context.h"
#include "protocols/api/tw_endpoint.h"
#include "protocols/api/tw_memory.h"
#include "protocols/api/tw_worker.h"
#include "protocols/completion/completion_counter.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/log/listeners.hpp"

using namespace tagwire::proto;
using tagwire::ucs::LogScope;
using tagwire::ucs::read_sized;
using tagwire::ucs::write_sized;

namespace {

/// `address` null: memory is allocated.
tw_status_t make_memory(const char* call, Context& context, void* address, size_t length,
                        const tw_mem_params_t* given, tw_mem_h* mem_p) {
    const LogScope scope(context.log_id());
    if (given != nullptr && !tagwire::ucs::has_size(*given))
        return refuse_size(call, "params", given->struct_bytes, sizeof *given);
    const tw_mem_params_t params = given == nullptr ? tw_mem_params_t{} : read_sized(*given);
    const uint32_t access = params.access == 0 ? std::uint32_t{TW_ACCESS_ALL} : params.access;
    tw_status_t refused = TW_ERR_INVALID_PARAM;
    if (length == 0) {
        TW_LOG_ERROR("%s: length is 0", call);
    } else if (params.type != TW_MEMORY_HOST) {
        TW_LOG_ERROR("%s: params->type is %d; this library knows TW_MEMORY_HOST", call,
                     static_cast<int>(params.type));
        refused = TW_ERR_UNSUPPORTED;
    } else if (params.device != 0) {
        TW_LOG_ERROR("%s: params->device is %lu; memory of the host has 0", call, params.device);
    } else if (access != TW_ACCESS_NONE && (access & ~std::uint32_t{TW_ACCESS_ALL}) != 0) {
        TW_LOG_ERROR(
            "%s: params->access is 0x%x; expected TW_ACCESS_READ, WRITE, ATOMIC, or "
            "TW_ACCESS_NONE alone",
            call, access);
    } else if (params.counter != nullptr && (access & TW_ACCESS_WRITE) == 0) {
        TW_LOG_ERROR("%s: params->counter counts puts, and params->access lacks TW_ACCESS_WRITE",
                     call);
    } else {
        refused = TW_OK;
    }
    if (refused != TW_OK)
        return refused;
    std::unique_ptr<Memory> memory;
    const ucs_status_t status = Memory::make(context, address, length, access, &memory);
    if (status == UCS_OK && params.counter != nullptr)
        memory->count_puts(counter_of(params.counter));
    if (status == UCS_OK)
        *mem_p = memory.release();
    return tw(status);
}

}  // namespace

extern "C" {

tw_status_t tw_context_create(const tw_context_params_t* params, tw_context_h* context_p) try {
    TW_REFUSE_NULL(context_p);
    if (params != nullptr)
        TW_REFUSE_SIZE(params);
    const auto chosen = params == nullptr ? tw_context_params_t{} : read_sized(*params);
    std::unique_ptr<Context> context;
    if (chosen.options == nullptr && chosen.option_count > 0)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "params->options is NULL, and option_count is %zu",
                  chosen.option_count);
    const ucs_status_t status = Context::create(chosen, &context);
    if (status == UCS_OK)
        *context_p = context.release();
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_context_destroy(tw_context_h context) {
    if (context == nullptr)
        return;
    if (const std::size_t users = context_of(context).users) {
        const LogScope scope(context_of(context).log_id());
        TW_LOG_ERROR(
            "tw_context_destroy: close the context's %zu workers, memory handles and "
            "completion queues first",
            users);
        return;
    }
    delete &context_of(context);
}

tw_status_t tw_mem_map(tw_context_h context, void* address, size_t length,
                       const tw_mem_params_t* params, tw_mem_h* mem_p) try {
    TW_REFUSE_NULL(context);
    TW_REFUSE_NULL(address);
    TW_REFUSE_NULL(mem_p);
    return make_memory(__func__, context_of(context), address, length, params, mem_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_mem_alloc(tw_context_h context, size_t length, const tw_mem_params_t* params,
                         void** address_p, tw_mem_h* mem_p) try {
    TW_REFUSE_NULL(context);
    TW_REFUSE_NULL(address_p);
    TW_REFUSE_NULL(mem_p);
    const tw_status_t status =
        make_memory(__func__, context_of(context), nullptr, length, params, mem_p);
    if (status == TW_OK)
        *address_p = memory_of(*mem_p).address();
    return status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_mem_unmap(tw_context_h context, tw_mem_h mem) {
    TW_REFUSE_NULL(context);
    TW_REFUSE_NULL(mem);
    const LogScope scope(context_of(context).log_id());
    if (&memory_of(mem).context() != &context_of(context))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "mem belongs to another context");
    delete &memory_of(mem);
    return TW_OK;
}

tw_status_t tw_mem_invalidate(tw_context_h context, const void* address, size_t length) try {
    TW_REFUSE_NULL(context);
    const LogScope scope(context_of(context).log_id());
    if (length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(address))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "%zu bytes at %p exceed the address space", length,
                  address);
    RegCache* cache = context_of(context).cache();
    if (cache != nullptr && length > 0)
        cache->invalidate(address, length);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_worker_create(tw_context_h context, const tw_worker_params_t* params,
                             tw_worker_h* worker_p) try {
    TW_REFUSE_NULL(context);
    const LogScope scope(context_of(context).log_id());
    TW_REFUSE_NULL(worker_p);
    if (params != nullptr)
        TW_REFUSE_SIZE(params);
    const auto chosen = params == nullptr ? tw_worker_params_t{} : read_sized(*params);
    if (chosen.thread_mode < TW_THREAD_SINGLE || chosen.thread_mode > TW_THREAD_MULTI)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "thread_mode %d is not a tw_thread_mode_t",
                  static_cast<int>(chosen.thread_mode));
    if (chosen.progress < TW_PROGRESS_DEFAULT || chosen.progress > TW_PROGRESS_SPIN)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "progress %d is not a tw_progress_mode_t",
                  static_cast<int>(chosen.progress));
    std::unique_ptr<Worker> worker;
    const ucs_status_t status = Worker::create(context_of(context), chosen, nullptr, &worker);
    if (status == UCS_OK)
        *worker_p = worker.release();
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_worker_destroy(tw_worker_h worker) {
    if (worker == nullptr)
        return;
    const LogScope scope(worker_of(worker).context().log_id());
    delete &worker_of(worker);
}

tw_status_t tw_worker_query(tw_worker_h worker, tw_worker_attr_t* attr) {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(attr);
    TW_REFUSE_SIZE(attr);
    const Entry entry(worker_of(worker));
    tw_worker_attr_t full{};
    worker_of(worker).query(&full);
    write_sized(full, attr);
    return TW_OK;
}

tw_status_t tw_worker_set_limits(tw_worker_h worker, const tw_worker_limits_t* limits) {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(limits);
    TW_REFUSE_SIZE(limits);
    const tw_worker_limits_t wanted = read_sized(*limits);
    const Entry entry(worker_of(worker));
    tw_worker_limits_t changed = worker_of(worker).limits;
    if (wanted.multi_recv_bytes_min != 0)
        changed.multi_recv_bytes_min = wanted.multi_recv_bytes_min;
    if (wanted.buffered_bytes_limit != 0)
        changed.buffered_bytes_limit = wanted.buffered_bytes_limit;
    if (wanted.buffered_bytes_min != 0)
        changed.buffered_bytes_min = wanted.buffered_bytes_min;
    if (changed.multi_recv_bytes_min > TW_WORKER_LIMIT_MAX ||
        changed.buffered_bytes_limit > TW_WORKER_LIMIT_MAX)
        TW_REFUSE(TW_ERR_EXCEEDS_LIMIT, "a limit exceeds TW_WORKER_LIMIT_MAX, %zu",
                  TW_WORKER_LIMIT_MAX);
    if (changed.buffered_bytes_min > changed.buffered_bytes_limit)
        TW_REFUSE(TW_ERR_EXCEEDS_LIMIT, "buffered_bytes_min %zu exceeds buffered_bytes_limit %zu",
                  changed.buffered_bytes_min, changed.buffered_bytes_limit);
    worker_of(worker).limits = changed;
    return TW_OK;
}

tw_status_t tw_worker_address(tw_worker_h worker, void* address, size_t* length_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(length_p);
    const std::vector<std::byte> bytes = worker_of(worker).address(*length_p);
    if (bytes.empty()) {
        *length_p = worker_of(worker).address(SIZE_MAX).size();
        return TW_ERR_BUFFER_TOO_SMALL;
    }
    TW_REFUSE_NULL(address);
    *length_p = bytes.size();
    std::ranges::copy(bytes, static_cast<std::byte*>(address));
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_address_worker_id(const void* address, size_t length, uint64_t* id_p) try {
    TW_REFUSE_NULL(address);
    TW_REFUSE_NULL(id_p);
    std::string reason;
    const auto parsed = parse({static_cast<const std::byte*>(address), length}, &reason);
    if (!parsed)
        TW_REFUSE(TW_ERR_INVALID_ADDR, "not a worker's address: %s", reason.c_str());
    *id_p = parsed->id;
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

[[gnu::hot]] unsigned tw_worker_progress(tw_worker_h worker) {
    if (worker_of(worker).is_plain()) [[likely]]
        return worker_of(worker).progress_plain();
    return worker_of(worker).progress_otherwise();
}

unsigned tw_worker_poll(tw_worker_h worker, tw_completion_t* completions, unsigned max) {
    unsigned count = 0;
    {
        const Entry entry(worker_of(worker));
        const LeavesWork work(worker_of(worker));  // a peer that was paused may be told to go on
        count = worker_of(worker).requests().poll(completions, max);
    }
    if (const TxContexts* contexts = worker_of(worker).tx_contexts())
        count += contexts->poll(completions + count, max - count);
    return count;
}

tw_status_t tw_worker_counters(tw_worker_h worker, tw_worker_counter_t* counters,
                               unsigned* count_p) {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(count_p);
    if (*count_p != 0)
        TW_REFUSE_NULL(counters);
    const tagwire::ucs::CounterSet set = worker_of(worker).counters();
    const std::size_t room = *count_p;
    for (std::size_t i = 0; i < std::min(room, set.infos.size()); ++i) {
        const tagwire::ucs::CounterInfo& info = set.infos[i];
        counters[i] = {info.name, info.unit, info.doc, set.values[i].value(), {}};
        if (const TxContexts* contexts = worker_of(worker).tx_contexts())
            counters[i].value += contexts->counter(i);
    }
    *count_p = static_cast<unsigned>(set.infos.size());
    return room < set.infos.size() ? TW_ERR_BUFFER_TOO_SMALL : TW_OK;
}

tw_status_t tw_worker_describe(tw_worker_h worker, tw_describe_cb_t cb, void* arg) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(cb);
    std::vector<Fact> facts;
    {
        const Entry entry(worker_of(worker));
        facts = worker_of(worker).description();
    }
    for (const Fact& fact : facts)
        cb(arg, fact.key.c_str(), fact.value.c_str());
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_ep_create(tw_worker_h worker, const tw_ep_params_t* params, tw_ep_h* ep_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(params);
    TW_REFUSE_SIZE(params);
    const tw_ep_params_t chosen = read_sized(*params);
    TW_REFUSE_NULL(chosen.address);
    TW_REFUSE_NULL(ep_p);
    if ((chosen.flags & ~unsigned{TW_EP_ORDERED}) != 0)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "flags is 0x%x; expected TW_EP_ORDERED or 0", chosen.flags);
    std::string reason;
    const auto parsed =
        parse({static_cast<const std::byte*>(chosen.address), chosen.address_length}, &reason);
    if (!parsed)
        TW_REFUSE(TW_ERR_INVALID_ADDR, "not a worker's address: %s", reason.c_str());
    const Entry entry(worker_of(worker));
    const LeavesWork work(worker_of(worker));
    PeerEndpoint* ep = nullptr;
    const ucs_status_t status =
        worker_of(worker).peers().connect(*parsed, chosen.flags, chosen.user_data, &ep);
    if (status == UCS_OK)
        *ep_p = ep;
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_ep_create_to(tw_worker_h worker, uint64_t worker_id, void* user_data,
                            tw_ep_h* ep_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(ep_p);
    const Entry entry(worker_of(worker));
    PeerEndpoint* ep = nullptr;
    const ucs_status_t status = worker_of(worker).peers().connect_to(worker_id, user_data, &ep);
    if (status == UCS_OK)
        *ep_p = ep;
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_ep_h tw_ep_find(tw_worker_h worker, uint64_t worker_id) {
    if (worker == nullptr)
        return nullptr;
    const Entry entry(worker_of(worker));
    return worker_of(worker).peers().handle_to(worker_id);
}

void* tw_ep_user_data(tw_ep_h ep) {
    return ep == nullptr ? nullptr : peer_endpoint_of(ep).closing().user_data();
}

}  // extern "C"
