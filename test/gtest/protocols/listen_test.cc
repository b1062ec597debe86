// SPDX-License-Identifier: BSD-3-Clause
// Connections by host and port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "protocols/listening.hpp"
#include "protocols/wire/cm_messages.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::test {
namespace {

using proto::CmHead;
using proto::CmKind;
using proto::CmVerdict;

constexpr std::uint64_t kSoonNs = 50'000'000;

/// A TCP connection, or a listener, of no library.
class Raw {
  public:
    /// Listens.
    Raw() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof at;
        EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), bytes), 0);
        EXPECT_EQ(::listen(fd_.get(), 1), 0);
        EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &bytes), 0);
        port_ = ntohs(at.sin_port);
    }
    /// Connects to a listener of 127.0.0.1.
    explicit Raw(const std::string& where) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port =
            htons(static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1))));
        EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    }
    std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
    /// The next peer takes the listener's place.
    void accept() { fd_ = ucs::UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    void send(const void* data, std::size_t length) const {
        EXPECT_EQ(::send(fd_.get(), data, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    }
    bool has_something() const {
        pollfd entry{fd_.get(), POLLIN, 0};
        return ::poll(&entry, 1, 0) == 1;
    }
    /// Nothing but the end has come.
    bool has_ended() const {
        char byte = 0;
        return has_something() && ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) <= 0;
    }
    void close() { fd_.reset(); }

  private:
    ucs::UniqueFd fd_;
    std::uint16_t port_ = 0;
};

class MsgListen : public ListenTest {
  protected:
    /// The end of a connection to somebody who replies so.
    tw_status_t status_behind(const CmHead& head, std::size_t bytes) {
        Raw raw;
        EXPECT_EQ(client_.connect(from(), raw.address()), TW_INPROGRESS);
        run_until([&] { return raw.has_something(); });
        raw.accept();
        run_until([&] { return raw.has_something(); });
        raw.send(&head, bytes);
        raw.close();
        run_until([&] { return client_.is_over(); });
        return std::exchange(client_.status, TW_INPROGRESS);
    }
};

TEST_F(MsgListen, two_workers_connect_and_tell_each_other) {
    server_.told = "welcome";
    client_.told = "it is me";
    connect();
    EXPECT_EQ(client_.status, TW_OK);
    EXPECT_EQ(client_.heard, "welcome");
    EXPECT_EQ(server_.status, TW_OK);
    EXPECT_EQ(server_.heard, "it is me");
    EXPECT_EQ(server_.worker_id, from().id());
    EXPECT_EQ(server_.peer.rfind("127.0.0.1:", 0), 0U) << server_.peer;
    EXPECT_EQ(tw_ep_user_data(client_.ep), &client_);
    EXPECT_EQ(tw_ep_user_data(server_.ep), &server_);
    const Bytes data = pattern(100, 1);
    ASSERT_GE(tw_tag_send(client_.ep, data.data(), data.size(), 1, nullptr, nullptr), TW_OK);
    expect_message(at(), data, 1);
    ASSERT_GE(tw_tag_send(server_.ep, data.data(), data.size(), 2, nullptr, nullptr), TW_OK);
    expect_message(from(), data, 2);
    tw_listener_destroy(server_.listener);
}

TEST_F(MsgListen, a_message_may_follow_at_once_in_either_callback) {
    // The endpoint of the server sends before the client has heard that it was accepted.
    connect();
    constexpr std::size_t kMessages = 20;
    const Bytes data = pattern(kMessages, 1);
    for (std::size_t i = 0; i < kMessages; ++i)
        ASSERT_GE(tw_tag_send(server_.ep, &data[i], 1, 3, nullptr, nullptr), TW_OK);
    for (std::size_t i = 0; i < kMessages; ++i)
        expect_message(from(), {data[i]}, 3);
}

TEST_F(MsgListen, ipv6_and_names_work) {
    ucs::UniqueFd has_v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    if (has_v6 &&
        ::bind(has_v6.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0) {
        connect("[::1]:0");
        EXPECT_EQ(client_.status, TW_OK);
        EXPECT_EQ(server_.address().rfind("[::1]:", 0), 0U);
    }
    Server by_name;
    by_name.answer = Server::Answer::kReject;
    ASSERT_EQ(by_name.listen(at(), "localhost:0"), TW_OK);
    const std::string address = by_name.address();
    Client client;
    ASSERT_EQ(client.connect(from(), "localhost" + address.substr(address.rfind(':'))),
              TW_INPROGRESS);
    run_until([&] { return client.is_over(); });
    EXPECT_EQ(client.status, TW_ERR_REJECTED);
}

TEST_F(MsgListen, a_program_may_reject) {
    server_.answer = Server::Answer::kReject;
    server_.told = "full";
    connect();
    EXPECT_EQ(client_.status, TW_ERR_REJECTED);
    EXPECT_EQ(client_.ep, nullptr);
    EXPECT_EQ(client_.heard, "full");
    expect_served();
}

TEST_F(MsgListen, an_answer_may_come_later) {
    server_.answer = Server::Answer::kNone;
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
    run_until([&] { return server_.requests == 1; });
    run_some();
    EXPECT_FALSE(client_.is_over());
    tw_listener_destroy(server_.listener);  // the request stays
    EXPECT_EQ(server_.accept(), TW_OK);
    run_until([&] { return client_.is_over(); });
    EXPECT_EQ(client_.status, TW_OK);
}

TEST_F(MsgListen, a_peer_that_has_given_up_is_not_accepted) {
    server_.answer = Server::Answer::kNone;
    client_.timeout_ns = kSoonNs;
    connect();
    EXPECT_EQ(client_.status, TW_ERR_TIMED_OUT);
    run_some();
    EXPECT_EQ(server_.accept(), TW_ERR_CONNECTION_RESET);
    expect_served();
}

TEST_F(MsgListen, what_cannot_be_reached_is_told) {
    {
        Raw raw;
        client_.told = raw.address();
    }
    const std::string nobody = std::exchange(client_.told, "");
    ASSERT_EQ(client_.connect(from(), nobody), TW_INPROGRESS);
    run_until([&] { return client_.is_over(); });
    EXPECT_EQ(client_.status, TW_ERR_UNREACHABLE);
    // Name servers may take longer than the connection's time.
    Client other;
    other.timeout_ns = kSoonNs;
    ASSERT_EQ(other.connect(from(), "no-such-host.invalid:7077"), TW_INPROGRESS);
    run_until([&] { return other.is_over(); });
    EXPECT_TRUE(other.status == TW_ERR_UNREACHABLE || other.status == TW_ERR_TIMED_OUT);
}

TEST_F(MsgListen, bad_input_is_refused) {
    for (const char* where :
         {"", "host", "host:", "host:99999", "::1:80", "host:-1", "1.2.3.4:x"}) {
        EXPECT_EQ(server_.listen(at(), where), TW_ERR_INVALID_PARAM) << where;
        EXPECT_EQ(client_.connect(from(), where), TW_ERR_INVALID_PARAM) << where;
    }
    EXPECT_EQ(client_.connect(from(), "127.0.0.1:0"), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(server_.listen(at(), "192.0.2.1:0"), TW_ERR_UNREACHABLE);
    client_.told.assign(TW_PRIVATE_BYTES_MAX + 1, 'x');
    EXPECT_EQ(client_.connect(from(), "127.0.0.1:1"), TW_ERR_INVALID_PARAM);
    client_.told.clear();
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    Server second;
    EXPECT_EQ(second.listen(at(), server_.address()), TW_ERR_BUSY);
    EXPECT_EQ(tw_listener_query(server_.listener, nullptr), TW_ERR_INVALID_PARAM);
    tw_listener_attr_t attr{};
    attr.struct_bytes = sizeof attr + 1;
    EXPECT_EQ(tw_listener_query(server_.listener, &attr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_listen(at().worker(), "1", nullptr, &server_.listener), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_connect(from().worker(), "1", nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_accept(nullptr, nullptr, &server_.ep), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_reject(nullptr, nullptr, 0), TW_ERR_INVALID_PARAM);
    tw_listener_destroy(nullptr);
    server_.answer = Server::Answer::kNone;
    ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
    run_until([&] { return server_.requests == 1; });
    server_.told.assign(TW_PRIVATE_BYTES_MAX + 1, 'x');
    const tw_conn_request_h request = server_.request;
    EXPECT_EQ(server_.accept(), TW_ERR_INVALID_PARAM);  // the request stays
    EXPECT_EQ(tw_reject(request, nullptr, 1), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_reject(request, server_.told.data(), TW_PRIVATE_BYTES_MAX), TW_OK);
    run_until([&] { return client_.is_over(); });
    EXPECT_EQ(client_.heard.size(), std::size_t{TW_PRIVATE_BYTES_MAX});
}

TEST_F(MsgListen, who_speaks_another_protocol_is_turned_away_alone) {
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    const std::string browser = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    Raw http(server_.address());
    http.send(browser.data(), browser.size());
    // A head that promises more than there may be, and one whose address is none.
    Raw long_one(server_.address()), wrong(server_.address());
    CmHead head{
        proto::kCmMagic, proto::kCmVersion, CmKind::kRequest, CmVerdict::kAccepted, 9999, 0};
    long_one.send(&head, sizeof head);
    head.address_bytes = 8;
    wrong.send(&head, sizeof head);
    wrong.send(&head, 8);
    run_until([&] { return http.has_ended() && long_one.has_ended() && wrong.has_ended(); });
    EXPECT_EQ(server_.requests, 0);
    // One of a later version is told which it is.
    Raw later(server_.address());
    head.version = proto::kCmVersion + 1;
    later.send(&head, sizeof head);
    run_until([&] { return later.has_something(); });
    EXPECT_FALSE(later.has_ended());
    expect_served();
}

TEST_F(MsgListen, who_says_nothing_keeps_nobody_out) {
    server_.timeout_ns = kSoonNs;
    server_.requests_max = 2;
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    const Raw silent[] = {Raw(server_.address()), Raw(server_.address()), Raw(server_.address())};
    const char byte = 't';
    silent[0].send(&byte, 1);
    expect_served();
    run_until([&] {
        return std::ranges::all_of(silent, [](const Raw& raw) { return raw.has_ended(); });
    });
}

TEST_F(MsgListen, replies_of_others_are_checked) {
    const CmHead good{
        proto::kCmMagic, proto::kCmVersion, CmKind::kReply, CmVerdict::kAccepted, 0, 0};
    CmHead head = good;
    head.magic = 1;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_CONNECTION_RESET);
    head = good;
    head.kind = CmKind::kRequest;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_CONNECTION_RESET);
    head = good;
    head.private_bytes = TW_PRIVATE_BYTES_MAX + 1;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_CONNECTION_RESET);
    head = good;
    head.verdict = static_cast<CmVerdict>(77);
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_CONNECTION_RESET);
    EXPECT_EQ(status_behind(good, sizeof good), TW_ERR_CONNECTION_RESET);  // an empty address
    EXPECT_EQ(status_behind(good, 5), TW_ERR_CONNECTION_RESET);            // an end in the middle
    head = good;
    head.version = proto::kCmVersion + 1;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_UNSUPPORTED);
    head = good;
    head.verdict = CmVerdict::kVersion;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_UNSUPPORTED);
    head.verdict = CmVerdict::kFailed;
    EXPECT_EQ(status_behind(head, sizeof head), TW_ERR_UNREACHABLE);
}

