// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Extensions of the transport API beyond UCX 1.13: remote flush, the list of transports, the
/// reason for unreachability, memory that is lent, many pieces in one call, counters, and
/// human-readable descriptions of interfaces and endpoints. Everything here is named tagwire_*.
///
/// \par Threads
/// As for the object (see uct.h); tagwire_uct_transports(), tagwire_config_list() and the version
/// calls from any thread.
#ifndef TAGWIRE_UCT_API_TAGWIRE_UCT_H
#define TAGWIRE_UCT_API_TAGWIRE_UCT_H

#include <stddef.h>
#include <stdint.h>

#include <uct/api/uct.h>

BEGIN_C_DECLS

/// Flag of uct_ep_flush() and uct_iface_flush(): the memory of the target has been written
/// (UCT_FLUSH_FLAG_LOCAL promises only that local buffers are free). Refused with
/// UCS_ERR_UNSUPPORTED by interfaces without TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE in cap.flags.
enum tagwire_uct_flush_flag_ext { TAGWIRE_UCT_FLUSH_FLAG_REMOTE = UCS_BIT(24) };
#define TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE UCS_BIT(63)

/// Flag of uct_ep_flush(), alone: gives the network what was sent and has been gathered here, as
/// far as it takes it, and waits for nothing: UCS_OK. Interfaces with
/// TAGWIRE_UCT_IFACE_FLAG_GATHERS in cap.flags gather sends until the next progress or flush.
#define TAGWIRE_UCT_FLUSH_FLAG_WRITE UCS_BIT(25)
#define TAGWIRE_UCT_IFACE_FLAG_GATHERS UCS_BIT(61)

/// Flag of uct_ep_flush(): waits until the messages and puts before it need this process no longer.
/// As UCT_FLUSH_FLAG_LOCAL, but it waits for no reply of the peer, nor for rendezvous: over shared
/// memory for nothing that is in the peer's ring, over sockets for what the kernel has not taken.
/// Transports whose device or peer acknowledges treat it as UCT_FLUSH_FLAG_LOCAL.
#define TAGWIRE_UCT_FLUSH_FLAG_SENT UCS_BIT(26)

/// In cap.flags: a message needs this process no longer when its call has returned, so such a flush
/// has nothing to wait for but puts.
#define TAGWIRE_UCT_IFACE_FLAG_SENT_AT_ONCE UCS_BIT(59)

/// In cap.flags: puts and gets move data when the peer's interface progresses, as messages do.
#define TAGWIRE_UCT_IFACE_FLAG_RMA_BY_PROGRESS UCS_BIT(62)

/// In cap.flags: endpoints have tagwire_uct_ep_lend() and tagwire_uct_ep_read_lent().
#define TAGWIRE_UCT_IFACE_FLAG_LEND UCS_BIT(60)

/// Version of this library, as "0.1.0".
TAGWIRE_API const char* tagwire_version_string(void);

/// A transport that the library has, whether this machine has devices for it or not.
typedef struct tagwire_uct_transport {
    uct_component_h component;  ///< The component whose memory domains offer the transport.
    const char* name;           ///< "sm"; a constant of the library.
    /// Preference for first contact between processes that have exchanged one address only: among
    /// the transports that lead from one to the other the one with the highest rank, which reaches
    /// least far. The lowest reaches farthest. Ranks are unique and do not change between versions,
    /// so addresses may hold them (1 to 255).
    /// 0: the transport cannot take first contact, as its endpoints connect to endpoints.
    unsigned first_contact_rank;
} tagwire_uct_transport_t;

typedef void (*tagwire_uct_transport_cb_t)(void* arg, const tagwire_uct_transport_t* transport);

/// Visits every transport of the library. The entry is valid during the callback.
TAGWIRE_API ucs_status_t tagwire_uct_transports(tagwire_uct_transport_cb_t cb, void* arg);

