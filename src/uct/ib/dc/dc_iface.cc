// SPDX-License-Identifier: BSD-3-Clause
// Set-up of dc, its endpoints, its addresses.
#include "uct/ib/dc/dc_iface.hpp"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/dc/dc.hpp"
#include "uct/ops.hpp"

namespace tagwire::dc {

// ---- Set-up

namespace {

constexpr std::uint64_t kSignalEvery = 64;  // or a quarter of what a channel holds
// The ring that streams share. Its tail is where the completion that was polled last belongs: it
// may lie as far behind the oldest request as the newest lies before that.
constexpr unsigned kRingsPerShare = 2;

// Each request may end in a completion. Besides the pool there is the initiator of answers.
ib::MessageOptions messages_of(const DcOptions& options) {
    ib::MessageOptions messages = options.messages;
    messages.tx_signal = kSignalEvery;
    messages.tx_cq_depth = (options.dci.dcis + 1) * messages.tx_depth;
    return messages;
}

}  // namespace

DcIface::DcIface(ib::IbMd& md, uct::Worker& worker, const DcOptions& options)
    : MessageIface(md, worker, uct::make_ops<DcIface, DcEp>(), progress_callback<DcIface>, "DC",
                   messages_of(options)),
      retries_(options.retries),
      dci_options_(options.dci),
      policy_(static_cast<Policy>(options.dci.policy)),
      dcis_max_(options.dci.dcis) {}

ucs_status_t DcIface::open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                           const void* values, uct_iface_h* iface_p) {
    auto* const iface = new DcIface(md, worker, *static_cast<const DcOptions*>(values));
    std::unique_ptr<uct::BaseIface> owner(iface);
    const ucs_status_t status = iface->init(params);
    if (status == UCS_OK)
        *iface_p = owner.release();
    return status;
}

ucs_status_t DcIface::init(const uct_iface_params_t& params) {
    ucs_status_t status = open_port(params);
    if (status != UCS_OK)
        return status;
    std::string reason;
    dc_ = dc_verbs_of(ib_md().device(), &reason);
    if (dc_ == nullptr) {
        TW_LOG_ERROR("%s %s", ib_md().device().name().c_str(), reason.c_str());
        return UCS_ERR_UNSUPPORTED;
    }
    status = choose_matching(matching_obstacle());
    if (status == UCS_OK)
        status = ep_pool_.init({.name = "dc endpoints", .elements_per_chunk = 256});
    choose_streams();
    if (status == UCS_OK)
        status = open_queues();
    if (status != UCS_OK)
        return status;
    usual_signal_every_ = signal_every_;
    eager_parts_max_ = 1;  // a part would not say whose it is
    status = make_own_target();
    rndv_behind_max_ -= answer_to_.size();
    if (status == UCS_OK)
        status = receives_.want(buffers_per_peer());
    if (status != UCS_OK)
        return status;
    // A device may wait four times as long as it was told before it gives a peer up.
    close_ns_ = 4 * retries_.timeout_ns * (retries_.retry_count + 1) + 1'000'000'000;
    initiator_params_ = {.cq = send_cq_.get(),
                         .context = &mailbox(),
                         .depth = static_cast<unsigned>(options_.tx_depth) *
                                  (streams_ == 1 ? 1 : streams_ * kRingsPerShare),
                         .sges_max = sges_max_,
                         .inline_bytes = inline_wanted(),
                         .streams_log = streams_ == 1 ? 0 : std::bit_width(streams_ - 1) + 1U,
                         .timeout_code = ib::timeout_code(retries_.timeout_ns),
                         .retry_count = static_cast<std::uint8_t>(retries_.retry_count),
                         .rnr_retry = static_cast<std::uint8_t>(retries_.rnr_retry),
                         .reads = static_cast<std::uint8_t>(reads_max_),
                         .mtu = port().attr.active_mtu,
                         .is_first = true};
    // The first tells what all have.
    Dci* dci = nullptr;
    status = new_dci(&dci);
    initiator_params_.is_first = false;
    if (status != UCS_OK)
        return status;
    Channel* first = add_to_pool(*dci);
    if (!is_shared())
        idle_.push_back(*first);
    if (initiator_params_.inline_bytes < kQuestionBytes) {
        TW_LOG_ERROR("%s takes %u bytes within a request, dc needs %zu",
                     ib_md().device().name().c_str(), initiator_params_.inline_bytes,
                     kQuestionBytes);
        return UCS_ERR_UNSUPPORTED;
    }
    return take_inline(initiator_params_.inline_bytes);
}

