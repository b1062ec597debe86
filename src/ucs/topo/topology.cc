// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/topo/topology.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::ucs {
namespace {

struct BitmapFree {
    void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

Bitmap make_bitmap() {
    Bitmap bitmap(hwloc_bitmap_alloc());
    TW_CHECK(bitmap != nullptr);
    return bitmap;
}

struct HandleFree {
    void operator()(hwloc_topology* handle) const { hwloc_topology_destroy(handle); }
};
using Handle = std::unique_ptr<hwloc_topology, HandleFree>;

// Parts of hwloc that load other libraries, open displays or move the thread from processor to
// processor.
constexpr const char* kIntrusiveComponents[] = {"x86",  "gl",   "opencl",   "cuda",
                                                "nvml", "rsmi", "levelzero"};

Handle make_handle() {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0)
        return nullptr;
    Handle handle(raw);
    for (const char* component : kIntrusiveComponents)
        hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
    hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
    return handle;
}

std::vector<int> indexes(hwloc_const_bitmap_t bitmap) {
    std::vector<int> found;
    if (hwloc_bitmap_weight(bitmap) < 0)
        return found;  // infinite: no set of real processors
    for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i))
        found.push_back(i);
    return found;
}

hwloc_obj_t pu_object(hwloc_topology_t handle, int cpu) {
    return cpu < 0 ? nullptr : hwloc_get_pu_obj_by_os_index(handle, static_cast<unsigned>(cpu));
}

hwloc_obj_t node_object(hwloc_topology_t handle, int node) {
    return node < 0 ? nullptr
                    : hwloc_get_numanode_obj_by_os_index(handle, static_cast<unsigned>(node));
}

bool share_ancestor(hwloc_topology_t handle, hwloc_obj_t a, hwloc_obj_t b, hwloc_obj_type_t type) {
    hwloc_obj_t of_a = hwloc_get_ancestor_obj_by_type(handle, type, a);
    return of_a != nullptr && of_a == hwloc_get_ancestor_obj_by_type(handle, type, b);
}

