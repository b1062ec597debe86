// SPDX-License-Identifier: BSD-3-Clause
// Objects that a program created by commands: one table for each kind of object in a context; its
// indices are the handles. An object lives in the core as well, and its rings are in the program's
// memory.
//
// The core counts the users of an object: destroying a used one is EBUSY. When the last descriptor
// of a context is closed, all its objects are destroyed, users before the objects they use.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "ucs/sys/fd.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/driver/event_pipe.hpp"
#include "vhca/driver/rings.hpp"
#include "vhca/engine/engine.hpp"
#include "vhca/setup/pinning.hpp"

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
    void clear() { objects_.clear(); }
    template <typename F>
    void for_each(const F& visit) const {
        for (const auto& [handle, object] : objects_)
            visit(handle, *object);
    }

  private:
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, std::unique_ptr<T>> objects_;
};

struct PdObject {
    Pd* core = nullptr;  // counts what is made in it, AHs among it
};

struct MrObject {
    Mr* core = nullptr;
    PdObject* pd = nullptr;
    Pinned pinned{};  // of a key of DEVX: nothing, its memory is a UmemObject's
};

struct AhObject {
    ibv_ah_attr attr{};
    PdObject* pd = nullptr;
};

/// A doorbell page that the program asked for.
struct UarObject {
    std::uint32_t page = 0;  // of the device's file
};

/// Memory of the program that commands of the device may name.
struct UmemObject {
    std::uint64_t address = 0, bytes = 0;
    Pinned pinned{};
    std::uint32_t users = 0;  // objects that were made in it
};

/// Made by a command of the device: where it is in the tables, and its number.
struct DevxObject {
    enum class Kind : std::uint8_t { kCq, kSrq, kQp, kDct, kMkey } kind = Kind::kCq;
    std::uint32_t handle = 0, number = 0;
    std::vector<std::uint32_t> umems{};  // that it was made in
};

/// A descriptor that DEVX tells something by.
struct DevxPipe {
    enum class Kind : std::uint8_t {
        kCookies,  // events: which subscription
        kEntries,  // and the entry of the event queue
        kReplies,  // to queries
    } kind = Kind::kCookies;
    std::unique_ptr<EventPipe> events;
};

/// Numbers of events, as event queues have them.
enum class DevxEvent : std::uint16_t {
    kCompletion = 0x0,
    kEstablished = 0x2,
    kSendsDrained = 0x3,
    kCqError = 0x4,
    kFatal = 0x5,
    kPortChange = 0x9,
    kInvalidRequest = 0x10,
    kAccessError = 0x11,
    kLastReceive = 0x13,
    kReceiveLimit = 0x14,
};

/// An event of an object that a program wants to hear of, by DEVX' descriptor or eventfd(2).
struct DevxSubscription {
    DevxEvent event = DevxEvent::kCompletion;
    std::shared_ptr<DevxPipe> pipe;
    std::uint64_t cookie = 0;
    ucs::UniqueFd counter;  // an eventfd, in the place of `pipe`
};
using DevxSubscriptions = std::vector<DevxSubscription>;
/// Tells who subscribed to it. `number` is that of the object; `syndrome` of kCqError.
void tell(const DevxSubscriptions& subscriptions, DevxEvent event, std::uint32_t number,
          std::uint8_t syndrome = 0);
/// A change of the port, kPortChange, by the number that event queues have for it.
void tell_port_change(const DevxSubscriptions& subscriptions, unsigned port, std::uint8_t change);

/// A completion channel: programs name it by any descriptor of its pipe.
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
    bool is_devx = false;  // the program has no verbs object of it, and gets no events of such
    std::uint32_t async_events = 0;  // told and not taken back
    std::uint32_t comp_events = 0;   // likewise, when it was removed
    DevxSubscriptions subscriptions;
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
    bool is_devx = false;
    std::uint32_t wr_max = 0, sge_max = 0;  // that queries say
    TagIndices tags;
    TagCommanders tag_commanders;
    DevxSubscriptions subscriptions;
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
    ibv_qp_cap cap{};  // as the program asked, and queries say but for receives
    std::uint32_t recv_wr_max = 0, recv_sge_max = 0;  // of the ring, that queries say
    bool signals_all = false;
    std::uint8_t port = 0;
    std::unique_ptr<SendRing> sends;        // at most one of the two
    std::unique_ptr<TagRing> tag_commands;  // of a tag-matching SRQ
    std::unique_ptr<ReceiveRing> receives;
    bool is_devx = false;
    DevxSubscriptions subscriptions;
    Mr* inline_mr = nullptr;  // opens the shadow of `sends`
    std::uint32_t async_events = 0;
    ucs::ListLink<QpObject> of_poller;
};

