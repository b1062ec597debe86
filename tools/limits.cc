// SPDX-License-Identifier: BSD-3-Clause
#include "tools/limits.hpp"

#include <algorithm>

#include "cli/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kRndvFrom = 64 << 10;
constexpr Op kCheapestFirst[] = {Op::kShort, Op::kBcopy, Op::kZcopy, Op::kRndv};
using MaybeRange = std::optional<SizeRange>;

/// The capability behind one kind of operation of one family of tests.
struct Capability {
    std::uint64_t flag;
    const char* name;
};

constexpr Capability kNone{0, nullptr};

enum class Family { kAm, kTag, kPut, kGet, kAtomic, kFloor };

Family family_of(TestId test) {
    switch (test) {
        case TestId::kAmLat:
        case TestId::kAmBw:
        case TestId::kAmRate:
            return Family::kAm;
        case TestId::kTagLat:
        case TestId::kTagBw:
        case TestId::kTagRate:
        case TestId::kMatch:
            return Family::kTag;
        case TestId::kPutLat:
        case TestId::kPutBw:
        case TestId::kPutRate:
            return Family::kPut;
        case TestId::kGetLat:
        case TestId::kGetBw:
            return Family::kGet;
        case TestId::kAddLat:
        case TestId::kFaddLat:
        case TestId::kCswapLat:
            return Family::kAtomic;
        default:
            return Family::kFloor;
    }
}

Capability capability_of(Family family, Op op) {
    static constexpr Capability kAll[][4] = {
        {{UCT_IFACE_FLAG_AM_SHORT, "am_short"},
         {UCT_IFACE_FLAG_AM_BCOPY, "am_bcopy"},
         {UCT_IFACE_FLAG_AM_ZCOPY, "am_zcopy"},
         kNone},
        {{UCT_IFACE_FLAG_TAG_EAGER_SHORT, "tag_eager_short"},
         {UCT_IFACE_FLAG_TAG_EAGER_BCOPY, "tag_eager_bcopy"},
         {UCT_IFACE_FLAG_TAG_EAGER_ZCOPY, "tag_eager_zcopy"},
         {UCT_IFACE_FLAG_TAG_RNDV_ZCOPY, "tag_rndv_zcopy"}},
        {{UCT_IFACE_FLAG_PUT_SHORT, "put_short"},
         {UCT_IFACE_FLAG_PUT_BCOPY, "put_bcopy"},
         {UCT_IFACE_FLAG_PUT_ZCOPY, "put_zcopy"},
         kNone},
        {{UCT_IFACE_FLAG_GET_SHORT, "get_short"},
         {UCT_IFACE_FLAG_GET_BCOPY, "get_bcopy"},
         {UCT_IFACE_FLAG_GET_ZCOPY, "get_zcopy"},
         kNone},
    };
    const bool has_ops = family != Family::kAtomic && family != Family::kFloor;
    return has_ops && op != Op::kAuto
               ? kAll[static_cast<std::size_t>(family)][static_cast<std::size_t>(op) - 1]
               : kNone;
}

SizeRange sizes_of(Family family, Op op, const uct_iface_attr_t& attr) {
    const auto& am = attr.cap.am;
    const auto& tag = attr.cap.tag;
    const auto& put = attr.cap.put;
    const auto& get = attr.cap.get;
    const std::size_t max[][4] = {
        {am.max_short, am.max_bcopy, am.max_zcopy, 0},
        {tag.eager.max_short, tag.eager.max_bcopy, tag.eager.max_zcopy, tag.rndv.max_zcopy},
        {put.max_short, put.max_bcopy, put.max_zcopy, 0},
        {get.max_short, get.max_bcopy, get.max_zcopy, 0},
    };
    const std::size_t min_zcopy[] = {am.min_zcopy, 0, put.min_zcopy, get.min_zcopy};
    const auto row = static_cast<std::size_t>(family);
    // The target of a put sees it by its last byte, so there must be one.
    const std::uint64_t least = family == Family::kPut ? 1 : 0;
    return {op == Op::kZcopy ? std::max<std::uint64_t>(min_zcopy[row], least) : least,
            max[row][static_cast<std::size_t>(op) - 1]};
}

