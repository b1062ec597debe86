// SPDX-License-Identifier: BSD-3-Clause
//
// System resources of the transport: which descriptors of a peer are refused, which sockets a sweep
// removes, and how the lack of descriptors is reported.

#include "ucs/sys/shm.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/skip.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/sys/unix_socket.hpp"

namespace tagwire::ucs {
namespace {

using testing::ExitedWithCode;
using testing::HasSubstr;

constexpr std::size_t kBytes = 16384;
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd make_memfd(std::size_t bytes, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

// ---- Sealed memory -----------------------------------------------------------------------------

TEST(SealedMemory, of_our_own_making_is_accepted_at_its_size_only) {
    UniqueFd fd;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes), UCS_OK);
    EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes - 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes + 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(memfd_check_sealed(fd.get(), 0), UCS_ERR_INVALID_PARAM);
}

TEST(SealedMemory, of_our_own_making_cannot_shrink_grow_or_be_unsealed) {
    UniqueFd fd;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    EXPECT_NE(::ftruncate(fd.get(), 0), 0);
    EXPECT_NE(::ftruncate(fd.get(), 2 * kBytes), 0);
    EXPECT_NE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SealedMemory, is_refused_when_a_seal_is_missing) {
    for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
        const UniqueFd fd = make_memfd(kBytes, kAllSeals & ~missing);
        EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes), UCS_ERR_INVALID_PARAM) << missing;
    }
    const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(memfd_check_sealed(fd.get(), 0), UCS_ERR_INVALID_PARAM);
}

TEST(SealedMemory, is_refused_when_it_cannot_be_written) {
    for (const int extra : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
        const UniqueFd fd = make_memfd(kBytes, kAllSeals | extra);
        EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes), UCS_ERR_INVALID_PARAM) << extra;
    }
}

TEST(SealedMemory, is_refused_when_it_is_no_memfd) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd reader(ends[0]), writer(ends[1]);
    EXPECT_EQ(memfd_check_sealed(reader.get(), kBytes), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(memfd_check_sealed(-1, kBytes), UCS_ERR_INVALID_PARAM);

    char path[] = "sealed_memory_test_XXXXXX";
    const UniqueFd file(::mkstemp(path));
    ASSERT_TRUE(file);
    ::unlink(path);
    ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
    EXPECT_EQ(memfd_check_sealed(file.get(), kBytes), UCS_ERR_INVALID_PARAM);
}

// Its pages come from a pool that may be empty when they are touched.
TEST(SealedMemory, of_huge_pages_is_refused) {
    constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
    const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!fd)
        TW_SKIP("this kernel makes no memfd of huge pages");
    ASSERT_EQ(::ftruncate(fd.get(), kHugeBytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kAllSeals), 0);
    EXPECT_EQ(memfd_check_sealed(fd.get(), kHugeBytes), UCS_ERR_INVALID_PARAM);
}

TEST(SealedMemory, reads_as_zero_after_it_was_given_back) {
    UniqueFd fd;
    Mapping mapping;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    ASSERT_EQ(map_shared(fd.get(), kBytes, &mapping), UCS_OK);
    mapping.base()[0] = mapping.base()[kBytes - 1] = std::byte{1};
    ASSERT_EQ(memfd_punch_hole(fd.get(), 0, page_bytes()), UCS_OK);
    EXPECT_EQ(mapping.base()[0], std::byte{0});
    EXPECT_EQ(mapping.base()[kBytes - 1], std::byte{1});
}

