// SPDX-License-Identifier: BSD-3-Clause
// Refusal of arguments by the facade: one logged sentence that names the call and the argument,
// then a status.
#pragma once

#include <ucs/type/status.h>

#include <initializer_list>

namespace tagwire::uct {

struct Required {
    template <class T>
    Required(const char* argument, T* pointer) : name(argument), is_given(pointer != nullptr) {}

    const char* name;
    bool is_given;
};

/// Logs the first pointer that is null. True when there was one; the call then answers
/// UCS_ERR_INVALID_PARAM.
bool has_null(const char* call, std::initializer_list<Required> arguments);

/// Logs "call: reason" as an error and returns `status`.
[[gnu::format(printf, 3, 4)]] ucs_status_t refuse(ucs_status_t status, const char* call,
                                                  const char* reason, ...);

}  // namespace tagwire::uct
