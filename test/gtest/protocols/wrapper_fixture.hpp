// SPDX-License-Identifier: BSD-3-Clause
// The C++ wrapper of the messaging layer, over shared memory: a worker that sends to itself.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <tagwire_msg.hpp>
#include <vector>

namespace tagwire::test {

inline std::span<const std::byte> text_bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

class MsgWrapper : public ::testing::Test {
  protected:
    /// Progress until it holds.
    void run_until(auto condition) {
        bool holds = condition();
        for (int i = 0; i < 1000000 && !holds; ++i) {
            worker_.progress();
            holds = condition();
        }
        ASSERT_TRUE(holds);
    }
    std::string_view text(std::size_t length) const {
        return {reinterpret_cast<const char*>(buffer_.data()), length};
    }
    bool has_message() {
        tw_message_info_t found{};
        return worker_.tag_probe(0, ~std::uint64_t{0}, found) == TW_OK ||
               worker_.probe(found) == TW_OK;
    }

    msg::Context context_{"sm"};
    msg::Worker worker_{context_};
    msg::Endpoint self_{worker_, worker_.address()};
    std::vector<std::byte> buffer_ = std::vector<std::byte>(64);
};

}  // namespace tagwire::test
