// SPDX-License-Identifier: BSD-3-Clause
// Sending and receiving in one form for all methods, so that a case can be a table over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "buffer.hpp"

namespace tagwire::test {

/// Counts its callbacks. May be passed to one operation at a time.
struct Completion : uct_completion_t {
    explicit Completion(int operations = 1);
    Completion(const Completion&) = delete;
    Completion& operator=(const Completion&) = delete;

    int calls = 0;
    ucs_status_t ended = UCS_INPROGRESS;
    std::function<void()> on_done;
};

enum class Method { kShort, kBcopy, kZcopy };
const char* name_of(Method method);

struct MethodInfo {
    Method method;
    std::uint64_t flag;  // UCT_IFACE_FLAG_*
    std::size_t bytes_min;
    std::size_t bytes_max;
};
/// The methods `entity` offers for a group of operations, with their true limits.
std::vector<MethodInfo> am_methods(const Entity& entity);
std::vector<MethodInfo> eager_methods(const Entity& entity);
std::vector<MethodInfo> put_methods(const Entity& entity);
std::vector<MethodInfo> get_methods(const Entity& entity);

/// Sizes worth trying between two limits: the limits, their neighbours, 0, 1 and the usual powers
/// of two. A limit above kBytesTried is not reached.
inline constexpr std::size_t kBytesTried = std::size_t{4} << 20;
std::vector<std::size_t> edge_sizes(std::size_t bytes_min, std::size_t bytes_max);

/// The numbers of io vector entries worth trying below a limit of `iov_max`.
std::vector<std::size_t> edge_parts(std::size_t iov_max);

/// `bytes` of `buffer` as `parts` io vector entries.
std::vector<uct_iov_t> split(const Buffer& buffer, std::size_t bytes, std::size_t parts);

// Each returns UCS_OK or UCS_INPROGRESS when the operation was taken, else the refusal. bcopy's
// packed length is checked here. Active messages carry the first min(8, max_hdr, size) bytes of
// `bytes` as their header where there is one; short needs at least 8.
ucs_status_t send_am(uct_ep_h ep, const Entity& from, Method method, std::uint8_t id,
                     const Buffer& bytes, uct_completion_t* completion);
ucs_status_t send_eager(uct_ep_h ep, Method method, uct_tag_t tag, std::uint64_t imm,
                        const Buffer& bytes, uct_completion_t* completion);

/// A plain-memory short cut for tests that do not care how: bcopy, else short. No completion.
ucs_status_t send_am_bytes(uct_ep_h ep, std::uint8_t id, std::span<const std::byte> bytes);
ucs_status_t send_eager_bytes(uct_ep_h ep, uct_tag_t tag, std::uint64_t imm,
                              std::span<const std::byte> bytes);

/// A posted receive: the context, its buffer, and what happened to it.
struct Receive : uct_tag_context_t {
    Receive(Entity& owner, std::size_t bytes);
    Receive(Entity& owner, std::size_t bytes, Backing backing);
    Receive(const Receive&) = delete;
    Receive& operator=(const Receive&) = delete;

    ucs_status_t post(uct_tag_t tag, uct_tag_t mask = ~std::uint64_t{0});
    ucs_status_t post_iov(uct_tag_t tag, uct_tag_t mask, std::span<const uct_iov_t> iov);
    ucs_status_t cancel(bool force);
    int endings() const { return completed + rndv_requests; }
    std::span<const std::byte> received() const;

    Buffer buffer;
    int consumed = 0;
    int completed = 0;
    int rndv_requests = 0;
    uct_tag_t sender_tag = 0;
    std::uint64_t imm = 0;
    std::size_t length = 0;
    ucs_status_t status = UCS_INPROGRESS;
    Bytes header;  // of a rendezvous request
    std::function<void(Receive&)> on_done;

  private:
    Entity* owner_;
};

/// Memory for local buffers that any zero-copy operation accepts.
Backing plain_backing(const Entity& entity);
/// Local buffer filled with a pattern.
Buffer make_payload(Entity& owner, std::size_t length, std::uint64_t seed);

/// A rendezvous that is sent, with its payload.
struct RendezvousSend {
    RendezvousSend(Entity& from, std::size_t size) : payload(make_payload(from, size, size)) {}

    ucs_status_t start(uct_ep_h ep, uct_tag_t tag) {
        const uct_iov_t iov = payload.iov();
        handle = uct_ep_tag_rndv_zcopy(ep, tag, nullptr, 0, &iov, 1, 0, &completion);
        return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
    }

    Buffer payload;
    Completion completion;
    ucs_status_ptr_t handle = nullptr;
};

}  // namespace tagwire::test
