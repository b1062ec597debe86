// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Rma);

constexpr std::byte kUntouched{0xa7};

std::size_t pack_buffer(void* dest, void* arg) {
    const auto& buffer = *static_cast<const Buffer*>(arg);
    std::memcpy(dest, buffer.data(), buffer.size());
    return buffer.size();
}

void unpack_buffer(void* arg, const void* data, std::size_t length) {
    std::memcpy(arg, data, length);
}

ucs_status_t put(uct_ep_h ep, Method method, Buffer& local, std::uint64_t remote, uct_rkey_t rkey,
                 uct_completion_t* completion) {
    switch (method) {
        case Method::kShort:
            return uct_ep_put_short(ep, local.data(), static_cast<unsigned>(local.size()), remote,
                                    rkey);
        case Method::kBcopy: {
            const ssize_t packed = uct_ep_put_bcopy(ep, pack_buffer, &local, remote, rkey);
            return packed < 0 ? static_cast<ucs_status_t>(packed) : UCS_OK;
        }
        case Method::kZcopy: {
            const uct_iov_t iov = local.iov();
            return uct_ep_put_zcopy(ep, &iov, 1, remote, rkey, completion);
        }
    }
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t get(uct_ep_h ep, Method method, const Buffer& local, std::uint64_t remote,
                 uct_rkey_t rkey, uct_completion_t* completion) {
    switch (method) {
        case Method::kShort: {
            // In progress: there is no completion, a flush tells when the bytes are there.
            const ucs_status_t status = uct_ep_get_short(
                ep, local.data(), static_cast<unsigned>(local.size()), remote, rkey);
            return status == UCS_INPROGRESS ? uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, completion)
                                            : status;
        }
        case Method::kBcopy:
            return uct_ep_get_bcopy(ep, unpack_buffer, local.data(), local.size(), remote, rkey,
                                    completion);
        case Method::kZcopy: {
            const uct_iov_t iov = local.iov();
            return uct_ep_get_zcopy(ep, &iov, 1, remote, rkey, completion);
        }
    }
    return UCS_ERR_UNSUPPORTED;
}

std::string trace(const char* what, const MethodInfo& info, Backing remote, Backing local,
                  std::size_t size) {
    return std::string(what) + " " + name_of(info.method) + ", " + std::to_string(size) +
           " bytes, " + name_of(local) + " to/from " + name_of(remote);
}

TEST_P(Rma, put_writes_exactly_its_bytes) {
    if (put_methods(sender()).empty())
        GTEST_SKIP() << "not offered: any put";
    for (const Backing remote_kind : remote_backings(receiver())) {
        for (const Backing local_kind : local_backings(sender())) {
            for (const MethodInfo& info : put_methods(sender())) {
                for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
                    SCOPED_TRACE(trace("put", info, remote_kind, local_kind, size));
                    Buffer remote(receiver(), size + 16, remote_kind);
                    std::fill_n(remote.data(), size + 16, kUntouched);
                    const RemoteKey key(sender(), remote.packed_rkey());
                    Buffer local(sender(), size, local_kind);
                    fill_pattern(local.span(), size + 11);
                    ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                                  return put(ep(), info.method, local, remote.address() + 8,
                                             key.get(), completion);
                              }));
                    flush_ep(ep());
                    ASSERT_TRUE(until(
                        [&] { return has_pattern(remote.span().subspan(8, size), size + 11); },
                        100000));
                    for (std::size_t i = 0; i < 8; ++i) {
                        ASSERT_EQ(kUntouched, remote.data()[i]);
                        ASSERT_EQ(kUntouched, remote.data()[size + 8 + i]);
                    }
                }
            }
        }
    }
}

TEST_P(Rma, get_reads_exactly_its_bytes) {
    if (get_methods(sender()).empty())
        GTEST_SKIP() << "not offered: any get";
    for (const Backing remote_kind : remote_backings(receiver())) {
        for (const Backing local_kind : local_backings(sender())) {
            for (const MethodInfo& info : get_methods(sender())) {
                for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
                    SCOPED_TRACE(trace("get", info, remote_kind, local_kind, size));
                    Buffer remote(receiver(), size + 8, remote_kind);
                    fill_pattern(remote.span().subspan(8), size + 13);
                    const RemoteKey key(sender(), remote.packed_rkey());
                    const Buffer local(sender(), size, local_kind);
                    ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                                  return get(ep(), info.method, local, remote.address() + 8,
                                             key.get(), completion);
                              }));
                    ASSERT_TRUE(
                        until([&] { return has_pattern(local.span(), size + 13); }, 100000));
                }
            }
        }
    }
}

