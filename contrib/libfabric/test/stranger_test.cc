// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer that is no endpoint of the provider sends it what it likes: the
// messages between providers (letters.hpp, key_letters.hpp, atomic_messages.hpp), malformed or
// unasked for. They do nothing, and good peers are served meanwhile.
#include <tagwire.h>

#include <cstring>
#include <random>

#include "atomic_pair.hpp"
#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

// The ids of the messages, and the lengths of their headers.
enum Id : unsigned {
    kAskKey = 1,
    kTellKey,
    kRevokeKey,
    kForgotKey,
    kNotice,
    kAtomicAsk = 16,
    kAtomicTell,
    kIdsEnd = 24
};
constexpr std::size_t kKeyBytes = 8;
constexpr std::size_t kTellBytes = 112;
constexpr std::size_t kNoticeBytes = 32;
constexpr std::size_t kAtomicBytes = 16;

struct Told {
    std::uint64_t key;
    std::uint64_t origin;
    std::uint64_t base;
    std::uint64_t length;
    std::uint32_t flags;
    std::uint32_t error;
    std::uint32_t packed_bytes;
    std::uint32_t reserved;
    char packed[64];
};
static_assert(sizeof(Told) == kTellBytes);
struct Notice {
    std::uint64_t key;
    std::uint64_t imm;
    std::uint64_t length;
    std::uint32_t is_read;
    std::uint32_t has_data;
};
static_assert(sizeof(Notice) == kNoticeBytes);
struct AtomicAsk {
    std::uint64_t id;
    std::uint32_t count;
    std::uint8_t kind;
    std::uint8_t op;
    std::uint8_t datatype;
    std::uint8_t segments;
};
struct Segment {
    std::uint64_t address;
    std::uint64_t key;
    std::uint64_t count;
};
struct AtomicTell {
    std::uint64_t id;
    std::uint32_t error;
    std::uint32_t reserved;
};

template <class Header>
Text bytes_of(const Header& header) {
    Text bytes(sizeof header, '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

class Stranger {
  public:
    struct Heard {
        unsigned id;
        Text header;
    };

    Stranger() {
        const tw_context_params_t params = {.transports = std::getenv("FI_TAGWIRE_TRANSPORTS"),
                                            .tag_sender_mask = 0};
        EXPECT_EQ(tw_context_create(&params, &context_), TW_OK);
        EXPECT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK);
        for (unsigned id = 1; id < kIdsEnd; ++id)
            EXPECT_EQ(tw_am_register(worker_, id, hear, this), TW_OK);
    }
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;
    ~Stranger() {
        if (ep_ != nullptr)
            tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr);
        tw_worker_destroy(worker_);
        tw_context_destroy(context_);
    }

    void meet(const Name& name) {
        const auto length = static_cast<unsigned char>(name.back());
        const tw_ep_params_t params = {
            .address = name.data(), .address_length = length, .user_data = nullptr};
        ASSERT_EQ(tw_ep_create(worker_, &params, &ep_), TW_OK);
    }
    /// Its name, as that of an endpoint.
    Name name() const {
        Name name{};
        std::size_t length = name.size() - 1;
        EXPECT_EQ(tw_worker_address(worker_, name.data(), &length), TW_OK);
        name.back() = static_cast<char>(length);
        return name;
    }
    tw_status_t try_send(unsigned id, const Text& header, const Text& data = {}) {
        tw_op_t op{};
        op.flags = TW_OP_INJECT;
        op.complete = [](const tw_completion_t*) {};
        return tw_am_send(ep_, id, header.data(), header.size(), data.data(), data.size(), &op,
                          nullptr);
    }
    void progress() { tw_worker_progress(worker_); }

    std::vector<Heard> heard;

  private:
    static void hear(void* arg, tw_am_t* am) {
        const auto* header = static_cast<const char*>(am->header);
        static_cast<Stranger*>(arg)->heard.push_back({am->id, Text(header, am->header_length)});
    }

    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
    tw_ep_h ep_ = nullptr;
};

