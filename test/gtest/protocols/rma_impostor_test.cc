// SPDX-License-Identifier: BSD-3-Clause
// Peers that ask for memory that is not theirs, and owners whose answers do not fit: refused or
// dropped, counted, and nothing of the memory is read or written.
#include <array>
#include <cstring>
#include <random>

#include "protocols/impostor.hpp"
#include "protocols/rma_pair.hpp"
#include "protocols/wire/memory_key.hpp"
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::RmaKind;

class MsgRmaImpostor : public RmaTest {
  protected:
    MsgRmaImpostor() : impostor_(contact_of_transports()) {}

    Node& victim() { return node(0); }
    std::uint64_t garbage() { return victim().counter("garbage"); }
    std::uint64_t refused() { return victim().counter("rma_refused"); }
    void greet() {
        ASSERT_NO_FATAL_FAILURE(impostor_.greet(victim()));
        const Bytes address = impostor_.address();
        tw_ep_params_t params{};
        params.address = address.data();
        params.address_length = address.size();
        ASSERT_EQ(tw_ep_create(victim().worker(), &params, &ep_), TW_OK);
        impostor_.run(victim());
    }
    static proto::MemoryKey key_of(const Shared& memory) {
        const std::string packed = memory.packed();
        proto::MemoryKeyMessage message;
        EXPECT_EQ(proto::decode({reinterpret_cast<const std::byte*>(packed.data()), packed.size()},
                                &message),
                  nullptr);
        return message.key;
    }
    void put(const proto::MemoryRange& to, std::size_t bytes, std::uint32_t op_id = 5) {
        Bytes message;
        append(&message, proto::PutPart{impostor_.name(), op_id, to, 1, 0});
        message.insert(message.end(), bytes, std::byte{0x66});
        impostor_.send(victim(), AmId::kPut, message);
    }
    void ask(RmaKind kind, const proto::MemoryRange& at, std::uint64_t length,
             std::uint8_t type = TW_UINT64) {
        proto::RmaRequest request{};
        request.sender = impostor_.name();
        request.op_id = 6;
        request.at = at;
        request.length = length;
        request.operand = ~std::uint64_t{0};
        request.kind = kind;
        request.operation = TW_ATOMIC_SWAP;
        request.type = type;
        Bytes message;
        append(&message, request);
        impostor_.send(victim(), AmId::kRmaRequest, message);
    }
    /// A key of memory of the impostor, without keys of domains.
    void unpack(tw_key_h* key_p) {
        std::array<std::byte, TW_KEY_BYTES_MAX> packed{};
        const std::size_t length = proto::MemoryKeyWriter({1 << 20, 0x1000, 4096, TW_ACCESS_ALL,
                                                           false, proto::owner_of(Impostor::kId)})
                                       .write(packed.data());
        ASSERT_EQ(tw_key_unpack(victim().worker(), packed.data(), length, key_p), TW_OK);
        void* pointer = nullptr;  // for which keys of domains are wanted
        ASSERT_NE(tw_key_pointer(ep_, *key_p, 0x1000, &pointer), TW_OK);
    }
    /// The victim has asked for them, where it could use any.
    void answer_for_keys(const Bytes& keys) {
        if (transports() != "sm")
            return;
        proto::RmaRequest asked{};
        ASSERT_TRUE(impostor_.run_until(victim(), [&] {
            for (const Bytes& bytes : impostor_.taken(AmId::kRmaRequest))
                return proto::decode(bytes, &asked) && asked.kind == RmaKind::kKeys;
            return false;
        }));
        if (!keys.empty()) {
            Bytes message;
            append(&message, proto::GetData{impostor_.name(), asked.op_id, 0});
            message.insert(message.end(), keys.begin(), keys.end());
            impostor_.send(victim(), AmId::kGetData, message);
        }
        impostor_.control(victim(), proto::RmaReply{asked.op_id, 0, 0});
        impostor_.run(victim());
    }
    /// The status of the next end of an operation that the victim tells.
    std::int32_t told() {
        std::int32_t status = 1;
        EXPECT_TRUE(impostor_.run_until(victim(), [&] {
            for (const Bytes& bytes : impostor_.taken(AmId::kControl)) {
                proto::Control message{};
                if (proto::decode(bytes, &message) &&
                    message.operation() == proto::ControlOp::kRmaReply)
                    status = message.as<proto::RmaReply>().status;
            }
            return status != 1;
        }));
        return status;
    }

    Impostor impostor_;
    tw_ep_h ep_ = nullptr;
};