const char* DcIface::matching_obstacle() const {
    if (!dc_tag_matching_of(ib_md().device()).is_offered)
        return "the device has no tag-matching SRQ for DC";
    // A rendezvous that software goes on with has room for a LID, not for a GID.
    return port().is_ethernet ? "the port is on Ethernet (RoCE), where dc matches by software"
                              : nullptr;
}

// Twice as many are asked for as are used: so all of them may have failed and be reset one by one.
// Without the reset, each peer that dies would take a stream with it until none is left.
void DcIface::choose_streams() {
    const unsigned log_max = dc_streams_log_max(ib_md().device(), *dc_);
    const std::uint64_t offered = log_max < 2 ? 1 : std::uint64_t{1} << (log_max - 1);
    streams_ = static_cast<unsigned>(std::min(
        {dci_options_.streams, offered, std::max<std::uint64_t>(options_.tx_depth / 8, 1)}));
    const auto longest = static_cast<std::uint64_t>(ib_md().device().attr().orig_attr.max_qp_wr);
    if (kRingsPerShare * options_.tx_depth > longest)
        streams_ = 1;
    if (streams_ > 1 && !can_reset_streams(ib_md(), *dc_, port())) {
        TW_LOG_DEBUG("%s: no DCI has streams: libmlx5 cannot reset one that failed without DEVX",
                     ib_md().device().name().c_str());
        streams_ = 1;
    }
    queue_shares_ = streams_;
}

ucs_status_t DcIface::make_own_target() {
    key_ = ucs::random_u64();
    const ucs_status_t status = make_target(ib_md(), *dc_, port(),
                                            {.key = key_,
                                             .srq = receives_.srq(),
                                             .cq = receive_cq_.get(),
                                             .context = &mailbox(),
                                             .rnr_timer_code = ib::rnr_code(retries_.rnr_timer_ns)},
                                            &target_);
    if (status != UCS_OK)
        return status;
    const std::uint32_t level = ib_md().service_level();
    return_address_ = {.target = {.number = htobe32(level << 24 | target_->qp_num),
                                  .reserved = 0,
                                  .lid = htobe16(port().attr.lid),
                                  .key = htobe64(key_)},
                       .port = ib::pack_port(port())};
    const auto bytes = std::as_bytes(std::span(&return_address_, 1));
    answer_to_ = has_device_tags_ ? bytes.first(sizeof(ReturnTarget)) : bytes;
    static_assert(sizeof(ReturnAddress) <= ib::kAnswerBytesMax);
    return UCS_OK;
}

void DcIface::close() {
    const auto left = std::ranges::count_if(eps_, [](ib::MessageEp* each) {
        const auto* ep = static_cast<const DcEp*>(each);
        return ep != nullptr && !ep->is_internal_ && !ep->is_destroyed_;
    });
    if (left > 0)
        TW_LOG_WARN("dc interface closed with %td endpoints", left);
    delete this;
}

// Queue pairs first: from then on the device writes nothing of ours.
DcIface::~DcIface() {
    for (const auto& dci : dcis_)
        dci->initiator = {};
    target_.reset();
    for (ib::MessageEp* each : eps_) {
        auto* ep = static_cast<DcEp*>(each);
        if (ep == nullptr)
            continue;
        ep->purge([](uct_pending_req_t*) {});
        if (ep->failure_ == UCS_OK)
            ep->failure_ = UCS_ERR_CANCELED;
    }
    finish_late(nullptr);
    for (const auto& channel : channels_)
        while (ib::SendOp* op = channel->take_any())
            finish(*op->ep, *op, UCS_ERR_CANCELED);
    for (ib::MessageEp* ep : eps_)
        if (ep != nullptr)
            end_operations(*ep);
    for (ib::MessageEp* ep : eps_)
        if (ep != nullptr)
            delete_ep(static_cast<DcEp&>(*ep));
    drop_receives();
}