/// Atomics have one kind of operation, called kShort here, on words of 4 or 8 bytes.
bool has_atomic(TestId test, std::uint64_t size, const uct_iface_attr_t& attr) {
    const auto& words = size == 4 ? attr.cap.atomic32 : attr.cap.atomic64;
    switch (test) {
        case TestId::kAddLat:
            return (words.op_flags & UCS_BIT(UCT_ATOMIC_OP_ADD)) != 0;
        case TestId::kFaddLat:
            return (words.fop_flags & UCS_BIT(UCT_ATOMIC_OP_ADD)) != 0;
        default:
            return (words.fop_flags & UCS_BIT(UCT_ATOMIC_OP_CSWAP)) != 0;
    }
}

constexpr const char* kAtomicSizes = "an atomic operation works on 4 or 8 bytes";

std::optional<Op> choose_atomic(TestId test, std::uint64_t size, const uct_iface_attr_t& attr,
                                std::string* why) {
    if (size != 4 && size != 8) {
        *why = kAtomicSizes;
    } else if (!has_atomic(test, size, attr)) {
        *why = text(
            "this transport has no such %u-bit atomic operation (see atomic%u and "
            "atomic%u_fetch in tagwire info)",
            static_cast<unsigned>(size * 8), static_cast<unsigned>(size * 8),
            static_cast<unsigned>(size * 8));
    } else {
        return Op::kShort;
    }
    return std::nullopt;
}

bool holds(const MaybeRange& range, std::uint64_t size) {
    return range && size >= range->min && size <= range->max;
}

/// Whether `op` is among those that kAuto may take.
bool is_possible(const Wanted& wanted, Op op) {
    return !(wanted.eager_only && op == Op::kRndv);
}

std::string describe_ranges(TestId test, const Wanted& wanted, const uct_iface_attr_t& attr) {
    std::string list;
    for (const Op op : kCheapestFirst) {
        const MaybeRange range =
            is_possible(wanted, op) ? size_range(test, op, attr) : std::nullopt;
        if (range) {
            list += text("%s %s %s to %s", list.empty() ? "" : ",", name_of(op),
                         size_name(range->min).c_str(), size_name(range->max).c_str());
        }
    }
    return "this transport does" + list +
           (wanted.eager_only ? "; an unexpected rendezvous has no receive to end in, so "
                                "--unexpected takes eager operations only"
                              : "");
}

}  // namespace

std::optional<SizeRange> size_range(TestId test, Op op, const uct_iface_attr_t& attr) {
    const Family family = family_of(test);
    const Capability capability = capability_of(family, op);
    if ((attr.cap.flags & capability.flag) == 0)
        return std::nullopt;
    return sizes_of(family, op, attr);
}

std::string missing_capability(TestId test, const Wanted& wanted, const uct_iface_attr_t& attr) {
    const Family family = family_of(test);
    if (family == Family::kAtomic || family == Family::kFloor)
        return "";
    std::string names;
    for (const Op op : kCheapestFirst) {
        if ((wanted.op != Op::kAuto && wanted.op != op) || !is_possible(wanted, op))
            continue;
        if (size_range(test, op, attr))
            return "";
        if (const char* const name = capability_of(family, op).name; name != nullptr)
            names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return "this transport does not have " + names;
}

std::optional<Op> choose_op(TestId test, const Wanted& wanted, std::uint64_t size,
                            const uct_iface_attr_t& attr, std::string* why) {
    if (family_of(test) == Family::kAtomic)
        return choose_atomic(test, size, attr, why);
    if (wanted.op != Op::kAuto) {
        if (is_possible(wanted, wanted.op) && holds(size_range(test, wanted.op, attr), size))
            return wanted.op;
    } else {
        if (family_of(test) == Family::kTag && size >= kRndvFrom && !wanted.eager_only &&
            holds(size_range(test, Op::kRndv, attr), size)) {
            return Op::kRndv;
        }
        for (const Op op : kCheapestFirst)
            if (is_possible(wanted, op) && holds(size_range(test, op, attr), size))
                return op;
    }
    *why = missing_capability(test, wanted, attr);
    if (why->empty())
        *why = describe_ranges(test, wanted, attr);
    return std::nullopt;
}

std::string refusal_at_level_msg(TestId test, std::uint64_t size) {
    const Family family = family_of(test);
    if (family == Family::kAtomic && size != 4 && size != 8)
        return kAtomicSizes;
    if (family == Family::kPut && size == 0)
        return "the target sees a put by its last byte, so there must be one";
    return "";
}

}  // namespace tagwire::tools
