// SPDX-License-Identifier: BSD-3-Clause
// What a program made by commands: one table for each kind of object in a context, whose indices
// are the handles. An object lives in the core as well, and its rings are in the program's memory.
//
// Objects that use others hold them (`users`): destroying what is used is EBUSY. When the last
// descriptor of a context is closed, all goes in the order sends before receives before CQs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/driver/event_pipe.hpp"
#include "vhca/driver/rings.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::vhca::driver {

class Context;
class Poller;

/// Handles are 1 and up, as the kernel's small numbers.
template <typename T>
class HandleTable {
  public:
    /// nullptr: no such object.
    [[nodiscard]] T* find(std::uint32_t handle) const {
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second.get();
    }
    std::uint32_t add(std::unique_ptr<T> object) {
        const std::uint32_t handle = next_++;
        objects_.emplace(handle, std::move(object));
        return handle;
    }
    /// Out of the table; destroyed when the caller lets go.
    [[nodiscard]] std::unique_ptr<T> take(std::uint32_t handle) {
        auto node = objects_.extract(handle);
        return node.empty() ? nullptr : std::move(node.mapped());
    }
    [[nodiscard]] bool is_empty() const { return objects_.empty(); }
    template <typename F>
    void for_each(const F& visit) const {
        for (const auto& [handle, object] : objects_) {
            visit(handle, *object);
        }
    }

  private:
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, std::unique_ptr<T>> objects_;
};

struct PdObject {
    Pd* core = nullptr;
    std::uint32_t users = 0;  // beside those that the core counts
};

struct MrObject {
    Mr* core = nullptr;
    PdObject* pd = nullptr;
};

struct AhObject {
    ibv_ah_attr attr{};
    PdObject* pd = nullptr;
};

/// A completion channel: its descriptor is the handle that programs name.
struct ChannelObject {
    std::unique_ptr<EventPipe> pipe;
    std::uint32_t users = 0;
};

struct CqObject {
    Cq* core = nullptr;
    Context* context = nullptr;
    std::uint64_t user_handle = 0;
    ChannelObject* channel = nullptr;
    std::unique_ptr<CqRing> ring;
    std::uint32_t async_events = 0;  // told and not taken back
    ucs::ListLink<CqObject> of_poller;
};

struct SrqObject {
    Srq* core = nullptr;
    Context* context = nullptr;
    std::uint64_t user_handle = 0;
    std::uint32_t user_index = 0;
    PdObject* pd = nullptr;
    CqObject* tag_cq = nullptr;  // of a tag-matching one
    std::unique_ptr<ReceiveList> ring;
    TagIndices tags;
    std::uint32_t async_events = 0;
};

struct QpObject {
    Qp* core = nullptr;
    Context* context = nullptr;
    std::uint64_t user_handle = 0;
    std::uint32_t user_index = 0;
    DcKind dc = DcKind::kNone;
    PdObject* pd = nullptr;
    CqObject *send_cq = nullptr, *recv_cq = nullptr;
    SrqObject* srq = nullptr;
    ibv_qp_cap cap{};  // as the program asked, and queries say
    bool signals_all = false;
    std::unique_ptr<SendRing> sends;        // at most one of the two
    std::unique_ptr<TagRing> tag_commands;  // of a tag-matching SRQ
    std::unique_ptr<ReceiveRing> receives;
    Mr* inline_mr = nullptr;  // opens the shadow of `sends`
    std::uint32_t async_events = 0;
    ucs::ListLink<QpObject> of_poller;
};

/// An open device: what a descriptor of /dev/infiniband/uverbsN stands for. Made by open(2), shared
/// by dup(2) and threads, gone with the last close(2).
class Context {
  public:
    Context(unsigned device_index, Engine& engine, Poller& poller);
    /// Everything that is left goes.
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// A command as write(2) brings it. Takes the engine's lock. The number of bytes, or -1 with
    /// errno.
    std::int64_t write(const void* bytes, std::size_t count);
    /// ioctl(2). ENOTTY in the form of old kernels, which have no ioctl.
    int ioctl(unsigned long request, void* argument);

    const unsigned device_index;
    Engine& engine;
    Poller& poller;
    bool is_open = false;  // GET_CONTEXT was done
    std::unique_ptr<EventPipe> async_pipe;
    HandleTable<PdObject> pds;
    HandleTable<MrObject> mrs;
    HandleTable<AhObject> ahs;
    HandleTable<CqObject> cqs;
    HandleTable<SrqObject> srqs;
    HandleTable<QpObject> qps;
    std::map<int, std::unique_ptr<ChannelObject>> channels;  // by the descriptor that was told

    // ---- The ends of objects, in two halves: errno (nothing happened), then its memory
    int remove(QpObject& qp);
    int remove(SrqObject& srq);
    int remove(CqObject& cq);
    int remove(MrObject& mr);
};

/// Events of the core to the programs' descriptors.
EventSink& driver_sink();

}  // namespace tagwire::vhca::driver
