// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/cost.hpp"

#include <algorithm>
#include <cmath>

namespace tagwire::proto {

namespace {

constexpr const char* kNames[kProtocols] = {"short",    "bcopy",    "parts",
                                            "rndv_get", "rndv_put", "rndv_copy"};

/// An eager message that meets no receive takes the receiver's memory and is copied once more,
/// which the sender cannot know. So it must be cheaper by more than this share.
constexpr double kEagerMargin = 0.05;

std::size_t index_of(Protocol protocol) {
    return static_cast<std::size_t>(protocol);
}

double pieces(std::size_t bytes, std::size_t each) {
    const std::size_t whole = std::max<std::size_t>(each, 1);
    const std::size_t number = bytes == 0 ? 1 : (bytes - 1) / whole + 1;
    return static_cast<double>(number);
}

void add_message(const RailCosts& rail, Cost* cost) {
    cost->add("overhead", 2 * rail.overhead_ns);
    cost->add("latency", rail.latency_ns);
}

/// A message of the layer itself: a request, an answer.
double control_ns(const RailCosts& rail) {
    return 2 * rail.overhead_ns + rail.latency_ns;
}

/// Through buffers of the transport: both sides copy and the wire carries, each while the others
/// have another buffer. The slowest takes the time of all bytes, the others that of one buffer.
void add_buffered(const RailCosts& rail, std::size_t bytes, Cost* cost) {
    const double copy = rail.copy_ns_per_byte;
    const double side = rail.copies * copy;
    const double slowest = std::max(side, rail.wire_ns_per_byte);
    const double all = std::max(side + side, copy + rail.wire_ns_per_byte + copy);
    const auto first = static_cast<double>(std::min(bytes, rail.bcopy_max));
    cost->add("fragments", pieces(bytes, rail.bcopy_max) * rail.fragment_ns);
    cost->add("first_fragment", first * (all - slowest));
    cost->add("data", static_cast<double>(bytes) * slowest);
}

void add_registration(const RailCosts& rail, std::size_t bytes, BufferKind kind, Cost* cost) {
    if (kind == BufferKind::kPlain) {
        cost->add("registration", rail.registration_ns +
                                      static_cast<double>(bytes) * rail.registration_ns_per_byte);
    }
}

void add_direct(const RailCosts& rail, std::size_t bytes, double each_ns, Cost* cost) {
    cost->add("operations", pieces(bytes, rail.piece_max) * each_ns);
    cost->add("data", static_cast<double>(bytes) * rail.direct_ns_per_byte);
}

Cost modelled(const RailCosts& rail, Protocol protocol, std::size_t bytes) {
    Cost cost;
    switch (protocol) {
        case Protocol::kShort:
            add_message(rail, &cost);
            cost.add("data", static_cast<double>(bytes) *
                                 (2 * rail.copy_ns_per_byte + rail.wire_ns_per_byte));
            break;
        case Protocol::kBcopy:
        case Protocol::kParts:
            add_message(rail, &cost);
            add_buffered(rail, bytes, &cost);
            break;
        case Protocol::kRndvGet:
            cost.add("request", control_ns(rail));
            add_direct(rail, bytes, rail.read_ns, &cost);
            cost.add("answer", control_ns(rail));
            break;
        case Protocol::kRndvPut:
            cost.add("request", control_ns(rail));
            cost.add("answer", control_ns(rail));
            add_direct(rail, bytes, rail.write_ns, &cost);
            cost.add("end", control_ns(rail));
            break;
        case Protocol::kRndvCopy:
            cost.add("request", control_ns(rail));
            cost.add("answer", control_ns(rail));
            add_message(rail, &cost);
            add_buffered(rail, bytes, &cost);
            break;
    }
    return cost;
}

/// Terms that do not depend on the transport's moving of data keep their value, as long as they
/// fit into what was measured; the rest is "data".
Cost measured(const Cost& model, double ns) {
    Cost cost;
    double left = ns;
    for (std::size_t i = 0; i < model.count; ++i) {
        const std::string_view name = model.terms[i].name;
        if (name == "data" || name == "first_fragment" || name == "fragments" ||
            name == "operations")
            continue;
        const double term = std::min(left, model.terms[i].ns);
        cost.add(model.terms[i].name, term);
        left -= term;
    }
    cost.add("data", left);
    return cost;
}

struct Priced {
    Protocol protocol;
    double ns;  // infinite: none is possible
};

/// Eager messages go the first way that takes them, and so do rendezvous: see rndv_protocol().
Priced first_of(const RailCosts& rail, bool rndv, std::size_t bytes, BufferKind kind) {
    for (std::size_t i = 0; i < kProtocols; ++i) {
        const auto protocol = static_cast<Protocol>(i);
        if (is_rndv(protocol) == rndv && obstacle(rail, protocol, bytes, kind) == nullptr)
            return {protocol, cost_of(rail, protocol, bytes, kind).ns};
    }
    return {rndv ? Protocol::kRndvCopy : Protocol::kParts, INFINITY};
}

/// By how much rendezvous is the better one: a logarithm, negative where eager is.
double advantage(const RailCosts& rail, std::size_t bytes, BufferKind kind) {
    return std::log(first_of(rail, false, bytes, kind).ns /
                    (first_of(rail, true, bytes, kind).ns * (1 - kEagerMargin)));
}

/// The length from which rendezvous loses least, summed over all that may be eager. Where the
/// costs cross once this is where they do; measurements may cross by accident, too.
std::size_t crossover(const RailCosts& rail, BufferKind kind) {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < kSizesCompared && size_compared(i) <= rail.eager_max; ++i)
        if (size_compared(i) > rail.short_max && (sizes.empty() || sizes.back() < size_compared(i)))
            sizes.push_back(size_compared(i));
    double best = 0;
    double sum = 0;
    std::size_t from = sizes.size();
    for (std::size_t i = sizes.size(); i-- > 0;) {
        sum += advantage(rail, sizes[i], kind);
        if (sum >= best) {
            best = sum;
            from = i;
        }
    }
    if (from == sizes.size())
        return std::max(rail.eager_max, rail.bcopy_max) + 1;
    std::size_t eager = from == 0 ? rail.short_max : sizes[from - 1];
    std::size_t rndv = sizes[from];
    while (rndv - eager > 1) {
        const std::size_t middle = eager + (rndv - eager) / 2;
        (advantage(rail, middle, kind) >= 0 ? rndv : eager) = middle;
    }
    return rndv;
}

}  // namespace

