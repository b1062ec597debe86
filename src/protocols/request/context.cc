// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/context.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <uct/api/tagwire_uct.h>

#include "protocols/wire/address.hpp"
#include "ucs/log/listeners.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::proto {

namespace {

/// Registering a page for less than this pays within a message.
constexpr double kCheapSeconds = 1e-6;
constexpr double kCheapBytes = 1 << 20;

/// Names of the transports of a component, or with nullptr of all, separated by commas.
std::string transports_of(uct_component_h component) {
    struct List {
        uct_component_h of;
        std::string text;
    } list{component, {}};
    const auto add = [](void* arg, const tagwire_uct_transport_t* transport) {
        auto& [of, text] = *static_cast<List*>(arg);
        if (of == nullptr || transport->component == of)
            text += fmt::format("{}{}", text.empty() ? "" : ",", transport->name);
    };
    if (tagwire_uct_transports(add, &list) != UCS_OK)
        throw std::bad_alloc();
    return list.text;
}

/// Whether it names transports of a component, or with nullptr of any, by what the library has.
bool names_transport_of(uct_component_h component, const TransportName& name) {
    const std::string known = "," + transports_of(component) + ",";
    return name.is_auto() || name.is_all() ||
           known.find("," + name.transport + ",") != std::string::npos;
}

/// Whether transports of this domain may be wanted. Opening a virtual device starts its thread,
/// which stays, so none is opened to look.
bool may_want(const TransportList& wanted, uct_component_h component, std::string_view domain) {
    return std::ranges::any_of(wanted.names(), [&](const TransportName& name) {
        return !name.is_exception && names_transport_of(component, name) &&
               (!is_virtual(domain) ||
                (!name.is_auto() && (name.device.empty() || name.device.starts_with(domain))));
    });
}

/// Whether transports of this component may be wanted. Looking for devices of any other one loads
/// libraries, and takes their locks.
bool may_want_any(const TransportList& wanted, uct_component_h component) {
    return std::ranges::any_of(wanted.names(), [component](const TransportName& name) {
        return !name.is_exception && names_transport_of(component, name);
    });
}

/// False: logged.
bool can_copy(const char* option, int setting) {
    if (Options::is_auto(setting) || ucs::has_copy_kind(Options::copy_kind(setting)))
        return true;
    TW_LOG_ERROR("%s=%s: this processor has no such copies; it has %s; set one of them, or auto",
                 option, name_of(Options::copy_kind(setting)), copy_kinds_text().c_str());
    return false;
}

}  // namespace

std::string copy_kinds_text() {
    std::string list;
    for (const ucs::CopyKind kind : ucs::copy_kinds_here())
        list += fmt::format("{}{}", list.empty() ? "" : " ", name_of(kind));
    return list;
}

bool is_virtual(const uct_tl_resource_desc_t& desc) {
    return is_virtual(std::string_view(desc.dev_name));
}

Context::Context(tw_log_cb_t listener, void* arg)
    : listens_(listener != nullptr), name_(ucs::random_u64()) {
    static_assert(static_cast<int>(ucs::LogLevel::kError) == TW_LOG_ERROR &&
                  static_cast<int>(ucs::LogLevel::kTrace) == TW_LOG_TRACE);
    log_listener_ = {listener, arg};
    const auto tell = [](void* self, ucs::LogLevel level, const char* file, int line,
                         const char* text) {
        const auto [callback, with] = *static_cast<const LogListener*>(self);
        callback(with, static_cast<tw_log_level_t>(level), file, line, text);
    };
    log_id_ = ucs::log_add(listens_ ? +tell : nullptr, &log_listener_);
}

ucs_status_t Context::create(const char* transports, std::unique_ptr<Context>* context_p) {
    tw_context_params_t params{};
    params.transports = transports;
    return create(params, context_p);
}

ucs_status_t Context::create(const tw_context_params_t& params,
                             std::unique_ptr<Context>* context_p) {
    std::unique_ptr<Context> context(new Context(params.log, params.log_arg));
    const ucs::LogScope scope(context->log_id());
    const ucs_status_t status = context->open(params);
    if (status != UCS_OK)
        return status;
    if (context->options_.reg_cache_bytes > 0)
        context->cache_ = std::make_unique<RegCache>(*context, context->options_.reg_cache_bytes);
    *context_p = std::move(context);
    return UCS_OK;
}

ucs_status_t Context::open(const tw_context_params_t& params) {
    tag_sender_mask = params.tag_sender_mask;
    ucs_status_t status = GivenOptions::take({params.options, params.option_count}, &given_);
    if (status == UCS_OK)
        status = name_transports(params.transports);
    if (status == UCS_OK)
        status = ucs::config_fill(option_table(), &options_);
    if (status == UCS_OK)
        status = given_.apply(option_table(), &options_);
    if (status == UCS_OK)
        status = check_overrides();
    if (status == UCS_OK)
        status = calibration_.load(options_.calibration.text);
    if (status == UCS_OK)
        status = open(std::string(params.transports != nullptr ? params.transports
                                                               : options_.transports.text));
    return status;
}