TEST_F(MsgRmaImpostor, operations_outside_of_what_a_key_gives_are_refused_and_counted) {
    ASSERT_NO_FATAL_FAILURE(greet());
    Shared memory(context_.get(), 256);
    const Shared readable(context_.get(), 256, Shared::Kind::kMapped, TW_ACCESS_READ);
    const Shared writable(context_.get(), 256, Shared::Kind::kMapped, TW_ACCESS_WRITE);
    const std::uint64_t id = key_of(memory).memory, at = memory.address();
    // The key gives this.
    put({id, at}, 8);
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(memory.number<std::uint64_t>(), 0x6666666666666666U);
    std::uint64_t expected = refused();
    const auto refuses = [&](const char* what) {
        EXPECT_LT(told(), 0) << what;
        EXPECT_EQ(refused(), ++expected) << what;
    };
    put({id, at + 256}, 1);
    refuses("behind its end");
    put({id, at + 250}, 8);
    refuses("across its end");
    put({id, at - 1}, 8);
    refuses("before its begin");
    put({id, UINT64_MAX - 2}, 8);
    refuses("around the end of the address space");
    put({id + 1, at}, 8);
    refuses("memory that was never given");
    put({id ^ (std::uint64_t{1} << 20), at}, 8);
    refuses("an id that is over");
    put({~std::uint64_t{0}, at}, 8);
    refuses("an id that is too large");
    put({key_of(readable).memory, readable.address()}, 8);
    refuses("memory that may be read only");
    ask(RmaKind::kGet, {key_of(writable).memory, writable.address()}, 8);
    refuses("memory that may be written only");
    ask(RmaKind::kAtomic, {key_of(writable).memory, writable.address()}, 8);
    refuses("memory without atomics");
    ask(RmaKind::kGet, {id, at}, 257);
    refuses("more than all of it");
    ask(RmaKind::kGet, {id, at}, UINT64_MAX);
    refuses("everything");
    ask(RmaKind::kAtomic, {id, at + 4}, 8);
    refuses("a number that is not aligned");
    memory.unmap();
    put({id, at}, 8);
    refuses("memory that was unmapped");
    ask(RmaKind::kGet, {id, at}, 8);
    refuses("memory that was unmapped");
    EXPECT_EQ(memory.number<std::uint64_t>(8), 0U);
    EXPECT_EQ(writable.number<std::uint64_t>(), 0U);
    EXPECT_EQ(readable.number<std::uint64_t>(), 0U);
    EXPECT_TRUE(victim().failures.empty());
}

TEST_F(MsgRmaImpostor, a_put_with_one_bad_part_is_refused_as_a_whole) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const Shared memory(context_.get(), 256);
    const std::uint64_t id = key_of(memory).memory, at = memory.address();
    for (const bool is_bad : {true, false}) {
        Bytes message;
        append(&message, proto::PutPart{impostor_.name(), 5, {is_bad ? id + 1 : id, at}, 0, 0});
        message.insert(message.end(), 8, std::byte{1});
        impostor_.send(victim(), AmId::kPut, message);
        put({id, at + 8}, 8);
        EXPECT_EQ(told() < 0, is_bad);
    }
}

TEST_F(MsgRmaImpostor, notices_outside_of_what_a_key_gives_are_refused_and_counted) {
    ASSERT_NO_FATAL_FAILURE(greet());
    tw_counter_h counter = nullptr;
    ASSERT_EQ(tw_counter_create(&counter), TW_OK);
    {
        const Shared memory(context_.get(), 256, Shared::Kind::kMapped, 0, counter);
        const Shared readable(context_.get(), 256, Shared::Kind::kMapped, TW_ACCESS_READ);
        const std::uint64_t id = key_of(memory).memory, at = memory.address();
        const auto notify = [&](const proto::MemoryRange& range, std::uint64_t length) {
            proto::Notice notice{};
            notice.sender = impostor_.name();
            notice.kind = RmaKind::kPut;
            notice.at = range;
            notice.length = length;
            Bytes message;
            append(&message, notice);
            impostor_.send(victim(), AmId::kNotice, message);
        };
        const std::uint64_t before = refused();
        notify({id + 1, at}, 8);
        notify({id, at + 1}, 256);
        notify({id, at - 1}, 1);
        notify({key_of(readable).memory, readable.address()}, 8);
        notify({id, at}, 256);
        EXPECT_TRUE(
            impostor_.run_until(victim(), [&] { return tw_counter_wait(counter, 1, 0) == TW_OK; }));
        EXPECT_EQ(refused(), before + 4);
        EXPECT_EQ(tw_counter_wait(counter, 2, 0), TW_ERR_TIMED_OUT);
        EXPECT_TRUE(victim().done.empty());
    }
    tw_counter_destroy(counter);
}

