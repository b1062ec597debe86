// SPDX-License-Identifier: BSD-3-Clause
// Processes of a job meet and call, and hear the job and anybody: files of a shared directory, a
// stream, rank 0 during admission and in its calls, a rank before a false rank 0.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bootstrap/tcp.hpp"
#include "bootstrap_stage.hpp"
#include "target.hpp"

namespace tagwire::fuzz::bootstrap_fuzz {
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

constexpr int kCallsMax = 6;
constexpr std::uint64_t kTimeoutNs = 10'000'000'000;

bootstrap::Settings settings_of(Input& input, bool is_coordinator) {
    const auto choice = input.take<std::uint8_t>();
    bootstrap::Settings settings;
    settings.method = TW_BOOTSTRAP_TCP;
    settings.where = "here";
    settings.size = 2 + choice % 4;
    settings.rank = is_coordinator ? 0 : 1 + (choice >> 4) % (settings.size - 1);
    settings.job = "a-job";
    settings.timeout_ns = kTimeoutNs;
    if ((choice & 8) != 0)
        settings.secret = "what only the job knows";
    return settings;
}

void check(const bootstrap::Result& result) {
    require(result.ok() == result.why.empty());
    require(result.status <= UCS_OK && result.status > UCS_ERR_LAST);
}

/// Calls as a program makes them, until one fails.
void call(bootstrap::Method& method, BootstrapStage& stage, Input& input) {
    constexpr std::uint32_t kLengths[] = {0, 1, 8, 1000, 100'000};
    for (std::uint32_t number = 0; number < kCallsMax && !input.at_end(); ++number) {
        const auto choice = input.take<std::uint8_t>();
        const bool is_barrier = choice % 2 != 0;
        const std::uint32_t bytes = is_barrier ? 0 : kLengths[choice / 2 % std::size(kLengths)];
        const auto operation =
            is_barrier ? bootstrap::Operation::kBarrier : bootstrap::Operation::kAllgather;
        stage.call = {operation, number, bytes};
        const Bytes mine(bytes, std::byte{0xaa});
        Bytes all(std::size_t{bytes} * method.size());
        const bootstrap::Result result =
            method.allgather({operation, number, mine, all, bootstrap::Deadline(kTimeoutNs)});
        check(result);
        if (!result.ok())
            return;
        // A false rank 0 may make of it whatever it likes.
        require(method.rank() != 0 || std::equal(mine.begin(), mine.end(), all.begin()));
    }
}

void a_coordinator(Input& input) {
    const bootstrap::Settings settings = settings_of(input, true);
    BootstrapStage stage(input, settings, true);
    bootstrap::MethodPtr coordinator;
    {
        bootstrap::RankStreams ranks;
        bootstrap::TcpAdmission admission(settings, stage.take_listener());
        const bootstrap::Result result =
            admission.wait_for_all(bootstrap::Deadline(kTimeoutNs), &ranks);
        check(result);
        if (result.ok())
            coordinator =
                std::make_unique<bootstrap::TcpCoordinator>(settings.size, std::move(ranks));
    }
    for (std::uint32_t rank = 1; coordinator != nullptr && rank < settings.size; ++rank)
        require(settings.secret.empty() || stage.has_proven(rank));
    if (coordinator != nullptr)
        call(*coordinator, stage, input);
    coordinator.reset();
    stage.hear_all();
}

void a_rank(Input& input) {
    const bootstrap::Settings settings = settings_of(input, false);
    BootstrapStage stage(input, settings, false);
    {
        bootstrap::TcpRank rank(settings);
        const bootstrap::Result result =
            rank.join(stage.address(), bootstrap::Deadline(kTimeoutNs));
        check(result);
        require(!result.ok() || settings.secret.empty() || stage.has_proven(settings.rank));
        if (result.ok())
            call(rank, stage, input);
    }
    stage.hear_all();
}

void prepare() {
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    switch (input.take<std::uint8_t>() % 4) {
        case 0:
            a_file(input.rest());
            break;
        case 1:
            a_connection(input.rest());
            break;
        case 2:
            a_coordinator(input);
            break;
        default:
            a_rank(input);
            break;
    }
}

}  // namespace

extern const Target kTarget{"bootstrap", prepare, run_input};

}  // namespace tagwire::fuzz::bootstrap_fuzz
