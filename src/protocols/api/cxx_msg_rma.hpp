// SPDX-License-Identifier: BSD-3-Clause
//
// One-sided operations of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_RMA_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_RMA_HPP

#include <protocols/api/tw_list.h>
#include <protocols/api/tw_rma.h>
#include <protocols/api/cxx_msg_ep.hpp>

#include <concepts>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// A number that atomic operations work on.
template <class T>
concept AtomicNumber =
    std::integral<T> && !std::same_as<T, bool> && (sizeof(T) == 4 || sizeof(T) == 8);

namespace detail {

template <AtomicNumber T>
inline constexpr tw_atomic_type_t kAtomicType =
    sizeof(T) == 4 ? (std::signed_integral<T> ? TW_INT32 : TW_UINT32)
                   : (std::signed_integral<T> ? TW_INT64 : TW_UINT64);

}  // namespace detail

/// Memory of a peer, by the key that the peer packed (Memory::pack()), for any endpoint of a worker
/// to it. Offsets count from the memory's first byte. Destroy it before the worker.
class RemoteMemory {
  public:
    /// Throws for bytes that are no key.
    RemoteMemory(const Worker& worker, std::span<const std::byte> packed) {
        tw_key_h key = nullptr;
        check(tw_key_unpack(worker.get(), packed.data(), packed.size(), &key), "tw_key_unpack");
        key_.reset(key);
        check(tw_key_query(key, &attr_), "tw_key_query");
    }

    [[nodiscard]] tw_key_h key() const { return key_.get(); }
    /// In bytes.
    [[nodiscard]] std::uint64_t length() const { return attr_.length; }
    /// TW_ACCESS_x.
    [[nodiscard]] std::uint32_t access() const { return attr_.access; }
    /// The owner's address of the byte at `offset`.
    [[nodiscard]] std::uint64_t address(std::uint64_t offset = 0) const {
        return attr_.address + offset;
    }
    /// Where the byte at `offset` can be reached by loads and stores; nullptr: it cannot, or not
    /// yet (tw_key_pointer()).
    [[nodiscard]] void* pointer(const Endpoint& ep, std::uint64_t offset = 0) const {
        void* at = nullptr;
        return tw_key_pointer(ep.get(), key(), attr_.address + offset, &at) == TW_OK ? at : nullptr;
    }

    /// As tw_key_explain(); throws.
    [[nodiscard]] tw_rma_explanation_t explain(const Endpoint& ep, tw_rma_kind_t kind,
                                               std::size_t length,
                                               tw_atomic_op_t operation = TW_ATOMIC_ADD,
                                               bool is_mapped = false) const {
        tw_rma_explanation_t explanation{};
        check(tw_key_explain(ep.get(), key(), kind, operation, length, is_mapped ? 1 : 0,
                             &explanation),
              "tw_key_explain");
        return explanation;
    }

