// SPDX-License-Identifier: BSD-3-Clause
// Keys of registered memory, refusals, and peers that come and go.
#include <rdma/fi_atomic.h>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kWriteEntry = FI_RMA | FI_WRITE;
constexpr std::uint64_t kReadEntry = FI_RMA | FI_READ;

class FiRmaKeys : public RmaPair {
  protected:
    int context = 0;
};

/// Over shared memory alone: a device that refuses something fails the connection, and an endpoint
/// of dc does not tell when it goes.
class FiRmaShared : public FiRmaKeys {};

TEST_F(FiRmaKeys, who_ignores_the_modes_in_the_answer_uses_offsets_and_own_keys) {
    Wanted wanted;
    wanted.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    open_rma(wanted);
    EXPECT_EQ(key(), 7U);
    const Text text = "offset";
    retry([&] {
        return fi_write(a.ep.get(), text.data(), text.size(), nullptr, to_b, 9, 7, nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    expect_held("offset", 9);
}

TEST_F(FiRmaKeys, keys_and_addresses_may_be_the_providers) {
    Wanted wanted;
    wanted.mr_mode = 1;  // FI_MR_BASIC
    open_rma(wanted);
    EXPECT_EQ(info->domain_attr->mr_mode, 1);
    const std::uint64_t first = key();
    write("virtual", 9);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    expect_held("virtual", 9);
    enter(kRemote);
    EXPECT_NE(key(), first) << "no key is given twice";
    write("again", 9);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    expect_held("again", 9);
}

TEST_F(FiRmaShared, an_unknown_key_of_a_peer_that_has_failed_is_an_error) {
    open_rma();
    write("known", 9, &context);
    EXPECT_EQ(next(a.tx).op_context, &context);
    b.ep.reset();
    // The connection is of no more use once this side has seen it go.
    ssize_t status = 0;
    run_until([&] {
        fi_cq_read(a.rx.get(), nullptr, 0);
        status = fi_inject(a.ep.get(), nullptr, 0, to_b);
        return status != 0 && status != -FI_EAGAIN;
    });
    const Text text = "nobody";
    const ssize_t refusal =
        fi_write(a.ep.get(), text.data(), text.size(), nullptr, to_b, 0, 99, &context);
    EXPECT_EQ(refusal, status);
}

TEST_F(FiRmaKeys, programs_of_early_versions_name_one_of_two_modes) {
    for (const int mode : {1, 2}) {  // FI_MR_BASIC, FI_MR_SCALABLE
        Wanted wanted;
        wanted.mr_mode = mode;
        wanted.version = FI_VERSION(1, 4);
        open_rma(wanted);
        EXPECT_EQ(info->domain_attr->mr_mode, mode);
        EXPECT_EQ(key() == 7, mode == 2);
        write("early", 9);
        EXPECT_EQ(next(a.tx).flags, kWriteEntry);
        expect_held("early", 9);
        mr.reset();
        close();
    }
}

TEST_F(FiRmaKeys, a_key_names_one_region_at_a_time) {
    open_rma();
    Owner<fid_mr> other;
    EXPECT_EQ(enter_into(other, memory, kRemote, 7), -FI_ENOKEY);
    EXPECT_EQ(enter_into(other, memory, kRemote, ~std::uint64_t{0}), 0);
    EXPECT_EQ(fi_mr_key(other.get()), ~std::uint64_t{0});
}

TEST_F(FiRmaKeys, a_raw_key_is_the_key) {
    open_rma();
    std::uint64_t base = 1;
    std::uint64_t raw = 0;
    std::size_t length = 4;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&raw);
    EXPECT_EQ(fi_mr_raw_attr(mr.get(), &base, bytes, &length, 0), -FI_ETOOSMALL);
    EXPECT_EQ(length, sizeof raw);
    EXPECT_EQ(fi_mr_raw_attr(mr.get(), &base, bytes, &length, 0), 0);
    EXPECT_EQ(base, 0U);
    std::uint64_t mapped = 0;
    EXPECT_EQ(fi_mr_map_raw(domain.get(), base, bytes, length, &mapped, 0), 0);
    EXPECT_EQ(mapped, key());
    EXPECT_EQ(fi_mr_unmap_key(domain.get(), mapped), 0);
}

// ---- Refusals

TEST_F(FiRmaKeys, an_unknown_key_is_an_error_of_the_operation) {
    open_rma();
    Text text = "nobody";
    for (int i = 0; i < 2; ++i) {
        retry([&] {
            return fi_write(a.ep.get(), text.data(), text.size(), nullptr, to_b, 0, 99, &context);
        });
        const auto error = next_error(a.tx);
        EXPECT_EQ(error.err, FI_ENOKEY);
        EXPECT_EQ(error.op_context, &context);
        EXPECT_EQ(error.flags, kWriteEntry);
    }
    write("alive", 0);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
}

TEST_F(FiRmaKeys, what_is_not_inside_the_region_is_refused) {
    open_rma();
    Text text = text_of(10);
    const Text before = memory;
    for (const std::size_t offset : {std::size_t{4087}, std::size_t{4096}, std::size_t{1} << 40,
                                     ~std::size_t{0}, ~std::size_t{8}}) {
        for (const bool is_read : {false, true}) {
            retry([&] { return call_msg(is_read, text, offset, 0, &context); });
            const auto error = next_error(a.tx);
            EXPECT_EQ(error.err, FI_EINVAL);
            EXPECT_EQ(error.flags, is_read ? kReadEntry : kWriteEntry);
        }
    }
    EXPECT_EQ(memory, before);
    writemsg(text, 4086, FI_DELIVERY_COMPLETE);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    EXPECT_TRUE(holds(text, 4086));
}

TEST_F(FiRmaKeys, rights_that_a_region_does_not_give_are_refused) {
    open_rma();
    Text text = text_of(10);
    const Text before = memory;
    for (const std::uint64_t right : {FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND}) {
        enter(right);
        for (const bool is_read : {false, true}) {
            retry([&] { return call_msg(is_read, text, 5, 0); });
            if (right == (is_read ? FI_REMOTE_READ : FI_REMOTE_WRITE)) {
                EXPECT_EQ(next(a.tx).flags, is_read ? kReadEntry : kWriteEntry);
            } else {
                EXPECT_EQ(next_error(a.tx).err, FI_EACCES);
            }
        }
    }
}

TEST_F(FiRmaKeys, a_closed_region_is_reached_no_more) {
    open_rma();
    write("before", 0);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    expect_held("before", 0);
    const std::uint64_t key_before = key();
    mr.reset();
    run_some();
    Text text = "behind";
    retry([&] {
        return fi_write(a.ep.get(), text.data(), text.size(), nullptr, to_b, 0, key_before,
                        nullptr);
    });
    EXPECT_EQ(next_error(a.tx).err, FI_ENOKEY);
    EXPECT_TRUE(holds("before", 0));
}

TEST_F(FiRmaKeys, a_key_that_is_registered_again_leads_to_the_new_region) {
    open_rma();
    for (const std::size_t length : {10U, 64U, 32U}) {
        memory = text_of(length);
        mr.reset();
        ASSERT_EQ(enter_into(mr, memory, kRemote, 7), 0);
        Text text(length, '-');
        read(text, 0, &context);
        EXPECT_EQ(next(a.tx).op_context, &context);
        EXPECT_EQ(text, memory);
        writemsg("new", length - 3, FI_DELIVERY_COMPLETE);
        EXPECT_EQ(next(a.tx).flags, kWriteEntry);
        EXPECT_TRUE(holds("new", length - 3));
    }
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiRmaShared, an_old_key_is_asked_for_again_when_its_use_is_refused) {
    open_rma();
    Text text(10, '-');
    read(text, 0);
    EXPECT_EQ(next(a.tx).flags, kReadEntry);
    const std::uint64_t key_before = key();
    mr.reset();
    // The peer has not been told: it has not progressed since.
    ASSERT_EQ(fi_read(a.ep.get(), text.data(), text.size(), nullptr, to_b, 0, key_before, nullptr),
              0);
    EXPECT_EQ(next_error(a.tx).err, FI_ENOKEY);
}

TEST_F(FiRmaShared, an_operation_that_waits_for_its_key_fails_with_its_peer) {
    open_rma();
    Text text = "x";
    ASSERT_EQ(fi_write(a.ep.get(), text.data(), 1, nullptr, to_b, at(0), key(), &context), 0);
    b.ep.reset();
    const auto error = next_error(a.tx);
    EXPECT_TRUE(error.err == FI_ENOTCONN || error.err == FI_ECONNRESET) << error.err;
    EXPECT_EQ(error.op_context, &context);
    EXPECT_EQ(error.flags, kWriteEntry);
}

TEST_F(FiRmaKeys, a_peer_that_was_removed_and_inserted_again_is_reached) {
    open_rma();
    for (int round = 0; round < 2; ++round) {
        writemsg("seen", 0, FI_DELIVERY_COMPLETE);
        EXPECT_EQ(next(a.tx).flags, kWriteEntry);
        EXPECT_TRUE(holds("seen", 0));
        memory[0] = '!';
        ASSERT_EQ(fi_av_remove(av.get(), &to_b, 1, 0), 0);
        ASSERT_EQ(fi_av_insert(av.get(), b.name.data(), 1, &to_b, 0, nullptr), 1);
    }
}

TEST_F(FiRmaKeys, an_operation_that_waits_for_its_key_ends_when_its_peer_is_removed) {
    open_rma();
    Text text = "x";
    ASSERT_EQ(fi_write(a.ep.get(), text.data(), 1, nullptr, to_b, at(0), key(), &context), 0);
    ASSERT_EQ(fi_av_remove(av.get(), &to_b, 1, 0), 0);
    const auto error = next_error(a.tx);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_EQ(error.op_context, &context);
}

TEST_F(FiRmaKeys, an_endpoint_answers_peers_that_it_never_sent_to) {
    open_rma();
    Name name;
    const auto third = open_third(&name);
    fi_addr_t to_third = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insert(av.get(), name.data(), 1, &to_third, 0, nullptr), 1);
    const Text text = "new here";
    retry([&] {
        return fi_writedata(a.ep.get(), text.data(), text.size(), nullptr, 11, to_third, at(9),
                            key(), nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(next(b.rx, &source).data, 11U);  // the queue of the third one's receives
    EXPECT_EQ(source, to_a);
    EXPECT_TRUE(holds(text, 9));
    Text got(5, '-');
    ASSERT_EQ(fi_recv(a.ep.get(), got.data(), 5, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    retry([&] { return fi_inject(third.get(), "reply", 5, to_a); });
    next(a.rx, &source);
    EXPECT_EQ(got, "reply");
    EXPECT_EQ(source, to_third);
}

TEST_F(FiRmaKeys, a_region_of_no_bytes_takes_nothing) {
    open_rma();
    Text none;
    Owner<fid_mr> empty;
    ASSERT_EQ(enter_into(empty, none, kRemote, 9), 0);
    Text text = "x";
    retry([&] { return fi_write(a.ep.get(), text.data(), 0, nullptr, to_b, 0, 9, nullptr); });
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    retry(
        [&] { return fi_writedata(a.ep.get(), text.data(), 0, nullptr, 5, to_b, 0, 9, nullptr); });
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    EXPECT_EQ(next(b.rx).data, 5U);
    retry([&] { return fi_write(a.ep.get(), text.data(), 1, nullptr, to_b, 0, 9, nullptr); });
    EXPECT_EQ(next_error(a.tx).err, FI_EINVAL);
}

/// The region that GASNet and OpenSHMEM register where no mode is needed.
class FiRmaEverything : public FiRmaKeys {
  protected:
    bool register_everything() {
        fid_mr* made = nullptr;
        const int status =
            fi_mr_reg(domain.get(), nullptr, SIZE_MAX, kRemote, 0, 9, 0, &made, nullptr);
        EXPECT_TRUE(status == 0 || status == -FI_EOPNOTSUPP) << status;
        if (status == 0)
            everything.reset(made);
        return status == 0;
    }
    static std::uint64_t address_of(const void* of) { return reinterpret_cast<std::uintptr_t>(of); }
    ~FiRmaEverything() override { everything.reset(); }

    Owner<fid_mr> everything;
};

TEST_F(FiRmaEverything, a_region_of_all_memory_is_named_by_addresses_or_refused) {
    Wanted wanted;
    wanted.caps |= FI_ATOMIC;
    open_rma(wanted);
    if (!register_everything())
        GTEST_SKIP() << "devices register memory that is there only";
    std::array<std::uint64_t, 4> numbers = {1, 2, 3, 4};
    const std::uint64_t five = 5;
    retry([&] {
        return fi_write(a.ep.get(), &five, 8, nullptr, to_b, address_of(&numbers[1]), 9, &context);
    });
    EXPECT_EQ(next(a.tx).op_context, &context);
    std::uint64_t got = 0;
    retry([&] {
        return fi_read(a.ep.get(), &got, 8, nullptr, to_b, address_of(&numbers[2]), 9, nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kReadEntry);
    EXPECT_EQ(got, 3U);
    retry([&] {
        return fi_atomic(a.ep.get(), &five, 1, nullptr, to_b, address_of(&numbers[3]), 9, FI_UINT64,
                         FI_SUM, nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, FI_ATOMIC | FI_WRITE);
    EXPECT_EQ(numbers, (std::array<std::uint64_t, 4>{1, 5, 3, 9}));
    Text text(8192, 'm');  // made after the region was
    retry([&] {
        return fi_write(a.ep.get(), "later", 5, nullptr, to_b, address_of(text.data() + 5000), 9,
                        nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    run_until([&] { return text.compare(5000, 5, "later") == 0; });
}

TEST_F(FiRmaEverything, nothing_is_at_address_0) {
    open_rma();
    if (!register_everything())
        GTEST_SKIP() << "devices register memory that is there only";
    Text text(8, '-');
    for (const std::uint64_t address : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        retry([&] {
            return fi_write(a.ep.get(), text.data(), 8, nullptr, to_b, address, 9, &context);
        });
        EXPECT_GT(next_error(a.tx).err, 0);
    }
    write("alive", 0);
    EXPECT_EQ(next(a.tx).flags, kWriteEntry);
    expect_held("alive", 0);
}

TEST_F(FiRmaKeys, a_region_beyond_the_end_of_memory_is_refused) {
    open_rma();
    fid_mr* made = nullptr;
    auto* const high = reinterpret_cast<void*>(~std::uintptr_t{4095});
    EXPECT_EQ(fi_mr_reg(domain.get(), high, 8192, kRemote, 0, 9, 0, &made, nullptr), -FI_EINVAL);
}

TEST_F(FiRmaKeys, many_keys_are_known_at_once) {
    open_rma();
    constexpr std::size_t kCount = 300;
    std::vector<Text> texts_of(kCount, Text(16, '.'));
    std::vector<Owner<fid_mr>> regions(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(enter_into(regions[i], texts_of[i], kRemote, 1000 + i * 4096), 0);
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < kCount; ++i) {
            const Text text = text_of(16 + i % 9).substr(0, 16);
            retry([&] {
                return fi_inject_write(a.ep.get(), text.data(), 16, to_b, 0, 1000 + i * 4096);
            });
            if (i % 3 == 0)
                continue;
            run_until([&] { return texts_of[i] == text; });
            regions[i].reset();
            texts_of[i] = Text(16, '.');
            ASSERT_EQ(enter_into(regions[i], texts_of[i], kRemote, 1000 + i * 4096), 0);
            run_some();
        }
    }
}

}  // namespace

}  // namespace tagwire::fi_test
