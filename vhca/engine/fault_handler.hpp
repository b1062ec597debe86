// SPDX-License-Identifier: BSD-3-Clause
// Handler of SIGSEGV and SIGBUS from accesses to unmapped registered memory (core/guarded.hpp).
#pragma once

namespace tagwire::vhca {

/// Installs the handler, once in a process. Faults that are not ours go to what was installed
/// before. A program that installs its own later and does not pass on what it does not know sees
/// ours as its own.
void install_fault_handler();

/// Number of accesses that failed since the last call, on all devices.
unsigned take_fault_count();

}  // namespace tagwire::vhca
