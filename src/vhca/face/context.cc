// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/face/context.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <new>

#include "vhca/face/api.hpp"

namespace tagwire::vhca {

std::nullptr_t fail(int error) {
    if (error != 0) {
        errno = error;
    }
    return nullptr;
}

void wait_for_acks(pthread_mutex_t* mutex, pthread_cond_t* acked, const std::uint32_t& acknowledged,
                   std::uint32_t delivered) {
    pthread_mutex_lock(mutex);
    while (acknowledged != delivered) {
        pthread_cond_wait(acked, mutex);
    }
    pthread_mutex_unlock(mutex);
}

int query_rt_values_op(ibv_context* context, ibv_values_ex* values) {
    std::uint32_t known = 0;
    if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
        const Time now = face(context).engine->now();
        values->raw_clock.tv_sec = static_cast<time_t>(now / 1'000'000'000);
        values->raw_clock.tv_nsec = static_cast<long>(now % 1'000'000'000);
        known = IBV_VALUES_MASK_RAW_CLOCK;
    }
    values->comp_mask = known;
    return 0;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_context* tagwire_vhca_ibv_open_device(ibv_device* device) {
    if (device != the_device()) {
        return fail(ENODEV);
    }
    Engine* engine = nullptr;
    if (const int error = attach_engine(&engine)) {
        return fail(error);
    }
    auto* opened = new (std::nothrow) FaceContext{};
    if (opened == nullptr) {
        return fail(ENOMEM);
    }
    ibv_context& context = opened->verbs.context;
    context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (context.cmd_fd < 0 || opened->async_events.fd() < 0) {
        const int error = errno;
        if (context.cmd_fd >= 0) {
            close(context.cmd_fd);
        }
        delete opened;
        return fail(error);
    }
    opened->engine = engine;
    fill_operations(&opened->verbs);
    context.device = device;
    context.async_fd = opened->async_events.fd();
    context.num_comp_vectors = kCompVectors;
    pthread_mutex_init(&context.mutex, nullptr);
    return &context;
}

int tagwire_vhca_ibv_close_device(ibv_context* context) {
    close(context->cmd_fd);
    pthread_mutex_destroy(&context->mutex);
    delete &face(context);
    return 0;
}