TEST_P(Rma, io_vectors_are_taken_in_order) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    constexpr std::size_t kBytes = 100003;
    for (const Backing remote_kind : remote_backings(receiver())) {
        Buffer remote(receiver(), kBytes, remote_kind);
        const RemoteKey key(sender(), remote.packed_rkey());
        for (const std::size_t parts :
             edge_parts(std::min(attr().cap.put.max_iov, attr().cap.get.max_iov))) {
            SCOPED_TRACE(std::string(name_of(remote_kind)) + " x" + std::to_string(parts));
            const Buffer source = make_payload(sender(), kBytes, parts);
            const Buffer target(sender(), kBytes, plain_backing(sender()));
            const auto from = split(source, kBytes, parts);
            const auto to = split(target, kBytes, parts);
            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return uct_ep_put_zcopy(ep(), from.data(), from.size(), remote.address(),
                                                  key.get(), completion);
                      }));
            flush_ep(ep());
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_fence(ep(), 0); }));
            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return uct_ep_get_zcopy(ep(), to.data(), to.size(), remote.address(),
                                                  key.get(), completion);
                      }));
            ASSERT_EQ(kBytes, first_mismatch(target.span(), parts));
        }
    }
}

TEST_P(Rma, a_fence_orders_puts_to_one_place) {
    TW_NEED(UCT_IFACE_FLAG_PUT_SHORT);
    for (const Backing remote_kind : remote_backings(receiver())) {
        Buffer remote(receiver(), 8, remote_kind);
        const RemoteKey key(sender(), remote.packed_rkey());
        for (std::uint64_t value = 1; value <= 500; ++value) {
            ASSERT_EQ(UCS_OK, retry([&] {
                          return uct_ep_put_short(ep(), &value, sizeof value, remote.address(),
                                                  key.get());
                      }));
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_fence(ep(), 0); }));
        }
        flush_ep(ep());
        std::uint64_t last = 0;
        EXPECT_TRUE(until([&] {
            std::memcpy(&last, remote.data(), sizeof last);
            return last == 500;
        })) << last;
        drain(100);
        std::memcpy(&last, remote.data(), sizeof last);
        EXPECT_EQ(500u, last);
    }
}

TEST_P(Rma, a_put_then_fence_then_message_is_seen_in_this_order) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_AM_SHORT);
    for (const Backing remote_kind : remote_backings(receiver())) {
        constexpr std::size_t kBytes = 70000;
        Buffer remote(receiver(), kBytes, remote_kind);
        const RemoteKey key(sender(), remote.packed_rkey());
        for (std::uint64_t round = 0; round < 20; ++round) {
            receiver().am.clear();
            const Buffer local = make_payload(sender(), kBytes, round);
            Completion completion;
            const uct_iov_t iov = local.iov();
            const ucs_status_t status = retry([&] {
                return uct_ep_put_zcopy(ep(), &iov, 1, remote.address(), key.get(), &completion);
            });
            ASSERT_GE(status, UCS_OK);
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_fence(ep(), 0); }));
            ASSERT_EQ(UCS_OK, retry([&] {
                          return uct_ep_am_short(ep(), Entity::kAmId, round, nullptr, 0);
                      }));
            ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
            ASSERT_EQ(kBytes, first_mismatch(remote.span(), round))
                << "the message overtook the put";
            ASSERT_TRUE(until([&] { return status == UCS_OK || completion.calls == 1; }));
        }
    }
}

