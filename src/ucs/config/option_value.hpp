// SPDX-License-Identifier: BSD-3-Clause
// Text <-> value of one option: parsing with range checks, canonical printing, and the wording of
// what is accepted.
#pragma once

#include <string>
#include <string_view>

#include "ucs/config/config.hpp"

namespace tagwire::ucs {

/// Writes the option's field in `values`; false, with nothing written, when the text is not
/// accepted.
bool option_parse(const Option& option, std::string_view text, void* values);

/// Text that option_parse() turns into the same value.
std::string option_format(const Option& option, const void* values);

/// "count", "size", "time", "number", "yes/no", "choice", "text".
const char* option_type_name(OptionType type);

/// "a power of two from 2 to 65536", "one of: auto, yes, no".
std::string option_accepted(const Option& option);

/// Bytes of the option's field in the values struct.
std::size_t option_field_bytes(OptionType type);

}  // namespace tagwire::ucs
