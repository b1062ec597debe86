// SPDX-License-Identifier: BSD-3-Clause
// Examples of the manual pages of section 3: docs/man/calls.py shows with each call the first
// function here that uses it. The program does everything with itself as the peer.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tagwire.h>
#include <tagwire_bootstrap.h>

static void check(tw_status_t status, const char* what) {
    if (status < TW_OK) {
        fprintf(stderr, "%s: %s\n", what, tw_status_string(status));
        exit(1);
    }
}

static void finish(tw_status_t status, const tw_request_h* request) {
    check(status, "an operation");
    if (status == TW_INPROGRESS) {  // else it is complete, and there is no handle
        check(tw_request_wait(*request, TW_WAIT_YIELD, UINT64_MAX, NULL), "tw_request_wait");
        tw_request_free(*request);
    }
}

static void on_log(void* arg, tw_log_level_t level, const char* file, int line, const char* text) {
    fprintf(arg, "%d %s:%d: %s\n", (int)level, file, line, text);
}

static tw_worker_h open_worker(tw_context_h* context_p) {
    const tw_option_t options[] = {{"RNDV_THRESHOLD", "64k", TW_OPTION_DEFAULT},
                                   {"CALIBRATION", "none", TW_OPTION_OVERRIDE}};
    tw_context_params_t params = {TW_INIT(tw_context_params_t),
                                  .transports = "sm",
                                  .options = options,
                                  .option_count = 2,
                                  .log = on_log,
                                  .log_arg = stderr};
    check(tw_context_create(&params, context_p), "tw_context_create");
    tw_worker_params_t how = {TW_INIT(tw_worker_params_t), .thread_mode = TW_THREAD_SINGLE};
    tw_worker_h worker;
    check(tw_worker_create(*context_p, &how, &worker), "tw_worker_create");
    return worker;
}

static void close_worker(tw_context_h context, tw_worker_h worker) {
    tw_worker_destroy(worker);
    tw_context_destroy(context);
}

static tw_ep_h connect_to_self(tw_worker_h worker) {
    char address[TW_ADDRESS_BYTES_MAX];
    size_t length = sizeof address;
    check(tw_worker_address(worker, address, &length), "tw_worker_address");
    tw_ep_params_t params = {TW_INIT(tw_ep_params_t), .address = address, .address_length = length};
    tw_ep_h ep;
    check(tw_ep_create(worker, &params, &ep), "tw_ep_create");
    return ep;
}

static void look_at_worker(tw_worker_h worker) {
    tw_worker_attr_t attr = {TW_INIT(tw_worker_attr_t)};
    check(tw_worker_query(worker, &attr), "tw_worker_query");
    printf("worker %llx injects up to %zu bytes\n", (unsigned long long)attr.id,
           attr.inject_bytes_max);
    tw_worker_limits_t limits = {TW_INIT(tw_worker_limits_t), .multi_recv_bytes_min = 4096,
                                 .buffered_bytes_limit = attr.buffered_bytes_limit,
                                 .buffered_bytes_min = attr.buffered_bytes_min};
    check(tw_worker_set_limits(worker, &limits), "tw_worker_set_limits");
}

static uint64_t id_of(const void* address, size_t length) {
    uint64_t id;
    check(tw_address_worker_id(address, length, &id), "tw_address_worker_id");
    return id;
}

static void print_fact(void* arg, const char* key, const char* value) {
    fprintf(arg, "%s: %s\n", key, value);
}

static void print_facts(tw_worker_h worker) {
    check(tw_worker_describe(worker, print_fact, stdout), "tw_worker_describe");
}

static void print_counters(tw_worker_h worker) {
    unsigned count = 0;
    tw_worker_counters(worker, NULL, &count);  // TW_ERR_BUFFER_TOO_SMALL: how many there are
    tw_worker_counter_t* all = calloc(count, sizeof *all);
    if (all != NULL && tw_worker_counters(worker, all, &count) == TW_OK)
        for (unsigned i = 0; i < count; i++)
            if (all[i].value != 0)
                printf("%s %llu %s\n", all[i].name, (unsigned long long)all[i].value, all[i].unit);
    free(all);
}

