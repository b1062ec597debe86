// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Connections by host and port. Included by tagwire.h.
///
///     server: tw_listen(worker, "0.0.0.0:7077", ...) --> tw_conn_request_cb_t --> tw_accept()
///     client: tw_ep_connect(worker, "host:7077", ...) ----------------------> tw_connected_cb_t
///
/// Two workers tell each other their addresses over a TCP connection, which ends with that; then
/// both have an endpoint as tw_ep_create() makes it, over the best transport that leads from one to
/// the other: two processes of one host use shared memory. The steps are those of rdma_cm(7), with
/// which fi_cm(3) and MPI_Comm_connect() agree.
///
/// \par Trust
/// Whoever reaches the port can ask for a connection, and may claim to be any worker; the callback
/// decides, by the peer's address and the private data. Neither is encrypted. In a network that is
/// not trusted listen at a loopback address or behind a firewall.
///
/// \par Socket addresses
/// Each place is a text or a socket address of AF_INET or AF_INET6, as bind(2) and connect(2) take
/// them. A call that is given both, or a socket address of another family or length, returns
/// TW_ERR_INVALID_PARAM.
///
/// \par Threads
/// All calls as those of the worker. Callbacks run inside progress, and may call everything but
/// progress and the calls that wait.
#ifndef TAGWIRE_PROTOCOLS_API_TW_LISTEN_H
#define TAGWIRE_PROTOCOLS_API_TW_LISTEN_H

#include <protocols/api/tw_def.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_PRIVATE_BYTES_MAX 256   ///< Most private data of a request or a reply.
#define TW_HOST_PORT_BYTES_MAX 96  ///< No text of an address and port is longer, the 0 included.

typedef struct tw_listener* tw_listener_h;          ///< A worker that accepts connections.
typedef struct tw_conn_request* tw_conn_request_h;  ///< A peer that asks for a connection.

// ---- Server

/// Reports that a peer asks for a connection.
///
/// The program answers by tw_accept() or tw_reject(), now or later; the request is its own until
/// then. The peer waits as long as its timeout says.
typedef void (*tw_conn_request_cb_t)(void* arg, tw_conn_request_h request);

/// Parameters of tw_listen(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_listen_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_listen_params));  ///< sizeof(tw_listen_params_t).
    tw_conn_request_cb_t request;                         ///< Not NULL.
    void* arg;
    /// Nanoseconds in which a peer must have said what it wants. 0: 5 s.
    uint64_t timeout_ns TW_CXX_DEFAULT(0);
    /// Peers that have connected and were not answered yet; more wait in the system's queue. 0: 64.
    unsigned requests_max TW_CXX_DEFAULT(0);
    /// Where to listen, if `where` is NULL; read during the call. Port 0: the system chooses one.
    const struct sockaddr* sockaddr TW_CXX_DEFAULT(nullptr);
    size_t sockaddr_bytes TW_CXX_DEFAULT(0);
} tw_listen_params_t;

/// Listens for peers that connect by host and port.
///
/// `where` is "HOST:PORT", "[V6]:PORT", or "PORT" at 127.0.0.1; HOST is a name or a number of an
/// interface of this machine, "0.0.0.0" and "[::]" are all of them. Port 0 lets the system choose
/// one (tw_listener_query()). A name is looked up inside the call. NULL: params->sockaddr.
///
/// \retval TW_OK  *listener_p listens; tw_listener_destroy() ends it.
/// \retval TW_ERR_BUSY  Somebody listens at that port.
/// \retval TW_ERR_UNREACHABLE  There is no such host, or it is none of this machine's addresses.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, `where` is not of that form, or see "Socket
///     addresses"; the log says what is accepted.
/// \retval TW_ERR_IO_ERROR  The system refused; the log says why.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_listen(tw_worker_h worker, const char* where,
                                  const tw_listen_params_t* params, tw_listener_h* listener_p);

