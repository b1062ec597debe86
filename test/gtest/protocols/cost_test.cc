// SPDX-License-Identifier: BSD-3-Clause
// The cost model: what costs are made of, and what is chosen by them.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "protocols/cost/cost.hpp"

namespace tagwire::proto {
namespace {

constexpr BufferKind kKinds[] = {BufferKind::kMapped, BufferKind::kPlain, BufferKind::kUnmapped};

/// A network with a device that reads memory.
RailCosts network() {
    RailCosts rail;
    rail.overhead_ns = 75;
    rail.latency_ns = 600;
    rail.fragment_ns = 75;
    rail.copy_ns_per_byte = 0.1;
    rail.wire_ns_per_byte = 0.08;
    rail.read_ns = 1300;
    rail.write_ns = 1300;
    rail.direct_ns_per_byte = 0.08;
    rail.registration_ns = 10000;
    rail.registration_ns_per_byte = 0.06;
    rail.short_max = 96;
    rail.bcopy_max = 8192;
    rail.piece_max = 1 << 20;
    rail.eager_max = 16 << 20;
    rail.can_get = true;
    rail.can_put = true;
    rail.registers = true;
    return rail;
}

double term(const Cost& cost, std::string_view name) {
    for (std::size_t i = 0; i < cost.count; ++i)
        if (name == cost.terms[i].name)
            return cost.terms[i].ns;
    return -1;
}

TEST(Cost, is_the_sum_of_terms_none_of_which_is_negative) {
    const RailCosts rail = network();
    for (std::size_t i = 0; i < kProtocols; ++i) {
        for (const BufferKind kind : kKinds) {
            const Cost cost = cost_of(rail, static_cast<Protocol>(i), 300000, kind);
            double sum = 0;
            for (std::size_t t = 0; t < cost.count; ++t) {
                EXPECT_GE(cost.terms[t].ns, 0) << cost.terms[t].name;
                sum += cost.terms[t].ns;
            }
            EXPECT_NEAR(sum, cost.ns, 1e-6);
            EXPECT_GT(cost.ns, 0);
        }
    }
}

TEST(Cost, never_falls_when_the_message_grows) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> share(0, 1);
    for (int round = 0; round < 50; ++round) {
        RailCosts rail = network();
        for (double* value : {&rail.overhead_ns, &rail.latency_ns, &rail.fragment_ns,
                              &rail.copy_ns_per_byte, &rail.wire_ns_per_byte, &rail.read_ns})
            *value *= 2 * share(random);
        std::vector<Curve::Knot> knots;
        for (double bytes = 64; bytes < 1e8; bytes *= 3)
            knots.push_back({bytes, 1000 * share(random) + 0.1 * bytes * share(random)});
        rail.measured[static_cast<std::size_t>(round) % kProtocols] = Curve(knots);
        for (std::size_t i = 0; i < kProtocols; ++i) {
            double before = 0;
            for (std::size_t bytes = 1; bytes < (std::size_t{1} << 28); bytes += 1 + bytes / 5) {
                const Cost cost =
                    cost_of(rail, static_cast<Protocol>(i), bytes, BufferKind::kPlain);
                EXPECT_GE(cost.ns, before - 1e-6) << name_of(static_cast<Protocol>(i)) << bytes;
                before = cost.ns;
            }
        }
    }
}

TEST(Cost, includes_registration_unless_there_is_a_handle) {
    const RailCosts rail = network();
    for (const Protocol protocol : {Protocol::kRndvGet, Protocol::kRndvPut}) {
        EXPECT_EQ(term(cost_of(rail, protocol, 1000, BufferKind::kMapped), "registration"), -1);
        EXPECT_NEAR(term(cost_of(rail, protocol, 1000, BufferKind::kPlain), "registration"),
                    10000 + 60, 1e-6);
    }
    EXPECT_EQ(term(cost_of(rail, Protocol::kRndvCopy, 1000, BufferKind::kPlain), "registration"),
              -1);
}

TEST(Cost, has_no_registration_where_the_buffer_is_lent) {
    RailCosts rail = network();
    rail.lends = true;
    EXPECT_EQ(term(cost_of(rail, Protocol::kRndvGet, 1000, BufferKind::kPlain), "registration"),
              -1);
    EXPECT_EQ(cost_of(rail, Protocol::kRndvGet, 1000, BufferKind::kPlain).ns,
              cost_of(rail, Protocol::kRndvGet, 1000, BufferKind::kMapped).ns);
    EXPECT_NEAR(term(cost_of(rail, Protocol::kRndvPut, 1000, BufferKind::kPlain), "registration"),
                10000 + 60, 1e-6);
}

TEST(Cost, of_a_measured_protocol_is_what_was_measured) {
    RailCosts rail = network();
    auto& curve = rail.measured[static_cast<std::size_t>(Protocol::kParts)];
    curve = Curve({{10000, 5000}, {20000, 6000}, {100000, 30000}});
    EXPECT_NEAR(cost_of(rail, Protocol::kParts, 15000, BufferKind::kPlain).ns, 5500, 1e-6);
    EXPECT_NEAR(cost_of(rail, Protocol::kParts, 200000, BufferKind::kPlain).ns, 60000, 1e-6);
    EXPECT_NEAR(term(cost_of(rail, Protocol::kParts, 15000, BufferKind::kPlain), "data"), 4750,
                1e-6);
}

TEST(Cost, evens_out_measurements_that_fall) {
    const Curve curve({{200, 100}, {100, 200}, {400, 300}});
    EXPECT_EQ(curve.at(100), 150);
    EXPECT_EQ(curve.at(200), 150);
    EXPECT_EQ(curve.at(300), 225);
}

TEST(Selection, the_threshold_is_where_the_costs_cross) {
    const RailCosts rail = network();
    const Selection selection(rail, Selection::kNever);
    const std::size_t at = selection.rndv_from(BufferKind::kMapped);
    ASSERT_GT(at, rail.bcopy_max / 2);
    ASSERT_LT(at, std::size_t{1} << 20);
    const auto ratio = [&](std::size_t bytes) {
        const Protocol eager = bytes > rail.bcopy_max ? Protocol::kParts : Protocol::kBcopy;
        return cost_of(rail, Protocol::kRndvGet, bytes, BufferKind::kMapped).ns /
               cost_of(rail, eager, bytes, BufferKind::kMapped).ns;
    };
    EXPECT_LE(ratio(at) * 0.95, 1);
    EXPECT_GT(ratio(at - 1) * 0.95, 1);
}

TEST(Selection, one_measurement_that_was_disturbed_does_not_move_the_threshold_far) {
    RailCosts rail = network();
    const std::size_t before = Selection(rail, Selection::kNever).rndv_from(BufferKind::kMapped);
    std::vector<Curve::Knot> knots;
    for (double bytes = 512; bytes <= 1 << 22; bytes *= 4) {
        const auto size = static_cast<std::size_t>(bytes);
        const double ns = cost_of(rail, Protocol::kRndvGet, size, BufferKind::kMapped).ns;
        knots.push_back({bytes, size == 1 << 19 ? 2 * ns : ns});
    }
    rail.measured[static_cast<std::size_t>(Protocol::kRndvGet)] = Curve(knots);
    const Selection selection(rail, Selection::kNever);
    EXPECT_LT(selection.rndv_from(BufferKind::kMapped), 2 * before);
    EXPECT_EQ(selection.choose(rail, 1 << 19, BufferKind::kMapped).rule, Rule::kOneLength);
}

/// Over the loopback interface: the kernel copies what goes through buffers once more on each side,
/// and the processors that do so are those that copy for the program.
TEST(Selection, parts_through_a_kernel_give_way_to_rendezvous_before_they_halve_a_stream) {
    RailCosts rail;
    rail.overhead_ns = rail.fragment_ns = 2000;
    rail.latency_ns = 8000;
    rail.copy_ns_per_byte = rail.wire_ns_per_byte = rail.direct_ns_per_byte = 0.1;
    rail.read_ns = rail.write_ns = 18000;
    rail.bcopy_max = rail.short_max = 65516;
    rail.piece_max = 1 << 20;
    rail.eager_max = 16 << 20;
    rail.can_get = true;
    const auto kind = BufferKind::kMapped;
    EXPECT_GT(Selection(rail, Selection::kNever).rndv_from(kind), std::size_t{256} << 10);
    rail.copies = 2;
    const Selection selection(rail, Selection::kNever);
    EXPECT_EQ(selection.choose(rail, 64 << 10, kind).protocol, Protocol::kParts);
    EXPECT_EQ(selection.choose(rail, 128 << 10, kind).protocol, Protocol::kRndvGet);
}

TEST(Selection, registration_moves_the_threshold_up) {
    const Selection selection(network(), Selection::kNever);
    EXPECT_GT(selection.rndv_from(BufferKind::kPlain), selection.rndv_from(BufferKind::kMapped));
}

TEST(Selection, what_is_chosen_is_never_far_from_the_cheapest_that_is_possible) {
    const RailCosts rail = network();
    const Selection selection(rail, Selection::kNever);
    for (const BufferKind kind : kKinds) {
        for (std::size_t bytes = 1; bytes < (1U << 26); bytes *= 2) {
            const Choice choice = selection.choose(rail, bytes, kind);
            ASSERT_EQ(obstacle(rail, choice.protocol, bytes, kind), nullptr) << bytes;
            const double ns = cost_of(rail, choice.protocol, bytes, kind).ns;
            for (const Protocol eager : {Protocol::kShort, Protocol::kBcopy, Protocol::kParts})
                if (obstacle(rail, eager, bytes, kind) == nullptr) {
                    EXPECT_LE(ns * 0.95, cost_of(rail, eager, bytes, kind).ns + 1e-6) << bytes;
                }
        }
    }
}

TEST(Selection, long_messages_that_a_receiver_could_not_keep_go_by_rendezvous) {
    RailCosts rail = network();
    rail.read_ns = 1e9;
    rail.can_put = false;
    const Selection selection(rail, Selection::kNever);
    EXPECT_EQ(selection.rndv_from(BufferKind::kMapped), rail.eager_max + 1);
    const Choice choice = selection.choose(rail, rail.eager_max + 1, BufferKind::kMapped);
    EXPECT_EQ(choice.protocol, Protocol::kRndvGet);
    EXPECT_EQ(choice.rule, Rule::kEagerLimit);
}

TEST(Selection, an_override_replaces_the_threshold_both_ways) {
    const RailCosts rail = network();
    for (const std::size_t bytes : {std::size_t{200}, std::size_t{8} << 20}) {
        const Selection selection(rail, bytes);
        for (const BufferKind kind : kKinds) {
            EXPECT_EQ(selection.rndv_from(kind), bytes);
            EXPECT_EQ(selection.choose(rail, bytes, kind).rule, Rule::kOverride);
            EXPECT_TRUE(is_rndv(selection.choose(rail, bytes, kind).protocol));
            EXPECT_FALSE(is_rndv(selection.choose(rail, bytes - 1, kind).protocol));
        }
    }
    EXPECT_EQ(Selection(rail, 0).rndv_from(BufferKind::kPlain), 1U);
}

TEST(Selection, a_transport_that_cannot_read_or_write_memory_copies) {
    RailCosts rail = network();
    rail.can_get = rail.can_put = false;
    const Selection selection(rail, Selection::kNever);
    for (const BufferKind kind : kKinds) {
        const Choice choice = selection.choose(rail, 16 << 20, kind);
        EXPECT_EQ(choice.protocol, Protocol::kRndvCopy);
        EXPECT_EQ(choice.rule, Rule::kMargin);
    }
    EXPECT_STREQ(obstacle(rail, Protocol::kRndvGet, 100, BufferKind::kMapped),
                 "the transport cannot read memory");
}

TEST(Selection, a_scheme_that_is_named_is_used_or_gives_way_to_a_copy) {
    RailCosts rail = network();
    rail.has_scheme = true;
    const auto chosen = [&](BufferKind kind) {
        return Selection(rail, 1000).choose(rail, 1 << 20, kind).protocol;
    };
    for (const Protocol scheme : {Protocol::kRndvGet, Protocol::kRndvPut, Protocol::kRndvCopy}) {
        rail.scheme = scheme;
        EXPECT_EQ(chosen(BufferKind::kMapped), scheme);
        EXPECT_EQ(chosen(BufferKind::kUnmapped), Protocol::kRndvCopy);
    }
}

TEST(Selection, what_fits_a_short_message_is_one) {
    RailCosts rail = network();
    rail.read_ns = rail.latency_ns = rail.overhead_ns = 0;
    rail.copy_ns_per_byte = 100;
    for (const std::size_t override_bytes : {std::size_t{0}, Selection::kNever}) {
        const Selection selection(rail, override_bytes);
        for (const std::size_t bytes : {std::size_t{0}, rail.short_max}) {
            const Choice choice = selection.choose(rail, bytes, BufferKind::kMapped);
            EXPECT_EQ(choice.protocol, Protocol::kShort);
            EXPECT_EQ(choice.rule, Rule::kShort);
        }
        EXPECT_EQ(selection.choose(rail, rail.short_max + 1, BufferKind::kMapped).protocol,
                  Protocol::kRndvGet);
    }
    EXPECT_EQ(Selection(rail, Selection::kNever).rndv_from(BufferKind::kMapped), 97U);
}

}  // namespace
}  // namespace tagwire::proto
