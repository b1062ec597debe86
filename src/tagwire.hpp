// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ face of the transport API: owners, spans and callables over <uct/api/uct.h>. Header only,
// C++20.
//
//     tagwire::Resource shm = tagwire::find_resource("sm").value();
//     tagwire::MemoryDomain md(shm.component, shm.md_name);
//     tagwire::Worker worker;
//     tagwire::Interface iface(md, worker, tagwire::InterfaceOptions(shm.tl_name, shm.dev_name));
//     auto print = [](std::span<std::byte> data, unsigned) { ...; return UCS_OK; };
//     iface.set_am_handler(1, print);
//     tagwire::Endpoint self(iface, iface.address());
//     while (self.am_short(1, 42, bytes) == UCS_ERR_NO_RESOURCE) worker.progress();
//
// Set-up throws tagwire::Error, which carries the status; data-path calls answer statuses and never
// throw. Callables are referenced, not copied: they live as long as what they were given to, and
// must not throw. Owners are move-only; close in the opposite order of opening. Threads, lengths
// and every status: at the C function of the same name.
#ifndef TAGWIRE_TAGWIRE_HPP
#define TAGWIRE_TAGWIRE_HPP

#include <uct/api/tagwire_uct.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tagwire {
inline namespace v1 {

class Error : public std::runtime_error {
  public:
    Error(const std::string& what, ucs_status_t status)
        : std::runtime_error(what + ": " + ucs_status_string(status)), status_(status) {}

    [[nodiscard]] ucs_status_t status() const { return status_; }

  private:
    ucs_status_t status_;
};

/// Throws unless the status is UCS_OK.
inline void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw Error(what, status);
}

namespace detail {

/// Owner of a C handle: closes it once.
template <class Handle, auto kClose>
class Owner {
  public:
    explicit Owner(Handle handle = nullptr) : handle_(handle) {}
    ~Owner() { reset(); }
    Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Owner& operator=(Owner&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }

    [[nodiscard]] Handle get() const { return handle_; }
    void reset() {
        if (handle_ != nullptr)
            kClose(std::exchange(handle_, nullptr));
    }

  private:
    Handle handle_;
};

inline std::span<std::byte> bytes_of(void* data, std::size_t length) {
    return {static_cast<std::byte*>(data), length};
}

}  // namespace detail

/// Names and values for options, as in "SM_RING_SLOTS" = "64".
using Options = std::map<std::string, std::string>;

/// An unregistered buffer as an element of a gather or scatter list.
inline uct_iov_t iov(std::span<const std::byte> buffer, uct_mem_h memh = UCT_MEM_HANDLE_NULL) {
    return {const_cast<std::byte*>(buffer.data()), buffer.size(), memh, 0, 1};
}

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
        for (const auto& [name, value] : options) {
            check(uct_config_modify(config, name.c_str(), value.c_str()), name.c_str());
        }
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
            for (const uct_tl_resource_desc_t& tl : md.resources()) {
                found.push_back({component, md_name, tl.tl_name, tl.dev_name, tl.dev_type});
            }
        }
    }
    return found;
}

/// The first resource of a transport; `dev_name` empty: on any device.
inline std::optional<Resource> find_resource(const std::string& tl_name,
                                             const std::string& dev_name = {}) {
    for (Resource& resource : resources()) {
        if (resource.tl_name == tl_name && (dev_name.empty() || resource.dev_name == dev_name)) {
            return std::move(resource);
        }
    }
    return std::nullopt;
}

// ---- Workers and interfaces

class Worker {
  public:
    explicit Worker(ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE) {
        ucs_async_context_t* async = nullptr;
        check(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async), "ucs_async_context_create");
        async_ = detail::Owner<ucs_async_context_t*, ucs_async_context_destroy>(async);
        uct_worker_h worker = nullptr;
        check(uct_worker_create(async, mode, &worker), "uct_worker_create");
        worker_ = detail::Owner<uct_worker_h, uct_worker_destroy>(worker);
    }

    [[nodiscard]] uct_worker_h get() const { return worker_.get(); }
    unsigned progress() { return uct_worker_progress(get()); }

  private:
    detail::Owner<ucs_async_context_t*, ucs_async_context_destroy> async_;  // outlives the worker
    detail::Owner<uct_worker_h, uct_worker_destroy> worker_;
};

/// Parameters of an interface. Setters return *this.
class InterfaceOptions {
  public:
    InterfaceOptions(std::string tl_name, std::string dev_name)
        : tl_name_(std::move(tl_name)), dev_name_(std::move(dev_name)) {
        params_.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
        params_.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    }

