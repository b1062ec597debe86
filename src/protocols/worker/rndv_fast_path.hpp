// SPDX-License-Identifier: BSD-3-Clause
// The fast path of a rendezvous whose buffer is lent: a request that meets a plain receive, and the
// acknowledgement of a read that went well. Each does the same as the general path
// (RndvReceiver::begin(), Endpoint::on_control()), without a Transfer, the queue and a second
// look-up; in any other case nothing has happened, and the general path is taken.
#pragma once

#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

class Endpoint;
class WorkerCore;
struct Header;

/// `behind`: what follows the header of a request. True: the data is in the buffer of a posted
/// receive, the sender knows, and the callback has run.
bool take_lent(WorkerCore& worker, Endpoint& ep, const Header& header, WireBytes behind);

/// True: the control message has ended a rendezvous of its receiver with success.
bool take_ats(WorkerCore& worker, WireBytes message);

}  // namespace tagwire::proto
