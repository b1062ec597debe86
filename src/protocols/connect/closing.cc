// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/closing.hpp"

#include <utility>

#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

void Closing::open(void* user_data) {
    hold_.is_open = true;
    user_data_ = user_data;
    lane_.opened();
    peer_.asked();
    told_left_ = false;
    tell_left();
    if (std::exchange(has_said_bye_, false) && !has_asked_)
        lane_.control(Back{});
}

/// The program has its endpoint, and the peer's program none.
void Closing::tell_left() {
    if (peer_is_closed_ && hold_.is_open && !std::exchange(told_left_, true))
        peer_.tell_event(TW_PEER_LEFT);
}

bool Closing::is_closed() const {
    return !hold_.is_open && has_said_bye_;
}

void Closing::on_back() {
    peer_is_closed_ = peer_may_go_ = false;
    if (hold_.is_open && std::exchange(told_left_, false))
        peer_.tell_event(TW_PEER_BACK);
}

void Closing::closed() {
    hold_.is_open = false;
    hold_.is_closing = false;
    peer_.release_contexts();
    if (!std::exchange(has_said_bye_, true))
        lane_.control(Bye{});
    peer_.retire();
}

ucs_status_t Closing::say_bye() {
    if (has_said_bye_)
        return UCS_OK;
    const ucs_status_t status = lane_.send_now(Bye{});
    has_said_bye_ = status == UCS_OK;
    return status;
}

void Closing::begin_anew() {
    peer_is_closed_ = peer_may_go_ = false;
    has_said_bye_ = has_asked_ = has_left_ = told_left_ = false;
    farewell = UCS_OK;
}

void Closing::lose() {
    hold_.is_open = false;
    peer_.release_contexts();
}

bool Closing::say_reset(bool is_gone) {
    if (lane_.state() != EpState::kReady || is_to_self_)
        return true;
    const bool is_in_order = is_gone && lane_.is_quiet();
    const Reset reset{0, is_in_order ? 1U : 0U, lane_.connection()};
    return lane_.send_now(reset) != UCS_ERR_NO_RESOURCE;
}

bool Closing::has_arrived() const {
    if (lane_.state() != EpState::kReady)
        return true;
    const ucs_status_t status = lane_.flush();
    return status != UCS_INPROGRESS && status != UCS_ERR_NO_RESOURCE;
}

void Closing::end(ucs_status_t status) {
    if (lane_.state() == EpState::kFailed)
        return;
    const bool is_told = say_reset(false);
    // With nothing of the program under way the lane may stay until that has arrived.
    if (is_told && lane_.is_quiet() && !has_arrived())
        peer_.linger();
    lane_.fail(status);
    if (!is_told)
        peer_.tell_anew();
}

bool Closing::leave() {
    if (hold_.is_open)
        return false;
    if (lane_.state() == EpState::kFailed)
        return true;
    if (has_left_) {
        // The answer must get through before the endpoint of the transport goes.
        if (!lane_.is_quiet() || !has_arrived()) {
            peer_.retire();
            return false;
        }
        return true;
    }
    if (!has_said_bye_ || !peer_is_closed_ || has_asked_ || lane_.state() != EpState::kReady)
        return false;
    if (is_to_self_)
        return lane_.is_quiet();
    if (!lane_.is_quiet()) {
        peer_.retire();
    } else if (is_lower_) {
        lane_.control(Leave{});
        has_asked_ = true;
        lane_.update_direct();
    }
    return false;
}

/// The peer's program has closed its endpoint. One that ours never had counts as closed, too.
void Closing::on_bye() {
    peer_is_closed_ = true;
    if (!hold_.is_open && !std::exchange(has_said_bye_, true))
        lane_.control(Bye{});
    tell_left();
    peer_.retire();
}

/// The peer asks whether the connection can go. From the answer on its transport may see the end
/// before ours has seen that the answer is through.
void Closing::on_leave() {
    peer_is_closed_ = true;
    has_left_ = !hold_.is_open && has_said_bye_ && lane_.is_quiet();
    if (has_left_) {
        peer_.tell_end(UCS_OK);
        farewell = UCS_ERR_NOT_CONNECTED;
    }
    lane_.control(Left{has_left_ ? 1U : 0U});
    // A request that the transport sends for that meets nobody when the peer has the answer.
    if (has_left_ && !lane_.has_waiting())
        lane_.flush();
    peer_.retire();
}

void Closing::on_left(bool is_gone) {
    if (!std::exchange(has_asked_, false))
        return;
    if (hold_.is_open) {
        // The program came back meanwhile.
        if (is_gone)
            return peer_.reconnect();
        if (!has_said_bye_)  // else it leaves again, and has said so since
            lane_.control(Back{});
    } else if (is_gone) {
        peer_.tell_end(UCS_OK);
        lane_.fail(UCS_ERR_NOT_CONNECTED);
    } else {
        // The peer had something on its way, or its program has come back and says so by Back.
        peer_.retire();
    }
    lane_.run();
}

std::string Closing::description() const {
    std::string text;
    if (!hold_.is_open)
        text += peer_is_closed_ ? ", closed by both" : ", opened by the peer only";
    if (has_asked_)
        text += ", asking the peer to disconnect";
    if (has_left_)
        text += ", has left";
    return text;
}

}  // namespace tagwire::proto
