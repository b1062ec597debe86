// SPDX-License-Identifier: BSD-3-Clause
// `tagwire explain --op`: another process owns memory of both kinds, and the ways to it are asked
// for.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/codec.hpp"
#include "tools/explain.hpp"
#include "tools/msg_link.hpp"
#include "tools/other_side.hpp"
#include "tools/resources.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kOwnedBytes = 65536;

/// Memory of the program, and of tw_mem_alloc().
struct OwnedKind {
    const char* json;
    const char* text;
};
constexpr std::array<OwnedKind, 2> kKinds = {
    OwnedKind{"allocated", "memory of tw_mem_alloc()"},
    OwnedKind{"mapped", "memory of the program"},
};

struct Operation {
    const char* name;
    tw_rma_kind_t kind;
    tw_atomic_op_t atomic;
};
constexpr Operation kOperations[] = {
    {"put", TW_RMA_PUT, TW_ATOMIC_ADD},      {"get", TW_RMA_GET, TW_ATOMIC_ADD},
    {"add", TW_RMA_ATOMIC, TW_ATOMIC_ADD},   {"and", TW_RMA_ATOMIC, TW_ATOMIC_AND},
    {"or", TW_RMA_ATOMIC, TW_ATOMIC_OR},     {"xor", TW_RMA_ATOMIC, TW_ATOMIC_XOR},
    {"swap", TW_RMA_ATOMIC, TW_ATOMIC_SWAP}, {"min", TW_RMA_ATOMIC, TW_ATOMIC_MIN},
    {"max", TW_RMA_ATOMIC, TW_ATOMIC_MAX},   {"cswap", TW_RMA_ATOMIC, TW_ATOMIC_CSWAP},
};

const Operation& parse_operation(const std::string& given) {
    const auto* const found = std::ranges::find(kOperations, given, &Operation::name);
    if (found == std::end(kOperations))
        throw UsageError(text("--op: '%s' is no operation", given.c_str()));
    return *found;
}

std::vector<std::size_t> parse_lengths(const ExplainArguments& arguments,
                                       const Operation& operation) {
    const bool is_atomic = operation.kind == TW_RMA_ATOMIC;
    std::vector<std::size_t> lengths;
    for (const Size& size :
         parse_sizes(arguments.sizes.value_or(is_atomic ? "4,8" : "8,1k,64k,1m")))
        lengths.push_back(size.bytes);
    const auto is_number = [](std::size_t bytes) { return bytes == 4 || bytes == 8; };
    if (is_atomic && !std::ranges::all_of(lengths, is_number))
        throw UsageError(text("--size: an atomic %s has 4 or 8 bytes", operation.name));
    return lengths;
}

/// The process that has the memory: it waits until the other one goes.
void own(const Setup& setup, Channel& channel) {
    MsgLink link(Side::kPeer, setup, &channel);
    link.connect();
    std::vector<char> bytes(kOwnedBytes);
    std::array<tw_mem_h, kKinds.size()> memories{};
    void* address = nullptr;
    check(tw_mem_alloc(link.context(), kOwnedBytes, nullptr, &address, &memories[0]),
          "tw_mem_alloc");
    check(tw_mem_map(link.context(), bytes.data(), bytes.size(), nullptr, &memories[1]),
          "tw_mem_map");
    Encoder keys;
    for (const tw_mem_h memory : memories) {
        std::array<char, TW_KEY_BYTES_MAX> key{};
        std::size_t length = key.size();
        check(tw_mem_pack(memory, key.data(), &length), "tw_mem_pack");
        keys.blob(key.data(), length);
    }
    channel.send(MessageType::kRegion, keys);
    link.wait_until([&] { return channel.readable(); });
    for (const tw_mem_h memory : memories)
        check(tw_mem_unmap(link.context(), memory), "tw_mem_unmap");
}

/// To a kind of memory.
struct Way {
    OwnedKind kind;
    std::vector<std::pair<std::size_t, tw_rma_explanation_t>> sizes;
};

std::vector<Way> ways_over(const std::string& transports, const Operation& operation,
                           const std::vector<std::size_t>& lengths, bool is_mapped) {
    Setup setup;
    setup.level = Level::kMsg;
    setup.transport = transports;
    setup.wait = Wait::kYield;
    const std::unique_ptr<Channel> channel = start_other_side([&](Channel& to) { own(setup, to); });
    MsgLink link(Side::kDriver, setup, channel.get());
    link.connect();
    Decoder keys = channel->expect(MessageType::kRegion);
    std::vector<Way> ways;
    for (const OwnedKind& kind : kKinds) {
        const Bytes packed = keys.blob(TW_KEY_BYTES_MAX);
        tw_key_h key = nullptr;
        check(tw_key_unpack(link.worker(), packed.data(), packed.size(), &key), "tw_key_unpack");
        const std::unique_ptr<tw_key, decltype(&tw_key_free)> owned(key, &tw_key_free);
        Way way{kind, {}};
        for (const std::size_t length : lengths) {
            tw_rma_explanation_t told{};
            check(tw_key_explain(link.endpoint(), key, operation.kind, operation.atomic, length,
                                 is_mapped ? 1 : 0, &told),
                  "tw_key_explain");
            way.sizes.emplace_back(length, told);
        }
        ways.push_back(std::move(way));
    }
    keys.end();
    return ways;
}

void print(const std::vector<Way>& ways, const Operation& operation) {
    for (const Way& way : ways) {
        const tw_rma_explanation_t& first = way.sizes.front().second;
        std::printf("%s%s:%s, %s:\n", &way == ways.data() ? "" : "\n", first.transport,
                    first.device, way.kind.text);
        for (const auto& [length, told] : way.sizes) {
            std::printf("  %s %-6s %-16s %s%s\n", operation.name, size_name(length).c_str(),
                        told.way, told.reason,
                        told.needs_peer != 0 ? "; needs the peer's progress" : "");
        }
    }
}

std::string json_of(const std::vector<Way>& ways, const Operation& operation) {
    ordered_json list = ordered_json::array();
    for (const Way& way : ways) {
        ordered_json sizes = ordered_json::array();
        for (const auto& [length, told] : way.sizes) {
            sizes.push_back({{"size", length},
                             {"way", told.way},
                             {"reason", told.reason},
                             {"needs_peer", told.needs_peer != 0}});
        }
        const tw_rma_explanation_t& first = way.sizes.front().second;
        list.push_back({{"transport", first.transport},
                        {"device", first.device},
                        {"memory", way.kind.json},
                        {"op", operation.name},
                        {"sizes", std::move(sizes)}});
    }
    const ordered_json document{
        {"schema", 1}, {"tagwire", tagwire_version_string()}, {"ways", std::move(list)}};
    return document.dump(2) + "\n";
}

}  // namespace

void explain_rma(const ExplainArguments& arguments) {
    const Operation& operation = parse_operation(arguments.op);
    const std::vector<std::size_t> lengths = parse_lengths(arguments, operation);
    if (arguments.live || !arguments.plot.empty())
        throw UsageError(
            text("%s is for messages, not for --op", arguments.live ? "--live" : "--plot"));
    check_writable(arguments.json);
    const std::string transports = arguments.transports.value_or(transports_set().value_or("auto"));
    const std::vector<Way> ways =
        ways_over(transports, operation, lengths, arguments.buffer == "mapped");
    if (arguments.json != "-")
        print(ways, operation);
    if (!arguments.json.empty())
        write_text_file(arguments.json, json_of(ways, operation));
}

}  // namespace tagwire::tools
