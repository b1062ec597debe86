// SPDX-License-Identifier: BSD-3-Clause
// The DC role of a queue pair: a DCI, a DCT, a part that one of them owns, or none.
//
// A DCI is a Requester that changes its peer; see initiator_session.hpp. One with streams owns a
// queue pair per stream (dc_initiator.hpp). A DCT owns one per session of an initiator, of which
// only the Responder works, and some whose Requester reads the data of rendezvous (dc_target.hpp).
// Completions and events of an owned queue pair are its owner's.
#pragma once

#include <cstdint>
#include <memory>

#include "vhca/core/dc_initiator.hpp"
#include "vhca/core/dc_target.hpp"

namespace tagwire::vhca {

class DcRole {
  public:
    /// `owner`: nullptr if nobody owns `qp` but the program.
    DcRole(QueuePair& qp, QueuePair* owner);
    ~DcRole();
    /// ENOMEM.
    int allocate();

    /// The queue pair itself, unless another one owns it.
    [[nodiscard]] QueuePair& owner() const { return *owner_; }
    [[nodiscard]] bool is_owned() const { return owner_ != &qp_; }
    /// The streams of a DCI that has them, else nullptr.
    [[nodiscard]] DcInitiator* streams() const { return initiator_.get(); }

    void receive(Route from, Packet& packet);
    /// The queue pair went to ERR.
    void enter_error();
    /// Ends sessions and streams, before the queue pair is reset.
    void retire();
    /// An owned queue pair: polled was the completion of the send before `slot`.
    void note_polled(std::uint32_t slot);
    /// The queue pair to read the data of a rendezvous request that came here (over DC, from the
    /// DCT with that number); nullptr if there is no room.
    [[nodiscard]] QueuePair* find_reader(std::uint32_t dctn);

  private:
    void receive_as_initiator(Route from, Packet& packet);

    QueuePair& qp_;
    QueuePair* owner_;
    std::unique_ptr<DcInitiator> initiator_;  // of a DCI with streams
    std::unique_ptr<DcTarget> target_;        // of a DCT
};

}  // namespace tagwire::vhca
