// SPDX-License-Identifier: BSD-3-Clause
// A fuzz target: one for each thing that is parsed from a peer or a file. Those of a product are
// one program, which runs the one that --target=NAME names: with libFuzzer where the preset has it,
// else over the files of a corpus.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::fuzz {

struct Target {
    const char* name;
    void (*prepare)();  // once, before the first input; may be null
    void (*run)(const std::uint8_t* data, std::size_t size);
};

}  // namespace tagwire::fuzz
