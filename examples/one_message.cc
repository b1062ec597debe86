// SPDX-License-Identifier: BSD-3-Clause
// One process, one message to itself: the program of the README.
#include <cstdio>
#include <span>
#include <tagwire_msg.hpp>

namespace msg = tagwire::msg;

int main() {
    const msg::Context context;
    const msg::Worker worker(context);
    msg::Endpoint peer(worker, worker.address());  // here: to ourselves. Addresses are plain bytes.

    // The worker's queue reports the completion of each operation.
    const msg::Op reported(TW_OP_COMPLETION);
    char text[32];
    worker.tag_recv(std::as_writable_bytes(std::span(text)), 7, 0, reported).or_throw();
    peer.tag_send(std::as_bytes(std::span("hello")), 7, reported).or_throw();

    tw_completion_t done[2];
    for (unsigned count = 0; count < 2; count += worker.poll(std::span(done).subspan(count)))
        worker.progress();
    for (const tw_completion_t& end : done) {
        msg::check(end.status, "completion");
        std::printf("%s: %zu bytes with tag %llu\n", end.flags & TW_DONE_SEND ? "sent" : "received",
                    end.length, static_cast<unsigned long long>(end.tag));
    }
    std::puts(text);
}
