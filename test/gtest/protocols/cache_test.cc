// SPDX-License-Identifier: BSD-3-Clause
// The registration cache: buffers without a handle, used again, unmapped, told of, too many.
//
// The virtual HCA reads registered memory by its address and not by its page, so it cannot send a
// stale byte; what can be seen is whether a registration is used that must not be.
#include <sys/mman.h>

#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytes = 300000;

/// Memory that shares no page with any other.
class Pages {
  public:
    explicit Pages(std::size_t length) : length_(length), data_(map(nullptr)) {}
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { ::munmap(data_, length_); }

    std::byte* data() const { return data_; }
    void fill(std::uint64_t seed) { std::ranges::copy(pattern(length_, seed), data_); }
    void clear() { std::fill_n(data_, length_, std::byte{0}); }
    /// Other memory at the same address.
    void map_anew() {
        ASSERT_EQ(::munmap(data_, length_), 0);
        ASSERT_EQ(map(data_), data_);
    }

  private:
    std::byte* map(std::byte* at) const {
        void* memory = ::mmap(at, length_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        return static_cast<std::byte*>(memory);
    }

    std::size_t length_;
    std::byte* data_;
};

class MsgCache : private Settings, public MsgTest {
  protected:
    MsgCache() : Settings({{"TAGWIRE_REG_CACHE", "1m"}}) {}

    void SetUp() override {
        if (transports() != "rc" && transports() != "dc" && transports() != "rc,dc")
            GTEST_SKIP() << "memory needs no registration, or cannot be read";
        node(0).to(node(1));
    }
    /// One message from `from` to `to`, both without a handle.
    void pass(const std::byte* from, std::byte* to, std::size_t length) {
        int sent = 0, got = 0;
        const tw_op_t how = op(&sent), receive = op(&got);
        ASSERT_EQ(tw_tag_recv(node(1).worker(), to, length, 1, 0, &receive, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(node(0).to(node(1)), from, length, 1, &how, nullptr), TW_INPROGRESS);
        EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
        EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
        EXPECT_TRUE(std::equal(from, from + length, to));
    }
    void pass(const Pages& from, const Pages& to) { pass(from.data(), to.data(), kBytes); }
    std::uint64_t made() { return node(0).counter("reg_made"); }
    std::uint64_t cached() { return node(0).counter("reg_cached"); }
    bool notices_unmapped() {
        return node(0).description().find("unmapped memory is noticed") != std::string::npos;
    }
};

TEST_F(MsgCache, buffers_that_are_used_again_are_registered_once) {
    Pages data(kBytes), received(kBytes);
    data.fill(1);
    for (int i = 0; i < 3; ++i) {
        received.clear();
        pass(data, received);
    }
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(node(i).counter("reg_made"), 1U);
        EXPECT_EQ(node(i).counter("reg_cached"), 2U);
        EXPECT_EQ(node(i).counter("reg_refused"), 0U);
    }
    EXPECT_EQ(node(1).counter("rndv_get"), 3U);
}

TEST_F(MsgCache, memory_that_is_unmapped_and_mapped_again_is_registered_anew) {
    if (!notices_unmapped())
        GTEST_SKIP() << node(0).description();
    Pages from(kBytes), to(kBytes);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        from.fill(round);
        pass(from, to);
        from.map_anew();
        to.map_anew();
    }
    EXPECT_EQ(made(), 3U);
    EXPECT_EQ(cached(), 0U);
    EXPECT_EQ(node(1).counter("reg_made"), 3U);
}

