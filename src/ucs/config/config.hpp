// SPDX-License-Identifier: BSD-3-Clause
// Typed configuration: built-in default < configuration file < environment variable TAGWIRE_<NAME>.
//
// A module describes its options by a constant table over a plain struct of values:
//
//     struct SmOptions { std::uint64_t ring_slots; bool busy; };
//     constexpr Option kSmOptions[] = {
//         {.name = "SM_RING_SLOTS",
//          .type = OptionType::kCount,
//          .unit = "slots",
//          .default_value = "64",
//          .doc = "Messages that one ring holds.",
//          .offset = offsetof(SmOptions, ring_slots),
//          .min = 2,
//          .max = 65536,
//          .flags = kOptionPowerOfTwo},
//         ...
//     };
//     constexpr OptionTable kSmTable{"shared memory", kSmOptions, sizeof(SmOptions)};
//     SmOptions options;
//     ucs_status_t status = config_fill(kSmTable, &options);
//
// Control path only, any thread; sources are read anew at each call, nothing is cached. This
// directory is the only place that reads the environment (see environment.hpp for variables of
// other software, such as HOME).
//
// Files: $TAGWIRE_CONFIG_FILE alone, if set. Else $XDG_CONFIG_HOME/tagwire.conf or
// ~/.config/tagwire.conf, and below it /etc/tagwire.conf. Lines are `NAME = value` with or without
// the prefix TAGWIRE_; `#` begins a comment.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tagwire::ucs {

/// Type of an option's value, and of its field in the values struct.
enum class OptionType {
    kBool,    // bool:          y n yes no on off true false 1 0
    kCount,   // std::uint64_t: 1000; "inf" is UINT64_MAX where max allows it
    kBytes,   // std::uint64_t: 4096 8k 64m 1g (powers of 1024), "inf"
    kTimeNs,  // std::uint64_t: 10ns 5us 3ms 2s, a fraction too; "inf"
    kDouble,  // double
    kEnum,    // int: index into choices
    kString,  // OptionString
};

/// As long as a path may be.
inline constexpr std::size_t kOptionTextBytesMax = 4096;

struct OptionString {
    char text[kOptionTextBytesMax + 1];
};

enum OptionFlags : unsigned {
    kOptionPowerOfTwo = 1,
    kOptionOrZero = 2,  // 0 is good, too, whatever min is: the doc says what it stands for
};

struct Option {
    const char* name;  // without the prefix: "SM_RING_SLOTS"
    OptionType type;
    const char* unit;  // "" when there is none
    const char* default_value;
    const char* doc;  // one line
    std::size_t offset;
    const char* const* choices = nullptr;  // kEnum: ends with nullptr
    std::uint64_t min = 0;  // numbers, sizes and times (kDouble too): inclusive range
    std::uint64_t max = UINT64_MAX;
    unsigned flags = 0;
};

struct OptionTable {
    const char* title;
    std::span<const Option> options;
    std::size_t values_bytes;
    /// The reason why a program cannot set them for one of its contexts; null: it can.
    const char* process_reason = nullptr;
};

/// Further sources for uct_*_config_read(): variables TAGWIRE_<env_prefix>_<NAME> go before
/// TAGWIRE_<NAME>, and `file` goes between the default file and the environment (one that does not
/// exist is ignored).
struct ConfigSources {
    const char* env_prefix = nullptr;
    const char* file = nullptr;
};

/// Fills `values` (values_bytes, no need to initialise) from all sources. UCS_ERR_INVALID_PARAM
/// when a source has a bad value or a file cannot be understood: each is logged with the accepted
/// form, and its option keeps the value of the next weaker source.
ucs_status_t config_fill(const OptionTable& table, void* values, const ConfigSources& sources = {});

/// As config_fill(), without logging: problems are appended to `problems_p`, one per element.
ucs_status_t config_resolve(const OptionTable& table, void* values, const ConfigSources& sources,
                            std::vector<std::string>* problems_p);

/// Sets one option of filled values; `name` with or without TAGWIRE_. UCS_ERR_NO_ELEM: no such
/// option (level info tells the nearest name). UCS_ERR_INVALID_PARAM: bad value (logged), nothing
/// changed.
ucs_status_t config_set(const OptionTable& table, void* values, const char* name, const char* text);

/// Writes the value as text that config_set() accepts. UCS_ERR_NO_ELEM, UCS_ERR_BUFFER_TOO_SMALL.
ucs_status_t config_get(const OptionTable& table, const void* values, const char* name, char* out,
                        std::size_t out_bytes);

/// Whether a program may set an option for one of its contexts; `name` with or without TAGWIRE_.
/// Otherwise `*problem_p` is a sentence that says why: UCS_ERR_NO_ELEM: no table has the option;
/// UCS_ERR_UNSUPPORTED: the option belongs to the process; UCS_ERR_INVALID_PARAM: bad value.
ucs_status_t config_check(std::span<const OptionTable* const> tables, std::string_view name,
                          std::string_view text, std::string* problem_p);

/// One row of `tagwire info config`.
struct OptionReport {
    const Option* option;
    std::string variable;       // "TAGWIRE_SM_RING_SLOTS"
    std::string type;           // "count"
    std::string accepted;       // "a power of two from 2 to 65536"
    std::string default_value;  // in canonical form
    std::string value;
    std::string source;   // "default", "environment", or the path of a file
    std::string problem;  // why a stronger source was refused, else empty
};

std::vector<OptionReport> config_report(const OptionTable& table);

/// Variables TAGWIRE_* and names in configuration files that no table knows, one sentence each,
/// with the nearest known name. Variables TAGWIRE_TEST_*, TAGWIRE_BENCH_* and TAGWIRE_CONFIG_FILE
/// are no options and no mistakes.
std::vector<std::string> config_unknown_names(std::span<const OptionTable* const> tables);

/// Logs them as warnings, the first time that this process calls it.
void config_warn_unknown_once(std::span<const OptionTable* const> tables);

/// The problem of the table itself (a default that does not parse, a field outside the values,
/// a bad or double name); empty when nothing is. For tests.
std::string config_table_problem(const OptionTable& table);

/// Options of the library as a whole: logging.
const OptionTable& core_option_table();
/// Options of waiting by progress.
const OptionTable& progress_option_table();

}  // namespace tagwire::ucs
