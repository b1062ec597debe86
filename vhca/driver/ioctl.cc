// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/ioctl.hpp"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>

namespace tagwire::vhca::driver {
namespace {

using Kind = AttributeSpec::Kind;

constexpr std::size_t kArgumentBytesMax = 4096;
constexpr std::size_t kInlineBytesMax = sizeof(std::uint64_t);

constexpr std::array kDriverData = {
    attribute::in_from(UVERBS_ATTR_UHW_IN, 0, false),
    attribute::out_from(UVERBS_ATTR_UHW_OUT, 0, false),
};

const IoctlMethod* find_method(std::span<const IoctlMethod> methods, std::uint16_t object,
                               std::uint16_t number) {
    for (const IoctlMethod& method : methods)
        if (method.object == object && method.number == number)
            return &method;
    return nullptr;
}

const AttributeSpec* find_spec(std::span<const AttributeSpec> specs, std::uint16_t id) {
    for (const AttributeSpec& spec : specs)
        if (spec.id == id)
            return &spec;
    return nullptr;
}

const AttributeSpec* find_spec(const IoctlMethod& method, std::uint16_t id) {
    const AttributeSpec* spec = find_spec(method.attributes, id);
    if (spec == nullptr && method.takes_driver_data)
        spec = find_spec(kDriverData, id);
    return spec;
}

UserSpan memory_of(const IoctlCall::Attribute& attribute) {
    if (attribute.spec.kind == Kind::kIn && attribute.bytes <= kInlineBytesMax)
        return {attribute.at + offsetof(ib_uverbs_attr, data), attribute.bytes};
    return {attribute.data, attribute.bytes};
}

int check_memory(const IoctlCall::Attribute& attribute, std::uint16_t reserved) {
    const AttributeSpec& spec = attribute.spec;
    if (spec.kind == Kind::kIn && spec.may_be_longer && attribute.bytes > spec.bytes_known) {
        if (const int error = check_zeros(memory_of(attribute).from(spec.bytes_known)); error != 0)
            return error;
    }
    const bool is_too_long = !spec.may_be_longer && attribute.bytes > spec.bytes_known;
    return attribute.bytes < spec.bytes_min || is_too_long || reserved != 0 ? EINVAL : 0;
}

int check(const IoctlCall::Attribute& attribute, std::uint16_t reserved) {
    if (attribute.spec.kind == Kind::kIn || attribute.spec.kind == Kind::kOut)
        return check_memory(attribute, reserved);
    if (reserved != 0 || attribute.bytes != 0)
        return EINVAL;
    // Handles and descriptors are numbers of 32 bits, signed as int.
    const bool is_used = attribute.spec.kind != Kind::kNew && attribute.spec.kind != Kind::kNewFd;
    return is_used && attribute.data > 0x7fffffff ? EINVAL : 0;
}

}  // namespace

const IoctlCall::Attribute* IoctlCall::find(std::uint16_t id) const {
    for (const Attribute& attribute : attributes_)
        if (attribute.spec.id == id)
            return &attribute;
    return nullptr;
}

std::uint64_t IoctlCall::value(std::uint16_t id) const {
    const Attribute* attribute = find(id);
    return attribute == nullptr ? 0 : attribute->data;
}

UserSpan IoctlCall::memory(std::uint16_t id) const {
    const Attribute* attribute = find(id);
    return attribute == nullptr ? UserSpan{} : memory_of(*attribute);
}

int IoctlCall::read_flags(std::uint16_t id, std::uint64_t allowed, std::uint64_t* flags_p) const {
    const Attribute* attribute = find(id);
    *flags_p = 0;
    if (attribute == nullptr)
        return 0;
    if (attribute->bytes != sizeof(std::uint32_t) && attribute->bytes != sizeof(std::uint64_t))
        return EINVAL;
    std::memcpy(flags_p, &attribute->data, attribute->bytes);
    return (*flags_p & ~allowed) != 0 ? EINVAL : 0;
}

int IoctlCall::mark_valid(std::uint16_t id) {
    const Attribute* attribute = find(id);
    if (attribute == nullptr)
        return ENOENT;
    const auto flags = static_cast<std::uint16_t>(attribute->flags | UVERBS_ATTR_F_VALID_OUTPUT);
    return write_user({attribute->at + offsetof(ib_uverbs_attr, flags), sizeof flags}, flags);
}

int IoctlCall::write(std::uint16_t id, const void* value, std::size_t bytes) {
    const Attribute* attribute = find(id);
    if (attribute == nullptr)
        return ENOENT;
    const std::size_t room = std::min<std::size_t>(attribute->bytes, bytes);
    if (!copy_out(reinterpret_cast<void*>(attribute->data), value, room))
        return EFAULT;
    return mark_valid(id);
}

int IoctlCall::write_or_zero(std::uint16_t id, const void* value, std::size_t bytes) {
    const Attribute* attribute = find(id);
    if (attribute == nullptr)
        return ENOENT;
    if (attribute->bytes > bytes) {
        const std::vector<std::byte> zeroes(attribute->bytes - bytes);
        if (!copy_out(reinterpret_cast<void*>(attribute->data + bytes), zeroes.data(),
                      zeroes.size())) {
            return EFAULT;
        }
    }
    return write(id, value, bytes);
}

int IoctlCall::tell(std::uint16_t id, std::uint64_t handle) {
    const Attribute* attribute = find(id);
    return attribute == nullptr
               ? ENOENT
               : write_user({attribute->at + offsetof(ib_uverbs_attr, data), sizeof handle},
                            handle);
}

int decode(const void* argument, std::span<const IoctlMethod> methods, IoctlCall* call_p) {
    ib_uverbs_ioctl_hdr header;
    if (!copy_in(&header, argument, sizeof header))
        return EFAULT;
    if (header.length > kArgumentBytesMax ||
        header.length != sizeof header + header.num_attrs * sizeof(ib_uverbs_attr)) {
        return EINVAL;
    }
    if (header.reserved1 != 0 || header.reserved2 != 0)
        return EPROTONOSUPPORT;
    if (header.driver_id != RDMA_DRIVER_MLX5)
        return EINVAL;
    call_p->method_ = find_method(methods, header.object_id, header.method_id);
    if (call_p->method_ == nullptr)
        return EPROTONOSUPPORT;
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(argument) + sizeof header;
    std::vector<ib_uverbs_attr> given(header.num_attrs);
    if (!copy_in(given.data(), reinterpret_cast<const void*>(first),
                 given.size() * sizeof given[0])) {
        return EFAULT;
    }
    call_p->attributes_.clear();
    for (std::size_t i = 0; i < given.size(); ++i) {
        const AttributeSpec* spec = find_spec(*call_p->method_, given[i].attr_id);
        if (spec == nullptr) {
            if ((given[i].flags & UVERBS_ATTR_F_MANDATORY) != 0)
                return EPROTONOSUPPORT;
            continue;
        }
        const IoctlCall::Attribute attribute = {*spec, given[i].len, given[i].flags, given[i].data,
                                                first + i * sizeof(ib_uverbs_attr)};
        const int error =
            call_p->has(spec->id) ? EINVAL : check(attribute, given[i].attr_data.reserved);
        if (error != 0)
            return error;
        call_p->attributes_.push_back(attribute);
    }
    for (const AttributeSpec& spec : call_p->method_->attributes)
        if (spec.is_mandatory && !call_p->has(spec.id))
            return EINVAL;
    return 0;
}

}  // namespace tagwire::vhca::driver
