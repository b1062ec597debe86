// SPDX-License-Identifier: BSD-3-Clause
// Events of DEVX: descriptors that give them, and who wants which. An event is the cookie of its
// subscription and, unless the descriptor leaves it out, the entry of the event queue.
#include <endian.h>
#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "vhca/driver/ioctl_methods.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

constexpr std::size_t kEntryBytes = 64;
using Entry = std::array<std::byte, kEntryBytes>;

/// An entry of an event queue: the event's number in byte 1, its data from byte 32 on.
Entry make_entry(DevxEvent event, std::uint32_t number, std::uint8_t syndrome) {
    constexpr std::size_t kKind = 1, kData = 32, kNumberOfError = kData, kSyndrome = kData + 11,
                          kNumber = kData + 24;
    Entry entry{};
    const bool is_error = event == DevxEvent::kCqError;
    const std::uint32_t written = htobe32(number);
    entry[kKind] = static_cast<std::byte>(event);
    std::memcpy(&entry[is_error ? kNumberOfError : kNumber], &written, sizeof written);
    if (is_error)
        entry[kSyndrome] = std::byte{syndrome};
    return entry;
}

void deliver(const DevxSubscription& subscription, const Entry& entry) {
    if (subscription.counter) {
        const std::uint64_t one = 1;
        static_cast<void>(::write(subscription.counter.get(), &one, sizeof one));
        return;
    }
    std::array<std::byte, sizeof subscription.cookie + kEntryBytes> record;
    std::memcpy(record.data(), &subscription.cookie, sizeof subscription.cookie);
    std::copy(entry.begin(), entry.end(), record.begin() + sizeof subscription.cookie);
    const bool has_entry = subscription.pipe->kind == DevxPipe::Kind::kEntries;
    subscription.pipe->events->push(
        std::span(record).first(has_entry ? record.size() : sizeof subscription.cookie));
}

/// The same of a port: what changed in byte 3, the port in the high half of a byte.
Entry make_port_entry(unsigned port, std::uint8_t change) {
    constexpr std::size_t kKind = 1, kChange = 3, kPort = 40;
    Entry entry{};
    entry[kKind] = static_cast<std::byte>(DevxEvent::kPortChange);
    entry[kChange] = std::byte{change};
    entry[kPort] = static_cast<std::byte>(port << 4);
    return entry;
}

constexpr std::array kEventFd = {
    new_fd(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD),
    AttributeSpec{MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, AttributeSpec::Kind::kIn, true, 0,
                  4, 8},
};
int alloc_event_fd(Context& context, IoctlCall& call) {
    constexpr std::uint64_t kOmitsData = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
    std::uint64_t flags = 0;
    if (const int error =
            call.read_flags(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, kOmitsData, &flags)) {
        return error;
    }
    return give_devx_pipe(
        context, call, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE,
        flags == kOmitsData ? DevxPipe::Kind::kCookies : DevxPipe::Kind::kEntries);
}

constexpr std::size_t kEventsMax = 16;
constexpr std::array kSubscribe = {
    AttributeSpec{MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, AttributeSpec::Kind::kFd, true,
                  MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD},
    object(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, false),
    in_from(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, sizeof(std::uint16_t)),
    in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, sizeof(std::uint64_t), false),
    in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, sizeof(std::uint32_t), false),
};

/// An event of an object, or (the port's state) of none.
bool is_event(std::uint16_t number, bool has_object) {
    switch (static_cast<DevxEvent>(number)) {
        case DevxEvent::kCompletion:
        case DevxEvent::kEstablished:
        case DevxEvent::kSendsDrained:
        case DevxEvent::kCqError:
        case DevxEvent::kFatal:
        case DevxEvent::kInvalidRequest:
        case DevxEvent::kAccessError:
        case DevxEvent::kLastReceive:
        case DevxEvent::kReceiveLimit:
            return has_object;
        case DevxEvent::kPortChange:
            return !has_object;
        default:
            return false;
    }
}

int read_events(const IoctlCall& call, bool has_object, std::vector<std::uint16_t>* events_p) {
    const UserSpan list = call.memory(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
    if (list.bytes % sizeof(std::uint16_t) != 0 || list.bytes / sizeof(std::uint16_t) > kEventsMax)
        return EINVAL;
    events_p->resize(list.bytes / sizeof(std::uint16_t));
    if (const int error = copy_from_user(events_p->data(), list.address, list.bytes))
        return error;
    const bool are_events = std::all_of(events_p->begin(), events_p->end(),
                                        [&](auto number) { return is_event(number, has_object); });
    return are_events ? 0 : EINVAL;
}

/// A descriptor of eventfd(2), ours from now on.
int read_counter(const IoctlCall& call, ucs::UniqueFd* counter_p) {
    std::uint32_t number = 0;
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, &number))
        return error;
    if (call.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE))
        return EINVAL;
    char target[64] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(number);
    if (::readlink(link.c_str(), target, sizeof target - 1) < 0)
        return EBADF;
    if (std::strcmp(target, "anon_inode:[eventfd]") != 0)
        return EINVAL;
    counter_p->reset(::fcntl(static_cast<int>(number), F_DUPFD_CLOEXEC, 0));
    return *counter_p ? 0 : errno;
}