/// As uct_iface_is_reachable(); when the answer is 0, `reason` (at most `max` bytes with the
/// terminating 0) says why in one sentence. `reason` may be NULL.
TAGWIRE_API int tagwire_uct_iface_is_reachable_reason(uct_iface_h iface,
                                                      const uct_device_addr_t* dev_addr,
                                                      const uct_iface_addr_t* iface_addr,
                                                      char* reason, size_t max);

/// 1: the system's routes lead from the interface to the device of that address (`dev_addr`, which
/// uct_iface_is_reachable() has accepted). 0: they lead there over another network interface, so
/// one of that had better connect; connections from this one may still arrive. Transports that the
/// system does not route answer 1.
TAGWIRE_API int tagwire_uct_iface_is_on_route(uct_iface_h iface, const uct_device_addr_t* dev_addr);

/// One counter of an object. The texts are constants of the library.
typedef struct tagwire_uct_counter {
    const char* name;  ///< "tx_am_short"
    const char* unit;  ///< "messages", "bytes", "ns"
    const char* doc;   ///< One line.
    uint64_t value;
    uint64_t reserved[2];  ///< Room for later versions; 0.
} tagwire_uct_counter_t;

/// Reads the counters of an interface. On entry *count_p is the room in `counters`; on return the
/// number that exist. When the room is too small as many as fit are written and the call answers
/// UCS_ERR_BUFFER_TOO_SMALL. `counters` may be NULL when *count_p is 0.
TAGWIRE_API ucs_status_t tagwire_uct_iface_query_counters(uct_iface_h iface,
                                                          tagwire_uct_counter_t* counters,
                                                          unsigned* count_p);

/// Gets an active message of which the first bytes have come before the rest: `head` has the first
/// min(length, TAGWIRE_UCT_AM_HEAD_BYTES) of them, `data` all `length` bytes as uct_am_callback_t
/// gets them. The first touch of `data` may wait for the memory of the sender, that of `head` does
/// not. Both are valid during the call; with UCT_CB_PARAM_FLAG_DESC `data` may be kept
/// (UCS_INPROGRESS).
typedef ucs_status_t (*tagwire_uct_am_head_callback_t)(void* arg, const void* head, void* data,
                                                       size_t length, unsigned flags);

/// Bytes of a message that `head` has at most. None of the transports has fewer.
#define TAGWIRE_UCT_AM_HEAD_BYTES 48

/// Sets a second handler for active messages with `id`, which gets those whose head has come before
/// the rest; all others go to the handler of uct_iface_set_am_handler(), as all do where a
/// transport makes no such difference. So both must do the same. NULL removes it. Sender and wire
/// format know nothing of it. Owner thread of the worker. UCS_ERR_INVALID_PARAM: `id` is not below
/// UCT_AM_ID_MAX.
TAGWIRE_API ucs_status_t tagwire_uct_iface_set_am_head_handler(uct_iface_h iface, uint8_t id,
                                                               tagwire_uct_am_head_callback_t cb,
                                                               void* arg);

/// A buffer that an endpoint has lent to its peer. The program carries it to the peer's, in a
/// message of its own, which has the fields as they are.
typedef struct tagwire_uct_loan {
    uint64_t place;       ///< Buffer's place, as the peer's transport finds it.
    uint64_t generation;  ///< With `key` the loan, which is the same for all buffers that are lent.
    uint32_t key;
    /// Owner's number of the buffer (tagwire_uct_lent_cb_t), which the reader's program sets. 0:
    /// the owner is not asked to copy parts of it.
    uint32_t id;
} tagwire_uct_loan_t;

/// A buffer that is lent at the moment.
typedef struct tagwire_uct_lent {
    uct_ep_h ep;  ///< The endpoint that lends it.
    const void* buffer;
    size_t length;
} tagwire_uct_lent_t;

