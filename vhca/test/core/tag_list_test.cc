// SPDX-License-Identifier: BSD-3-Clause
// The tag list against a naive model, over every short sequence of operations and random long ones.
#include "vhca/core/tag_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace tagwire::vhca {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

TagList::Receive receive(std::uint64_t tag, std::uint64_t mask = kAll, std::uint64_t wr_id = 0) {
    return {tag, mask, wr_id, {}};
}

/// Removes and releases.
bool removes(TagList& list, std::uint32_t handle) {
    TagEntry* gone = list.remove(handle);
    if (gone != nullptr)
        list.release(*gone);
    return gone != nullptr;
}

/// A naive model of the list, as plain as possible.
class Reference {
  public:
    explicit Reference(std::uint32_t entries_max) : entries_max_(entries_max) {}

    bool add(const TagList::Receive& what, std::uint32_t handle) {
        if (full())
            return false;
        entries_.push_back({what, handle, device_ == software_});
        return true;
    }
    bool full() const { return entries_.size() + consumed_ == entries_max_; }
    bool remove(std::uint32_t handle) {
        return std::erase_if(entries_, [&](const Entry& e) { return e.handle == handle; }) == 1;
    }
    void sync(std::uint16_t count) {
        software_ = count;
        if (device_ == software_)
            for (Entry& entry : entries_)
                entry.active = true;
    }
    std::optional<std::uint64_t> match(std::uint64_t tag) {
        const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
            return e.active && (tag & e.what.mask) == e.what.tag;
        });
        if (found == entries_.end()) {
            ++device_;
            return std::nullopt;
        }
        const std::uint64_t wr_id = found->what.wr_id;
        entries_.erase(found);
        ++consumed_;
        return wr_id;
    }
    void release() { --consumed_; }
    std::uint16_t device() const { return device_; }
    std::size_t posted() const { return entries_.size(); }

  private:
    struct Entry {
        TagList::Receive what;
        std::uint32_t handle;
        bool active;
    };
    std::uint32_t entries_max_;
    std::uint32_t consumed_ = 0;
    std::uint16_t device_ = 0, software_ = 0;
    std::vector<Entry> entries_;
};

/// Drives both lists by numbers; any number is some operation.
class Both {
  public:
    explicit Both(std::uint32_t entries_max) : list_(entries_max), reference_(entries_max) {}

    void step(unsigned operation, unsigned a, unsigned b) {
        switch (operation % 6) {
            case 0:
            case 1:
                add(a, b);
                break;
            case 2:
                remove(a);
                break;
            case 3:
                sync(a % 3 == 0 ? static_cast<std::uint16_t>(reference_.device() - 1)
                                : reference_.device());
                break;
            case 4:
                arrive(a);
                break;
            default:
                release();
                break;
        }
        ASSERT_EQ(reference_.posted(), list_.posted());
        ASSERT_EQ(reference_.device(), list_.unexpected_count());
    }

  private:
    void add(unsigned a, unsigned b) {
        constexpr std::uint64_t kMasks[] = {kAll, kAll, 1, 0, 2};
        const TagList::Receive what = receive(a % 4, kMasks[b % 5], next_wr_id_++);
        std::uint32_t handle = 0;
        const int status = list_.add(what, &handle);
        ASSERT_EQ(reference_.full() ? ENOMEM : 0, status);
        if (status == 0) {
            ASSERT_TRUE(handles_.insert(handle).second) << "a handle in use was given out";
            ASSERT_TRUE(reference_.add(what, handle));
        }
    }
    void remove(unsigned a) {
        const std::uint32_t handle = a % 6;
        const bool expected = reference_.remove(handle);
        ASSERT_EQ(expected, removes(list_, handle));
        if (expected)
            handles_.erase(handle);
    }
    void sync(std::uint16_t count) {
        reference_.sync(count);
        list_.sync(count);
    }
    void arrive(unsigned a) {
        const std::uint64_t tag = a % 5;
        const std::optional<std::uint64_t> expected = reference_.match(tag);
        TagEntry* entry = list_.match(tag);
        ASSERT_EQ(expected.has_value(), entry != nullptr);
        if (entry != nullptr) {
            ASSERT_EQ(*expected, entry->wr_id);
            consumed_.push_back(entry);
        }
    }
    void release() {
        if (consumed_.empty())
            return;
        handles_.erase(consumed_.front()->handle);
        list_.release(*consumed_.front());
        consumed_.erase(consumed_.begin());
        reference_.release();
    }

    TagList list_;
    Reference reference_;
    std::uint64_t next_wr_id_ = 1;
    std::set<std::uint32_t> handles_;
    std::vector<TagEntry*> consumed_;
};

TEST(TagList, oldest_receive_that_matches_wins) {
    TagList list(8);
    std::uint32_t handle = 0;
    ASSERT_EQ(0, list.add(receive(0, 0, 1), &handle));
    ASSERT_EQ(0, list.add(receive(7, kAll, 2), &handle));
    EXPECT_EQ(1U, list.match(7)->wr_id);
    EXPECT_EQ(2U, list.match(7)->wr_id);
    EXPECT_EQ(nullptr, list.match(7));
    EXPECT_EQ(1, list.unexpected_count());
}

