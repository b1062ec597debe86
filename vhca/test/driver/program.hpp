// SPDX-License-Identifier: BSD-3-Clause
// As libmlx5 in a program: writes entries into rings and their records, reads completions.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

/// A doorbell record.
class Words {
  public:
    [[nodiscard]] std::uint64_t address() const {
        return reinterpret_cast<std::uint64_t>(words_.data());
    }
    void set(unsigned word, std::uint32_t value) { words_[word] = htobe32(value); }
    [[nodiscard]] std::uint32_t get(unsigned word) const { return be32toh(words_[word]); }

  private:
    alignas(64) std::array<std::uint32_t, 2> words_{};
};

/// Entries of 64 bytes and more begin at addresses that are multiples of 64.
class Memory {
  public:
    Memory(std::uint32_t entries, std::uint32_t entry_bytes)
        : blocks_((std::size_t{entries} * entry_bytes + 63) / 64),
          ring_{reinterpret_cast<std::uint64_t>(blocks_.data()), entries, entry_bytes} {}
    [[nodiscard]] const RingMemory& ring() const { return ring_; }
    [[nodiscard]] std::byte* at(std::size_t offset) {
        return reinterpret_cast<std::byte*>(blocks_.data()) + offset % ring_.bytes();
    }
    /// Goes on at the beginning.
    void write(std::size_t offset, std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes)
            *at(offset++) = byte;
    }

  private:
    struct alignas(64) Block {
        std::array<std::byte, 64> bytes;
    };
    std::vector<Block> blocks_;
    RingMemory ring_;
};

template <typename T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

inline mlx5_wqe_data_seg data_segment(const ibv_sge& sge) {
    return {htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)};
}

/// A work queue entry in the making, segment by segment.
class Entry {
  public:
    explicit Entry(std::uint8_t opcode, std::uint8_t fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE)
        : opcode_(opcode), fm_ce_se_(fm_ce_se), bytes_(kSegmentBytes) {}

