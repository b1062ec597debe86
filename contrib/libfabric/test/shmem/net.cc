// SPDX-License-Identifier: BSD-3-Clause
#include "net.hpp"

#include <rdma/fi_errno.h>
#include <sched.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "job.hpp"

namespace shmem {

namespace {

/// PEs that wait leave the processor to those that they wait for, which may be more than there are.
constexpr unsigned kStepsToYield = 16;

/// PEs tell each other these.
struct Card {
    std::array<char, 256> name{};
    std::uint64_t base = 0;
    std::uint64_t key = 0;
};

const char* setting(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

void check(int status, const char* what) {
    if (status != 0)
        fail(what, -status);
}

template <class Object, class Open>
Owner<Object> opened(const char* what, const Open& open) {
    Object* made = nullptr;
    check(open(&made), what);
    return Owner<Object>(made);
}

}  // namespace

Net::Net(char* heap, std::size_t bytes) : heap_(heap), bytes_(bytes) {
    std::unique_ptr<fi_info, InfoFreer> hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup(setting("SHMEM_PROVIDER", "tagwire"));
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_ATOMIC;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    if (std::strcmp(setting("SHMEM_PROGRESS", "manual"), "auto") == 0)
        hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    fi_info* found = nullptr;
    check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found), "fi_getinfo");
    info_.reset(found);
    open_endpoint();
    meet();
}

void Net::open_endpoint() {
    fabric_ = opened<fid_fabric>(
        "fi_fabric", [&](auto** p) { return fi_fabric(info_->fabric_attr, p, nullptr); });
    domain_ = opened<fid_domain>(
        "fi_domain", [&](auto** p) { return fi_domain(fabric_.get(), info_.get(), p, nullptr); });
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    av_ = opened<fid_av>("fi_av_open",
                         [&](auto** p) { return fi_av_open(domain_.get(), &av_attr, p, nullptr); });
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_CONTEXT;
    cq_ = opened<fid_cq>("fi_cq_open",
                         [&](auto** p) { return fi_cq_open(domain_.get(), &cq_attr, p, nullptr); });
    ep_ = opened<fid_ep>("fi_endpoint", [&](auto** p) {
        return fi_endpoint(domain_.get(), info_.get(), p, nullptr);
    });
    check(fi_ep_bind(ep_.get(), &av_->fid, 0), "fi_ep_bind of the addresses");
    check(fi_ep_bind(ep_.get(), &cq_->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION),
          "fi_ep_bind of the queue");
    writes_ = open_counter(FI_WRITE);
    reads_ = open_counter(FI_READ);
    check(fi_enable(ep_.get()), "fi_enable");
    mr_ = opened<fid_mr>("fi_mr_reg", [&](auto** p) {
        return fi_mr_reg(domain_.get(), heap_, bytes_,
                         FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, p,
                         nullptr);
    });
}

Owner<fid_cntr> Net::open_counter(std::uint64_t of) {
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    auto counter = opened<fid_cntr>(
        "fi_cntr_open", [&](auto** p) { return fi_cntr_open(domain_.get(), &attr, p, nullptr); });
    check(fi_ep_bind(ep_.get(), &counter->fid, of), "fi_ep_bind of a counter");
    return counter;
}