// Receivers of one sender share its memory: none may write what another reads.
TEST(SealedMemory, for_readers_is_written_by_its_maker_alone) {
    UniqueFd fd;
    Mapping own, theirs;
    ASSERT_EQ(memfd_create_for_readers("test", kBytes, &own, &fd), UCS_OK);
    EXPECT_EQ(memfd_check_for_readers(fd.get(), kBytes), UCS_OK);
    own.base()[5] = std::byte{7};
    ASSERT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), std::size_t{1} << 20, &theirs),
              UCS_OK);
    EXPECT_EQ(theirs.base()[5], std::byte{7});
    if ((::fcntl(fd.get(), F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0)
        TW_SKIP("this kernel has no F_SEAL_FUTURE_WRITE");
    EXPECT_EQ(map_shared(fd.get(), kBytes, &theirs), UCS_ERR_NO_MEMORY);
    EXPECT_EQ(memfd_check_sealed(fd.get(), kBytes), UCS_ERR_INVALID_PARAM)
        << "what must be writable here is not this";
}

TEST(SealedMemory, behind_a_header_leads_to_it_by_masking) {
    constexpr std::size_t kAlignment = std::size_t{1} << 20;
    UniqueFd fd;
    Mapping behind, plain;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    ASSERT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), kAlignment, &behind), UCS_OK);
    ASSERT_EQ(map_shared(fd.get(), kBytes, &plain), UCS_OK);
    const auto last = reinterpret_cast<std::uintptr_t>(behind.base() + kBytes - 1);
    EXPECT_EQ(last & ~(kAlignment - 1), reinterpret_cast<std::uintptr_t>(behind.front()));
    plain.base()[kBytes - 1] = std::byte{7};
    behind.front()[0] = std::byte{9};
    EXPECT_EQ(behind.base()[kBytes - 1], std::byte{7});
    EXPECT_EQ(plain.base()[0], std::byte{0}) << "the front is private";
    EXPECT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), kBytes, &behind),
              UCS_ERR_INVALID_PARAM);
}

/// Address space of this process.
std::size_t mapped_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    statm >> pages;
    return pages * page_bytes();
}

// The search for an aligned place takes more address space than the mapping, and three calls.
TEST(SealedMemory, behind_a_header_takes_the_place_that_another_one_left) {
    constexpr std::size_t kAlignment = std::size_t{1} << 30;
    constexpr std::size_t kRoom = std::size_t{64} << 20;
    UniqueFd fd;
    Mapping behind;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    ASSERT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), kAlignment, &behind), UCS_OK);
    std::byte* const place = behind.front();
    place[0] = std::byte{9};
    behind = Mapping();

    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    const rlimit tight{mapped_bytes() + kRoom, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
    const ucs_status_t status =
        map_behind_header(fd.get(), kBytes, page_bytes(), kAlignment, &behind);
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
    ASSERT_EQ(status, UCS_OK);
    EXPECT_EQ(behind.front(), place);
    EXPECT_EQ(place[0], std::byte{0}) << "nothing is left of what was there";
    behind.front()[0] = std::byte{1};

    behind = Mapping();
    ASSERT_EQ(map_behind_header(-1, kBytes, page_bytes(), kAlignment, &behind), UCS_OK);
    EXPECT_EQ(behind.front(), place);
    behind.base()[kBytes - 1] = std::byte{1};  // private, and writable
}

TEST(SealedMemory, behind_a_header_leaves_a_place_to_what_has_come_there) {
    constexpr std::size_t kAlignment = std::size_t{1} << 20;
    UniqueFd fd;
    ASSERT_EQ(memfd_create_sealed("test", kBytes, &fd), UCS_OK);
    for (const std::size_t offset : {std::size_t{0}, page_bytes()}) {  // the front, behind it
        Mapping behind;
        ASSERT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), kAlignment, &behind), UCS_OK);
        std::byte* const place = behind.front();
        behind = Mapping();
        void* const other = ::mmap(place + offset, page_bytes(), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        ASSERT_EQ(other, place + offset);
        *static_cast<std::byte*>(other) = std::byte{5};
        ASSERT_EQ(map_behind_header(fd.get(), kBytes, page_bytes(), kAlignment, &behind), UCS_OK);
        EXPECT_NE(behind.front(), place);
        EXPECT_EQ(*static_cast<std::byte*>(other), std::byte{5});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(behind.front()) % kAlignment, 0U);
        EXPECT_EQ(::munmap(other, page_bytes()), 0);
    }
}

// ---- Sockets in a directory --------------------------------------------------------------------

