// SPDX-License-Identifier: BSD-3-Clause
// Messages for an rc interface from plain queue pairs on the virtual HCA, mixed with what its user
// does: receives posted and cancelled, rendezvous sent, descriptors kept. At the end each receive
// buffer is posted again, and each operation has ended once.
#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "operations.hpp"
#include "uct/ib/address.hpp"
#include "uct/ib/completion_queue.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/ib/ib_md.hpp"
#include "uct/ib/message.hpp"
#include "uct/ib/options.hpp"
#include "uct/ib/rc/rc_address.hpp"

namespace tagwire::fuzz {
namespace {

using test::Entity;
using test::fact_of;

constexpr std::size_t kSegBytes = 256;
constexpr std::size_t kMessageBytesMax = 384;  // longer than a buffer
constexpr unsigned kPlaces = 32;
constexpr int kStepsMax = 2'000'000;
constexpr unsigned kReceives = 4;

void require_zero(int error) {
    require(error == 0);
}

ib::IbMd& stranger_md() {
    static const std::unique_ptr<uct::Md> md = [] {
        ib::IbMdOptions options{};
        require(ucs::config_fill(ib::md_options(), &options) == UCS_OK);
        uct::Md* opened = nullptr;
        require(ib::IbMd::open(ib::component(), "vhca0", options, &opened) == UCS_OK);
        return std::unique_ptr<uct::Md>(opened);
    }();
    return static_cast<ib::IbMd&>(*md);
}

/// Two queue pairs that pretend to be an endpoint of rc.
class Stranger {
  public:
    Stranger()
        : md_(stranger_md()),
          bytes_((kPlaces + 1) * kMessageBytesMax),
          mr_(ib::owned(md_.verbs().reg_mr(md_.pd(), bytes_.data(), bytes_.size(),
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
                        md_.verbs().dereg_mr)) {
        require(mr_ != nullptr && cq_.open(md_, 4 * kPlaces, nullptr, false) == UCS_OK);
        for (ib::OwnedQp& qp : qps_) {
            ibv_qp_init_attr attr{};
            attr.send_cq = attr.recv_cq = cq_.get();
            attr.cap = {kPlaces, kPlaces, 1, 1, 0};
            attr.qp_type = IBV_QPT_RC;
            qp = ib::owned(md_.verbs().create_qp(md_.pd(), &attr), md_.verbs().destroy_qp);
            require(qp != nullptr);
        }
    }
    ~Stranger() {
        for (ib::OwnedQp& qp : qps_)
            qp.reset();
    }

    void connect(const Entity& victim, uct_ep_h ep) {
        rc::RcEpAddress theirs{};
        test::require_ok(uct_ep_get_address(ep, reinterpret_cast<uct_ep_addr_t*>(&theirs)), "ep");
        std::string reason;
        theirs = *rc::parse_ep_address(std::as_bytes(std::span(&theirs, 1)), &reason);
        has_two_ = theirs.device_qp_num != 0;
        to_ready(*qps_[0], has_two_ ? theirs.device_qp_num : theirs.qp_num, theirs.psn);
        to_ready(*qps_[1], theirs.qp_num, theirs.psn);
        const rc::RcEpAddress ours = rc::pack({.version = rc::kRcAddressVersion,
                                               .flags = theirs.flags,
                                               .reads = 4,
                                               .check = 0,
                                               .seg_bytes = theirs.seg_bytes,
                                               .qp_num = qps_[0]->qp_num,
                                               .device_qp_num = has_two_ ? qps_[1]->qp_num : 0,
                                               .psn = 0,
                                               .credits = 16});
        const test::Bytes device = victim.device_address();
        test::require_ok(
            uct_ep_connect_to_ep(ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                                 reinterpret_cast<const uct_ep_addr_t*>(&ours)),
            "uct_ep_connect_to_ep");
    }

    [[nodiscard]] bool is_full() const { return sent_ - done_ == kPlaces; }
    [[nodiscard]] bool is_idle() const { return sent_ == done_; }

    /// The next bytes of the input, as they are but for a place where there is memory to read.
    void send(Input& input, std::size_t bytes, bool has_imm, bool to_other) {
        std::byte* place = bytes_.data() + sent_ % kPlaces * kMessageBytesMax;
        bytes = std::min(bytes, kMessageBytesMax);
        input.take_into(std::span(place, bytes));
        if (bytes >= 32 && place[24] == std::byte{0xff}) {  // RVH: our key and address
            const std::uint64_t va =
                htobe64(std::uint64_t{reinterpret_cast<std::uintptr_t>(bytes_.data())});
            const std::uint32_t rkey = htobe32(std::uint32_t{mr_->rkey});
            std::memcpy(place + 16, &va, sizeof va);
            std::memcpy(place + 24, &rkey, sizeof rkey);
        }
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(place), static_cast<std::uint32_t>(bytes),
                    mr_->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = has_imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = has_imm ? input.take<std::uint8_t>() : 0U;
        wr.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        require_zero(ibv_post_send(qps_[to_other && has_two_ ? 1 : 0].get(), &wr, &bad));
        ++sent_;
    }

    void progress() {
        const ib::Completion* completions = nullptr;
        const unsigned count = cq_.poll(&completions);
        for (unsigned i = 0; i < count; ++i) {
            if (completions[i].wr_id == 0)
                ++done_;
            else if (completions[i].status == IBV_WC_SUCCESS)
                post_receive(completions[i].wr_id);
        }
    }

  private:
    void to_ready(ibv_qp& qp, std::uint32_t peer, std::uint32_t psn) {
        ib::Port port;
        require(md_.device().port(1, -1, &port, nullptr) == UCS_OK);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
        const auto modify = md_.verbs().modify_qp;
        require_zero(modify(&qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        for (int i = 0; i < 8; ++i)
            post_receive(&qp == qps_[0].get() ? 1 : 2);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_4096;
        attr.dest_qp_num = peer;
        attr.rq_psn = psn;
        attr.max_dest_rd_atomic = 4;
        attr.min_rnr_timer = 1;
        attr.ah_attr = ib::path_to(port, ib::pack_port(port), 0, 0);
        require_zero(modify(&qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 4;
        require_zero(modify(&qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
    }

    void post_receive(std::uint64_t which) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes_.data() + kPlaces * kMessageBytesMax),
                    kMessageBytesMax, mr_->lkey};
        ibv_recv_wr wr{which, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        require_zero(ibv_post_recv(qps_[which - 1].get(), &wr, &bad));
    }

    ib::IbMd& md_;
    std::vector<std::byte> bytes_;  // places to send from; the last takes what comes
    ib::OwnedMr mr_;
    ib::CompletionQueue cq_;
    ib::OwnedQp qps_[2] = {{nullptr, nullptr}, {nullptr, nullptr}};
    unsigned sent_ = 0, done_ = 0;
    bool has_two_ = false;
};

test::EntityOptions options_of(bool by_device) {
    test::EntityOptions options;
    options.iface_config = {{"RC_TAG_MATCHING", by_device ? "device" : "software"},
                            {"RC_SEG_BYTES", std::to_string(kSegBytes)},
                            {"RC_RX_DEPTH", "2"},
                            {"RC_RX_HELD", "64"},
                            {"RC_RNDV_MAX", "1"},  // each buffer is posted again at once
                            {"RC_TX_DEPTH", "16"},
                            {"RC_TX_CQ_DEPTH", "64"},
                            {"RC_RNR_TIMER", "10us"},
                            {"RC_KEEPALIVE_INTERVAL", "0"}};
    return options;
}

/// The interface under attack, and its user.
class Victim {
  public:
    explicit Victim(bool by_device) : self_(test::resource_of("rc"), options_of(by_device)) {
        self_.keep_record = false;
        posted_at_first_ = fact_of(self_, "receive_buffers_posted");
        for (Slot& slot : slots_) {
            slot.receive = std::make_unique<test::Receive>(self_, kSegBytes);
            slot.receive->on_done = [&slot](test::Receive& done) {
                require(std::exchange(slot.is_posted, false) && done.endings() == 1);
            };
        }
        payload_ = std::make_unique<test::Buffer>(self_, kSegBytes, test::Backing::kRegistered);
        self_.on_am = [this](const test::AmMessage& message) { return look_at(message.data); };
        self_.on_eager = [this](const test::EagerFragment& part) { return look_at(part.data); };
        self_.on_error = [this](const test::PeerError&) { require(!std::exchange(failed_, true)); };
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = self_.iface();
        uct_ep_h ep = nullptr;
        test::require_ok(uct_ep_create(&params, &ep), "uct_ep_create");
        ep_ = test::Endpoint(ep);
        stranger_.connect(self_, ep);
    }

    void act(Input& input) {
        const auto step = input.take<std::uint8_t>();
        const unsigned argument = step / 8;
        Slot& slot = slots_[argument % kReceives];
        switch (step % 8) {
            case 0:
                if (!slot.is_posted)
                    slot.is_posted = slot.receive->post(argument % 8, ~uct_tag_t{0}) == UCS_OK;
                break;
            case 1:
                if (slot.is_posted && slot.receive->cancel(argument > 15) == UCS_OK)
                    slot.is_posted = argument <= 15;
                break;
            case 2:
                send_rendezvous();
                break;
            case 3:
                release(argument % 2 == 0 ? 1 : kept_.size());
                break;
            case 4:
                for (unsigned i = 0; i <= argument; ++i)
                    progress();
                break;
            default:
                until([&] { return failed_ || !stranger_.is_full(); });
                if (!failed_)
                    stranger_.send(input, input.take<std::uint16_t>() % (kMessageBytesMax + 1),
                                   argument % 2 != 0, argument % 8 == 6);
                break;
        }
    }

    /// Nothing is lost, nothing is under way.
    void end() {
        until([&] { return failed_ || stranger_.is_idle(); });
        ep_.reset();
        until([&] { return fact_of(self_, "endpoints") == 0; });
        release(kept_.size());
        for (Slot& slot : slots_) {
            if (slot.is_posted)
                slot.receive->cancel(true);
        }
        require(sends_ended_ == sends_);
        until([&] { return fact_of(self_, "receive_buffers_posted") == posted_at_first_; });
        require(fact_of(self_, "receive_buffers_held") == 0);
        require(fact_of(self_, "rendezvous_under_way") == 0);
    }

  private:
    struct Slot {
        std::unique_ptr<test::Receive> receive;
        bool is_posted = false;
    };

    void send_rendezvous() {
        const uct_iov_t iov = payload_->iov();
        completions_.push_back(std::make_unique<test::Completion>());
        completions_.back()->on_done = [this] { ++sends_ended_; };
        const auto handle =
            uct_ep_tag_rndv_zcopy(ep_, 3, "head", 4, &iov, 1, 0, completions_.back().get());
        sends_ += UCS_PTR_IS_ERR(handle) ? 0 : 1;
    }

    ucs_status_t look_at(void* data) {
        if (std::to_integer<unsigned>(*static_cast<std::byte*>(data)) % 4 != 3 || kept_.size() > 20)
            return UCS_OK;
        kept_.push_back(data);
        return UCS_INPROGRESS;
    }

    void release(std::size_t count) {
        for (; count > 0 && !kept_.empty(); --count) {
            uct_iface_release_desc(kept_.back());
            kept_.pop_back();
        }
    }

    void progress() {
        self_.progress();
        stranger_.progress();
    }

    template <class Condition>
    void until(Condition&& condition) {
        for (int i = 0; !condition(); ++i) {
            require(i < kStepsMax);
            progress();
        }
    }

    Entity self_;
    Stranger stranger_;
    std::vector<std::unique_ptr<test::Completion>> completions_;
    std::unique_ptr<test::Buffer> payload_;
    Slot slots_[kReceives];
    std::vector<void*> kept_;
    test::Endpoint ep_;
    long posted_at_first_ = 0;
    int sends_ = 0, sends_ended_ = 0;
    bool failed_ = false;
};

}  // namespace
}  // namespace tagwire::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    ::setenv("TAGWIRE_IB_VHCA_LIBRARY", TAGWIRE_TEST_VHCA, 0);
    ::setenv("TAGWIRE_IB_DEVICES", "vhca0", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "error", 0);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int ready = LLVMFuzzerInitialize(nullptr, nullptr);  // where it is only replayed
    tagwire::fuzz::require(ready == 0);
    tagwire::fuzz::Input input(data, size);
    tagwire::fuzz::Victim victim(input.take<std::uint8_t>() % 2 != 0);
    for (int acts = 0; acts < 200 && !input.at_end(); ++acts)
        victim.act(input);
    victim.end();
    return 0;
}