/// An open device: what a descriptor of /dev/infiniband/uverbsN stands for. Made by open(2), shared
/// by dup(2) and threads, gone with the last close(2).
///
/// A child of fork(2) has no engine: its commands fail with EIO, and what it closes is its copy.
class Context final : public DeviceListener {
  public:
    Context(Engine& engine, Poller& poller, const DeviceConfig& reported);
    /// Everything that is left goes.
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// A command as write(2) brings it. Takes the engine's lock. The number of bytes, or -1 with
    /// errno.
    std::int64_t write(const void* bytes, std::size_t count);
    /// ioctl(2). ENOTTY without has_ioctl: old kernels have no ioctl.
    int ioctl(unsigned long request, void* argument);
    /// The doorbell pages, `bytes` from the start of the file, are watched as long as this lives.
    /// The file gets the page that tells what time of day a timestamp is.
    void watch_doorbells(ucs::UniqueFd doorbells, std::size_t bytes);

    Engine& engine;
    Poller& poller;
    /// With the limits that programs are told; those of the engine's device hold any ring.
    const DeviceConfig reported;
    std::unique_ptr<EventPipe> async_pipe;  // nullptr: GET_CONTEXT was not done
    bool has_ioctl = false;                 // TAGWIRE_VHCA_DRIVER_ABI
    bool has_clock_page = false;
    ucs::UniqueFd untold_async_fd;  // of GET_CONTEXT by ioctl, until the program asks for it
    HandleTable<PdObject> pds;
    HandleTable<MrObject> mrs;
    HandleTable<AhObject> ahs;
    HandleTable<CqObject> cqs;
    HandleTable<SrqObject> srqs;
    HandleTable<QpObject> qps;
    HandleTable<UarObject> uars;
    bool has_devx = false;  // TAGWIRE_VHCA_DEVX
    HandleTable<UmemObject> umems;
    HandleTable<MrObject> mkeys;  // of DEVX: no regions of verbs
    HandleTable<DevxObject> devx_objects;
    DevxSubscriptions port_subscriptions;                              // to the port's state
    std::map<std::uint64_t, std::shared_ptr<DevxPipe>> devx_pipes;     // by inode
    std::map<std::uint64_t, std::unique_ptr<ChannelObject>> channels;  // by inode
    std::uint32_t bfregs = 0;                                          // of GET_CONTEXT
    std::uint32_t next_bfreg = 0;

    /// To the program's descriptor, and to who subscribed to the port's state.
    void device_event(ibv_event_type type, unsigned port) override;

    // ---- The ends of objects: errno, and nothing happened, or the device knows it no more; then
    // the caller takes it out of its table. Counts of events are those that the program read.
    int remove(QpObject& qp);
    int remove(SrqObject& srq);
    int remove(CqObject& cq);
    int remove(MrObject& mr);
    int remove(AhObject& ah);
    int remove(PdObject& pd);

  private:
    [[nodiscard]] bool is_inherited() const;
    int run(const void* bytes, std::size_t count);
    void remove_all();
    std::uint32_t retire_events(std::uint64_t user_handle, std::uint32_t pushed,
                                bool (*is_kind)(std::uint32_t));

    const pid_t process_;
    ucs::UniqueFd doorbells_;
};

/// A context of the device with that index, whose engine is made if it was not yet (see also
/// attach_driver(), open_uverbs()). nullptr with
/// errno: ENODEV if there is no such device, or its profile is not one of mlx5.
std::unique_ptr<Context> open_context(unsigned device_index);

/// Events of the core to the programs' descriptors.
EventSink& driver_sink();

}  // namespace tagwire::vhca::driver
