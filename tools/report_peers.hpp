// SPDX-License-Identifier: BSD-3-Clause
// The curves of other libraries in a report: their own measuring programs run here, on the same two
// CPUs, and their output is parsed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/plot.hpp"
#include "tools/report_own.hpp"
#include "tools/report_ucx.hpp"

namespace tagwire::tools {

struct Peers {
    bool ucx = false, libfabric = false, openmpi = false;
};

/// "ucx", "libfabric", "openmpi" or several with commas. Throws UsageError that names these.
Peers parse_compare(const std::string& list);

/// From what `ucx_perftest -f -v -b FILE` prints, where the tests of the file are named by their
/// sizes. Throws Failure.
Points parse_ucx(const std::string& printed, Figure figure);

/// From what `fi_pingpong` prints: half of the round trip. Throws Failure.
Points parse_libfabric(const std::string& printed);

/// From what NetPIPE prints, which tells half of the round trip. Throws Failure.
Points parse_netpipe(const std::string& printed);

/// Where libtagwire-fi.so is, beside this library; empty: it is not, or has sanitizers, and
/// programs that have none cannot load it.
std::string folder_of_provider();

/// Settings for UCX's environment: the transports that it may use.
inline constexpr const char* kUcxShared = "UCX_TLS=posix,self,cma";
inline constexpr const char* kUcxTcp = "UCX_TLS=tcp,self UCX_NET_DEVICES=lo";

class PeerRuns {
  public:
    /// `cpus`: of the side that measures and of the other. `log` gets the command lines.
    PeerRuns(const std::vector<int>& cpus, int timeout_ms, std::set<std::string>* log)
        : cpus_(cpus), timeout_ms_(timeout_ms), log_(log) {}

    /// `test`: tag_lat or tag_bw. `lane`: one of kUcxShared and kUcxTcp. All throw Failure.
    Points ucx(const char* lane, const std::string& test, Figure figure,
               const std::vector<Batch>& batches) const;
    /// Ping-pong; the sizes of a batch together have the time of one program. `provider`: shm,
    /// tcp;ofi_rxm, or tagwire over shared memory.
    Points libfabric(const std::string& provider, const std::vector<Batch>& batches) const;
    /// NetPIPE between two ranks of Open MPI. `layer`: words for mpirun that choose what carries
    /// it; of a batch the first size and the last.
    Points openmpi(const std::vector<std::string>& layer, const std::vector<Batch>& batches) const;

    /// "1.13.1"; throws Failure that names the package when it is not installed. ucx() runs the
    /// newest from then on, as newest_ucx().
    std::string find_ucx();
    std::string libfabric_version() const;
    std::string openmpi_version() const;

  private:
    struct Pair {
        std::string name;
        std::vector<std::string> server, client;
        int port;
        std::string input;  // of both
    };
    std::string output_of(const Pair& pair, int timeout_ms) const;
    std::string netpipe(const std::vector<std::string>& layer, const Batch& batch) const;

    std::vector<int> cpus_;
    Ucx ucx_;
    int timeout_ms_;
    std::set<std::string>* log_;
};

}  // namespace tagwire::tools
