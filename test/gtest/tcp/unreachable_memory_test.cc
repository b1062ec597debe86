// SPDX-License-Identifier: BSD-3-Clause
// Memory that the processor or the kernel cannot reach: the operation fails, and nothing else. The
// transports are tcp, and sm where it goes by messages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "operations.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytesMax = 3 * 1024 * 1024;

/// Pages, registered, from some of which the rights are taken.
class Pages {
  public:
    explicit Pages(Entity& owner) : owner_(owner) {
        data_ = static_cast<std::byte*>(
            ::mmap(nullptr, kBytesMax, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        fill_pattern({data_, kBytesMax}, 5);
        EXPECT_EQ(UCS_OK,
                  uct_md_mem_reg(owner.md(), data_, kBytesMax, UCT_MD_MEM_ACCESS_ALL, &memh_));
    }
    ~Pages() {
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(owner_.md(), memh_));
        ::munmap(data_, kBytesMax);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    /// Sets the rights of the pages of [at, kBytesMax).
    void protect(std::size_t at, int rights) {
        EXPECT_EQ(0, ::mprotect(data_ + at, kBytesMax - at, rights));
    }
    [[nodiscard]] Bytes packed_rkey() const {
        Bytes packed(owner_.md_attr().rkey_packed_size);
        EXPECT_EQ(UCS_OK, uct_md_mkey_pack(owner_.md(), memh_, packed.data()));
        return packed;
    }
    [[nodiscard]] uct_iov_t iov(std::size_t bytes) const { return {data_, bytes, memh_, 0, 1}; }
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
    [[nodiscard]] std::span<std::byte> span() const { return {data_, kBytesMax}; }

  private:
    Entity& owner_;
    std::byte* data_ = nullptr;
    uct_mem_h memh_ = nullptr;
};

/// The length of the operation, and where the memory ends that can be reached.
struct Case {
    const char* transport;
    std::size_t bytes;
    std::size_t good;
};

/// sm: by messages, as between processes that may not copy from each other's memory.
const Resource& resource_of(const std::string& transport) {
    if (transport == "tcp")
        return loopback_of_tcp();
    for (const Resource& resource : all_resources())
        if (resource.transport == transport)
            return resource;
    throw std::runtime_error("no such transport");
}
EntityOptions options_of(const std::string& transport) {
    EntityOptions options;
    if (transport == "sm")
        options.iface_config = {{"SM_CMA", "off"}};
    return options;
}

class UnreachableMemory : public ::testing::TestWithParam<Case> {
  protected:
    UnreachableMemory()
        : here(resource_of(GetParam().transport), options_of(GetParam().transport)),
          peer(resource_of(GetParam().transport), options_of(GetParam().transport)),
          local(here),
          remote(peer),
          key(here, remote.packed_rkey()) {
        link = connect(here, peer);
        expect_exchange(here, link.forward, peer);
    }
    /// The status with which the operation ends; the connection serves the next ones.
    ucs_status_t run(const std::function<ucs_status_t(const uct_iov_t*, Completion*)>& operation) {
        const uct_iov_t iov = local.iov(GetParam().bytes);
        Completion completion;
        EXPECT_TRUE(steps_until({&here, &peer},
                                [&] { return operation(&iov, &completion) == UCS_INPROGRESS; }));
        EXPECT_TRUE(steps_until({&here, &peer}, [&] { return completion.calls > 0; }));
        expect_exchange(here, link.forward, peer);
        EXPECT_EQ(1, completion.calls);
        EXPECT_TRUE(here.errors.empty() && peer.errors.empty());
        return completion.ended;
    }
    ucs_status_t put() {
        return run([this](const uct_iov_t* iov, Completion* completion) {
            return uct_ep_put_zcopy(link.forward, iov, 1, remote.address(), key.get(), completion);
        });
    }
    ucs_status_t get() {
        return run([this](const uct_iov_t* iov, Completion* completion) {
            return uct_ep_get_zcopy(link.forward, iov, 1, remote.address(), key.get(), completion);
        });
    }

    Entity here;
    Entity peer;
    Pages local;
    Pages remote;
    RemoteKey key;
    Connection link;
};

/// Memory that the program names itself.
class UnreachableMemoryHere : public UnreachableMemory {};

TEST_P(UnreachableMemory, a_put_to_memory_that_is_only_readable_fails) {
    remote.protect(GetParam().good, PROT_READ);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, put());
    EXPECT_EQ(kBytesMax, first_mismatch(remote.span(), 5)) << "the same bytes, or none";
    remote.protect(GetParam().good, PROT_READ | PROT_WRITE);
    EXPECT_EQ(UCS_OK, put());
}

TEST_P(UnreachableMemory, a_get_of_memory_that_cannot_be_read_fails) {
    remote.protect(GetParam().good, PROT_NONE);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get());
    remote.protect(GetParam().good, PROT_READ);
    EXPECT_EQ(UCS_OK, get());
    EXPECT_EQ(GetParam().bytes, first_mismatch(local.span().first(GetParam().bytes), 5));
}

