// SPDX-License-Identifier: BSD-3-Clause
// /dev/infiniband/rdma_cm of the first device, for the library that is preloaded.
#include <cerrno>
#include <memory>

#include "vhca/cm/engine_network.hpp"
#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"

/// An open file.
struct tagwire_vhca_cm {
    std::unique_ptr<tagwire::vhca::cm::Channel> channel;
};

using namespace tagwire::vhca;

tagwire_vhca_cm* tagwire_vhca_cm_open(int flags, int* fd_p) {
    Engine* engine = nullptr;
    if (const int error = attach_engine(0, &engine)) {
        errno = error;
        return nullptr;
    }
    auto channel = cm::Channel::open(cm::EngineNetwork::of(*engine).manager(), flags);
    if (channel == nullptr)
        return nullptr;
    *fd_p = channel->program_fd();
    return new tagwire_vhca_cm{std::move(channel)};
}

std::int64_t tagwire_vhca_cm_write(tagwire_vhca_cm* cm, const void* bytes, std::size_t count,
                                   tagwire_vhca_cm* (*find)(int fd)) {
    return cm->channel->write(bytes, count, [find](int fd) -> cm::Channel* {
        tagwire_vhca_cm* const other = find(fd);
        return other != nullptr ? other->channel.get() : nullptr;
    });
}

void tagwire_vhca_cm_close(tagwire_vhca_cm* cm) {
    delete cm;
}
