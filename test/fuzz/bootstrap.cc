// SPDX-License-Identifier: BSD-3-Clause
// A file of a job that meets in a directory, as another process of the user may write it.
#include <cstdlib>

#include "bootstrap/frame.hpp"
#include "input.hpp"
#include "target.hpp"

namespace tagwire::fuzz::bootstrap_fuzz {
namespace {

void check(const bootstrap::Frame& frame) {
    const auto again = bootstrap::decode(bootstrap::encode(frame));
    require(again && again->kind == frame.kind && again->payload_bytes() == frame.payload_bytes());
    require(frame.size >= 1 && frame.bytes <= bootstrap::kShareBytesMax);
}

void prepare() {
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    const auto frame = bootstrap::decode_whole(bytes);
    if (!frame)
        return;
    check(*frame);
    const auto payload = bytes.subspan(bootstrap::kFrameBytes);
    require(payload.size() == frame->payload_bytes());
    require(bootstrap::text_of(payload).size() <= bootstrap::kTextBytesMax);
    require(!bootstrap::reason_of(payload).empty());
}

}  // namespace

extern const Target kTarget{"bootstrap", prepare, run_input};

}  // namespace tagwire::fuzz::bootstrap_fuzz