TEST_P(Rma, many_outstanding_operations_complete_once_each) {
    TW_NEED(UCT_IFACE_FLAG_GET_ZCOPY);
    for (const Backing remote_kind : remote_backings(receiver())) {
        constexpr std::size_t kPiece = 3000;
        constexpr std::size_t kPieces = 300;
        Buffer remote(receiver(), kPiece * kPieces, remote_kind);
        fill_pattern(remote.span(), 21);
        const RemoteKey key(sender(), remote.packed_rkey());
        const Buffer local(sender(), kPiece * kPieces, plain_backing(sender()));
        Completion completion(static_cast<int>(kPieces));
        for (std::size_t i = 0; i < kPieces; ++i) {
            const uct_iov_t iov = local.iov(i * kPiece, kPiece);
            const ucs_status_t status = retry([&] {
                return uct_ep_get_zcopy(ep(), &iov, 1, remote.address() + i * kPiece, key.get(),
                                        &completion);
            });
            ASSERT_GE(status, UCS_OK);
            if (status == UCS_OK && --completion.count == 0)
                ++completion.calls;
        }
        ASSERT_TRUE(until([&] { return completion.calls > 0; }));
        EXPECT_EQ(1, completion.calls);
        EXPECT_EQ(UCS_OK, completion.status);
        EXPECT_EQ(kPiece * kPieces, first_mismatch(local.span(), 21));
    }
}

TEST_P(Rma, an_unpack_callback_may_destroy_its_endpoint) {
    TW_NEED(UCT_IFACE_FLAG_GET_BCOPY);
    struct Unpacked {
        std::function<void()> destroy;
        bool is_returned = false;  // the call that began it
        Bytes bytes;
    };
    for (const Backing remote_kind : remote_backings(receiver())) {
        reopen();
        Buffer remote(receiver(), attr().cap.get.max_bcopy, remote_kind);
        fill_pattern(remote.span(), 22);
        const RemoteKey key(sender(), remote.packed_rkey());
        Unpacked unpacked{[this] { destroy_ep(); }, false, {}};
        const auto unpack = [](void* arg, const void* data, std::size_t length) {
            auto& to = *static_cast<Unpacked*>(arg);
            if (to.is_returned)
                to.destroy();
            const auto* from = static_cast<const std::byte*>(data);
            to.bytes.assign(from, from + length);
        };
        Completion completion;
        const ucs_status_t status = retry([&] {
            return uct_ep_get_bcopy(ep(), unpack, &unpacked, remote.size(), remote.address(),
                                    key.get(), &completion);
        });
        unpacked.is_returned = true;
        ASSERT_GE(status, UCS_OK);
        ASSERT_TRUE(until([&] { return status == UCS_OK || completion.calls > 0; }));
        drain(100);
        EXPECT_EQ(status == UCS_OK ? 0 : 1, completion.calls);
        EXPECT_EQ(remote.size(), first_mismatch(unpacked.bytes, 22));
    }
}

TEST_P(Rma, a_local_pointer_to_remote_memory_sees_both_sides_stores) {
    if ((sender().md_attr().cap.flags & UCT_MD_FLAG_RKEY_PTR) == 0)
        GTEST_SKIP() << "not offered: UCT_MD_FLAG_RKEY_PTR";
    TW_NEED(UCT_IFACE_FLAG_PUT_SHORT);
    Buffer remote(receiver(), 4096, Backing::kAllocated);
    RemoteKey key(sender(), remote.packed_rkey());
    // The memory may have to be announced first: a put is where the transport says when it has
    // been.
    const std::uint64_t value = 0x1122334455667788;
    ASSERT_EQ(UCS_OK, retry([&] {
                  return uct_ep_put_short(ep(), &value, sizeof value, remote.address(), key.get());
              }));
    flush_ep(ep());
    void* local = nullptr;
    ASSERT_EQ(UCS_OK,
              uct_rkey_ptr(sender().component(), key.bundle(), remote.address() + 8, &local));
    fill_pattern({static_cast<std::byte*>(local), 100}, 1);
    EXPECT_TRUE(has_pattern(remote.span().subspan(8, 100), 1));
    EXPECT_EQ(0, std::memcmp(remote.data(), &value, sizeof value));
    fill_pattern(remote.span(), 2);
    EXPECT_EQ(0, std::memcmp(local, remote.data() + 8, 4088));
}

}  // namespace
}  // namespace tagwire::test
