// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are found by node and service.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr const char* kHere = "127.0.0.1";

int udp_socket() {
    return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/// A port that nobody has now.
std::string free_port() {
    const int fd = udp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    ::close(fd);
    return std::to_string(ntohs(address.sin_port));
}

class FiService : public Pair {
  protected:
    void SetUp() override { open(); }

    /// An endpoint that is found at this port of `node`.
    void open_at(Side& side, const std::string& port, const char* node = kHere) {
        const auto hints = hints_for(Wanted().caps);
        auto found = ask(hints.get(), node, FI_SOURCE | FI_NUMERICHOST, port.c_str());
        ASSERT_NE(found, nullptr);
        std::swap(info, found);
        open_side(side, {});
        std::swap(info, found);
    }

    Owner<fi_info> find(const std::string& port, const char* node = kHere) {
        return ask(hints_for(FI_TAGGED).get(), node, 0, port.c_str());
    }

    fi_addr_t insert(const void* address) {
        fi_addr_t addr = FI_ADDR_NOTAVAIL;
        fi_av_insert(av.get(), address, 1, &addr, 0, nullptr);
        return addr;
    }

    Name name_of(fi_addr_t addr) {
        Name name{};
        std::size_t length = name.size();
        EXPECT_EQ(fi_av_lookup(av.get(), addr, name.data(), &length), 0);
        return name;
    }

    /// A message from `a` to that address is received by `side`.
    void expect_message(Side& side, fi_addr_t addr) {
        Text sent = text_of(100);
        Text received(sent.size(), '-');
        fi_cq_tagged_entry entry{};
        retry([&] {
            return fi_trecv(side.ep.get(), received.data(), received.size(), nullptr,
                            FI_ADDR_UNSPEC, 7, 0, nullptr);
        });
        retry([&] {
            return fi_tsend(a.ep.get(), sent.data(), sent.size(), nullptr, addr, 7, nullptr);
        });
        EXPECT_TRUE(run_until([&] { return fi_cq_read(side.rx.get(), &entry, 1) == 1; }));
        EXPECT_EQ(received, sent);
    }
};

/// Where the time of the look-up passes (FI_TAGWIRE_LOOKUP); it is long elsewhere, because an
/// endpoint's thread may have to wait for a processor.
using FiNobody = FiService;

TEST_F(FiService, whoever_asks_there_gets_the_name) {
    const std::string port = free_port();
    Side c;
    ASSERT_NO_FATAL_FAILURE(open_at(c, port));
    const auto found = find(port);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->dest_addrlen, c.name.size());
    char text[64];
    std::size_t length = sizeof text;
    ASSERT_NE(fi_av_straddr(av.get(), found->dest_addr, text, &length), nullptr);
    EXPECT_EQ(text, kHere + (":" + port));
    const fi_addr_t addr = insert(found->dest_addr);
    ASSERT_NE(addr, FI_ADDR_NOTAVAIL);
    EXPECT_EQ(name_of(addr), c.name);
    expect_message(c, addr);
}

TEST_F(FiService, insertsvc_asks_there_too) {
    const std::string port = free_port();
    Side c;
    ASSERT_NO_FATAL_FAILURE(open_at(c, port));
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insertsvc(av.get(), kHere, port.c_str(), &addr, 0, nullptr), 1);
    EXPECT_EQ(name_of(addr), c.name);
}

TEST_F(FiService, an_asynchronous_vector_is_told_by_its_event_queue) {
    const std::string port = free_port();
    Side c;
    ASSERT_NO_FATAL_FAILURE(open_at(c, port));
    fid_eq* queue = nullptr;
    fi_eq_attr queue_attr{};
    queue_attr.wait_obj = FI_WAIT_NONE;
    ASSERT_EQ(fi_eq_open(fabric.get(), &queue_attr, &queue, nullptr), 0);
    const Owner<fid_eq> owner(queue);
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.flags = FI_EVENT;
    fid_av* made = nullptr;
    ASSERT_EQ(fi_av_open(domain.get(), &attr, &made, nullptr), 0);
    const Owner<fid_av> vector(made);
    ASSERT_EQ(made->fid.ops->bind(&made->fid, &queue->fid, 0), 0);
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insertsvc(made, kHere, port.c_str(), &addr, 0, nullptr), 0);
    fi_eq_entry entry{};
    std::uint32_t event = 0;
    ASSERT_EQ(fi_eq_read(queue, &event, &entry, sizeof entry, 0), ssize_t{sizeof entry});
    EXPECT_EQ(event, std::uint32_t{FI_AV_COMPLETE});
    EXPECT_EQ(entry.data, 1U);
}

