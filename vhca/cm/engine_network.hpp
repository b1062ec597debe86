// SPDX-License-Identifier: BSD-3-Clause
// The connection manager on a device: messages go from QP1 to QP1 over its fabric.
//
// On the fabric "udp" an IPv4 address is a node. On "shm" all processes of a user share the
// addresses of the machine, so a service is looked up: who claims one binds two abstract sockets,
// one whose name has the service alone, and one with its LID behind it, which /proc/net/unix shows
// to others. Nothing is left of them when the process ends, however it does.
#pragma once

#include <map>
#include <memory>

#include "ucs/sys/fd.hpp"
#include "vhca/cm/manager.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::vhca::cm {

class EngineNetwork final : public Network, public Management {
  public:
    /// The network of the engine, made at the first call: one for each process.
    static EngineNetwork& of(Engine& engine);

    [[nodiscard]] Manager& manager() { return *manager_; }

    void lock() override { mutex_ = engine_.lock().release(); }
    void unlock() override;
    [[nodiscard]] Time now() const override { return engine_.now(); }
    [[nodiscard]] LocalPort port() const override;
    [[nodiscard]] int check_source(const Address& source) const override;
    [[nodiscard]] int find_source(const Address& destination, Address* source_p) const override;
    [[nodiscard]] Peer find_peer(std::uint64_t service_id,
                                 const Address& destination) const override;
    [[nodiscard]] Peer peer_at(Route route) const override;
    int claim(std::uint64_t service_id) override;
    void release(std::uint64_t service_id) override { claims_.erase(service_id); }
    void send(Route to, const Mad& mad) override { engine_.device().send_management(to, mad); }

    void receive(Route from, std::span<const std::byte> datagram) override {
        manager_->receive(from, datagram);
    }
    void note_gone(Route node) override { manager_->note_gone(node); }
    Time progress(Time time) override { return manager_->progress(time); }
    bool say_farewell() override { return manager_->say_farewell(); }
    void abandon() override { claims_.clear(); }

  private:
    struct Claim {
        ucs::UniqueFd name, location;
    };
    explicit EngineNetwork(Engine& engine) : engine_(engine) {}
    [[nodiscard]] bool is_udp() const { return engine_.port().interface() != nullptr; }

    Engine& engine_;
    EngineMutex* mutex_ = nullptr;  // the engine's, once it was taken
    std::unique_ptr<Manager> manager_;
    std::map<std::uint64_t, Claim> claims_;
};

}  // namespace tagwire::vhca::cm