const char* name_of(Protocol protocol) {
    return kNames[index_of(protocol)];
}

bool protocol_named(std::string_view name, Protocol* protocol_p) {
    const auto* found = std::ranges::find(kNames, name);
    if (found == std::end(kNames))
        return false;
    *protocol_p = static_cast<Protocol>(found - kNames);
    return true;
}

Curve::Curve(std::vector<Knot> knots) {
    std::ranges::stable_sort(knots, {}, &Knot::bytes);
    struct Level {
        double ns;
        std::size_t knots;
    };
    std::vector<Level> levels;  // rising
    for (const Knot& knot : knots) {
        Level level{knot.ns, 1};
        while (!levels.empty() && levels.back().ns > level.ns) {
            const Level& last = levels.back();
            const std::size_t both = last.knots + level.knots;
            level = {(last.ns * static_cast<double>(last.knots) +
                      level.ns * static_cast<double>(level.knots)) /
                         static_cast<double>(both),
                     both};
            levels.pop_back();
        }
        levels.push_back(level);
    }
    std::size_t next = 0;
    for (const Level& level : levels)
        for (std::size_t i = 0; i < level.knots; ++i)
            knots_.push_back({knots[next++].bytes, level.ns});
}

double Curve::at(double bytes) const {
    if (knots_.empty())
        return 0;
    if (knots_.size() == 1 || bytes <= knots_.front().bytes)
        return knots_.front().ns;
    auto after = std::ranges::lower_bound(knots_, bytes, {}, &Knot::bytes);
    if (after == knots_.end())
        --after;
    const Knot& from = *(after - 1);
    const double width = after->bytes - from.bytes;
    return width <= 0 ? after->ns : from.ns + (bytes - from.bytes) * (after->ns - from.ns) / width;
}

