// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/wqe.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstring>

namespace tagwire::vhca::driver {

namespace {

static_assert(sizeof(mlx5_wqe_ctrl_seg) == kSegmentBytes);
static_assert(sizeof(mlx5_wqe_data_seg) == kSegmentBytes);
static_assert(sizeof(mlx5_wqe_raddr_seg) == kSegmentBytes);
static_assert(sizeof(mlx5_wqe_atomic_seg) == kSegmentBytes);
static_assert(sizeof(mlx5_wqe_av) == 3 * kSegmentBytes);
static_assert(kBlockBytes == MLX5_SEND_WQE_BB && kEndOfList == MLX5_INVALID_LKEY);

constexpr std::uint32_t kQpnMask = 0xffffff;
constexpr std::uint32_t kBytesMask = 0x7fffffff;
constexpr std::uint32_t kBytesOfZero = 0x80000000;  // what a data segment's count of 0 stands for

// Fields of fm_ce_se.
constexpr unsigned kFenceShift = 5;
constexpr unsigned kInitiatorFence =
    1;  // waits for what is done locally: that is done at once here

/// Segments, one after the other. Never reads beyond the entry.
class Segments {
  public:
    explicit Segments(std::span<const std::byte> entry) : entry_(entry) {}

    template <typename T>
    [[nodiscard]] bool take(T* segment_p, std::size_t bytes = sizeof(T)) {
        if (left() < bytes)
            return false;
        std::memcpy(static_cast<void*>(segment_p), entry_.data() + at_, bytes);
        at_ += bytes;
        return true;
    }
    /// Skips `bytes` of inline data; *offset_p is their offset in the entry.
    [[nodiscard]] bool pass(std::size_t bytes, std::uint32_t* offset_p) {
        if (left() < bytes)
            return false;
        *offset_p = static_cast<std::uint32_t>(at_);
        at_ = std::min((at_ + bytes + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes,
                       entry_.size());
        return true;
    }
    [[nodiscard]] std::size_t left() const { return entry_.size() - at_; }
    [[nodiscard]] std::uint32_t peek() const {
        std::uint32_t word = 0;
        std::memcpy(&word, entry_.data() + at_, sizeof word);
        return be32toh(word);
    }

  private:
    std::span<const std::byte> entry_;
    std::size_t at_ = 0;
};

bool needs_address(const WqeContext& context) {
    return context.type == IBV_QPT_UD || context.dc == DcKind::kInitiator;
}

/// 16 bytes, or 48.
bool take_address(Segments& segments, WqeAddress* address_p) {
    mlx5_wqe_av av{};
    if (!segments.take(&av, kSegmentBytes))
        return false;
    WqeAddress& address = *address_p;
    const std::uint32_t number = be32toh(av.dqp_dct);
    address.is_extended = (number & MLX5_EXTENDED_UD_AV) != 0;
    address.remote_qpn = number & kQpnMask;
    address.dc_key = be64toh(av.key.dc_key);
    address.remote_qkey = be32toh(av.key.qkey.qkey);
    address.attr = {};
    address.attr.sl = av.stat_rate_sl & 0xf;
    address.attr.static_rate = av.stat_rate_sl >> 4;
    address.attr.src_path_bits = av.fl_mlid & 0x7f;
    address.attr.dlid = be16toh(av.rlid);
    if (!address.is_extended)
        return true;
    mlx5_wqe_av whole{};
    auto* rest = reinterpret_cast<std::byte*>(&whole) + kSegmentBytes;
    std::array<std::byte, sizeof whole - kSegmentBytes> bytes;
    if (!segments.take(&bytes))
        return false;
    std::memcpy(rest, bytes.data(), bytes.size());
    const std::uint32_t flow = be32toh(whole.grh_gid_fl);
    address.attr.is_global = static_cast<std::uint8_t>(flow >> 30 & 1);
    address.attr.grh.sgid_index = static_cast<std::uint8_t>(flow >> 20);
    address.attr.grh.flow_label = flow & 0xfffff;
    address.attr.grh.hop_limit = whole.hop_limit;
    address.attr.grh.traffic_class = whole.tclass;
    std::memcpy(address.attr.grh.dgid.raw, whole.rgid, sizeof whole.rgid);
    return true;
}

struct Meaning {
    ibv_wr_opcode opcode;
    bool has_remote, has_atomic, may_inline;
};

/// False: not a request that this device carries out.
bool meaning_of(std::uint8_t opcode, Meaning* meaning_p) {
    switch (opcode) {
        case MLX5_OPCODE_SEND:
            *meaning_p = {IBV_WR_SEND, false, false, true};
            return true;
        case MLX5_OPCODE_SEND_IMM:
            *meaning_p = {IBV_WR_SEND_WITH_IMM, false, false, true};
            return true;
        case MLX5_OPCODE_SEND_INVAL:
            *meaning_p = {IBV_WR_SEND_WITH_INV, false, false, true};
            return true;
        case MLX5_OPCODE_RDMA_WRITE:
            *meaning_p = {IBV_WR_RDMA_WRITE, true, false, true};
            return true;
        case MLX5_OPCODE_RDMA_WRITE_IMM:
            *meaning_p = {IBV_WR_RDMA_WRITE_WITH_IMM, true, false, true};
            return true;
        case MLX5_OPCODE_RDMA_READ:
            *meaning_p = {IBV_WR_RDMA_READ, true, false, false};
            return true;
        case MLX5_OPCODE_ATOMIC_CS:
            *meaning_p = {IBV_WR_ATOMIC_CMP_AND_SWP, true, true, false};
            return true;
        case MLX5_OPCODE_ATOMIC_FA:
            *meaning_p = {IBV_WR_ATOMIC_FETCH_AND_ADD, true, true, false};
            return true;
        default:
            return false;
    }
}

bool take_remote(Segments& segments, const Meaning& meaning, SendWork& work) {
    mlx5_wqe_raddr_seg remote;
    if (!segments.take(&remote))
        return false;
    work.remote_addr = be64toh(remote.raddr);
    work.rkey = be32toh(remote.rkey);
    if (!meaning.has_atomic)
        return true;
    mlx5_wqe_atomic_seg atomic;
    if (!segments.take(&atomic))
        return false;
    const bool is_add = meaning.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    work.compare_add = be64toh(is_add ? atomic.swap_add : atomic.compare);
    work.swap = is_add ? 0 : be64toh(atomic.swap_add);
    return true;
}

bool take_pieces(Segments& segments, bool may_inline, Wqe& wqe) {
    while (segments.left() != 0) {
        WqePiece& piece = wqe.pieces[wqe.piece_count++];  // the entry has no more than there are
        if ((segments.peek() & MLX5_INLINE_SEG) != 0) {
            mlx5_wqe_inl_data_seg head;
            piece = {};
            piece.is_inline = true;
            if (!may_inline || !segments.take(&head))
                return false;
            piece.sge.length = be32toh(head.byte_count) & kBytesMask;
            if (!segments.pass(piece.sge.length, &piece.offset))
                return false;
            continue;
        }
        mlx5_wqe_data_seg data;
        if (!segments.take(&data))
            return false;
        const std::uint32_t bytes = be32toh(data.byte_count);
        piece = {};
        piece.sge = {be64toh(data.addr), bytes == 0 ? kBytesOfZero : bytes, be32toh(data.lkey)};
    }
    return true;
}

bool take_request(Segments& segments, const mlx5_wqe_ctrl_seg& control, const WqeContext& context,
                  Wqe& wqe) {
    Meaning meaning{};
    if (!meaning_of(wqe.opcode, &meaning))
        return false;
    const bool is_of_another_size = be32toh(control.opmod_idx_opcode) >> 24 != 0;
    if (meaning.has_atomic && is_of_another_size)
        return false;
    SendWork& work = wqe.work;
    work.opcode = meaning.opcode;
    work.imm = meaning.opcode == IBV_WR_SEND_WITH_INV ? be32toh(control.imm) : control.imm;
    wqe.has_address = needs_address(context);
    if (wqe.has_address) {
        if (!take_address(segments, &wqe.address))
            return false;
        work.remote_qpn = wqe.address.remote_qpn;
        work.remote_qkey = wqe.address.remote_qkey;
        work.dc_key = wqe.address.dc_key;
    }
    return (!meaning.has_remote || take_remote(segments, meaning, work)) &&
           take_pieces(segments, meaning.may_inline, wqe);
}

bool take_append(Segments& segments, const mlx5_wqe_tm_seg& operation, TagCommand& tag) {
    mlx5_wqe_data_seg data;
    if (!segments.take(&data))
        return false;
    tag.tag = be64toh(operation.append_tag);
    tag.mask = be64toh(operation.append_mask);
    if (be32toh(data.lkey) != kEndOfList)
        tag.sge = {be64toh(data.addr), be32toh(data.byte_count), be32toh(data.lkey)};
    return true;
}

/// The tag and its mask are there with APPEND only.
bool take_tag_command(Segments& segments, Wqe& wqe) {
    constexpr std::uint8_t kWantsCompletion = 0x80, kHasCount = 0x40;
    enum : std::uint8_t { kNop = 0, kAppend = 1, kRemove = 2 };
    mlx5_wqe_tm_seg operation{};
    if (!segments.take(&operation, kSegmentBytes))
        return false;
    TagCommand& tag = wqe.tag;
    tag.wants_completion = (operation.flags & kWantsCompletion) != 0;
    tag.has_count = (operation.flags & kHasCount) != 0;
    tag.count = be16toh(operation.sw_cnt);
    tag.index = be16toh(operation.index);
    switch (operation.opcode >> 4) {
        case kNop:
            tag.kind = TagCommand::Kind::kNop;
            return true;
        case kRemove:
            tag.kind = TagCommand::Kind::kRemove;
            return true;
        case kAppend:
            tag.kind = TagCommand::Kind::kAppend;
            return segments.take(&operation.append_tag, sizeof operation.append_tag) &&
                   segments.take(&operation.append_mask, sizeof operation.append_mask) &&
                   take_append(segments, operation, tag);
        default:
            return false;
    }
}

unsigned flags_of(std::uint8_t fm_ce_se) {
    const unsigned fence = fm_ce_se >> kFenceShift;
    return ((fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0 ? unsigned{IBV_SEND_SIGNALED} : 0U) |
           ((fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0 ? unsigned{IBV_SEND_SOLICITED} : 0U) |
           (fence > kInitiatorFence ? unsigned{IBV_SEND_FENCE} : 0U);
}

std::size_t bytes_of(const mlx5_wqe_ctrl_seg& control) {
    return (be32toh(control.qpn_ds) & 0x3f) * kSegmentBytes;
}

bool take_body(std::span<const std::byte> entry, const mlx5_wqe_ctrl_seg& control,
               const WqeContext& context, Wqe& wqe) {
    Segments segments(entry);
    mlx5_wqe_ctrl_seg passed;
    if (!segments.take(&passed))
        return false;
    if (wqe.opcode == MLX5_OPCODE_NOP) {  // whatever follows
        wqe.work.is_nop = true;
        return true;
    }
    wqe.is_tag_command = wqe.opcode == MLX5_OPCODE_TAG_MATCHING;
    if (wqe.is_tag_command)
        return context.commands_tags && take_tag_command(segments, wqe);
    return take_request(segments, control, context, wqe);
}

}  // namespace

std::uint32_t blocks_of(std::span<const std::byte, kSegmentBytes> control) {
    mlx5_wqe_ctrl_seg segment;
    std::memcpy(&segment, control.data(), sizeof segment);
    const std::size_t bytes = std::max(bytes_of(segment), kSegmentBytes);
    return static_cast<std::uint32_t>((bytes + kBlockBytes - 1) / kBlockBytes);
}

void refuse(Wqe* wqe_p) {
    const std::uint16_t stream = wqe_p->work.stream;
    wqe_p->work = {};
    wqe_p->work.stream = stream;
    wqe_p->work.flags = IBV_SEND_SIGNALED;
    wqe_p->work.refused = IBV_WC_LOC_QP_OP_ERR;
    wqe_p->has_address = wqe_p->is_tag_command = false;
    wqe_p->piece_count = 0;
}

void parse_wqe(std::span<const std::byte> entry, std::uint16_t expected, const WqeContext& context,
               Wqe* wqe_p) {
    Wqe& wqe = *wqe_p;
    mlx5_wqe_ctrl_seg control;
    std::memcpy(&control, entry.data(), sizeof control);
    const std::uint32_t head = be32toh(control.opmod_idx_opcode);
    wqe.opcode = static_cast<std::uint8_t>(head);
    wqe.index = static_cast<std::uint16_t>(head >> 8);
    wqe.blocks = std::min(blocks_of(entry.first<kSegmentBytes>()),
                          static_cast<std::uint32_t>(entry.size() / kBlockBytes));
    wqe.wants_completion = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    wqe.work = {};
    wqe.work.flags = flags_of(control.fm_ce_se);
    wqe.work.stream = be16toh(control.dci_stream_channel_id);
    wqe.has_address = wqe.is_tag_command = false;
    wqe.tag = {};
    wqe.piece_count = 0;
    const std::size_t bytes = bytes_of(control);
    if (wqe.index != expected || bytes > entry.size() ||
        !take_body(entry.first(bytes), control, context, wqe)) {
        refuse(&wqe);
    }
}

std::size_t parse_receive(std::span<const std::byte> entry, std::span<ibv_sge> to) {
    std::size_t count = 0;
    for (Segments segments(entry); count != to.size();) {
        mlx5_wqe_data_seg data;
        if (!segments.take(&data) || be32toh(data.lkey) == kEndOfList)
            break;
        const std::uint32_t bytes = be32toh(data.byte_count) & kBytesMask;
        if (bytes != 0)
            to[count++] = {be64toh(data.addr), bytes, be32toh(data.lkey)};
    }
    return count;
}

}  // namespace tagwire::vhca::driver