/// Whose budget is small.
class MsgRmaFlood : private Settings, public MsgRmaImpostor {
  protected:
    MsgRmaFlood() : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "1m"}}) {}
};

TEST_F(MsgRmaFlood, a_peer_that_notifies_on_while_it_is_paused_loses_its_endpoint) {
    if (contact_of_transports() != "sm")
        return;  // the same for all, and slow over the others
    ASSERT_NO_FATAL_FAILURE(greet());
    const Shared memory(context_.get(), 256);
    proto::Notice notice{};
    notice.sender = impostor_.name();
    notice.kind = RmaKind::kPut;
    notice.at = {key_of(memory).memory, memory.address()};
    notice.length = 8;
    Bytes message;
    append(&message, notice);
    std::vector<std::pair<tw_ep_h, tw_status_t>>& failures = victim().failures;
    // Nobody polls: the worker progresses alone.
    constexpr int kNoticesMax = 200'000;
    for (int sent = 0; sent < kNoticesMax && failures.empty(); ++sent) {
        for (int i = 0; i < 1000 && !impostor_.try_send(AmId::kNotice, message); ++i)
            tw_worker_progress(victim().worker());
        if (sent % 64 == 0) {
            impostor_.progress();
            impostor_.taken(AmId::kControl);
            tw_worker_progress(victim().worker());
        }
    }
    ASSERT_EQ(failures.size(), 1U);
    EXPECT_EQ(failures[0].second, TW_ERR_EXCEEDS_LIMIT);
    // Earlier notices stay the program's.
    victim().progress();
    EXPECT_FALSE(victim().done.empty());
}

TEST_F(MsgRmaImpostor, a_peer_that_takes_no_replies_but_goes_on_is_cut_off) {
    if (contact_of_transports() != "sm")
        return;  // who takes nothing over ud can send nothing either
    ASSERT_NO_FATAL_FAILURE(greet());
    const Shared memory(context_.get(), 256);
    const std::uint64_t id = key_of(memory).memory;
    Bytes message;
    append(&message, proto::PutPart{impostor_.name(), 0, {id, memory.address()}, 1, 0});
    message.insert(message.end(), 8, std::byte{1});
    // The victim progresses, the impostor does not.
    constexpr int kPutsMax = 2'000'000;
    int puts = 0;
    for (; puts < kPutsMax && victim().failures.empty(); ++puts) {
        for (int i = 0; i < 1000 && !impostor_.try_send(AmId::kPut, message); ++i)
            victim().progress();
    }
    ASSERT_EQ(victim().failures.size(), 1U);
    EXPECT_EQ(victim().failures[0].second, TW_ERR_EXCEEDS_LIMIT);
}

TEST_F(MsgRmaImpostor, any_bytes_are_dropped_or_refused) {
    ASSERT_NO_FATAL_FAILURE(greet());
    const Shared memory(context_.get(), 256);
    const std::uint64_t id = key_of(memory).memory;
    std::mt19937_64 random(3);
    for (int round = 0; round < 3000; ++round) {
        Bytes message(random() % 80);
        for (std::byte& byte : message)
            byte = static_cast<std::byte>(random());
        const std::uint32_t name = impostor_.name();
        if (message.size() >= sizeof name)
            std::memcpy(message.data(), &name, sizeof name);
        if (message.size() >= 24 && random() % 2 == 0) {
            std::memcpy(message.data() + 8, &id, sizeof id);
            const std::uint64_t outside = memory.address() + 256 + random() % 4096;
            std::memcpy(message.data() + 16, &outside, sizeof outside);
        }
        const AmId ids[] = {AmId::kPut, AmId::kRmaRequest, AmId::kGetData};
        impostor_.send(victim(), ids[random() % 3], message);
        impostor_.taken(AmId::kControl);
    }
    impostor_.run(victim());
    EXPECT_GT(garbage(), 0U);
    EXPECT_TRUE(victim().failures.empty());
    for (std::size_t i = 0; i < 256; ++i)
        ASSERT_EQ(memory.at()[i], std::byte{0});
}