/// Properties of a listener. The program sets struct_bytes.
typedef struct tw_listener_attr {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_listener_attr));  ///< sizeof(tw_listener_attr_t).
    /// "10.0.0.1:7077" or "[::1]:7077", with the port that the system has chosen, and a 0.
    char address[TW_HOST_PORT_BYTES_MAX];
    struct sockaddr_storage sockaddr;  ///< As `address`.
} tw_listener_attr_t;

/// Reads the properties of a listener.
///
/// \retval TW_OK  *attr is filled, as much of it as its struct_bytes says.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or struct_bytes is not a size of this struct.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_listener_query(tw_listener_h listener, tw_listener_attr_t* attr);

/// Ends a listener. Peers that were not reported yet are turned away; requests that the program has
/// stay its own. NULL is ignored. A listener that is left ends with its worker.
TAGWIRE_API void tw_listener_destroy(tw_listener_h listener);

/// Properties of a request. The program sets struct_bytes. Pointers are valid until the answer.
typedef struct tw_conn_request_attr {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_conn_request_attr));  ///< sizeof(tw_conn_request_attr_t).
    const char* peer;    ///< "10.0.0.2:40712", as the system sees it.
    uint64_t worker_id;  ///< As the peer says.
    const void* private_data;
    size_t private_length;
    tw_listener_h listener;  ///< NULL: it has ended.
    /// The peer's end of the TCP connection, and this one: zeroes when the peer has given up.
    struct sockaddr_storage peer_sockaddr;
    struct sockaddr_storage local_sockaddr;
} tw_conn_request_attr_t;

/// Reads the properties of a request.
///
/// \retval TW_OK  *attr is filled, as much of it as its struct_bytes says.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or struct_bytes is not a size of this struct.
TAGWIRE_API tw_status_t tw_conn_request_query(tw_conn_request_h request,
                                              tw_conn_request_attr_t* attr);

/// Parameters of tw_accept(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_accept_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_accept_params));  ///< sizeof(tw_accept_params_t).
    const void* private_data;                             ///< For the peer's tw_connected_cb_t.
    size_t private_length;                                ///< At most TW_PRIVATE_BYTES_MAX.
    void* user_data;                                      ///< tw_ep_user_data() returns it.
    uint32_t flags TW_CXX_DEFAULT(0);                     ///< As tw_ep_params_t.flags.
    /// The worker that gets the endpoint: any of the listener's context. NULL: the listener's.
    tw_worker_h worker TW_CXX_DEFAULT(nullptr);
} tw_accept_params_t;

/// Accepts a connection: makes the endpoint to the peer, and tells the peer.
///
/// The request is gone, whatever the call returns but TW_ERR_INVALID_PARAM; the peer is turned away
/// where the call fails. `params` may be NULL. Thread: as the listener's worker and, where it is
/// another one, as params->worker.
///
/// A peer may connect again when it has closed its endpoint, in order or by force, also if the
/// program has not closed its own: the new connection takes the place of the old one, whose
/// endpoint fails with TW_ERR_NOT_CONNECTED (by force TW_ERR_CONNECTION_RESET), and which the
/// program closes.
///
/// \retval TW_OK  *ep_p is the endpoint; tw_ep_close() closes it.
/// \retval TW_ERR_CONNECTION_RESET  The peer has given up: it has closed the connection, or its
///     program has ended.
/// \retval TW_ERR_UNREACHABLE  No transport leads to the peer; the log says why.
/// \retval TW_ERR_ALREADY_EXISTS  The program has an endpoint to that worker, which the peer is not
///     known to have closed. tw_ep_find() returns it, unless it is being closed.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, `flags` has an unknown bit, private_length is
///     too long, or params->worker is of another context.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_accept(tw_conn_request_h request, const tw_accept_params_t* params,
                                  tw_ep_h* ep_p);