class SocketDirectory : public testing::Test {
  protected:
    SocketDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "sockets_XXXXXX").string();
        directory = ::mkdtemp(name.data());
    }
    ~SocketDirectory() override { std::filesystem::remove_all(directory); }

    UniqueFd listen(const std::string& name) const {
        UniqueFd fd;
        EXPECT_EQ(unix_listen({directory, name}, &fd), UCS_OK);
        return fd;
    }
    /** As if it had been made two minutes ago. */
    void age(const std::string& name) const {
        timespec then[2]{};
        then[0].tv_sec = then[1].tv_sec = std::time(nullptr) - 120;
        EXPECT_EQ(
            ::utimensat(AT_FDCWD, (directory + "/" + name).c_str(), then, AT_SYMLINK_NOFOLLOW), 0);
    }
    bool exists(const std::string& name) const {
        return std::filesystem::exists(std::filesystem::path(directory) / name);
    }

    std::string directory;
};

TEST_F(SocketDirectory, sweep_removes_dead_sockets_only) {
    const UniqueFd living = listen("prefix-living");
    listen("prefix-dead");
    listen("prefix-dead-too");
    listen("prefix-dead-but-new");
    listen("other-dead");
    listen(".prefix-dead-early");
    listen(".prefix-dead-early-but-new");
    std::ofstream(directory + "/prefix-file") << "not a socket";
    ASSERT_EQ(::symlink((directory + "/other-dead").c_str(), (directory + "/prefix-link").c_str()),
              0);
    for (const char* name : {"prefix-living", "prefix-dead", "prefix-dead-too", "other-dead",
                             ".prefix-dead-early", "prefix-file", "prefix-link"})
        age(name);

    EXPECT_EQ(unix_sweep_directory(directory, "prefix-"), 3U);
    EXPECT_FALSE(exists(".prefix-dead-early"));
    EXPECT_TRUE(exists(".prefix-dead-early-but-new"));
    EXPECT_TRUE(exists("prefix-dead-but-new"));
    EXPECT_FALSE(exists("prefix-dead"));
    EXPECT_FALSE(exists("prefix-dead-too"));
    EXPECT_TRUE(exists("prefix-living"));
    EXPECT_TRUE(exists("other-dead"));
    EXPECT_TRUE(exists("prefix-file"));
    EXPECT_TRUE(exists("prefix-link"));
    EXPECT_EQ(unix_sweep_directory(directory, "prefix-"), 0U);
    UniqueFd fd;
    EXPECT_EQ(unix_connect({directory, "prefix-living"}, &fd), UCS_OK);
}

TEST_F(SocketDirectory, sweep_of_a_directory_that_is_not_there_removes_nothing) {
    EXPECT_EQ(unix_sweep_directory(directory + "/none", ""), 0U);
}

