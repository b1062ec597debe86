// SPDX-License-Identifier: BSD-3-Clause
// Headers of a message to a tag-matching SRQ, as in <infiniband/tm_types.h>; all fields in network
// order.
//
//   0        1        2        3
//   +--------+--------+--------+--------+
//   | opcode |        reserved          |  TMH. The reserved bytes are not looked at: programs are
//   |     application's context         |  known to put data there.
//   |                tag                |
//   |                                   |
//   +--------+--------+--------+--------+
//   |        address of the data        |  RVH, with a rendezvous request: where the receiver reads
//   |                                   |  the data. Bytes of the application may follow.
//   |          its remote key           |
//   |           its length              |
//   +--------+--------+--------+--------+
#pragma once

#include <endian.h>
#include <infiniband/tm_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tagwire::vhca {

enum class TagOpcode : std::uint8_t { kNoTag = 0, kRendezvous = 1, kFin = 2, kEager = 3 };
static_assert(int{IBV_TMH_NO_TAG} == 0 && int{IBV_TMH_RNDV} == 1);
static_assert(int{IBV_TMH_FIN} == 2 && int{IBV_TMH_EAGER} == 3);

struct TagHeader {
    TagOpcode opcode = TagOpcode::kNoTag;
    std::array<std::uint8_t, 3> reserved{};
    std::uint32_t context_be = 0;
    std::uint64_t tag_be = 0;

    [[nodiscard]] std::uint32_t context() const { return be32toh(context_be); }
    [[nodiscard]] std::uint64_t tag() const { return be64toh(tag_be); }
    [[nodiscard]] bool is_rendezvous() const { return opcode == TagOpcode::kRendezvous; }
    /// It is matched; all others, known or not, are for software.
    [[nodiscard]] bool has_tag() const { return is_rendezvous() || opcode == TagOpcode::kEager; }
};
static_assert(sizeof(TagHeader) == sizeof(ibv_tmh) && sizeof(TagHeader) == 16);
static_assert(offsetof(TagHeader, context_be) == offsetof(ibv_tmh, app_ctx));
static_assert(offsetof(TagHeader, tag_be) == offsetof(ibv_tmh, tag));

struct ReadHeader {
    std::uint64_t address_be = 0;
    std::uint32_t rkey_be = 0;
    std::uint32_t length_be = 0;

    [[nodiscard]] std::uint64_t address() const { return be64toh(address_be); }
    [[nodiscard]] std::uint32_t rkey() const { return be32toh(rkey_be); }
    [[nodiscard]] std::uint32_t length() const { return be32toh(length_be); }
};
static_assert(sizeof(ReadHeader) == sizeof(ibv_rvh) && sizeof(ReadHeader) == 16);
static_assert(offsetof(ReadHeader, rkey_be) == offsetof(ibv_rvh, rkey));
static_assert(offsetof(ReadHeader, length_be) == offsetof(ibv_rvh, len));

struct DcReadHeader {
    std::uint32_t sl_dctn_be = 0;
    std::uint32_t reserved = 0;
    std::uint64_t key_be = 0;

    [[nodiscard]] std::uint32_t dctn() const { return be32toh(sl_dctn_be) & 0xffffff; }
    [[nodiscard]] std::uint64_t key() const { return be64toh(key_be); }
};
static_assert(sizeof(DcReadHeader) == 16);

inline constexpr std::size_t kTagHeaderBytes = sizeof(TagHeader);
/// Tag header and read header: a rendezvous request has at least these, and its FIN nothing else.
inline constexpr std::size_t kRendezvousBytes = sizeof(TagHeader) + sizeof(ReadHeader);
/// The shortest rendezvous request over DC.
inline constexpr std::size_t kDcRendezvousBytes = kRendezvousBytes + sizeof(DcReadHeader);
/// A rendezvous request with the bytes of the application; tm_caps.max_rndv_hdr_size.
inline constexpr std::size_t kRendezvousBytesMax = 64;

/// The header of type T at `offset`; all zeros when the message is too short to have one, which as
/// a tag header means: no tag.
template <typename T>
[[nodiscard]] T read_header(std::span<const std::byte> message, std::size_t offset = 0) {
    T header{};
    if (message.size() >= offset + sizeof header)
        std::memcpy(&header, message.data() + offset, sizeof header);
    return header;
}

/// A rendezvous request, decoded once. The message itself lies where its sender may still write, so
/// nothing reads it again after the checks.
struct RendezvousRequest {
    TagHeader header;
    ReadHeader source;
    DcReadHeader target;  // DC only
};

[[nodiscard]] inline RendezvousRequest read_rendezvous(std::span<const std::byte> message) {
    return {read_header<TagHeader>(message), read_header<ReadHeader>(message, kTagHeaderBytes),
            read_header<DcReadHeader>(message, kRendezvousBytes)};
}

}  // namespace tagwire::vhca