void Net::meet() {
    Card mine;
    std::size_t length = mine.name.size();
    check(fi_getname(&ep_->fid, mine.name.data(), &length), "fi_getname");
    if ((info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0)
        mine.base = reinterpret_cast<std::uintptr_t>(heap_);
    mine.key = fi_mr_key(mr_.get());
    const auto all = job().exchange(&mine, sizeof mine);
    peers_.resize(static_cast<std::size_t>(job().pes));
    for (std::size_t pe = 0; pe < peers_.size(); ++pe) {
        Card card;
        std::memcpy(&card, all.data() + pe * sizeof card, sizeof card);
        if (fi_av_insert(av_.get(), card.name.data(), 1, &peers_[pe].address, 0, nullptr) != 1)
            fail("fi_av_insert");
        peers_[pe].base = card.base;
        peers_[pe].key = card.key;
    }
}

std::uint64_t Net::at(const void* address, int pe) const {
    const auto* const byte = static_cast<const char*>(address);
    if (byte < heap_ || byte >= heap_ + bytes_)
        fail("an address outside the symmetric heap");
    if (pe < 0 || pe >= job().pes)
        fail("no such PE");
    return peer(pe).base + static_cast<std::uint64_t>(byte - heap_);
}

template <class Call>
void Net::issue(const char* what, const Call& call) {
    for (;;) {
        const ssize_t status = call();
        if (status == 0)
            return;
        if (status != -FI_EAGAIN)
            fail(what, static_cast<int>(-status));
        progress();
    }
}

void Net::put(void* dest, const void* source, std::size_t bytes, int pe) {
    if (bytes > info_->tx_attr->inject_size) {
        put_nbi(dest, source, bytes, pe);
        wait_for_writes();
        return;
    }
    const std::uint64_t remote = at(dest, pe);
    issue("fi_inject_write", [&] {
        return fi_inject_write(ep_.get(), source, bytes, peer(pe).address, remote, peer(pe).key);
    });
    ++writes_issued_;
}

void Net::put_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
    const std::uint64_t remote = at(dest, pe);
    issue("fi_write", [&] {
        return fi_write(ep_.get(), source, bytes, nullptr, peer(pe).address, remote, peer(pe).key,
                        nullptr);
    });
    ++writes_issued_;
}

void Net::get_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
    const std::uint64_t remote = at(source, pe);
    issue("fi_read", [&] {
        return fi_read(ep_.get(), dest, bytes, nullptr, peer(pe).address, remote, peer(pe).key,
                       nullptr);
    });
    ++reads_issued_;
}

void Net::atomic(void* dest, std::uint64_t value, fi_datatype type, fi_op op, int pe,
                 bool is_after) {
    const bool is_fenced = is_after && (info_->caps & FI_FENCE) != 0;
    const std::uint64_t remote = at(dest, pe);
    if (is_after && !is_fenced)
        wait_for_writes();
    if (!is_fenced) {
        issue("fi_inject_atomic", [&] {
            return fi_inject_atomic(ep_.get(), &value, 1, peer(pe).address, remote, peer(pe).key,
                                    type, op);
        });
    } else {
        const fi_ioc operand = {&value, 1};
        const fi_rma_ioc target = {remote, 1, peer(pe).key};
        fi_msg_atomic message{};
        message.msg_iov = &operand;
        message.iov_count = 1;
        message.addr = peer(pe).address;
        message.rma_iov = &target;
        message.rma_iov_count = 1;
        message.datatype = type;
        message.op = op;
        issue("fi_atomicmsg",
              [&] { return fi_atomicmsg(ep_.get(), &message, FI_INJECT | FI_FENCE); });
    }
    ++writes_issued_;
}

std::uint64_t Net::fetch(const void* dest, std::uint64_t value, const std::uint64_t* compare_p,
                         fi_datatype type, fi_op op, int pe) {
    std::uint64_t before = 0;
    const Peer& to = peer(pe);
    const std::uint64_t remote = at(dest, pe);
    issue("an atomic operation with a result", [&] {
        if (compare_p != nullptr)
            return fi_compare_atomic(ep_.get(), &value, 1, nullptr, compare_p, nullptr, &before,
                                     nullptr, to.address, remote, to.key, type, op, nullptr);
        return fi_fetch_atomic(ep_.get(), &value, 1, nullptr, &before, nullptr, to.address, remote,
                               to.key, type, op, nullptr);
    });
    ++reads_issued_;
    wait_for_reads();
    return before;
}

void Net::wait_for(const Owner<fid_cntr>& counter, std::uint64_t count) {
    for (unsigned step = 1; fi_cntr_read(counter.get()) < count; ++step) {
        if (fi_cntr_readerr(counter.get()) != 0)
            fail_with_entry();
        if (step % kStepsToYield == 0)
            sched_yield();
    }
}

void Net::progress() {
    fi_cntr_read(writes_.get());
    if (++steps_ % kStepsToYield == 0)
        sched_yield();
    if (fi_cq_read(cq_.get(), nullptr, 0) == -FI_EAVAIL)
        fail_with_entry();
}

void Net::fail_with_entry() {
    fi_cq_err_entry entry{};
    for (int i = 0; i < 1000 && fi_cq_readerr(cq_.get(), &entry, 0) != 1; ++i)
        fi_cq_read(cq_.get(), nullptr, 0);
    fail("an operation has failed", entry.err);
}

}  // namespace shmem