TEST_F(MsgListen, a_callback_may_end_its_listener) {
    static Server* server;
    server = &server_;
    tw_listen_params_t params{};
    params.request = [](void*, tw_conn_request_h request) {
        tw_listener_destroy(server->listener);
        server->request = request;
        server->status = server->accept();
    };
    ASSERT_EQ(tw_listen(at().worker(), "127.0.0.1:0", &params, &server_.listener), TW_OK);
    Raw unknown(server_.address());
    ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
    run_until([&] { return client_.is_over() && unknown.has_ended(); });
    EXPECT_EQ(client_.status, TW_OK);
}

TEST_F(MsgListen, a_worker_that_goes_takes_them_with_it) {
    server_.answer = Server::Answer::kNone;
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    const std::string address = server_.address();
    ASSERT_EQ(client_.connect(from(), address), TW_INPROGRESS);
    run_until([&] { return server_.requests == 1; });
    Raw unknown(address);
    at().progress();
    at().destroy();
    run_until([&] {
        from().progress();
        return client_.is_over() && unknown.has_ended();
    });
    EXPECT_EQ(client_.status, TW_ERR_CONNECTION_RESET);
    // ... and one that connects is never told.
    Raw silent;
    client_.status = TW_INPROGRESS;
    ASSERT_EQ(client_.connect(from(), silent.address()), TW_INPROGRESS);
    from().progress();
    from().destroy();
    EXPECT_FALSE(client_.is_over());
}

TEST_F(MsgListen, it_wakes_who_sleeps) {
    int fd = -1;
    const tw_status_t can_sleep = tw_worker_fd(at().worker(), &fd);
    if (can_sleep == TW_ERR_UNSUPPORTED)
        GTEST_SKIP() << "these transports cannot wake a sleeping thread";
    ASSERT_EQ(can_sleep, TW_OK);
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);  // behind the descriptor
    ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
    std::thread sleeper([&, worker = at().worker()] {
        while (server_.requests == 0) {
            if (tw_worker_progress(worker) > 0)
                continue;
            if (tw_worker_arm(worker) == TW_OK) {
                pollfd entry{fd, POLLIN, 0};
                ::poll(&entry, 1, -1);
            }
        }
    });
    Node& client = from();
    while (!client_.is_over()) {
        client.progress();
        std::this_thread::yield();
    }
    sleeper.join();
    EXPECT_EQ(client_.status, TW_OK);
}

}  // namespace
}  // namespace tagwire::test
