// SPDX-License-Identifier: BSD-3-Clause
// Keys to memory of peers, and the ends of operations that use them. Only the public API.
#include <memory>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

using MsgRmaKeys = RmaTest;

// ---- Keys

TEST_F(MsgRmaKeys, a_key_tells_its_range_and_rights) {
    const Shared memory(context_.get(), 1000, Shared::Kind::kMapped, TW_ACCESS_READ);
    const tw_key_h key = memory.key_for(node(0));
    tw_key_attr_t attr{};
    ASSERT_EQ(tw_key_query(key, &attr), TW_OK);
    EXPECT_EQ(attr.address, memory.address());
    EXPECT_EQ(attr.length, 1000U);
    EXPECT_EQ(attr.access, unsigned{TW_ACCESS_READ});
    EXPECT_LE(memory.packed().size(), std::size_t{TW_KEY_BYTES_MAX});
    std::size_t length = 3;
    char bytes[TW_KEY_BYTES_MAX] = "no";
    EXPECT_EQ(tw_mem_pack(memory.handle(), bytes, &length), TW_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(length, memory.packed().size());
    EXPECT_EQ(std::string(bytes), "no");
    tw_key_free(key);
}

TEST_F(MsgRmaKeys, what_a_key_does_not_permit_is_refused_in_the_call) {
    const Shared readable(context_.get(), 1000, Shared::Kind::kMapped, TW_ACCESS_READ);
    const Shared writable(context_.get(), 1000, Shared::Kind::kMapped, TW_ACCESS_WRITE);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h read_key = readable.key_for(node(0)), write_key = writable.key_for(node(0));
    std::uint64_t word = 1;
    EXPECT_EQ(put(ep, &word, 8, readable.address(), read_key), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(get(ep, &word, 8, writable.address(), write_key), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &word, writable.address() + 8, write_key,
                        nullptr, nullptr),
              TW_ERR_INVALID_ADDR);
    EXPECT_EQ(get(ep, &word, 8, readable.address() + 993, read_key), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(get(ep, &word, 8, readable.address() - 1, read_key), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(get(ep, &word, 8, UINT64_MAX - 2, read_key), TW_ERR_INVALID_ADDR);
    EXPECT_EQ(put(ep, &word, 8, writable.address(), write_key, 1U << 31), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(get(ep, &word, 8, readable.address(), read_key, TW_OP_INJECT), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(put(ep, nullptr, 8, writable.address(), write_key), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_put(nullptr, &word, 8, writable.address(), write_key, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_put(ep, &word, 8, writable.address(), nullptr, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &word, writable.address() + 1, write_key,
                        nullptr, nullptr),
              TW_ERR_INVALID_ADDR);
    EXPECT_EQ(tw_atomic(ep, TW_ATOMIC_CSWAP, TW_UINT64, &word, writable.address(), write_key,
                        nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    Bytes large(70000);
    EXPECT_EQ(put(ep, large.data(), large.size(), writable.address(), write_key, TW_OP_INJECT),
              TW_ERR_EXCEEDS_LIMIT);
    // Both still work.
    EXPECT_EQ(put(ep, &word, 8, writable.address(), write_key, TW_OP_DELIVERY_COMPLETE), TW_OK);
    EXPECT_EQ(get(ep, &word, 8, readable.address(), read_key), TW_OK);
    tw_key_free(read_key);
    tw_key_free(write_key);
}

TEST_F(MsgRmaKeys, bytes_that_are_no_key_are_refused) {
    const Shared memory(context_.get(), 1000);
    const std::string good = memory.packed();
    tw_key_h key = nullptr;
    for (std::size_t length = 0; length < good.size(); ++length)
        if (tw_key_unpack(node(0).worker(), good.data(), length, &key) == TW_OK)
            tw_key_free(key);  // one without its last keys
    EXPECT_EQ(tw_key_unpack(node(0).worker(), good.data(), 0, &key), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_unpack(node(0).worker(), good.data(), 7, &key), TW_ERR_INVALID_PARAM);
    const std::string none(TW_KEY_BYTES_MAX, '\xff');
    EXPECT_EQ(tw_key_unpack(node(0).worker(), none.data(), none.size(), &key),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_unpack(node(0).worker(), none.data(), 65, &key), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_unpack(nullptr, good.data(), good.size(), &key), TW_ERR_INVALID_PARAM);
    tw_mem_h mem = nullptr;
    std::uint64_t word = 0;
    tw_mem_params_t params{};
    params.access = TW_ACCESS_NONE;
    ASSERT_EQ(tw_mem_map(context_.get(), &word, 8, &params, &mem), TW_OK);
    char bytes[TW_KEY_BYTES_MAX];
    std::size_t length = sizeof bytes;
    EXPECT_EQ(tw_mem_pack(mem, bytes, &length), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_mem_unmap(context_.get(), mem), TW_OK);
    params.access = TW_ACCESS_NONE | TW_ACCESS_READ;
    EXPECT_EQ(tw_mem_map(context_.get(), &word, 8, &params, &mem), TW_ERR_INVALID_PARAM);
    params = {};
    params.device = 1;
    EXPECT_EQ(tw_mem_map(context_.get(), &word, 8, &params, &mem), TW_ERR_INVALID_PARAM);
    params = {};
    params.type = static_cast<tw_memory_type_t>(1);
    EXPECT_EQ(tw_mem_map(context_.get(), &word, 8, &params, &mem), TW_ERR_UNSUPPORTED);
}

TEST_F(MsgRmaKeys, allocated_memory_of_this_host_has_a_pointer) {
    const Shared memory(context_.get(), 4096, Shared::Kind::kAllocated);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    void* pointer = nullptr;
    if (transports() != "sm") {
        EXPECT_NE(tw_key_pointer(ep, key, memory.address(), nullptr), TW_OK);
        tw_key_free(key);
        return;
    }
    ASSERT_EQ(tw_key_pointer(ep, key, memory.address() + 8, &pointer), TW_OK);
    std::memset(pointer, 0x5a, 8);
    EXPECT_EQ(memory.number<std::uint64_t>(8), 0x5a5a5a5a5a5a5a5aU);
    EXPECT_EQ(tw_key_pointer(ep, key, memory.address() + 100000, &pointer), TW_ERR_INVALID_ADDR);
    const Shared mapped(context_.get(), 4096);
    const tw_key_h other = mapped.key_for(node(0));
    EXPECT_EQ(tw_key_pointer(ep, other, mapped.address(), &pointer), TW_ERR_UNREACHABLE);
    tw_key_free(other);
    tw_key_free(key);
}

TEST_F(MsgRmaKeys, a_key_serves_all_endpoints_of_its_worker_to_the_owner) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), 64, kind);
        const tw_key_h key = memory.key_for(node(0));  // before there is any
        std::uint64_t word = 4711, read = 0;
        for (const std::size_t peer : {1U, 2U, 0U, 1U}) {
            const tw_ep_h ep = connected(node(0), node(peer));
            ++word;
            EXPECT_EQ(put(ep, &word, 8, memory.address(), key, TW_OP_DELIVERY_COMPLETE), TW_OK);
            EXPECT_EQ(memory.number<std::uint64_t>(), word);
            EXPECT_EQ(get(ep, &read, 8, memory.address(), key), TW_OK);
            EXPECT_EQ(read, word);
            void* pointer = nullptr;
            EXPECT_NE(tw_key_pointer(ep, key, memory.address(), &pointer), TW_ERR_INVALID_PARAM);
            if (peer == 1) {  // the key outlives it
                EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
                run_some();
            }
        }
        tw_key_free(key);
        destroy_nodes();
    }
}

TEST_F(MsgRmaKeys, a_key_of_another_worker_or_owner_is_refused) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1)), other = connected(node(2), node(1));
    const tw_key_h key = memory.key_for(node(0));
    std::uint64_t word = 0;
    void* pointer = nullptr;
    tw_rma_explanation_t told{};
    const auto expect_refused = [&](tw_ep_h by, tw_key_h used) {
        EXPECT_EQ(get(by, &word, 8, memory.address(), used), TW_ERR_INVALID_PARAM);
        EXPECT_EQ(put(by, &word, 8, memory.address(), used), TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_atomic(by, TW_ATOMIC_ADD, TW_UINT64, &word, memory.address(), used, nullptr,
                            nullptr),
                  TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_key_pointer(by, used, memory.address(), &pointer), TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_key_explain(by, used, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told),
                  TW_ERR_INVALID_PARAM);
    };
    ASSERT_EQ(put(ep, &word, 8, memory.address(), key), TW_OK);
    expect_refused(other, key);
    // As if another context had packed it: 24 bits of the owner stand behind rights and id.
    std::string packed = memory.packed();
    packed[7] = static_cast<char>(packed[7] ^ 1);
    tw_key_h foreign = nullptr;
    ASSERT_EQ(tw_key_unpack(node(0).worker(), packed.data(), packed.size(), &foreign), TW_OK);
    expect_refused(ep, foreign);
    EXPECT_EQ(get(ep, &word, 8, memory.address(), key), TW_OK);
    tw_key_free(foreign);
    tw_key_free(key);
}

TEST_F(MsgRmaKeys, an_endpoint_that_is_not_connected_has_no_pointer_yet) {
    const Shared memory(context_.get(), 64, Shared::Kind::kAllocated);
    const tw_ep_h ep = node(0).to(node(1));
    const tw_key_h key = memory.key_for(node(0));
    void* pointer = nullptr;
    EXPECT_EQ(tw_key_pointer(ep, key, memory.address(), &pointer), TW_ERR_NO_RESOURCE);
    EXPECT_EQ(tw_key_pointer(nullptr, key, memory.address(), &pointer), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_pointer(ep, nullptr, memory.address(), &pointer), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_pointer(ep, key, memory.address(), nullptr), TW_ERR_INVALID_PARAM);
    tw_key_free(key);
}

// ---- Ends

TEST_F(MsgRmaKeys, operations_on_an_endpoint_that_is_closed_by_force_end_once) {
    for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, std::size_t{3000000}}) {
        for (const int rounds : {0, 1, 30}) {
            Shared memory(context_.get(), length);
            const tw_ep_h ep = node(0).to(node(1));
            if (rounds > 0) {
                ASSERT_EQ(flush(ep), TW_OK);
            }
            const tw_key_h key = memory.key_for(node(0));
            const Bytes data = pattern(length, 1);
            Bytes read(length);
            std::uint64_t before = 0;
            const std::uint64_t one = 1;
            std::size_t expected = 0;
            node(0).done.clear();
            for (int i = 0; i < 8; ++i) {
                const tw_op_t how = op(&memory, TW_OP_COMPLETION);
                expected += tw_put(ep, data.data(), length, memory.address(), key, &how, nullptr) ==
                            TW_INPROGRESS;
                expected += tw_get(ep, read.data(), length, memory.address(), key, &how, nullptr) ==
                            TW_INPROGRESS;
                expected += tw_atomic_fetch(ep, TW_ATOMIC_ADD, TW_UINT64, &one, &before,
                                            memory.address(), key, &how, nullptr) == TW_INPROGRESS;
            }
            for (int i = 1; i < rounds; ++i)
                node(0).progress();
            EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
            run_until([&] { return node(0).done.size() >= expected; });
            run_some();
            EXPECT_EQ(node(0).done.size(), expected);
            tw_key_free(key);
            destroy_nodes();
        }
    }
}