    /// An option of the transport's configuration.
    InterfaceOptions& option(const std::string& name, const std::string& value) {
        options_[name] = value;
        return *this;
    }
    InterfaceOptions& rx_headroom(std::size_t bytes) {
        params_.field_mask |= UCT_IFACE_PARAM_FIELD_RX_HEADROOM;
        params_.rx_headroom = bytes;
        return *this;
    }
    /// UCT_IFACE_FEATURE_x.
    InterfaceOptions& features(std::uint64_t features) {
        params_.field_mask |= UCT_IFACE_PARAM_FIELD_FEATURES;
        params_.features = features;
        return *this;
    }
    /// `handler(uct_ep_h, ucs_status_t)` runs when an endpoint failed.
    template <class Handler>
    InterfaceOptions& error_handler(Handler& handler) {
        params_.field_mask |=
            UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG;
        params_.err_handler_arg = const_cast<void*>(static_cast<const void*>(&handler));
        params_.err_handler = [](void* arg, uct_ep_h ep, ucs_status_t status) {
            (*static_cast<Handler*>(arg))(ep, status);
            return UCS_OK;
        };
        return *this;
    }
    /// Handlers of unexpected tagged messages, each with the arguments of its C callback but for
    /// `arg`: `eager(void* data, size_t length, unsigned flags, uct_tag_t, uint64_t imm, void**
    /// context) -> ucs_status_t`, `rndv(unsigned flags, uct_tag_t, const void* header, unsigned
    /// header_length, uint64_t remote_addr, size_t length, const void* rkey_buf) -> ucs_status_t`.
    /// Without them an interface has no tagged messages.
    template <class Eager, class Rndv>
    InterfaceOptions& unexpected_handlers(Eager& eager, Rndv& rndv) {
        params_.field_mask |=
            UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB | UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG |
            UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG;
        params_.eager_arg = const_cast<void*>(static_cast<const void*>(&eager));
        params_.eager_cb = [](void* arg, void* data, std::size_t length, unsigned flags,
                              uct_tag_t tag, std::uint64_t imm, void** context) -> ucs_status_t {
            return (*static_cast<Eager*>(arg))(data, length, flags, tag, imm, context);
        };
        params_.rndv_arg = const_cast<void*>(static_cast<const void*>(&rndv));
        params_.rndv_cb = [](void* arg, unsigned flags, std::uint64_t tag, const void* header,
                             unsigned header_length, std::uint64_t remote_addr, std::size_t length,
                             const void* rkey_buf) -> ucs_status_t {
            return (*static_cast<Rndv*>(arg))(flags, tag, header, header_length, remote_addr,
                                              length, rkey_buf);
        };
        return *this;
    }

    /// For what has no setter; device names are filled in when the interface opens.
    [[nodiscard]] uct_iface_params_t& raw() { return params_; }

  private:
    friend class Interface;
    std::string tl_name_;
    std::string dev_name_;
    Options options_;
    uct_iface_params_t params_{};
};

/// Where an interface is, as bytes to be sent to peers.
struct InterfaceAddress {
    std::vector<std::byte> device;
    std::vector<std::byte> iface;

    [[nodiscard]] const uct_device_addr_t* device_ptr() const {
        return reinterpret_cast<const uct_device_addr_t*>(device.data());
    }
    [[nodiscard]] const uct_iface_addr_t* iface_ptr() const {
        return reinterpret_cast<const uct_iface_addr_t*>(iface.data());
    }
};

class Interface {
  public:
    /// Opens it, and lets its worker progress it.
    Interface(const MemoryDomain& md, const Worker& worker, const InterfaceOptions& wanted) {
        uct_iface_config_t* config = nullptr;
        check(
            uct_md_iface_config_read(md.get(), wanted.tl_name_.c_str(), nullptr, nullptr, &config),
            "uct_md_iface_config_read");
        const detail::Owner<void*, uct_config_release> owner(config);
        for (const auto& [name, value] : wanted.options_) {
            check(uct_config_modify(config, name.c_str(), value.c_str()), name.c_str());
        }
        uct_iface_params_t params = wanted.params_;
        params.mode.device.tl_name = wanted.tl_name_.c_str();
        params.mode.device.dev_name = wanted.dev_name_.c_str();
        uct_iface_h iface = nullptr;
        check(uct_iface_open(md.get(), worker.get(), &params, config, &iface), "uct_iface_open");
        iface_ = detail::Owner<uct_iface_h, uct_iface_close>(iface);
        uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }

