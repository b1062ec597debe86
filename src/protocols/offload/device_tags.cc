// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/offload/device_tags.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "protocols/match/arrival.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

constexpr std::size_t kPage = 4096;

DeviceReceive& receive_of(uct_tag_context_t* self) {
    return *static_cast<DeviceReceive*>(self);
}

Arrival arrival_of(uct_tag_t tag, std::uint64_t imm, std::span<const std::byte> bytes) {
    const TagImm told = TagImm::decode(imm);
    Arrival arrival{};
    arrival.tag = tag;
    arrival.imm = told.imm;
    arrival.flags = kTagged | flag_if(told.has_imm, kImm);
    arrival.length = bytes.size();
    arrival.bytes = bytes;
    return arrival;
}

}  // namespace

DeviceTags::DeviceTags(const DeviceTagPorts& ports, std::uint64_t sender_mask)
    : to_(ports),
      rail_(ports.rail),
      md_(rail_.domain().md),
      sender_mask_(sender_mask),
      message_max_(rail_.attr().cap.tag.recv.min_recv),
      receives_(rail_.attr().cap.tag.recv.max_outstanding) {
    for (DeviceReceive& receive : receives_) {
        receive.owner = this;
        receive.tag_consumed_cb = [](uct_tag_context_t* self) {
            receive_of(self).owner->consumed(receive_of(self));
        };
        receive.completed_cb = [](uct_tag_context_t* self, uct_tag_t tag, std::uint64_t imm,
                                  std::size_t length, void* inline_data, ucs_status_t status) {
            receive_of(self).owner->completed(receive_of(self), tag, imm, length, inline_data,
                                              status);
        };
        receive.rndv_cb = [](uct_tag_context_t* self, uct_tag_t tag, const void* header,
                             unsigned length, ucs_status_t status, unsigned) {
            DeviceReceive& mine = receive_of(self);
            if (status != UCS_OK)
                return mine.owner->completed(mine, tag, 0, 0, nullptr, status);
            mine.owner->requested(mine, tag, header, length);
        };
        receive.next = free_;
        free_ = &receive;
    }
}

DeviceTags::~DeviceTags() {
    for (DeviceReceive& receive : receives_) {
        if (receive.bounce_handle != nullptr)
            uct_md_mem_dereg(md_, receive.bounce_handle);
        std::free(receive.bounce);
    }
}

void DeviceTags::close() {
    for (DeviceReceive& receive : receives_) {
        Request* request = std::exchange(receive.request, nullptr);
        if (request == nullptr)
            continue;
        request->on_device = nullptr;
        // One that was consumed is in no list of the worker.
        if (!request->is_posted)
            to_.worker.requests.release(*request);
    }
}

// ---- Which receives are given to the device

bool DeviceTags::is_wide(const Request& request) const {
    return sender_mask_ == 0 || (request.mask & sender_mask_) != sender_mask_;
}

/// Some held receive could match a message that this one could match, as far as a hash tells.
bool DeviceTags::overlaps_held(const Request& request) const {
    if (held_ == 0)
        return false;
    return request.mask != kExactMask || held_wild_ != 0 ||
           held_exact_[ucs::detail::tag_hash(request.tag) % kHeldBuckets] != 0;
}

DeviceTags::Rule DeviceTags::rule_for(const Request& request) const {
    // The device does not look at who sent a message, and writes one message into one buffer.
    if (request.source != kAnySource || (request.flags & kBufferedReceive) != 0)
        return Rule::kKind;
    if (overlaps_held(request))
        return Rule::kOrder;
    const bool all_are_here = is_wide(request)
                                  ? direct_peers_ != 0 && direct_peers_ == to_.peers.size()
                                  : senders_.contains(request.tag & sender_mask_);
    if (!all_are_here)
        return Rule::kPeers;
    return free_ == nullptr ? Rule::kFull : Rule::kGiven;
}

void DeviceTags::posted(Request& request) {
    Rule rule = rule_for(request);
    if (rule == Rule::kGiven && !give(request))
        rule = Rule::kFull;
    switch (rule) {
        case Rule::kGiven:
            return to_.worker.count(WorkerCounter::kTagGiven);
        case Rule::kKind:
            to_.worker.count(WorkerCounter::kTagKeptKind);
            break;
        case Rule::kOrder:
            to_.worker.count(WorkerCounter::kTagKeptOrder);
            break;
        case Rule::kPeers:
            to_.worker.count(WorkerCounter::kTagKeptPeers);
            break;
        case Rule::kFull:
            to_.worker.count(WorkerCounter::kTagKeptFull);
            break;
    }
    hold(request, true);
}

void DeviceTags::hold(Request& request, bool is_held) {
    request.is_held = is_held;
    const auto change = is_held ? 1U : ~0U;
    held_ += is_held ? 1 : std::size_t(-1);
    if (request.mask == kExactMask)
        held_exact_[ucs::detail::tag_hash(request.tag) % kHeldBuckets] += change;
    else
        held_wild_ += is_held ? 1 : std::size_t(-1);
}

