// SPDX-License-Identifier: BSD-3-Clause
// The control channel's TCP connection: clients of a listener that wants a token.
#include "tools/channel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

namespace tagwire::tools {
namespace {

TEST(Listener, client_without_the_token_is_sent_away) {
    const Listener listener(0, Listener::Reach::kThisHost);
    const Token token = make_token();
    ASSERT_NE(make_token(), token);
    std::thread clients([&] {
        const int nobody = connect_to("127.0.0.1", listener.port());
        close(nobody);
        const int other = connect_to("127.0.0.1", listener.port());
        show_token(other, make_token());
        char end = 0;
        EXPECT_LE(read(other, &end, 1), 0);
        close(other);
        const int client = connect_to("127.0.0.1", listener.port());
        show_token(client, token);
        EXPECT_EQ(write(client, "words", 5), 5);
        close(client);
    });
    const int fd = listener.accept_one(token);
    char words[6] = "";
    EXPECT_EQ(read(fd, words, 5), 5);
    EXPECT_STREQ(words, "words");
    close(fd);
    clients.join();
}

}  // namespace
}  // namespace tagwire::tools
