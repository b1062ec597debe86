// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/context.hpp"

#include <algorithm>
#include <new>
#include <string_view>

#include <fmt/format.h>
#include <uct/api/tagwire_uct.h>

#include "protocols/wire/address.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

constexpr std::string_view kAuto = "auto";
/// Devices of the virtual HCA reach processes of this host, which shared memory does better.
constexpr std::string_view kVirtual = "vhca";
/// Before the name of what is left out.
constexpr char kExcept = '^';
/// Registering a page for less than this pays within a message.
constexpr double kCheapSeconds = 1e-6;
constexpr double kCheapBytes = 1 << 20;

std::vector<std::string_view> split(std::string_view list) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        if (end > begin)
            parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

bool is_virtual(std::string_view device) {
    return device.starts_with(kVirtual);
}

bool is_exception(std::string_view part) {
    return part.starts_with(kExcept);
}

/// `part` is the name of a transport, with or without a device, or "auto".
bool names(std::string_view part, const uct_tl_resource_desc_t& desc) {
    const std::string_view device = desc.dev_name;
    if (part == kAuto)
        return !is_virtual(device);
    const std::size_t colon = part.find(':');
    return part.substr(0, colon) == desc.tl_name &&
           (colon == std::string_view::npos || part.substr(colon + 1) == device);
}

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

/// Whether `part` names a transport of a component, or with nullptr of any.
bool names_transport_of(uct_component_h component, std::string_view part) {
    const std::string known = transports_of(component);
    return std::ranges::count(split(known), part.substr(0, part.find(':'))) != 0;
}

/// Whether `part` may name transports of this domain. Opening a virtual device starts its thread,
/// which stays, so none is opened to look.
bool may_name(std::string_view part, uct_component_h component, std::string_view domain) {
    if (!is_virtual(domain))
        return true;
    const std::size_t colon = part.find(':');
    return names_transport_of(component, part) &&
           (colon == std::string_view::npos || part.substr(colon + 1).starts_with(domain));
}

bool wants(std::string_view wanted, const uct_tl_resource_desc_t& desc) {
    bool is_named = false;
    for (const std::string_view part : split(wanted)) {
        if (is_exception(part) && names(part.substr(1), desc))
            return false;
        is_named |= names(part, desc);
    }
    return is_named;
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

ucs_status_t Context::create(const char* transports, std::unique_ptr<Context>* context_p) {
    std::unique_ptr<Context> context(new Context);
    if (transports != nullptr)
        context->source_ = "tw_context_params_t.transports";
    ucs_status_t status = ucs::config_fill(option_table(), &context->options_);
    if (status == UCS_OK)
        status = context->check_overrides();
    if (status == UCS_OK)
        status = context->calibration_.load(context->options_.calibration.text);
    if (status == UCS_OK)
        status =
            context->open(transports != nullptr ? transports : context->options_.transports.text);
    if (status != UCS_OK)
        return status;
    if (context->options_.reg_cache_bytes > 0)
        context->cache_ = std::make_unique<RegCache>(*context, context->options_.reg_cache_bytes);
    *context_p = std::move(context);
    return UCS_OK;
}

/// Rejects options that contradict each other, and kinds of copies that the processor lacks.
ucs_status_t Context::check_overrides() const {
    if (!can_copy("TAGWIRE_COPY_IN", options_.copy_in) ||
        !can_copy("TAGWIRE_COPY_OUT", options_.copy_out))
        return UCS_ERR_INVALID_PARAM;
    if (options_.buffered_min > options_.buffered_limit) {
        TW_LOG_ERROR("TAGWIRE_BUFFERED_MIN=%lu exceeds TAGWIRE_BUFFERED_LIMIT=%lu",
                     options_.buffered_min, options_.buffered_limit);
        return UCS_ERR_INVALID_PARAM;
    }
    if (options_.rndv_threshold == UINT64_MAX ||
        options_.rndv_threshold <= options_.unexpected_bytes)
        return UCS_OK;
    TW_LOG_ERROR(
        "TAGWIRE_RNDV_THRESHOLD=%lu exceeds TAGWIRE_UNEXPECTED_BYTES=%lu: a receiver must be able "
        "to keep every shorter message; lower the threshold, or set inf to let costs decide",
        options_.rndv_threshold, options_.unexpected_bytes);
    return UCS_ERR_INVALID_PARAM;
}

Context::~Context() {
    cache_.reset();
    for (const Domain& domain : domains_)
        uct_md_close(domain.md);
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
    uct_component_h* components = nullptr;
    unsigned count = 0;
    const ucs_status_t status = uct_query_components(&components, &count);
    if (status != UCS_OK)
        return status;
    for (unsigned i = 0; i < count; ++i)
        open_component(components[i], transports);
    uct_release_component_list(components);
    const std::string absent = absent_of(transports);
    return absent.empty() && !resources_.empty() ? UCS_OK : complain(transports, absent);
}

/// The parts of `wanted` that this machine lacks, separated by commas. An exception need not be
/// there, but is a transport: one that is misspelled would stay.
std::string Context::absent_of(const std::string& wanted) const {
    std::string absent;
    for (const std::string_view part : split(wanted)) {
        const auto is_it = [&](const Resource& resource) {
            return !resource.is_auxiliary && names(part, resource.desc);
        };
        const bool is_known = is_exception(part) ? names_transport_of(nullptr, part.substr(1))
                                                 : std::ranges::any_of(resources_, is_it);
        if (!is_known)
            absent += fmt::format("{}{}", absent.empty() ? "" : ", ", part);
    }
    return absent;
}

// Domains without a wanted transport are closed again. Failures to open one are already logged.
void Context::open_component(uct_component_h component, const std::string& wanted) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(component, &attr) != UCS_OK)
        return;
    std::vector<uct_md_resource_desc_t> names(attr.md_resource_count + 1);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = names.data();
    if (uct_component_query(component, &attr) != UCS_OK)
        return;
    for (unsigned i = 0; i < attr.md_resource_count; ++i)
        open_domain(component, names[i].md_name, wanted);
}

