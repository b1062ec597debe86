// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tagwire::ucs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Item {
    int value = 0;
    QueueLink<Item> queue_link;
    ListLink<Item> list_link;
};
using ItemQueue = Queue<Item, &Item::queue_link>;
using ItemList = List<Item, &Item::list_link>;

template <class Container>
std::vector<int> values(const Container& container) {
    std::vector<int> found;
    for (Item* item = container.front(); item != nullptr; item = Container::next(*item))
        found.push_back(item->value);
    EXPECT_EQ(found.size(), container.size());
    return found;
}

class IntrusiveContainers : public ::testing::Test {
  protected:
    IntrusiveContainers() {
        for (int i = 0; i < 5; ++i)
            items_[i].value = i;
    }
    Item items_[5];
    ItemQueue queue_;
    ItemList list_;
};

TEST_F(IntrusiveContainers, queue_is_first_in_first_out) {
    queue_.push_back(items_[0]);
    queue_.push_back(items_[1]);
    EXPECT_EQ(queue_.pop_front(), &items_[0]);
    queue_.push_back(items_[2]);
    EXPECT_EQ(queue_.pop_front(), &items_[1]);
    EXPECT_EQ(queue_.pop_front(), &items_[2]);
    EXPECT_EQ(queue_.pop_front(), nullptr);
    EXPECT_TRUE(queue_.empty());
}

TEST_F(IntrusiveContainers, queue_takes_back_what_was_popped) {
    queue_.push_back(items_[1]);
    queue_.push_front(items_[0]);
    EXPECT_THAT(values(queue_), ElementsAre(0, 1));
    queue_.pop_front();
    queue_.pop_front();
    queue_.push_front(items_[3]);
    EXPECT_EQ(queue_.back(), &items_[3]);
}

TEST_F(IntrusiveContainers, queue_remove_if_keeps_the_others_in_order) {
    for (Item& item : items_)
        queue_.push_back(item);
    EXPECT_EQ(queue_.remove_if([](Item& item) { return item.value % 2 == 0; }), 3U);
    EXPECT_THAT(values(queue_), ElementsAre(1, 3));
    EXPECT_EQ(queue_.back(), &items_[3]);
    EXPECT_EQ(queue_.remove_if([](Item&) { return true; }), 2U);
    queue_.push_back(items_[4]);
    EXPECT_THAT(values(queue_), ElementsAre(4));
}

TEST_F(IntrusiveContainers, queue_remove_if_may_destroy_the_element) {
    for (int i = 0; i < 3; ++i) {
        auto* item = new Item;
        item->value = i;
        queue_.push_back(*item);
    }
    queue_.remove_if([](Item& item) {
        delete &item;
        return true;
    });
    EXPECT_TRUE(queue_.empty());
}

TEST_F(IntrusiveContainers, list_erases_from_anywhere) {
    for (Item& item : items_)
        list_.push_back(item);
    list_.erase(items_[2]);
    list_.erase(items_[0]);
    list_.erase(items_[4]);
    EXPECT_THAT(values(list_), ElementsAre(1, 3));
    EXPECT_EQ(list_.front(), &items_[1]);
    EXPECT_EQ(list_.back(), &items_[3]);
    EXPECT_FALSE(ItemList::is_linked(items_[2]));
    EXPECT_TRUE(ItemList::is_linked(items_[1]));
}

TEST_F(IntrusiveContainers, list_links_backwards) {
    list_.push_front(items_[1]);
    list_.push_front(items_[0]);
    list_.push_back(items_[3]);
    list_.insert_before(items_[3], items_[2]);
    list_.insert_before(items_[0], items_[4]);
    EXPECT_THAT(values(list_), ElementsAre(4, 0, 1, 2, 3));
    EXPECT_EQ(ItemList::prev(items_[3]), &items_[2]);
    EXPECT_EQ(ItemList::prev(items_[4]), nullptr);
}

TEST_F(IntrusiveContainers, list_erased_element_can_come_back) {
    list_.push_back(items_[0]);
    list_.push_back(items_[1]);
    EXPECT_EQ(list_.pop_front(), &items_[0]);
    list_.push_back(items_[0]);
    EXPECT_THAT(values(list_), ElementsAre(1, 0));
}

TEST_F(IntrusiveContainers, list_for_each_may_erase_its_element) {
    for (Item& item : items_)
        list_.push_back(item);
    list_.for_each([this](Item& item) {
        if (item.value != 3)
            list_.erase(item);
    });
    EXPECT_THAT(values(list_), ElementsAre(3));
}

TEST_F(IntrusiveContainers, one_element_is_in_a_queue_and_a_list) {
    queue_.push_back(items_[0]);
    list_.push_back(items_[0]);
    queue_.pop_front();
    EXPECT_EQ(list_.pop_front(), &items_[0]);
    EXPECT_EQ(list_.pop_front(), nullptr);
}

}  // namespace
}  // namespace tagwire::ucs