TEST_F(MsgRmaKeys, operations_whose_peer_goes_end_once) {
    for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, std::size_t{3000000}}) {
        Shared memory(context_.get(), length);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        const Bytes data = pattern(length, 1);
        Bytes read(length);
        std::size_t expected = 0;
        node(0).done.clear();
        for (int i = 0; i < 8; ++i) {
            const tw_op_t how = op(&memory, TW_OP_COMPLETION | TW_OP_DELIVERY_COMPLETE);
            const tw_op_t plain = op(&memory, TW_OP_COMPLETION);
            expected += tw_put(ep, data.data(), length, memory.address(), key, &how, nullptr) ==
                        TW_INPROGRESS;
            expected += tw_get(ep, read.data(), length, memory.address(), key, &plain, nullptr) ==
                        TW_INPROGRESS;
        }
        forget_last_node();
        run_until([&] { return node(0).done.size() >= expected; });
        run_some();
        EXPECT_EQ(node(0).done.size(), expected);
        EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        tw_key_free(key);
        destroy_nodes();
    }
}

TEST_F(MsgRmaKeys, memory_that_was_unmapped_is_not_reached_any_more) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        auto memory = std::make_unique<Shared>(context_.get(), 10000, kind);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory->key_for(node(0));
        const std::uint64_t at = memory->address();
        std::uint64_t word = 5;
        ASSERT_EQ(put(ep, &word, 8, at, key, TW_OP_DELIVERY_COMPLETE), TW_OK);
        if (kind == Shared::Kind::kAllocated)
            memory.reset();
        else
            memory->unmap();
        word = 6;
        Bytes large(10000);
        EXPECT_NE(put(ep, large.data(), large.size(), at, key, TW_OP_DELIVERY_COMPLETE), TW_OK);
        EXPECT_NE(get(ep, &word, 8, at, key), TW_OK);
        EXPECT_EQ(word, 6U);
        if (kind == Shared::Kind::kMapped) {
            EXPECT_EQ(memory->number<std::uint64_t>(), 5U);
        }
        tw_key_free(key);
        destroy_nodes();
    }
}

TEST_F(MsgRmaKeys, an_operation_that_waits_is_cancelled) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = node(0).to(node(1));
    const tw_key_h key = memory.key_for(node(0));
    const std::uint64_t word = 5;
    tw_op_t how = op(&how, TW_OP_COMPLETION);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_put(ep, &word, 8, memory.address(), key, &how, &request), TW_INPROGRESS);
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(node(0), &how).status, TW_ERR_CANCELED);
    ASSERT_EQ(flush(ep), TW_OK);
    EXPECT_EQ(memory.number<std::uint64_t>(), 0U);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