    Entry& immediate(std::uint32_t imm_be) {
        imm_be_ = imm_be;
        return *this;
    }
    Entry& stream(std::uint16_t stream) {
        stream_ = stream;
        return *this;
    }
    Entry& modifier(std::uint8_t modifier) {
        modifier_ = modifier;
        return *this;
    }
    template <typename T>
    Entry& add(const T& segment, std::size_t bytes = sizeof(T)) {
        const auto from = bytes_of(segment).first(bytes);
        bytes_.insert(bytes_.end(), from.begin(), from.end());
        return *this;
    }
    Entry& remote(std::uint64_t address, std::uint32_t rkey) {
        return add(mlx5_wqe_raddr_seg{htobe64(address), htobe32(rkey), 0});
    }
    Entry& atomic(std::uint64_t swap_add, std::uint64_t compare) {
        return add(mlx5_wqe_atomic_seg{htobe64(swap_add), htobe64(compare)});
    }
    Entry& data(const ibv_sge& sge) { return add(data_segment(sge)); }
    Entry& text(const std::string& text) {
        const auto from = bytes_of(text);
        add(std::uint32_t{htobe32(static_cast<std::uint32_t>(text.size()) | MLX5_INLINE_SEG)});
        bytes_.insert(bytes_.end(), from.begin(), from.end());
        bytes_.resize((bytes_.size() + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes);
        return *this;
    }

    /// In whole blocks, at that place of the ring.
    [[nodiscard]] std::vector<std::byte> finish(std::uint16_t index,
                                                std::optional<std::uint32_t> segments = {}) const {
        std::vector<std::byte> entry = bytes_;
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode =
            htobe32(std::uint32_t{modifier_} << 24 | std::uint32_t{index} << 8 | opcode_);
        const auto own = static_cast<std::uint32_t>(bytes_.size() / kSegmentBytes);
        control.qpn_ds = htobe32(0x123400 | segments.value_or(own));
        control.dci_stream_channel_id = htobe16(stream_);
        control.fm_ce_se = fm_ce_se_;
        control.imm = imm_be_;
        std::memcpy(entry.data(), &control, sizeof control);
        entry.resize((entry.size() + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
        return entry;
    }

  private:
    std::uint8_t opcode_, fm_ce_se_, modifier_ = 0;
    std::uint16_t stream_ = 0;
    std::uint32_t imm_be_ = 0;
    std::vector<std::byte> bytes_;
};

inline mlx5_wqe_av address_vector(std::uint32_t number, std::uint64_t key, std::uint16_t dlid) {
    mlx5_wqe_av av{};
    av.key.dc_key = htobe64(key);
    av.dqp_dct = htobe32(number);
    av.rlid = htobe16(dlid);
    return av;
}

/// A send queue of `blocks`.
struct PostedSends {
    explicit PostedSends(std::uint32_t blocks) : memory(blocks, kBlockBytes) {}
    /// Returns its place.
    std::uint16_t post(const Entry& entry) {
        const std::uint16_t index = posted;
        const auto bytes = entry.finish(index);
        memory.write(std::size_t{index} * kBlockBytes, bytes);
        posted = static_cast<std::uint16_t>(posted + bytes.size() / kBlockBytes);
        record.set(1, posted);
        return index;
    }
    Memory memory;
    Words record;
    std::uint16_t posted = 0;
};

/// A receive queue: the entries are lists of `pieces`.
struct PostedReceives {
    PostedReceives(std::uint32_t entries, std::uint32_t pieces)
        : memory(entries, pieces * static_cast<std::uint32_t>(kSegmentBytes)) {}
    void post(std::span<const ibv_sge> sges) {
        std::vector<mlx5_wqe_data_seg> list;
        for (const ibv_sge& sge : sges)
            list.push_back(data_segment(sge));
        if (list.size() < memory.ring().entry_bytes / kSegmentBytes)
            list.push_back({0, htobe32(kEndOfList), 0});
        memory.write(std::size_t{posted} * memory.ring().entry_bytes,
                     std::as_bytes(std::span(list)));
        record.set(0, ++posted);
    }
    Memory memory;
    Words record;
    std::uint16_t posted = 0;
};

/// An SRQ: one piece per receive. As libmlx5, the entry that is the tail is never posted.
struct PostedList {
    explicit PostedList(std::uint32_t entries) : memory(entries, 32), tail(entries - 1) {
        for (std::uint32_t i = 0; i != entries; ++i)
            link(i, i + 1);
    }
    void link(std::uint32_t from, std::uint32_t to) {
        mlx5_wqe_srq_next_seg next{};
        next.next_wqe_index = htobe16(static_cast<std::uint16_t>(to));
        memory.write(std::size_t{from} * 32, bytes_of(next));
    }
    /// Returns its index.
    std::uint32_t post(const ibv_sge& sge) {
        const std::uint32_t index = head;
        mlx5_wqe_srq_next_seg next;
        std::memcpy(&next, memory.at(std::size_t{index} * 32), sizeof next);
        head = be16toh(next.next_wqe_index);
        const auto data = data_segment(sge);
        memory.write(std::size_t{index} * 32 + 16, bytes_of(data));
        record.set(0, ++posted);
        return index;
    }
    /// Its completion was polled.
    void release(std::uint32_t index) {
        link(tail, index);
        tail = index;
    }
    Memory memory;
    Words record;
    std::uint16_t posted = 0;
    std::uint32_t head = 0, tail;
};

/// A completion queue as libmlx5 reads it.
class PolledCompletions {
  public:
    explicit PolledCompletions(std::uint32_t entries, std::uint32_t entry_bytes = 64)
        : memory_(new_ring(entries, entry_bytes)) {}

    [[nodiscard]] static Memory new_ring(std::uint32_t entries, std::uint32_t entry_bytes) {
        Memory memory(entries, entry_bytes);
        for (std::size_t i = 1; i <= entries; ++i)
            *memory.at(i * entry_bytes - 1) = std::byte{MLX5_CQE_INVALID << 4};
        return memory;
    }
    /// Where the ring begins: a multiple of twice its entries, as in a ring that ran so far.
    void begin_at(std::uint32_t index) {
        consumed_ = index;
        record.set(0, index & 0xffffff);
    }
    std::optional<mlx5_cqe64> poll() {
        mlx5_cqe64 cqe = entry(consumed_);
        if (!is_ours(cqe, consumed_))
            return std::nullopt;
        record.set(0, ++consumed_ & 0xffffff);
        return cqe;
    }
    void arm(bool solicited_only = false) {
        const std::uint32_t how = solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;
        record.set(1, how | (consumed_ & 0xffffff));
    }
    [[nodiscard]] bool is_armed() const { return record.get(1) != CqRing::kNotArmed; }
    /// After the command: what was not consumed moves to the new memory.
    void move_to(Memory next) {
        std::uint32_t index = consumed_;
        for (mlx5_cqe64 cqe = entry(index); mlx5dv_get_cqe_opcode(&cqe) != MLX5_CQE_RESIZE_CQ;
             cqe = entry(index)) {
            ASSERT_TRUE(is_ours(cqe, index));
            ++index;
            const auto& ring = next.ring();
            mlx5dv_set_cqe_owner(&cqe, (index & ring.entries) != 0 ? 1 : 0);
            next.write((std::size_t{index} + 1) * ring.entry_bytes - 64, bytes_of(cqe));
        }
        ++consumed_;  // the record is told by the next poll
        memory_ = std::move(next);
    }
    [[nodiscard]] mlx5_cqe64 entry(std::uint32_t index) {
        mlx5_cqe64 cqe;
        std::memcpy(&cqe, memory_.at((std::size_t{index} + 1) * ring().entry_bytes - 64),
                    sizeof cqe);
        return cqe;
    }
    [[nodiscard]] const RingMemory& ring() const { return memory_.ring(); }
    [[nodiscard]] std::uint32_t consumed() const { return consumed_; }

    Words record;

  private:
    [[nodiscard]] bool is_ours(mlx5_cqe64& cqe, std::uint32_t index) const {
        return mlx5dv_get_cqe_opcode(&cqe) != MLX5_CQE_INVALID &&
               mlx5dv_get_cqe_owner(&cqe) == ((index & ring().entries) != 0 ? 1 : 0);
    }
    Memory memory_;
    std::uint32_t consumed_ = 0;
};

}  // namespace tagwire::vhca::driver