class FiStranger : public RmaPair {
  protected:
    void SetUp() override {
        Wanted wanted;
        wanted.caps |= FI_ATOMIC | FI_RMA_EVENT;
        wanted.has_rma_counters = true;
        open_rma(wanted);
        std::ranges::fill(memory, '\0');
        stranger.meet(b.name);
    }
    void send(unsigned id, const Text& header, const Text& data = {}) {
        tw_status_t status = TW_OK;
        run_until([&] {
            stranger.progress();
            return (status = stranger.try_send(id, header, data)) != TW_ERR_NO_RESOURCE;
        });
        EXPECT_TRUE(status == TW_OK || status == TW_INPROGRESS) << status;
    }
    void run_all() {
        for (int i = 0; i < 300; ++i) {
            stranger.progress();
            for (const Side* side : {&a, &b})
                fi_cq_read(side->rx.get(), nullptr, 0);
        }
    }
    /// Headers that the stranger has heard under this id since the last call.
    std::vector<Text> take(unsigned id) {
        run_all();
        std::vector<Text> found;
        for (const auto& heard : stranger.heard)
            if (heard.id == id)
                found.push_back(heard.header);
        stranger.heard.clear();
        return found;
    }
    /// `a` writes to `b`, reads it back and counts there, as if nobody else were there.
    void expect_good_peer_served() {
        const Text text = "good" + std::to_string(++served_);
        write(text, 100);
        EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_WRITE);
        Text got(text.size(), '-');
        read(got, 100);
        EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_READ);
        EXPECT_EQ(got, text);
        std::uint64_t result = 0;
        retry([&] {
            return fi_fetch_atomic(a.ep.get(), &one_, 1, nullptr, &result, nullptr, to_b, at(8),
                                   key(), FI_UINT64, FI_SUM, nullptr);
        });
        EXPECT_EQ(next(a.tx).flags, FI_ATOMIC | FI_READ);
        EXPECT_EQ(result, served_ - 1);
        run_until([&] { return fi_cntr_read(b.remote_reads.get()) >= 2 * served_; });
        run_all();
        EXPECT_EQ(fi_cntr_read(b.remote_writes.get()), served_);
        EXPECT_EQ(fi_cntr_read(b.remote_reads.get()), 2 * served_);
        EXPECT_TRUE(is_empty(b.rx));
        EXPECT_TRUE(is_empty(a.tx));
    }

    Stranger stranger;

  private:
    std::uint64_t served_ = 0;
    const std::uint64_t one_ = 1;
};

TEST_F(FiStranger, messages_of_another_length_do_nothing) {
    std::mt19937_64 random(1);
    for (unsigned id = 1; id < kIdsEnd; ++id) {
        for (const std::size_t length : {0U, 1U, 7U, 9U, 15U, 17U, 31U, 33U, 111U, 113U, 160U}) {
            Text header(length, '\0');
            for (char& byte : header)
                byte = static_cast<char>(random());
            send(id, header);
        }
        // The right length, and data that does not belong there.
        if (id < kAtomicAsk)
            send(id,
                 Text(id == kTellKey  ? kTellBytes
                      : id == kNotice ? kNoticeBytes
                                      : kKeyBytes,
                      7),
                 "data");
    }
    EXPECT_TRUE(take(kTellKey).empty());
    EXPECT_TRUE(stranger.heard.empty());
    expect_good_peer_served();
}

TEST_F(FiStranger, random_messages_do_nothing) {
    std::mt19937_64 random(2);
    const std::pair<unsigned, std::size_t> kinds[] = {
        {kTellKey, kTellBytes},     {kRevokeKey, kKeyBytes},    {kForgotKey, kKeyBytes},
        {kNotice, kNoticeBytes},    {kAtomicAsk, kAtomicBytes}, {kAtomicTell, kAtomicBytes},
        {kIdsEnd + 7, kAtomicBytes}};
    for (int i = 0; i < 500; ++i) {
        const auto& [id, length] = kinds[random() % std::size(kinds)];
        Text header(length, '\0');
        // Small numbers reach further than any.
        for (char& byte : header)
            byte = static_cast<char>(random() % 3 == 0 ? random() : random() % 4);
        Text data(id == kAtomicAsk ? random() % 100 : 0, '\0');
        send(id, header, data);
    }
    run_all();
    stranger.heard.clear();
    expect_good_peer_served();
}

TEST_F(FiStranger, keys_that_nobody_has_are_refused) {
    for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{8}, ~std::uint64_t{0}})
        send(kAskKey, bytes_of(key));
    const auto replies = take(kTellKey);
    ASSERT_EQ(replies.size(), 3U);
    for (const Text& reply : replies) {
        ASSERT_EQ(reply.size(), kTellBytes);
        Told told{};
        std::memcpy(&told, reply.data(), sizeof told);
        EXPECT_EQ(told.error, unsigned{FI_ENOKEY});
        EXPECT_EQ(told.packed_bytes, 0U);
    }
    expect_good_peer_served();
}

