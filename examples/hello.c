// SPDX-License-Identifier: BSD-3-Clause
// Two processes, one message: the first program of the guide (docs/start/first-program.md).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tagwire.h>
#include <unistd.h>

enum { kGreetingTag = 7 };

static void check(tw_status_t status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, tw_status_string(status));
        exit(1);
    }
}

/// Progresses until the operation has ended, and gives its handle back.
static tw_completion_t finish(tw_request_h request) {
    tw_completion_t done;
    check(tw_request_wait(request, TW_WAIT_YIELD, UINT64_MAX, &done), "an operation");
    tw_request_free(request);
    return done;
}

/// The addresses of both workers cross by any way there is; here: by a socket.
static tw_ep_h connect_to_peer(tw_worker_h worker, int socket) {
    struct {
        size_t length;
        char bytes[TW_ADDRESS_BYTES_MAX];
    } mine = {.length = TW_ADDRESS_BYTES_MAX}, theirs;
    check(tw_worker_address(worker, mine.bytes, &mine.length), "tw_worker_address");
    if (write(socket, &mine, sizeof mine) != (ssize_t)sizeof mine ||
        recv(socket, &theirs, sizeof theirs, MSG_WAITALL) != (ssize_t)sizeof theirs) {
        perror("exchange of addresses");
        exit(1);
    }
    const tw_ep_params_t params = {TW_INIT(tw_ep_params_t), .address = theirs.bytes,
                                   .address_length = theirs.length};
    tw_ep_h ep;
    check(tw_ep_create(worker, &params, &ep), "tw_ep_create");
    return ep;
}

static void greet(tw_ep_h ep) {
    const char text[] = "hello from the other process";
    tw_request_h request;
    const tw_status_t status = tw_tag_send(ep, text, sizeof text, kGreetingTag, NULL, &request);
    check(status, "tw_tag_send");
    if (status == TW_INPROGRESS)  // else it ended within the call
        finish(request);
}

static void listen_to_peer(tw_worker_h worker) {
    char text[64];
    tw_request_h request;
    check(tw_tag_recv(worker, text, sizeof text, kGreetingTag, 0, NULL, &request), "tw_tag_recv");
    const tw_completion_t done = finish(request);
    printf("%zu bytes with tag %d: %s\n", done.length, (int)done.tag, text);
}

int main(void) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return 1;
    const pid_t child = fork();  // before anything of the library is open
    tw_context_h context;
    tw_worker_h worker;
    check(tw_context_create(NULL, &context), "tw_context_create");
    check(tw_worker_create(context, NULL, &worker), "tw_worker_create");
    const tw_ep_h ep = connect_to_peer(worker, sockets[child == 0]);
    if (child == 0)
        greet(ep);
    else
        listen_to_peer(worker);

    // A close flushes: what was sent is with the peer when it ends.
    tw_request_h closing;
    const tw_status_t status = tw_ep_close(ep, TW_FLUSH_DELIVERED, NULL, &closing);
    check(status, "tw_ep_close");
    if (status == TW_INPROGRESS)
        finish(closing);
    tw_worker_destroy(worker);
    tw_context_destroy(context);
    if (child == 0)
        return 0;
    int ended = 1;
    waitpid(child, &ended, 0);
    return ended != 0;
}
