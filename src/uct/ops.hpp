// SPDX-License-Identifier: BSD-3-Clause
// make_ops<Iface, Ep>(): the operations table of a transport from the member functions of its
// classes.
//
// A slot `ep_put_short` calls Ep::put_short with the slot's arguments after the endpoint;
// `iface_flush` calls Iface::flush. A member that is missing leaves the slot's stub, which answers
// UCS_ERR_UNSUPPORTED in the slot's return type; a member with wrong parameters does not compile.
// Members must not be overloaded or private: they could not be found.
//
//   struct XEp : BaseEp {
//       ucs_status_t put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
//                              uct_rkey_t rkey);
//       static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
//       void destroy();  // delete this
//   };
//
// One function per slot, each of exactly the slot's type: no cast of function pointers, and the
// member is inlined in it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tagwire::uct {

namespace detail {

template <class R>
constexpr R unsupported() {
    if constexpr (std::is_same_v<R, ucs_status_t> || std::is_same_v<R, ssize_t>)
        return UCS_ERR_UNSUPPORTED;
    else if constexpr (std::is_same_v<R, ucs_status_ptr_t>)
        return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    else if constexpr (!std::is_void_v<R>)
        return R{};  // progress: nothing done; is_reachable: no
}

template <class R, class... Args>
using Function = R (*)(Args...);

/// Converts to any slot's type.
struct Stub {
    template <class R,
              class... Args>  // NOLINTNEXTLINE(google-explicit-constructor): for slots alone
    constexpr operator Function<R, Args...>() const {
        return [](Args...) -> R { return unsupported<R>(); };
    }
};

/// A table full of stubs. The count covers every slot, so none can be forgotten.
constexpr uct_iface_ops_t unsupported_ops() {
    constexpr std::size_t kSlots = sizeof(uct_iface_ops_t) / sizeof(uct_ep_fence_func_t);
    return []<std::size_t... kSlot>(std::index_sequence<kSlot...>) {
        return uct_iface_ops_t{(static_cast<void>(kSlot), Stub{})...};
    }
    (std::make_index_sequence<kSlots>());
}

template <class Member>
struct ClassOf;
template <class Class, class Function>
struct ClassOf<Function Class::*> {
    using Type = Class;
};

/// Points `slot` at Object::*kMember, which may be of a base.
template <class Object, auto kMember, class R, class Handle, class... Args>
constexpr void bind(R (*&slot)(Handle, Args...)) {
    static_assert(std::is_invocable_r_v<R, decltype(kMember), Object&, Args...>,
                  "the member's parameters differ from the slot's");
    slot = [](Handle handle, Args... args) -> R {
        typename ClassOf<decltype(kMember)>::Type& object = *static_cast<Object*>(handle);
        return (object.*kMember)(args...);
    };
}

template <class Ep>
constexpr void bind_rma(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::put_short; })
        bind<Ep, &Ep::put_short>(ops.ep_put_short);
    if constexpr (requires { &Ep::put_bcopy; })
        bind<Ep, &Ep::put_bcopy>(ops.ep_put_bcopy);
    if constexpr (requires { &Ep::put_zcopy; })
        bind<Ep, &Ep::put_zcopy>(ops.ep_put_zcopy);
    if constexpr (requires { &Ep::get_short; })
        bind<Ep, &Ep::get_short>(ops.ep_get_short);
    if constexpr (requires { &Ep::get_bcopy; })
        bind<Ep, &Ep::get_bcopy>(ops.ep_get_bcopy);
    if constexpr (requires { &Ep::get_zcopy; })
        bind<Ep, &Ep::get_zcopy>(ops.ep_get_zcopy);
}

template <class Ep>
constexpr void bind_am(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::am_short; })
        bind<Ep, &Ep::am_short>(ops.ep_am_short);
    if constexpr (requires { &Ep::am_short_iov; })
        bind<Ep, &Ep::am_short_iov>(ops.ep_am_short_iov);
    if constexpr (requires { &Ep::am_bcopy; })
        bind<Ep, &Ep::am_bcopy>(ops.ep_am_bcopy);
    if constexpr (requires { &Ep::am_zcopy; })
        bind<Ep, &Ep::am_zcopy>(ops.ep_am_zcopy);
}

template <class Ep>
constexpr void bind_atomics(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::atomic_cswap64; })
        bind<Ep, &Ep::atomic_cswap64>(ops.ep_atomic_cswap64);
    if constexpr (requires { &Ep::atomic_cswap32; })
        bind<Ep, &Ep::atomic_cswap32>(ops.ep_atomic_cswap32);
    if constexpr (requires { &Ep::atomic32_post; })
        bind<Ep, &Ep::atomic32_post>(ops.ep_atomic32_post);
    if constexpr (requires { &Ep::atomic64_post; })
        bind<Ep, &Ep::atomic64_post>(ops.ep_atomic64_post);
    if constexpr (requires { &Ep::atomic32_fetch; })
        bind<Ep, &Ep::atomic32_fetch>(ops.ep_atomic32_fetch);
    if constexpr (requires { &Ep::atomic64_fetch; })
        bind<Ep, &Ep::atomic64_fetch>(ops.ep_atomic64_fetch);
}

