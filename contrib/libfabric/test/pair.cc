// SPDX-License-Identifier: BSD-3-Clause
#include "pair.hpp"

#include <cstring>

namespace tagwire::fi_test {

namespace {

constexpr unsigned kSteps = 2'000'000;

}  // namespace

Text text_of(std::size_t length) {
    Text text(length, '\0');
    for (std::size_t i = 0; i < length; ++i)
        text[i] = static_cast<char>('a' + (i * 7 + length) % 26);
    return text;
}

Owner<fi_info> hints_for(std::uint64_t caps) {
    Owner<fi_info> hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup("tagwire");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = caps;
    return hints;
}

Owner<fi_info> ask(const fi_info* hints, const char* node, std::uint64_t flags, const char* service,
                   std::uint32_t version) {
    fi_info* found = nullptr;
    const int status = fi_getinfo(version, node, service, flags, hints, &found);
    EXPECT_TRUE(status == 0 || status == -FI_ENODATA) << fi_strerror(-status);
    return Owner<fi_info>(found);
}

void Pair::open(const Wanted& wanted) {
    const auto hints = hints_for(wanted.caps);
    hints->mode = wanted.mode;
    hints->tx_attr->op_flags = wanted.tx_op_flags;
    hints->rx_attr->op_flags = wanted.rx_op_flags;
    hints->domain_attr->threading = wanted.threading;
    hints->domain_attr->av_type = wanted.av_type;
    hints->domain_attr->data_progress = wanted.data_progress;
    hints->domain_attr->mr_mode = wanted.mr_mode;
    info = ask(hints.get(), nullptr, 0, nullptr, wanted.version);
    ASSERT_NE(info, nullptr);
    fid_fabric* made_fabric = nullptr;
    ASSERT_EQ(fi_fabric(info->fabric_attr, &made_fabric, nullptr), 0);
    fabric.reset(made_fabric);
    fid_domain* made_domain = nullptr;
    ASSERT_EQ(fi_domain(fabric.get(), info.get(), &made_domain, nullptr), 0);
    domain.reset(made_domain);
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    fid_av* made_av = nullptr;
    ASSERT_EQ(fi_av_open(domain.get(), &attr, &made_av, nullptr), 0);
    av.reset(made_av);
    ASSERT_NO_FATAL_FAILURE(open_side(a, wanted));
    ASSERT_NO_FATAL_FAILURE(open_side(b, wanted));
    if (!wanted.is_inserted)
        return;
    const std::array<Name, 2> names = {a.name, b.name};
    fi_addr_t addrs[2] = {};
    ASSERT_EQ(fi_av_insert(av.get(), names.data(), 2, addrs, 0, nullptr), 2);
    to_a = addrs[0];
    to_b = addrs[1];
    greet(a, b, to_b);
    greet(b, a, to_a);
}

void Pair::close() {
    for (Side* side : {&a, &b}) {
        side->ep.reset();
        *side = {};
    }
    av.reset();
    domain.reset();
    fabric.reset();
}

/// So that a test meets endpoints that know each other.
void Pair::greet(Side& from, Side& to, fi_addr_t addr) {
    if ((info->caps & FI_TAGGED) != 0) {
        fi_msg_tagged msg{};
        msg.addr = FI_ADDR_UNSPEC;
        ASSERT_EQ(fi_trecvmsg(to.ep.get(), &msg, FI_COMPLETION), 0);
        retry([&] { return fi_tinject(from.ep.get(), nullptr, 0, addr, 0); });
    } else {
        fi_msg msg{};
        msg.addr = FI_ADDR_UNSPEC;
        ASSERT_EQ(fi_recvmsg(to.ep.get(), &msg, FI_COMPLETION), 0);
        retry([&] { return fi_inject(from.ep.get(), nullptr, 0, addr); });
    }
    fi_cq_tagged_entry entry{};
    run_until([&] { return fi_cq_read(to.rx.get(), &entry, 1) == 1; });
    if ((info->mode & kBufferedRecv) != 0 || (info->caps & FI_VARIABLE_MSG) != 0) {
        fi_msg_tagged msg{};
        msg.context = entry.op_context;
        ASSERT_EQ(fi_trecvmsg(to.ep.get(), &msg, FI_CLAIM | FI_DISCARD), 0);
    }
    for (const auto* cntr : {&from.tx_cntr, &to.rx_cntr}) {
        if (*cntr != nullptr) {
            EXPECT_EQ(fi_cntr_wait(cntr->get(), 1, 30000), 0);
            EXPECT_EQ(fi_cntr_set(cntr->get(), 0), 0);
        }
    }
}

Owner<fid_ep> Pair::open_third(Name* name_p) {
    fid_ep* made = nullptr;
    EXPECT_EQ(fi_endpoint(domain.get(), info.get(), &made, nullptr), 0);
    Owner<fid_ep> third(made);
    EXPECT_EQ(fi_ep_bind(made, &av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(made, &b.rx->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_enable(made), 0);
    std::size_t length = name_p->size();
    EXPECT_EQ(fi_getname(&made->fid, name_p->data(), &length), 0);
    return third;
}

void Pair::open_side(Side& side, const Wanted& wanted) {
    fi_cq_attr cq_attr{};
    cq_attr.format = wanted.format;
    cq_attr.wait_obj = wanted.wait_obj;
    cq_attr.size = wanted.cq_size;
    for (Owner<fid_cq>* cq : {&side.tx, &side.rx}) {
        fid_cq* made = nullptr;
        ASSERT_EQ(fi_cq_open(domain.get(), &cq_attr, &made, nullptr), 0);
        cq->reset(made);
    }
    fid_ep* ep = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &ep, nullptr), 0);
    side.ep.reset(ep);
    ASSERT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(ep, &side.tx->fid, FI_TRANSMIT | wanted.bind_flags), 0);
    ASSERT_EQ(fi_ep_bind(ep, &side.rx->fid, FI_RECV | wanted.bind_flags), 0);
    if (wanted.has_counters) {
        open_counter(side, side.tx_cntr, FI_SEND);
        open_counter(side, side.rx_cntr, FI_RECV);
    }
    if (wanted.has_rma_counters) {
        open_counter(side, side.reads, FI_READ);
        open_counter(side, side.writes, FI_WRITE);
        open_counter(side, side.remote_reads, FI_REMOTE_READ);
        open_counter(side, side.remote_writes, FI_REMOTE_WRITE);
    }
    ASSERT_EQ(fi_enable(ep), 0);
    std::size_t length = side.name.size();
    ASSERT_EQ(fi_getname(&ep->fid, side.name.data(), &length), 0);
    ASSERT_EQ(length, side.name.size());
}