TEST_F(FiService, without_a_node_it_is_this_machine) {
    const std::string port = free_port();
    const auto anywhere = ask(hints_for(FI_TAGGED).get(), nullptr, FI_SOURCE, port.c_str());
    ASSERT_NE(anywhere, nullptr);
    Side c;
    ASSERT_NO_FATAL_FAILURE(open_at(c, port));
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insertsvc(av.get(), nullptr, port.c_str(), &addr, 0, nullptr), 1);
    EXPECT_EQ(name_of(addr), c.name);
}

/// Programs that name a host alone mean where an endpoint is to be, or exchange names themselves:
/// they get an answer in the provider's own format, without a port, and no other.
TEST_F(FiService, a_node_alone_is_where_an_endpoint_may_be) {
    const auto hints = hints_for(Wanted().caps);
    for (const char* node : {kHere, "localhost"}) {
        const auto found = ask(hints.get(), node, FI_SOURCE);
        ASSERT_NE(found, nullptr);
        EXPECT_EQ(found->addr_format, info->addr_format);
        EXPECT_EQ(found->src_addrlen, sizeof(Name));
        EXPECT_EQ(found->dest_addr, nullptr);
        Side c;
        Side d;
        for (Side* side : {&c, &d}) {
            auto opened = ask(found.get());
            ASSERT_NE(opened, nullptr);
            std::swap(info, opened);
            ASSERT_NO_FATAL_FAILURE(open_side(*side, {}));
            std::swap(info, opened);
        }
        EXPECT_NE(c.name, d.name);
        expect_message(c, insert(c.name.data()));
        expect_message(d, insert(d.name.data()));
    }
    hints->addr_format = FI_SOCKADDR_IN;
    EXPECT_EQ(ask(hints.get(), kHere, FI_SOURCE), nullptr);
}

TEST_F(FiService, the_hint_of_a_source_is_kept) {
    const std::string port = free_port();
    const auto hints = hints_for(FI_TAGGED);
    const auto first = ask(hints.get(), kHere, FI_SOURCE, port.c_str());
    ASSERT_NE(first, nullptr);
    const auto second = ask(first.get());
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(std::memcmp(first->src_addr, second->src_addr, sizeof(Name)), 0);
}

TEST_F(FiService, a_port_belongs_to_one_endpoint_until_that_is_closed) {
    const std::string port = free_port();
    const auto found = ask(hints_for(Wanted().caps).get(), kHere, FI_SOURCE, port.c_str());
    ASSERT_NE(found, nullptr);
    {
        Side c;
        ASSERT_NO_FATAL_FAILURE(open_at(c, port));
        fid_ep* second = nullptr;
        EXPECT_EQ(fi_endpoint(domain.get(), found.get(), &second, nullptr), -FI_EADDRINUSE);
    }
    fid_ep* third = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), found.get(), &third, nullptr), 0);
    EXPECT_EQ(fi_close(&third->fid), 0);
}

TEST_F(FiNobody, where_nobody_answers_nothing_is_inserted) {
    const auto found = find(free_port());
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(insert(found->dest_addr), FI_ADDR_NOTAVAIL);
}

TEST_F(FiNobody, a_host_without_a_service_leads_to_no_endpoint) {
    const auto found = ask(hints_for(FI_TAGGED).get(), kHere);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(insert(found->dest_addr), FI_ADDR_NOTAVAIL);
}

TEST_F(FiNobody, a_port_where_something_else_listens_gives_no_name) {
    const int fd = udp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), length), 0);
    ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    const auto found = find(std::to_string(ntohs(address.sin_port)));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(insert(found->dest_addr), FI_ADDR_NOTAVAIL);
    ::close(fd);
}

TEST_F(FiService, questions_that_are_none_are_not_answered) {
    const std::string port = free_port();
    Side c;
    ASSERT_NO_FATAL_FAILURE(open_at(c, port));
    const int fd = udp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    for (const std::size_t bytes : {0U, 1U, 8U, 64U, 128U, 129U, 1400U}) {
        const Text noise(bytes, '?');
        EXPECT_EQ(::sendto(fd, noise.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&address),
                           sizeof address),
                  static_cast<ssize_t>(bytes));
    }
    // The door answers in order, so the noise has been read when this is inserted.
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insertsvc(av.get(), kHere, port.c_str(), &addr, 0, nullptr), 1);
    char byte = 0;
    EXPECT_EQ(::recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    ::close(fd);
}

TEST_F(FiService, what_does_not_resolve_has_no_answer) {
    const auto hints = hints_for(FI_TAGGED);
    EXPECT_EQ(ask(hints.get(), "no-address", FI_NUMERICHOST, "4711"), nullptr);
    EXPECT_EQ(ask(hints.get(), kHere, 0, "no such service"), nullptr);
    EXPECT_EQ(ask(hints.get(), "192.0.2.1", FI_SOURCE, "4711"), nullptr);  // not of this machine
}

}  // namespace

}  // namespace tagwire::fi_test
