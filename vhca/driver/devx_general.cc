// SPDX-License-Identifier: BSD-3-Clause
// The device tells DEVX only what is true of it. It has no memory keys that
// are changed by work requests; one bit says so of all but atomics, because programs take it as a
// word on indirect keys with atomics, which there are.
#include <bit>
#include <cerrno>

#include "vhca/driver/devx_commands.hpp"
#include "vhca/driver/prm.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

std::uint64_t log2_of(std::uint64_t value) {
    return value == 0 ? 0 : std::bit_width(value) - 1U;
}

void fill_general(const Context& context, std::span<std::byte> out) {
    const DeviceConfig& reported = context.reported;
    const auto put = [out](prm::Field field, std::uint64_t value) {
        prm::set(out, field.in(prm::kCapability), value);
    };
    namespace cap = prm::cap;
    put(cap::kLogSrqEntries, log2_of(reported.srq_wr_max + 1));
    put(cap::kLogQpEntries, log2_of(reported.qp_wr_max));
    put(cap::kLogQps, log2_of(reported.qp_max));
    put(cap::kLogSrqs, 16);
    put(cap::kLogCqEntries, log2_of(std::uint64_t{reported.cqe_max} + 1));
    put(cap::kLogCqs, 24);
    put(cap::kLogMkeys, 24);
    for (const prm::Field field :
         {cap::kLogReads, cap::kLogReadsServed, cap::kLogReadsOfDc, cap::kLogReadsServedDc}) {
        put(field, log2_of(reported.rd_atom_max));
    }
    put(cap::kGids, reported.gids);
    put(cap::kPortType, context.engine.port().is_ethernet() ? 1 : 0);
    put(cap::kPorts, reported.ports);
    put(cap::kNativePort, 1);
    put(cap::kLogMessageBytes, log2_of(reported.message_bytes_max));
    put(cap::kCqeVersion, 1);
    put(cap::kCompactAddress, 1);
    put(cap::kFixedBuffers, 1);
    put(cap::kLogKeyList, kLogKeyListMax);
    put(cap::kUmrEntitySizeDisabled, 1);
    put(cap::kUmrAtomicDisabled, reported.has_atomics ? 0 : 1);
    put(cap::kUmrIndirectDisabled, 1);
    put(cap::kDct, reported.has_dc ? 1 : 0);
    put(cap::kRoce, context.engine.port().is_ethernet() ? 1 : 0);
    put(cap::kAtomic, reported.has_atomics ? 1 : 0);
    for (const prm::Field field :
         {cap::kCqIgnoresOverrun, cap::kUd, cap::kUc, cap::kRc, cap::kUar4k, cap::kBlueFlame}) {
        put(field, 1);
    }
    put(cap::kLogBlueFlameBytes, 9);
    put(cap::kSendEntryBytes, 1024);
    put(cap::kSendEntryBytesDc, 1024);
    put(cap::kReceiveEntryBytes, 512);
    put(cap::kLogPds, 24);
    put(cap::kLogRmps, 16);
    if (reported.has_dc) {
        put(cap::kQpExtension, 1);
        put(cap::kLogDciStreams, reported.dc_streams_log_max);
        put(cap::kLogDciErrored, reported.dc_errored_log_max);
    }
    const bool has_tags = reported.tm_tags_max != 0 &&
                          (!context.engine.port().is_ethernet() || reported.has_tags_on_ethernet);
    if (has_tags) {
        put(cap::kTagMatching, 1);
        put(cap::kRendezvousRc, 1);
        put(cap::kRendezvousDc, reported.has_dc && reported.has_dc_rendezvous ? 1 : 0);
        put(cap::kLogTags, log2_of(reported.tm_tags_max));
        put(cap::kLogXrqs, 16);
    }
}

void fill_atomic(const Context& context, std::span<std::byte> out) {
    constexpr std::uint64_t kCompareSwap = 1, kFetchAdd = 2, kEightBytes = 8;
    if (!context.reported.has_atomics)
        return;
    const auto put = [out](prm::Field field, std::uint64_t value) {
        prm::set(out, field.in(prm::kCapability), value);
    };
    put(prm::cap::kAtomicEndianness, 1);  // the host's
    put(prm::cap::kAtomicOperations, kCompareSwap | kFetchAdd);
    put(prm::cap::kAtomicBytesQp, kEightBytes);
    put(prm::cap::kAtomicBytesDc, kEightBytes);
}

int query_capabilities(const Context& context, const DevxCommand& command) {
    switch (prm::get(command.in, prm::kOpMod) >> 1) {
        case prm::kGeneral:
            fill_general(context, command.out);
            return 0;
        case prm::kAtomic:
            fill_atomic(context, command.out);
            return 0;
        case prm::kOdp:
        case prm::kGeneral2:
            return 0;  // nothing of it
        default:
            prm::set(command.out, prm::kStatus, prm::kBadParameter);
            return EREMOTEIO;
    }
}

int query_vport(const Context& context, const DevxCommand& command) {
    if (context.engine.port().is_ethernet()) {
        prm::set(command.out, prm::kStatus, prm::kBadParameter);
        return EREMOTEIO;
    }
    const auto put = [&command](prm::Field field, std::uint64_t value) {
        prm::set(command.out, field.in(prm::kVport), value);
    };
    ibv_port_attr port{};
    describe_port(context.engine, 1, &port);
    put(prm::vport::kGrhRequired, (port.flags & IBV_QPF_GRH_REQUIRED) != 0 ? 1 : 0);
    put(prm::vport::kPhysicalState, port.phys_state);
    put(prm::vport::kPortState, port.state);
    put(prm::vport::kState, 1);
    put(prm::vport::kLid, port.lid);
    for (const prm::Field field :
         {prm::vport::kSystemGuid, prm::vport::kPortGuid, prm::vport::kNodeGuid}) {
        put(field, context.engine.port().guid());
    }
    return 0;
}

}  // namespace

int devx_general(Context& context, const DevxCommand& command) {
    switch (prm::get(command.in, prm::kOpcode)) {
        case prm::kQueryHcaCap:
            return query_capabilities(context, command);
        case prm::kQueryLag:
            return 0;  // ports are not bonded
        case prm::kQueryHcaVportContext:
            return query_vport(context, command);
        default:
            return EINVAL;
    }
}

}  // namespace tagwire::vhca::driver
