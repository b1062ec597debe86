// SPDX-License-Identifier: BSD-3-Clause
#include "tools/limits.hpp"

#include "tools/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kRndvFrom = 64 << 10;
constexpr Op kCheapestFirst[] = {Op::kShort, Op::kBcopy, Op::kZcopy, Op::kRndv};
using Range = std::optional<SizeRange>;

Range if_has(const uct_iface_attr_t& attr, std::uint64_t flag, SizeRange range) {
    return (attr.cap.flags & flag) != 0 ? Range(range) : Range();
}

Range am_range(Op op, const uct_iface_attr_t& attr) {
    switch (op) {
        case Op::kShort:
            return if_has(attr, UCT_IFACE_FLAG_AM_SHORT, {0, attr.cap.am.max_short});
        case Op::kBcopy:
            return if_has(attr, UCT_IFACE_FLAG_AM_BCOPY, {0, attr.cap.am.max_bcopy});
        case Op::kZcopy:
            return if_has(attr, UCT_IFACE_FLAG_AM_ZCOPY,
                          {attr.cap.am.min_zcopy, attr.cap.am.max_zcopy});
        default:
            return std::nullopt;
    }
}

Range tag_range(Op op, const uct_iface_attr_t& attr) {
    const auto& tag = attr.cap.tag;
    switch (op) {
        case Op::kShort:
            return if_has(attr, UCT_IFACE_FLAG_TAG_EAGER_SHORT, {0, tag.eager.max_short});
        case Op::kBcopy:
            return if_has(attr, UCT_IFACE_FLAG_TAG_EAGER_BCOPY, {0, tag.eager.max_bcopy});
        case Op::kZcopy:
            return if_has(attr, UCT_IFACE_FLAG_TAG_EAGER_ZCOPY, {0, tag.eager.max_zcopy});
        case Op::kRndv:
            return if_has(attr, UCT_IFACE_FLAG_TAG_RNDV_ZCOPY, {0, tag.rndv.max_zcopy});
        default:
            return std::nullopt;
    }
}

Range put_range(Op op, const uct_iface_attr_t& attr) {
    switch (op) {
        case Op::kShort:
            return if_has(attr, UCT_IFACE_FLAG_PUT_SHORT, {1, attr.cap.put.max_short});
        case Op::kBcopy:
            return if_has(attr, UCT_IFACE_FLAG_PUT_BCOPY, {1, attr.cap.put.max_bcopy});
        case Op::kZcopy:
            return if_has(
                attr, UCT_IFACE_FLAG_PUT_ZCOPY,
                {std::max<std::uint64_t>(attr.cap.put.min_zcopy, 1), attr.cap.put.max_zcopy});
        default:
            return std::nullopt;
    }
}

Range get_range(Op op, const uct_iface_attr_t& attr) {
    switch (op) {
        case Op::kShort:
            return if_has(attr, UCT_IFACE_FLAG_GET_SHORT, {0, attr.cap.get.max_short});
        case Op::kBcopy:
            return if_has(attr, UCT_IFACE_FLAG_GET_BCOPY, {0, attr.cap.get.max_bcopy});
        case Op::kZcopy:
            return if_has(attr, UCT_IFACE_FLAG_GET_ZCOPY,
                          {attr.cap.get.min_zcopy, attr.cap.get.max_zcopy});
        default:
            return std::nullopt;
    }
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

bool is_atomic(TestId test) {
    return test == TestId::kAddLat || test == TestId::kFaddLat || test == TestId::kCswapLat;
}

bool is_tagged(TestId test) {
    return (test_info(test).options & kWithRndv) != 0;
}

std::optional<Op> choose_atomic(TestId test, std::uint64_t size, const uct_iface_attr_t& attr,
                                std::string* why) {
    if (size != 4 && size != 8) {
        *why = "an atomic operation works on 4 or 8 bytes";
    } else if (!has_atomic(test, size, attr)) {
        *why =
            text("this transport has no such operation on %u bytes", static_cast<unsigned>(size));
    } else {
        return Op::kShort;
    }
    return std::nullopt;
}

bool holds(const Range& range, std::uint64_t size) {
    return range && size >= range->min && size <= range->max;
}

std::string describe_ranges(TestId test, const uct_iface_attr_t& attr) {
    std::string list;
    for (const Op op : kCheapestFirst) {
        if (const Range range = size_range(test, op, attr)) {
            list += text("%s %s %s to %s", list.empty() ? "" : ",", name_of(op),
                         size_name(range->min).c_str(), size_name(range->max).c_str());
        }
    }
    return list.empty() ? "this transport has no such operation" : "this transport does" + list;
}

}  // namespace

std::optional<SizeRange> size_range(TestId test, Op op, const uct_iface_attr_t& attr) {
    switch (test) {
        case TestId::kAmLat:
        case TestId::kAmBw:
            return am_range(op, attr);
        case TestId::kPutLat:
        case TestId::kPutBw:
            return put_range(op, attr);
        case TestId::kGetLat:
        case TestId::kGetBw:
            return get_range(op, attr);
        default:
            return is_tagged(test) ? tag_range(op, attr) : std::nullopt;
    }
}

std::optional<Op> choose_op(TestId test, Op wanted, std::uint64_t size,
                            const uct_iface_attr_t& attr, std::string* why) {
    if (is_atomic(test)) {
        return choose_atomic(test, size, attr, why);
    }
    if (wanted != Op::kAuto) {
        if (holds(size_range(test, wanted, attr), size)) {
            return wanted;
        }
    } else {
        if (is_tagged(test) && size >= kRndvFrom &&
            holds(size_range(test, Op::kRndv, attr), size)) {
            return Op::kRndv;
        }
        for (const Op op : kCheapestFirst) {
            if (holds(size_range(test, op, attr), size)) {
                return op;
            }
        }
    }
    *why = describe_ranges(test, attr);
    return std::nullopt;
}

}  // namespace tagwire::tools