bool DeviceTags::make_bounce(DeviceReceive& receive) {
    if (receive.bounce != nullptr)
        return true;
    void* memory = nullptr;
    if (::posix_memalign(&memory, kPage, message_max_) != 0)
        return false;
    if (uct_md_mem_reg(md_, memory, message_max_, UCT_MD_MEM_ACCESS_LOCAL_WRITE,
                       &receive.bounce_handle) != UCS_OK) {
        std::free(memory);
        return false;
    }
    receive.bounce = static_cast<std::byte*>(memory);
    return true;
}

/// Where the device writes: the program's buffer, if it can and that is long enough.
uct_iov_t DeviceTags::target_of(const Request& request, DeviceReceive& receive,
                                bool may_be_direct) const {
    const Buffer& buffer = request.buffer;
    const uct_mem_h handle =
        buffer.memory == nullptr ? nullptr : buffer.memory->handle(rail_.domain_index());
    receive.is_bounced = !may_be_direct || buffer.list != nullptr || handle == nullptr ||
                         buffer.length < message_max_;
    if (receive.is_bounced)
        return {receive.bounce, message_max_, receive.bounce_handle, 0, 1};
    const std::size_t most = rail_.attr().cap.tag.recv.max_zcopy;
    return {buffer.base, std::min(buffer.length, most), handle, 0, 1};
}

bool DeviceTags::give(Request& request) {
    DeviceReceive& receive = *free_;
    ucs_status_t status = UCS_ERR_ALREADY_EXISTS;
    // A buffer that is there twice, or cannot be written to, is no reason to wait for it.
    for (const bool may_be_direct : {true, false}) {
        uct_iov_t target = target_of(request, receive, may_be_direct);
        if (receive.is_bounced) {
            if (!make_bounce(receive))
                return false;
            target = target_of(request, receive, may_be_direct);
        }
        status = uct_iface_tag_recv_zcopy(rail_.iface(), request.tag, request.mask, &target, 1,
                                          &receive);
        if (status != UCS_ERR_ALREADY_EXISTS)
            break;
    }
    if (status != UCS_OK)
        return false;
    if (receive.is_bounced)
        to_.worker.count(WorkerCounter::kTagBounced);
    else
        std::memcpy(receive.before.data(), request.buffer.base, receive.before.size());
    free_ = receive.next;
    receive.request = &request;
    receive.is_wide = is_wide(request);
    receive.is_leaving = false;
    receive.ending = UCS_INPROGRESS;
    request.on_device = &receive;
    ++given_;
    wide_ += receive.is_wide ? 1 : 0;
    return true;
}

// ---- Receives that come back

/// The device knows nothing of it any more; its bounce buffer may still be read.
Request* DeviceTags::detach(DeviceReceive& receive) {
    Request* request = std::exchange(receive.request, nullptr);
    request->on_device = nullptr;
    --given_;
    wide_ -= receive.is_wide ? 1 : 0;
    return request;
}

void DeviceTags::put_back(DeviceReceive& receive) {
    receive.next = free_;
    free_ = &receive;
}

void DeviceTags::end_left(DeviceReceive& receive) {
    if (std::exchange(receive.is_left, false))
        put_back(receive);
}

void DeviceTags::left(Request& request) {
    if (request.is_held)
        return hold(request, false);
    if (request.on_device == nullptr)
        return;
    DeviceReceive& receive = *request.on_device;
    // While its message is being written its place and its bounce buffer are taken.
    receive.is_left = uct_iface_tag_recv_cancel(rail_.iface(), &receive, 1) == UCS_ERR_BUSY;
    detach(receive);
    if (!receive.is_left)
        put_back(receive);
    to_.worker.count(WorkerCounter::kTagTakenBack);
}

bool DeviceTags::cancel(Request& request, ucs_status_t status) {
    DeviceReceive* receive = request.on_device;
    if (receive == nullptr)
        return false;
    receive->ending = status;
    receive->owner->begin_cancel(*receive);
    return true;
}

void DeviceTags::begin_cancel(DeviceReceive& receive) {
    if (!receive.is_leaving)
        receive.is_leaving = uct_iface_tag_recv_cancel(rail_.iface(), &receive, 0) == UCS_OK;
}

void DeviceTags::canceled(DeviceReceive& receive) {
    const ucs_status_t ending = receive.ending;
    Request& request = *detach(receive);
    put_back(receive);
    if (ending == UCS_INPROGRESS) {
        to_.worker.count(WorkerCounter::kTagRecalled);
        return hold(request, true);
    }
    to_.tagged.posted.cancel(request);
    request.is_posted = false;
    to_.worker.finish(request, ending);
}

void DeviceTags::consumed(DeviceReceive& receive) {
    if (receive.request == nullptr || !receive.request->is_posted)
        return;
    to_.tagged.posted.cancel(*receive.request);
    receive.request->is_posted = false;
}

