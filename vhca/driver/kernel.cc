// SPDX-License-Identifier: BSD-3-Clause
// Opening what the device nodes name.
#include "vhca/driver/kernel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "ucs/sys/shm.hpp"

namespace tagwire::vhca::driver {

namespace {

int open_device(unsigned index) {
    ucs::UniqueFd shown;
    const std::string name = "uverbs" + std::to_string(index);
    if (ucs::memfd_create_sealed(name.c_str(), kDoorbellBytes, &shown) != UCS_OK) {
        errno = errno == EMFILE || errno == ENFILE ? errno : ENOMEM;
        return -1;
    }
    ucs::UniqueFd doorbells(::fcntl(shown.get(), F_DUPFD_CLOEXEC, 0));
    if (!doorbells)
        return -1;
    std::shared_ptr<OpenFile> file = open_uverbs(index, std::move(doorbells));
    if (file == nullptr)
        return -1;
    if (!add_file(shown.get(), std::move(file))) {
        errno = EMFILE;
        return -1;
    }
    return shown.release();
}

}  // namespace
}  // namespace tagwire::vhca::driver

namespace tagwire::vhca::files {

int open_node(const DeviceNode& node, int flags) {
    if (node.kind == DeviceNode::Kind::kUverbs)
        return driver::open_device(node.index);
    int fd = -1;
    std::shared_ptr<OpenFile> file = driver::open_rdma_cm(flags, &fd);
    if (file == nullptr)
        return -1;
    ucs::UniqueFd shown(fd);
    if (!add_file(shown.get(), std::move(file))) {
        errno = EMFILE;
        return -1;
    }
    return shown.release();
}

}  // namespace tagwire::vhca::files
