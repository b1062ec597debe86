// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/device.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

namespace {

// Where the numbers of a device begin depends on its seed, so that a packet for another device, or
// for an earlier life of this one, hardly ever finds a queue pair.
std::uint32_t first_number(std::uint64_t seed) {
    std::uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 32;
    return 0x100 + static_cast<std::uint32_t>(mixed & 0xfffff);
}

template <typename T>
T* take_ownership(std::vector<std::unique_ptr<T>>& owners, std::unique_ptr<T> object) {
    owners.push_back(std::move(object));
    return owners.back().get();
}

template <typename T>
void destroy_owned(std::vector<std::unique_ptr<T>>& owners, const T& object) {
    const auto found = std::find_if(owners.begin(), owners.end(),
                                    [&](const auto& owner) { return owner.get() == &object; });
    std::swap(*found, owners.back());
    owners.pop_back();
}

// The general services interface of a port (IBTA 1.4, 3.9.5.3).
constexpr std::uint32_t kGsiQpn = 1, kGsiQkey = 0x80010000;

CompletionQueue& cq_of(Cq& cq) {
    return static_cast<CompletionQueue&>(cq);
}

}  // namespace

Device::Impl::Impl(const DeviceConfig& config_, Wire& wire_, EventSink& sink_, std::uint64_t seed)
    : config(config_),
      wire(wire_),
      sink(sink_),
      late(sink_, config_.late_ns_max, seed),
      random(seed),
      memory(seed),
      qps(first_number(seed), config_.reuses_numbers ? 0 : NumberTable<QueuePair>::kQuarantine),
      srqs(first_number(~seed)),
      next_session_(static_cast<std::uint32_t>(seed * 0x9e3779b97f4a7c15 >> 32)) {}

Device::Impl::~Impl() {
    // Whoever owns others deletes them.
    qps.for_each([](QueuePair& qp) {
        if (!qp.dc().is_owned())
            delete &qp;
    });
    srqs.for_each([](SharedReceiveQueue& srq) { delete &srq; });
}

void Device::Impl::receive(Route from, std::span<const std::byte> bytes) {
    if (wire.is_cut()) [[unlikely]]
        return;
    ++counters.packets_received;
    Packet packet;
    if (!parse(bytes, &packet)) [[unlikely]] {
        ++counters.malformed;
        return;
    }
    counters.payload_bytes_received += packet.payload.size();
    QueuePair* qp = qps.find(packet.qpn);
    if (qp == nullptr) [[unlikely]] {
        if (packet.qpn == kGsiQpn && packet.opcode == Opcode::kUdSendOnly &&
            packet.qkey == kGsiQkey && management != nullptr) {
            management->receive(from, packet.payload);
            return;
        }
        ++counters.misaddressed;
        answer_inquiry(from, packet);
        return;
    }
    qp->receive(from, packet);
    settle();
}