/// Whoever reads an error learns which list it is about.
ucs_status_t Context::name_transports(const char* parameter) {
    constexpr const char* kParameter = "tw_context_params_t.transports";
    const bool is_given = !given_.value_of("TRANSPORTS").empty();
    if (parameter == nullptr) {
        if (is_given)
            source_ = "tw_context_params_t.options: TRANSPORTS";
        return UCS_OK;
    }
    source_ = kParameter;
    if (!is_given)
        return UCS_OK;
    TW_LOG_ERROR("%s and tw_context_params_t.options both name the transports; give one of them",
                 kParameter);
    return UCS_ERR_INVALID_PARAM;
}

std::string Context::transports_text() const {
    std::string there;
    for (const Resource& resource : resources_)
        if (!resource.is_auxiliary)
            there += fmt::format("{}{}:{}", there.empty() ? "" : ", ", resource.desc.tl_name,
                                 resource.desc.dev_name);
    return fmt::format("{}=\"{}\" stands for {}", source_, wanted_, there);
}

/// Rejects options that contradict each other, and kinds of copies that the processor lacks.
ucs_status_t Context::check_overrides() const {
    if (!can_copy("TAGWIRE_COPY_IN", options_.copy_in) ||
        !can_copy("TAGWIRE_COPY_OUT", options_.copy_out))
        return UCS_ERR_INVALID_PARAM;
    if (options_.rndv_threshold == UINT64_MAX ||
        options_.rndv_threshold <= options_.unexpected_bytes)
        return UCS_OK;
    TW_LOG_ERROR(
        "TAGWIRE_RNDV_THRESHOLD=%lu exceeds TAGWIRE_UNEXPECTED_BYTES=%lu: a receiver must be able "
        "to keep every shorter message; lower the threshold, or set inf to let costs decide",
        options_.rndv_threshold, options_.unexpected_bytes);
    return UCS_ERR_INVALID_PARAM;
}

Context::Context() : name_(ucs::random_u64()) {}

Context::~Context() {
    {
        const ucs::LogScope scope(log_id());
        cache_.reset();
        for (const Domain& domain : domains_)
            uct_md_close(domain.md);
    }
    ucs::log_remove(log_id_);
}

void Context::add(CompletionQueue& queue) {
    const std::lock_guard locked(queues_lock_);
    queues_.push_back(&queue);
    ++users;
}

void Context::remove(CompletionQueue& queue) {
    const std::lock_guard locked(queues_lock_);
    std::erase(queues_, &queue);
    --users;
}

void Context::drop_kept_of(const KeptReturns<CompletionEnv>& home) {
    const std::lock_guard locked(queues_lock_);
    for (CompletionQueue* queue : queues_)
        queue->drop_kept_of(home);
}