/// Turns a peer away, whose tw_connected_cb_t gets TW_ERR_REJECTED and the private data, of at most
/// TW_PRIVATE_BYTES_MAX bytes. The request is gone.
///
/// \retval TW_OK  Done; the peer may have given up before.
/// \retval TW_ERR_INVALID_PARAM  `request` is NULL, or the private data is NULL or too long.
TAGWIRE_API tw_status_t tw_reject(tw_conn_request_h request, const void* private_data,
                                  size_t private_length);

// ---- Client

/// Reports the end of tw_ep_connect(), once. `private_data`, valid during the call, is the peer's.
///
/// TW_OK: `ep` is the endpoint; messages may be sent at once, tw_ep_close() closes it. Else `ep` is
/// NULL, and the status is one of these: TW_ERR_REJECTED: the peer's program has refused.
/// TW_ERR_UNREACHABLE: there is no such host, no way to it, nobody listens there, local_sockaddr
/// cannot be used, or no transport leads to the worker that listens. TW_ERR_TIMED_OUT.
/// TW_ERR_CONNECTION_RESET: whoever listens has gone, or does not speak this protocol.
/// TW_ERR_UNSUPPORTED: it speaks another version of it. TW_ERR_ALREADY_EXISTS: the program has an
/// endpoint to that worker (tw_ep_find()) or is closing it; or the peer's program has one to this
/// worker that is in use, or was not closed here. TW_ERR_IO_ERROR: the system has no more
/// descriptors. TW_ERR_NO_MEMORY. The log says more.
typedef void (*tw_connected_cb_t)(void* arg, tw_ep_h ep, tw_status_t status,
                                  const void* private_data, size_t private_length);

/// Parameters of tw_ep_connect(). Zeroes are the defaults of all but struct_bytes.
typedef struct tw_connect_params {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_connect_params));  ///< sizeof(tw_connect_params_t).
    tw_connected_cb_t connected;                           ///< Not NULL.
    void* arg;
    const void* private_data;               ///< For the peer's program; copied.
    size_t private_length;                  ///< At most TW_PRIVATE_BYTES_MAX.
    void* user_data;                        ///< tw_ep_user_data() returns it.
    uint64_t timeout_ns TW_CXX_DEFAULT(0);  ///< For everything, the name included. 0: 10 s.
    uint32_t flags TW_CXX_DEFAULT(0);       ///< As tw_ep_params_t.flags.
    /// The listener's address, if `where` is NULL; read during the call.
    const struct sockaddr* sockaddr TW_CXX_DEFAULT(nullptr);
    size_t sockaddr_bytes TW_CXX_DEFAULT(0);
    /// The own end of the TCP connection (bind(2)); port 0: the system chooses one. Addresses of
    /// the peer of another family are passed over. Read during the call. NULL: the system chooses.
    const struct sockaddr* local_sockaddr TW_CXX_DEFAULT(nullptr);
    size_t local_sockaddr_bytes TW_CXX_DEFAULT(0);
} tw_connect_params_t;

/// Connects to the worker that listens at a host and port.
///
/// `where` as for tw_listen(), with a port from 1 on; NULL: params->sockaddr. Neither looking up
/// the name nor connecting holds up progress. A connection that is under way ends with its worker,
/// and is not reported.
///
/// Where the address is a number, the call itself begins to connect, and tw_worker_destroy() gives
/// the request up to 20 ms to leave. So the server hears of a program that connects, and ends, in
/// one breath: its tw_conn_request_cb_t is called, and tw_accept() returns TW_ERR_CONNECTION_RESET.
///
/// \retval TW_INPROGRESS  Begun; params->connected tells of the end.
/// \retval TW_ERR_INVALID_PARAM  An argument or params->connected is NULL, `where` is not of that
///     form, `flags` has an unknown bit, private_length is too long, or see "Socket addresses".
/// \retval TW_ERR_IO_ERROR  The system has no more descriptors or threads.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_ep_connect(tw_worker_h worker, const char* where,
                                      const tw_connect_params_t* params);

#ifdef __cplusplus
}
#endif

#endif
