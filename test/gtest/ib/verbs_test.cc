// SPDX-License-Identifier: BSD-3-Clause
// Verbs libraries that are not what was hoped for, and calls that a device may lack.
#include "uct/ib/verbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace tagwire::ib {
namespace {

using testing::HasSubstr;

TEST(VerbsLibrary, that_is_not_there_says_so) {
    const VerbsLibrary library = load_verbs_library(VerbsOrigin::kSystem, "libno-such-verbs.so.1");
    EXPECT_THAT(library.problem, HasSubstr("libno-such-verbs.so.1"));
    EXPECT_EQ(library.verbs.get_device_list, nullptr);
    EXPECT_FALSE(library.has_virtual_hca);
}

TEST(VerbsLibrary, of_no_name_is_switched_off) {
    const VerbsLibrary library = load_verbs_library(VerbsOrigin::kVirtual, "");
    EXPECT_EQ(library.problem, "switched off by configuration");
}

TEST(VerbsLibrary, that_lacks_a_function_is_not_used) {
    const VerbsLibrary library = load_verbs_library(VerbsOrigin::kSystem, "libm.so.6");
    EXPECT_THAT(library.problem, HasSubstr("has no function ibv_get_device_list"));
    EXPECT_EQ(library.verbs.get_device_list, nullptr);
    EXPECT_THAT(load_verbs_library(VerbsOrigin::kVirtual, "libm.so.6").problem,
                HasSubstr("has no function tagwire_vhca_ibv_get_device_list"));
}

/// A context with extended operations, of a library that knows `ops_bytes` of them.
struct Extended {
    explicit Extended(std::size_t ops_bytes) {
        verbs.sz = ops_bytes;
        verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
        verbs.create_cq_ex = [](ibv_context*, ibv_cq_init_attr_ex*) -> ibv_cq_ex* {
            errno = ENOMEM;
            return nullptr;
        };
        verbs.query_port = [](ibv_context*, std::uint8_t, ibv_port_attr* attr, std::size_t) {
            attr->port_cap_flags2 = 5;
            return 0;
        };
        verbs.query_device_ex = [](ibv_context*, const ibv_query_device_ex_input*,
                                   ibv_device_attr_ex* attr, std::size_t) {
            attr->tm_caps.max_num_tags = 7;
            return EOPNOTSUPP;
        };
    }
    verbs_context verbs{};
};

struct Table : VerbsTable {
    Table() {
        query_port = [](ibv_context*, std::uint8_t, _compat_ibv_port_attr* attr) {
            reinterpret_cast<ibv_port_attr*>(attr)->lid = 3;
            return 0;
        };
        query_device = [](ibv_context*, ibv_device_attr* attr) {
            attr->max_qp = 11;
            return 0;
        };
    }
};

TEST(VerbsCall, that_the_context_has_is_made) {
    Extended extended(sizeof(verbs_context));
    ibv_port_attr attr{};
    EXPECT_EQ(Table().query_port_attr(&extended.verbs.context, 1, &attr), 0);
    EXPECT_EQ(attr.port_cap_flags2, 5);
    ibv_cq_init_attr_ex cq_attr{};
    EXPECT_EQ(create_cq_ex(&extended.verbs.context, &cq_attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(VerbsCall, that_the_context_lacks_is_refused) {
    Extended extended(sizeof(verbs_context));
    ibv_srq_init_attr_ex attr{};
    EXPECT_EQ(create_srq_ex(&extended.verbs.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_context plain{};
    errno = 0;
    EXPECT_EQ(create_srq_ex(&plain, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_cq_init_attr_ex cq_attr{};
    errno = 0;
    EXPECT_EQ(create_cq_ex(&plain, &cq_attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(VerbsCall, beyond_what_an_older_library_has_falls_back) {
    // It ends in front of query_port, which is the first member: the last that was added.
    Extended extended(sizeof(verbs_context) - sizeof(void*));
    ibv_port_attr attr{};
    EXPECT_EQ(Table().query_port_attr(&extended.verbs.context, 1, &attr), 0);
    EXPECT_EQ(attr.lid, 3);
    EXPECT_EQ(attr.port_cap_flags2, 0);
}

TEST(VerbsCall, that_the_device_refuses_falls_back_without_a_trace) {
    Extended extended(sizeof(verbs_context));
    ibv_device_attr_ex attr{};
    EXPECT_EQ(Table().query_device_attr(&extended.verbs.context, &attr), 0);
    EXPECT_EQ(attr.orig_attr.max_qp, 11);
    EXPECT_EQ(attr.tm_caps.max_num_tags, 0U);
}

}  // namespace
}  // namespace tagwire::ib
