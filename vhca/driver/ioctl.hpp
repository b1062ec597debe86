// SPDX-License-Identifier: BSD-3-Clause
// RDMA_VERBS_IOCTL, the newer form of the uverbs interface: a header that names object and method,
// and attributes of 16 bytes.
//
//     header 24   length, object, method, attribute count, driver
//     attribute   id, bytes, flags, (reserved), data: handle, descriptor, pointer, or up to 8 bytes
//
// A method is described by a table of its attributes; decode() applies the kernel's rules to what a
// program gave, and a handler never sees an attribute that breaks them. Rules and errno are those
// of drivers/infiniband/core/uverbs_ioctl.c.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "vhca/driver/call.hpp"
#include "vhca/driver/user_memory.hpp"

namespace tagwire::vhca::driver {

class Context;
class IoctlCall;

struct AttributeSpec {
    enum class Kind : std::uint8_t {
        kObject,  // handle of an object that is used
        kDoomed,  // handle of an object that the method destroys
        kNew,     // the handle of a new one is told here
        kFd,      // descriptor of an object that is used
        kNewFd,   // a new descriptor is told here
        kIn,      // memory that is read; up to 8 bytes are in the attribute itself
        kOut,     // memory that is written
    };
    static constexpr std::uint16_t kNoLimit = 0xffff;

    std::uint16_t id = 0;
    Kind kind = Kind::kIn;
    bool is_mandatory = false;
    std::uint16_t object = 0;  // UVERBS_OBJECT_* of a handle or descriptor
    std::uint16_t bytes_min = 0;
    std::uint16_t bytes_known = kNoLimit;  // of the structure as we know it
    /// A longer one is allowed; of kIn, if it is zero from bytes_known on.
    bool may_be_longer = false;
};

/// The shorthands that tables of methods are written in.
namespace attribute {
constexpr AttributeSpec object(std::uint16_t id, std::uint16_t object, bool is_mandatory = true) {
    return {id, AttributeSpec::Kind::kObject, is_mandatory, object};
}
constexpr AttributeSpec doomed(std::uint16_t id, std::uint16_t object) {
    return {id, AttributeSpec::Kind::kDoomed, true, object};
}
constexpr AttributeSpec created(std::uint16_t id, std::uint16_t object) {
    return {id, AttributeSpec::Kind::kNew, true, object};
}
constexpr AttributeSpec fd(std::uint16_t id, std::uint16_t object) {
    return {id, AttributeSpec::Kind::kFd, false, object};
}
constexpr AttributeSpec new_fd(std::uint16_t id, std::uint16_t object) {
    return {id, AttributeSpec::Kind::kNewFd, true, object};
}
constexpr AttributeSpec in(std::uint16_t id, std::size_t bytes, bool is_mandatory = true) {
    const auto exact = static_cast<std::uint16_t>(bytes);
    return {id, AttributeSpec::Kind::kIn, is_mandatory, 0, exact, exact};
}
constexpr AttributeSpec in_from(std::uint16_t id, std::size_t bytes_min, bool is_mandatory = true) {
    return {id, AttributeSpec::Kind::kIn, is_mandatory, 0, static_cast<std::uint16_t>(bytes_min)};
}
/// A number out of an enumeration: always 8 bytes.
constexpr AttributeSpec constant(std::uint16_t id, bool is_mandatory = true) {
    return in(id, sizeof(std::uint64_t), is_mandatory);
}
/// Flags: 4 bytes of old programs, 8 of new ones.
constexpr AttributeSpec flags(std::uint16_t id) {
    return {id, AttributeSpec::Kind::kIn, false, 0, 4, 8};
}
constexpr AttributeSpec out(std::uint16_t id, std::size_t bytes, bool is_mandatory = true) {
    const auto exact = static_cast<std::uint16_t>(bytes);
    return {id, AttributeSpec::Kind::kOut, is_mandatory, 0, exact, exact};
}
constexpr AttributeSpec out_from(std::uint16_t id, std::size_t bytes_min,
                                 bool is_mandatory = true) {
    return {id, AttributeSpec::Kind::kOut, is_mandatory, 0, static_cast<std::uint16_t>(bytes_min)};
}
/// A structure that grew and may grow: `bytes_min` is the oldest, `bytes` what we know.
constexpr AttributeSpec in_struct(std::uint16_t id, std::size_t bytes_min, std::size_t bytes) {
    return {id,
            AttributeSpec::Kind::kIn,
            true,
            0,
            static_cast<std::uint16_t>(bytes_min),
            static_cast<std::uint16_t>(bytes),
            true};
}
constexpr AttributeSpec out_struct(std::uint16_t id, std::size_t bytes_min, std::size_t bytes,
                                   bool is_mandatory = true) {
    return {id,
            AttributeSpec::Kind::kOut,
            is_mandatory,
            0,
            static_cast<std::uint16_t>(bytes_min),
            static_cast<std::uint16_t>(bytes),
            true};
}
}  // namespace attribute

struct IoctlMethod {
    std::uint16_t object = 0, number = 0;
    std::span<const AttributeSpec> attributes;
    /// errno. Under the engine's lock; the objects that attributes name exist.
    int (*run)(Context& context, IoctlCall& call) = nullptr;
    bool takes_driver_data = false;  // UVERBS_ATTR_UHW_IN and _OUT, beside `attributes`
};

/// One ioctl whose attributes are as its method wants them.
class IoctlCall {
  public:
    struct Attribute {
        AttributeSpec spec;
        std::uint16_t bytes = 0;
        std::uint16_t flags = 0;
        std::uint64_t data = 0;
        std::uint64_t at = 0;  // of the program's ib_uverbs_attr
    };

