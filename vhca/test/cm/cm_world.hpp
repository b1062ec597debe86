// SPDX-License-Identifier: BSD-3-Clause
// Connection managers of several machines on a simulated wire, and the commands of a program, as
// librdmacm writes them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "vhca/cm/manager.hpp"
#include "vhca/fabric/sim_fabric.hpp"

namespace tagwire::vhca::cm {

struct CmWire {
    struct Flight {
        Time due;
        std::uint64_t from, to;
        Mad mad;
    };
    explicit CmWire(std::uint64_t seed) : random(seed) {}

    void send(std::uint64_t from, std::uint64_t to, const Mad& mad) {
        ++sent;
        last = mad;
        if (loses_next > 0) {
            --loses_next;
            return;
        }
        if (random.chance(loss))
            return;
        flights.push_back({now + 1000, from, to, mad});
        if (random.chance(duplication))
            flights.push_back({now + 1000 + random.below(5'000'000), from, to, mad});
    }

    SimRandom random;
    Time now = 1;
    double loss = 0, duplication = 0;
    unsigned loses_next = 0;
    std::uint64_t sent = 0;
    Mad last{};
    std::vector<Flight> flights;
};

/// A machine: 10.0.0.N, node N.
class CmHost final : public Network {
  public:
    CmHost(CmWire& wire, std::uint8_t node) : wire_(wire), node_(node) {
        manager = std::make_unique<Manager>(*this, node);
    }

    void lock() override {
        EXPECT_FALSE(is_locked_);
        is_locked_ = true;
    }
    void unlock() override { is_locked_ = false; }
    [[nodiscard]] Time now() const override { return wire_.now; }
    [[nodiscard]] LocalPort port() const override {
        return {.guid = node_,
                .gid = gid(node_),
                .lid = node_,
                .is_ethernet = is_ethernet,
                .mtu = IBV_MTU_1024};
    }
    [[nodiscard]] int check_source(const Address& source) const override {
        return number_of(source) == node_ ? 0 : EADDRNOTAVAIL;
    }
    [[nodiscard]] int find_source(const Address& destination, Address* source_p) const override {
        if (number_of(destination) == 0)
            return EHOSTUNREACH;
        const std::uint16_t port = source_p->port();
        *source_p = address(node_, port, destination.family());
        return 0;
    }
    [[nodiscard]] Peer find_peer(std::uint64_t, const Address& destination) const override {
        return peer_at({number_of(destination)});
    }
    [[nodiscard]] Peer peer_at(Route route) const override {
        const auto number = static_cast<std::uint8_t>(route.node);
        return {.route = route, .gid = gid(number), .lid = number};
    }
    int claim(std::uint64_t service_id) override {
        return taken.contains(service_id) || !claims.insert(service_id).second ? EADDRINUSE : 0;
    }
    void release(std::uint64_t service_id) override { claims.erase(service_id); }
    void send(Route to, const Mad& mad) override { wire_.send(node_, to.node, mad); }

    static ibv_gid gid(std::uint8_t number) {
        ibv_gid gid{};
        gid.raw[0] = 0xfe;
        gid.raw[1] = 0x80;
        gid.raw[15] = number;
        return gid;
    }
    static Address address(std::uint8_t number, std::uint16_t port, unsigned family = AF_INET) {
        Address made = Address::any(family);
        if (family == AF_INET) {
            sockaddr_in ip = made.ip4();
            ip.sin_addr.s_addr = htonl(0x0a000000U | number);
            made = Address::of(ip);
        } else if (family == AF_INET6) {
            sockaddr_in6 ip = made.ip6();
            ip.sin6_addr.s6_addr[0] = 0xfd;
            ip.sin6_addr.s6_addr[15] = number;
            made = Address::of(ip);
        } else {
            SockaddrIb ib = made.ib();
            ib.sib_addr = gid(number);
            made = Address::of(ib);
        }
        made.set_port(port);
        return made;
    }
    /// 0: of no machine.
    [[nodiscard]] std::uint8_t number_of(const Address& address) const {
        if (address.is_any())
            return node_;
        for (std::uint8_t number = 1; number < 10; ++number)
            if (address.is_same_host(CmHost::address(number, 0, address.family())))
                return number;
        return 0;
    }

    bool is_ethernet = false;
    std::set<std::uint64_t> claims, taken;
    std::unique_ptr<Manager> manager;

  private:
    CmWire& wire_;
    std::uint8_t node_;
    bool is_locked_ = false;
};

/// A program with one channel.
class CmProgram {
  public:
    explicit CmProgram(CmHost& host, int open_flags = O_NONBLOCK | O_CLOEXEC)
        : channel(Channel::open(*host.manager, open_flags)) {
        fd.reset(channel->program_fd());
    }