    [[nodiscard]] uct_iface_h get() const { return iface_.get(); }
    [[nodiscard]] uct_iface_attr_t attr() const {
        uct_iface_attr_t attr{};
        check(uct_iface_query(get(), &attr), "uct_iface_query");
        return attr;
    }
    [[nodiscard]] InterfaceAddress address() const {
        const uct_iface_attr_t limits = attr();
        InterfaceAddress address{std::vector<std::byte>(limits.device_addr_len),
                                 std::vector<std::byte>(limits.iface_addr_len)};
        check(uct_iface_get_device_address(
                  get(), reinterpret_cast<uct_device_addr_t*>(address.device.data())),
              "uct_iface_get_device_address");
        check(
            uct_iface_get_address(get(), reinterpret_cast<uct_iface_addr_t*>(address.iface.data())),
            "uct_iface_get_address");
        return address;
    }
    /// Empty when the address can be reached, else the reason why not.
    [[nodiscard]] std::optional<std::string> unreachable_because(
        const InterfaceAddress& address) const {
        char reason[256] = "";
        if (tagwire_uct_iface_is_reachable_reason(get(), address.device_ptr(), address.iface_ptr(),
                                                  reason, sizeof reason) != 0) {
            return std::nullopt;
        }
        return reason;
    }

    /// `handler(std::span<std::byte> data, unsigned flags) -> ucs_status_t` gets active messages
    /// with `id`.
    template <class Handler>
    void set_am_handler(std::uint8_t id, Handler& handler) {
        const auto call = [](void* arg, void* data, std::size_t length,
                             unsigned flags) -> ucs_status_t {
            return (*static_cast<Handler*>(arg))(detail::bytes_of(data, length), flags);
        };
        check(uct_iface_set_am_handler(get(), id, call,
                                       const_cast<void*>(static_cast<const void*>(&handler)), 0),
              "uct_iface_set_am_handler");
    }
    void remove_am_handler(std::uint8_t id) {
        check(uct_iface_set_am_handler(get(), id, nullptr, nullptr, 0), "uct_iface_set_am_handler");
    }

    [[nodiscard]] int event_fd() const {
        int fd = -1;
        check(uct_iface_event_fd_get(get(), &fd), "uct_iface_event_fd_get");
        return fd;
    }
    ucs_status_t arm(unsigned events) { return uct_iface_event_arm(get(), events); }

    ucs_status_t tag_recv(uct_tag_t tag, uct_tag_t mask, std::span<std::byte> buffer,
                          uct_tag_context_t& context, uct_mem_h memh = UCT_MEM_HANDLE_NULL) {
        const uct_iov_t element = iov(buffer, memh);
        return uct_iface_tag_recv_zcopy(get(), tag, mask, &element, 1, &context);
    }
    ucs_status_t tag_cancel(uct_tag_context_t& context, bool force = false) {
        return uct_iface_tag_recv_cancel(get(), &context, force ? 1 : 0);
    }
    ucs_status_t flush(uct_completion_t* comp = nullptr, unsigned flags = UCT_FLUSH_FLAG_LOCAL) {
        return uct_iface_flush(get(), flags, comp);
    }
    ucs_status_t fence() { return uct_iface_fence(get(), 0); }

    [[nodiscard]] std::vector<tagwire_uct_counter_t> counters() const {
        unsigned count = 0;
        const ucs_status_t status = tagwire_uct_iface_query_counters(get(), nullptr, &count);
        if (status != UCS_ERR_BUFFER_TOO_SMALL)
            check(status, "tagwire_uct_iface_query_counters");
        std::vector<tagwire_uct_counter_t> found(count);
        check(tagwire_uct_iface_query_counters(get(), found.data(), &count),
              "tagwire_uct_iface_query_counters");
        return found;
    }
    /// `visit(const char* key, const char* value)` gets facts for people.
    template <class Visit>
    void describe(Visit&& visit) const {
        const auto call = [](void* arg, const char* key, const char* value) {
            (*static_cast<std::remove_reference_t<Visit>*>(arg))(key, value);
        };
        check(tagwire_uct_iface_describe(get(), call,
                                         const_cast<void*>(static_cast<const void*>(&visit))),
              "tagwire_uct_iface_describe");
    }

  private:
    detail::Owner<uct_iface_h, uct_iface_close> iface_;
};

// ---- Completions, posted receives, pending requests: what a program keeps while an operation is
// under way

/// Counts operations; `done(ucs_status_t)` runs when the last has ended, with the first failure.
/// Neither moved nor copied.
template <class Done>
class Completion : public uct_completion_t {
  public:
    explicit Completion(Done done, int operations = 1)
        : uct_completion_t{&Completion::call, operations, UCS_OK}, done_(std::move(done)) {}
    Completion(const Completion&) = delete;
    Completion& operator=(const Completion&) = delete;

