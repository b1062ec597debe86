// SPDX-License-Identifier: BSD-3-Clause
// The programs of a server and a client that connect by host and port.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include "protocols/fixture.hpp"

namespace tagwire::test {

/// A listener, and its program.
struct Server {
    enum class Answer { kAccept, kReject, kNone };

    static void on_request(void* arg, tw_conn_request_h request) {
        Server& server = *static_cast<Server*>(arg);
        tw_conn_request_attr_t attr{};
        ASSERT_EQ(tw_conn_request_query(request, &attr), TW_OK);
        server.peer = attr.peer;
        server.worker_id = attr.worker_id;
        server.heard.assign(static_cast<const char*>(attr.private_data), attr.private_length);
        EXPECT_EQ(attr.listener, server.listener);
        server.request = request;
        ++server.requests;
        if (server.answer == Answer::kAccept)
            server.status = server.accept();
        if (server.answer == Answer::kReject)
            server.status = tw_reject(request, server.told.data(), server.told.size());
    }
    tw_status_t accept() {
        tw_accept_params_t params{};
        params.private_data = told.data();
        params.private_length = told.size();
        params.user_data = this;
        return tw_accept(std::exchange(request, nullptr), &params, &ep);
    }
    tw_status_t listen(const Node& at, const std::string& where) {
        tw_listen_params_t params{};
        params.request = on_request;
        params.arg = this;
        params.timeout_ns = timeout_ns;
        params.requests_max = requests_max;
        return tw_listen(at.worker(), where.c_str(), &params, &listener);
    }
    std::string address() const {
        tw_listener_attr_t attr{};
        EXPECT_EQ(tw_listener_query(listener, &attr), TW_OK);
        return attr.address;
    }

    Answer answer = Answer::kAccept;
    std::string told;
    std::uint64_t timeout_ns = 0;
    unsigned requests_max = 0;
    tw_listener_h listener = nullptr;
    tw_conn_request_h request = nullptr;
    tw_ep_h ep = nullptr;
    tw_status_t status = TW_INPROGRESS;
    int requests = 0;
    std::string peer, heard;
    std::uint64_t worker_id = 0;
};

struct Client {
    static void on_connected(void* arg, tw_ep_h ep, tw_status_t status, const void* data,
                             std::size_t length) {
        Client& client = *static_cast<Client*>(arg);
        EXPECT_EQ(std::exchange(client.status, status), TW_INPROGRESS) << "reported twice";
        client.ep = ep;
        client.heard.assign(static_cast<const char*>(data), length);
    }
    tw_status_t connect(const Node& from, const std::string& where) {
        tw_connect_params_t params{};
        params.connected = on_connected;
        params.arg = this;
        params.private_data = told.data();
        params.private_length = told.size();
        params.user_data = this;
        params.timeout_ns = timeout_ns;
        return tw_ep_connect(from.worker(), where.c_str(), &params);
    }
    bool is_over() const { return status != TW_INPROGRESS; }

    std::string told;
    std::uint64_t timeout_ns = 0;
    tw_ep_h ep = nullptr;
    tw_status_t status = TW_INPROGRESS;
    std::string heard;
};

class ListenTest : public MsgTest {
  protected:
    Node& at() { return node(0); }
    Node& from() { return node(1); }
    /// The server has the node `at`, and the client, which has `from`, is over.
    void connect(const std::string& where = "127.0.0.1:0") {
        ASSERT_EQ(server_.listen(at(), where), TW_OK);
        ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
        run_until([&] { return client_.is_over(); });
    }
    void expect_served() {
        Client client;
        server_.answer = Server::Answer::kAccept;
        ASSERT_EQ(client.connect(from(), server_.address()), TW_INPROGRESS);
        run_until([&] { return client.is_over(); });
        EXPECT_EQ(client.status, TW_OK);
    }

    Server server_;
    Client client_;
};

}  // namespace tagwire::test
