// SPDX-License-Identifier: BSD-3-Clause
// First contact and lanes between two hosts without a common device, and within one that has tcp,
// too.
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "common/network.hpp"
#include "common/skip.hpp"
#include "protocols/remote_host.hpp"

namespace tagwire::test {
namespace {

// Waiting for a connection to an address that nobody has is short.
class MsgOtherHost : private Settings, public MsgTest {
  protected:
    MsgOtherHost() : Settings({{"TAGWIRE_TCP_CONNECT_TIMEOUT", "300ms"}}) {}

    void SetUp() override {
        if (!enter_network_with_loopback())
            TW_SKIP("needs nsenter(1) and ip(8), and the right to make network namespaces");
    }

    /// A context with these transports, in the namespace as it is now.
    void use(const std::string& transports) {
        destroy_nodes();
        context_.reset();
        tw_context_params_t params{};
        params.transports = transports.c_str();
        tw_context_h context = nullptr;
        ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
        context_.reset(context);
    }

    tw_ep_h connect(const RemoteHost& host) {
        const tw_ep_params_t params{.address = host.address().data(),
                                    .address_length = host.address().size(),
                                    .user_data = nullptr};
        tw_ep_h ep = nullptr;
        EXPECT_EQ(tw_ep_create(node(0).worker(), &params, &ep), TW_OK);
        return ep;
    }

    /// Sends `bytes` and receives them back; into and out of registered memory.
    void exchange(tw_ep_h ep, std::size_t bytes) {
        struct Mapped {
            tw_context_h context;
            void* data = nullptr;
            tw_mem_h handle = nullptr;
            Mapped(tw_context_h of, std::size_t length) : context(of) {
                EXPECT_EQ(tw_mem_alloc(context, length, nullptr, &data, &handle), TW_OK);
            }
            Mapped(const Mapped&) = delete;
            Mapped& operator=(const Mapped&) = delete;
            ~Mapped() { tw_mem_unmap(context, handle); }
        };
        const Mapped out(context_.get(), bytes), in(context_.get(), bytes);
        const Bytes data = pattern(bytes, bytes);
        std::memcpy(out.data, data.data(), bytes);
        int sent = 0, received = 0;
        tw_op_t how = op(&received);
        how.mem = in.handle;
        ASSERT_GE(tw_tag_recv(node(0).worker(), in.data, bytes, 5, 0, &how, nullptr), TW_OK);
        how = op(&sent);
        how.mem = out.handle;
        ASSERT_GE(tw_tag_send(ep, out.data, bytes, 5, &how, nullptr), TW_OK);
        EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
        EXPECT_EQ(end_of(node(0), &received).status, TW_OK);
        EXPECT_EQ(std::memcmp(in.data, data.data(), bytes), 0);
    }
    bool describes(const std::string& text) {
        return node(0).description().find(text) != std::string::npos;
    }

    /// Packets to that address of it are answered by nobody.
    static bool make_silent(const RemoteHost& host, unsigned number) {
        const std::string wire = RemoteHost::wire(number);
        const std::string address = "10.94." + std::to_string(number) + ".2";
        return run_in_network_of(host.pid(), "ip address delete " + address + "/24 dev " + wire) &&
               run_in_network_of(::getpid(), "ip neighbour replace " + address +
                                                 " lladdr 02:00:00:00:00:01 dev " + wire);
    }
    /// Counts those of all interfaces of tcp, made or under way.
    std::size_t connections() {
        const std::string text = node(0).description();
        std::size_t count = 0;
        for (std::size_t at = text.find("_peers: "); at != std::string::npos;
             at = text.find("_peers: ", at + 1))
            count += std::stoul(text.substr(at + std::string_view("_peers: ").size()));
        return count;
    }

