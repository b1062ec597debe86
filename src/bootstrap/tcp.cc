// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp.hpp"

#include "ucs/log/log.hpp"

namespace tagwire::bootstrap {
namespace {

Result join_as_coordinator(const Settings& settings, const addrinfo* addresses,
                           MethodPtr* method_p) {
    const Deadline deadline(settings.timeout_ns);
    ucs::UniqueFd listener;
    if (Result result = tcp_listen(settings.where, addresses, &listener); !result.ok())
        return result;
    if (settings.secret.empty() && !is_loopback(listener.get())) {
        TW_LOG_WARN(
            "bootstrap: rank 0 listens at %s, which other machines can reach, without a secret: "
            "any process that sends the job's name can take a rank; set "
            "TAGWIRE_BOOTSTRAP_SECRET_FILE on all ranks",
            settings.where.c_str());
    }
    RankStreams ranks;
    TcpAdmission admission(settings, std::move(listener));
    Result result = admission.wait_for_all(deadline, &ranks);
    if (result.ok())
        *method_p = std::make_unique<TcpCoordinator>(settings.size, std::move(ranks));
    return result;
}

Result join_as_rank(const Settings& settings, const addrinfo* addresses, MethodPtr* method_p) {
    const Deadline deadline(settings.timeout_ns);
    auto rank = std::make_unique<TcpRank>(settings);
    Result result = rank->join(addresses, deadline);
    if (result.ok())
        *method_p = std::move(rank);
    return result;
}

}  // namespace

Result join_tcp(const Settings& settings, MethodPtr* method_p) {
    ucs::AddressList addresses(nullptr, &freeaddrinfo);
    if (Result result = resolve(settings.where, &addresses); !result.ok())
        return result;
    return settings.rank == 0 ? join_as_coordinator(settings, addresses.get(), method_p)
                              : join_as_rank(settings, addresses.get(), method_p);
}

}  // namespace tagwire::bootstrap