TEST_P(UnreachableMemoryHere, a_put_from_memory_that_cannot_be_read_fails) {
    local.protect(GetParam().good, PROT_NONE);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, put());
    local.protect(GetParam().good, PROT_READ);
    EXPECT_EQ(UCS_OK, put());
}

TEST_P(UnreachableMemoryHere, a_get_into_memory_that_is_only_readable_fails) {
    local.protect(GetParam().good, PROT_READ);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get());
    local.protect(GetParam().good, PROT_READ | PROT_WRITE);
    EXPECT_EQ(UCS_OK, get());
}

TEST_P(UnreachableMemory, a_rendezvous_of_memory_that_cannot_be_read_fails_on_both_sides) {
    const Connection back = connect(peer, here);
    expect_exchange(peer, back.forward, here);
    Receive receive(here, kBytesMax);
    ASSERT_EQ(UCS_OK, receive.post(3));
    remote.protect(GetParam().good, PROT_NONE);
    const uct_iov_t iov = remote.iov(GetParam().bytes);
    Completion sent;
    ASSERT_FALSE(
        UCS_PTR_IS_ERR(uct_ep_tag_rndv_zcopy(back.forward, 3, nullptr, 0, &iov, 1, 0, &sent)));
    ASSERT_TRUE(steps_until({&here, &peer}, [&] { return receive.completed && sent.calls; }));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, receive.status);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, sent.ended);
    expect_exchange(peer, back.forward, here);
}

TEST(UnreachableWord, fails_an_atomic_operation) {
    Entity here(resource_of("sm"), options_of("sm"));
    Entity peer(resource_of("sm"), options_of("sm"));
    Pages remote(peer);
    const RemoteKey key(here, remote.packed_rkey());
    const Connection link = connect(here, peer);
    ASSERT_TRUE(steps_until({&here, &peer}, [&] {
        return uct_ep_am_short(link.forward, Entity::kAmId, 0, nullptr, 0) == UCS_OK;
    }));
    for (const int rights : {PROT_READ, PROT_NONE}) {
        remote.protect(0, rights);
        std::uint64_t before = 0;
        Completion completion;
        ucs_status_t status = UCS_OK;
        ASSERT_TRUE(steps_until({&here, &peer}, [&] {
            status = uct_ep_atomic64_fetch(link.forward, UCT_ATOMIC_OP_ADD, 1, &before,
                                           remote.address(), key.get(), &completion);
            return status != UCS_ERR_NO_RESOURCE;
        }));
        ASSERT_EQ(UCS_INPROGRESS, status);
        ASSERT_TRUE(steps_until({&here, &peer}, [&] { return completion.calls > 0; }));
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, completion.ended);
    }
}

std::string label_of(const ::testing::TestParamInfo<Case>& of) {
    return std::string(of.param.transport) + "_" + std::to_string(of.param.bytes) + "_from_" +
           std::to_string(of.param.good);
}

// Pages have 4 KiB, or 64 KiB at most.
INSTANTIATE_TEST_SUITE_P(Lengths, UnreachableMemory,
                         ::testing::Values(Case{"tcp", 8, 0}, Case{"tcp", 8192, 0},
                                           Case{"tcp", 60'000, 0}, Case{"tcp", 200'000, 0},
                                           Case{"tcp", 200'000, 131072}, Case{"tcp", kBytesMax, 0},
                                           Case{"tcp", kBytesMax, 65536},
                                           Case{"tcp", kBytesMax, kBytesMax - 65536},
                                           Case{"sm", 8, 0}, Case{"sm", 8192, 0},
                                           Case{"sm", 200'000, 131072},
                                           Case{"sm", kBytesMax, kBytesMax - 65536}),
                         label_of);
// Shorter ones are copied within the call that names the memory.
INSTANTIATE_TEST_SUITE_P(Lengths, UnreachableMemoryHere,
                         ::testing::Values(Case{"tcp", 100'000, 0}, Case{"tcp", 200'000, 131072},
                                           Case{"tcp", kBytesMax, 0}, Case{"tcp", kBytesMax, 65536},
                                           Case{"tcp", kBytesMax, kBytesMax - 65536}),
                         label_of);

}  // namespace
}  // namespace tagwire::test