// ---- Messages

static void exchange(tw_worker_h worker, tw_ep_h ep) {
    char out[] = "hello", in[16];
    tw_request_h sent = NULL, received = NULL;
    const tw_status_t posted = tw_tag_recv(worker, in, sizeof in, 7, 0, NULL, &received);
    finish(tw_tag_send(ep, out, sizeof out, 7, NULL, &sent), &sent);
    finish(posted, &received);
    puts(in);
}

static void exchange_lists(tw_worker_h worker, tw_ep_h ep) {
    char head[4] = "abc", body[8] = "defg", in[12];
    const tw_iov_t from[] = {{head, sizeof head}, {body, sizeof body}};
    const tw_iov_t to[] = {{in, 4}, {in + 4, 8}};
    tw_request_h sent = NULL, received = NULL;
    const tw_status_t posted = tw_tag_recvv(worker, to, 2, 8, 0, NULL, &received);
    finish(tw_tag_sendv(ep, from, 2, 8, NULL, &sent), &sent);
    finish(posted, &received);
}

static void exchange_untagged(tw_worker_h worker, tw_ep_h ep) {
    int out = 3, in = 0;
    const tw_iov_t from = {&out, sizeof out}, to = {&in, sizeof in};
    tw_request_h sent = NULL, received = NULL;
    tw_status_t posted = tw_msg_recv(worker, &in, sizeof in, NULL, &received);
    finish(tw_msg_send(ep, &out, sizeof out, NULL, &sent), &sent);
    finish(posted, &received);
    posted = tw_msg_recvv(worker, &to, 1, NULL, &received);
    finish(tw_msg_sendv(ep, &from, 1, NULL, &sent), &sent);
    finish(posted, &received);
}

static void probe_and_take(tw_worker_h worker, tw_ep_h ep) {
    tw_message_info_t info = {TW_INIT(tw_message_info_t)};
    tw_message_h message = NULL;
    check(tw_tag_send(ep, "hello", 6, 12, NULL, NULL), "tw_tag_send");
    while (tw_tag_probe(worker, 12, 0, NULL, &info, &message) == TW_ERR_NO_MESSAGE)
        tw_worker_progress(worker);
    char* text = malloc(info.length);  // a buffer of the right size
    tw_request_h request = NULL;
    finish(tw_message_recv(worker, message, text, info.length, NULL, &request), &request);
    free(text);
}

static void drop_all(tw_worker_h worker) {
    tw_message_h message;
    while (tw_msg_probe(worker, NULL, NULL, &message) == TW_OK)
        check(tw_message_drop(worker, message), "tw_message_drop");
}

static tw_worker_h worker_of_shown;

static void on_shown(const tw_completion_t* done) {
    printf("%zu of %zu bytes at %p\n", done->length, done->message_length, done->buffer);
    if (done->message != NULL) {
        check(tw_message_drop(worker_of_shown, done->message), "tw_message_drop");
        --*(unsigned*)done->context;
    }
}

static void receive_buffered(tw_worker_h worker, tw_ep_h ep) {
    static unsigned left = 3;
    const tw_op_t op = {TW_INIT(tw_op_t), .complete = on_shown, .context = &left};
    tw_request_h many = NULL;
    worker_of_shown = worker;
    check(tw_tag_recv_buffered(worker, 13, 0, &op, NULL), "tw_tag_recv_buffered");
    check(tw_msg_recv_buffered(worker, &op, NULL), "tw_msg_recv_buffered");
    check(tw_msg_recv_buffered_multi(worker, &op, &many), "tw_msg_recv_buffered_multi");
    check(tw_tag_send(ep, "a", 1, 13, NULL, NULL), "tw_tag_send");
    for (int i = 0; i < 2; i++)
        check(tw_msg_send(ep, "b", 1, NULL, NULL), "tw_msg_send");
    while (left > 0)
        tw_worker_progress(worker);
    check(tw_request_cancel(many), "tw_request_cancel");
}

