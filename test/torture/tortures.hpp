// SPDX-License-Identifier: BSD-3-Clause
// The tortures, and the roles of the processes that they start. Each is in the file of its name.
#pragma once

#include "process.hpp"
#include "trial.hpp"

namespace tagwire::torture {

void run_deaths(Trial& trial);
void run_threads(Trial& trial);
void run_churn(Trial& trial);
void run_flood(Trial& trial);
void run_hostile(Trial& trial);
void run_fork(Trial& trial);
void run_dlopen(Trial& trial);

int role_mortal(Link& parent, Random& random);    // deaths
int role_guest(Link& parent, Random& random);     // churn
int role_flooder(Link& parent, Random& random);   // flood
int role_victim(Link& parent, Random& random);    // hostile
int role_attacker(Link& parent, Random& random);  // hostile
int role_echo(Link& parent, Random& random);      // fork

}  // namespace tagwire::torture