    static constexpr std::size_t kEager = 100;
    static constexpr std::size_t kLong = std::size_t{4} << 20;
};

TEST_F(MsgOtherHost, hosts_without_a_common_device_meet_over_tcp) {
    for (const char* transports : {"auto", "sm,tcp", "tcp"}) {
        const RemoteHost host(1, transports);
        ASSERT_NO_FATAL_FAILURE(use(transports));
        tw_ep_h ep = connect(host);
        ASSERT_NE(ep, nullptr);
        exchange(ep, kEager);
        exchange(ep, kLong);
        EXPECT_TRUE(describes("ready over tcp")) << node(0).description();
        EXPECT_TRUE(node(0).failures.empty());
        destroy_nodes();
    }
}

TEST_F(MsgOtherHost, a_contact_that_fails_is_followed_by_the_next) {
    for (const bool fails_at_once : {true, false}) {
        const RemoteHost host(2, "auto");
        if (fails_at_once) {
            ASSERT_TRUE(run_in_network_of(::getpid(), "ip route add unreachable 10.94.0.2/32"));
        } else {
            ASSERT_TRUE(make_silent(host, 0));
        }
        ASSERT_NO_FATAL_FAILURE(use("auto"));
        tw_ep_h ep = connect(host);
        ASSERT_NE(ep, nullptr);
        exchange(ep, kEager);
        EXPECT_TRUE(describes("ready over tcp")) << node(0).description();
        EXPECT_TRUE(node(0).failures.empty());
        if (fails_at_once) {
            EXPECT_TRUE(run_in_network_of(::getpid(), "ip route delete unreachable 10.94.0.2/32"));
        }
        destroy_nodes();
    }
}

TEST_F(MsgOtherHost, two_network_interfaces_are_two_rails) {
    for (const char* rails : {"auto", "2"}) {
        const test::Settings setting({{"TAGWIRE_RNDV_RAILS", rails}});
        const RemoteHost host(2, "auto");
        ASSERT_NO_FATAL_FAILURE(use("auto"));
        tw_ep_h ep = connect(host);
        ASSERT_NE(ep, nullptr);
        exchange(ep, kLong);
        exchange(ep, kLong);
        EXPECT_TRUE(describes("long messages over 1 more rails")) << node(0).description();
        destroy_nodes();
    }
}

TEST_F(MsgOtherHost, workers_of_one_host_use_shared_memory_though_tcp_is_there) {
    const RemoteHost host(1, "auto");  // for its network interface
    for (const char* transports : {"auto", "sm,tcp"}) {
        ASSERT_NO_FATAL_FAILURE(use(transports));
        send_unexpected(node(0), node(1), pattern(kEager, 1), 1, op(nullptr));
        expect_message(node(1), pattern(kEager, 1), 1);
        EXPECT_TRUE(describes("ready over sm")) << node(0).description();
        EXPECT_TRUE(describes("tcp:wire0")) << node(0).description();
        EXPECT_FALSE(describes("peers_ready: 1\n")) << node(0).description();
    }
}

// Shared memory knows at once, and a connection is refused a little later.
TEST_F(MsgOtherHost, a_worker_that_has_gone_is_unreachable_by_each_contact) {
    const RemoteHost host(1, "auto");
    ASSERT_NO_FATAL_FAILURE(use("auto"));
    node(0);
    const Bytes address = node(1).address();
    forget_last_node();
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = nullptr};
    tw_ep_h ep = nullptr;
    ASSERT_EQ(tw_ep_create(node(0).worker(), &params, &ep), TW_OK);
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_tag_send(ep, &mark, sizeof mark, 1, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(node(0), &mark).status, TW_ERR_UNREACHABLE);
    run_until([&] { return !node(0).failures.empty(); });
    EXPECT_EQ(node(0).failures, (decltype(node(0).failures){{ep, TW_ERR_UNREACHABLE}}));
}

TEST_F(MsgOtherHost, what_is_excepted_is_left_out) {
    ASSERT_NO_FATAL_FAILURE(use("auto,^tcp"));
    EXPECT_TRUE(describes(": sm:memory"));
    EXPECT_FALSE(describes(": tcp:")) << node(0).description();
    ASSERT_NO_FATAL_FAILURE(use("auto,^sm,^tcp:eth77"));
    EXPECT_FALSE(describes(": sm:memory"));
    EXPECT_TRUE(describes(": tcp:lo")) << node(0).description();
}

TEST_F(MsgOtherHost, an_address_fits_the_room_that_there_is) {
    const RemoteHost host(2, "auto");
    ASSERT_NO_FATAL_FAILURE(use("sm,tcp"));
    const Bytes whole = node(0).address();
    std::size_t before = 0;
    for (std::size_t room = 0; room <= whole.size(); ++room) {
        Bytes bytes(TW_ADDRESS_BYTES_MAX);
        std::size_t length = room;
        const tw_status_t status = tw_worker_address(node(0).worker(), bytes.data(), &length);
        if (status == TW_ERR_BUFFER_TOO_SMALL) {
            EXPECT_LT(room, 63U);
            EXPECT_EQ(length, whole.size());
            continue;
        }
        ASSERT_EQ(status, TW_OK);
        EXPECT_LE(length, room);
        EXPECT_GE(length, before);
        before = length;
        std::uint64_t id = 0;
        EXPECT_EQ(tw_address_worker_id(bytes.data(), length, &id), TW_OK);
        EXPECT_EQ(id, node(0).id());
        if (length == whole.size()) {
            bytes.resize(length);
            EXPECT_EQ(bytes, whole);
        }
    }
    EXPECT_EQ(before, whole.size());
}

TEST_F(MsgOtherHost, an_address_names_four_interfaces_at_most) {
    constexpr std::size_t kHead = 12, kContact = 51;
    const RemoteHost host(5, "tcp");
    EXPECT_EQ(host.address().size(), kHead + 4 * kContact);
    ASSERT_NO_FATAL_FAILURE(use("tcp:wire2,tcp:lo"));
    EXPECT_EQ(node(0).address().size(), kHead + 2 * kContact);
    ASSERT_NO_FATAL_FAILURE(use("tcp:lo"));
    EXPECT_EQ(node(0).address().size(), kHead + kContact);
    ASSERT_NO_FATAL_FAILURE(use("sm"));
    const std::size_t memory = node(0).address().size() - kHead;
    ASSERT_NO_FATAL_FAILURE(use("sm,tcp:lo"));
    EXPECT_EQ(node(0).address().size(), kHead + memory + kContact);
    ASSERT_NO_FATAL_FAILURE(use("sm,tcp:wire1,tcp:lo"));
    EXPECT_EQ(node(0).address().size(), kHead + memory + kContact) << "without the loopback";
    ASSERT_NO_FATAL_FAILURE(use("sm,tcp"));
    EXPECT_EQ(node(0).address().size(), kHead + memory + 3 * kContact);
}

// As the bridges of containers are, which every host has.
TEST_F(MsgOtherHost, contacts_that_are_silent_hold_nobody_up) {
    constexpr unsigned kWires = 4;
    const test::Settings patient({{"TAGWIRE_TCP_CONNECT_TIMEOUT", "600s"}});
    for (unsigned reachable = 0; reachable < kWires; ++reachable) {
        const RemoteHost host(kWires, "tcp");
        for (unsigned wire = 0; wire < kWires; ++wire)
            ASSERT_TRUE(wire == reachable || make_silent(host, wire));
        ASSERT_NO_FATAL_FAILURE(use("tcp"));
        tw_ep_h ep = connect(host);
        ASSERT_NE(ep, nullptr);
        exchange(ep, kEager);
        EXPECT_TRUE(node(0).failures.empty());
        destroy_nodes();
    }
}

TEST_F(MsgOtherHost, each_contact_is_asked_once) {
    constexpr unsigned kWires = 3;
    const RemoteHost host(kWires, "tcp");
    for (unsigned wire = 0; wire < kWires; ++wire)
        ASSERT_TRUE(make_silent(host, wire));
    ASSERT_NO_FATAL_FAILURE(use("tcp"));
    tw_ep_h ep = connect(host);
    ASSERT_NE(ep, nullptr);
    EXPECT_EQ(connections(), kWires) << node(0).description();
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_tag_send(ep, &mark, sizeof mark, 1, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(node(0), &mark).status, TW_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(connections(), 0U);
}

TEST_F(MsgOtherHost, each_contact_and_why_it_does_not_lead_there_is_told) {
    const RemoteHost host(1, "auto");
    ASSERT_NO_FATAL_FAILURE(use("sm"));
    const tw_ep_params_t params{.address = host.address().data(),
                                .address_length = host.address().size(),
                                .user_data = nullptr};
    tw_ep_h ep = nullptr;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(tw_ep_create(node(0).worker(), &params, &ep), TW_ERR_UNREACHABLE);
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("over sm:memory: "), std::string::npos) << told;
    EXPECT_NE(told.find("over tcp: this worker has no such transport"), std::string::npos) << told;
}

}  // namespace
}  // namespace tagwire::test