TEST_F(SocketDirectory, a_name_is_taken_once_and_too_long_a_path_is_refused) {
    const UniqueFd first = listen("name");
    UniqueFd fd;
    EXPECT_EQ(unix_listen({directory, "name"}, &fd), UCS_ERR_ALREADY_EXISTS);
    EXPECT_EQ(unix_listen({directory, std::string(200, 'x')}, &fd), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(unix_connect({directory, "nobody"}, &fd), UCS_ERR_UNREACHABLE);
    EXPECT_FALSE(fd);
    unix_unlink({directory, "name"});
    EXPECT_FALSE(exists("name"));
}

TEST_F(SocketDirectory, must_be_a_directory_that_we_can_write_to) {
    EXPECT_EQ(unix_check_directory(directory), UCS_OK);
    EXPECT_EQ(unix_check_directory(directory + "/none"), UCS_ERR_INVALID_PARAM);
    std::ofstream(directory + "/file") << "x";
    EXPECT_EQ(unix_check_directory(directory + "/file"), UCS_ERR_INVALID_PARAM);
}

// ---- Packets -----------------------------------------------------------------------------------

class Packets : public testing::Test {
  protected:
    void SetUp() override {
        int ends[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
        a.reset(ends[0]);
        b.reset(ends[1]);
    }
    UniqueFd a, b;
    std::array<std::byte, 32> buffer{};
    ReceivedMessage message;
};

TEST_F(Packets, keep_their_borders_and_descriptors) {
    const std::array<std::byte, 8> text{std::byte{1}};
    const int fds[] = {a.get(), b.get()};
    ASSERT_EQ(unix_send(a.get(), text, fds, 2), UCS_OK);
    ASSERT_EQ(unix_send(a.get(), std::span(text).first(3), nullptr, 0), UCS_OK);
    ASSERT_EQ(unix_receive(b.get(), buffer, &message), UCS_OK);
    EXPECT_EQ(message.bytes, 8U);
    EXPECT_EQ(message.fd_count, 2U);
    ASSERT_EQ(unix_receive(b.get(), buffer, &message), UCS_OK);
    EXPECT_EQ(message.bytes, 3U);
    EXPECT_EQ(message.fd_count, 0U);
    EXPECT_EQ(unix_receive(b.get(), buffer, &message), UCS_ERR_NO_PROGRESS);
}

TEST_F(Packets, that_are_cut_are_refused_and_keep_no_descriptor) {
    const std::array<std::byte, 33> text{};
    const int fds[] = {a.get()};
    ASSERT_EQ(unix_send(a.get(), text, fds, 1), UCS_OK);
    EXPECT_EQ(unix_receive(b.get(), buffer, &message), UCS_ERR_INVALID_PARAM);
    EXPECT_FALSE(message.fds[0]);
}

TEST_F(Packets, with_descriptors_for_which_there_is_no_room_name_the_limit) {
    const int fds[] = {a.get(), b.get()};
    ASSERT_EQ(unix_send(a.get(), std::span(buffer).first(3), fds, 2), UCS_OK);
    const auto receive = [this] {
        const UniqueFd lowest(::dup(0));
        constexpr rlim_t kEnough = 4096;
        const rlimit limit{static_cast<rlim_t>(lowest.get()) + 1, kEnough};
        const bool is_limited = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
        const ucs_status_t status = unix_receive(b.get(), buffer, &message);
        // A sanitizer takes descriptors at the end, too.
        const rlimit enough{kEnough, kEnough};
        ::setrlimit(RLIMIT_NOFILE, &enough);
        std::exit(is_limited && status == UCS_ERR_EXCEEDS_LIMIT ? 0 : 1);
    };
    EXPECT_EXIT(receive(), ExitedWithCode(0), HasSubstr("ulimit -n"));
}

TEST_F(Packets, of_a_peer_that_is_gone_end_in_a_reset) {
    a.reset();
    EXPECT_EQ(unix_receive(b.get(), buffer, &message), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(unix_send(b.get(), buffer, nullptr, 0), UCS_ERR_CONNECTION_RESET);
}

// ---- Limits ------------------------------------------------------------------------------------

TEST(FdError, names_the_limit_that_was_met) {
    const auto report = [](int error) {
        std::exit(fd_error("accept4", error) == UCS_ERR_EXCEEDS_LIMIT ? 0 : 1);
    };
    EXPECT_EXIT(report(EMFILE), ExitedWithCode(0), HasSubstr("ulimit -n"));
    EXPECT_EXIT(report(ENFILE), ExitedWithCode(0), HasSubstr("fs.file-max"));
}

TEST(FdError, names_the_call_and_the_reason) {
    EXPECT_EXIT(std::exit(fd_error("some_call", ENOMEM) == UCS_ERR_NO_MEMORY ? 0 : 1),
                ExitedWithCode(0), HasSubstr("some_call failed: Cannot allocate memory"));
    EXPECT_EQ(fd_error("some_call", EACCES), UCS_ERR_REJECTED);
    EXPECT_EQ(fd_error("some_call", EPERM), UCS_ERR_REJECTED);
    EXPECT_EQ(fd_error("some_call", EIO), UCS_ERR_IO_ERROR);
}

}  // namespace
}  // namespace tagwire::ucs
