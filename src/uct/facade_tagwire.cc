// SPDX-License-Identifier: BSD-3-Clause
// The calls beyond UCX's API: reasons, counters, descriptions, the list of options.
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "ucs/memory/no_memory.hpp"
#include "ucs/time/clock.hpp"
#include "uct/base_iface.hpp"
#include "uct/components.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
namespace ucs = tagwire::ucs;

namespace {

ucs_status_t write(const ucs::CounterSet& set, tagwire_uct_counter_t* counters, unsigned* count_p) {
    const std::size_t room = *count_p;
    for (std::size_t i = 0; i < std::min(room, set.infos.size()); ++i) {
        const ucs::CounterInfo& info = set.infos[i];
        counters[i] = {info.name, info.unit, info.doc, set.values[i].value(), {}};
    }
    *count_p = static_cast<unsigned>(set.infos.size());
    return room < set.infos.size() ? UCS_ERR_BUFFER_TOO_SMALL : UCS_OK;
}

}  // namespace

extern "C" {

ucs_status_t tagwire_uct_worker_set_away_handler(uct_worker_h worker, tagwire_uct_away_cb_t cb,
                                                 void* arg) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return UCS_ERR_INVALID_PARAM;
    uct::worker_of(worker).set_away_handler(cb, arg);
    return UCS_OK;
}

ucs_status_t tagwire_uct_worker_set_awaited_handler(uct_worker_h worker,
                                                    tagwire_uct_awaited_cb_t cb, void* arg) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return UCS_ERR_INVALID_PARAM;
    uct::worker_of(worker).set_awaited_handler(cb, arg);
    return UCS_OK;
}

ucs_status_t tagwire_uct_worker_was_away(uct_worker_h worker, tagwire_uct_away_t how,
                                         uint64_t begin, uint64_t end) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return UCS_ERR_INVALID_PARAM;
    if (how != TAGWIRE_UCT_AWAY_YIELD && how != TAGWIRE_UCT_AWAY_NAP) {
        return uct::refuse(UCS_ERR_INVALID_PARAM, __func__,
                           "how is %d, which is not a tagwire_uct_away_t", static_cast<int>(how));
    }
    if (end < begin)
        return uct::refuse(UCS_ERR_INVALID_PARAM, __func__, "end is before begin");
    if (end > tagwire::ucs::clock_now_ns())
        return uct::refuse(UCS_ERR_INVALID_PARAM, __func__, "end is in the future");
    uct::worker_of(worker).was_away(how, begin, end);
    return UCS_OK;
}

ucs_status_t tagwire_uct_worker_prepare_nap(uct_worker_h worker, tagwire_uct_nap_t* nap) {
    if (uct::has_null(__func__, {{"worker", worker}, {"nap", nap}}))
        return UCS_ERR_INVALID_PARAM;
    return uct::worker_of(worker).prepare_nap(nap);
}

ucs_status_t tagwire_uct_nap_sleep(const tagwire_uct_nap_t* nap, uint64_t max_ns) {
    if (uct::has_null(__func__, {{"nap", nap}}))
        return UCS_ERR_INVALID_PARAM;
    uct::sleep_on(*nap, max_ns);
    return UCS_OK;
}

ucs_status_t tagwire_uct_worker_wake_naps(uct_worker_h worker) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return UCS_ERR_INVALID_PARAM;
    uct::worker_of(worker).wake_naps();
    return UCS_OK;
}

ucs_status_t tagwire_uct_worker_set_polite(uct_worker_h worker, int is_polite) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return UCS_ERR_INVALID_PARAM;
    uct::worker_of(worker).set_polite(is_polite != 0);
    return UCS_OK;
}

int tagwire_uct_worker_is_polite(uct_worker_h worker) {
    if (uct::has_null(__func__, {{"worker", worker}}))
        return 0;
    return uct::worker_of(worker).is_polite() ? 1 : 0;
}

