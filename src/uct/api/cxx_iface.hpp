// SPDX-License-Identifier: BSD-3-Clause
//
// Workers and interfaces of the C++ wrapper. Included by tagwire.hpp.
#ifndef TAGWIRE_UCT_API_CXX_IFACE_HPP
#define TAGWIRE_UCT_API_CXX_IFACE_HPP

#include <uct/api/cxx_memory.hpp>

#include <type_traits>

namespace tagwire {
inline namespace v1 {

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
        for (const auto& [name, value] : wanted.options_)
            check(uct_config_modify(config, name.c_str(), value.c_str()), name.c_str());
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

}  // namespace v1
}  // namespace tagwire

#endif