void Pair::open_counter(Side& side, Owner<fid_cntr>& cntr, std::uint64_t way) {
    fid_cntr* made = nullptr;
    ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
    cntr.reset(made);
    ASSERT_EQ(fi_ep_bind(side.ep.get(), &made->fid, way), 0);
}

void Pair::run_some() {
    for (int i = 0; i < 1000; ++i)
        for (const Side* side : {&a, &b})
            fi_cq_read(side->rx.get(), nullptr, 0);
}

bool Pair::run_until(const std::function<bool()>& is_done) {
    for (unsigned step = 0; step < kSteps; ++step) {
        if (is_done())
            return true;
        for (const Side* side : {&a, &b})
            if (side->rx != nullptr)
                fi_cq_read(side->rx.get(), nullptr, 0);
    }
    ADD_FAILURE() << "it never held";
    return false;
}

fi_cq_tagged_entry Pair::next(const Owner<fid_cq>& cq, fi_addr_t* source) {
    fi_cq_tagged_entry entry{};
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    ssize_t count = 0;
    run_until([&] {
        count = fi_cq_readfrom(cq.get(), &entry, 1, &from);
        return count != -FI_EAGAIN;
    });
    EXPECT_EQ(count, 1);
    if (source != nullptr)
        *source = from;
    return entry;
}

fi_cq_err_entry Pair::next_error(const Owner<fid_cq>& cq) {
    fi_cq_tagged_entry entry{};
    fi_cq_err_entry error{};
    ssize_t count = 0;
    run_until([&] {
        count = fi_cq_read(cq.get(), &entry, 1);
        return count != -FI_EAGAIN;
    });
    EXPECT_EQ(count, -FI_EAVAIL);
    EXPECT_EQ(fi_cq_readerr(cq.get(), &error, 0), 1);
    // Whatever has failed, the provider's own number is of one kind, with a text.
    char text[64] = "";
    EXPECT_LT(error.prov_errno, 0) << "of " << fi_strerror(error.err);
    EXPECT_NE(fi_cq_strerror(cq.get(), error.prov_errno, nullptr, text, sizeof text), nullptr);
    EXPECT_STRNE(text, "");
    EXPECT_STRNE(text, "Unknown status") << error.prov_errno;
    return error;
}

bool Pair::is_empty(const Owner<fid_cq>& cq) {
    run_some();
    fi_cq_tagged_entry entry{};
    return fi_cq_read(cq.get(), &entry, 1) == -FI_EAGAIN;
}

void Pair::retry(const std::function<ssize_t()>& call) {
    ssize_t status = 0;
    run_until([&] { return (status = call()) != -FI_EAGAIN; });
    ASSERT_EQ(status, 0) << fi_strerror(static_cast<int>(-status));
}

void Pair::expect_taken_without_reading(const std::function<ssize_t()>& call) {
    constexpr int kCallsMax = 10000;
    int taken = 0;
    for (const ssize_t awaited : {ssize_t{-FI_EAGAIN}, ssize_t{0}}) {
        ssize_t status = 1;
        for (int i = 0; i < kCallsMax && status != awaited; ++i) {
            fi_cq_read(b.rx.get(), nullptr, 0);
            status = call();
            ASSERT_TRUE(status == 0 || status == -FI_EAGAIN) << status;
            taken += status == 0 ? 1 : 0;
        }
        ASSERT_EQ(status, awaited);
    }
    for (int i = 0; i < taken; ++i)
        next(a.tx);
    EXPECT_TRUE(is_empty(a.tx));
}

void Pair::tsend(const Text& text, std::uint64_t tag, void* context) {
    const Text& kept = texts.emplace_back(text);
    retry([&] {
        return fi_tsend(a.ep.get(), kept.data(), kept.size(), nullptr, to_b, tag, context);
    });
}

void Pair::tsendmsg(const Text& text, std::uint64_t tag, std::uint64_t flags, void* context) {
    Text& kept = texts.emplace_back(text);
    const iovec iov = {kept.data(), kept.size()};
    fi_msg_tagged msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.tag = tag;
    msg.context = context;
    msg.data = 0xda7a;
    retry([&] { return fi_tsendmsg(a.ep.get(), &msg, flags); });
}

void Pair::trecv(Text& text, std::uint64_t tag, std::uint64_t ignore, void* context,
                 fi_addr_t from) {
    ASSERT_EQ(fi_trecv(b.ep.get(), text.data(), text.size(), nullptr, from, tag, ignore, context),
              0);
}

ssize_t Pair::trecvmsg(Text& text, std::uint64_t tag, std::uint64_t flags, void* context) {
    const iovec iov = {text.data(), text.size()};
    fi_msg_tagged msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = tag;
    msg.context = context;
    return fi_trecvmsg(b.ep.get(), &msg, flags);
}

}  // namespace tagwire::fi_test