ucs_status_t tagwire_uct_worker_describe(uct_worker_h worker, tagwire_uct_describe_cb_t cb,
                                         void* arg) try {
    if (uct::has_null(__func__, {{"worker", worker}, {"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    uct::worker_of(worker).describe(uct::DescribeSink(cb, arg));
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_uct_transports(tagwire_uct_transport_cb_t cb, void* arg) try {
    if (uct::has_null(__func__, {{"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    for (const uct::Component* component : uct::all_components()) {
        for (const uct::Transport& transport : component->transports()) {
            const tagwire_uct_transport_t entry{uct::handle_of(*component), transport.name,
                                                transport.first_contact_rank};
            cb(arg, &entry);
        }
    }
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

int tagwire_uct_iface_is_reachable_reason(uct_iface_h iface, const uct_device_addr_t* dev_addr,
                                          const uct_iface_addr_t* iface_addr, char* reason,
                                          size_t max) try {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return 0;
    std::string text;
    const bool is_given = uct::iface_of(iface).addresses_given(dev_addr, iface_addr);
    const bool is_reachable =
        is_given && uct::iface_of(iface).reachable(dev_addr, iface_addr, &text);
    if (reason != nullptr && max != 0) {
        const char* why = is_given ? text.c_str() : "an address is NULL";
        std::snprintf(reason, max, "%s", is_reachable ? "" : why);
    }
    return is_reachable ? 1 : 0;
} catch (const std::bad_alloc&) {
    // Only a reason takes memory.
    if (reason != nullptr && max != 0)
        std::snprintf(reason, max, "there is no memory for the reason");
    return 0;
}

int tagwire_uct_iface_is_on_route(uct_iface_h iface, const uct_device_addr_t* dev_addr) {
    if (uct::has_null(__func__, {{"iface", iface}, {"dev_addr", dev_addr}}))
        return 0;
    return uct::iface_of(iface).is_on_route(dev_addr) ? 1 : 0;
}

ucs_status_t tagwire_uct_ep_lend(uct_ep_h ep, const void* buffer, size_t length,
                                 tagwire_uct_loan_t* loan_p) {
    uct::Lending* const lending = uct::iface_of(ep->iface).lending();
    return lending == nullptr ? UCS_ERR_UNSUPPORTED : lending->lend(ep, buffer, length, loan_p);
}

ucs_status_t tagwire_uct_ep_read_lent(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                      const tagwire_uct_loan_t* loan, uct_completion_t* comp) {
    uct::Lending* const lending = uct::iface_of(ep->iface).lending();
    return lending == nullptr ? UCS_ERR_UNSUPPORTED : lending->read(ep, iov, iovcnt, *loan, comp);
}

ucs_status_t tagwire_uct_iface_set_lent_handler(uct_iface_h iface, tagwire_uct_lent_cb_t cb,
                                                void* arg) {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return UCS_ERR_INVALID_PARAM;
    uct::Lending* const lending = uct::iface_of(iface).lending();
    if (lending == nullptr)
        return UCS_ERR_UNSUPPORTED;
    lending->set_handler(cb, arg);
    return UCS_OK;
}

ucs_status_t tagwire_uct_iface_query_counters(uct_iface_h iface, tagwire_uct_counter_t* counters,
                                              unsigned* count_p) {
    if (uct::has_null(__func__, {{"iface", iface}, {"count_p", count_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (*count_p != 0 && uct::has_null(__func__, {{"counters", counters}}))
        return UCS_ERR_INVALID_PARAM;
    return write(uct::iface_of(iface).counters(), counters, count_p);
}

ucs_status_t tagwire_uct_worker_query_counters(uct_worker_h worker, tagwire_uct_counter_t* counters,
                                               unsigned* count_p) {
    if (uct::has_null(__func__, {{"worker", worker}, {"count_p", count_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (*count_p != 0 && uct::has_null(__func__, {{"counters", counters}}))
        return UCS_ERR_INVALID_PARAM;
    return write(uct::worker_of(worker).counters(), counters, count_p);
}

ucs_status_t tagwire_uct_component_describe(uct_component_h component, tagwire_uct_describe_cb_t cb,
                                            void* arg) try {
    if (uct::has_null(__func__, {{"component", component}, {"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    if (!uct::is_component(component)) {
        return uct::refuse(UCS_ERR_INVALID_PARAM, __func__,
                           "component %p is not one that uct_query_components() lists",
                           static_cast<void*>(component));
    }
    const uct::Component& found = uct::component_of(component);
    if (found.describe != nullptr)
        found.describe(found, uct::DescribeSink(cb, arg));
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_uct_iface_describe(uct_iface_h iface, tagwire_uct_describe_cb_t cb,
                                        void* arg) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    const uct::DescribeSink sink(cb, arg);
    uct::iface_of(iface).describe(sink);
    sink.flag("sees_peers_run", uct::iface_of(iface).sees_peers());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_uct_ep_describe(uct_ep_h ep, tagwire_uct_describe_cb_t cb, void* arg) try {
    if (uct::has_null(__func__, {{"ep", ep}, {"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    uct::iface_of(ep->iface).describe_ep(ep, uct::DescribeSink(cb, arg));
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_config_check(const char* name, const char* value, char* reason,
                                  size_t reason_bytes) try {
    if (uct::has_null(__func__, {{"name", name}, {"value", value}}) ||
        (reason_bytes > 0 && uct::has_null(__func__, {{"reason", reason}})))
        return UCS_ERR_INVALID_PARAM;
    std::string problem;
    const ucs_status_t status = ucs::config_check(uct::all_option_tables(), name, value, &problem);
    if (reason_bytes > 0)
        reason[problem.copy(reason, reason_bytes - 1)] = '\0';
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_config_list(tagwire_config_list_cb_t cb, void* arg) try {
    if (uct::has_null(__func__, {{"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    ucs_status_t status = UCS_OK;
    for (const ucs::OptionTable* table : uct::all_option_tables()) {
        for (const ucs::OptionReport& option : ucs::config_report(*table)) {
            const tagwire_config_entry_t entry{
                table->title,         option.variable.c_str(), option.type.c_str(),
                option.option->unit,  option.accepted.c_str(), option.default_value.c_str(),
                option.value.c_str(), option.source.c_str(),   option.problem.c_str(),
                option.option->doc};
            cb(arg, &entry);
            if (!option.problem.empty())
                status = UCS_ERR_INVALID_PARAM;
        }
    }
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t tagwire_config_warnings(tagwire_config_warning_cb_t cb, void* arg) try {
    if (uct::has_null(__func__, {{"cb", cb}}))
        return UCS_ERR_INVALID_PARAM;
    for (const std::string& sentence : ucs::config_unknown_names(uct::all_option_tables()))
        cb(arg, sentence.c_str());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

}  // extern "C"
