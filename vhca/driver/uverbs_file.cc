// SPDX-License-Identifier: BSD-3-Clause
// The file behind /dev/infiniband/uverbsN.
#include "vhca/driver/doorbell_trap.hpp"
#include "vhca/driver/kernel.hpp"
#include "vhca/driver/objects.hpp"

namespace tagwire::vhca::driver {
namespace {

class UverbsFile final : public OpenFile {
  public:
    UverbsFile(std::unique_ptr<Context> context, unsigned index)
        : context_(std::move(context)), index_(index) {}
    std::int64_t write(const void* bytes, std::size_t count) override {
        DoorbellTrap::note_command();
        return context_->write(bytes, count);
    }
    int ioctl(unsigned long request, void* argument) override {
        DoorbellTrap::note_command();
        return context_->ioctl(request, argument);
    }
    [[nodiscard]] dev_t device_number() const override {
        return files::device_number_of({.kind = DeviceNode::Kind::kUverbs, .index = index_});
    }

  private:
    std::unique_ptr<Context> context_;
    unsigned index_;
};

}  // namespace

std::shared_ptr<OpenFile> open_uverbs(unsigned device_index, ucs::UniqueFd doorbells) {
    auto context = open_context(device_index);
    if (context == nullptr)
        return nullptr;
    context->watch_doorbells(std::move(doorbells), kDoorbellBytes);
    return std::make_shared<UverbsFile>(std::move(context), device_index);
}

}  // namespace tagwire::vhca::driver
