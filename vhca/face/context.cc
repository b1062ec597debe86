// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/face/context.hpp"

#include <fcntl.h>

#include <cerrno>
#include <ctime>
#include <new>

#include "vhca/face/api.hpp"

namespace tagwire::vhca {

std::nullptr_t fail(int error) {
    if (error != 0)
        errno = error;
    return nullptr;
}

void wait_for_acks(pthread_mutex_t* mutex, pthread_cond_t* acked, const std::uint32_t& acknowledged,
                   std::uint32_t delivered) {
    pthread_mutex_lock(mutex);
    while (acknowledged != delivered)
        pthread_cond_wait(acked, mutex);
    pthread_mutex_unlock(mutex);
}

namespace {

template <typename List>
void release(List& list) {
    while (auto* object = list.front()) {
        if (remove(*object) != 0)
            return;
        dispose(*object);
    }
}

// Destroys all objects, as the kernel does when a program closes its command descriptor: users
// before the objects they use, without waiting for acknowledgements.
void release_all(FaceContext& context) {
    release(context.qps);
    release(context.srqs);
    release(context.cqs);
    release(context.mrs);
    release(context.ahs);
    release(context.pds);
}

}  // namespace

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
    const std::optional<unsigned> index = index_of(device);
    if (!index)
        return fail(ENODEV);
    Engine* engine = nullptr;
    if (const int error = attach_engine(*index, &engine))
        return fail(error);
    if (engine->is_dead())
        return fail(EIO);
    auto* opened = new (std::nothrow) FaceContext{};
    if (opened == nullptr)
        return fail(ENOMEM);
    ibv_context& context = opened->verbs.context;
    opened->command_fd.reset(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!opened->command_fd || opened->async_events.fd() < 0) {
        const int error = errno;
        delete opened;
        return fail(error);
    }
    context.cmd_fd = opened->command_fd.get();
    opened->engine = engine;
    fill_operations(&opened->verbs);
    context.device = device;
    context.async_fd = opened->async_events.fd();
    context.num_comp_vectors = kCompVectors;
    pthread_mutex_init(&context.mutex, nullptr);
    const auto guard = engine->lock();
    engine->add(opened->listener);
    return &context;
}

int tagwire_vhca_ibv_close_device(ibv_context* context) {
    {
        Engine& engine = *face(context).engine;
        const auto guard = engine.lock();
        engine.remove(face(context).listener);
    }
    release_all(face(context));
    pthread_mutex_destroy(&context->mutex);
    delete &face(context);
    return 0;
}
