// SPDX-License-Identifier: BSD-3-Clause
// The cases: each is one statement of libfabric's manual pages.
#pragma once
#include <span>
#include <vector>

namespace conformance {

struct Case {
    const char* name;
    const char* feature;  // a line of features.txt
    const char* ids;      // of docs/reference/semantics.md, or empty
    const char* section;  // of the manual pages
    void (*body)();
};

// One list for each file of cases.
std::span<const Case> address_cases();
std::span<const Case> atomic_cases();
std::span<const Case> buffered_cases();
std::span<const Case> completion_cases();
std::span<const Case> data_cases();
std::span<const Case> flag_cases();
std::span<const Case> info_cases();
std::span<const Case> life_cases();
std::span<const Case> matching_cases();
std::span<const Case> peek_cases();
std::span<const Case> process_cases();
std::span<const Case> queue_cases();
std::span<const Case> receive_cases();
std::span<const Case> rma_cases();

std::vector<Case> all_cases();

}  // namespace conformance
