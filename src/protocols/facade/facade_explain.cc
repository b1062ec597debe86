// SPDX-License-Identifier: BSD-3-Clause
// The C API: explanations and measured costs.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "protocols/api/tw_explain.h"
#include "protocols/cost/calibration.hpp"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/explain.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/worker.hpp"

using namespace tagwire::proto;
using tagwire::ucs::write_sized;

namespace {

bool is_kind(tw_buffer_kind_t buffer) {
    return buffer >= TW_BUFFER_PLAIN && buffer <= TW_BUFFER_LIST;
}

bool is_called(const Rail& rail, std::string_view name) {
    const std::size_t colon = name.find(':');
    return name.substr(0, colon) == rail.transport() &&
           (colon == std::string_view::npos || name.substr(colon + 1) == rail.device());
}

}  // namespace

extern "C" {

tw_status_t tw_worker_explain(tw_worker_h worker, const char* transport, size_t length,
                              tw_buffer_kind_t buffer, tw_explanation_t* explanation) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(transport);
    TW_REFUSE_NULL(explanation);
    TW_REFUSE_SIZE(explanation);
    if (!is_kind(buffer))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "buffer %d is no kind of buffer", static_cast<int>(buffer));
    const Entry entry(worker_of(worker));
    for (const auto& rail : worker_of(worker).rails()) {
        if (is_called(*rail, transport)) {
            write_sized(explain(*rail, length, buffer, nullptr, nullptr), explanation);
            return TW_OK;
        }
    }
    return TW_ERR_NO_ELEM;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_ep_explain(tw_ep_h ep, size_t length, tw_buffer_kind_t buffer,
                          tw_explanation_t* explanation) try {
    TW_REFUSE_NULL(ep);
    TW_REFUSE_NULL(explanation);
    TW_REFUSE_SIZE(explanation);
    if (!is_kind(buffer))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "buffer %d is no kind of buffer", static_cast<int>(buffer));
    const Entry entry(endpoint_of(ep).worker);
    if (endpoint_of(ep).state() != EpState::kReady)
        return TW_ERR_NOT_CONNECTED;
    Endpoint& asked = endpoint_of(ep);
    tw_explanation_t out =
        explain(asked.rail(), length, buffer, asked.chosen_stripes(), &asked.rndv());
    if (out.copy_in != nullptr)
        out.copy_in = name_of(asked.copies.in.kind_for(length));
    write_sized(out, explanation);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_key_explain(tw_ep_h ep, tw_key_h key, tw_rma_kind_t kind, tw_atomic_op_t operation,
                           size_t length, int is_mapped, tw_rma_explanation_t* explanation) try {
    TW_REFUSE_NULL(ep);
    TW_REFUSE_NULL(key);
    TW_REFUSE_NULL(explanation);
    TW_REFUSE_SIZE(explanation);
    if (kind < TW_RMA_PUT || kind > TW_RMA_ATOMIC)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "kind %d is none of TW_RMA_x", static_cast<int>(kind));
    if (kind == TW_RMA_ATOMIC && (operation < TW_ATOMIC_ADD || operation > TW_ATOMIC_CSWAP))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "operation %d is none of TW_ATOMIC_x",
                  static_cast<int>(operation));
    if (kind == TW_RMA_ATOMIC && length != 4 && length != 8)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "an atomic of %zu bytes; numbers have 4 or 8", length);
    const Endpoint& to = endpoint_of(ep);
    if (key_of(key).use != to.rma_lane.key_use)
        TW_REFUSE(TW_ERR_INVALID_PARAM,
                  "the key is of another worker than the endpoint, or to memory of another owner "
                  "than its peer");
    const Entry entry(to.worker);
    if (to.state() != EpState::kReady)
        return TW_ERR_NOT_CONNECTED;
    write_sized(explain(to, key_of(key), kind, operation, length, is_mapped != 0), explanation);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_calibration_store(const char* path, const tw_cost_sample_t* samples,
                                 size_t count) try {
    if (count > 0)
        TW_REFUSE_NULL(samples);
    const std::string file = path != nullptr ? path : Calibration::default_path();
    if (file.empty())
        TW_REFUSE(TW_ERR_INVALID_PARAM,
                  "path is NULL, and neither XDG_CONFIG_HOME nor HOME is set");
    std::vector<CostSample> all;
    for (size_t i = 0; i < count; ++i) {
        const tw_cost_sample_t& sample = samples[i];
        TW_REFUSE_NULL(sample.transport);
        TW_REFUSE_NULL(sample.device);
        TW_REFUSE_NULL(sample.what);
        if (sample.reserved[0] != 0 || sample.reserved[1] != 0)
            TW_REFUSE(TW_ERR_INVALID_PARAM, "`reserved` of sample %zu is not 0", i);
        all.push_back({sample.transport, sample.device, sample.what, sample.length, sample.ns});
        if (const std::string problem = problem_of(all.back()); !problem.empty())
            TW_REFUSE(TW_ERR_INVALID_PARAM, "%s", problem.c_str());
    }
    return static_cast<tw_status_t>(Calibration::store(file, all));
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_calibration_path(char* path, size_t* length_p) try {
    TW_REFUSE_NULL(length_p);
    const std::string file = Calibration::default_path();
    if (file.empty())
        return TW_ERR_NO_ELEM;
    const size_t room = std::exchange(*length_p, file.size() + 1);
    if (room < file.size() + 1)
        return TW_ERR_BUFFER_TOO_SMALL;
    TW_REFUSE_NULL(path);
    std::memcpy(path, file.c_str(), file.size() + 1);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
