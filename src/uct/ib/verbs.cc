// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/verbs.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>

#include "ucs/log/log.hpp"
#include "uct/ib/options.hpp"

namespace tagwire::ib {

namespace {

namespace fs = std::filesystem;

constexpr const char* kVirtualPrefix = "tagwire_vhca_";
constexpr const char* kVirtualMark = "tagwire_vhca_version";

/// Where the file lies that this code is in; the program itself when that is linked statically.
fs::path own_directory() {
    static const char anchor = 0;
    Dl_info info{};
    link_map* map = nullptr;
    if (::dladdr1(&anchor, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0)
        return {};
    std::error_code error;
    const bool is_program = map == nullptr || map->l_name == nullptr || map->l_name[0] == 0;
    return fs::canonical(is_program ? "/proc/self/exe" : map->l_name, error).parent_path();
}

std::string find_beside(const std::string& name) {
    const fs::path directory = own_directory();
    if (directory.empty() || name.find('/') != std::string::npos)
        return name;
    std::error_code error;
    for (const fs::path& path : {directory / name, directory.parent_path() / "lib" / name})
        if (fs::exists(path, error))
            return path.string();
    return name;
}

std::string path_of(void* handle, const std::string& name) {
    link_map* map = nullptr;
    const bool is_known = ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 &&
                          map->l_name != nullptr && map->l_name[0] != 0;
    return is_known ? map->l_name : name;
}

/// The first function that the library lacks; empty when the table is complete.
std::string fill(void* handle, VerbsOrigin origin, VerbsTable* verbs) {
    const std::string prefix = origin == VerbsOrigin::kVirtual ? kVirtualPrefix : "";
    std::string missing;
    const auto find = [&](const char* name) {
        void* function = ::dlsym(handle, (prefix + name).c_str());
        if (function == nullptr && missing.empty())
            missing = prefix + name;
        return function;
    };
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define TW_VERBS_FIND(name) \
    verbs->name = reinterpret_cast<decltype(verbs->name)>(find("ibv_" #name));
    TW_VERBS(TW_VERBS_FIND)
#undef TW_VERBS_FIND
    verbs->query_gid_ex =
        reinterpret_cast<decltype(verbs->query_gid_ex)>(find("_ibv_query_gid_ex"));
    verbs->reg_mr_iova2 = reinterpret_cast<decltype(verbs->reg_mr_iova2)>(
        ::dlsym(handle, (prefix + "ibv_reg_mr_iova2").c_str()));
    return missing;
}

using Libraries = std::array<VerbsLibrary, 2>;

const Libraries* load_both() {
    LibraryOptions options;
    ucs::config_fill(library_options(), &options);  // what is wrong is in the log
    VerbsLibrary system = load_verbs_library(VerbsOrigin::kSystem, options.verbs_library.text);
    VerbsLibrary virtual_hca{VerbsOrigin::kVirtual, options.vhca_library.text, {}, {}, true};
    if (system.has_virtual_hca) {
        virtual_hca.problem =
            "the system's library (" + system.path + ") is the virtual HCA already";
    } else {
        virtual_hca = load_verbs_library(VerbsOrigin::kVirtual, options.vhca_library.text);
    }
    for (const VerbsLibrary* library : {&system, &virtual_hca}) {
        TW_LOG_DEBUG("verbs library %s (%s): %s", library->path.c_str(), name_of(library->origin),
                     library->problem.empty() ? "loaded" : library->problem.c_str());
    }
    return new Libraries{std::move(system), std::move(virtual_hca)};
}

/// The context with its extended operations when it has `op`; else null. A library that is older
/// than our header has a shorter one, whose `sz` says where it begins.
template <class Op>
verbs_context* with_op(ibv_context* context, Op verbs_context::*op) {
    verbs_context* extended = verbs_get_ctx(context);
    if (extended == nullptr)
        return nullptr;
    const auto bytes = static_cast<std::size_t>(reinterpret_cast<const char*>(extended + 1) -
                                                reinterpret_cast<const char*>(&(extended->*op)));
    return extended->sz >= bytes && extended->*op != nullptr ? extended : nullptr;
}

}  // namespace

const char* name_of(VerbsOrigin origin) {
    return origin == VerbsOrigin::kSystem ? "system" : "virtual";
}

VerbsLibrary load_verbs_library(VerbsOrigin origin, const std::string& name) {
    VerbsLibrary library{origin, name, {}, {}, origin == VerbsOrigin::kVirtual};
    if (name.empty()) {
        library.problem = "switched off by configuration";
        return library;
    }
    if (origin == VerbsOrigin::kVirtual)
        library.path = find_beside(name);
    void* handle = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* text = ::dlerror();
        library.problem = text != nullptr ? text : "cannot be loaded";
        return library;
    }
    library.path = path_of(handle, library.path);
    const std::string missing = fill(handle, origin, &library.verbs);
    if (!missing.empty()) {
        library.problem = library.path + " has no function " + missing;
        library.verbs = {};
        ::dlclose(handle);
        return library;
    }
    library.has_virtual_hca = ::dlsym(handle, kVirtualMark) != nullptr;
    return library;
}

// Never destroyed: another object's destructor may still close a device at exit.
std::span<const VerbsLibrary> verbs_libraries() {
    static const Libraries* const libraries = load_both();
    return *libraries;
}

int VerbsTable::query_port_attr(ibv_context* context, std::uint8_t port,
                                ibv_port_attr* attr) const {
    *attr = {};
    if (verbs_context* extended = with_op(context, &verbs_context::query_port))
        return extended->query_port(context, port, attr, sizeof *attr);
    return query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attr));
}

int VerbsTable::query_device_attr(ibv_context* context, ibv_device_attr_ex* attr) const {
    *attr = {};
    if (verbs_context* extended = with_op(context, &verbs_context::query_device_ex)) {
        const int error = extended->query_device_ex(context, nullptr, attr, sizeof *attr);
        if (error != EOPNOTSUPP && error != ENOSYS)
            return error;
        *attr = {};
    }
    return query_device(context, &attr->orig_attr);
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    if (verbs_context* extended = with_op(context, &verbs_context::create_cq_ex))
        return extended->create_cq_ex(context, attr);
    errno = EOPNOTSUPP;
    return nullptr;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    if (verbs_context* extended = with_op(context, &verbs_context::create_srq_ex))
        return extended->create_srq_ex(context, attr);
    errno = EOPNOTSUPP;
    return nullptr;
}

}  // namespace tagwire::ib