TEST(TagList, tag_with_bits_outside_its_mask_matches_nothing_but_can_be_removed) {
    TagList list(8);
    std::uint32_t handle = 0;
    ASSERT_EQ(0, list.add(receive(3, 1), &handle));
    EXPECT_EQ(nullptr, list.match(3));
    EXPECT_EQ(nullptr, list.match(1));
    EXPECT_TRUE(removes(list, handle));
    EXPECT_FALSE(removes(list, handle));
}

TEST(TagList, receive_added_with_a_stale_count_waits_until_the_counts_agree) {
    TagList list(8);
    std::uint32_t old_one = 0, stale = 0;
    ASSERT_EQ(0, list.add(receive(1, kAll, 1), &old_one));
    EXPECT_EQ(nullptr, list.match(2));  // software does not know of it yet
    ASSERT_EQ(0, list.add(receive(2, kAll, 2), &stale));
    EXPECT_EQ(nullptr, list.match(2)) << "it would overtake the first one";
    EXPECT_EQ(1U, list.match(1)->wr_id) << "what was active stays so";
    list.sync(1);
    EXPECT_EQ(nullptr, list.match(2)) << "one is still not dealt with";
    list.sync(3);
    EXPECT_TRUE(list.is_in_step());
    EXPECT_EQ(2U, list.match(2)->wr_id);
}

TEST(TagList, handle_that_waited_and_was_removed_does_not_come_back_in_its_old_place) {
    TagList list(2);
    std::uint32_t first = 0, second = 0, again = 0;
    EXPECT_EQ(nullptr, list.match(9));
    ASSERT_EQ(0, list.add(receive(1, kAll, 1), &first));
    ASSERT_EQ(0, list.add(receive(1, kAll, 2), &second));
    ASSERT_TRUE(removes(list, first));
    ASSERT_EQ(0, list.add(receive(1, kAll, 3), &again));
    EXPECT_EQ(first, again);
    list.sync(1);
    EXPECT_EQ(2U, list.match(1)->wr_id);
    EXPECT_EQ(3U, list.match(1)->wr_id);
}

TEST(TagList, full_list_refuses_and_consumed_entries_count_until_released) {
    TagList list(1);
    std::uint32_t handle = 0;
    ASSERT_EQ(0, list.add(receive(1), &handle));
    EXPECT_EQ(ENOMEM, list.add(receive(2), &handle));
    TagEntry* entry = list.match(1);
    ASSERT_NE(nullptr, entry);
    EXPECT_EQ(ENOMEM, list.add(receive(2), &handle));
    EXPECT_FALSE(removes(list, entry->handle)) << "it was consumed";
    list.release(*entry);
    EXPECT_EQ(0, list.add(receive(2), &handle));
}

TEST(TagList, counts_wrap_at_sixteen_bits) {
    TagList list(4);
    for (unsigned i = 0; i < 0x10000; ++i)
        ASSERT_EQ(nullptr, list.match(i));
    EXPECT_TRUE(list.is_in_step()) << "65536 is 0 again";
    for (unsigned i = 0; i < TagList::kUnsyncedMax; ++i)
        ASSERT_EQ(nullptr, list.match(i));
    EXPECT_FALSE(list.is_overdue());
    EXPECT_EQ(nullptr, list.match(0));
    EXPECT_TRUE(list.is_overdue());
    list.sync(TagList::kUnsyncedMax + 1);
    EXPECT_FALSE(list.is_overdue());
    std::uint32_t handle = 0;
    ASSERT_EQ(0, list.add(receive(5), &handle));
    EXPECT_NE(nullptr, list.match(5));
}

TEST(TagList, every_short_sequence_agrees_with_the_naive_list) {
    // An operation and its argument in one digit: add tag 1 exactly or as wildcard, remove two
    // handles, sync right or stale, arrival of two tags, release.
    struct Digit {
        unsigned operation, a, b;
    };
    constexpr Digit kDigits[] = {{0, 1, 0}, {0, 0, 3}, {2, 0, 0}, {2, 1, 0}, {3, 1, 0},
                                 {3, 0, 0}, {4, 1, 0}, {4, 2, 0}, {5, 0, 0}};
    constexpr unsigned kBase = std::size(kDigits), kLength = 6;
    unsigned sequences = 1;
    for (unsigned i = 0; i < kLength; ++i)
        sequences *= kBase;
    for (unsigned number = 0; number < sequences; ++number) {
        Both both(2);
        for (unsigned i = 0, rest = number; i < kLength; ++i, rest /= kBase) {
            const Digit& digit = kDigits[rest % kBase];
            both.step(digit.operation, digit.a, digit.b);
            ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "sequence " << number;
        }
    }
}

TEST(TagList, random_sequences_agree_with_the_naive_list) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        std::uniform_int_distribution<unsigned> any(0, 1 << 20);
        Both both(5);
        for (unsigned i = 0; i < 500; ++i) {
            const unsigned operation = any(random), a = any(random), b = any(random);
            both.step(operation, a, b);
            ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << ", step " << i;
        }
    }
}

}  // namespace
}  // namespace tagwire::vhca