/// The peer reads a long buffer, of which it says that its number is `id` (tagwire_uct_loan_t), and
/// this side may write parts of it to the peer, since two copy faster than one. `id` may be any
/// number: the peer has sent it. UCS_OK: *lent_p is set, and the buffer is the library's to read
/// until the callback is called again or progress ends. Any other status: no such buffer is lent,
/// and the peer reads all of it. The callback calls nothing of the library.
typedef ucs_status_t (*tagwire_uct_lent_cb_t)(void* arg, uint32_t id, tagwire_uct_lent_t* lent_p);

/// Sets the callback that finds lent buffers by their numbers; null: none, so readers copy alone.
/// Owner thread of the worker. UCS_ERR_UNSUPPORTED: the interface does not have
/// TAGWIRE_UCT_IFACE_FLAG_LEND.
TAGWIRE_API ucs_status_t tagwire_uct_iface_set_lent_handler(uct_iface_h iface,
                                                            tagwire_uct_lent_cb_t cb, void* arg);

/// Lends a buffer to the peer of an endpoint, without a registration: one loan, made at the first
/// call, stands for all buffers that are lent over a connection. So a single buffer cannot be taken
/// back; the program takes all back, or agrees with the peer that it reads no more. The loan ends,
/// and with it all that was lent, when an endpoint of the connection is destroyed or is flushed
/// with UCT_FLUSH_FLAG_CANCEL, and when the connection fails: before that call returns, or the
/// failure is told. From then on the peer does not report as read what it reads. The next call
/// makes a new loan.
///
/// `buffer` stays the program's, which does not write to it until the peer's program has said that
/// it is done, or the loan has ended. Owner thread of the worker.
///
/// \retval UCS_OK  *loan_p is set.
/// \retval UCS_ERR_UNSUPPORTED  Not lent, and nothing was written: the interface does not have
///     TAGWIRE_UCT_IFACE_FLAG_LEND, the peer is not known yet or could not read, or no key is left.
TAGWIRE_API ucs_status_t tagwire_uct_ep_lend(uct_ep_h ep, const void* buffer, size_t length,
                                             tagwire_uct_loan_t* loan_p);

/// Reads what the peer has lent into the elements of `iov`. Their total length is at most that of
/// the buffer; the read begins at its start, or where `loan->place` was moved to. A short read ends
/// within the call. A long one goes on in progress, and both sides copy parts of it where the
/// peer's handler knows `loan->id`; without `comp` it is refused. `loan` may have any contents:
/// what the peer did not lend is not read from other processes. With any status but UCS_OK the
/// contents of `iov` are undefined. Owner thread of the worker.
///
/// \retval UCS_OK  The data is here, and was the peer's to give when it was read.
/// \retval UCS_INPROGRESS  `comp` is told, with one of the other values.
/// \retval UCS_ERR_BUSY  Nothing was read: `comp` is null, and the read would not end within the
///     call.
/// \retval UCS_ERR_CANCELED  The loan has ended: the peer may have taken this buffer back, or
///     another one. Its program is to be asked.
/// \retval UCS_ERR_UNSUPPORTED  It cannot be read in this way: the interface does not have
///     TAGWIRE_UCT_IFACE_FLAG_LEND, the system does not permit it (any more), the peer's first
///     packet has not come, or more than 512 KiB go into more than 16 elements. The peer's program
///     is to be asked for messages.
/// \retval UCS_ERR_NO_RESOURCE  Nothing was read: the connection has read 512 KiB in this call of
///     progress, has too many operations under way, or is fenced. To be called again after
///     progress.
/// \retval UCS_ERR_INVALID_ADDR  The place is not in the peer's memory.
/// \retval UCS_ERR_CONNECTION_RESET  The peer has ended, or executed another program.
/// \retval UCS_ERR_IO_ERROR  The system's call has failed for another reason.
/// \retval any other error  The endpoint has failed with it.
TAGWIRE_API ucs_status_t tagwire_uct_ep_read_lent(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                                  const tagwire_uct_loan_t* loan,
                                                  uct_completion_t* comp);

