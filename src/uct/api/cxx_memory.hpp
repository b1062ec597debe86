// SPDX-License-Identifier: BSD-3-Clause
//
// Components, memory domains, memory and remote keys of the C++ wrapper. Included by tagwire.hpp.
#ifndef TAGWIRE_UCT_API_CXX_MEMORY_HPP
#define TAGWIRE_UCT_API_CXX_MEMORY_HPP

#include <uct/api/cxx_base.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace tagwire {
inline namespace v1 {

// ---- Components and domains

/// A transport family. A plain handle: it is valid while the library is loaded.
class Component {
  public:
    explicit Component(uct_component_h handle = nullptr) : handle_(handle) {}

    [[nodiscard]] uct_component_h get() const { return handle_; }
    [[nodiscard]] std::string name() const {
        uct_component_attr_t attr{};
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        check(uct_component_query(handle_, &attr), "uct_component_query");
        return attr.name;
    }
    [[nodiscard]] std::vector<std::string> md_names() const {
        uct_component_attr_t attr{};
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        check(uct_component_query(handle_, &attr), "uct_component_query");
        std::vector<uct_md_resource_desc_t> resources(attr.md_resource_count + 1);
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = resources.data();
        check(uct_component_query(handle_, &attr), "uct_component_query");
        std::vector<std::string> names;
        for (unsigned i = 0; i < attr.md_resource_count; ++i)
            names.emplace_back(resources[i].md_name);
        return names;
    }

    /// `visit(const char* key, const char* value)` gets facts for people.
    template <class Visit>
    void describe(Visit&& visit) const {
        const auto call = [](void* arg, const char* key, const char* value) {
            (*static_cast<std::remove_reference_t<Visit>*>(arg))(key, value);
        };
        check(tagwire_uct_component_describe(handle_, call,
                                             const_cast<void*>(static_cast<const void*>(&visit))),
              "tagwire_uct_component_describe");
    }

  private:
    uct_component_h handle_;
};

inline std::vector<Component> components() {
    uct_component_h* list = nullptr;
    unsigned count = 0;
    check(uct_query_components(&list, &count), "uct_query_components");
    std::vector<Component> found;
    for (unsigned i = 0; i < count; ++i)
        found.emplace_back(list[i]);
    uct_release_component_list(list);
    return found;
}

class MemoryDomain;

/// Memory of the program that a domain knows. The program keeps it mapped; deregistered by the
/// destructor.
class Registration {
  public:
    Registration() = default;
    Registration(uct_md_h md, uct_mem_h memh) : md_(md), memh_(memh) {}
    ~Registration() { reset(); }
    Registration(Registration&& other) noexcept { swap(other); }
    Registration& operator=(Registration&& other) noexcept {
        Registration taken(std::move(other));
        swap(taken);
        return *this;
    }

    [[nodiscard]] uct_mem_h memh() const { return memh_; }
    void reset() {
        if (memh_ != nullptr)
            uct_md_mem_dereg(md_, std::exchange(memh_, nullptr));
    }

  private:
    void swap(Registration& other) noexcept {
        std::swap(md_, other.md_);
        std::swap(memh_, other.memh_);
    }

    uct_md_h md_ = nullptr;
    uct_mem_h memh_ = nullptr;
};

/// Memory that a domain allocated; freed by the destructor.
class Memory {
  public:
    Memory() = default;
    explicit Memory(const uct_allocated_memory_t& memory) : memory_(memory) {}
    ~Memory() { reset(); }
    Memory(Memory&& other) noexcept { std::swap(memory_, other.memory_); }
    Memory& operator=(Memory&& other) noexcept {
        Memory taken(std::move(other));
        std::swap(memory_, taken.memory_);
        return *this;
    }

    [[nodiscard]] std::span<std::byte> bytes() const {
        return detail::bytes_of(memory_.address, memory_.length);
    }
    [[nodiscard]] std::uint64_t address() const {
        return reinterpret_cast<std::uintptr_t>(memory_.address);
    }
    [[nodiscard]] uct_mem_h memh() const { return memory_.memh; }
    [[nodiscard]] const uct_allocated_memory_t& get() const { return memory_; }
    void reset() {
        if (memory_.address != nullptr)
            uct_mem_free(&memory_);
        memory_ = {};
    }

  private:
    uct_allocated_memory_t memory_{};
};

class MemoryDomain {
  public:
    MemoryDomain(Component component, const std::string& md_name, const Options& options = {})
        : component_(component) {
        uct_md_config_t* config = nullptr;
        check(uct_md_config_read(component.get(), nullptr, nullptr, &config), "uct_md_config_read");
        const detail::Owner<void*, uct_config_release> owner(config);
        for (const auto& [name, value] : options)
            check(uct_config_modify(config, name.c_str(), value.c_str()), name.c_str());
        uct_md_h md = nullptr;
        check(uct_md_open(component.get(), md_name.c_str(), config, &md), "uct_md_open");
        md_ = detail::Owner<uct_md_h, uct_md_close>(md);
    }

    [[nodiscard]] uct_md_h get() const { return md_.get(); }
    [[nodiscard]] Component component() const { return component_; }
    [[nodiscard]] uct_md_attr_t attr() const {
        uct_md_attr_t attr{};
        check(uct_md_query(get(), &attr), "uct_md_query");
        return attr;
    }
    [[nodiscard]] std::vector<uct_tl_resource_desc_t> resources() const {
        uct_tl_resource_desc_t* list = nullptr;
        unsigned count = 0;
        check(uct_md_query_tl_resources(get(), &list, &count), "uct_md_query_tl_resources");
        std::vector<uct_tl_resource_desc_t> found(list, list + count);
        uct_release_tl_resource_list(list);
        return found;
    }

    /// At least `length` bytes from this domain, registered. `flags` are UCT_MD_MEM_x.
    [[nodiscard]] Memory allocate(std::size_t length, unsigned flags = UCT_MD_MEM_ACCESS_ALL,
                                  const char* name = "tagwire::Memory") const {
        const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
        const uct_md_h md = get();
        uct_mem_alloc_params_t params{};
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                            UCT_MEM_ALLOC_PARAM_FIELD_NAME;
        params.flags = flags;
        params.mds.mds = &md;
        params.mds.count = 1;
        params.name = name;
        uct_allocated_memory_t memory{};
        check(uct_mem_alloc(length, &method, 1, &params, &memory), "uct_mem_alloc");
        return Memory(memory);
    }
    [[nodiscard]] Registration register_memory(std::span<std::byte> buffer,
                                               unsigned flags = UCT_MD_MEM_ACCESS_ALL) const {
        uct_mem_h memh = nullptr;
        check(uct_md_mem_reg(get(), buffer.data(), buffer.size(), flags, &memh), "uct_md_mem_reg");
        return {get(), memh};
    }
    /// The remote key of a registration, to be sent to peers.
    [[nodiscard]] std::vector<std::byte> pack_key(uct_mem_h memh) const {
        std::vector<std::byte> packed(attr().rkey_packed_size);
        check(uct_md_mkey_pack(get(), memh, packed.data()), "uct_md_mkey_pack");
        return packed;
    }

  private:
    Component component_;
    detail::Owner<uct_md_h, uct_md_close> md_;
};

/// A peer's packed key made usable; released by the destructor.
class RemoteKey {
  public:
    RemoteKey(Component component, std::span<const std::byte> packed) : component_(component) {
        check(uct_rkey_unpack(component.get(), packed.data(), &bundle_), "uct_rkey_unpack");
    }
    ~RemoteKey() {
        if (bundle_.type != nullptr)
            uct_rkey_release(component_.get(), &bundle_);
    }
    RemoteKey(RemoteKey&& other) noexcept
        : component_(other.component_), bundle_(std::exchange(other.bundle_, {})) {}
    RemoteKey& operator=(RemoteKey&& other) noexcept {
        std::swap(component_, other.component_);
        std::swap(bundle_, other.bundle_);
        return *this;
    }

    [[nodiscard]] uct_rkey_t get() const { return bundle_.rkey; }
    /// The local address of the peer's memory, or nothing where loads and stores do not reach it.
    [[nodiscard]] std::optional<void*> pointer(std::uint64_t remote_addr) {
        void* local = nullptr;
        const ucs_status_t status = uct_rkey_ptr(component_.get(), &bundle_, remote_addr, &local);
        return status == UCS_OK ? std::optional<void*>(local) : std::nullopt;
    }

  private:
    Component component_;
    uct_rkey_bundle_t bundle_{};
};

// ---- Finding a transport

/// A transport on a device, and the domain that has it.
struct Resource {
    Component component;
    std::string md_name;
    std::string tl_name;
    std::string dev_name;
    uct_device_type_t device_type = UCT_DEVICE_TYPE_LAST;
};

/// Everything that can be opened here.
inline std::vector<Resource> resources() {
    std::vector<Resource> found;
    for (Component component : components()) {
        for (const std::string& md_name : component.md_names()) {
            const MemoryDomain md(component, md_name);
            for (const uct_tl_resource_desc_t& tl : md.resources())
                found.push_back({component, md_name, tl.tl_name, tl.dev_name, tl.dev_type});
        }
    }
    return found;
}

/// The first resource of a transport; `dev_name` empty: on any device.
inline std::optional<Resource> find_resource(const std::string& tl_name,
                                             const std::string& dev_name = {}) {
    for (Resource& resource : resources())
        if (resource.tl_name == tl_name && (dev_name.empty() || resource.dev_name == dev_name))
            return std::move(resource);
    return std::nullopt;
}

}  // namespace v1
}  // namespace tagwire

#endif
