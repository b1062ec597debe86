// SPDX-License-Identifier: BSD-3-Clause
// The tables of names that public headers declare.
#include <ucs/config/types.h>
#include <ucs/memory/memory_type.h>
#include <ucs/stats/stats_fwd.h>
#include <ucs/type/thread_mode.h>

const char* ucs_thread_mode_names[UCS_THREAD_MODE_LAST] = {"single", "serialized", "multi"};

const char* ucs_async_mode_names[UCS_ASYNC_MODE_LAST] = {"signal", "thread_spinlock",
                                                         "thread_mutex", "poll"};

const char* ucs_memory_type_names[UCS_MEMORY_TYPE_LAST + 1] = {
    "host", "cuda", "cuda-managed", "rocm", "rocm-managed", "unknown"};

const char* ucs_memory_type_descs[UCS_MEMORY_TYPE_LAST + 1] = {
    "System memory",  "NVIDIA GPU memory",      "NVIDIA GPU managed memory",
    "AMD GPU memory", "AMD GPU managed memory", "Memory of an unknown kind"};

extern "C" ucs_stats_node_t* ucs_stats_get_root(void) {
    return nullptr;
}