static void on_one_of_many(const tw_completion_t* done) {
    // At the end the buffer is the program's again.
    *(int*)done->context = (done->flags & TW_DONE_MULTI_RECV) != 0;
}

static void receive_many(tw_worker_h worker, tw_ep_h ep) {
    static char buffer[65536];
    int is_over = 0;
    const tw_op_t op = {TW_INIT(tw_op_t), .complete = on_one_of_many, .context = &is_over};
    tw_request_h request = NULL;
    check(tw_msg_recv_multi(worker, buffer, sizeof buffer, &op, &request), "tw_msg_recv_multi");
    check(tw_msg_send(ep, "one of many", 12, NULL, NULL), "tw_msg_send");
    check(tw_request_cancel(request), "tw_request_cancel");
    while (!is_over)
        tw_worker_progress(worker);
}

static void test_and_cancel(tw_worker_h worker) {
    char buffer[8];
    tw_request_h request = NULL;
    tw_completion_t done;
    check(tw_tag_recv(worker, buffer, sizeof buffer, 99, 0, NULL, &request), "tw_tag_recv");
    check(tw_request_cancel(request), "tw_request_cancel");
    while (tw_request_test(request, &done) == TW_INPROGRESS)
        tw_worker_progress(worker);
    printf("the receive: %s\n", tw_status_string(done.status));  // TW_ERR_CANCELED
    tw_request_free(request);
}

