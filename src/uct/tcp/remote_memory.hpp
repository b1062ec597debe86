// SPDX-License-Identifier: BSD-3-Clause
// Puts and gets as their target and their reader see them: every key and number of a peer is
// checked here. Owner thread only.
#pragma once

#include "uct/tcp/stream_reader.hpp"

namespace tagwire::tcp {

class RemoteMemory {
  public:
    explicit RemoteMemory(TcpIface& owner) : iface_(owner) {}
    RemoteMemory(const RemoteMemory&) = delete;
    RemoteMemory& operator=(const RemoteMemory&) = delete;

    // ---- Whole frames
    void take_put(Connection& connection, const Message& message);
    void take_get_request(Connection& connection, const GetRequestBody& request);
    void take_get_data(Connection& connection, const Message& message);
    void take_done(Connection& connection, const DoneBody& done);

    // ---- Frames in part
    /// Where the next bytes of a put or a get go, until the pin is released. Bytes without a place
    /// become waste.
    void find_place(Connection& connection, Incoming& in, Registrations::Pin* pin);
    /// The place cannot be written: the rest has none, and the operation fails.
    void lose_place(Connection& connection, Incoming& in);
    void count_placed(Connection& connection, const Incoming& in, std::size_t bytes);
    void finish_placed(Connection& connection, const FrameHead& head, const PutBody& put,
                       std::uint64_t op, ucs_status_t status);

  private:
    /// A get or a receive has all of its data.
    void finish_put(Connection& connection, const FrameHead& head, const PutBody& put,
                    ucs_status_t status);
    void finish_get(Op& op, ucs_status_t status);
    void unpack(Op& op);
    ucs_status_t start_stream(Connection& connection, const GetRequestBody& request);
    ucs_status_t serve(Connection& connection, const GetRequestBody& request);

    TcpIface& iface_;
};

}  // namespace tagwire::tcp
