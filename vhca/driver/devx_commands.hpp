// SPDX-License-Identifier: BSD-3-Clause
// Commands of the device, translated into those of the kernel: an object that is made by one is an
// object like any other, but that its program has no verbs structure of it.
#pragma once

#include <cstddef>
#include <span>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/prm.hpp"

namespace tagwire::vhca::driver {

/// One command: `in` is a copy. Its reply is all zero, and has room for what replies have at least.
struct DevxCommand {
    std::span<const std::byte> in;
    std::span<std::byte> out;
};

/// Entries of an indirect key's list, as a power of two: what one ioctl can hold.
inline constexpr unsigned kLogKeyListMax = 11;

/// Reads fields of a structure that begins at bit `base`.
class Reader {
  public:
    Reader(std::span<const std::byte> in, unsigned base) : in_(in), base_(base) {}
    template <typename T = std::uint32_t>
    [[nodiscard]] T get(prm::Field field) const {
        return static_cast<T>(prm::get(in_, field.in(base_)));
    }
    [[nodiscard]] bool has(prm::Field field) const { return get(field) != 0; }

  private:
    std::span<const std::byte> in_;
    unsigned base_;
};

/// The device says no.
int refuse(const DevxCommand& command, prm::Status status);
/// The answer of the kernel's command, as the device gives it.
int refuse(const DevxCommand& command, int error);
/// An address in pages that UMEM_REG gave out. 0: no such pages, or not so many.
std::uint64_t address_in(const Context& context, std::uint32_t umem, std::uint64_t offset);
/// All the bytes are in it.
bool holds(const Context& context, std::uint32_t umem, std::uint64_t offset, std::uint64_t bytes);
/// As IBV_ACCESS_REMOTE_*.
std::uint32_t rights_of(bool may_read, bool may_write, bool may_atomic);

// errno values: EREMOTEIO, the device refused, and the status in the reply says why; EINVAL, the
// kernel has no such command there.
int devx_general(Context& context, const DevxCommand& command);
/// `*object_p` is where what was made is in the tables of `context`.
int devx_create(Context& context, const DevxCommand& command, DevxObject* object_p);
int devx_create_mkey(Context& context, const DevxCommand& command, DevxObject* object_p);
int devx_modify(Context& context, const DevxCommand& command, const DevxObject& object);
int devx_query(Context& context, const DevxCommand& command, const DevxObject& object);
int devx_destroy(Context& context, const DevxObject& object);

}  // namespace tagwire::vhca::driver
