// SPDX-License-Identifier: BSD-3-Clause
// What arrives at rank 0's port from anybody, and what lies in files of a shared directory.
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/tcp_stream.hpp"
#include "input.hpp"

namespace tagwire::fuzz {
namespace {

constexpr std::uint64_t kLimit = 1000;

void check(const bootstrap::Frame& frame) {
    const auto again = bootstrap::decode(bootstrap::encode(frame));
    require(again && again->kind == frame.kind && again->payload_bytes() == frame.payload_bytes());
    require(frame.size >= 1 && frame.bytes <= bootstrap::kShareBytesMax);
}

void a_file(std::span<const std::byte> bytes) {
    const auto frame = bootstrap::decode_whole(bytes);
    if (!frame)
        return;
    check(*frame);
    const auto payload = bytes.subspan(bootstrap::kFrameBytes);
    require(payload.size() == frame->payload_bytes());
    require(bootstrap::text_of(payload).size() <= bootstrap::kTextBytesMax);
}

void a_connection(std::span<const std::byte> bytes) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    const std::size_t most = std::min<std::size_t>(bytes.size(), 65536);
    require(most == 0 || ::send(ends[0], bytes.data(), most, MSG_NOSIGNAL) > 0);
    ::close(ends[0]);
    bootstrap::Stream stream{ucs::UniqueFd(ends[1])};
    while (stream.receive(kLimit) == bootstrap::Arrival::kFrame) {
        check(stream.frame());
        require(stream.payload().size() == stream.frame().payload_bytes());
        require(stream.payload().size() <= kLimit);
    }
}

}  // namespace
}  // namespace tagwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tagwire::fuzz::Input input(data, size);
    if (input.take<std::uint8_t>() % 2 == 0)
        tagwire::fuzz::a_file(input.rest());
    else
        tagwire::fuzz::a_connection(input.rest());
    return 0;
}
