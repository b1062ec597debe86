// SPDX-License-Identifier: BSD-3-Clause
#include "net.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

namespace conformance {
namespace {

std::string the_provider;
std::chrono::milliseconds the_patience{4000};

bool is_refusal(std::int64_t status) {
    return status == -FI_ENOSYS || status == -FI_EOPNOTSUPP;
}

}  // namespace

void name_provider(const std::string& name) {
    // Only this provider is asked, and its sockets are bound to the loopback device.
    setenv("FI_PROVIDER", name.c_str(), 1);
    setenv("FI_TCP_IFACE", "lo", 1);
    the_provider = name;
}
void load_providers() {
    const std::unique_ptr<fi_info, decltype(&fi_freeinfo)> hints(fi_allocinfo(), fi_freeinfo);
    hints->fabric_attr->prov_name = strdup("none");
    fi_info* found = nullptr;
    if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found) == 0)
        fi_freeinfo(found);
}
const std::string& provider() {
    return the_provider;
}
std::chrono::milliseconds patience() {
    return the_patience;
}
void set_patience(std::chrono::milliseconds patience) {
    the_patience = patience;
}

Bytes pattern(std::size_t length, unsigned seed) {
    Bytes bytes(length);
    std::uint32_t state = seed * 2654435761U + 1;
    for (auto& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::uint8_t>(state >> 24U);
    }
    return bytes;
}

void same(const char* what, const void* expected, const void* got) {
    if (expected != got)
        throw Failed(std::string(what) + ": it is another pointer than expected");
}

void holds(const char* what, bool is_so) {
    if (!is_so)
        throw Failed(std::string("expected: ") + what);
}

void same_bytes(const char* what, const Bytes& expected, const Bytes& got) {
    const auto at = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
    if (at.first != expected.end() || at.second != got.end()) {
        throw Failed(std::string(what) + ": the data differs at byte " +
                     std::to_string(at.first - expected.begin()));
    }
}

void done(const char* what, std::int64_t status) {
    if (is_refusal(status))
        throw Unsupported(std::string(what) + ": " + fi_strerror(static_cast<int>(-status)));
    if (status < 0) {
        throw Failed(std::string(what) + ": expected success, got " +
                     fi_strerror(static_cast<int>(-status)));
    }
}

Info hints_of(const Want& want) {
    Info hints(fi_allocinfo());
    hints->caps = want.caps;
    hints->mode = want.mode;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider().c_str());
    hints->domain_attr->threading = want.threading;
    hints->domain_attr->av_type = want.av;
    hints->domain_attr->mr_mode = want.mr_mode;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->tx_attr->op_flags = want.tx_op_flags;
    hints->rx_attr->op_flags = want.rx_op_flags;
    hints->tx_attr->msg_order = want.order;
    hints->rx_attr->msg_order = want.order;
    return hints;
}

Info ask(const fi_info& hints) {
    fi_info* answer = nullptr;
    const int status = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, &hints, &answer);
    if (status != 0 && status != -FI_ENODATA)
        throw Failed(std::string("fi_getinfo: ") + fi_strerror(-status));
    return Info(answer);
}

