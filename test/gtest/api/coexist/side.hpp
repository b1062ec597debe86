// SPDX-License-Identifier: BSD-3-Clause
// The interface of main.cc to the two sides: UCX's translation unit and tagwire's. No header of
// either library is included here.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

struct SideReport {
    std::vector<std::string> components;
    std::vector<std::string> type_names;  // typeid names of the public types
    // The address of one template's instance for each public type.
    std::map<std::string, const void*> instances;
    std::size_t vector_bytes = 0;     // of the vectors that were filled and copied
    std::size_t delivered_bytes = 0;  // through an interface to itself; 0 without a transport
    std::string transport;
};

SideReport run_ucx();
SideReport run_tagwire();

/// One function template in the global namespace, as programs have them: its instances merge at
/// link time when the types of both libraries have the same name.
template <class T>
const void* instance_of() {
    static const char marker = 0;
    return &marker;
}

/// Grows and copies a vector of `T`; returns its bytes. Instances of std::vector<T> must not mix
/// either.
template <class T>
std::size_t fill_vector() {
    std::vector<T> elements;
    for (int i = 0; i < 100; ++i)
        elements.push_back(T{});
    const std::vector<T> copy = elements;
    return copy.size() * sizeof(T);
}