TEST_F(MsgCache, memory_that_the_library_is_told_of_is_registered_anew) {
    Pages from(kBytes), to(kBytes);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        from.fill(round);
        pass(from, to);
        // One byte of it suffices.
        EXPECT_EQ(tw_mem_invalidate(context_.get(), from.data() + kBytes / 2, 1), TW_OK);
        EXPECT_EQ(tw_mem_invalidate(context_.get(), to.data(), kBytes), TW_OK);
        from.map_anew();
        to.map_anew();
    }
    EXPECT_EQ(made(), 3U);
    EXPECT_EQ(cached(), 0U);
    EXPECT_EQ(node(1).counter("reg_made"), 3U);
    EXPECT_EQ(tw_mem_invalidate(context_.get(), from.data(), 0), TW_OK);
    EXPECT_EQ(tw_mem_invalidate(context_.get(), from.data(), SIZE_MAX), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgCache, what_is_told_of_while_in_use_ends_well_and_is_not_used_again) {
    Pages data(kBytes), received(kBytes);
    data.fill(1);
    pass(data, received);
    int sent = 0, got = 0;
    const tw_op_t how = op(&sent), receive = op(&got);
    ASSERT_EQ(tw_tag_send(node(0).to(node(1)), data.data(), kBytes, 1, &how, nullptr),
              TW_INPROGRESS);
    run_some();
    EXPECT_EQ(cached(), 1U);
    EXPECT_EQ(tw_mem_invalidate(context_.get(), data.data(), kBytes), TW_OK);
    received.clear();
    ASSERT_EQ(tw_tag_recv(node(1).worker(), received.data(), kBytes, 1, 0, &receive, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_TRUE(std::equal(data.data(), data.data() + kBytes, received.data()));
    pass(data, received);
    EXPECT_EQ(made(), 2U);
    EXPECT_EQ(cached(), 1U);
}

TEST_F(MsgCache, a_buffer_inside_of_another_is_found_and_those_that_overlap_become_one) {
    Pages all(3 * kBytes), received(3 * kBytes);
    all.fill(1);
    pass(all.data() + kBytes, received.data(), kBytes);
    pass(all.data() + kBytes + 100, received.data(), kBytes - 200);
    EXPECT_EQ(made(), 1U);
    EXPECT_EQ(cached(), 1U);
    pass(all.data() + kBytes / 2, received.data(), kBytes);
    EXPECT_EQ(made(), 2U);
    pass(all.data() + kBytes / 2, received.data(), 3 * kBytes / 2);
    EXPECT_EQ(made(), 2U);
    EXPECT_EQ(cached(), 2U);
}

TEST_F(MsgCache, what_was_used_longest_ago_goes_first_and_what_is_in_use_stays) {
    // The receiver has a handle, so that only the sender uses the cache.
    constexpr std::size_t kThird = 340000;
    Pages data[4]{Pages(kThird), Pages(kThird), Pages(kThird), Pages(kThird)};
    for (std::uint64_t i = 0; i < 4; ++i)
        data[i].fill(i);
    Pages received(kThird);
    tw_mem_h mapped = nullptr;
    ASSERT_EQ(tw_mem_map(context_.get(), received.data(), kThird, nullptr, &mapped), TW_OK);
    const auto send_all = [&](std::initializer_list<std::size_t> which) {
        int sent[4], got = 0;
        for (const std::size_t i : which) {
            const tw_op_t how = op(&sent[i]);
            ASSERT_EQ(tw_tag_send(node(0).to(node(1)), data[i].data(), kThird, 1, &how, nullptr),
                      TW_INPROGRESS);
        }
        run_some();
        for (const std::size_t i : which) {
            tw_op_t receive = op(&got);
            receive.mem = mapped;
            ASSERT_EQ(
                tw_tag_recv(node(1).worker(), received.data(), kThird, 1, 0, &receive, nullptr),
                TW_INPROGRESS);
            EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
            EXPECT_TRUE(std::equal(data[i].data(), data[i].data() + kThird, received.data()));
            EXPECT_EQ(end_of(node(0), &sent[i]).status, TW_OK);
        }
    };
    send_all({0, 1, 2});
    EXPECT_EQ(made(), 3U);
    send_all({0, 3});  // 1 makes room
    EXPECT_EQ(made(), 4U);
    send_all({0, 2, 3});
    EXPECT_EQ(made(), 4U);
    EXPECT_EQ(node(0).counter("reg_refused"), 0U);
    send_all({0, 2, 3, 1});  // and now nothing can
    EXPECT_EQ(made(), 4U);
    EXPECT_EQ(node(0).counter("reg_refused"), 1U);
    EXPECT_EQ(node(1).counter("rndv_copy"), 1U);
    EXPECT_EQ(tw_mem_unmap(context_.get(), mapped), TW_OK);
}

TEST_F(MsgCache, an_operation_that_fails_takes_its_registration_along) {
    Pages data(kBytes), received(kBytes);
    data.fill(1);
    pass(data, received);
    ASSERT_EQ(tw_tag_send(node(0).to(node(1)), data.data(), kBytes, 2, nullptr, nullptr),
              TW_INPROGRESS);
    run_some();
    EXPECT_EQ(tw_ep_close(node(0).to(node(1)), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    pass(data, received);
    EXPECT_EQ(made(), 2U);
}

}  // namespace
}  // namespace tagwire::test
