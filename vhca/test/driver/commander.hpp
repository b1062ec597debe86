// SPDX-License-Identifier: BSD-3-Clause
// Commands written by hand, as libibverbs and libmlx5 would, without either.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "vhca/driver/objects.hpp"

namespace tagwire::vhca::driver::test {

struct Nothing {};

/// Memory for rings and doorbell records, as libmlx5 aligns it. The device looks at it as long as
/// the context is open, which may be longer than a test needs it: it stays.
class RingPages {
  public:
    explicit RingPages(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
        memory_ = static_cast<std::byte*>(std::aligned_alloc(4096, bytes_));
        std::memset(memory_, 0, bytes_);
        static auto* const all = new std::vector<std::byte*>;
        all->push_back(memory_);
    }
    [[nodiscard]] std::byte* data() const { return memory_; }
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_); }

  private:
    std::size_t bytes_;
    std::byte* memory_;
};

template <typename T>
std::size_t bytes_of() {
    return std::is_empty_v<T> ? 0 : sizeof(T);
}

/// Writes commands into a context; results are errno values, and what was answered in the
/// structures.
class Commander {
  public:
    explicit Commander(Context& context) : context_(&context) {}

    template <typename In, typename Out = Nothing, typename DriverIn = Nothing,
              typename DriverOut = Nothing>
    int plain(unsigned number, In in, Out* out = nullptr, const DriverIn& driver = {},
              DriverOut* driver_out = nullptr) {
        std::vector<std::byte> answer(bytes_of<Out>() + bytes_of<DriverOut>());
        answer.resize((answer.size() + 3) / 4 * 4);
        if constexpr (requires { in.response; })
            in.response = reinterpret_cast<std::uint64_t>(answer.data());
        std::vector<std::byte> command(sizeof(ib_uverbs_cmd_hdr));
        append(command, in);
        append(command, driver);
        command.resize((command.size() + 3) / 4 * 4);
        const ib_uverbs_cmd_hdr header{.command = number,
                                       .in_words = static_cast<std::uint16_t>(command.size() / 4),
                                       .out_words = static_cast<std::uint16_t>(answer.size() / 4)};
        std::memcpy(command.data(), &header, sizeof header);
        const int result = write(command);
        take(answer, out, driver_out);
        return result;
    }

    template <typename In, typename Out = Nothing, typename DriverIn = Nothing,
              typename DriverOut = Nothing>
    int extended(unsigned number, const In& in, Out* out = nullptr, const DriverIn& driver = {},
                 DriverOut* driver_out = nullptr) {
        std::vector<std::byte> answer(bytes_of<Out>() + bytes_of<DriverOut>());
        const ib_uverbs_ex_cmd_hdr more{
            .response = answer.empty() ? 0 : reinterpret_cast<std::uint64_t>(answer.data()),
            .provider_in_words = static_cast<std::uint16_t>(bytes_of<DriverIn>() / 8),
            .provider_out_words = static_cast<std::uint16_t>(bytes_of<DriverOut>() / 8),
            .cmd_hdr_reserved = 0};
        std::vector<std::byte> command(sizeof(ib_uverbs_cmd_hdr));
        append(command, more);
        append(command, in);
        append(command, driver);
        const ib_uverbs_cmd_hdr header{
            .command = number | IB_USER_VERBS_CMD_FLAG_EXTENDED,
            .in_words = static_cast<std::uint16_t>(bytes_of<In>() / 8),
            .out_words = static_cast<std::uint16_t>(bytes_of<Out>() / 8)};
        std::memcpy(command.data(), &header, sizeof header);
        const int result = write(command);
        take(answer, out, driver_out);
        return result;
    }

    int write(std::span<const std::byte> command) {
        const std::int64_t done = context_->write(command.data(), command.size());
        return done == static_cast<std::int64_t>(command.size()) ? 0 : errno;
    }

    // ---- Objects that tests need; the handle, or 0 and the errno in `error`
    int error = 0;
    int async_fd = -1;

    int open() {
        ib_uverbs_get_context_resp response{};
        const mlx5_ib_alloc_ucontext_req_v2 request{.total_num_bfregs = 16,
                                                    .num_low_latency_bfregs = 4,
                                                    .flags = 0,
                                                    .comp_mask = 0,
                                                    .max_cqe_version = 1,
                                                    .reserved0 = 0,
                                                    .reserved1 = 0,
                                                    .reserved2 = 0,
                                                    .lib_caps = 3};
        mlx5_ib_alloc_ucontext_resp facts{};
        error = plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &response, request,
                      &facts);
        async_fd = static_cast<int>(response.async_fd);
        return error;
    }
    std::uint32_t make_pd() {
        ib_uverbs_alloc_pd_resp response{};
        mlx5_ib_alloc_pd_resp driver{};
        error =
            plain(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, &response, Nothing{}, &driver);
        return response.pd_handle;
    }
    std::uint32_t make_channel() {
        ib_uverbs_create_comp_channel_resp response{};
        error = plain(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{},
                      &response);
        return response.fd;
    }
    std::uint32_t make_cq(const ib_uverbs_create_cq& request, const mlx5_ib_create_cq& ring,
                          std::uint32_t* cqe_p = nullptr) {
        ib_uverbs_create_cq_resp response{};
        mlx5_ib_create_cq_resp driver{};
        error = plain(IB_USER_VERBS_CMD_CREATE_CQ, request, &response, ring, &driver);
        if (cqe_p != nullptr)
            *cqe_p = response.cqe;
        return response.cq_handle;
    }
    std::uint32_t make_srq(const ib_uverbs_create_xsrq& request, const mlx5_ib_create_srq& ring) {
        ib_uverbs_create_srq_resp response{};
        mlx5_ib_create_srq_resp driver{};
        error = plain(IB_USER_VERBS_CMD_CREATE_XSRQ, request, &response, ring, &driver);
        return response.srq_handle;
    }
    std::uint32_t make_qp(const ib_uverbs_create_qp& request, const mlx5_ib_create_qp& rings,
                          std::uint32_t* number_p = nullptr) {
        ib_uverbs_create_qp_resp response{};
        mlx5_ib_create_qp_resp driver{};
        error = plain(IB_USER_VERBS_CMD_CREATE_QP, request, &response, rings, &driver);
        if (number_p != nullptr)
            *number_p = response.qpn;
        return response.qp_handle;
    }

  private:
    template <typename T>
    static void append(std::vector<std::byte>& to, const T& value) {
        const auto bytes = std::as_bytes(std::span(&value, 1)).first(bytes_of<T>());
        to.insert(to.end(), bytes.begin(), bytes.end());
    }
    template <typename Out, typename DriverOut>
    static void take(const std::vector<std::byte>& answer, Out* out, DriverOut* driver_out) {
        if (out != nullptr)
            std::memcpy(static_cast<void*>(out), answer.data(), bytes_of<Out>());
        if (driver_out != nullptr) {
            std::memcpy(static_cast<void*>(driver_out), answer.data() + bytes_of<Out>(),
                        bytes_of<DriverOut>());
        }
    }

    Context* context_;
};

}  // namespace tagwire::vhca::driver::test