    /// Makes it ready for further operations, after `done` ran.
    void rearm(int operations = 1) {
        count = operations;
        status = UCS_OK;
    }

  private:
    static void call(uct_completion_t* self) {
        auto* completion = static_cast<Completion*>(self);
        completion->done_(completion->status);
    }

    Done done_;
};

/// What a posted receive ended with.
struct TagResult {
    uct_tag_t tag;
    std::uint64_t imm;
    std::size_t length;
    void* inline_data;  // the message when it is not in the posted buffer, during the call
    ucs_status_t status;
};

/// Software rendezvous request that matched a posted receive.
struct TagRequest {
    uct_tag_t tag;
    std::span<const std::byte> header;
    ucs_status_t status;
    unsigned flags;  // UCT_TAG_RECV_CB_x
};

/// A receive: `completed(const TagResult&)` or `requested(const TagRequest&)` runs once. May be
/// posted again from there.
template <class Completed, class Requested>
class TagReceive : public uct_tag_context_t {
  public:
    TagReceive(Completed completed, Requested requested)
        : uct_tag_context_t{}, completed_(std::move(completed)), requested_(std::move(requested)) {
        tag_consumed_cb = [](uct_tag_context_t*) {};
        completed_cb = [](uct_tag_context_t* self, uct_tag_t tag, std::uint64_t imm,
                          std::size_t length, void* inline_data, ucs_status_t status) {
            static_cast<TagReceive*>(self)->completed_(
                TagResult{tag, imm, length, inline_data, status});
        };
        rndv_cb = [](uct_tag_context_t* self, uct_tag_t tag, const void* header,
                     unsigned header_length, ucs_status_t status, unsigned flags) {
            static_cast<TagReceive*>(self)->requested_(TagRequest{
                tag, {static_cast<const std::byte*>(header), header_length}, status, flags});
        };
    }
    TagReceive(const TagReceive&) = delete;
    TagReceive& operator=(const TagReceive&) = delete;

  private:
    Completed completed_;
    Requested requested_;
};

/// A retry: `retry() -> ucs_status_t` runs when the endpoint may have resources again.
template <class Retry>
class PendingRequest : public uct_pending_req_t {
  public:
    explicit PendingRequest(Retry retry)
        : uct_pending_req_t{&PendingRequest::call, {}}, retry_(std::move(retry)) {}
    PendingRequest(const PendingRequest&) = delete;
    PendingRequest& operator=(const PendingRequest&) = delete;

  private:
    static ucs_status_t call(uct_pending_req_t* self) {
        return static_cast<PendingRequest*>(self)->retry_();
    }

    Retry retry_;
};

// ---- Endpoints

class Endpoint {
  public:
    /// Connects to an interface.
    Endpoint(const Interface& iface, const InterfaceAddress& address) {
        uct_ep_params_t params{};
        params.field_mask =
            UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface = iface.get();
        params.dev_addr = address.device_ptr();
        params.iface_addr = address.iface_ptr();
        uct_ep_h ep = nullptr;
        check(uct_ep_create(&params, &ep), "uct_ep_create");
        ep_ = detail::Owner<uct_ep_h, uct_ep_destroy>(ep);
    }

    [[nodiscard]] uct_ep_h get() const { return ep_.get(); }
    void reset() { ep_.reset(); }

    ucs_status_t am_short(std::uint8_t id, std::uint64_t header,
                          std::span<const std::byte> payload) {
        return uct_ep_am_short(get(), id, header, payload.data(),
                               static_cast<unsigned>(payload.size()));
    }
    /// `pack(void* dest) -> std::size_t` writes the message.
    template <class Pack>
    ssize_t am_bcopy(std::uint8_t id, Pack&& pack, unsigned flags = 0) {
        return uct_ep_am_bcopy(get(), id, &call_pack<Pack>, arg_of(pack), flags);
    }
    ucs_status_t am_zcopy(std::uint8_t id, std::span<const std::byte> header,
                          std::span<const uct_iov_t> list, uct_completion_t* comp,
                          unsigned flags = 0) {
        return uct_ep_am_zcopy(get(), id, header.data(), static_cast<unsigned>(header.size()),
                               list.data(), list.size(), flags, comp);
    }

