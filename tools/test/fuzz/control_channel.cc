// SPDX-License-Identifier: BSD-3-Clause
// The control channel of `tagwire perf`: frames on a stream socket, and the messages in them.
#include <sys/socket.h>
#include <unistd.h>

#include "cli/failure.hpp"
#include "input.hpp"
#include "target.hpp"
#include "tools/channel.hpp"
#include "tools/job.hpp"

namespace tagwire::fuzz::control_channel_fuzz {
namespace {

void decode(tools::Message message) {
    switch (message.type) {
        case tools::MessageType::kSetup:
            tools::Setup::decode(tools::Decoder(std::move(message.payload)));
            return;
        case tools::MessageType::kJob:
            tools::Job::decode(tools::Decoder(std::move(message.payload)));
            return;
        case tools::MessageType::kDone:
            tools::Outcome::decode(tools::Decoder(std::move(message.payload)));
            return;
        default: {
            tools::Decoder decoder(std::move(message.payload));
            static_cast<void>(decoder.string(100));
            static_cast<void>(decoder.blob(4096));
            decoder.end();
        }
    }
}

// A payload needs a checksum to get in, which no fuzzer guesses: half of the inputs are payloads.
void one_payload(Input& input) {
    const auto last = static_cast<std::uint8_t>(tools::MessageType::kLast);
    const auto type = static_cast<tools::MessageType>(1 + input.take<std::uint8_t>() % last);
    const auto rest = input.rest();
    const auto* first = reinterpret_cast<const std::uint8_t*>(rest.data());
    decode({type, tools::Bytes(first, first + rest.size())});
}

void a_stream(std::span<const std::byte> bytes) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const std::size_t most =
        std::min<std::size_t>(bytes.size(), 65536);  // fits the socket's buffer
    require(most == 0 || send(ends[0], bytes.data(), most, MSG_NOSIGNAL) > 0);
    shutdown(ends[0], SHUT_WR);
    tools::Channel channel(ends[1]);
    try {
        for (;;)
            decode(channel.receive(1000));
    } catch (const tools::Failure&) {
        close(ends[0]);
        throw;
    }
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    try {
        if (input.take<std::uint8_t>() % 2 == 0)
            one_payload(input);
        else
            a_stream(input.rest());
    } catch (const tools::Failure&) {
        // The only way in which bad bytes may end.
    }
}

}  // namespace

extern const Target kTarget{"control_channel", nullptr, run_input};

}  // namespace tagwire::fuzz::control_channel_fuzz