ucs_status_t DcIface::query(uct_iface_attr_t* attr) {
    query_messages(attr);
    attr->cap.flags |= UCT_IFACE_FLAG_CONNECT_TO_IFACE;
    attr->iface_addr_len = sizeof(DcAddress);
    attr->ep_addr_len = 0;
    attr->max_conn_priv = 0;
    attr->max_num_eps = kIndexMask;
    return UCS_OK;
}

ucs_status_t DcIface::get_address(uct_iface_addr_t* addr) {
    const DcAddress packed = pack({.version = kDcAddressVersion,
                                   .flags = has_device_tags_ ? kDeviceMatches : std::uint8_t{0},
                                   .reserved = 0,
                                   .check = 0,
                                   .seg_bytes = static_cast<std::uint32_t>(seg_bytes_),
                                   .number = target_->qp_num,
                                   .key = key_});
    std::memcpy(addr, &packed, sizeof packed);
    return UCS_OK;
}

bool DcIface::agrees(const DcAddress& peer, std::string* reason_p) const {
    if (((peer.flags & kDeviceMatches) != 0) != has_device_tags_) {
        *reason_p = differing_matching();
        return false;
    }
    if (peer.seg_bytes != seg_bytes_) {
        *reason_p = "the peer's messages have up to " + std::to_string(peer.seg_bytes) +
                    " bytes, ours " + std::to_string(seg_bytes_) +
                    ": set TAGWIRE_DC_SEG_BYTES alike on both sides";
        return false;
    }
    return true;
}

bool DcIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                        std::string* reason) {
    std::string why;
    if (!port_reachable(dev_addr, reason))
        return false;
    const auto port_of_peer = ib::parse_port(
        std::span(reinterpret_cast<const std::byte*>(dev_addr), sizeof(ib::PortAddress)), &why);
    const auto peer = parse_address(
        std::span(reinterpret_cast<const std::byte*>(iface_addr), sizeof(DcAddress)), &why);
    const bool agreed = port_of_peer && peer && ib::has_same_mtu(port(), *port_of_peer, &why) &&
                        agrees(*peer, &why);
    if (!agreed && reason != nullptr)
        *reason = why;
    return agreed;
}

// ---- Endpoints

DcEp* DcIface::new_ep(const ib::PortAddress& port_address, std::uint64_t key, std::uint32_t number,
                      ucs_status_t* status_p) {
    *status_p = UCS_ERR_IO_ERROR;
    Path* path = path_to(port_address);
    if (path == nullptr)
        return nullptr;
    DcEp* ep = ep_pool_.create(*this, *path, key, number);
    *status_p = ep == nullptr ? UCS_ERR_NO_MEMORY : add(*ep);
    if (ep != nullptr && *status_p != UCS_OK)
        ep_pool_.destroy(ep);
    if (*status_p == UCS_OK)
        return ep;
    if (path->endpoints == 0)
        paths_.erase(port_address);
    return nullptr;
}

void DcIface::delete_ep(DcEp& ep) {
    remove(ep);
    Path& path = *ep.path_;
    ep_pool_.destroy(&ep);
    if (path.endpoints == 0)
        paths_.erase(ib::PortAddress(path.port));
}

Path* DcIface::path_to(const ib::PortAddress& port_address) {
    Path& path = paths_[port_address];
    if (path.ah != nullptr)
        return &path;
    ibv_ah_attr attr =
        ib::path_to(port(), port_address, ib_md().traffic_class(), ib_md().service_level());
    ibv_ah* ah = verbs().create_ah(ib_md().pd(), &attr);
    if (ah == nullptr) {
        ib::call_failed(ib_md().device(), "ibv_create_ah", errno);
        paths_.erase(port_address);
        return nullptr;
    }
    path.ah = ib::owned(ah, verbs().destroy_ah);
    path.port = port_address;
    return &path;
}

