// SPDX-License-Identifier: BSD-3-Clause
// The C++ wrapper over the public library. Cases that need a transport run over the first one with
// the capability.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <tagwire.hpp>
#include <vector>

#include "common/skip.hpp"

namespace {

std::span<const std::byte> bytes(const char* text) {
    return std::as_bytes(std::span(text, std::strlen(text)));
}

TEST(Wrapper, lists_what_can_be_opened) {
    for (const tagwire::Resource& resource : tagwire::resources()) {
        EXPECT_FALSE(resource.tl_name.empty());
        EXPECT_EQ(tagwire::find_resource(resource.tl_name)->tl_name, resource.tl_name);
    }
    EXPECT_FALSE(tagwire::find_resource("no such transport").has_value());
}

TEST(Wrapper, set_up_errors_are_exceptions_with_the_status) {
    try {
        tagwire::MemoryDomain md(tagwire::Component(nullptr), "none");
        FAIL() << "opened";
    } catch (const tagwire::Error& error) {
        EXPECT_EQ(error.status(), UCS_ERR_INVALID_PARAM);
        EXPECT_NE(std::string(error.what()).find("uct_md_config_read"), std::string::npos);
    }
}

TEST(Wrapper, completions_count_and_can_be_used_again) {
    ucs_status_t seen = UCS_INPROGRESS;
    tagwire::Completion completion([&seen](ucs_status_t status) { seen = status; }, 2);
    uct_completion_update_status(&completion, UCS_ERR_CANCELED);
    if ((completion.count -= 2) == 0)
        completion.func(&completion);
    EXPECT_EQ(seen, UCS_ERR_CANCELED);
    completion.rearm();
    EXPECT_EQ(completion.count, 1);
    EXPECT_EQ(completion.status, UCS_OK);
}

struct OverSm : ::testing::Test {
    void SetUp() override {
        resource = tagwire::find_resource("sm");
        if (!resource)
            TW_SKIP("no transport sm");
        md.emplace(resource->component, resource->md_name);
        worker.emplace();
        tagwire::InterfaceOptions options(resource->tl_name, resource->dev_name);
        options.unexpected_handlers(on_eager, on_rndv).rx_headroom(8);
        iface.emplace(*md, *worker, options);
        self.emplace(*iface, iface->address());
    }

    template <class Condition>
    void progress_until(Condition condition) {
        for (int step = 0; step < 1000000 && !condition(); ++step)
            worker->progress();
        ASSERT_TRUE(condition());
    }

    int unexpected = 0;
    std::function<ucs_status_t(void*, std::size_t, unsigned, uct_tag_t, std::uint64_t, void**)>
        on_eager = [this](auto...) {
            ++unexpected;
            return UCS_OK;
        };
    std::function<ucs_status_t(unsigned, uct_tag_t, const void*, unsigned, std::uint64_t,
                               std::size_t, const void*)>
        on_rndv = [](auto...) { return UCS_OK; };
    std::optional<tagwire::Resource> resource;
    std::optional<tagwire::MemoryDomain> md;
    std::optional<tagwire::Worker> worker;
    std::optional<tagwire::Interface> iface;
    std::optional<tagwire::Endpoint> self;
};

TEST_F(OverSm, active_messages_reach_a_callable) {
    std::string text;
    auto handler = [&text](std::span<std::byte> data, unsigned) {
        text.assign(reinterpret_cast<const char*>(data.data()), data.size());
        return UCS_OK;
    };
    iface->set_am_handler(3, handler);
    const auto pack = [](void* dest) -> std::size_t {
        std::memcpy(dest, "packed", 6);
        return 6;
    };
    ASSERT_EQ(self->am_bcopy(3, pack), 6);
    progress_until([&] { return text == "packed"; });
}

TEST_F(OverSm, tagged_messages_match_posted_receives) {
    std::optional<tagwire::TagResult> result;
    tagwire::TagReceive receive([&](const tagwire::TagResult& got) { result = got; },
                                [](const tagwire::TagRequest&) {});
    std::vector<std::byte> buffer(64);
    ASSERT_EQ(iface->tag_recv(7, UINT64_MAX, buffer, receive), UCS_OK);
    ASSERT_EQ(self->tag_eager_short(8, bytes("other")), UCS_OK);
    ASSERT_EQ(self->tag_eager_short(7, bytes("mine")), UCS_OK);
    progress_until([&] { return result.has_value() && unexpected == 1; });
    EXPECT_EQ(result->tag, 7u);
    EXPECT_EQ(result->length, 4u);
    EXPECT_EQ(result->status, UCS_OK);
    const void* data = result->inline_data != nullptr ? result->inline_data : buffer.data();
    EXPECT_EQ(std::memcmp(data, "mine", 4), 0);
}

TEST_F(OverSm, remote_keys_reach_allocated_memory) {
    const tagwire::Memory memory = md->allocate(4096);
    const tagwire::RemoteKey key(resource->component, md->pack_key(memory.memh()));
    // No resource until the descriptor of the memory has crossed.
    progress_until(
        [&] { return self->put_short(bytes("into memory"), memory.address(), key) == UCS_OK; });
    progress_until([&] { return self->flush() == UCS_OK; });
    EXPECT_EQ(std::memcmp(memory.bytes().data(), "into memory", 11), 0);
}

TEST_F(OverSm, facts_and_counters_are_readable) {
    int facts = 0;
    iface->describe([&facts](const char*, const char*) { ++facts; });
    self->describe([&facts](const char*, const char*) { ++facts; });
    EXPECT_GT(facts, 0);
    resource->component.describe([](const char* key, const char* value) {
        EXPECT_STRNE(key, "");
        EXPECT_STRNE(value, "");
    });
    EXPECT_FALSE(iface->counters().empty());
    EXPECT_FALSE(iface->unreachable_because(iface->address()).has_value());
}

}  // namespace
