// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/send_window.hpp"

#include <algorithm>
#include <utility>

#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

/// It may be called by a send, so the Probe goes with the next one, or in progress: without that
/// nobody reads its Probed.
void SendWindow::look() {
    if (!is_probing_ && sent_ - heard_ >= kProbeBytes) {
        is_probing_ = true;
        probed_ = sent_;
        lane_.add_control(Probe{});
    }
    const std::uint64_t closed_at = heard_ + kWindowBytes + 1 - owed_;
    if (!is_open())
        look_at_ = UINT64_MAX;
    else if (is_probing_)
        look_at_ = closed_at;
    else
        look_at_ = std::min(heard_ + kProbeBytes, closed_at);
    lane_.update_direct();
}

void SendWindow::owe_notice() {
    owed_ += kMessageBytes;
    look();
}

void SendWindow::notice_has_gone() {
    owed_ -= kMessageBytes;
    sent_ += kMessageBytes;
    look();
}

void SendWindow::notice_is_off() {
    owed_ -= kMessageBytes;
    look();
}

bool SendWindow::on_probed() {
    if (!std::exchange(is_probing_, false))
        return false;
    heard_ = probed_;
    look();
    return true;
}

void SendWindow::begin_anew() {
    sent_ = heard_ = probed_ = 0;
    is_probing_ = false;
    look();
}

}  // namespace tagwire::proto