    /// 0, or errno. `out_bytes`: what the program says that its answer may have.
    template <typename In>
    int run(unsigned command, const In& in, std::size_t out_bytes = 0) {
        std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof in);
        const rdma_ucm_cmd_hdr head{
            .cmd = command, .in = sizeof in, .out = static_cast<std::uint16_t>(out_bytes)};
        std::memcpy(bytes.data(), &head, sizeof head);
        std::memcpy(bytes.data() + sizeof head, &in, sizeof in);
        const auto find = [this](int other) {
            const auto found = peers.find(other);
            return found == peers.end() ? nullptr : found->second;
        };
        const std::int64_t done = channel->write(bytes.data(), bytes.size(), find);
        EXPECT_TRUE(done == -1 || done == static_cast<std::int64_t>(bytes.size()));
        return done < 0 ? errno : 0;
    }

    std::uint32_t create(std::uint16_t ps = RDMA_PS_TCP, std::uint8_t qp_type = 0) {
        rdma_ucm_create_id_resp out{};
        rdma_ucm_create_id in{};
        in.uid = ++next_uid_;
        in.response = reinterpret_cast<std::uint64_t>(&out);
        in.ps = ps;
        in.qp_type = qp_type;
        EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, in, sizeof out), 0);
        return out.id;
    }
    int destroy(std::uint32_t id, std::uint32_t* reported_p = nullptr) {
        rdma_ucm_destroy_id_resp out{};
        rdma_ucm_destroy_id in{};
        in.response = reinterpret_cast<std::uint64_t>(&out);
        in.id = id;
        const int error = run(RDMA_USER_CM_CMD_DESTROY_ID, in, sizeof out);
        if (reported_p != nullptr)
            *reported_p = out.events_reported;
        return error;
    }
    int bind(std::uint32_t id, const Address& address) {
        rdma_ucm_bind in{};
        in.id = id;
        in.addr_size = static_cast<std::uint16_t>(address.bytes());
        std::memcpy(&in.addr, &address.storage(), sizeof in.addr);
        return run(RDMA_USER_CM_CMD_BIND, in);
    }
    int listen(std::uint32_t id, std::uint32_t backlog = 0) {
        return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = backlog});
    }
    std::uint32_t listening(const Address& address, std::uint16_t ps = RDMA_PS_TCP,
                            std::uint32_t backlog = 0) {
        const std::uint32_t id = create(ps);
        EXPECT_EQ(bind(id, address), 0);
        EXPECT_EQ(listen(id, backlog), 0);
        return id;
    }
    int resolve(std::uint32_t id, const Address& destination) {
        rdma_ucm_resolve_addr in{};
        in.id = id;
        in.timeout_ms = 2000;
        in.dst_size = static_cast<std::uint16_t>(destination.bytes());
        std::memcpy(&in.dst_addr, &destination.storage(), sizeof in.dst_addr);
        return run(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
    }
    int route(std::uint32_t id) {
        return run(RDMA_USER_CM_CMD_RESOLVE_ROUTE,
                   rdma_ucm_resolve_route{.id = id, .timeout_ms = 2000});
    }
    static rdma_ucm_conn_param param(std::uint32_t qpn, std::string_view data = {}) {
        rdma_ucm_conn_param param{};
        param.qp_num = qpn;
        param.responder_resources = 3;
        param.initiator_depth = 5;
        param.retry_count = 6;
        param.rnr_retry_count = 7;
        param.valid = 1;
        param.private_data_len = static_cast<std::uint8_t>(data.size());
        std::copy(data.begin(), data.end(), param.private_data);
        return param;
    }
    int connect(std::uint32_t id, const rdma_ucm_conn_param& param) {
        rdma_ucm_connect in{};
        in.id = id;
        in.conn_param = param;
        return run(RDMA_USER_CM_CMD_CONNECT, in);
    }
    int accept(std::uint32_t id, const rdma_ucm_conn_param& param) {
        rdma_ucm_accept in{};
        in.id = id;
        in.uid = ++next_uid_;
        in.conn_param = param;
        return run(RDMA_USER_CM_CMD_ACCEPT, in);
    }
    /// As librdmacm when the reply came.
    int get_ready(std::uint32_t id) { return accept(id, rdma_ucm_conn_param{}); }
    int disconnect(std::uint32_t id) {
        return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id});
    }
    int reject(std::uint32_t id, std::string_view data = {}, std::uint8_t reason = 0) {
        rdma_ucm_reject in{};
        in.id = id;
        in.reason = reason;
        in.private_data_len = static_cast<std::uint8_t>(data.size());
        std::copy(data.begin(), data.end(), in.private_data);
        return run(RDMA_USER_CM_CMD_REJECT, in);
    }
    int attributes(std::uint32_t id, ibv_qp_state state, ib_uverbs_qp_attr* attr_p) {
        rdma_ucm_init_qp_attr in{};
        in.id = id;
        in.qp_state = state;
        in.response = reinterpret_cast<std::uint64_t>(attr_p);
        return run(RDMA_USER_CM_CMD_INIT_QP_ATTR, in, sizeof *attr_p);
    }
    template <typename T>
    int set_option(std::uint32_t id, std::uint32_t level, std::uint32_t name, const T& value) {
        rdma_ucm_set_option in{};
        in.id = id;
        in.level = level;
        in.optname = name;
        in.optval = reinterpret_cast<std::uint64_t>(&value);
        in.optlen = sizeof value;
        return run(RDMA_USER_CM_CMD_SET_OPTION, in);
    }
    rdma_ucm_query_addr_resp addresses(std::uint32_t id) {
        rdma_ucm_query_addr_resp out{};
        rdma_ucm_query in{};
        in.id = id;
        in.option = RDMA_USER_CM_QUERY_ADDR;
        in.response = reinterpret_cast<std::uint64_t>(&out);
        EXPECT_EQ(run(RDMA_USER_CM_CMD_QUERY, in, sizeof out), 0);
        return out;
    }
    static Address stored(const __kernel_sockaddr_storage& from) {
        sockaddr_storage storage{};
        std::memcpy(&storage, &from, sizeof storage);
        return Address(storage);
    }
    std::uint16_t source_port(std::uint32_t id) { return stored(addresses(id).src_addr).port(); }

    /// EAGAIN: none waits.
    int fetch(rdma_ucm_event_resp* event_p) {
        *event_p = {};
        return run(RDMA_USER_CM_CMD_GET_EVENT,
                   rdma_ucm_get_event{.response = reinterpret_cast<std::uint64_t>(event_p)},
                   sizeof *event_p);
    }
    rdma_ucm_event_resp expect(std::uint32_t type, std::int32_t status = 0) {
        rdma_ucm_event_resp event;
        EXPECT_EQ(fetch(&event), 0);
        EXPECT_EQ(event.event, type);
        EXPECT_EQ(static_cast<std::int32_t>(event.status), status);
        return event;
    }
    void expect_nothing() {
        rdma_ucm_event_resp event;
        EXPECT_EQ(fetch(&event), EAGAIN) << event.event;
    }
    /// Until connect() may be called.
    std::uint32_t routed(const Address& destination, std::uint16_t ps = RDMA_PS_TCP) {
        const std::uint32_t id = create(ps);
        EXPECT_EQ(resolve(id, destination), 0);
        expect(kAddressResolved);
        EXPECT_EQ(route(id), 0);
        expect(kRouteResolved);
        return id;
    }

    std::unique_ptr<Channel> channel;
    ucs::UniqueFd fd;
    std::map<int, Channel*> peers;  // other channels of the program

  private:
    std::uint64_t next_uid_ = 0x1000;
};

