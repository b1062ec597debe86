// SPDX-License-Identifier: BSD-3-Clause
// The file behind /dev/infiniband/rdma_cm.
#include <cerrno>

#include "vhca/cm/engine_network.hpp"
#include "vhca/driver/kernel.hpp"

namespace tagwire::vhca::driver {
namespace {

class RdmaCmFile final : public OpenFile {
  public:
    explicit RdmaCmFile(std::unique_ptr<cm::Channel> channel) : channel_(std::move(channel)) {}
    std::int64_t write(const void* bytes, std::size_t count) override {
        std::shared_ptr<RdmaCmFile> other;  // ends after the command: that takes the same lock
        return channel_->write(bytes, count, [&other](int fd) -> cm::Channel* {
            other = std::dynamic_pointer_cast<RdmaCmFile>(files::find_file(fd));
            return other != nullptr ? other->channel_.get() : nullptr;
        });
    }
    int ioctl(unsigned long /*request*/, void* /*argument*/) override {
        errno = ENOTTY;
        return -1;
    }
    [[nodiscard]] dev_t device_number() const override {
        return files::device_number_of({.kind = DeviceNode::Kind::kRdmaCm, .index = 0});
    }

  private:
    std::unique_ptr<cm::Channel> channel_;
};

}  // namespace

std::shared_ptr<OpenFile> open_rdma_cm(int flags, int* fd_p) {
    Engine* engine = nullptr;
    if (driver_device_count() == 0) {
        errno = ENOENT;
        return nullptr;
    }
    if (const int error = attach_driver(0, &engine)) {
        errno = error;
        return nullptr;
    }
    auto channel = cm::Channel::open(cm::EngineNetwork::of(*engine).manager(), flags);
    if (channel == nullptr)
        return nullptr;
    *fd_p = channel->program_fd();
    return std::make_shared<RdmaCmFile>(std::move(channel));
}

}  // namespace tagwire::vhca::driver
