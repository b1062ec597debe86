// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations on memory that its owner can no longer read or write. Both are in this
// process, which an access that is not checked would end. Only the public API.
#include <sys/mman.h>

#include <ostream>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kMappedBytes = 256 << 10;

enum class Act { kPut, kGet, kAdd32, kAdd64 };

struct Unreachable {
    const char* name;
    Act act;
    std::size_t bytes;
    int rights;  // that the owner has left
};

void PrintTo(const Unreachable& what, std::ostream* out) {
    *out << what.name;
}

class MsgRmaUnreachable : public RmaTest, public ::testing::WithParamInterface<Unreachable> {
  protected:
    MsgRmaUnreachable()
        : memory_(static_cast<std::byte*>(::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        EXPECT_EQ(TW_OK, tw_mem_map(context_.get(), memory_, kMappedBytes, nullptr, &mem_));
    }
    ~MsgRmaUnreachable() override {
        EXPECT_EQ(TW_OK, tw_mem_unmap(context_.get(), mem_));
        ::munmap(memory_, kMappedBytes);
    }
    void forbid(int rights) const { ASSERT_EQ(0, ::mprotect(memory_, kMappedBytes, rights)); }

    tw_key_h key_for(const Node& user) const {
        char packed[TW_KEY_BYTES_MAX];
        std::size_t length = sizeof packed;
        EXPECT_EQ(TW_OK, tw_mem_pack(mem_, packed, &length));
        tw_key_h key = nullptr;
        EXPECT_EQ(TW_OK, tw_key_unpack(user.worker(), packed, length, &key));
        return key;
    }
    tw_status_t act(tw_ep_h ep, tw_key_h key) {
        const std::uint64_t at = reinterpret_cast<std::uintptr_t>(memory_) + kMappedBytes / 2;
        const Unreachable& what = GetParam();
        Bytes data = pattern(what.bytes, 5);
        if (what.act == Act::kPut)
            return put(ep, data.data(), data.size(), at, key, TW_OP_DELIVERY_COMPLETE);
        if (what.act == Act::kGet)
            return get(ep, data.data(), data.size(), at, key);
        const std::uint64_t one = 1;
        std::uint64_t before = 0;
        const tw_atomic_type_t type = what.act == Act::kAdd32 ? TW_UINT32 : TW_UINT64;
        return run([&](tw_request_h* request) {
            return tw_atomic_fetch(ep, TW_ATOMIC_ADD, type, &one, &before, at, key, nullptr,
                                   request);
        });
    }

    std::byte* memory_ = nullptr;
    tw_mem_h mem_ = nullptr;
};

TEST_P(MsgRmaUnreachable, fails_and_its_owner_goes_on) {
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = key_for(node(0));
    ASSERT_EQ(TW_OK, act(ep, key));
    forbid(GetParam().rights);
    const tw_status_t status = act(ep, key);
    EXPECT_LT(status, TW_OK);
    forbid(PROT_READ | PROT_WRITE);
    // A device fails the endpoint (tw_rma.h, "Statuses"); else it works on.
    run_some();
    if (node(0).failures.empty()) {
        EXPECT_EQ(TW_ERR_INVALID_ADDR, status);
        EXPECT_EQ(TW_OK, act(ep, key));
    }
    send(node(2), node(1), Bytes(1), 3);
    expect_message(node(1), Bytes(1), 3);
    tw_key_free(key);
}

TEST_P(MsgRmaUnreachable, fails_if_it_is_the_worker_s_own) {
    if (transports() != "tcp" && transports() != "ud")
        GTEST_SKIP() << "stores and devices access own memory without a look";
    const tw_ep_h ep = node(0).to(node(0));
    const tw_key_h key = key_for(node(0));
    ASSERT_EQ(TW_OK, act(ep, key));
    forbid(GetParam().rights);
    EXPECT_EQ(TW_ERR_INVALID_ADDR, act(ep, key));
    forbid(PROT_READ | PROT_WRITE);
    EXPECT_EQ(TW_OK, act(ep, key));
    EXPECT_TRUE(node(0).failures.empty());
    tw_key_free(key);
}

INSTANTIATE_TEST_SUITE_P(Acts, MsgRmaUnreachable,
                         ::testing::Values(Unreachable{"short_put", Act::kPut, 8, PROT_READ},
                                           Unreachable{"put", Act::kPut, 100'000, PROT_READ},
                                           Unreachable{"short_get", Act::kGet, 8, PROT_NONE},
                                           Unreachable{"get", Act::kGet, 100'000, PROT_NONE},
                                           Unreachable{"add_32", Act::kAdd32, 4, PROT_READ},
                                           Unreachable{"add_64", Act::kAdd64, 8, PROT_NONE}),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace tagwire::test
