// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/closing.hpp"

#include <uct/api/uct.h>

#include <utility>

#include "protocols/wire/control_message.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

void Closing::open(void* user_data) {
    ep_.is_open = true;
    ep_.user_data = user_data;
    ep_.opened();
    ep_.worker.peers().asked(ep_);
    told_left_ = false;
    tell_left();
    if (std::exchange(has_said_bye_, false) && !has_asked_)
        ep_.control(Back{});
}

/// The program has its endpoint, and the peer's program none.
void Closing::tell_left() {
    if (peer_is_closed_ && ep_.is_open && !std::exchange(told_left_, true))
        ep_.worker.peers().tell_event(ep_, TW_PEER_LEFT);
}

bool Closing::is_closed() const {
    return !ep_.is_open && has_said_bye_;
}

void Closing::on_back() {
    peer_is_closed_ = peer_may_go_ = false;
    if (ep_.is_open && std::exchange(told_left_, false))
        ep_.worker.peers().tell_event(ep_, TW_PEER_BACK);
}

void Closing::closed() {
    ep_.is_open = false;
    ep_.is_closing = false;
    release_tx(ep_);
    has_said_bye_ = true;
    ep_.control(Bye{});
    ep_.worker.peers().retire(ep_);
}

void Closing::begin_anew() {
    peer_is_closed_ = peer_may_go_ = false;
    has_said_bye_ = has_asked_ = has_left_ = told_left_ = false;
    farewell = UCS_OK;
}

bool Closing::say_reset(bool is_gone) {
    if (ep_.state() != EpState::kReady || ep_.peer_id == ep_.worker.id())
        return true;
    const bool is_in_order = is_gone && ep_.is_quiet();
    const Reset reset{0, is_in_order ? 1U : 0U, ep_.connector().number()};
    return ep_.queue().send_now(Control::of(reset)) != UCS_ERR_NO_RESOURCE;
}

bool Closing::has_arrived() const {
    if (ep_.state() != EpState::kReady)
        return true;
    const ucs_status_t status = uct_ep_flush(ep_.lane(), UCT_FLUSH_FLAG_LOCAL, nullptr);
    return status != UCS_INPROGRESS && status != UCS_ERR_NO_RESOURCE;
}

void Closing::end(ucs_status_t status) {
    if (ep_.state() == EpState::kFailed)
        return;
    const bool is_told = say_reset(false);
    // With nothing of the program under way the lane may stay until that has arrived.
    if (is_told && ep_.is_quiet() && !has_arrived())
        ep_.worker.peers().linger(ep_.take_lane());
    ep_.fail(status);
    if (!is_told)
        ep_.worker.peers().tell_anew(ep_);
}

bool Closing::leave() {
    if (ep_.is_open)
        return false;
    if (ep_.state() == EpState::kFailed)
        return true;
    if (has_left_) {
        // The answer must get through before the endpoint of the transport goes.
        if (!ep_.is_quiet() || !has_arrived()) {
            ep_.worker.peers().retire(ep_);
            return false;
        }
        return true;
    }
    if (!has_said_bye_ || !peer_is_closed_ || has_asked_ || ep_.state() != EpState::kReady)
        return false;
    if (ep_.peer_id == ep_.worker.id())
        return ep_.is_quiet();
    if (!ep_.is_quiet()) {
        ep_.worker.peers().retire(ep_);
    } else if (ep_.worker.id() < ep_.peer_id) {
        ep_.control(Leave{});
        has_asked_ = true;
        ep_.update_direct();
    }
    return false;
}

/// The peer's program has closed its endpoint. One that ours never had counts as closed, too.
void Closing::on_bye() {
    peer_is_closed_ = true;
    if (!ep_.is_open && !std::exchange(has_said_bye_, true))
        ep_.control(Bye{});
    tell_left();
    ep_.worker.peers().retire(ep_);
}

/// The peer asks whether the connection can go. From the answer on its transport may see the end
/// before ours has seen that the answer is through.
void Closing::on_leave() {
    peer_is_closed_ = true;
    has_left_ = !ep_.is_open && has_said_bye_ && ep_.is_quiet();
    if (has_left_) {
        ep_.worker.peers().tell_end(ep_, UCS_OK);
        farewell = UCS_ERR_NOT_CONNECTED;
    }
    ep_.control(Left{has_left_ ? 1U : 0U});
    // A request that the transport sends for that meets nobody when the peer has the answer.
    if (has_left_ && ep_.queue().is_empty())
        uct_ep_flush(ep_.lane(), UCT_FLUSH_FLAG_LOCAL, nullptr);
    ep_.worker.peers().retire(ep_);
}

void Closing::on_left(bool is_gone) {
    PeerTable& peers = ep_.worker.peers();
    if (!std::exchange(has_asked_, false))
        return;
    if (ep_.is_open) {
        // The program came back meanwhile.
        if (is_gone)
            return peers.reconnect(ep_);
        ep_.control(Back{});
    } else if (is_gone) {
        peers.tell_end(ep_, UCS_OK);
        ep_.fail(UCS_ERR_NOT_CONNECTED);
    } else {
        // The peer had something on its way, or its program has come back and says so by Back.
        peers.retire(ep_);
    }
    ep_.queue().run();
}

std::string Closing::description() const {
    std::string text;
    if (!ep_.is_open)
        text += peer_is_closed_ ? ", closed by both" : ", opened by the peer only";
    if (has_asked_)
        text += ", asking the peer to disconnect";
    if (has_left_)
        text += ", has left";
    return text;
}

}  // namespace tagwire::proto
