// SPDX-License-Identifier: BSD-3-Clause
// The test of a job, at either level.
#include <type_traits>

#include "cli/failure.hpp"
#include "tools/limits.hpp"
#include "tools/loops.hpp"
#include "tools/msg_link.hpp"

namespace tagwire::tools {

template <class AnyLink>
std::unique_ptr<Test> make_test(AnyLink& link, const Job& job) {
    if constexpr (std::is_same_v<AnyLink, MsgLink>) {
        if (const std::string why = refusal_at_level_msg(job.test, job.size); !why.empty())
            throw Failure(why);
        if (job.test == TestId::kMatch && job.unexpected)
            return make_msg_unexpected_test(link, job);
    }
    switch (job.test) {
        case TestId::kAmLat:
        case TestId::kAmBw:
        case TestId::kAmRate:
            return make_am_test(link, job);
        case TestId::kTagLat:
        case TestId::kTagBw:
        case TestId::kTagRate:
            return make_tag_test(link, job);
        case TestId::kMatch:
        case TestId::kMatchWild:
            return make_match_test(link, job);
        case TestId::kPutLat:
        case TestId::kPutBw:
        case TestId::kPutRate:
            return make_put_test(link, job);
        case TestId::kGetLat:
        case TestId::kGetBw:
            return make_get_test(link, job);
        case TestId::kAddLat:
        case TestId::kFaddLat:
        case TestId::kCswapLat:
            return make_atomic_test(link, job);
        default:
            throw Failure(text("%s is no test of two processes", test_info(job.test).name));
    }
}

template std::unique_ptr<Test> make_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
