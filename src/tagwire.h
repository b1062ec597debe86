// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// The messaging layer: tagged and untagged messages between workers of any processes, over every
/// transport that leads from one to the other.
///
///     tw_context_create -> context --- tw_worker_create -> worker --- tw_ep_create -> endpoint
///                            |                               |
///                        tw_mem_map                 tw_tag_recv, progress, completions
///
/// A program carries the address of each worker (tw_worker_address(), at most 256 bytes) to the
/// others, makes an endpoint for each that it sends to, and sends; receiving needs no endpoint.
/// docs/reference/messaging.md is the users' page. This header includes nothing of the transport
/// API and may be included beside UCX's headers.
///
/// \par Arguments
/// Outputs are written on success only, unless the call documents otherwise. Invalid arguments are
/// logged with the reason and give TW_ERR_INVALID_PARAM, unless the call documents another status.
///
/// \par Threads
/// A context may be used by any thread. A worker with its endpoints and requests belongs to the
/// thread that made it (TW_THREAD_SINGLE), to one thread at a time (TW_THREAD_SERIALIZED), or to
/// any thread at any time (TW_THREAD_MULTI). Callbacks run inside progress and may call everything
/// but progress and the calls that wait.
///
/// \par Fork
/// After fork() the child uses no handle of its parent, not even to close it: it opens a context of
/// its own. The parent goes on undisturbed.
#ifndef TAGWIRE_H
#define TAGWIRE_H

#include <protocols/api/tw_am.h>
#include <protocols/api/tw_call.h>
#include <protocols/api/tw_completion.h>
#include <protocols/api/tw_context.h>
#include <protocols/api/tw_data.h>
#include <protocols/api/tw_def.h>
#include <protocols/api/tw_endpoint.h>
#include <protocols/api/tw_explain.h>
#include <protocols/api/tw_list.h>
#include <protocols/api/tw_listen.h>
#include <protocols/api/tw_memory.h>
#include <protocols/api/tw_message.h>
#include <protocols/api/tw_rma.h>
#include <protocols/api/tw_version.h>
#include <protocols/api/tw_worker.h>
#include <tagwire_status.h>

#endif