    ucs_status_t put_short(std::span<const std::byte> data, std::uint64_t remote_addr,
                           const RemoteKey& key) {
        return uct_ep_put_short(get(), data.data(), static_cast<unsigned>(data.size()), remote_addr,
                                key.get());
    }
    template <class Pack>
    ssize_t put_bcopy(Pack&& pack, std::uint64_t remote_addr, const RemoteKey& key) {
        return uct_ep_put_bcopy(get(), &call_pack<Pack>, arg_of(pack), remote_addr, key.get());
    }
    ucs_status_t put_zcopy(std::span<const uct_iov_t> list, std::uint64_t remote_addr,
                           const RemoteKey& key, uct_completion_t* comp) {
        return uct_ep_put_zcopy(get(), list.data(), list.size(), remote_addr, key.get(), comp);
    }
    ucs_status_t get_short(std::span<std::byte> buffer, std::uint64_t remote_addr,
                           const RemoteKey& key) {
        return uct_ep_get_short(get(), buffer.data(), static_cast<unsigned>(buffer.size()),
                                remote_addr, key.get());
    }
    ucs_status_t get_zcopy(std::span<const uct_iov_t> list, std::uint64_t remote_addr,
                           const RemoteKey& key, uct_completion_t* comp) {
        return uct_ep_get_zcopy(get(), list.data(), list.size(), remote_addr, key.get(), comp);
    }

    ucs_status_t tag_eager_short(uct_tag_t tag, std::span<const std::byte> data) {
        return uct_ep_tag_eager_short(get(), tag, data.data(), data.size());
    }
    template <class Pack>
    ssize_t tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, Pack&& pack, unsigned flags = 0) {
        return uct_ep_tag_eager_bcopy(get(), tag, imm, &call_pack<Pack>, arg_of(pack), flags);
    }
    ucs_status_t tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, std::span<const uct_iov_t> list,
                                 uct_completion_t* comp, unsigned flags = 0) {
        return uct_ep_tag_eager_zcopy(get(), tag, imm, list.data(), list.size(), flags, comp);
    }
    /// A handle for tag_rndv_cancel(), or a status: UCS_PTR_IS_ERR().
    ucs_status_ptr_t tag_rndv_zcopy(uct_tag_t tag, std::span<const std::byte> header,
                                    std::span<const uct_iov_t> list, uct_completion_t* comp,
                                    unsigned flags = 0) {
        return uct_ep_tag_rndv_zcopy(get(), tag, header.data(),
                                     static_cast<unsigned>(header.size()), list.data(), list.size(),
                                     flags, comp);
    }
    ucs_status_t tag_rndv_cancel(ucs_status_ptr_t op) { return uct_ep_tag_rndv_cancel(get(), op); }
    ucs_status_t tag_rndv_request(uct_tag_t tag, std::span<const std::byte> header,
                                  unsigned flags = 0) {
        return uct_ep_tag_rndv_request(get(), tag, header.data(),
                                       static_cast<unsigned>(header.size()), flags);
    }

    ucs_status_t pending_add(uct_pending_req_t& request) {
        return uct_ep_pending_add(get(), &request, 0);
    }
    /// `taken(uct_pending_req_t&)` gets each request back.
    template <class Taken>
    void pending_purge(Taken&& taken) {
        const auto call = [](uct_pending_req_t* request, void* arg) {
            (*static_cast<std::remove_reference_t<Taken>*>(arg))(*request);
        };
        uct_ep_pending_purge(get(), call, arg_of(taken));
    }
    ucs_status_t flush(uct_completion_t* comp = nullptr, unsigned flags = UCT_FLUSH_FLAG_LOCAL) {
        return uct_ep_flush(get(), flags, comp);
    }
    ucs_status_t fence() { return uct_ep_fence(get(), 0); }
    ucs_status_t check_peer(uct_completion_t* comp = nullptr) {
        return uct_ep_check(get(), 0, comp);
    }

    /// `visit(const char* key, const char* value)` gets facts for people.
    template <class Visit>
    void describe(Visit&& visit) const {
        const auto call = [](void* arg, const char* key, const char* value) {
            (*static_cast<std::remove_reference_t<Visit>*>(arg))(key, value);
        };
        check(tagwire_uct_ep_describe(get(), call, arg_of(visit)), "tagwire_uct_ep_describe");
    }

  private:
    template <class Callable>
    static void* arg_of(Callable& callable) {
        return const_cast<void*>(static_cast<const void*>(&callable));
    }
    template <class Pack>
    static std::size_t call_pack(void* dest, void* arg) {
        return (*static_cast<std::remove_reference_t<Pack>*>(arg))(dest);
    }

    detail::Owner<uct_ep_h, uct_ep_destroy> ep_;
};

}  // namespace v1
}  // namespace tagwire

#endif