/// A put or get among several: `length` bytes, not 0, between `buffer`, in memory of `memh`, and
/// `remote_addr`, in the peer's memory of `rkey`.
typedef struct tagwire_uct_piece {
    void* buffer;
    size_t length;  ///< At most max_zcopy of the interface's put or get.
    uint64_t remote_addr;
    uct_mem_h memh;  ///< UCT_MEM_HANDLE_NULL where the memory domain needs none.
    uct_rkey_t rkey;
} tagwire_uct_piece_t;

/// Begins puts of the first pieces, as many as there is room for, as if by uct_ep_put_zcopy() of
/// each, in any order. Interfaces begin many at the price of few: of memory that loads and stores
/// reach by copies alone, of another process by one system call for up to 1 023 pieces, over RDMA
/// devices by chains of up to 64 requests that are given to the device together, and have one
/// completion.
///
/// `pieces` is not read behind the call, the buffers are. Beforehand `comp->count` is at least 1;
/// the call raises it by the completions that are to come for what it has begun, which lower it
/// again. A piece that fails later is told by `comp->status`, but not which it was. Owner thread of
/// the worker.
///
/// \retval UCS_OK  The first *begun_p have begun, which is at least one unless `count` is 0; those
///     that no completion is to come for have ended.
/// \retval UCS_ERR_NO_RESOURCE  Nothing has begun (*begun_p is 0): to be called again after
///     progress.
/// \retval UCS_ERR_INVALID_PARAM  As UCS_ERR_INVALID_ADDR; or an argument is NULL: *begun_p is as
///     it was.
/// \retval UCS_ERR_INVALID_ADDR  The first *begun_p have begun, and another one cannot: it is not
///     inside the memory of its key, or one of those that were to move with it is not mapped.
/// \retval any other error  As UCS_ERR_INVALID_ADDR: the statuses of uct_ep_put_zcopy().
TAGWIRE_API ucs_status_t tagwire_uct_ep_put_pieces(uct_ep_h ep, const tagwire_uct_piece_t* pieces,
                                                   size_t count, size_t* begun_p,
                                                   uct_completion_t* comp);

/// As tagwire_uct_ep_put_pieces(), of gets into the buffers.
TAGWIRE_API ucs_status_t tagwire_uct_ep_get_pieces(uct_ep_h ep, const tagwire_uct_piece_t* pieces,
                                                   size_t count, size_t* begun_p,
                                                   uct_completion_t* comp);

/// Receives one fact: `key` in lower case with underscores ("zcopy_path"), `value` as text (numbers
/// in decimal, units in the key). Both are valid during the call.
typedef void (*tagwire_uct_describe_cb_t)(void* arg, const char* key, const char* value);

/// Tells what a component found on this machine. For "ib": "library system" and "library virtual",
/// each with the path of the verbs library or why it is not used, and "device NAME" for each device
/// that they list, with "ok" or why it cannot be used. Opens devices to see that.
/// UCS_ERR_INVALID_PARAM: no component of this library.
TAGWIRE_API ucs_status_t tagwire_uct_component_describe(uct_component_h component,
                                                        tagwire_uct_describe_cb_t cb, void* arg);

/// Tells what an interface is and has: file descriptors and bytes in use, peers, settings that were
/// chosen and why.
TAGWIRE_API ucs_status_t tagwire_uct_iface_describe(uct_iface_h iface, tagwire_uct_describe_cb_t cb,
                                                    void* arg);

/// Tells the same of a connection: state, path that zero copy takes and why, file descriptors and
/// bytes for this peer.
TAGWIRE_API ucs_status_t tagwire_uct_ep_describe(uct_ep_h ep, tagwire_uct_describe_cb_t cb,
                                                 void* arg);

/// The ways in which progress gives the processor away.
typedef enum tagwire_uct_away {
    TAGWIRE_UCT_AWAY_YIELD,  ///< To whoever is ready to run: sched_yield(2).
    TAGWIRE_UCT_AWAY_NAP     ///< Until an event comes, or for at most TAGWIRE_UCT_NAP_NS.
} tagwire_uct_away_t;

