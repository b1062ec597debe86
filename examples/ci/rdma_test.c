// SPDX-License-Identifier: BSD-3-Clause
// A typical test of RDMA code, over libibverbs alone: two processes, one reliable connection, 500
// messages of random lengths, every byte checked. It knows nothing of the virtual HCA; run_test.sh
// runs it there.
//
//     rdma_test [RETRIES]    exit status 0: all arrived, in order, as they were sent
//
// RETRIES (default 7) is how often the device retransmits.
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMessages = 500, kBytesMax = 16384, kPlaces = 16, kSecondsMax = 60 };

struct address {
    uint32_t qpn;
    uint16_t lid;
    union ibv_gid gid;
};

struct end {
    int socket;  // to the other process
    struct ibv_context* device;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    struct ibv_port_attr port;
    uint8_t memory[kPlaces][kBytesMax];
};

static void check(int is_good, const char* what) {
    if (!is_good) {
        fprintf(stderr, "rdma_test: %s failed\n", what);
        exit(1);
    }
}

static void open_end(struct end* end) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    check(list != NULL && list[0] != NULL, "finding a device");
    end->device = ibv_open_device(list[0]);
    check(end->device != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    check(ibv_query_port(end->device, 1, &end->port) == 0, "ibv_query_port");
    end->pd = ibv_alloc_pd(end->device);
    check(end->pd != NULL, "ibv_alloc_pd");
    end->cq = ibv_create_cq(end->device, 2 * kPlaces, NULL, NULL, 0);
    check(end->cq != NULL, "ibv_create_cq");
    end->mr = ibv_reg_mr(end->pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE);
    check(end->mr != NULL, "ibv_reg_mr");
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = kPlaces,
                .max_recv_wr = kPlaces,
                .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    end->qp = ibv_create_qp(end->pd, &init);
    check(end->qp != NULL, "ibv_create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    check(ibv_modify_qp(end->qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "moving the queue pair to INIT");
}

static void exchange(int socket, const void* mine, void* theirs, size_t bytes) {
    check(write(socket, mine, bytes) == (ssize_t)bytes &&
              recv(socket, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes,
          "talking to the other process");
}

static void connect_ends(struct end* end, uint8_t retries) {
    struct address mine = {.qpn = end->qp->qp_num, .lid = end->port.lid}, theirs;
    check(ibv_query_gid(end->device, 1, 0, &mine.gid) == 0, "ibv_query_gid");
    exchange(end->socket, &mine, &theirs, sizeof mine);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = theirs.qpn,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = theirs.lid,
                    .port_num = 1,
                    .is_global = end->port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = theirs.gid, .hop_limit = 64}},
    };
    check(ibv_modify_qp(end->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "moving the queue pair to RTR");
    // 4 ms, or without retries 1 s: a peer that waits for a processor is no lost packet.
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = retries == 0 ? 18 : 10,
                                .retry_cnt = retries,
                                .rnr_retry = 7};
    check(ibv_modify_qp(end->qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "moving the queue pair to RTS");
}

/// The length and the bytes of message number `index`, on both sides the same.
static uint32_t length_of(uint32_t index) {
    return 1 + index * 2654435761U % kBytesMax;
}
static uint8_t byte_of(uint32_t index, uint32_t at) {
    return (uint8_t)(index * 31 + at * 7 + (at >> 8));
}

static struct ibv_wc next_completion(struct end* end) {
    const time_t limit = time(NULL) + kSecondsMax;
    struct ibv_wc wc;
    int count = 0;
    while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0) {
        char byte;
        check(recv(end->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0, "the other process");
        check(time(NULL) < limit, "waiting for a completion");
        sched_yield();
    }
    check(count == 1, "ibv_poll_cq");
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "rdma_test: message %u: %s\n", (unsigned)wc.wr_id,
                ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}

static void post_send(struct end* end, uint32_t index) {
    uint8_t* memory = end->memory[index % kPlaces];
    const uint32_t length = length_of(index);
    for (uint32_t i = 0; i < length; ++i)
        memory[i] = byte_of(index, i);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = length, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr* bad;
    check(ibv_post_send(end->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void send_all(struct end* end) {
    for (uint32_t posted = 0, completed = 0; completed < kMessages; ++completed) {
        while (posted < kMessages && posted - completed < kPlaces)
            post_send(end, posted++);
        check(next_completion(end).wr_id == completed, "the order of the sends");
    }
}

static void post_receive(struct end* end, uint32_t index) {
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory[index % kPlaces],
                          .length = kBytesMax,
                          .lkey = end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr* bad;
    check(ibv_post_recv(end->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void receive_all(struct end* end) {
    for (uint32_t index = 0; index < kMessages; ++index) {
        const struct ibv_wc wc = next_completion(end);
        check(wc.wr_id == index && wc.byte_len == length_of(index), "the order of the messages");
        const uint8_t* memory = end->memory[index % kPlaces];
        for (uint32_t i = 0; i < wc.byte_len; ++i)
            check(memory[i] == byte_of(index, i), "the contents of a message");
        if (index + kPlaces < kMessages)
            post_receive(end, index + kPlaces);
    }
}

static void close_end(struct end* end) {
    check(ibv_destroy_qp(end->qp) == 0 && ibv_destroy_cq(end->cq) == 0 &&
              ibv_dereg_mr(end->mr) == 0 && ibv_dealloc_pd(end->pd) == 0 &&
              ibv_close_device(end->device) == 0,
          "closing everything");
}

int main(int argc, char** argv) {
    const uint8_t retries = argc > 1 ? (uint8_t)atoi(argv[1]) : 7;
    int sockets[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    const pid_t child = fork();  // before the device is open
    check(child >= 0, "fork");
    close(sockets[child != 0]);

    static struct end end;
    end.socket = sockets[child == 0];
    open_end(&end);
    if (child != 0)
        for (uint32_t index = 0; index < kPlaces; ++index)
            post_receive(&end, index);
    connect_ends(&end, retries);
    char ready = 0, theirs;
    exchange(end.socket, &ready, &theirs, 1);
    if (child == 0)
        send_all(&end);
    else
        receive_all(&end);
    // Nobody goes before the other has its acknowledgements: a lost one has to be given again.
    exchange(end.socket, &ready, &theirs, 1);
    close_end(&end);
    if (child == 0)
        return 0;
    int status = 1;
    check(waitpid(child, &status, 0) == child && status == 0, "the sending process");
    printf("rdma_test: %d messages on %s\n", kMessages,
           end.port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    return 0;
}