static void wait_for_several(tw_worker_h worker, tw_ep_h ep) {
    int in[2], out = 5;
    tw_request_h requests[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        check(tw_tag_recv(worker, &in[i], sizeof in[i], 10 + (unsigned)i, 0, NULL, &requests[i]),
              "tw_tag_recv");
    for (int i = 0; i < 2; i++)
        check(tw_tag_send(ep, &out, sizeof out, 10 + (unsigned)i, NULL, NULL), "tw_tag_send");
    size_t first = 0;
    check(tw_wait_any(requests, 2, TW_WAIT_YIELD, UINT64_MAX, &first), "tw_wait_any");
    check(tw_wait_all(requests, 2, TW_WAIT_YIELD, UINT64_MAX), "tw_wait_all");
    tw_request_free(requests[0]);
    tw_request_free(requests[1]);
}

// ---- Completions

static void poll_worker(tw_worker_h worker, tw_ep_h ep) {
    int in = 0, out = 6;
    const tw_op_t op = {TW_INIT(tw_op_t), .flags = TW_OP_COMPLETION, .context = &in};
    check(tw_tag_recv(worker, &in, sizeof in, 11, 0, &op, NULL), "tw_tag_recv");
    check(tw_tag_send(ep, &out, sizeof out, 11, &op, NULL), "tw_tag_send");
    tw_completion_t done[2];
    for (unsigned count = 0; count < 2; count += tw_worker_poll(worker, done + count, 2 - count))
        tw_worker_progress(worker);
}

static void poll_queue(tw_context_h context, tw_worker_h worker, tw_ep_h ep) {
    const tw_cq_params_t params = {TW_INIT(tw_cq_params_t), .capacity = 64};
    tw_cq_h cq;
    check(tw_cq_create(context, &params, &cq), "tw_cq_create");
    int in = 0, out = 8;
    const tw_op_t op = {TW_INIT(tw_op_t), .flags = TW_OP_COMPLETION, .cq = cq};
    check(tw_tag_recv(worker, &in, sizeof in, 12, 0, &op, NULL), "tw_tag_recv");
    check(tw_tag_send(ep, &out, sizeof out, 12, NULL, NULL), "tw_tag_send");
    tw_completion_t done;
    while (tw_cq_poll(cq, &done, 1) == 0)  // any thread may poll; the worker's thread progresses
        tw_worker_progress(worker);
    tw_cq_destroy(cq);
}

// A thread that only handles completions: sleeps until the worker's thread has some, or signals.
static unsigned handle_completions(tw_cq_h cq) {
    tw_completion_t done[16];
    unsigned count = 0;
    const tw_status_t status = tw_cq_wait(cq, done, 16, UINT64_MAX, &count);
    return status == TW_OK ? count : 0;  // TW_ERR_CANCELED: tw_cq_signal()
}

static void end_completion_threads(tw_cq_h cq) {
    check(tw_cq_signal(cq), "tw_cq_signal");
}

static void count_operations(tw_worker_h worker, tw_ep_h ep) {
    tw_counter_h counter;
    check(tw_counter_create(&counter), "tw_counter_create");
    int in = 0, out = 9;
    const tw_op_t op = {TW_INIT(tw_op_t), .counter = counter};
    check(tw_tag_recv(worker, &in, sizeof in, 13, 0, &op, NULL), "tw_tag_recv");
    check(tw_tag_send(ep, &out, sizeof out, 13, &op, NULL), "tw_tag_send");
    uint64_t successes = 0, failures = 0;
    while (successes + failures < 2) {
        tw_worker_progress(worker);
        check(tw_counter_read(counter, &successes, &failures), "tw_counter_read");
    }
    check(tw_counter_wait(counter, 2, UINT64_MAX), "tw_counter_wait");  // at once: both are counted
    check(tw_counter_add(counter, 1, 0), "tw_counter_add");
    tw_counter_destroy(counter);
}

static void on_done(const tw_completion_t* done) {
    *(int*)done->context = 1;
}

static void use_own_request_memory(tw_worker_h worker, tw_ep_h ep) {
    _Alignas(16) char memory[TW_REQUEST_BYTES];
    int in = 0, out = 1, is_done = 0;
    const tw_op_t op = {TW_INIT(tw_op_t), .complete = on_done, .context = &is_done,
                        .request = memory};
    check(tw_tag_recv(worker, &in, sizeof in, 14, 0, &op, NULL), "tw_tag_recv");
    check(tw_tag_send(ep, &out, sizeof out, 14, NULL, NULL), "tw_tag_send");
    while (!is_done)
        tw_worker_progress(worker);
}

// ---- Waiting and sleeping

static void wait_until(tw_worker_h worker, const volatile int* condition) {
    while (!*condition)
        if (tw_worker_progress(worker) == 0)
            tw_worker_wait(worker, TW_WAIT_SLEEP, 1000000);  // a millisecond at most
}

static void sleep_on_descriptor(tw_worker_h worker, int timeout_ms) {
    int fd;
    check(tw_worker_fd(worker, &fd), "tw_worker_fd");
    struct pollfd poll_for = {.fd = fd, .events = POLLIN};
    if (tw_worker_arm(worker) == TW_OK)  // TW_ERR_BUSY: something came, progress first
        poll(&poll_for, 1, timeout_ms);  // with descriptors of the program, if it has some
    while (tw_worker_progress(worker) != 0)
        continue;
}

static void wake(tw_worker_h worker) {
    check(tw_worker_signal(worker), "tw_worker_signal");
}

static void spin_politely(const volatile int* flag_of_another_thread) {
    while (!*flag_of_another_thread)
        tw_yield();
}

static void give_away(void* arg, tw_away_t how) {
    (void)how;
    *(tw_away_t*)arg = how;  // the program's loop yields or naps for all of its libraries
}

static void tell_that_away(tw_worker_h worker, tw_away_t how, uint64_t begin_ns, uint64_t end_ns) {
    check(tw_worker_was_away(worker, how, begin_ns, end_ns), "tw_worker_was_away");
}

// ---- Endpoints

static tw_ep_h endpoint_to_sender(tw_worker_h worker, const tw_completion_t* done) {
    tw_ep_h ep = tw_ep_find(worker, done->source);
    if (ep == NULL && tw_ep_create_to(worker, done->source, NULL, &ep) != TW_OK)
        return NULL;  // TW_ERR_NO_ELEM: the sender has gone
    return ep;
}

// Before this process computes for long, and whether or not its peers progress meanwhile.
static void let_all_go(tw_worker_h worker) {
    tw_request_h flushing = NULL;
    finish(tw_worker_flush(worker, TW_FLUSH_SENT, NULL, &flushing), &flushing);
}

static void flush_and_close(tw_ep_h ep) {
    tw_request_h flushing = NULL, closing = NULL;
    finish(tw_ep_flush(ep, TW_FLUSH_DELIVERED, NULL, &flushing), &flushing);
    free(tw_ep_user_data(ep));
    finish(tw_ep_close(ep, TW_FLUSH_DELIVERED, NULL, &closing), &closing);
}

// ---- Connections by host and port

static void on_conn_request(void* arg, tw_conn_request_h request) {
    tw_conn_request_attr_t attr = {TW_INIT(tw_conn_request_attr_t)};
    tw_accept_params_t params = {TW_INIT(tw_accept_params_t)};
    check(tw_conn_request_query(request, &attr), "tw_conn_request_query");
    if (attr.private_length != 0 || tw_accept(request, &params, arg) != TW_OK)
        tw_reject(request, "no", 2);
}

static void on_connected(void* arg, tw_ep_h ep, tw_status_t status, const void* data,
                         size_t length) {
    (void)data, (void)length;
    if (status == TW_OK)
        *(tw_ep_h*)arg = ep;
}

static void listen_and_connect(tw_worker_h server, tw_ep_h* accepted, tw_worker_h client,
                               tw_ep_h* connected) {
    const tw_listen_params_t listening = {TW_INIT(tw_listen_params_t), .request = on_conn_request,
                                          .arg = accepted};
    const tw_connect_params_t connecting = {TW_INIT(tw_connect_params_t), .connected = on_connected,
                                            .arg = connected};
    tw_listener_h listener;
    check(tw_listen(server, "127.0.0.1:0", &listening, &listener), "tw_listen");
    tw_listener_attr_t attr = {TW_INIT(tw_listener_attr_t)};
    check(tw_listener_query(listener, &attr), "tw_listener_query");
    check(tw_ep_connect(client, attr.address, &connecting), "tw_ep_connect");
    while (*connected == NULL || *accepted == NULL) {
        tw_worker_progress(client);
        tw_worker_progress(server);
    }
    tw_listener_destroy(listener);
}

// ---- Active messages

static void on_am(void* arg, tw_am_t* am) {
    tw_message_h* kept = arg;
    printf("%zu bytes for handler %u\n", am->length, am->id);
    if (tw_am_keep(am, kept) != TW_OK)  // to receive it later
        *kept = NULL;
}

static void send_am(tw_worker_h worker, tw_ep_h ep) {
    tw_message_h kept = NULL;
    int header = 4, data = 5, in = 0;
    const tw_iov_t list = {&data, sizeof data}, to = {&in, sizeof in};
    check(tw_am_register(worker, 1, on_am, &kept), "tw_am_register");
    check(tw_am_send(ep, 1, &header, sizeof header, &data, sizeof data, NULL, NULL), "tw_am_send");
    while (kept == NULL)
        tw_worker_progress(worker);
    tw_request_h request = NULL;
    finish(tw_message_recv(worker, kept, &in, sizeof in, NULL, &request), &request);
    kept = NULL;
    check(tw_am_sendv(ep, 1, NULL, 0, &list, 1, NULL, NULL), "tw_am_sendv");
    while (kept == NULL)
        tw_worker_progress(worker);
    finish(tw_message_recvv(worker, kept, &to, 1, NULL, &request), &request);
}

// ---- Remote calls

static void on_request(void* arg, tw_call_request_t* request) {
    uint64_t* later = arg;
    if (later == NULL || tw_call_keep(request) != TW_OK)
        check(tw_reply(request->worker, request->id, 0, "now", 4, NULL, NULL), "tw_reply");
    else
        *later = request->id;  // its data stays until the reply
}

static void on_call_done(const tw_call_done_t* done) {
    printf("call: %s, %d, %zu bytes\n", tw_status_string(done->status), done->reply_status,
           done->length);
    *(int*)done->context += 1;
}

static void call_and_reply(tw_worker_h worker, tw_ep_h ep) {
    uint64_t later = 0;
    int ends = 0;
    char reply[16];
    check(tw_call_register(worker, 1, on_request, &later), "tw_call_register");
    tw_call_params_t params = {
        TW_INIT(tw_call_params_t), .done = on_call_done, .context = &ends,
        .timeout_ns = 1000000000,  .reply = reply,       .reply_bytes = sizeof reply};
    check(tw_call(ep, 1, "question", 9, &params, NULL), "tw_call");
    while (later == 0)
        tw_worker_progress(worker);
    check(tw_reply(worker, later, 3, "answer", 7, NULL, NULL), "tw_reply");
    while (ends == 0)
        tw_worker_progress(worker);
}

#include "manual_pages_memory.h"

// ---- Explanations and costs

static void explain(tw_worker_h worker, tw_ep_h ep) {
    tw_explanation_t why = {TW_INIT(tw_explanation_t)};
    if (tw_worker_explain(worker, "sm", 65536, TW_BUFFER_PLAIN, &why) == TW_OK)
        printf("64 KiB over sm: %s, since %s\n", why.protocols[why.chosen].name, why.rule);
    if (tw_ep_explain(ep, 65536, TW_BUFFER_PLAIN, &why) == TW_OK)
        printf("to this peer: %s\n", why.protocols[why.chosen].name);
}

static void store_costs(const tw_cost_sample_t* samples, size_t count) {
    char path[4096];
    size_t length = sizeof path;
    check(tw_calibration_path(path, &length), "tw_calibration_path");
    check(tw_calibration_store(path, samples, count), "tw_calibration_store");
}

static void print_version(void) {
    printf("headers %u, library %u: %s\n", TW_VERSION, tw_version(), tw_version_string());
}

// ---- Bootstrap

static void exchange_addresses(const void* address, size_t bytes) {
    tw_bootstrap_params_t params = {TW_INIT(tw_bootstrap_params_t), .method = TW_BOOTSTRAP_SINGLE};
    tw_bootstrap_h job;
    if (tw_bootstrap_create(&params, &job) != TW_OK) {
        fprintf(stderr, "%s\n", tw_bootstrap_last_error());
        exit(1);
    }
    printf("rank %u of %u, by %s\n", tw_bootstrap_rank(job), tw_bootstrap_size(job),
           tw_bootstrap_method_name(job));
    char* all = calloc(tw_bootstrap_size(job), bytes);
    check(tw_bootstrap_allgather(job, address, bytes, all), "tw_bootstrap_allgather");
    check(tw_bootstrap_barrier(job), "tw_bootstrap_barrier");
    free(all);
    tw_bootstrap_destroy(job);
}

// ---- Calls of these functions, which the pages do not show

static void run_one_sided(tw_context_h context, tw_worker_h worker, tw_ep_h ep) {
    tw_mem_h mem;
    uint64_t* number = allocate(context, 4096, &mem);
    char packed[TW_KEY_BYTES_MAX];
    const size_t length = pack_key(mem, packed);
    put_and_get(worker, ep, packed, length);
    tw_key_h key;
    check(tw_key_unpack(worker, packed, length, &key), "tw_key_unpack");
    put_and_get_lists(worker, ep, key, (uint64_t)(uintptr_t)number);
    explain_key(ep, key, (uint64_t)(uintptr_t)number);
    tw_key_free(key);
    if (*number != 42) {
        fprintf(stderr, "the number is %llu\n", (unsigned long long)*number);
        exit(1);
    }
    check(tw_mem_unmap(context, mem), "tw_mem_unmap");
}

static void run_connections(void) {
    tw_context_h contexts[2];
    tw_worker_h workers[2] = {open_worker(&contexts[0]), open_worker(&contexts[1])};
    tw_ep_h accepted = NULL, connected = NULL;
    listen_and_connect(workers[0], &accepted, workers[1], &connected);
    for (int i = 0; i < 2; i++)
        close_worker(contexts[i], workers[i]);
}

static void run_queue(tw_context_h context) {
    const tw_cq_params_t params = {TW_INIT(tw_cq_params_t)};
    tw_cq_h cq;
    check(tw_cq_create(context, &params, &cq), "tw_cq_create");
    end_completion_threads(cq);
    if (handle_completions(cq) != 0)
        exit(1);
    tw_cq_destroy(cq);
}

static void run_waits(tw_worker_h worker) {
    const int is_so = 1;
    tw_away_t how = TW_AWAY_NAP;
    wake(worker);
    sleep_on_descriptor(worker, 1);
    wait_until(worker, &is_so);
    spin_politely(&is_so);
    give_away(&how, TW_AWAY_YIELD);
    tell_that_away(worker, how, 1, 2);
}

static void run_am(tw_worker_h worker, tw_ep_h ep) {
    send_am(worker, ep);
    tw_message_h kept = NULL;
    check(tw_am_register(worker, 1, on_am, &kept), "tw_am_register");
    check(tw_am_send(ep, 1, NULL, 0, "x", 1, NULL, NULL), "tw_am_send");
    while (kept == NULL)
        tw_worker_progress(worker);
    check(tw_message_drop(worker, kept), "tw_message_drop");
}

static void cancel_call(tw_worker_h worker, tw_ep_h ep) {
    int ends = 0;
    uint64_t id;
    const tw_call_params_t params = {TW_INIT(tw_call_params_t), .done = on_call_done,
                                     .context = &ends};
    check(tw_call(ep, 1, NULL, 0, &params, &id), "tw_call");
    tw_call_cancel(worker, id);  // its end, TW_ERR_CANCELED, follows in progress
    while (ends == 0)
        tw_worker_progress(worker);
}

int main(void) {
    tw_context_h context;
    const tw_worker_h worker = open_worker(&context);
    const tw_ep_h ep = connect_to_self(worker);
    char address[TW_ADDRESS_BYTES_MAX];
    size_t length = sizeof address;
    check(tw_worker_address(worker, address, &length), "tw_worker_address");
    print_version();
    look_at_worker(worker);
    print_facts(worker);
    exchange(worker, ep);
    exchange_lists(worker, ep);
    exchange_untagged(worker, ep);
    probe_and_take(worker, ep);
    receive_buffered(worker, ep);
    receive_many(worker, ep);
    drop_all(worker);
    test_and_cancel(worker);
    wait_for_several(worker, ep);
    poll_worker(worker, ep);
    poll_queue(context, worker, ep);
    run_queue(context);
    count_operations(worker, ep);
    use_own_request_memory(worker, ep);
    run_waits(worker);
    run_am(worker, ep);
    call_and_reply(worker, ep);
    check(tw_call_register(worker, 1, on_request, NULL), "tw_call_register");
    cancel_call(worker, ep);
    send_from_mapped_memory(context, worker, ep, address, sizeof address);
    run_one_sided(context, worker, ep);
    explain(worker, ep);
    (void)store_costs;  // would replace the costs of whoever runs this
    const tw_completion_t from_self = {.source = id_of(address, length)};
    if (endpoint_to_sender(worker, &from_self) != ep)
        return 1;
    exchange_addresses(address, length);
    run_connections();
    print_counters(worker);
    let_all_go(worker);
    flush_and_close(ep);
    close_worker(context, worker);
    return 0;
}
