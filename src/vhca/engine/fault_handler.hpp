// SPDX-License-Identifier: BSD-3-Clause
// SIGSEGV and SIGBUS of accesses to registered memory that is gone (core/guarded.hpp).
#pragma once

namespace tagwire::vhca {

/// Installs the handler, once in a process. Faults that are not ours go to what was installed
/// before. A program that installs its own later and does not pass on what it does not know sees
/// ours as its own.
void install_fault_handler();

/// How many accesses failed since the last call, of all devices.
unsigned take_fault_count();

}  // namespace tagwire::vhca