bool Device::Impl::send_short(Route to, const Packet& packet) {
    std::byte* start = wire.claim(to, packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return false;
    const std::byte* end = put_headers(start, packet, 0);
    wire.commit(to, static_cast<std::size_t>(end - start));
    ++counters.packets_sent;
    return true;
}

/// A DCT asks for a DCI that is no more.
void Device::Impl::answer_inquiry(Route from, const Packet& packet) {
    if (packet.opcode == Opcode::kDcInquire) {
        Packet answer;
        answer.opcode = Opcode::kDcDisconnect;
        answer.qpn = packet.source_qpn;
        answer.source_qpn = packet.qpn;
        answer.qkey = packet.qkey;
        answer.stream = packet.stream;
        send_short(from, answer);
    }
}

Time Device::Impl::progress(Time time) {
    now = time;
    if (is_dead) [[unlikely]]
        return kNever;
    if (now >= next_deadline) [[unlikely]]
        run_timers();
    QueuePair* refused = nullptr;  // the first that the wire had no room for
    for (std::size_t count = working.size(); count != 0 && !working.empty(); --count) {
        QueuePair& qp = *working.front();
        working.erase(qp);
        const std::uint64_t sent = counters.packets_sent;
        if (!qp.run()) {
            schedule(qp);
            refused = refused == nullptr && sent == counters.packets_sent ? &qp : refused;
        }
    }
    // Else those before it, which had their turn, would take the room that comes next, too.
    while (refused != nullptr && working.is_linked(*refused) && working.front() != refused) {
        QueuePair& qp = *working.front();
        working.erase(qp);
        working.push_back(qp);
    }
    settle();
    const Time next_late = late.release(now);
    return working.empty() ? std::min(next_deadline, next_late) : now;
}

void Device::Impl::run_timers() {
    next_deadline = kNever;
    QueuePair* next = nullptr;
    for (QueuePair* qp = waiting.front(); qp != nullptr; qp = next) {
        const Time deadline = qp->run_timer();
        next = waiting.next(*qp);
        if (deadline == kNever)
            waiting.erase(*qp);
        else
            next_deadline = std::min(next_deadline, deadline);
    }
}

void Device::Impl::unschedule(QueuePair& qp) {
    if (working.is_linked(qp))
        working.erase(qp);
    if (waiting.is_linked(qp))
        waiting.erase(qp);
}

Device::Device(const DeviceConfig& config, Wire& wire, EventSink& events, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(config, wire, events, seed)) {}
Device::~Device() = default;

void Device::receive(Route from, std::span<const std::byte> packet, Time now,
                     const std::byte* grh) {
    impl_->now = now;
    impl_->grh = grh;
    impl_->receive(from, packet);
}
Time Device::progress(Time now) {
    return impl_->progress(now);
}
bool Device::is_drained() const {
    return impl_->is_dead || impl_->working.empty();
}
void Device::set_management(ManagementPort* port) {
    impl_->management = port;
}

void Device::note_gone(Route node) {
    if (impl_->management != nullptr)
        impl_->management->note_gone(node);
}

void Device::send_management(Route to, std::span<const std::byte> datagram) {
    Packet packet;
    packet.opcode = Opcode::kUdSendOnly;
    packet.qpn = packet.source_qpn = kGsiQpn;
    packet.qkey = kGsiQkey;
    const std::size_t bytes = packet_bytes(packet.opcode, datagram.size());
    std::byte* start = impl_->wire.claim(to, bytes);
    if (start == nullptr)
        return;
    std::byte* payload = put_headers(start, packet, datagram.size());
    std::copy(datagram.begin(), datagram.end(), payload);
    put_padding(payload + datagram.size(), datagram.size());
    impl_->wire.commit(to, bytes);
    ++impl_->counters.packets_sent;
}

const DeviceConfig& Device::config() const {
    return impl_->config;
}
const DeviceCounters& Device::counters() const {
    return impl_->counters;
}

int Device::create_pd(void* user, Pd** pd_p) {
    if (impl_->is_dead)
        return EIO;
    auto pd = std::make_unique<Pd>();
    pd->user = user;
    *pd_p = take_ownership(impl_->pds, std::move(pd));
    return 0;
}

int Device::destroy_pd(Pd& pd) {
    if (pd.users != 0)
        return EBUSY;
    destroy_owned(impl_->pds, pd);
    return 0;
}

int Device::create_mr(Pd& pd, void* base, std::uint64_t length, std::uint64_t iova, unsigned access,
                      Mr** mr_p) {
    if (impl_->is_dead)
        return EIO;
    return impl_->memory.create(pd, base, length, iova, access, mr_p);
}

int Device::create_indirect_mr(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access,
                               std::vector<MrPiece> pieces, Mr** mr_p) {
    if (impl_->is_dead)
        return EIO;
    return impl_->memory.create_indirect(pd, length, iova, access, std::move(pieces), mr_p);
}

void Device::choose_variant(Mr& mr, std::uint8_t variant) {
    mr.key = (mr.key & ~std::uint32_t{0xff}) | variant;
}

int Device::change_mr(Mr& mr, int flags, Pd* pd, void* base, std::uint64_t length,
                      unsigned access) {
    if (impl_->is_dead)
        return EIO;
    return impl_->memory.change(mr, flags, pd, base, length, access);
}

int Device::destroy_mr(Mr& mr) {
    impl_->memory.destroy(mr);
    return 0;
}

int Device::create_cq(const CqConfig& config, Cq** cq_p) {
    if (impl_->is_dead)
        return EIO;
    if (config.cqe == 0 || config.cqe > impl_->config.cqe_max)
        return EINVAL;
    auto cq = CompletionQueue::create(*impl_, config);
    if (cq == nullptr)
        return ENOMEM;
    *cq_p = take_ownership(impl_->cqs, std::move(cq));
    return 0;
}

int Device::destroy_cq(Cq& cq) {
    if (cq_of(cq).users != 0)
        return EBUSY;
    destroy_owned(impl_->cqs, cq_of(cq));
    return 0;
}

int Device::create_srq(const SrqConfig& config, Srq** srq_p) {
    if (impl_->is_dead)
        return EIO;
    const DeviceConfig& limits = impl_->config;
    if (config.pd == nullptr || config.wr_max == 0 || config.wr_max > limits.srq_wr_max ||
        config.sge_max > limits.srq_sge_max || config.limit > config.wr_max) {
        return EINVAL;
    }
    if (const TagConfig& tm = config.tm; tm.cq != nullptr) {
        if (tm.tags_max == 0 || tm.tags_max > limits.tm_tags_max || tm.ops_max == 0 ||
            tm.ops_max > limits.qp_wr_max) {
            return EINVAL;
        }
    }
    auto srq = std::make_unique<SharedReceiveQueue>(*impl_, config);
    if (const int error = srq->allocate(); error != 0)
        return error;
    srq->set_number(impl_->srqs.add(srq.get()));
    ++config.pd->users;
    if (config.tm.cq != nullptr)
        ++cq_of(*config.tm.cq).users;
    *srq_p = srq.release();
    return 0;
}

int Device::destroy_srq(Srq& srq) {
    auto& shared = static_cast<SharedReceiveQueue&>(srq);
    if (shared.users != 0)
        return EBUSY;
    --shared.pd->users;
    if (const TagMatching* matching = shared.matching(); matching != nullptr) {
        matching->cq().purge(*matching, shared.queue);
        --matching->cq().users;
    }
    impl_->srqs.remove(shared.number());
    impl_->late.erase(shared);
    delete &shared;
    return 0;
}

namespace {

int check_dc(const QpConfig& config, const DeviceConfig& limits) {
    if (!limits.has_dc || config.dc.kind == DcKind::kNone)
        return EOPNOTSUPP;
    if (config.dc.kind == DcKind::kTarget)
        return config.srq == nullptr ? EINVAL : 0;
    const bool is_too_much = config.dc.streams_log > limits.dc_streams_log_max ||
                             config.dc.errored_log > limits.dc_errored_log_max;
    return config.dc.has_streams && is_too_much ? EINVAL : 0;
}

int check_qp(const QpConfig& config, const DeviceConfig& limits) {
    const bool is_dc = config.type == IBV_QPT_DRIVER;
    const bool is_known =
        config.type == IBV_QPT_RC || config.type == IBV_QPT_UC || config.type == IBV_QPT_UD;
    if (!is_known && !is_dc)
        return EOPNOTSUPP;
    if (const int error = is_dc ? check_dc(config, limits) : 0; error != 0)
        return error;
    const ibv_qp_cap& cap = config.cap;
    const bool is_complete =
        config.pd != nullptr && config.send_cq != nullptr && config.recv_cq != nullptr;
    const bool fits = cap.max_send_wr <= limits.qp_wr_max && cap.max_recv_wr <= limits.qp_wr_max &&
                      cap.max_send_sge <= limits.sge_max && cap.max_recv_sge <= limits.sge_max &&
                      cap.max_inline_data <= limits.inline_max;
    const auto* srq = static_cast<const SharedReceiveQueue*>(config.srq);
    const bool matches_tags = srq != nullptr && srq->matching() != nullptr;
    return is_complete && fits && (!matches_tags || is_dc || config.type == IBV_QPT_RC) ? 0
                                                                                        : EINVAL;
}

/// A DCI does not receive: what it would need for that may be left out. A DCT does not send, but
/// has to name a CQ for it all the same, as with libmlx5.
QpConfig completed(QpConfig config) {
    if (config.dc.kind == DcKind::kInitiator) {
        config.srq = nullptr;
        config.cap.max_recv_wr = config.cap.max_recv_sge = 0;
        config.recv_cq = config.recv_cq == nullptr ? config.send_cq : config.recv_cq;
    }
    return config;
}

}  // namespace

int Device::create_qp(const QpConfig& wanted, Qp** qp_p) {
    if (impl_->is_dead)
        return EIO;
    const QpConfig config = completed(wanted);
    if (const int error = check_qp(config, impl_->config); error != 0)
        return error;
    if (impl_->qps.used() >= impl_->config.qp_max)
        return ENOMEM;
    std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair(*impl_, config));
    if (qp == nullptr)
        return ENOMEM;
    if (const int error = qp->allocate(); error != 0)
        return error;
    qp->set_number(impl_->qps.add(qp.get()));
    ++config.pd->users;
    ++cq_of(*config.send_cq).users;
    ++cq_of(*config.recv_cq).users;
    if (config.srq != nullptr)
        ++static_cast<SharedReceiveQueue*>(config.srq)->users;
    *qp_p = qp.release();
    return 0;
}

int Device::destroy_qp(Qp& base) {
    auto& qp = static_cast<QueuePair&>(base);
    qp.retire();
    --qp.config.pd->users;
    --cq_of(*qp.config.send_cq).users;
    --cq_of(*qp.config.recv_cq).users;
    if (qp.config.srq != nullptr)
        --static_cast<SharedReceiveQueue*>(qp.config.srq)->users;
    impl_->qps.remove(qp.table_number());
    impl_->late.erase(qp);
    delete &qp;
    return 0;
}

}  // namespace tagwire::vhca
