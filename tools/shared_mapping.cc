// SPDX-License-Identifier: BSD-3-Clause
#include "tools/shared_mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint64_t kIntMax = 0x7fffffff;

bool is_sealed_memory(int fd, std::size_t bytes) {
    struct stat status {};
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & kSeals) == kSeals && fstat(fd, &status) == 0 &&
           static_cast<std::size_t>(status.st_size) == bytes;
}

}  // namespace

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

SharedMapping::SharedMapping(int fd, std::size_t bytes) : fd_(fd), bytes_(bytes) {}

SharedMapping::SharedMapping(std::size_t bytes)
    : SharedMapping(memfd_create("tagwire-perf", MFD_CLOEXEC | MFD_ALLOW_SEALING), bytes) {
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd_, F_ADD_SEALS, kSeals) != 0) {
        throw Failure(
            text("cannot make %zu bytes of shared memory: %s", bytes, std::strerror(errno)));
    }
    map();
}

SharedMapping::~SharedMapping() {
    if (data_ != nullptr)
        munmap(data_, bytes_);
    if (fd_ >= 0)
        close(fd_);
}

void SharedMapping::map() {
    void* const address =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (address == MAP_FAILED) {
        throw Failure(
            text("cannot map %zu bytes of shared memory: %s", bytes_, std::strerror(errno)));
    }
    data_ = address;
}

Encoder SharedMapping::name() const {
    Encoder name;
    name.string(boot_id())
        .number(static_cast<std::uint64_t>(getpid()))
        .number(static_cast<std::uint64_t>(fd_));
    return name;
}

std::unique_ptr<SharedMapping> SharedMapping::open(Decoder name, std::size_t bytes) {
    const std::string boot = name.string(64);
    const std::uint64_t pid = name.number_up_to(kIntMax);
    const std::uint64_t fd_number = name.number_up_to(kIntMax);
    name.end();
    if (boot.empty() || boot != boot_id())
        return nullptr;
    const std::string path =
        text("/proc/%d/fd/%d", static_cast<int>(pid), static_cast<int>(fd_number));
    // The numbers come from the peer and may lead to anything: opening must neither block nor
    // acquire a terminal.
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return nullptr;
    std::unique_ptr<SharedMapping> mapping(new SharedMapping(fd, bytes));
    if (!is_sealed_memory(fd, bytes))
        return nullptr;
    mapping->map();
    return mapping;
}

}  // namespace tagwire::tools