#define TAGWIRE_UCT_NAP_NS 100000
#define TAGWIRE_UCT_NAP_FDS_MAX 16

/// `how`: what would help those whom the worker waits for.
typedef void (*tagwire_uct_away_cb_t)(void* arg, tagwire_uct_away_t how);

/// With TAGWIRE_PROGRESS=polite uct_worker_progress() yields, and where the thread mode is
/// UCS_THREAD_MODE_SINGLE naps, when calls in a row have found nothing and a peer on this host has
/// made none meanwhile. With a handler it calls that instead, inside progress: for a program that
/// gives the processor away behind the call, without its lock, say, and then tells by
/// tagwire_uct_worker_was_away(). `cb` NULL: no handler.
///
/// \retval UCS_OK  Set.
/// \retval UCS_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_worker_set_away_handler(uct_worker_h worker,
                                                             tagwire_uct_away_cb_t cb, void* arg);

/// The program has done what the handler was told, from `begin` to `end` (CLOCK_MONOTONIC,
/// nanoseconds): how long a yield takes tells ranks from strangers.
///
/// \retval UCS_OK  Noted.
/// \retval UCS_ERR_INVALID_PARAM  `worker` is NULL, `how` is unknown, or `end` is before `begin` or
///     in the future.
TAGWIRE_API ucs_status_t tagwire_uct_worker_was_away(uct_worker_h worker, tagwire_uct_away_t how,
                                                     uint64_t begin, uint64_t end);

#define TAGWIRE_UCT_AWAITED_MAX 16

/// Endpoints to those whom the program waits for; at most TAGWIRE_UCT_AWAITED_MAX. Returns their
/// number; 0: they are not known, or more.
typedef unsigned (*tagwire_uct_awaited_cb_t)(void* arg, uct_ep_h* eps);

/// Polite progress asks `cb` before it looks whether peers run. Without a handler, and when that
/// does not know, it looks at all that are connected. `cb` is called inside progress and calls
/// nothing of the worker. `cb` NULL: no handler.
///
/// \retval UCS_OK  Set.
/// \retval UCS_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_worker_set_awaited_handler(uct_worker_h worker,
                                                                tagwire_uct_awaited_cb_t cb,
                                                                void* arg);

/// The things that a thread sleeps on which naps. It is the library's: written by
/// tagwire_uct_worker_prepare_nap(), read by tagwire_uct_nap_sleep().
typedef struct tagwire_uct_nap {
    void* word;      ///< A word of 32 bits that changes when something comes; NULL: `fds` tell.
    uint32_t value;  ///< The word's, as long as nothing has come.
    uint32_t fd_count;
    /// Nanoseconds for which it is meant: TAGWIRE_UCT_NAP_NS, or longer where so many peers nap
    /// that the ends of their naps alone would keep a host's processors busy.
    uint64_t max_ns;
    int fds[TAGWIRE_UCT_NAP_FDS_MAX];  ///< Descriptors that become readable when something comes.
} tagwire_uct_nap_t;

/// Arms all interfaces that the worker progresses for a nap of the calling thread, which follows
/// by tagwire_uct_nap_sleep() and ends by tagwire_uct_worker_was_away(). It is called as progress
/// is, between two calls of that. Several threads may nap at a time.
///
/// \retval UCS_OK  The nap follows.
/// \retval UCS_ERR_BUSY  Something has come or is to be done: no nap.
/// \retval UCS_ERR_UNSUPPORTED  An interface has no event descriptor, or they are too many.
/// \retval UCS_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_worker_prepare_nap(uct_worker_h worker,
                                                        tagwire_uct_nap_t* nap);

/// Sleeps until something comes, `max_ns` nanoseconds at most. Any thread, without the lock with
/// which the program progresses the worker. A message that came since the nap was prepared ends it
/// at once.
///
/// \retval UCS_OK  Always, but for
/// \retval UCS_ERR_INVALID_PARAM  `nap` is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_nap_sleep(const tagwire_uct_nap_t* nap, uint64_t max_ns);