TEST_F(FiStranger, a_notice_of_who_has_no_key_does_not_count) {
    for (const std::uint64_t of : {std::uint64_t{7}, std::uint64_t{8}})
        for (const std::uint32_t is_read : {0U, 1U})
            for (const std::uint32_t has_data : {0U, 1U})
                send(kNotice, bytes_of(Notice{of, 0xbad, 9, is_read, has_data}));
    run_all();
    expect_good_peer_served();
}

TEST_F(FiStranger, a_stranger_revokes_and_forgets_for_itself_only) {
    expect_good_peer_served();
    for (const unsigned id : {kRevokeKey, kForgotKey})
        send(id, bytes_of(key()));
    EXPECT_EQ(take(kForgotKey).size(), 1U) << "it has nothing of that key";
    expect_good_peer_served();
    // A region whose key the good peer holds is not free before that peer has forgotten it.
    mr.reset();
    for (int i = 0; i < 3; ++i)
        send(kForgotKey, bytes_of(std::uint64_t{7}));
    enter(kRemote);
    expect_good_peer_served();
}

TEST_F(FiStranger, atomic_requests_out_of_bounds_change_nothing) {
    struct Bad {
        AtomicAsk ask;
        Segment segment;
        std::size_t operands;
        std::uint32_t error;
    };
    constexpr auto kSum = static_cast<std::uint8_t>(FI_SUM);
    constexpr auto kType = static_cast<std::uint8_t>(FI_UINT64);
    const std::uint64_t last = at(4096 - 8);
    const Bad all[] = {{{1, 1, 0, kSum, kType, 1}, {at(8), 99, 1}, 1, FI_ENOKEY},
                       {{2, 1, 0, kSum, kType, 1}, {last + 1, key(), 1}, 1, FI_EINVAL},
                       {{3, 2, 0, kSum, kType, 1}, {last, key(), 2}, 2, FI_EINVAL},
                       {{4, 1, 0, kSum, kType, 1}, {~std::uint64_t{0}, key(), 1}, 1, FI_EINVAL},
                       {{5, 1, 0, kSum, kType, 1}, {at(8), key(), 1}, 0, FI_EINVAL},
                       {{6, 1, 0, kSum, kType, 1}, {at(8), key(), 2}, 1, FI_EINVAL},
                       {{7, 1, 0, kSum, kType, 0}, {at(8), key(), 1}, 1, FI_EINVAL},
                       {{8, 1, 0, kSum, kType, 17}, {at(8), key(), 1}, 1, FI_EINVAL},
                       {{9, 1, 3, kSum, kType, 1}, {at(8), key(), 1}, 1, FI_EINVAL},
                       {{10, 1, 0, 77, kType, 1}, {at(8), key(), 1}, 1, FI_EOPNOTSUPP},
                       {{11, 1, 0, kSum, 77, 1}, {at(8), key(), 1}, 1, FI_EOPNOTSUPP},
                       {{12, 513, 0, kSum, kType, 1}, {at(8), key(), 513}, 1, FI_EMSGSIZE},
                       {{13, ~0U, 0, kSum, kType, 1}, {at(8), key(), ~0U}, 1, FI_EMSGSIZE}};
    for (const Bad& bad : all) {
        send(kAtomicAsk, bytes_of(bad.ask), bytes_of(bad.segment) + Text(8 * bad.operands, 1));
        const auto replies = take(kAtomicTell);
        ASSERT_EQ(replies.size(), 1U) << bad.ask.id;
        AtomicTell tell{};
        ASSERT_EQ(replies[0].size(), sizeof tell);
        std::memcpy(&tell, replies[0].data(), sizeof tell);
        EXPECT_EQ(tell.id, bad.ask.id);
        EXPECT_EQ(tell.error, bad.error) << bad.ask.id;
    }
    EXPECT_EQ(memory, Text(4096, '\0'));
    expect_good_peer_served();
}

TEST_F(FiStranger, replies_that_nobody_asked_for_end_nothing) {
    // An operation of the victim on memory of the good peer, which has not replied.
    std::uint64_t result = 5;
    const std::uint64_t one = 1;
    fid_mr* made = nullptr;
    std::uint64_t number = 40;
    ASSERT_EQ(fi_mr_reg(domain.get(), &number, 8, kRemote, 0, 77, 0, &made, nullptr), 0);
    const Owner<fid_mr> region(made);
    int context = 0;
    retry([&] {
        return fi_fetch_atomic(b.ep.get(), &one, 1, nullptr, &result, nullptr, to_a, 0, 77,
                               FI_UINT64, FI_SUM, &context);
    });
    for (std::uint64_t use = 0; use < 3; ++use)
        for (std::uint64_t slot = 0; slot < 3; ++slot)
            send(kAtomicTell, bytes_of(AtomicTell{use << 32 | slot, 0, 0}), "12345678");
    Told told{};
    told.key = 77;
    told.flags = ~0U;
    send(kTellKey, bytes_of(told));
    EXPECT_EQ(next(b.tx).op_context, &context);
    EXPECT_EQ(result, 40U);
    EXPECT_TRUE(is_empty(b.tx));
    expect_good_peer_served();
}

