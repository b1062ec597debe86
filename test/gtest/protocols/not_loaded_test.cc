// SPDX-License-Identifier: BSD-3-Clause
// A context looks for the devices of the transports that it names alone. A program of its own:
// what is loaded once stays.
#include <gtest/gtest.h>
#include <tagwire.h>

#include <fstream>
#include <string>

namespace tagwire::test {
namespace {

bool is_loaded(const std::string& library) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(library) != std::string::npos)
            return true;
    return false;
}

TEST(MsgNotLoaded, verbs_libraries_are_left_alone_by_who_does_not_name_them) {
    for (const char* transports : {"sm", "tcp", "sm,tcp:lo"}) {
        tw_context_params_t params{};
        params.struct_bytes = sizeof params;
        params.transports = transports;
        tw_context_h context = nullptr;
        ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
        tw_worker_h worker = nullptr;
        ASSERT_EQ(tw_worker_create(context, nullptr, &worker), TW_OK);
        EXPECT_FALSE(is_loaded("libibverbs")) << transports;
        EXPECT_FALSE(is_loaded("libtagwire-vhca")) << transports;
        tw_worker_destroy(worker);
        tw_context_destroy(context);
    }
}

}  // namespace
}  // namespace tagwire::test
