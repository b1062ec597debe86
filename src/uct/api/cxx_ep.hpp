// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints of the C++ wrapper, and the objects that a program keeps while an operation is
// outstanding. Included by tagwire.hpp.
#ifndef TAGWIRE_UCT_API_CXX_EP_HPP
#define TAGWIRE_UCT_API_CXX_EP_HPP

#include <uct/api/cxx_iface.hpp>

namespace tagwire {
inline namespace v1 {

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

/// The result of a posted receive.
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
