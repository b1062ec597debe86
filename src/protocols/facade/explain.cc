// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/facade/explain.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "protocols/cost/advisor.hpp"

namespace tagwire::proto {

static_assert(kProtocols + 1 <= TW_PROTOCOLS_MAX);  // those of one rail, and data over several
static_assert(Cost::kTermsMax <= TW_COST_TERMS_MAX);

namespace {

template <std::size_t n>
void put(char (&out)[n], std::string_view text) {
    const std::size_t bytes = std::min(text.size(), n - 1);
    std::copy_n(text.data(), bytes, out);
    out[bytes] = '\0';
}

BufferKind kind_of(tw_buffer_kind_t buffer) {
    switch (buffer) {
        case TW_BUFFER_MAPPED:
            return BufferKind::kMapped;
        case TW_BUFFER_LIST:
            return BufferKind::kUnmapped;
        default:
            return BufferKind::kPlain;
    }
}

const char* sentence(Rule rule) {
    switch (rule) {
        case Rule::kMargin:
            return "eager would cost less, but by at most 5 %, which does not justify memory of "
                   "the receiver and a second copy if no receive is posted";
        case Rule::kEagerLimit:
            return "a message longer than this setting allows a receiver to keep goes by "
                   "rendezvous";
        case Rule::kOneLength:
            return "eager and rendezvous change at one length, chosen for the least cost over all "
                   "lengths";
        case Rule::kOverride:
            return "this setting overrides the choice by cost";
        case Rule::kShort:
            return "a message that fits a short message is sent as one, unless it had to wait";
        default:
            return "it costs least, with the costs that this setting names";
    }
}

std::string knob(const Options& options, Rule rule) {
    switch (rule) {
        case Rule::kEagerLimit:
            return fmt::format("TAGWIRE_UNEXPECTED_BYTES={}", options.unexpected_bytes);
        case Rule::kOverride:
            return fmt::format("TAGWIRE_RNDV_THRESHOLD={}", options.rndv_threshold);
        default:
            return fmt::format("TAGWIRE_CALIBRATION={}", options.calibration.text);
    }
}

/// As the setting calls it.
std::string_view scheme_of(Protocol protocol) {
    std::string_view name = name_of(protocol);
    name.remove_prefix(std::string_view("rndv_").size());
    return name;
}

tw_protocol_cost_t describe(const RailCosts& costs, Protocol protocol, std::size_t length,
                            BufferKind kind) {
    const Cost cost = cost_of(costs, protocol, length, kind);
    tw_protocol_cost_t out{};
    out.name = name_of(protocol);
    out.obstacle = obstacle(costs, protocol, length, kind);
    out.is_measured = costs.measured[static_cast<std::size_t>(protocol)].empty() ? 0 : 1;
    out.ns = cost.ns;
    out.term_count = static_cast<unsigned>(cost.count);
    for (std::size_t i = 0; i < cost.count; ++i)
        out.terms[i] = {cost.terms[i].name, cost.terms[i].ns};
    return out;
}

// ---- Data of a rendezvous over several rails

/// The protocol by which the lane's rail and the others move their parts.
Protocol direct_of(const RailCosts& costs) {
    const bool is_put = costs.has_scheme ? costs.scheme == Protocol::kRndvPut : !costs.can_get;
    return is_put ? Protocol::kRndvPut : Protocol::kRndvGet;
}

const char* striped_obstacle(const Rail& rail, const StripePlan& plan, std::size_t length,
                             BufferKind kind) {
    const Options& options = rail.options();
    if (options.rndv_rails == 1)
        return "TAGWIRE_RNDV_RAILS=1";
    if (const char* alone = obstacle(rail.costs(), direct_of(rail.costs()), length, kind))
        return alone;
    if (plan.rails() < 2)
        return "no other rail moves data independently of this one";
    if (kind != BufferKind::kMapped)
        return "the buffer has no handle, which the other rails need";
    return length < 2 * options.rndv_rail_min ? "shorter than two parts of TAGWIRE_RNDV_RAIL_MIN"
                                              : nullptr;
}

void explain_striped(const Rail& rail, const StripePlan& plan, BufferKind kind,
                     tw_explanation_t* out) {
    const Protocol direct = direct_of(rail.costs());
    const std::size_t length = out->length;
    const Cost cost = plan.cost(length);
    tw_protocol_cost_t& row = out->protocols[kProtocols];
    row = {};
    row.name = "rndv_striped";
    row.obstacle = striped_obstacle(rail, plan, length, kind);
    row.is_measured = rail.costs().measured[static_cast<std::size_t>(direct)].empty() ? 0 : 1;
    row.ns = cost.ns;
    row.term_count = static_cast<unsigned>(cost.count);
    for (std::size_t i = 0; i < cost.count; ++i)
        row.terms[i] = {cost.terms[i].name, cost.terms[i].ns};
    out->protocol_count = kProtocols + 1;
    out->striped_from = kind == BufferKind::kMapped ? plan.from() : StripePlan::kNever;
    if (row.obstacle != nullptr || length < out->striped_from ||
        out->chosen != static_cast<unsigned>(direct))
        return;
    const Options& options = rail.options();
    out->chosen = kProtocols;
    if (options.rndv_rails > 1) {
        out->rule =
            "this setting is the number of rails for rendezvous data and overrides the cost";
        put(out->knob, fmt::format("TAGWIRE_RNDV_RAILS={}", options.rndv_rails));
    } else {
        out->rule = sentence(Rule::kCost);
        put(out->knob, knob(options, Rule::kCost));
    }
}

const char* phrase(Advisor::Reason reason) {
    switch (reason) {
        case Advisor::Reason::kRemembered:
            return "remembered, because its times fit";
        case Advisor::Reason::kNew:
            return "new, because no remembered times fitted";
        default:
            return "the first";
    }
}

std::string time_of_byte(std::uint32_t ps, std::string_view way) {
    return ps == 0 ? fmt::format("unknown {}", way) : fmt::format("{:.3f} ns {}", ps / 1000.0, way);
}

/// A threshold that was measured: the receiver's, or this side's own.
struct Measured {
    const Advice& advice;
    std::size_t from;
    std::uint64_t messages;  // in the regime
    const char* rule;
    std::string_view who;
};

Measured measured_by(const RndvSender& sender, std::size_t length) {
    if (sender.is_leading(Pattern::kTurns, length)) {
        return {sender.own_advice(), sender.advised_from(Pattern::kTurns, length),
                sender.messages_in_own_regime(),
                "messages of about this length come as well: this side measures them, and chooses "
                "for both directions",
                "this side"};
    }
    const Advice& advice = sender.advice(Pattern::kTurns);
    return {advice, advice.rndv_from, sender.messages_in_regime(Pattern::kTurns),
            "the receiver measures messages that go either way, and advises this length",
            "the receiver"};
}

void explain_measured(const Rail& rail, const Measured& measured, BufferKind kind,
                      tw_explanation_t* out) {
    const Advice& advice = measured.advice;
    Protocol protocol = out->length <= rail.bcopy_max ? Protocol::kBcopy : Protocol::kParts;
    if (out->length >= measured.from)
        protocol = rndv_protocol(rail.costs(), out->length, kind);
    out->rndv_from = measured.from;
    out->chosen = static_cast<unsigned>(protocol);
    out->rule = measured.rule;
    put(out->knob, fmt::format("TAGWIRE_RNDV_THRESHOLD={}", measured.from));
    put(out->source,
        fmt::format("{}: regime {} of {} ({}), since {} messages; at a length near the "
                    "change, a byte takes {}, {}",
                    measured.who, advice.regime, advice.regimes,
                    phrase(static_cast<Advisor::Reason>(advice.reason)), measured.messages,
                    time_of_byte(advice.eager_ps, "eager"),
                    time_of_byte(advice.rndv_ps, "by rendezvous")));
}

/// The receiver has told how much it keeps.
void explain_eager_end(const Rail& rail, std::size_t eager_end, BufferKind kind,
                       tw_explanation_t* out) {
    out->rndv_from = eager_end;
    if (out->length < eager_end || is_rndv(static_cast<Protocol>(out->chosen)))
        return;
    out->chosen = static_cast<unsigned>(rndv_protocol(rail.costs(), out->length, kind));
    out->rule = "a message longer than the receiver's setting allows it to keep goes by rendezvous";
    put(out->knob, "TAGWIRE_UNEXPECTED_BYTES of the receiver");
}

}  // namespace

tw_explanation_t explain(const Rail& rail, std::size_t length, tw_buffer_kind_t buffer,
                         const Stripes* stripes, const RndvSender* sender) {
    const BufferKind kind = kind_of(buffer);
    const Choice choice = rail.selection().choose(rail.costs(), length, kind);
    const bool is_too_long = rail.matches_tags() && !is_rndv(choice.protocol) &&
                             length > rail.attr().cap.tag.eager.max_bcopy;
    const bool is_named = rail.costs().has_scheme && is_rndv(choice.protocol);
    tw_explanation_t out{};
    put(out.transport, rail.transport());
    put(out.device, rail.device());
    out.length = length;
    out.buffer = buffer;
    out.rndv_from = rail.selection().rndv_from(kind);
    out.chosen = static_cast<unsigned>(choice.protocol);
    out.rule = sentence(choice.rule);
    put(out.knob, knob(rail.options(), choice.rule));
    if (is_too_long) {
        out.chosen = static_cast<unsigned>(rndv_protocol(rail.costs(), length, kind));
        out.rule =
            "a tagged message for a matching device goes by rendezvous if it exceeds a buffer";
        put(out.knob, "TAGWIRE_TAG_OFFLOAD=y");
    } else if (is_named) {
        out.rule = "this setting names the scheme of a rendezvous and overrides the cost";
        put(out.knob, fmt::format("TAGWIRE_RNDV_SCHEME={}", scheme_of(rail.costs().scheme)));
    }
    if (rail.calibration().has(rail.transport(), rail.device()))
        put(out.source, rail.calibration().path());
    if (sender != nullptr && kind != BufferKind::kUnmapped && choice.rule != Rule::kShort) {
        const Measured measured = measured_by(*sender, length);
        if (measured.from != 0)
            explain_measured(rail, measured, kind, &out);
    }
    if (sender != nullptr && sender->eager_end() < out.rndv_from)
        explain_eager_end(rail, sender->eager_end(), kind, &out);
    out.protocol_count = kProtocols;
    for (std::size_t i = 0; i < kProtocols; ++i)
        out.protocols[i] = describe(rail.costs(), static_cast<Protocol>(i), length, kind);
    const bool is_put = direct_of(rail.costs()) == Protocol::kRndvPut;
    const StripePlan* chosen = stripes == nullptr ? nullptr : stripes->plan(is_put);
    explain_striped(rail, chosen == nullptr ? rail.stripe_plan(is_put) : *chosen, kind, &out);
    if (rail.is_shared_memory()) {
        out.copy_in = name_of(rail.copies().in.kind_for(length));
        out.copy_out = name_of(rail.copies().out.kind_for(length));
        put(out.copy_kinds, copy_kinds_text());
    }
    return out;
}

}  // namespace tagwire::proto