Net::Net(const Want& want) : info_(ask(*hints_of(want))) {
    if (!info_)
        throw Unsupported("fi_getinfo has no answer to these hints");
    fid_fabric* fabric = nullptr;
    done("fi_fabric", fi_fabric(info_->fabric_attr, &fabric, nullptr));
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    done("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr));
    domain_.reset(domain);
    fi_av_attr attr{};
    attr.type = want.av;
    attr.count = 16;
    fid_av* av = nullptr;
    done("fi_av_open", fi_av_open(domain, &attr, &av, nullptr));
    av_.reset(av);
    for (std::size_t i = 0; i < want.ends; ++i)
        open_end(want);
    if (want.enable) {
        for (std::size_t i = 0; i < want.ends; ++i)
            done("fi_enable", fi_enable(ep(i)));
        for (std::size_t i = 0; i < want.ends; ++i)  // shm crashes if one is not enabled yet
            add_address(name_of(i));
    }
}

Net::~Net() {
    for (auto& end : ends_)  // before what is bound to it, and all before the vector
        end.ep.reset();
    ends_.clear();
}

void Net::open_end(const Want& want) {
    End& end = ends_.emplace_back();
    fid_ep* ep = nullptr;
    done("fi_endpoint", fi_endpoint(domain(), info_.get(), &ep, nullptr));
    end.ep.reset(ep);
    bind(end, want);
}

void Net::bind(End& end, const Want& want) {
    fi_cq_attr attr{};
    attr.format = want.format;
    attr.wait_obj = want.wait;
    attr.size = 1024;
    fid_ep* ep = end.ep.get();
    for (auto* queue : {&end.tx_queue, &end.rx_queue}) {
        fid_cq* cq = nullptr;
        done("fi_cq_open", fi_cq_open(domain(), &attr, &cq, nullptr));
        queue->reset(cq);
    }
    const std::uint64_t tx = want.selective_tx ? FI_SELECTIVE_COMPLETION : 0;
    const std::uint64_t rx = want.selective_rx ? FI_SELECTIVE_COMPLETION : 0;
    done("fi_ep_bind", fi_ep_bind(ep, &end.tx_queue->fid, FI_TRANSMIT | tx));
    done("fi_ep_bind", fi_ep_bind(ep, &end.rx_queue->fid, FI_RECV | rx));
    done("fi_ep_bind", fi_ep_bind(ep, &av_->fid, 0));
    if (want.counters) {
        for (auto* counter : {&end.tx_counter, &end.rx_counter}) {
            fi_cntr_attr how{};
            how.events = FI_CNTR_EVENTS_COMP;
            how.wait_obj = want.wait;
            fid_cntr* cntr = nullptr;
            done("fi_cntr_open", fi_cntr_open(domain(), &how, &cntr, nullptr));
            counter->reset(cntr);
        }
        done("fi_ep_bind", fi_ep_bind(ep, &end.tx_counter->fid, FI_SEND));
        done("fi_ep_bind", fi_ep_bind(ep, &end.rx_counter->fid, FI_RECV));
    }
}

Bytes Net::name_of(std::size_t i) {
    Bytes name(256);
    std::size_t length = name.size();
    done("fi_getname", fi_getname(&ep(i)->fid, name.data(), &length));
    name.resize(length);
    return name;
}

void Net::add_address(const Bytes& name) {
    fi_addr_t address = FI_ADDR_UNSPEC;
    same("addresses inserted", 1, fi_av_insert(av(), name.data(), 1, &address, 0, nullptr));
    addresses_.push_back(address);
}

void Net::read(fid_cq* queue, std::deque<Entry>& into) {
    Entry entry{};
    auto got = fi_cq_readfrom(queue, static_cast<fi_cq_tagged_entry*>(&entry), 1, &entry.from);
    if (got == -FI_ENOSYS)
        got = fi_cq_read(queue, static_cast<fi_cq_tagged_entry*>(&entry), 1);
    if (got == 1) {
        into.push_back(entry);
    } else if (got == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        same("fi_cq_readerr", 1, fi_cq_readerr(queue, &error, 0));
        entry = {};
        entry.op_context = error.op_context;
        entry.flags = error.flags;
        entry.len = error.len;
        entry.buf = error.buf;
        entry.data = error.data;
        entry.tag = error.tag;
        entry.err = error.err;
        entry.olen = error.olen;
        into.push_back(entry);
    } else if (got != -FI_EAGAIN) {
        done("fi_cq_read", got);
    }
}

void Net::progress() {
    for (auto& end : ends_) {
        read(end.tx_queue.get(), end.sent);
        read(end.rx_queue.get(), end.received);
    }
}

void Net::until(const char* what, const std::function<bool()>& reached) {
    const auto deadline = std::chrono::steady_clock::now() + patience();
    for (unsigned round = 0; !reached(); ++round) {
        progress();
        if (round < 1000)
            continue;
        const timespec nap{0, 50000};  // what is awaited may need another process's time
        nanosleep(&nap, nullptr);
        if (std::chrono::steady_clock::now() > deadline)
            throw Hung(std::string("nothing came: ") + what);
    }
}

void Net::post(const char* what, const std::function<std::int64_t()>& call) {
    std::int64_t status = 0;
    until(what, [&] {
        status = call();
        return status != -FI_EAGAIN;
    });
    done(what, status);
}

Entry Net::next_sent(std::size_t at) {
    auto& queue = end(at).sent;
    until("an entry for a send", [&] { return !queue.empty(); });
    const Entry entry = queue.front();
    queue.pop_front();
    return entry;
}

Entry Net::next_received(std::size_t at) {
    auto& queue = end(at).received;
    until("an entry for a receive", [&] { return !queue.empty(); });
    const Entry entry = queue.front();
    queue.pop_front();
    return entry;
}

Entry Net::sent(std::size_t at) {
    const Entry entry = next_sent(at);
    same("error of a send", 0, entry.err);
    return entry;
}

Entry Net::received(std::size_t at) {
    const Entry entry = next_received(at);
    same("error of a receive", 0, entry.err);
    return entry;
}

Entry Net::failed(std::size_t at, int err) {
    const Entry entry = next_received(at);
    same("error of a receive", err, entry.err);
    return entry;
}

void Net::quiet(const char* what, const std::deque<Entry>& entries) {
    for (int round = 0; round < 2000; ++round) {
        progress();
        holds(what, entries.empty());
    }
}

}  // namespace conformance
