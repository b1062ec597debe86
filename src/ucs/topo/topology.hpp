// SPDX-License-Identifier: BSD-3-Clause
// The processors and memory nodes of a machine, and which of them are near to each other.
//
// system_topology() is this machine, read at the first call. Others can be loaded from a
// description, so that placement can be tested for machines that are not at hand. A Topology does
// not change: any thread may read it. Processors and nodes have the operating system's numbers; -1
// means unknown.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct hwloc_topology;

namespace tagwire::ucs {

/// Distance of two processors, nearest first.
enum class Nearness { kSameCpu, kSameCore, kSharedCache, kSameNode, kSamePackage, kSameMachine };

class Topology {
  public:
    /// UCS_ERR_IO_ERROR when the machine cannot be read.
    static ucs_status_t load_system(std::unique_ptr<Topology>* topology_p);
    /// hwloc's notation: "package:2 numa:2 core:4 pu:2". UCS_ERR_INVALID_PARAM when it is not
    /// understood.
    static ucs_status_t load_synthetic(const char* description,
                                       std::unique_ptr<Topology>* topology_p);
    /// Text, or the path of a file, as hwloc exports it (lstopo). UCS_ERR_INVALID_PARAM.
    static ucs_status_t load_xml_text(std::string_view xml, std::unique_ptr<Topology>* topology_p);
    static ucs_status_t load_xml_file(const char* path, std::unique_ptr<Topology>* topology_p);

    ~Topology();
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;

    /// Processors that the calling thread may run on (of a loaded description: all), ascending.
    std::vector<int> allowed_cpus() const;
    std::vector<int> nodes() const;

    /// Size of the second-level cache of a processor, the smallest where they differ: by hwloc,
    /// else by the C library (of this machine), else 1 MiB.
    std::size_t second_level_cache_bytes() const;

    int node_of_cpu(int cpu) const;
    std::vector<int> cpus_of_node(int node) const;
    Nearness nearness(int cpu_a, int cpu_b) const;

    /// The firmware's relative latency (10 is local), or 10, 20 and 30 for same node, same package
    /// and other package where it has none. -1 for unknown nodes.
    int distance(int node_a, int node_b) const;
    /// Binds pages that overlap [address, address + bytes) and are touched from now on to a node. A
    /// preference: when the node is full, others serve. The caller may go on after any failure.
    /// UCS_ERR_UNSUPPORTED: the kernel has or permits no such thing (containers often), or this is
    /// not this machine. UCS_ERR_INVALID_PARAM: no such node. UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR.
    ucs_status_t bind_memory(void* address, std::size_t bytes, int node) const;

  private:
    explicit Topology(hwloc_topology* handle) : handle_(handle) {}

    hwloc_topology* handle_;
};

/// This machine, without devices. Where it cannot be read (logged), one node with one processor.
/// The first call, which reads it, throws std::bad_alloc where memory ends: it belongs where
/// something is opened, never where messages go. Later ones allocate nothing.
const Topology& system_topology();

/// Where the calling thread runs at this moment. -1 when the kernel does not say.
int current_cpu();
int current_node();

}  // namespace tagwire::ucs