void Cost::add(const char* name, double term_ns) {
    const double term = std::max(term_ns, 0.0);
    terms[count++] = {name, term};
    ns += term;
}

const char* obstacle(const RailCosts& rail, Protocol protocol, std::size_t bytes, BufferKind kind) {
    const bool is_direct =
        kind == BufferKind::kMapped || (kind == BufferKind::kPlain && rail.registers);
    switch (protocol) {
        case Protocol::kShort:
            return rail.short_max == 0      ? "the transport has no short messages"
                   : bytes > rail.short_max ? "longer than a short message"
                                            : nullptr;
        case Protocol::kBcopy:
            return bytes > rail.bcopy_max ? "longer than a buffer of the transport" : nullptr;
        case Protocol::kParts:
            return bytes <= rail.bcopy_max ? "fits a buffer of the transport"
                   : bytes > rail.eager_max
                       ? "longer than a receiver may keep as an unexpected message"
                       : nullptr;
        case Protocol::kRndvGet:
        case Protocol::kRndvPut:
            if (rail.has_scheme && rail.scheme != protocol)
                return "TAGWIRE_RNDV_SCHEME names another scheme";
            if (!(protocol == Protocol::kRndvGet ? rail.can_get : rail.can_put))
                return protocol == Protocol::kRndvGet ? "the transport cannot read memory"
                                                      : "the transport cannot write memory";
            if (!is_direct)
                return "the buffer has no handle, and registering it for one message costs too "
                       "much";
            break;
        case Protocol::kRndvCopy:
            break;
    }
    return bytes == 0 ? "an empty message has no data to fetch" : nullptr;
}

Cost cost_of(const RailCosts& rail, Protocol protocol, std::size_t bytes, BufferKind kind) {
    Cost cost = modelled(rail, protocol, bytes);
    const Curve& curve = rail.measured[index_of(protocol)];
    if (!curve.empty())
        cost = measured(cost, curve.at(static_cast<double>(bytes)));
    if (protocol == Protocol::kRndvPut || (protocol == Protocol::kRndvGet && !rail.lends))
        add_registration(rail, bytes, kind, &cost);
    return cost;
}

Selection::Selection(const RailCosts& rail, std::size_t override_bytes)
    : is_overridden_(override_bytes != kNever) {
    for (std::size_t kind = 0; kind < kBufferKinds; ++kind) {
        rndv_from_[kind] = is_overridden_ ? std::max<std::size_t>(override_bytes, 1)
                                          : crossover(rail, static_cast<BufferKind>(kind));
    }
}

Protocol rndv_protocol(const RailCosts& rail, std::size_t bytes, BufferKind kind) {
    return first_of(rail, true, bytes, kind).protocol;
}

Choice Selection::choose(const RailCosts& rail, std::size_t bytes, BufferKind kind) const {
    const Priced eager = first_of(rail, false, bytes, kind);
    const Priced rndv = first_of(rail, true, bytes, kind);
    if (eager.protocol == Protocol::kShort)
        return {eager.protocol, Rule::kShort};
    const bool is_eager = bytes == 0 || bytes < rndv_from(kind);
    const Protocol protocol = is_eager ? eager.protocol : rndv.protocol;
    if (is_overridden_)
        return {protocol, Rule::kOverride};
    if (eager.ns == INFINITY)
        return {protocol, Rule::kEagerLimit};
    if (is_eager ? eager.ns <= rndv.ns : rndv.ns <= eager.ns)
        return {protocol, Rule::kCost};
    return {protocol,
            !is_eager && advantage(rail, bytes, kind) >= 0 ? Rule::kMargin : Rule::kOneLength};
}

}  // namespace tagwire::proto