void Context::open_domain(uct_component_h component, const char* md_name,
                          const std::string& wanted) {
    const auto may_be_here = [&](std::string_view part) {
        return may_name(part, component, md_name);
    };
    if (std::ranges::none_of(split(wanted), may_be_here))
        return;
    uct_md_config_t* config = nullptr;
    if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK)
        return;
    Domain domain{component, nullptr, {}, false};
    const ucs_status_t opened = uct_md_open(component, md_name, config, &domain.md);
    uct_config_release(config);
    if (opened != UCS_OK)
        return;
    uct_tl_resource_desc_t* list = nullptr;
    unsigned transports = 0;
    const std::size_t before = resources_.size();
    if (uct_md_query_tl_resources(domain.md, &list, &transports) == UCS_OK) {
        for (unsigned tl = 0; tl < transports; ++tl)
            if (wants(wanted, list[tl]))
                resources_.push_back({domains_.size(), list[tl], false});
        if (resources_.size() > before)
            add_first_contact(list, transports);
        uct_release_tl_resource_list(list);
    }
    if (resources_.size() == before || uct_md_query(domain.md, &domain.attr) != UCS_OK) {
        resources_.resize(before);
        uct_md_close(domain.md);
        return;
    }
    const ucs_linear_func_t& cost = domain.attr.reg_cost;
    domain.registers_cheaply = cost.c + cost.m * kCheapBytes < kCheapSeconds;
    domains_.push_back(domain);
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

ucs_status_t Context::complain(const std::string& wanted, const std::string& absent) const {
    std::string there;
    uct_component_h* components = nullptr;
    unsigned count = 0;
    if (uct_query_components(&components, &count) == UCS_OK) {
        Context all;
        for (unsigned i = 0; i < count; ++i)
            all.open_component(components[i], transports_of(components[i]));
        uct_release_component_list(components);
        for (const Resource& resource : all.resources_) {
            there += fmt::format("{}{}:{}", there.empty() ? "" : ", ", resource.desc.tl_name,
                                 resource.desc.dev_name);
        }
    }
    if (there.empty())
        there = "no transport";
    if (wanted == kAuto) {
        TW_LOG_ERROR(
            "neither shared memory nor a real RDMA device nor a network interface can be used on "
            "this machine, which has %s; auto leaves virtual devices out: name them in "
            "TAGWIRE_TRANSPORTS to use them",
            there.c_str());
    } else {
        TW_LOG_ERROR(
            "%s=\"%s\": %s is not on this machine, which has %s; expected such names, with or "
            "without the device, separated by commas, ^ before those to leave out, or auto (all "
            "but virtual devices)",
            source_, wanted.c_str(),
            absent.empty() ? "what it names" : ("\"" + absent + "\"").c_str(), there.c_str());
    }
    return UCS_ERR_NO_DEVICE;
}

}  // namespace tagwire::proto
