// SPDX-License-Identifier: BSD-3-Clause
#include "tools/rank_pair.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cli/failure.hpp"
#include "tools/pinning.hpp"

namespace tagwire::tools {

RankPair::RankPair(tagwire::Bootstrap job, std::vector<int> wanted)
    : job_(std::move(job)), wanted_(std::move(wanted)) {
    Place mine;
    gethostname(mine.host.data(), mine.host.size() - 1);
    const std::vector<int> cpus = allowed_cpus();
    std::copy_n(cpus.begin(), std::min(cpus.size(), mine.cpus.size()), mine.cpus.begin());
    places_ = job_.allgather(mine);
    Door door;
    if (rank() == 1) {
        const auto reach =
            is_on_one_host() ? Listener::Reach::kThisHost : Listener::Reach::kAllAddresses;
        door = {listener_.emplace(std::uint16_t{0}, reach).port(), make_token()};
    }
    door_ = job_.allgather(door)[1];
}

std::unique_ptr<Channel> RankPair::connect() const {
    const char* const host = is_on_one_host() ? "127.0.0.1" : places_[1].host.data();
    try {
        const int fd = connect_to(host, door_.port);
        auto channel = std::make_unique<Channel>(fd);
        show_token(fd, door_.token);
        return channel;
    } catch (const Failure& failure) {
        throw Failure(text("rank 0 does not reach rank 1 on host %s, port %u: %s",
                           places_[1].host.data(), unsigned{door_.port}, failure.what()));
    }
}

std::vector<int> RankPair::cpus() const {
    if (!wanted_.empty() || share_cpus())
        return choose_cpus(wanted_);
    return {places_[0].cpus[0], places_[1].cpus[0]};
}

std::unique_ptr<Channel> RankPair::accept() const {
    return std::make_unique<Channel>(listener_->accept_one(door_.token));
}

int RankPair::own_cpu() const {
    return !wanted_.empty() || share_cpus() ? -1 : places_[1].cpus[0];
}

}  // namespace tagwire::tools
