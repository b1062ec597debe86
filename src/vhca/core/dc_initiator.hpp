// SPDX-License-Identifier: BSD-3-Clause
// The streams of a DCI. Each is a queue pair of its own: it talks to one target at a time, keeps
// its requests in order, and fails alone; as many failed ones as the DCI was made for end the DCI.
//
// A stream is made when its number is first used. There are kStreamsMax; a further number takes the
// place of one that is idle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

class QueuePair;

/// Who the packets of a DC queue pair are for, beside route and number.
struct DcPeer {
    std::uint32_t session = 0;
    std::uint8_t stream = 0;
};

class DcInitiator {
  public:
    static constexpr std::size_t kStreamsMax = 256;

    explicit DcInitiator(QueuePair& dci);
    ~DcInitiator();

    /// ENOMEM, EINVAL as Qp::post_send().
    int enqueue(const SendWork& work);
    void ring(Time now);
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
    [[nodiscard]] bool is_full() const;
    void start(QueuePair& qp, std::size_t index);

    QueuePair& dci_;
    std::vector<Stream> streams_;
};

}  // namespace tagwire::vhca
