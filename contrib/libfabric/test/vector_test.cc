// SPDX-License-Identifier: BSD-3-Clause
// Indices of an address vector and the peers behind them: one address twice, removed, used again.
#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiVector : public Pair {
  protected:
    fi_addr_t insert(const Name& name) {
        fi_addr_t addr = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av.get(), name.data(), 1, &addr, 0, nullptr), 1);
        return addr;
    }
    void remove(fi_addr_t addr) { ASSERT_EQ(fi_av_remove(av.get(), &addr, 1, 0), 0); }
    /// Sends from one to the other, and tells the source that is reported there.
    fi_addr_t send(Side& from, Side& to, fi_addr_t addr) {
        char got[4];
        EXPECT_EQ(fi_trecv(to.ep.get(), got, sizeof got, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
                  0);
        retry([&] { return fi_tinject(from.ep.get(), "text", 4, addr, 1); });
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        next(to.rx, &source);
        return source;
    }
};

TEST_F(FiVector, a_peer_inserted_again_while_its_connection_closes_is_to_be_tried_again) {
    open();
    tsend("before", 7);
    remove(to_b);
    to_b = insert(b.name);
    // Nobody lets the peer answer here: the old connection ends when its transport has let go.
    for (int i = 0; i < 1000; ++i) {
        const ssize_t status = fi_tinject(a.ep.get(), "text", 4, to_b, 1);
        ASSERT_TRUE(status == -FI_EAGAIN || status == 0) << fi_strerror(static_cast<int>(-status));
        if (status == 0)
            break;
        char got[4];
        const ssize_t posted = fi_trecv(a.ep.get(), got, 4, nullptr, to_b, 99, 0, nullptr);
        if (posted == 0) {  // it has ended in between
            EXPECT_EQ(fi_cancel(&a.ep->fid, nullptr), 0);
            break;
        }
        ASSERT_EQ(posted, -FI_EAGAIN);
    }
    Text got(6, ' ');
    trecv(got, 7);
    next(b.rx);
    EXPECT_EQ(got, "before");
    EXPECT_EQ(send(a, b, to_b), to_a);
}

/// GASNet and Chapel know the addresses of a table without being told (fi_av(3)).
TEST_F(FiVector, a_table_counts_from_0_where_addresses_are_not_asked_for) {
    open({.is_inserted = false});
    const std::array<Name, 3> names = {a.name, b.name, b.name};
    ASSERT_EQ(fi_av_insert(av.get(), names.data(), 2, nullptr, 0, nullptr), 2);
    EXPECT_EQ(send(a, b, 1), 0U);
    EXPECT_EQ(send(b, a, 0), 1U);
    ASSERT_EQ(fi_av_insert(av.get(), names.data(), 3, nullptr, 0, nullptr), 3);
    for (fi_addr_t addr = 0; addr < 5; ++addr) {
        Name found{};
        std::size_t length = found.size();
        ASSERT_EQ(fi_av_lookup(av.get(), addr, found.data(), &length), 0);
        EXPECT_EQ(found, addr == 0 || addr == 2 ? a.name : b.name) << addr;
    }
    Name none{};
    std::size_t length = none.size();
    EXPECT_EQ(fi_av_lookup(av.get(), 5, none.data(), &length), -FI_EINVAL);
}

TEST_F(FiVector, what_is_no_name_takes_no_place_in_a_table) {
    open({.is_inserted = false});
    const std::array<Name, 3> names = {a.name, Name{}, b.name};
    ASSERT_EQ(fi_av_insert(av.get(), names.data(), 3, nullptr, 0, nullptr), 2);
    EXPECT_EQ(send(a, b, 1), 0U);
}

/// Whatever the domain was asked for with, and the program is told which type it got.
TEST_F(FiVector, a_vector_has_the_type_that_it_is_opened_with) {
    for (const fi_av_type asked : {FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE}) {
        open({.av_type = asked});
        for (const fi_av_type type : {FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE}) {
            fi_av_attr attr{};
            attr.type = type;
            fid_av* made = nullptr;
            ASSERT_EQ(fi_av_open(domain.get(), &attr, &made, nullptr), 0);
            const Owner<fid_av> owner(made);
            const fi_av_type usual = asked == FI_AV_UNSPEC ? FI_AV_TABLE : asked;
            EXPECT_EQ(attr.type, type == FI_AV_UNSPEC ? usual : type);
            fi_addr_t addr = FI_ADDR_NOTAVAIL;
            EXPECT_EQ(fi_av_insert(made, a.name.data(), 1, &addr, 0, nullptr), 1);
            EXPECT_EQ(addr, 0U);
        }
        close();
    }
}

TEST_F(FiVector, messages_are_reported_with_a_number_that_the_sender_still_has) {
    open();
    const fi_addr_t second = insert(a.name);
    EXPECT_EQ(send(a, b, to_b), to_a);
    // The number that b has used goes to another peer.
    remove(to_a);
    ASSERT_EQ(insert(b.name), to_a);
    EXPECT_EQ(send(a, b, to_b), second);
    EXPECT_EQ(send(b, b, to_a), to_b);
    remove(second);
    EXPECT_EQ(send(a, b, to_b), FI_ADDR_NOTAVAIL);
}

TEST_F(FiVector, a_later_number_of_a_sender_does_not_replace_the_one_it_is_reported_with) {
    open();
    const fi_addr_t spare = insert(b.name);
    const fi_addr_t late = insert(a.name);
    remove(to_a);
    EXPECT_EQ(send(a, b, to_b), late);
    remove(spare);
    EXPECT_LT(insert(a.name), late);
    EXPECT_EQ(send(a, b, to_b), late);
}

TEST_F(FiVector, an_address_that_stands_there_twice_is_one_connection_and_is_closed_once) {
    open();
    const fi_addr_t second = insert(b.name);
    EXPECT_EQ(send(a, b, to_b), to_a);
    EXPECT_EQ(send(a, b, second), to_a);
    testing::internal::CaptureStderr();
    a.ep.reset();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(FiVector, a_connection_is_closed_with_the_last_number_whichever_was_used) {
    open();
    Name name{};
    const Owner<fid_ep> third = open_third(&name);
    const fi_addr_t used = insert(name);
    const fi_addr_t other = insert(name);
    Text got(4, ' ');
    ASSERT_EQ(fi_trecv(third.get(), got.data(), 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    tsend("text", 7);
    retry([&] { return fi_tinject(a.ep.get(), "text", 4, used, 1); });
    next(b.rx);
    remove(used);
    remove(other);
    // A closed connection makes way for another.
    const fi_addr_t again = insert(name);
    ASSERT_EQ(fi_trecv(third.get(), got.data(), 4, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    retry([&] { return fi_tinject(a.ep.get(), "text", 4, again, 1); });
    next(b.rx);
}

}  // namespace

}  // namespace tagwire::fi_test