    Status put(const Endpoint& ep, std::span<const std::byte> data, std::uint64_t offset,
               OpArgs args = {}) const {
        return {tw_put(ep.get(), data.data(), data.size(), attr_.address + offset, key(), args.op(),
                       args.request()),
                "tw_put"};
    }
    Status putv(const Endpoint& ep, std::span<const tw_iov_t> list, std::uint64_t offset,
                OpArgs args = {}) const {
        return {tw_putv(ep.get(), list.data(), list.size(), attr_.address + offset, key(),
                        args.op(), args.request()),
                "tw_putv"};
    }
    Status get(const Endpoint& ep, std::span<std::byte> data, std::uint64_t offset,
               OpArgs args = {}) const {
        return {tw_get(ep.get(), data.data(), data.size(), attr_.address + offset, key(), args.op(),
                       args.request()),
                "tw_get"};
    }
    Status getv(const Endpoint& ep, std::span<const tw_iov_t> list, std::uint64_t offset,
                OpArgs args = {}) const {
        return {tw_getv(ep.get(), list.data(), list.size(), attr_.address + offset, key(),
                        args.op(), args.request()),
                "tw_getv"};
    }
    /// *offset = *offset OP operand.
    template <AtomicNumber T>
    Status atomic(const Endpoint& ep, tw_atomic_op_t operation, T operand, std::uint64_t offset,
                  OpArgs args = {}) const {
        return {tw_atomic(ep.get(), operation, detail::kAtomicType<T>, &operand,
                          attr_.address + offset, key(), args.op(), args.request()),
                "tw_atomic"};
    }
    /// As atomic(); `before` gets the number that was there.
    template <AtomicNumber T>
    Status fetch(const Endpoint& ep, tw_atomic_op_t operation, T operand, T& before,
                 std::uint64_t offset, OpArgs args = {}) const {
        return {tw_atomic_fetch(ep.get(), operation, detail::kAtomicType<T>, &operand, &before,
                                attr_.address + offset, key(), args.op(), args.request()),
                "tw_atomic_fetch"};
    }
    /// Replaces what is there by `wanted` if it equals `compare`; `before` gets what was there.
    template <AtomicNumber T>
    Status cswap(const Endpoint& ep, T compare, T wanted, T& before, std::uint64_t offset,
                 OpArgs args = {}) const {
        return {tw_atomic_cswap(ep.get(), detail::kAtomicType<T>, &compare, &wanted, &before,
                                attr_.address + offset, key(), args.op(), args.request()),
                "tw_atomic_cswap"};
    }

    /// A piece of a list: `data` and as many bytes at `offset`. `mem`: the handle of the memory
    /// that has the data, or null.
    [[nodiscard]] tw_piece_t piece(std::span<const std::byte> data, std::uint64_t offset,
                                   tw_mem_h mem = nullptr) const {
        return {const_cast<std::byte*>(data.data()), attr_.address + offset, data.size(), key(),
                mem};
    }

  private:
    detail::Owner<tw_key_h, tw_key_free> key_;
    tw_key_attr_t attr_{};
};

/// A list of puts or gets; it refers to the pieces and strides.
inline tw_list_t list_of(std::span<const tw_piece_t> pieces,
                         std::span<const tw_stride_t> strides = {}) {
    tw_list_t list{};
    list.pieces = pieces.data();
    list.piece_count = pieces.size();
    list.strides = strides.data();
    list.stride_count = strides.size();
    return list;
}

/// As tw_put_list(). Pieces, strides and their keys stay until the completion.
inline Status put_list(const Endpoint& ep, std::span<const tw_piece_t> pieces,
                       std::span<const tw_stride_t> strides = {}, OpArgs args = {}) {
    const tw_list_t list = list_of(pieces, strides);
    return {tw_put_list(ep.get(), &list, args.op(), args.request()), "tw_put_list"};
}
/// As tw_get_list(); as put_list().
inline Status get_list(const Endpoint& ep, std::span<const tw_piece_t> pieces,
                       std::span<const tw_stride_t> strides = {}, OpArgs args = {}) {
    const tw_list_t list = list_of(pieces, strides);
    return {tw_get_list(ep.get(), &list, args.op(), args.request()), "tw_get_list"};
}

/// A list that is used again and again (tw_prepare()). Destroy it before the worker.
class Prepared {
  public:
    /// Throws for lists that are refused. `kind`: TW_RMA_PUT or TW_RMA_GET.
    Prepared(const Worker& worker, tw_rma_kind_t kind, std::span<const tw_piece_t> pieces,
             std::span<const tw_stride_t> strides = {}) {
        const tw_list_t list = list_of(pieces, strides);
        tw_prepared_h prepared = nullptr;
        check(tw_prepare(worker.get(), kind, &list, &prepared), "tw_prepare");
        prepared_.reset(prepared);
    }

    [[nodiscard]] tw_prepared_h get() const { return prepared_.get(); }
    /// As tw_run_prepared().
    Status run(const Endpoint& ep, OpArgs args = {}) const {
        return {tw_run_prepared(ep.get(), get(), args.op(), args.request()), "tw_run_prepared"};
    }

  private:
    detail::Owner<tw_prepared_h, tw_prepared_free> prepared_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
