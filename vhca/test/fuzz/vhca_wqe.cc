// SPDX-License-Identifier: BSD-3-Clause
// Queues of mlx5 in the memory of a hostile program: entries that are nearly right and such that
// are not, counters from nowhere, completions that nobody consumes.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <deque>
#include <functional>
#include <vector>

#include "input.hpp"
#include "target.hpp"
#include "vhca/driver/rings.hpp"

namespace tagwire::fuzz::vhca_wqe_fuzz {
namespace {

using namespace vhca;          // NOLINT(google-build-using-namespace)
using namespace vhca::driver;  // NOLINT(google-build-using-namespace)

constexpr Route kSelf{1};
constexpr std::uint64_t kDcKey = 0x1234;
constexpr std::uint32_t kQkey = 0x11;

/// Every packet comes back to the device that sent it, if there are not too many.
class Loop final : public Wire {
  public:
    std::byte* claim(Route, std::size_t bytes) override {
        require(bytes <= kPacketBytesMax);
        return packets.size() == 32 ? nullptr : place_.data();
    }
    void commit(Route, std::size_t bytes) override {
        packets.emplace_back(place_.begin(), place_.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    std::deque<std::vector<std::byte>> packets;

  private:
    std::array<std::byte, kPacketBytesMax> place_{};
};

/// Exactly as long as it says: the sanitizer sees what goes beyond. `count` words of a record.
struct Ring {
    Ring(std::uint32_t entries, std::uint32_t entry_bytes)
        : bytes(std::size_t{entries} * entry_bytes) {
        memory = {reinterpret_cast<std::uint64_t>(bytes.data()), entries, entry_bytes};
    }
    [[nodiscard]] std::uint64_t record() const {
        return reinterpret_cast<std::uint64_t>(words.data());
    }
    void set(unsigned word, std::uint32_t value) { words[word] = htobe32(value); }
    void write(std::size_t offset, std::span<const std::byte> from) {
        for (const std::byte byte : from)
            bytes[offset++ % bytes.size()] = byte;
    }
    std::vector<std::byte> bytes;
    RingMemory memory;
    std::vector<std::uint32_t> words = std::vector<std::uint32_t>(2);
};

struct Pair {
    Pair() : sends(8, 64), receives(8, 32), source(receives.memory, receives.record()) {}
    Ring sends, receives;
    ReceiveRing source;
    std::unique_ptr<SendRing> ring;
    std::unique_ptr<TagRing> tags;
    Qp* qp = nullptr;
    Mr* shadow = nullptr;
    std::uint16_t posted = 0, received = 0;
};

class Program final : public EventSink {
  public:
    Program()
        : device_(config(), loop_, *this, 1),
          completions_(std::make_unique<Ring>(16, 64)),
          list_(shared_.memory, shared_.record()) {
        require(device_.create_pd(nullptr, &pd_) == 0);
        require(device_.create_mr(*pd_, data_.data(), data_.size(), address(0), kAccess, &mr_) ==
                0);
        pipe_ = EventPipe::create(8);
        require(pipe_ != nullptr);
        program_end_.reset(pipe_->program_fd());
        cq_ring_ = std::make_unique<CqRing>(
            CqRing::Config{.ring = completions_->memory,
                           .record = completions_->record(),
                           .channel = pipe_.get(),
                           .user_handle = 7,
                           .owner_of = [](const Completion& completion) {
                               return CqeOwner{.qpn = completion.wc.qp_num};
                           }});
        require(device_.create_cq({.cqe = 16, .consumer = cq_ring_.get()}, &cq_) == 0);
        SrqConfig shared{.pd = pd_, .wr_max = 8, .sge_max = 1, .source = &list_};
        shared.tm = {.tags_max = 4, .ops_max = 4, .cq = cq_, .keeps_places = true};
        require(device_.create_srq(shared, &srq_) == 0);
        add({.type = IBV_QPT_RC}, {});
        add({.type = IBV_QPT_RC}, {});
        add({.type = IBV_QPT_UD}, {.type = IBV_QPT_UD});
        add({.type = IBV_QPT_DRIVER, .dc = {.kind = DcKind::kInitiator, .has_streams = true}},
            {.type = IBV_QPT_DRIVER, .dc = DcKind::kInitiator});
        add({.type = IBV_QPT_RC, .srq = srq_}, {.commands_tags = true});
        add({.type = IBV_QPT_RC}, {});
        for (Pair& pair : pairs_)
            start(pair);
    }
    ~Program() override {
        for (Pair& pair : pairs_)
            require(device_.destroy_qp(*pair.qp) == 0);
        require(device_.destroy_srq(*srq_) == 0);
        require(device_.destroy_cq(*cq_) == 0);
        cq_ring_->retire();
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void act(Input& input) {
        Pair& pair = pairs_[input.take<std::uint8_t>() % pairs_.size()];
        switch (input.take<std::uint8_t>() % 9) {
            case 0:
            case 1:
                post(input, pair);
                return;
            case 2:
                post_receive(input, pair);
                return;
            case 3:
                scribble(input, pair);
                return;
            case 4:
                completions_->set(0, input.take<std::uint32_t>());
                return;
            case 5:
                completions_->set(1, input.take<std::uint32_t>());
                return;
            case 6:
                resize(input);
                return;
            case 7:
                change(input, pair);
                return;
            default:
                look(input);
        }
    }

  private:
    static constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    static DeviceConfig config() {
        DeviceConfig config;
        config.has_dc = true;
        config.tm_tags_max = 4;
        return config;
    }
    void cq_event(Cq&) override {}
    void qp_event(ibv_event_type, Qp&) override {}
    void srq_event(ibv_event_type, Srq&) override {}
    void cq_error(Cq&) override {}

    [[nodiscard]] std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(data_.data()) + offset;
    }

    void add(QpConfig wanted, const WqeContext& context) {
        Pair& pair = pairs_.emplace_back();
        const bool receives = wanted.srq == nullptr && wanted.dc.kind == DcKind::kNone;
        wanted.pd = pd_;
        wanted.send_cq = wanted.recv_cq = cq_;
        wanted.cap = {4, 4, 30, 2, 0};
        wanted.keeps_places = true;
        wanted.source = receives ? &pair.source : nullptr;
        require(device_.create_qp(wanted, &pair.qp) == 0);
        SendRing::Config ring{.ring = pair.sends.memory,
                              .record = pair.sends.record(),
                              .context = context,
                              .route_of = [](const WqeAddress&) { return kSelf; }};
        if (context.commands_tags) {
            pair.tags = std::make_unique<TagRing>(ring, indices_);
            return;
        }
        pair.ring = std::make_unique<SendRing>(ring);
        const auto shadow = pair.ring->shadow();
        require(device_.create_mr(*pd_, shadow.data(), shadow.size(),
                                  reinterpret_cast<std::uint64_t>(shadow.data()), 0,
                                  &pair.shadow) == 0);
        pair.ring->set_inline_key(pair.shadow->key);
    }

    /// To RTS. The first two, and the last and the tag-matching one, are connected.
    void start(Pair& pair) {
        ibv_qp_attr attr{};
        attr.port_num = attr.ah_attr.port_num = 1;
        attr.qkey = kQkey;
        attr.qp_access_flags = kAccess;
        attr.path_mtu = IBV_MTU_256;
        attr.dest_qp_num = peer_of(pair).qp->number();
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
        attr.timeout = 8;
        const bool is_rc = pair.qp->type() == IBV_QPT_RC, is_ud = pair.qp->type() == IBV_QPT_UD;
        const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                         (is_rc   ? IBV_QP_ACCESS_FLAGS
                          : is_ud ? IBV_QP_QKEY
                                  : 0);
        const int rtr = is_rc ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                        : is_ud ? 0
                                : IBV_QP_PATH_MTU;
        const int rts = IBV_QP_SQ_PSN | (is_ud ? 0
                                               : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
        modify(pair, IBV_QPS_INIT, attr, init);
        modify(pair, IBV_QPS_RTR, attr, rtr);
        modify(pair, IBV_QPS_RTS, attr, rts);
    }
    void modify(Pair& pair, ibv_qp_state state, ibv_qp_attr attr, int mask) {
        attr.qp_state = state;
        require(pair.qp->modify(attr, mask | IBV_QP_STATE, kSelf, now_) == 0);
    }
    Pair& peer_of(const Pair& pair) {
        const auto index = [&] {
            for (std::size_t i = 0; i != pairs_.size(); ++i)
                if (&pairs_[i] == &pair)
                    return i;
            return std::size_t{0};
        }();
        constexpr std::array<std::size_t, 6> kPeers{1, 0, 2, 3, 5, 4};
        return pairs_[kPeers[index]];
    }

    /// Segments as they should be, or bytes.
    void add_segment(Input& input, std::vector<std::byte>& entry) {
        std::array<std::byte, 48> segment{};
        std::size_t bytes = 16;
        switch (input.take<std::uint8_t>() % 6) {
            case 0: {
                const mlx5_wqe_data_seg data{htobe32(input.below(300)), htobe32(mr_->key),
                                             htobe64(address(input.below(1024)))};
                std::memcpy(segment.data(), &data, sizeof data);
                break;
            }
            case 1: {
                const mlx5_wqe_raddr_seg remote{htobe64(address(input.below(128) * 8)),
                                                htobe32(mr_->key), 0};
                std::memcpy(segment.data(), &remote, sizeof remote);
                break;
            }
            case 2: {
                mlx5_wqe_av av{};
                av.key.dc_key = htobe64(kDcKey);
                const bool is_long = (input.take<std::uint8_t>() % 2 != 0);
                av.dqp_dct = htobe32((is_long ? MLX5_EXTENDED_UD_AV : 0U) |
                                     pairs_[input.below(6)].qp->number());
                bytes = is_long ? 48 : 16;
                if (input.take<std::uint8_t>() % 2 == 0)
                    av.key.qkey = {htobe32(kQkey), 0};
                std::memcpy(segment.data(), &av, sizeof av);
                break;
            }
            case 3: {
                const std::uint32_t length = htobe32(MLX5_INLINE_SEG | input.take<std::uint8_t>());
                std::memcpy(segment.data(), &length, sizeof length);
                input.take_into(std::span(segment).subspan(4, 12));
                break;
            }
            case 4: {
                mlx5_wqe_tm_seg tag{};
                tag.opcode = static_cast<std::uint8_t>(input.below(3) << 4);
                tag.flags = input.take<std::uint8_t>();
                tag.index = htobe16(input.take<std::uint8_t>() % 8);
                tag.sw_cnt = htobe16(input.take<std::uint8_t>());
                tag.append_tag = input.take<std::uint8_t>();
                tag.append_mask = ~std::uint64_t{0};
                bytes = sizeof tag;
                std::memcpy(segment.data(), &tag, sizeof tag);
                break;
            }
            default:
                input.take_into(std::span(segment).first(16));
        }
        entry.insert(entry.end(), segment.begin(),
                     segment.begin() + static_cast<std::ptrdiff_t>(bytes));
    }

    void post(Input& input, Pair& pair) {
        constexpr std::array<std::uint8_t, 11> kOpcodes{0x28, 0,    1,    8,    9,   0xa,
                                                        0xb,  0x10, 0x11, 0x12, 0x25};
        const auto kind = input.take<std::uint8_t>();
        std::vector<std::byte> entry(16);
        for (unsigned i = 0; i != kind % 7U; ++i)
            add_segment(input, entry);
        mlx5_wqe_ctrl_seg control{};
        const std::uint32_t opcode = kOpcodes[input.below(kOpcodes.size())];
        control.opmod_idx_opcode = htobe32(std::uint32_t{pair.posted} << 8 | opcode);
        const auto segments = static_cast<std::uint32_t>(entry.size() / 16);
        control.qpn_ds = htobe32(kind > 250 ? kind : segments);
        control.dci_stream_channel_id = htobe16(kind % 3);
        control.fm_ce_se = input.take<std::uint8_t>();
        std::memcpy(entry.data(), &control, sizeof control);
        pair.sends.write(std::size_t{pair.posted} * 64, entry);
        pair.posted = static_cast<std::uint16_t>(pair.posted + (segments + 3) / 4);
        pair.sends.set(1, pair.posted);
    }

    void post_receive(Input& input, Pair& pair) {
        const mlx5_wqe_data_seg data{htobe32(input.below(600)), htobe32(mr_->key),
                                     htobe64(address(input.below(1024)))};
        const auto bytes = std::as_bytes(std::span(&data, 1));
        if (pair.tags != nullptr) {
            shared_.write(std::size_t{shared_posted_} * 32 + 16, bytes);
            const std::array<std::uint8_t, 2> next{
                0, static_cast<std::uint8_t>((shared_posted_ + 1) % 8)};
            shared_.write(std::size_t{shared_posted_} * 32 + 2, std::as_bytes(std::span(next)));
            shared_.set(0, ++shared_posted_);
            return;
        }
        pair.receives.write(std::size_t{pair.received} * 32, bytes);
        pair.receives.set(0, ++pair.received);
    }

    void scribble(Input& input, Pair& pair) {
        const auto what = input.take<std::uint8_t>();
        Ring& ring = what % 3 == 0 ? pair.sends : what % 3 == 1 ? pair.receives : shared_;
        std::array<std::byte, 16> bytes{};
        input.take_into(std::span(bytes).first(what / 16U));
        ring.write(input.take<std::uint8_t>() * std::size_t{4}, std::span(bytes).first(what / 16U));
        if (what % 8 == 0)
            ring.set(what >> 4 & 1, input.take<std::uint16_t>());
    }

    void resize(Input& input) {
        auto next = std::make_unique<Ring>(1U << input.below(6),
                                           (input.take<std::uint8_t>() % 2 != 0) ? 128 : 64);
        if (cq_ring_->resize(next->memory) == 0) {
            next->words.swap(completions_->words);  // the record stays where it is
            completions_.swap(next);
        }
    }

    void change(Input& input, Pair& pair) {
        const bool is_reset = (input.take<std::uint8_t>() % 2 != 0);
        modify(pair, is_reset ? IBV_QPS_RESET : IBV_QPS_ERR, {}, 0);
        if (!is_reset) {
            pair.qp->flush_source(now_);
            return;
        }
        pair.source.reset();
        pair.posted = pair.received = 0;
        pair.sends.set(1, 0);
        pair.receives.set(0, 0);
        if (pair.ring != nullptr)
            pair.ring->reset();
        else
            pair.tags->reset();
        start(pair);
    }

    void look(Input& input) {
        for (Pair& pair : pairs_)
            if (pair.ring != nullptr)
                pair.ring->poll(*pair.qp, now_);
            else
                pair.tags->poll(*pair.qp, *srq_, now_);
        for (unsigned i = input.take<std::uint8_t>() % 64; i != 0 && !loop_.packets.empty(); --i) {
            const auto packet = std::move(loop_.packets.front());
            loop_.packets.pop_front();
            device_.receive(kSelf, packet, now_);
        }
        now_ += input.take<std::uint16_t>() * Time{1000};
        device_.progress(now_);
        cq_ring_->poll();
    }

    Loop loop_;
    std::vector<std::byte> data_ = std::vector<std::byte>(1024);
    Device device_;
    Pd* pd_ = nullptr;
    Mr* mr_ = nullptr;
    std::unique_ptr<EventPipe> pipe_;
    ucs::UniqueFd program_end_;
    std::unique_ptr<Ring> completions_;
    std::unique_ptr<CqRing> cq_ring_;
    Cq* cq_ = nullptr;
    Ring shared_{8, 32};
    std::uint16_t shared_posted_ = 0;
    ReceiveList list_;
    Srq* srq_ = nullptr;
    TagIndices indices_;
    std::deque<Pair> pairs_;
    Time now_ = 0;
};

/// Bytes alone, for each kind of queue pair.
void parse_bytes(Input& input) {
    constexpr std::array<WqeContext, 4> kContexts{
        WqeContext{}, WqeContext{.type = IBV_QPT_UD},
        WqeContext{.type = IBV_QPT_DRIVER, .dc = DcKind::kInitiator},
        WqeContext{.commands_tags = true}};
    const std::size_t blocks = 1 + input.below(16);
    std::vector<std::byte> entry(blocks * kBlockBytes);
    input.take_into(entry);
    const auto index = static_cast<std::uint16_t>(std::to_integer<unsigned>(entry[1]) << 8 |
                                                  std::to_integer<unsigned>(entry[2]));
    for (const WqeContext& context : kContexts) {
        Wqe wqe;
        parse_wqe(entry, index, context, &wqe);
        require(wqe.blocks >= 1 && wqe.blocks <= blocks && wqe.piece_count <= Wqe::kPiecesMax);
        for (const WqePiece& piece : std::span(wqe.pieces).first(wqe.piece_count)) {
            require(!piece.is_inline ||
                    std::size_t{piece.offset} + piece.sge.length <= entry.size());
        }
    }
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    if (input.take<std::uint8_t>() % 4 == 0) {
        parse_bytes(input);
        return;
    }
    Program program;
    for (int acts = 0; acts != 300 && !input.at_end(); ++acts)
        program.act(input);
}

}  // namespace

extern const Target kTarget{"vhca_wqe", nullptr, run_input};

}  // namespace tagwire::fuzz::vhca_wqe_fuzz
