// SPDX-License-Identifier: BSD-3-Clause
// The sender of a rendezvous executes another program before its message is matched. Its process,
// its pid and its descriptors that are not close-on-exec live on; its memory is another one, with
// other data at the same address. A separate program, because it forks before anything of the
// library runs.
#include <poll.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr const char* kOther = "TAGWIRE_TEST_OTHER_PROGRAM";
constexpr std::size_t kPlaceBytes = std::size_t{1} << 20;
constexpr std::uintptr_t kPlace = 0x200000000000;
constexpr int kOtherByte = 'B';

std::byte* map_place() {
    void* const at = ::mmap(reinterpret_cast<void*>(kPlace), kPlaceBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

/// The other program is this one in another environment.
[[gnu::constructor]] void be_other_program() {
    const char* const fd = std::getenv(kOther);
    if (fd == nullptr)
        return;
    std::byte* const place = map_place();
    if (place != nullptr)
        std::memset(place, kOtherByte, kPlaceBytes);
    if (place == nullptr || ::write(std::atoi(fd), "x", 1) != 1)
        _exit(1);
    for (;;)
        ::pause();
}

class MsgExec : public ::testing::TestWithParam<std::size_t> {
  protected:
    /// Sends a rendezvous; executes the other program when it is told to.
    static Victim make_victim() {
        return Victim([](int to_parent, int from_parent) {
            DoomedNode doomed(to_parent, from_parent, kill_transports());
            std::byte* const data = map_place();
            if (data == nullptr)
                _exit(6);
            std::memset(data, 'A', kPlaceBytes);
            if (tw_tag_send(doomed.ep(), data, GetParam(), 2, nullptr, nullptr) != TW_INPROGRESS)
                _exit(7);
            pollfd told{from_parent, POLLIN, 0};
            while (::poll(&told, 1, 0) == 0)
                doomed.node().progress();
            ::setenv(kOther, std::to_string(to_parent).c_str(), 1);
            ::execl("/proc/self/exe", "other", nullptr);
            _exit(8);
        });
    }
};

TEST_P(MsgExec, no_bytes_of_another_program_of_the_sender_are_received) {
    const Victim victim = make_victim();
    LivingNode living;
    Node& node = *living;
    ASSERT_NE(living.meet(victim), nullptr);
    while (node.counter("rx_unexpected") == 0)
        node.progress();
    // Both sides are ready: the data is read rather than asked for.
    for (int i = 0; i < 100000; ++i)
        node.progress();
    victim.tell();
    victim.await();
    Bytes buffer(GetParam());
    tw_op_t op{};
    op.flags = TW_OP_COMPLETION;
    ASSERT_EQ(tw_tag_recv(node.worker(), buffer.data(), buffer.size(), 2, 0, &op, nullptr),
              TW_INPROGRESS);
    while (node.done.empty())
        node.progress();
    EXPECT_EQ(node.done[0].status, TW_ERR_CONNECTION_RESET);
    victim.kill();
}

// Lengths that one side copies, and that both sides do.
INSTANTIATE_TEST_SUITE_P(Lengths, MsgExec, ::testing::Values(2048, 16384, 65536, 300000),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace tagwire::test