    [[nodiscard]] const IoctlMethod& method() const { return *method_; }
    [[nodiscard]] std::span<const Attribute> attributes() const { return attributes_; }
    /// nullptr: the program did not give it.
    [[nodiscard]] const Attribute* find(std::uint16_t id) const;
    [[nodiscard]] bool has(std::uint16_t id) const { return find(id) != nullptr; }
    /// Value of a handle, descriptor or number of 8 bytes. 0: not there.
    [[nodiscard]] std::uint64_t value(std::uint16_t id) const;
    [[nodiscard]] std::uint32_t handle(std::uint16_t id) const {
        return static_cast<std::uint32_t>(value(id));
    }
    /// The program's memory: for kIn of up to 8 bytes the attribute itself. Empty: not there.
    [[nodiscard]] UserSpan memory(std::uint16_t id) const;
    /// As read_user(): the rest of `*value_p` is zero. ENOENT: not there.
    template <typename T>
    [[nodiscard]] int read(std::uint16_t id, T* value_p) const {
        return has(id) ? read_user(memory(id), value_p) : ENOENT;
    }
    /// Flags of 4 or 8 bytes; 0: not there. EINVAL: another bit than `allowed`.
    [[nodiscard]] int read_flags(std::uint16_t id, std::uint64_t allowed,
                                 std::uint64_t* flags_p) const;

    /// Output: cut to the room that there is, and marked as valid. ENOENT: not there. EFAULT.
    int write(std::uint16_t id, const void* value, std::size_t bytes);
    template <typename T>
    int write(std::uint16_t id, const T& value) {
        return write(id, &value, sizeof value);
    }
    /// As write(), and the rest of the room becomes zero.
    int write_or_zero(std::uint16_t id, const void* value, std::size_t bytes);
    /// As write(), for what need not be there.
    template <typename T>
    int write_if_asked(std::uint16_t id, const T& value) {
        return has(id) ? write(id, value) : 0;
    }
    /// The handle or descriptor of what was made.
    int tell(std::uint16_t id, std::uint64_t handle);
    int mark_valid(std::uint16_t id);

  private:
    friend int decode(const void*, std::span<const IoctlMethod>, IoctlCall*);

    const IoctlMethod* method_ = nullptr;
    std::vector<Attribute> attributes_;
};

/// Reads the ioctl's argument. EFAULT; EINVAL: lengths, doubles, a mandatory one that is missing,
/// another driver's; EPROTONOSUPPORT: no such method, or a mandatory attribute that we do not know;
/// EOPNOTSUPP: more than we know of a structure, and not zero. Objects are not looked at.
[[nodiscard]] int decode(const void* argument, std::span<const IoctlMethod> methods,
                         IoctlCall* call_p);

}  // namespace tagwire::vhca::driver