DcEp* DcIface::way_back_to(const ReturnAddress& address) {
    if (const auto found = ways_back_.find(address); found != ways_back_.end()) {
        WayBack& way = found->second;
        if (way.ep->failure_ == UCS_OK) {
            way.used = ++ways_used_;
            return way.ep;
        }
        ways_back_.erase(found);  // it ends by itself; its peer may be there all the same
    }
    std::string reason;
    const auto peer_port = ib::parse_port(std::as_bytes(std::span(&address.port, 1)), &reason);
    if (!peer_port || !ib::is_reachable(port(), *peer_port, &reason) ||
        !ib::has_same_mtu(port(), *peer_port, &reason)) {
        TW_LOG_DEBUG("a return address of dc: %s", reason.c_str());
        return nullptr;
    }
    forget_idle_ways();
    ucs_status_t status = UCS_OK;
    DcEp* ep = new_ep(*peer_port, be64toh(address.target.key),
                      be32toh(address.target.number) & 0xffffff, &status);
    if (ep == nullptr)
        return nullptr;
    ep->is_internal_ = true;
    ep->is_destroyed_ = true;  // for the user there never was one: its failure is not told
    ways_back_.emplace(address, WayBack{ep, ++ways_used_});
    receives_.want(buffers_per_peer());  // what cannot be posted now is later
    return ep;
}

// A way is made again when it is needed, which costs an address handle; so those with nothing under
// way make room that were used least lately, and half of all stay.
void DcIface::forget_idle_ways() {
    if (ways_back_.size() < kWaysBackMax)
        return;
    ucs::ReserveVector<std::uint64_t> uses;
    for (const auto& [address, way] : ways_back_)
        uses.push_back(way.used);
    const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
    std::ranges::nth_element(uses, middle);
    std::erase_if(ways_back_, [this, newest = *middle](const auto& entry) {
        const WayBack& way = entry.second;
        DcEp& ep = *way.ep;
        const bool is_idle = way.used <= newest && ep.failure_ == UCS_OK && ep.reads_ == 0 &&
                             ep.has_ended() && (is_shared() || ep.queue_ == &no_queue_);
        if (is_idle) {
            delete_ep(ep);
            receives_.want_less(buffers_per_peer());
        }
        return is_idle;
    });
}

// ---- Descriptions

void DcIface::describe(const uct::DescribeSink& sink) const {
    static constexpr const char* kPolicies[] = {"dcs", "dcs_quota", "rand", "hash"};
    describe_base(sink);
    describe_messages(sink);
    sink.number("qps", dcis_.size() + 1);
    sink.number("qps_per_peer", 0);
    sink.number("bytes_per_peer", sizeof(DcEp));
    sink.text("policy", kPolicies[static_cast<std::size_t>(policy_)]);
    sink.number("quota", dci_options_.quota);
    sink.number("credits", options_.credits);
    sink.number("dcis_max", dci_options_.dcis);
    sink.number("dcis", dcis_.size());
    sink.number("streams_per_dci", streams_);
    sink.number("channels", channels_.size());
    const auto idle = std::ranges::count_if(channels_, [](const auto& channel) {
        return channel->owner == nullptr && !channel->is_shared;
    });
    sink.number("channels_idle", static_cast<std::uint64_t>(idle));
    sink.number("paths", paths_.size());
    sink.number("ways_back", ways_back_.size());
}

void DcIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    static constexpr const char* kStates[] = {"created", "connected", "failing", "failed"};
    const DcEp& ep = *static_cast<const DcEp*>(handle);
    sink.text("state", kStates[static_cast<std::size_t>(ep.state_)]);
    sink.number("target", ep.number_);
    sink.number("requests_under_way",
                is_shared() ? ep.under_way_ : ep.queue_->posted - ep.queue_->acked);
    sink.number("credits", ep.window_ - (ep.sent_ - ep.peer_released_));
}

// ---- The row of the table

const ib::Transport& transport() {
    static constexpr ib::Transport row{
        .tl = {.name = "dc", .first_contact_rank = 10},
        .options = [] { return &dc_option_table(); },
        .usable = [](const ib::Device& device,
                     std::string* reason_p) { return dc_verbs_of(device, reason_p) != nullptr; },
        .open = &DcIface::open,
    };
    return row;
}

}  // namespace tagwire::dc