/// The victim asks the stranger for a key, which answers anything.
class FiStrangerTells : public FiStranger {
  protected:
    /// The error that an operation of `b` with this answer ends with.
    int error_of(const Told& told, std::uint64_t flags = 0) {
        Text text = "x";
        const iovec iov = {text.data(), 1};
        const fi_rma_iov remote = {0, 1, told.key};
        fi_msg_rma msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_stranger_;
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        ssize_t status = 0;
        bool has_asked = false;
        run_until([&] {
            status = status == 0 && has_asked ? 0 : fi_writemsg(b.ep.get(), &msg, flags);
            has_asked = true;
            stranger.progress();
            for (const auto& heard : stranger.heard)
                if (heard.id == kAskKey)
                    stranger.try_send(kTellKey, bytes_of(told));
            stranger.heard.clear();
            fi_cq_tagged_entry entry{};
            return (status != 0 && status != -FI_EAGAIN) ||
                   fi_cq_read(b.tx.get(), &entry, 0) == -FI_EAVAIL;
        });
        if (status != 0)
            return static_cast<int>(-status);
        return next_error(b.tx).err;
    }
    void SetUp() override {
        FiStranger::SetUp();
        ASSERT_EQ(fi_av_insert(av.get(), stranger.name().data(), 1, &to_stranger_, 0, nullptr), 1);
    }

  private:
    fi_addr_t to_stranger_ = FI_ADDR_NOTAVAIL;
};

TEST_F(FiStrangerTells, keys_that_a_peer_makes_up_are_errors_of_the_operation) {
    Told told{};
    told.length = 64;
    told.flags = 3U << 4;  // gives both rights
    for (const std::uint32_t error : {1U, 4095U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
        ++told.key;
        told.error = error;
        const int seen = error_of(told);
        EXPECT_TRUE(seen > 0 && seen <= FI_ERRNO_MAX) << error << " gives " << seen;
    }
    told.error = 0;
    for (const std::uint32_t packed_bytes : {0U, 1U, 64U, 65U, ~0U}) {
        ++told.key;
        told.packed_bytes = packed_bytes;
        EXPECT_GT(error_of(told), 0) << packed_bytes;
    }
    expect_good_peer_served();
}

TEST_F(FiStrangerTells, an_error_that_a_peer_makes_up_ends_a_fenced_call) {
    Told told{};
    told.key = 5;
    told.error = ~0U;
    EXPECT_EQ(error_of(told, FI_FENCE), FI_EOTHER);
    expect_good_peer_served();
}

/// A peer that never takes the replies to what it asks stops nobody else.
TEST_F(FiStranger, a_peer_that_asks_and_never_listens_stops_nobody) {
    send(kAskKey, bytes_of(key()));
    EXPECT_EQ(take(kTellKey).size(), 1U);
    const auto flood = [&](int count, unsigned id, const Text& header, const Text& data) {
        int refused = 0;
        for (int i = 0; i < count && refused < 1000; ++i) {
            const bool is_refused = stranger.try_send(id, header, data) == TW_ERR_NO_RESOURCE;
            refused = is_refused ? refused + 1 : 0;
            fi_cq_read(b.rx.get(), nullptr, 0);
        }
    };
    flood(70000, kAskKey, bytes_of(key()), {});
    flood(10000, kAtomicAsk,
          bytes_of(AtomicAsk{1, 1, 1, static_cast<std::uint8_t>(FI_ATOMIC_READ),
                             static_cast<std::uint8_t>(FI_UINT64), 1}),
          bytes_of(Segment{at(0), key(), 1}));
    retry([&] {
        return fi_inject_atomic(a.ep.get(), "\1\0\0\0\0\0\0", 1, to_b, at(16), key(), FI_UINT64,
                                FI_SUM);
    });
    run_until([&] { return memory[16] == 1; });
    write("good", 200);
    EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_WRITE);
    run_until([&] { return holds("good", 200); });
}

}  // namespace

}  // namespace tagwire::fi_test