void DeviceTags::completed(DeviceReceive& receive, uct_tag_t tag, std::uint64_t imm,
                           std::size_t length, const void* inline_data, ucs_status_t status) {
    if (receive.request == nullptr)
        return end_left(receive);
    if (status == UCS_ERR_CANCELED)
        return canceled(receive);
    consumed(receive);
    const bool is_in_place = !receive.is_bounced && inline_data == nullptr;
    const auto* bytes =
        inline_data != nullptr ? static_cast<const std::byte*>(inline_data) : receive.bounce;
    Request& request = *detach(receive);
    to_.worker.count(WorkerCounter::kTagMatched);
    MatchPeer* peer = to_.calls.find(to_.owner, TagImm::decode(imm).sender);
    if (status != UCS_OK || peer == nullptr) {
        // A sender that is gone has taken back what nobody had received.
        put_back(receive);
        return to_.worker.finish(request, status == UCS_OK ? UCS_ERR_CONNECTION_RESET : status);
    }
    learn(tag, *peer);
    const Arrival arrival = arrival_of(tag, imm, {bytes, length});
    if (is_in_place) {
        put_back(receive);
        return to_.calls.end_in_place(to_.owner, request, *peer, arrival);
    }
    to_.calls.arrive(to_.owner, *peer, arrival, &request);
    put_back(receive);
}

/// The place in the order of a message that was announced before.
void DeviceTags::requested(DeviceReceive& receive, uct_tag_t tag, const void* header,
                           std::size_t length) {
    if (receive.request == nullptr)
        return end_left(receive);
    consumed(receive);
    Placeholder place{};
    const bool is_place = decode({static_cast<const std::byte*>(header), length}, &place);
    Request& request = *detach(receive);
    // The header lies in the buffer, and the message may be shorter.
    if (header == request.buffer.base)
        std::memcpy(request.buffer.base, receive.before.data(),
                    std::min(length, receive.before.size()));
    put_back(receive);
    to_.worker.count(WorkerCounter::kTagMatched);
    MatchPeer* peer = is_place ? to_.calls.find(to_.owner, place.sender) : nullptr;
    if (peer != nullptr)
        learn(tag, *peer);
    if (peer == nullptr || !to_.calls.take_announced(to_.owner, *peer, place, tag, &request))
        to_.worker.finish(request, UCS_ERR_CONNECTION_RESET);
}

// ---- Messages that the device did not match

ucs_status_t DeviceTags::on_eager(const void* data, std::size_t length, unsigned flags,
                                  uct_tag_t tag, std::uint64_t imm) {
    MatchPeer* peer = to_.calls.find(to_.owner, TagImm::decode(imm).sender);
    if ((flags & UCT_CB_PARAM_FLAG_MORE) != 0)
        return to_.calls.garbage(to_.owner, "tagged message", length);
    if (peer == nullptr)
        return to_.calls.drop_from_unknown(to_.owner, TagImm::decode(imm).sender, "tagged message",
                                           length);
    learn(tag, *peer);
    const Arrival arrival = arrival_of(tag, imm, {static_cast<const std::byte*>(data), length});
    to_.calls.arrive_unmatched(to_.owner, *peer, arrival);
    return UCS_OK;
}

ucs_status_t DeviceTags::on_request(const void* header, std::size_t length, uct_tag_t tag) {
    Placeholder place{};
    if (!decode({static_cast<const std::byte*>(header), length}, &place))
        return to_.calls.garbage(to_.owner, "place of a tagged message", length);
    MatchPeer* peer = to_.calls.find(to_.owner, place.sender);
    if (peer == nullptr)
        return to_.calls.drop_from_unknown(to_.owner, place.sender, "place of a tagged message",
                                           length);
    learn(tag, *peer);
    to_.calls.take_announced(to_.owner, *peer, place, tag, nullptr);
    return UCS_OK;
}

// ---- Peers

void DeviceTags::learn(uct_tag_t tag, MatchPeer& peer) {
    if (sender_mask_ != 0 && peer.sends_to_device)
        senders_.try_emplace(tag & sender_mask_, &peer);
}

bool DeviceTags::may_greet() {
    if (wide_ == 0)
        return true;
    for (DeviceReceive& receive : receives_)
        if (receive.request != nullptr && receive.is_wide)
            begin_cancel(receive);
    return wide_ == 0;
}

void DeviceTags::on_lane(MatchPeer& peer, std::uint32_t rail) {
    const bool is_here = rail == rail_.index();
    if (is_here == peer.sends_to_device)
        return;
    if (!is_here)
        return gone(peer);
    peer.sends_to_device = true;
    ++direct_peers_;
}

void DeviceTags::gone(MatchPeer& peer) {
    if (!std::exchange(peer.sends_to_device, false))
        return;
    --direct_peers_;
    std::erase_if(senders_, [&](const auto& sender) { return sender.second == &peer; });
}

std::string DeviceTags::description() const {
    const std::size_t elsewhere = to_.peers.size() - direct_peers_;
    std::string text = fmt::format("{}:{}, {} receives on the device, {} in software",
                                   rail_.transport(), rail_.device(), given_, held_);
    if (direct_peers_ == 0)
        text += "; no peer sends over it";
    else if (elsewhere != 0)
        text +=
            fmt::format("; {} of {} peers send over other transports", elsewhere, to_.peers.size());
    return text;
}

}  // namespace tagwire::proto
