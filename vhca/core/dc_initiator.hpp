// SPDX-License-Identifier: BSD-3-Clause
// The streams of a DCI. Each is a queue pair of its own: it talks to one target at a time, keeps
// its requests in order, and fails alone; the DCI fails at the number of failed streams that it was
// created with.
//
// A stream is made when its number is first used. There are at most kStreamsMax; a further number
// takes the place of an idle stream.
//
// All streams post to one ring, as in libmlx5: its tail is one past the request whose completion
// was polled last, of any stream. Streams progress independently, so a completion of an older
// request moves the tail back, and one of a newer request moves it over unfinished requests, which
// later posts overwrite. An overwritten request fails (LOC_QP_OP_ERR).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

class QueuePair;

class DcInitiator {
  public:
    static constexpr std::size_t kStreamsMax = 256;

    explicit DcInitiator(QueuePair& dci);
    ~DcInitiator();

    /// ENOMEM, EINVAL as Qp::post_send().
    int enqueue(const SendWork& work);
    void ring(Time now);
    /// Requests that were enqueued since the last ring() are not posted after all.
    void cancel_enqueued();
    /// Polled was the completion of the request at that place of the ring.
    void note_polled(std::uint32_t ring_place) { tail_ = ring_place + 1; }
    /// EINVAL: that stream did not fail.
    int reset_stream(std::uint16_t id);
    /// A stream went to ERR.
    void note_failed();
    void enter_error();
    /// All streams are gone, with their completions.
    void reset();
    /// Whose packets come with this index, or nullptr.
    [[nodiscard]] QueuePair* find(std::uint8_t index) const {
        return index < streams_.size() ? streams_[index].qp.get() : nullptr;
    }

  private:
    struct Stream {
        std::uint16_t id;
        std::unique_ptr<QueuePair> qp;
    };
    [[nodiscard]] std::vector<Stream>::iterator lookup(std::uint16_t id);
    [[nodiscard]] Stream* make(std::uint16_t id);
    void overwrite(std::uint32_t ring_place);
    void start(QueuePair& qp, std::size_t index);

    QueuePair& dci_;
    std::vector<Stream> streams_;
    std::size_t last_ = 0;               // the one that was posted to last
    std::uint32_t head_ = 0, tail_ = 0;  // of the ring, free running
};

}  // namespace tagwire::vhca