TEST_F(MsgRmaImpostor, answers_that_do_not_fit_are_dropped_and_the_right_one_counts) {
    ASSERT_NO_FATAL_FAILURE(greet());
    tw_key_h key = nullptr;
    ASSERT_NO_FATAL_FAILURE(unpack(&key));
    answer_for_keys({});
    Bytes read(16);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_get(ep_, read.data(), read.size(), 0x1000, key, nullptr, &request), TW_INPROGRESS);
    proto::RmaRequest asked{};
    ASSERT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& bytes : impostor_.taken(AmId::kRmaRequest))
            return proto::decode(bytes, &asked);
        return false;
    }));
    EXPECT_EQ(asked.at.address, 0x1000U);
    EXPECT_EQ(asked.length, 16U);
    const auto data = [&](std::uint32_t op_id, std::uint64_t offset, std::size_t bytes) {
        Bytes message;
        append(&message, proto::GetData{impostor_.name(), op_id, offset});
        message.insert(message.end(), bytes, std::byte{0x77});
        impostor_.send(victim(), AmId::kGetData, message);
        impostor_.run(victim());
    };
    std::uint64_t expected = garbage();
    data(asked.op_id, 1, 8);
    data(asked.op_id, 0, 17);
    data(asked.op_id + 1, 0, 8);
    EXPECT_EQ(garbage(), expected += 3);
    EXPECT_EQ(read, Bytes(16));
    EXPECT_EQ(tw_request_test(request, nullptr), TW_INPROGRESS);
    impostor_.control(victim(), proto::RmaReply{asked.op_id + 1, 0, 0});
    impostor_.run(victim());
    EXPECT_EQ(garbage(), ++expected);
    data(asked.op_id, 0, 16);
    impostor_.control(victim(), proto::RmaReply{asked.op_id, 0, 0});
    impostor_.run(victim());
    EXPECT_EQ(tw_request_test(request, nullptr), TW_OK);
    EXPECT_EQ(read, Bytes(16, std::byte{0x77}));
    tw_request_free(request);
    // It is over: once more is too often.
    impostor_.control(victim(), proto::RmaReply{asked.op_id, 0, 0});
    impostor_.control(victim(), proto::RmaReply{0, 0, 0});
    data(asked.op_id, 0, 16);
    EXPECT_EQ(garbage(), expected += 3);
    // One that ends before its data has come fails.
    ASSERT_EQ(tw_get(ep_, read.data(), read.size(), 0x1000, key, nullptr, &request), TW_INPROGRESS);
    ASSERT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& bytes : impostor_.taken(AmId::kRmaRequest))
            return proto::decode(bytes, &asked);
        return false;
    }));
    impostor_.control(victim(), proto::RmaReply{asked.op_id, 0, 0});
    impostor_.run(victim());
    EXPECT_EQ(tw_request_test(request, nullptr), TW_ERR_IO_ERROR);
    tw_request_free(request);
    tw_key_free(key);
}

TEST_F(MsgRmaImpostor, keys_that_are_none_are_not_used) {
    ASSERT_NO_FATAL_FAILURE(greet());
    std::mt19937_64 random(7);
    for (int round = 0; round < 200; ++round) {
        tw_key_h key = nullptr;
        ASSERT_NO_FATAL_FAILURE(unpack(&key));
        // Often of a domain that there is, and of the length that its keys have.
        Bytes keys(random() % 200);
        for (std::byte& byte : keys)
            byte = static_cast<std::byte>(random());
        if (keys.size() > 2 && round % 2 == 0)
            keys[0] = std::byte{0};
        if (keys.size() > 2 && round % 4 == 0)
            keys[1] = std::byte{48};
        answer_for_keys(keys);
        tw_rma_explanation_t told{};
        ASSERT_EQ(tw_key_explain(ep_, key, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told), TW_OK);
        EXPECT_STREQ(told.way, "messages") << "round " << round;
        tw_key_free(key);
    }
}

TEST_F(MsgRmaImpostor, a_refusal_of_what_had_completed_fails_the_next_flush) {
    ASSERT_NO_FATAL_FAILURE(greet());
    tw_key_h key = nullptr;
    ASSERT_NO_FATAL_FAILURE(unpack(&key));
    answer_for_keys({});
    const std::uint64_t word = 1;
    ASSERT_EQ(tw_put(ep_, &word, sizeof word, 0x1000, key, nullptr, nullptr), TW_OK);
    impostor_.control(victim(), proto::RmaReply{0, UCS_ERR_INVALID_ADDR, 0});
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_ep_flush(ep_, TW_FLUSH_DELIVERED, nullptr, &request), TW_INPROGRESS);
    std::uint32_t flush_id = 0;
    ASSERT_TRUE(impostor_.run_until(victim(), [&] {
        for (const Bytes& bytes : impostor_.taken(AmId::kControl)) {
            proto::Control message{};
            if (proto::decode(bytes, &message) && message.operation() == proto::ControlOp::kFlush)
                flush_id = message.as<proto::Flush>().flush_id;
        }
        return flush_id != 0;
    }));
    impostor_.control(victim(), proto::Flushed{flush_id});
    impostor_.run(victim());
    EXPECT_EQ(tw_request_test(request, nullptr), TW_ERR_INVALID_ADDR);
    tw_request_free(request);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