template <class Iface, class Ep>
constexpr void bind_tag(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::tag_eager_short; })
        bind<Ep, &Ep::tag_eager_short>(ops.ep_tag_eager_short);
    if constexpr (requires { &Ep::tag_eager_bcopy; })
        bind<Ep, &Ep::tag_eager_bcopy>(ops.ep_tag_eager_bcopy);
    if constexpr (requires { &Ep::tag_eager_zcopy; })
        bind<Ep, &Ep::tag_eager_zcopy>(ops.ep_tag_eager_zcopy);
    if constexpr (requires { &Ep::tag_rndv_zcopy; })
        bind<Ep, &Ep::tag_rndv_zcopy>(ops.ep_tag_rndv_zcopy);
    if constexpr (requires { &Ep::tag_rndv_cancel; })
        bind<Ep, &Ep::tag_rndv_cancel>(ops.ep_tag_rndv_cancel);
    if constexpr (requires { &Ep::tag_rndv_request; })
        bind<Ep, &Ep::tag_rndv_request>(ops.ep_tag_rndv_request);
    if constexpr (requires { &Iface::tag_recv_zcopy; })
        bind<Iface, &Iface::tag_recv_zcopy>(ops.iface_tag_recv_zcopy);
    if constexpr (requires { &Iface::tag_recv_cancel; })
        bind<Iface, &Iface::tag_recv_cancel>(ops.iface_tag_recv_cancel);
}

template <class Iface, class Ep>
constexpr void bind_order(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::pending_add; })
        bind<Ep, &Ep::pending_add>(ops.ep_pending_add);
    if constexpr (requires { &Ep::pending_purge; })
        bind<Ep, &Ep::pending_purge>(ops.ep_pending_purge);
    if constexpr (requires { &Ep::flush; })
        bind<Ep, &Ep::flush>(ops.ep_flush);
    if constexpr (requires { &Ep::fence; })
        bind<Ep, &Ep::fence>(ops.ep_fence);
    if constexpr (requires { &Ep::check; })
        bind<Ep, &Ep::check>(ops.ep_check);
    if constexpr (requires { &Iface::flush; })
        bind<Iface, &Iface::flush>(ops.iface_flush);
    if constexpr (requires { &Iface::fence; })
        bind<Iface, &Iface::fence>(ops.iface_fence);
}

template <class Ep>
constexpr void bind_ep_control(uct_iface_ops_t& ops) {
    if constexpr (requires { &Ep::create; })
        ops.ep_create = &Ep::create;
    if constexpr (requires { &Ep::connect; })
        bind<Ep, &Ep::connect>(ops.ep_connect);
    if constexpr (requires { &Ep::disconnect; })
        bind<Ep, &Ep::disconnect>(ops.ep_disconnect);
    if constexpr (requires { &Ep::destroy; })
        bind<Ep, &Ep::destroy>(ops.ep_destroy);
    if constexpr (requires { &Ep::get_address; })
        bind<Ep, &Ep::get_address>(ops.ep_get_address);
    if constexpr (requires { &Ep::connect_to_ep; })
        bind<Ep, &Ep::connect_to_ep>(ops.ep_connect_to_ep);
}

template <class Iface>
constexpr void bind_iface_control(uct_iface_ops_t& ops) {
    if constexpr (requires { &Iface::progress_enable; })
        bind<Iface, &Iface::progress_enable>(ops.iface_progress_enable);
    if constexpr (requires { &Iface::progress_disable; })
        bind<Iface, &Iface::progress_disable>(ops.iface_progress_disable);
    if constexpr (requires { &Iface::progress; })
        bind<Iface, &Iface::progress>(ops.iface_progress);
    if constexpr (requires { &Iface::event_fd_get; })
        bind<Iface, &Iface::event_fd_get>(ops.iface_event_fd_get);
    if constexpr (requires { &Iface::event_arm; })
        bind<Iface, &Iface::event_arm>(ops.iface_event_arm);
    if constexpr (requires { &Iface::close; })
        bind<Iface, &Iface::close>(ops.iface_close);
    if constexpr (requires { &Iface::query; })
        bind<Iface, &Iface::query>(ops.iface_query);
    if constexpr (requires { &Iface::get_device_address; })
        bind<Iface, &Iface::get_device_address>(ops.iface_get_device_address);
    if constexpr (requires { &Iface::get_address; })
        bind<Iface, &Iface::get_address>(ops.iface_get_address);
    if constexpr (requires { &Iface::is_reachable; })
        bind<Iface, &Iface::is_reachable>(ops.iface_is_reachable);
}

}  // namespace detail

template <class Iface, class Ep>
constexpr uct_iface_ops_t make_ops() {
    uct_iface_ops_t ops = detail::unsupported_ops();
    detail::bind_rma<Ep>(ops);
    detail::bind_am<Ep>(ops);
    detail::bind_atomics<Ep>(ops);
    detail::bind_tag<Iface, Ep>(ops);
    detail::bind_order<Iface, Ep>(ops);
    detail::bind_ep_control<Ep>(ops);
    detail::bind_iface_control<Iface>(ops);
    return ops;
}

}  // namespace tagwire::uct
