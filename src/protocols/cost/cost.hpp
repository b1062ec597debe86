// SPDX-License-Identifier: BSD-3-Clause
// The cost of a message by each protocol: nanoseconds from the call until both sides are done with
// their buffers, as a sum of named terms.
//
// Pure arithmetic, any thread; used when an interface is opened and for explanations, never on the
// data path: a message reads a length that was computed from it (Selection).
//
// 1. No term is negative, and no cost falls when the message grows.
// 2. Measurements replace the costs that the interface's attributes give, protocol by protocol; the
//    terms of a measured protocol still sum up to its cost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tagwire::proto {

enum class Protocol : std::uint8_t { kShort, kBcopy, kParts, kRndvGet, kRndvPut, kRndvCopy };
inline constexpr std::size_t kProtocols = 6;

const char* name_of(Protocol protocol);
/// False: no protocol is called so.
bool protocol_named(std::string_view name, Protocol* protocol_p);
constexpr bool is_rndv(Protocol protocol) {
    return protocol >= Protocol::kRndvGet;
}

/// Sizes at which costs are compared: eight of each power of two, below 2^41 bytes.
inline constexpr std::size_t kSizeSteps = 8;
inline constexpr std::size_t kSizesCompared = 41 * kSizeSteps;
constexpr std::size_t size_compared(std::size_t i) {
    const std::size_t power = std::size_t{1} << (i / kSizeSteps);
    return power + power * (i % kSizeSteps) / kSizeSteps;
}

/// Registration of a buffer that is sent.
enum class BufferKind : std::uint8_t {
    kMapped,    // it has a handle
    kPlain,     // it has none, and the message registers it
    kUnmapped,  // it has none, and registering costs more than a message may; or it is a list
};
inline constexpr std::size_t kBufferKinds = 3;

/// Nanoseconds over bytes: straight lines between knots, beyond the last on as before it.
class Curve {
  public:
    struct Knot {
        double bytes;
        double ns;
    };

    Curve() = default;
    /// In any order. Where it would fall, the values are evened out: those of a shorter and of a
    /// longer message that cost less get their mean.
    explicit Curve(std::vector<Knot> knots);

    bool empty() const { return knots_.empty(); }
    double at(double bytes) const;
    std::span<const Knot> knots() const { return knots_; }

  private:
    std::vector<Knot> knots_;
};

/// The most that one read or write moves: a longer one would keep one peer's progress to itself.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Costs and capabilities of a transport on a device.
struct RailCosts {
    double overhead_ns = 0;  // either side's work for one message
    double latency_ns = 0;   // from one side to the other
    double fragment_ns = 0;  // one buffer of the transport, beside its bytes
    double copy_ns_per_byte = 0;
    double wire_ns_per_byte = 0;  // 0: the copies are what moves the data
    double copies = 1;            // that each side makes of what goes through buffers
    double read_ns = 0;           // one read of the peer's memory, beside its bytes
    double write_ns = 0;
    double direct_ns_per_byte = 0;  // of such a read or write
    double registration_ns = 0;
    double registration_ns_per_byte = 0;
    double measured_ns_per_byte_min = 0;  // below that a measurement has left the wire out

    std::size_t short_max = 0;  // bytes of a message; 0: no short protocol
    std::size_t bcopy_max = 0;
    std::size_t piece_max = 1;  // bytes of one read or write
    std::size_t eager_max = 0;  // longer messages could not be kept unexpected
    bool can_get = false;
    bool can_put = false;
    bool registers = false;   // a message may register its buffer
    bool lends = false;       // a read needs no registration of the buffer
    bool has_scheme = false;  // TAGWIRE_RNDV_SCHEME names `scheme`: that, else a copy
    Protocol scheme = Protocol::kRndvCopy;

    std::array<Curve, kProtocols> measured;  // with mapped buffers
};

struct CostTerm {
    const char* name;
    double ns;
};

struct Cost {
    static constexpr std::size_t kTermsMax = 8;

    double ns = 0;
    std::array<CostTerm, kTermsMax> terms{};
    std::size_t count = 0;

    void add(const char* name, double term_ns);
};

/// Why such a message cannot go so; nullptr: it can. The one place that says what a rail can do.
const char* obstacle(const RailCosts& rail, Protocol protocol, std::size_t bytes, BufferKind kind);

Cost cost_of(const RailCosts& rail, Protocol protocol, std::size_t bytes, BufferKind kind);

/// The reason for a choice.
enum class Rule : std::uint8_t {
    kCost,        // it costs least
    kMargin,      // eager would cost less, but not by so much that a receiver's memory is worth it
    kEagerLimit,  // eager would cost less, but the message is too long to be kept unexpected
    kOneLength,   // one threshold for all lengths, which loses least over all, loses here
    kOverride,    // TAGWIRE_RNDV_THRESHOLD
    kShort,       // a message that fits the short protocol uses it
};

struct Choice {
    Protocol protocol;
    Rule rule;
};

/// The way in which the data of a rendezvous moves, whatever it costs: the receiver reads what it
/// can, else has it written, else asks for it in pieces.
Protocol rndv_protocol(const RailCosts& rail, std::size_t bytes, BufferKind kind);

/// From which size messages go by rendezvous, for each kind of buffer.
class Selection {
  public:
    static constexpr std::size_t kNever = SIZE_MAX;

    Selection() = default;
    /// `override_bytes`: kNever, or from where rendezvous must be used.
    Selection(const RailCosts& rail, std::size_t override_bytes);

    std::size_t rndv_from(BufferKind kind) const {
        return rndv_from_[static_cast<std::size_t>(kind)];
    }
    /// The protocol of a message of `bytes` bytes, and why.
    Choice choose(const RailCosts& rail, std::size_t bytes, BufferKind kind) const;

  private:
    std::array<std::size_t, kBufferKinds> rndv_from_{kNever, kNever, kNever};
    bool is_overridden_ = false;
};

}  // namespace tagwire::proto