ucs_status_t Context::open(const std::string& transports) {
    TransportList wanted;
    std::string problem;
    wanted_ = transports;
    if (!TransportList::parse(transports, &wanted, &problem)) {
        TW_LOG_ERROR("%s=\"%s\": %s", source_.c_str(), transports.c_str(), problem.c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status = open_components(wanted);
    if (status != UCS_OK)
        return status;
    problem = problem_with(wanted);
    if (problem.empty())
        return UCS_OK;
    TW_LOG_ERROR("%s=\"%s\": %s", source_.c_str(), transports.c_str(), problem.c_str());
    return lacks_memory_ ? UCS_ERR_NO_MEMORY : UCS_ERR_NO_DEVICE;
}

ucs_status_t Context::open_components(const TransportList& wanted) {
    uct_component_h* components = nullptr;
    unsigned count = 0;
    const ucs_status_t status = uct_query_components(&components, &count);
    if (status != UCS_OK)
        return status;
    const std::unique_ptr<uct_component_h, decltype(&uct_release_component_list)> owner(
        components, uct_release_component_list);
    for (unsigned i = 0; i < count; ++i)
        open_component(components[i], wanted);
    return has_bad_option_ ? UCS_ERR_INVALID_PARAM : UCS_OK;
}

bool Context::has(const TransportName& name) const {
    return std::ranges::any_of(resources_, [&](const Resource& resource) {
        return !resource.is_auxiliary && name.names(resource.desc);
    });
}

/// Names the parts that this machine lacks, or is empty. An exception need not be there, but is a
/// transport: one that is misspelled would stay.
std::string Context::problem_with(const TransportList& wanted) const {
    std::vector<const TransportName*> absent;
    for (const TransportName& name : wanted.names())
        if (!(name.is_exception ? names_transport_of(nullptr, name) : has(name)))
            absent.push_back(&name);
    if (absent.empty())
        return {};
    Context all;
    TransportList everything;
    std::string there;
    if (TransportList::parse("all", &everything, &there) &&
        all.open_components(everything) != UCS_OK)
        return "the transports of this machine cannot be listed";
    for (const Resource& resource : all.resources_)
        there += fmt::format("{}{}:{}", there.empty() ? "" : ", ", resource.desc.tl_name,
                             resource.desc.dev_name);
    if (there.empty())
        there = "no transport";
    const auto listed = [&](bool is_left_out) {
        std::string list;
        for (const TransportName* name : absent)
            if (all.has(*name) == is_left_out)
                list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", name->text);
        return list;
    };
    if (const std::string lacking = listed(false); lacking == "\"auto\"") {
        return fmt::format(
            "neither shared memory nor a real RDMA device nor a network interface can be used on "
            "this machine, which has {}; auto leaves virtual devices out: name them to use them",
            there);
    } else if (!lacking.empty()) {
        return fmt::format(
            "{} is not on this machine, which has {}; expected such names, with or without the "
            "device, separated by commas, ^ before those to leave out, auto (all but virtual "
            "devices), or all",
            lacking, there);
    }
    return fmt::format("all of {} is left out again; this machine has {}", listed(true), there);
}

bool Context::is_open(ucs_status_t status) {
    lacks_memory_ |= status == UCS_ERR_NO_MEMORY;
    return status == UCS_OK;
}

// Domains without a wanted transport are closed again. Failures to open one are already logged.
void Context::open_component(uct_component_h component, const TransportList& wanted) {
    if (!may_want_any(wanted, component))
        return;
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (!is_open(uct_component_query(component, &attr)))
        return;
    std::vector<uct_md_resource_desc_t> names(attr.md_resource_count + 1);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = names.data();
    if (!is_open(uct_component_query(component, &attr)))
        return;
    for (unsigned i = 0; i < attr.md_resource_count; ++i)
        open_domain(component, names[i].md_name, wanted);
}

void Context::open_domain(uct_component_h component, const char* md_name,
                          const TransportList& wanted) {
    if (!may_want(wanted, component, md_name))
        return;
    uct_md_config_t* config = nullptr;
    const ucs_status_t read = uct_md_config_read(component, nullptr, nullptr, &config);
    has_bad_option_ |= read == UCS_ERR_INVALID_PARAM;
    if (!is_open(read))
        return;
    const ucs_status_t applied = given_.apply_to_uct(config);
    has_bad_option_ |= applied == UCS_ERR_INVALID_PARAM;
    if (!is_open(applied)) {
        uct_config_release(config);
        return;
    }
    Domain domain{component, nullptr, {}, false};
    const ucs_status_t opened = uct_md_open(component, md_name, config, &domain.md);
    uct_config_release(config);
    if (!is_open(opened))
        return;
    std::unique_ptr<std::remove_pointer_t<uct_md_h>, decltype(&uct_md_close)> owner(domain.md,
                                                                                    uct_md_close);
    uct_tl_resource_desc_t* list = nullptr;
    unsigned transports = 0;
    const std::size_t before = resources_.size();
    if (is_open(uct_md_query_tl_resources(domain.md, &list, &transports))) {
        const std::unique_ptr<uct_tl_resource_desc_t, decltype(&uct_release_tl_resource_list)>
            list_owner(list, uct_release_tl_resource_list);
        for (unsigned tl = 0; tl < transports; ++tl)
            if (wanted.wants(list[tl]))
                resources_.push_back({domains_.size(), list[tl], false});
        if (resources_.size() > before)
            add_first_contact(list, transports);
    }
    if (resources_.size() == before || !is_open(uct_md_query(domain.md, &domain.attr))) {
        resources_.resize(before);
        return;
    }
    const ucs_linear_func_t& cost = domain.attr.reg_cost;
    domain.registers_cheaply = cost.c + cost.m * kCheapBytes < kCheapSeconds;
    domains_.push_back(domain);
    static_cast<void>(owner.release());
}

/// Connections of rc need somebody to carry their addresses: where nothing wanted can, the
/// transport of the domain that reaches least far does, as it is the cheapest.
void Context::add_first_contact(const uct_tl_resource_desc_t* list, unsigned count) {
    for (const Resource& resource : resources_)
        if (first_contact_rank(resource.desc.tl_name) != 0)
            return;
    std::uint8_t last = 0;
    for (unsigned tl = 0; tl < count; ++tl)
        last = std::max(last, first_contact_rank(list[tl].tl_name));
    for (unsigned tl = 0; tl < count && last != 0; ++tl)
        if (first_contact_rank(list[tl].tl_name) == last)
            resources_.push_back({domains_.size(), list[tl], true});
}

}  // namespace tagwire::proto