bool share_cache(hwloc_topology_t handle, hwloc_obj_t a, hwloc_obj_t b) {
    constexpr hwloc_obj_type_t kCaches[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                            HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
    return std::any_of(std::begin(kCaches), std::end(kCaches),
                       [&](hwloc_obj_type_t cache) { return share_ancestor(handle, a, b, cache); });
}

// The smallest node that is local to a set: with memory on the package and in each of its parts,
// the part's.
int node_of_cpuset(hwloc_topology_t handle, hwloc_const_cpuset_t cpuset) {
    int nearest = -1;
    int nearest_weight = 0;
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(handle, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
        const int weight = hwloc_bitmap_weight(node->cpuset);
        if (hwloc_bitmap_isincluded(cpuset, node->cpuset) != 0 &&
            (nearest < 0 || weight < nearest_weight)) {
            nearest = static_cast<int>(node->os_index);
            nearest_weight = weight;
        }
    }
    return nearest;
}

// -1 when the firmware gave none.
int firmware_distance(hwloc_topology_t handle, hwloc_obj_t a, hwloc_obj_t b) {
    hwloc_distances_s* distances = nullptr;
    unsigned count = 1;
    const int error = hwloc_distances_get_by_type(handle, HWLOC_OBJ_NUMANODE, &count, &distances,
                                                  HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    if (error != 0 || count == 0)
        return -1;
    hwloc_uint64_t there = 0;
    hwloc_uint64_t back = 0;
    const int missing = hwloc_distances_obj_pair_values(distances, a, b, &there, &back);
    hwloc_distances_release(handle, distances);
    return missing == 0 ? static_cast<int>(there) : -1;
}

// Where even a minimal machine is better than none.
constexpr const char* kUnknownMachine = "numa:1 core:1 pu:1";

const Topology* read_system() {
    std::unique_ptr<Topology> topology;
    if (Topology::load_system(&topology) != UCS_OK) {
        TW_LOG_WARN("hwloc cannot read this machine's topology; placement is left to the kernel");
        const ucs_status_t status = Topology::load_synthetic(kUnknownMachine, &topology);
        TW_CHECK(status == UCS_OK);
    }
    return topology.release();
}

}  // namespace

ucs_status_t Topology::load_system(std::unique_ptr<Topology>* topology_p) {
    Handle handle = make_handle();
    if (handle == nullptr || hwloc_topology_load(handle.get()) != 0)
        return UCS_ERR_IO_ERROR;
    topology_p->reset(new Topology(handle.release()));
    return UCS_OK;
}

ucs_status_t Topology::load_synthetic(const char* description,
                                      std::unique_ptr<Topology>* topology_p) {
    Handle handle = make_handle();
    if (handle == nullptr || hwloc_topology_set_synthetic(handle.get(), description) != 0 ||
        hwloc_topology_load(handle.get()) != 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    topology_p->reset(new Topology(handle.release()));
    return UCS_OK;
}

ucs_status_t Topology::load_xml_text(std::string_view xml, std::unique_ptr<Topology>* topology_p) {
    Handle handle = make_handle();
    const std::string text(xml);  // hwloc wants the terminating zero counted
    if (handle == nullptr ||
        hwloc_topology_set_xmlbuffer(handle.get(), text.c_str(),
                                     static_cast<int>(text.size() + 1)) != 0 ||
        hwloc_topology_load(handle.get()) != 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    topology_p->reset(new Topology(handle.release()));
    return UCS_OK;
}

ucs_status_t Topology::load_xml_file(const char* path, std::unique_ptr<Topology>* topology_p) {
    Handle handle = make_handle();
    if (handle == nullptr || hwloc_topology_set_xml(handle.get(), path) != 0 ||
        hwloc_topology_load(handle.get()) != 0) {
        return UCS_ERR_INVALID_PARAM;
    }
    topology_p->reset(new Topology(handle.release()));
    return UCS_OK;
}

Topology::~Topology() {
    hwloc_topology_destroy(handle_);
}

std::vector<int> Topology::allowed_cpus() const {
    Bitmap allowed = make_bitmap();
    hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(handle_));
    if (hwloc_topology_is_thissystem(handle_) != 0) {
        Bitmap bound = make_bitmap();
        if (hwloc_get_cpubind(handle_, bound.get(), HWLOC_CPUBIND_THREAD) == 0)
            hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
    }
    return indexes(allowed.get());
}

std::vector<int> Topology::nodes() const {
    return indexes(hwloc_topology_get_topology_nodeset(handle_));
}

std::size_t Topology::second_level_cache_bytes() const {
    std::size_t smallest = 0;
    for (hwloc_obj_t cache = nullptr;
         (cache = hwloc_get_next_obj_by_type(handle_, HWLOC_OBJ_L2CACHE, cache)) != nullptr;) {
        const std::size_t bytes = cache->attr->cache.size;
        if (bytes != 0 && (smallest == 0 || bytes < smallest))
            smallest = bytes;
    }
    if (smallest != 0)
        return smallest;
    const long bytes =
        hwloc_topology_is_thissystem(handle_) != 0 ? ::sysconf(_SC_LEVEL2_CACHE_SIZE) : 0;
    return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{1} << 20;
}

int Topology::node_of_cpu(int cpu) const {
    hwloc_obj_t pu = pu_object(handle_, cpu);
    return pu == nullptr ? -1 : node_of_cpuset(handle_, pu->cpuset);
}

std::vector<int> Topology::cpus_of_node(int node) const {
    hwloc_obj_t object = node_object(handle_, node);
    return object == nullptr ? std::vector<int>{} : indexes(object->cpuset);
}

Nearness Topology::nearness(int cpu_a, int cpu_b) const {
    hwloc_obj_t a = pu_object(handle_, cpu_a);
    hwloc_obj_t b = pu_object(handle_, cpu_b);
    if (a == nullptr || b == nullptr)
        return Nearness::kSameMachine;
    if (a == b)
        return Nearness::kSameCpu;
    if (share_ancestor(handle_, a, b, HWLOC_OBJ_CORE))
        return Nearness::kSameCore;
    if (share_cache(handle_, a, b))
        return Nearness::kSharedCache;
    if (node_of_cpu(cpu_a) == node_of_cpu(cpu_b))
        return Nearness::kSameNode;
    return share_ancestor(handle_, a, b, HWLOC_OBJ_PACKAGE) ? Nearness::kSamePackage
                                                            : Nearness::kSameMachine;
}

int Topology::distance(int node_a, int node_b) const {
    hwloc_obj_t a = node_object(handle_, node_a);
    hwloc_obj_t b = node_object(handle_, node_b);
    if (a == nullptr || b == nullptr)
        return -1;
    const int told = firmware_distance(handle_, a, b);
    if (told >= 0)
        return told;
    if (a == b)
        return 10;
    return share_ancestor(handle_, a, b, HWLOC_OBJ_PACKAGE) ? 20 : 30;
}

ucs_status_t Topology::bind_memory(void* address, std::size_t bytes, int node) const {
    hwloc_obj_t object = node_object(handle_, node);
    if (object == nullptr)
        return UCS_ERR_INVALID_PARAM;
    if (hwloc_topology_is_thissystem(handle_) == 0)
        return UCS_ERR_UNSUPPORTED;
    if (bytes == 0 || hwloc_get_nbobjs_by_type(handle_, HWLOC_OBJ_NUMANODE) == 1)
        return UCS_OK;  // there is no choice
    errno = 0;
    if (hwloc_set_area_membind(handle_, address, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET) == 0) {
        return UCS_OK;
    }
    switch (errno) {
        case ENOSYS:
        case EPERM:
        case EXDEV:
            return UCS_ERR_UNSUPPORTED;
        case ENOMEM:
            return UCS_ERR_NO_MEMORY;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

// Never destroyed: another object's destructor may still ask at exit.
const Topology& system_topology() {
    static const Topology* const instance = read_system();
    return *instance;
}

int current_cpu() {
    return sched_getcpu();
}

int current_node() {
    unsigned cpu = 0;
    unsigned node = 0;
    return getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
}

}  // namespace tagwire::ucs