class VhcaCm : public testing::Test {
  public:
    explicit VhcaCm(std::uint64_t seed = 1) : wire(seed) {}

    /// Everything that is due; then time goes to what is next. False: nothing will ever happen.
    bool step() {
        Time next = std::min(one.manager->progress(wire.now), two.manager->progress(wire.now));
        for (const auto& flight : wire.flights)
            next = std::min(next, flight.due);
        if (next == kNever)
            return false;
        wire.now = std::max(wire.now, next);
        std::vector<CmWire::Flight> due;
        std::erase_if(wire.flights, [&](const CmWire::Flight& flight) {
            const bool is_due = flight.due <= wire.now;
            if (is_due)
                due.push_back(flight);
            return is_due;
        });
        for (const auto& flight : due) {
            CmHost& host = flight.to == 1 ? one : two;
            if (flight.to == 1 || flight.to == 2)
                host.manager->receive({flight.from}, flight.mad);
        }
        return true;
    }
    template <typename F>
    bool run(const F& is_done) {
        for (unsigned steps = 0; !is_done(); ++steps)
            if (steps == 10000 || !step())
                return is_done();
        return true;
    }
    /// Until what was sent is there.
    void settle() {
        run([&] { return wire.flights.empty(); });
    }
    /// Nothing is due any more.
    void run_out() {
        run([] { return false; });
    }

    struct Pair {
        std::uint32_t active, passive, listener;
    };
    /// The client's request has arrived.
    Pair requested() {
        Pair pair{};
        pair.listener = server.listening(Address::any(AF_INET), RDMA_PS_TCP, 4);
        const std::uint16_t port = server.source_port(pair.listener);
        pair.active = client.routed(CmHost::address(2, port));
        EXPECT_EQ(client.connect(pair.active, CmProgram::param(0x111)), 0);
        settle();
        pair.passive = server.expect(kConnectRequest).id;
        return pair;
    }
    Pair connected() {
        const Pair pair = requested();
        EXPECT_EQ(server.accept(pair.passive, CmProgram::param(0x222)), 0);
        settle();
        client.expect(kConnectResponse);
        EXPECT_EQ(client.get_ready(pair.active), 0);
        settle();
        server.expect(kEstablished);
        return pair;
    }

    CmWire wire;
    CmHost one{wire, 1}, two{wire, 2};
    CmProgram client{one}, server{two};
};

}  // namespace tagwire::vhca::cm
