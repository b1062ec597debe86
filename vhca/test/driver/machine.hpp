// SPDX-License-Identifier: BSD-3-Clause
// A program on a host of the simulated fabric: its rings, and the device that works on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vhca/test/core/world.hpp"
#include "vhca/test/driver/program.hpp"

namespace tagwire::vhca::driver {

/// One CQ.
class Completions {
  public:
    explicit Completions(Host& host, std::uint32_t entries = 64)
        : polled(entries),
          ring({.ring = polled.ring(),
                .record = polled.record.address(),
                .number = 1,
                .channel = nullptr,
                .user_handle = 0,
                .owner_of = owner_of}) {
        EXPECT_EQ(host.device.create_cq({.cqe = entries, .consumer = &ring}, &cq), 0);
    }
    /// The users of queue pairs and lists are their indices.
    static CqeOwner owner_of(const Completion& completion) {
        const bool is_list = completion.tag_srq_user != nullptr;
        const void* user = is_list ? completion.tag_srq_user : completion.qp_user;
        return {.user_index = *static_cast<const std::uint32_t*>(user),
                .qpn = completion.wc.qp_num,
                .is_tag_matching = is_list};
    }

    PolledCompletions polled;
    CqRing ring;
    Cq* cq = nullptr;
};

struct MachineOptions {
    std::uint32_t blocks = 8;    // of the send queue
    std::uint32_t requests = 8;  // that the device has at a time
    std::uint32_t receives = 8;
    WqeContext context{};
};

/// A queue pair with its rings.
class Machine {
  public:
    Machine(Host& host, Completions& completions, QpConfig config, std::uint32_t index,
            const MachineOptions& options = {})
        : sends(options.blocks),
          receives(options.receives, 2),
          source(receives.memory.ring(), receives.record.address()),
          user_index(index),
          host_(host) {
        config.send_cq = config.recv_cq = completions.cq;
        config.user = &user_index;
        config.keeps_places = true;
        config.cap = {.max_send_wr = options.requests,
                      .max_recv_wr = options.receives,
                      .max_send_sge = 30,
                      .max_recv_sge = 2,
                      .max_inline_data = 0};
        config.source =
            config.srq == nullptr && config.dc.kind == DcKind::kNone ? &source : nullptr;
        qp = &host.create_qp(config);
        ring = std::make_unique<SendRing>(ring_config(options.context));
        const auto shadow = ring->shadow();
        const auto address = reinterpret_cast<std::uint64_t>(shadow.data());
        EXPECT_EQ(host.device.create_mr(*host.pd, shadow.data(), shadow.size(), address, 0, &mr),
                  0);
        ring->set_inline_key(mr->key);
    }
    [[nodiscard]] SendRing::Config ring_config(const WqeContext& context) const {
        return {.ring = sends.memory.ring(),
                .record = sends.record.address(),
                .context = context,
                .route_of = [](const WqeAddress& address) {
                    return SimFabric::route(address.attr.dlid);
                }};
    }
    void receive(std::size_t offset, std::size_t bytes) {
        const ibv_sge sge = host_.sge(offset, bytes);
        receives.post({&sge, 1});
    }

    PostedSends sends;
    PostedReceives receives;
    ReceiveRing source;
    std::unique_ptr<SendRing> ring;
    std::uint32_t user_index;
    Qp* qp = nullptr;
    Mr* mr = nullptr;

  private:
    Host& host_;
};

}  // namespace tagwire::vhca::driver