template <typename T>
DevxSubscriptions* subscriptions_in(const HandleTable<T>& table, std::uint32_t handle) {
    T* object = table.find(handle);
    return object == nullptr ? nullptr : &object->subscriptions;
}

/// nullptr: an object that no events come from.
DevxSubscriptions* subscriptions_of(const Context& context, const DevxObject& object) {
    switch (object.kind) {
        case DevxObject::Kind::kCq:
            return subscriptions_in(context.cqs, object.handle);
        case DevxObject::Kind::kSrq:
            return subscriptions_in(context.srqs, object.handle);
        case DevxObject::Kind::kQp:
        case DevxObject::Kind::kDct:
            return subscriptions_in(context.qps, object.handle);
        default:
            return nullptr;
    }
}

void announce_completions(const Context& context, const DevxObject& object) {
    CqObject* cq = context.cqs.find(object.handle);
    cq->ring->announce_by(
        [cq] { tell(cq->subscriptions, DevxEvent::kCompletion, cq->ring->number()); });
}

int subscribe(Context& context, IoctlCall& call) {
    const auto pipe = find_devx_pipe(context, call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE,
                                     DevxPipe::Kind::kCookies);
    if (pipe == nullptr)
        return EBADF;
    ucs::UniqueFd counter;
    if (call.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM)) {
        if (const int error = read_counter(call, &counter))
            return error;
    }
    const DevxObject* object =
        context.devx_objects.find(call.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE));
    std::vector<std::uint16_t> events;
    if (const int error = read_events(call, object != nullptr, &events))
        return error;
    DevxSubscriptions* list =
        object == nullptr ? &context.port_subscriptions : subscriptions_of(context, *object);
    if (list == nullptr)
        return 0;  // a key has no events
    for (const std::uint16_t number : events) {
        DevxSubscription one{.event = static_cast<DevxEvent>(number),
                             .pipe = pipe,
                             .cookie = call.value(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE),
                             .counter = {}};
        if (counter) {
            one.counter.reset(::fcntl(counter.get(), F_DUPFD_CLOEXEC, 0));
            if (!one.counter)
                return errno;
        }
        list->push_back(std::move(one));
        if (static_cast<DevxEvent>(number) == DevxEvent::kCompletion &&
            object->kind == DevxObject::Kind::kCq) {
            announce_completions(context, *object);
        }
    }
    return 0;
}

constexpr std::array kEventMethods = {
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribe, subscribe},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                kEventFd, alloc_event_fd},
};

}  // namespace

void tell(const DevxSubscriptions& subscriptions, DevxEvent event, std::uint32_t number,
          std::uint8_t syndrome) {
    const Entry entry = make_entry(event, number, syndrome);
    for (const DevxSubscription& one : subscriptions)
        if (one.event == event)
            deliver(one, entry);
}

void tell_port_change(const DevxSubscriptions& subscriptions, unsigned port, std::uint8_t change) {
    const Entry entry = make_port_entry(port, change);
    for (const DevxSubscription& one : subscriptions)
        deliver(one, entry);
}

int give_devx_pipe(Context& context, IoctlCall& call, std::uint16_t answer, DevxPipe::Kind kind) {
    std::erase_if(context.devx_pipes, [](const auto& item) {  // those that the program closed
        return inode_of(item.second->events->program_fd()) != item.first;
    });
    auto pipe = std::make_shared<DevxPipe>();
    pipe->kind = kind;
    pipe->events = EventPipe::create(sizeof(mlx5_ib_uapi_devx_async_event_hdr));
    if (pipe->events == nullptr)
        return errno;
    ucs::UniqueFd fd(pipe->events->program_fd());
    if (const int error = call.tell(answer, static_cast<std::uint64_t>(fd.get())))
        return error;
    context.devx_pipes[inode_of(fd.release())] = std::move(pipe);
    return 0;
}

std::shared_ptr<DevxPipe> find_devx_pipe(const Context& context, const IoctlCall& call,
                                         std::uint16_t id, DevxPipe::Kind kind) {
    const auto found = context.devx_pipes.find(inode_of(static_cast<int>(call.value(id))));
    const bool wants_replies = kind == DevxPipe::Kind::kReplies;
    return found == context.devx_pipes.end() ||
                   (found->second->kind == DevxPipe::Kind::kReplies) != wants_replies
               ? nullptr
               : found->second;
}

std::span<const IoctlMethod> devx_event_methods() {
    return kEventMethods;
}

}  // namespace tagwire::vhca::driver