/// Ends the naps that are under way on a word; one on descriptors ends by a descriptor that the
/// program has added. For a program whose threads nap while others progress, and have found what
/// those who nap wait for. Any thread, without the lock with which the program progresses the
/// worker; nobody opens or closes an interface meanwhile.
///
/// \retval UCS_OK  Done.
/// \retval UCS_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_worker_wake_naps(uct_worker_h worker);

/// Turns politeness of one worker on or off, whatever TAGWIRE_PROGRESS says.
///
/// \retval UCS_OK  Done.
/// \retval UCS_ERR_INVALID_PARAM  `worker` is NULL.
TAGWIRE_API ucs_status_t tagwire_uct_worker_set_polite(uct_worker_h worker, int is_polite);

/// Whether progress of a worker is polite: 1, or 0.
TAGWIRE_API int tagwire_uct_worker_is_polite(uct_worker_h worker);

/// Tells how progress of a worker waits: the mode, the scheduler's slice, the longest yield that
/// still counts as turns of peers, which is learnt, and for how long naps go on.
///
/// \retval UCS_OK  Told.
/// \retval UCS_ERR_INVALID_PARAM  `worker` or `cb` is NULL.
/// \retval UCS_ERR_NO_MEMORY  Out of memory; some facts may have been told.
TAGWIRE_API ucs_status_t tagwire_uct_worker_describe(uct_worker_h worker,
                                                     tagwire_uct_describe_cb_t cb, void* arg);

/// As tagwire_uct_iface_query_counters(), of a worker: looks, yields, naps, time away.
TAGWIRE_API ucs_status_t tagwire_uct_worker_query_counters(uct_worker_h worker,
                                                           tagwire_uct_counter_t* counters,
                                                           unsigned* count_p);

/// One configuration option with its present value. The texts are valid during the callback; none
/// is NULL.
typedef struct tagwire_config_entry {
    const char* table;     ///< Subsystem of the option: "shared memory".
    const char* name;      ///< As in the environment: "TAGWIRE_SM_RING_SLOTS".
    const char* type;      ///< "count", "bytes" and so on.
    const char* unit;      ///< "" when it has none.
    const char* accepted;  ///< "a power of two from 2 to 65536"
    const char* default_value;
    const char* value;
    const char* source;   ///< "default", "environment" or the path of a file.
    const char* problem;  ///< Why a value of a stronger source was refused; "" when none was.
    const char* doc;      ///< One line.
} tagwire_config_entry_t;

/// Checks a value that a program wants to give to an option, without the log.
///
/// `name` is the option's, with or without TAGWIRE_. Writes a sentence that says why not into
/// `reason`, at most `reason_bytes` with the terminating 0; may be NULL when that is 0. Any thread.
///
/// \retval UCS_OK  uct_config_modify() accepts the value, in a configuration that has the option.
/// \retval UCS_ERR_NO_ELEM  The library has no such option; the reason names the nearest.
/// \retval UCS_ERR_UNSUPPORTED  The option belongs to the process: no configuration has it.
/// \retval UCS_ERR_INVALID_PARAM  The value is not accepted, or an argument is NULL.
/// \retval UCS_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API ucs_status_t tagwire_config_check(const char* name, const char* value, char* reason,
                                              size_t reason_bytes);

typedef void (*tagwire_config_list_cb_t)(void* arg, const tagwire_config_entry_t* entry);

/// Visits every option of the library. UCS_ERR_INVALID_PARAM when one of them has a problem; all
/// are visited anyway.
TAGWIRE_API ucs_status_t tagwire_config_list(tagwire_config_list_cb_t cb, void* arg);

typedef void (*tagwire_config_warning_cb_t)(void* arg, const char* sentence);

/// Visits every TAGWIRE_ name in environment and files that is no option: one sentence with the
/// nearest known name. UCS_OK.
TAGWIRE_API ucs_status_t tagwire_config_warnings(tagwire_config_warning_cb_t cb, void* arg);

END_C_DECLS

#endif
