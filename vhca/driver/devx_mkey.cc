// SPDX-License-Identifier: BSD-3-Clause
// Memory keys that are made by a command of the device: of pages that UMEM_REG took, or of pieces
// that other keys open. Those that are changed by work requests later there are not.
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "vhca/driver/devx_commands.hpp"

namespace tagwire::vhca::driver {
namespace {

/// The program's list, up to `bytes`; fewer if it ends before.
std::vector<MrPiece> read_pieces(const DevxCommand& command, const Reader& key, bool are_equal,
                                 std::uint64_t bytes) {
    std::vector<MrPiece> pieces;
    const auto count = Reader(command.in, 0).get(prm::mkey::kUnitsGiven);
    std::uint64_t covered = 0;
    for (std::uint32_t i = 0; i != count && covered < bytes; ++i) {
        const Reader piece(command.in, prm::mkey::kList + i * prm::mkey::kPiece);
        MrPiece one;
        one.address = piece.get<std::uint64_t>(prm::mkey::kPieceAddress);
        one.key = piece.get(prm::mkey::kPieceKey);
        one.bytes = are_equal ? std::uint64_t{1} << key.get(prm::mkey::kLogPieceBytes)
                              : piece.get<std::uint64_t>(prm::mkey::kPieceBytes);
        covered += one.bytes;
        pieces.push_back(one);
    }
    return pieces;
}

/// The list, as long as the command says, is in the command.
bool has_list(const DevxCommand& command) {
    const std::uint64_t count = Reader(command.in, 0).get(prm::mkey::kUnitsGiven);
    return command.in.size() * 8 >= prm::mkey::kList + count * prm::mkey::kPiece;
}

/// Firmware counts from the start of the piece that the key's first address would be in.
bool fits_equal_pieces(const DevxCommand& command, const Reader& key) {
    const std::uint64_t piece_bytes = std::uint64_t{1} << key.get(prm::mkey::kLogPieceBytes);
    const std::uint64_t count = Reader(command.in, 0).get(prm::mkey::kUnitsGiven);
    const auto bytes = key.get<std::uint64_t>(prm::mkey::kBytes);
    const std::uint64_t skipped = key.get<std::uint64_t>(prm::mkey::kStart) & (piece_bytes - 1);
    return bytes <= count * piece_bytes - std::min(count * piece_bytes, skipped);
}

int create_of_pieces(Context& context, const DevxCommand& command, Pd& pd, unsigned access,
                     bool are_equal, Mr** mr_p) {
    const Reader key(command.in, prm::kMkeyOfCreate);
    const auto bytes = key.get<std::uint64_t>(prm::mkey::kBytes);
    if (!has_list(command))
        return refuse(command, prm::kBadInputLength);
    if (Reader(command.in, 0).get(prm::mkey::kUnitsGiven) > key.get(prm::mkey::kUnits) ||
        (are_equal && !fits_equal_pieces(command, key))) {
        return refuse(command, prm::kBadParameter);
    }
    const int error = context.engine.device().create_indirect_mr(
        pd, bytes, key.get<std::uint64_t>(prm::mkey::kStart), access,
        read_pieces(command, key, are_equal, bytes), mr_p);
    return error == 0 ? 0 : refuse(command, error);
}

int create_of_pages(Context& context, const DevxCommand& command, Pd& pd, unsigned access,
                    Mr** mr_p) {
    const Reader key(command.in, prm::kMkeyOfCreate);
    const Reader top(command.in, 0);
    const auto umem = top.get(prm::mkey::kUmem);
    const auto offset = top.get<std::uint64_t>(prm::mkey::kUmemOffset);
    const auto start = key.get<std::uint64_t>(prm::mkey::kStart);
    const auto bytes = key.get<std::uint64_t>(prm::mkey::kBytes);
    const std::uint64_t address = address_in(context, umem, offset);
    if (address == 0 || !holds(context, umem, offset, bytes))
        return refuse(command, prm::kBadResource);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (start % page != address % page)
        return refuse(command, prm::kBadParameter);
    const int error = context.engine.device().create_mr(pd, reinterpret_cast<void*>(address), bytes,
                                                        start, access, mr_p);
    return error == 0 ? 0 : refuse(command, error);
}

/// A key that any queue pair of its domain may use, with a length, and nothing else to it.
bool is_plain(const DevxCommand& command, const Reader& key) {
    const bool is_special = key.has(prm::mkey::kIsFree) || key.has(prm::mkey::kHasNoLength) ||
                            key.has(prm::mkey::kSigns) || key.has(prm::mkey::kModeHigh) ||
                            !key.has(prm::mkey::kMayReadHere);
    return !is_special && key.get(prm::mkey::kQpn) == prm::mkey::kAnyQpn &&
           Reader(command.in, 0).get(prm::mkey::kIndex) == 0;
}

}  // namespace

int devx_create_mkey(Context& context, const DevxCommand& command, DevxObject* object_p) {
    constexpr std::size_t kKernelBytesMin = 0x50;  // it reads the key's structure
    if (command.in.size() < kKernelBytesMin)
        return EINVAL;
    const Reader key(command.in, prm::kMkeyOfCreate);
    if (!is_plain(command, key))
        return refuse(command, prm::kBadParameter);
    PdObject* pd = context.pds.find(key.get(prm::mkey::kPd));
    if (pd == nullptr)
        return refuse(command, prm::kBadResource);
    unsigned access = rights_of(key.has(prm::mkey::kMayRead), key.has(prm::mkey::kMayWrite),
                                key.has(prm::mkey::kMayAtomic));
    access |= key.has(prm::mkey::kMayWriteHere) ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
    Mr* mr = nullptr;
    int error = 0;
    switch (const auto mode = key.get(prm::mkey::kModeLow)) {
        case prm::mkey::kPages:
            error = create_of_pages(context, command, *pd->core, access, &mr);
            break;
        case prm::mkey::kPieces:
        case prm::mkey::kEqualPieces:
            error = create_of_pieces(context, command, *pd->core, access,
                                     mode == prm::mkey::kEqualPieces, &mr);
            break;
        default:  // physical addresses, which no program may name
            error = refuse(command, prm::kBadParameter);
    }
    if (error != 0)
        return error;
    context.engine.device().choose_variant(*mr, key.get<std::uint8_t>(prm::mkey::kVariant));
    auto made = std::make_unique<MrObject>(MrObject{.core = mr, .pd = pd});
    mr->user = made.get();
    const std::uint32_t handle = context.mkeys.add(std::move(made));
    *object_p = {.kind = DevxObject::Kind::kMkey, .handle = handle, .number = mr->key >> 8};
    if (key.get(prm::mkey::kModeLow) == prm::mkey::kPages)
        object_p->umems = {Reader(command.in, 0).get(prm::mkey::kUmem)};
    prm::set(command.out, prm::kNumber, mr->key >> 8);
    return 0;
}

}  // namespace tagwire::vhca::driver
