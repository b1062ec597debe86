// SPDX-License-Identifier: BSD-3-Clause
// Messages that the control channel accepts from the other side, and those that it refuses.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "tools/channel.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using namespace tools;

struct Wire {
    Wire() {
        int fds[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        ours = std::make_unique<Channel>(fds[0]);
        raw = fds[1];
    }
    ~Wire() {
        if (raw >= 0)
            close(raw);
    }
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    void write(const std::string& bytes) const {
        EXPECT_EQ(::write(raw, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }

    std::unique_ptr<Channel> ours;
    int raw = -1;
};

std::string failure_of(Channel& channel) {
    try {
        channel.receive(2000);
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

TEST(Channel, carries_messages) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Channel a(fds[0]);
    Channel b(fds[1]);
    Encoder message;
    a.send(MessageType::kJob, message.number(~std::uint64_t{0}).string("sm"));
    Decoder got = b.expect(MessageType::kJob);
    EXPECT_EQ(got.number(), ~std::uint64_t{0});
    EXPECT_EQ(got.string(16), "sm");
    EXPECT_NO_THROW(got.end());
}

TEST(Channel, refuses_what_is_not_tagwire) {
    const Wire wire;
    wire.write("GET / HTTP/1.1\r\n\r\n");
    EXPECT_NE(failure_of(*wire.ours).find("is not tagwire"), std::string::npos);
}

TEST(Channel, refuses_another_version) {
    const Wire wire;
    wire.write(std::string("TWPC\x63\0\1\0\0\0\0\0\0\0\0\0", 16));
    EXPECT_NE(failure_of(*wire.ours).find("version 99"), std::string::npos);
}

TEST(Channel, refuses_a_giant_message) {
    const Wire wire;
    wire.write(std::string("TWPC\3\0\1\0\xff\xff\xff\xff\0\0\0\0", 16));
    EXPECT_NE(failure_of(*wire.ours).find("malformed"), std::string::npos);
}

TEST(Channel, refuses_damaged_bytes) {
    const Wire wire;
    wire.write(std::string("TWPC\3\0\1\0\1\0\0\0\0\0\0\0x", 17));
    EXPECT_NE(failure_of(*wire.ours).find("damaged"), std::string::npos);
}

TEST(Channel, tells_the_end_of_the_peer) {
    Wire wire;
    close(wire.raw);
    wire.raw = -1;
    EXPECT_TRUE(wire.ours->stalled());
    EXPECT_NE(failure_of(*wire.ours).find("ended"), std::string::npos);
}

TEST(Channel, passes_on_the_error_of_the_peer) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    Channel a(fds[0]);
    Channel b(fds[1]);
    Encoder message;
    a.send(MessageType::kError, message.string("no such device"));
    EXPECT_EQ(failure_of(b), "peer: no such device");
}

TEST(Decoder, refuses_short_and_long_messages) {
    Encoder message;
    message.number(1);
    Decoder twice(message.bytes());
    twice.number();
    EXPECT_THROW(twice.number(), Failure);
    const Decoder unread(message.bytes());
    EXPECT_THROW(unread.end(), Failure);
}

TEST(Decoder, refuses_strings_that_do_not_belong_on_a_terminal) {
    Encoder message;
    message.string("\033[2J");
    EXPECT_THROW(Decoder(message.bytes()).string(16), Failure);
}

TEST(Job, survives_the_wire) {
    Job job;
    job.test = TestId::kTagRate;
    job.op = Op::kRndv;
    job.size = 65536;
    job.window = 3;
    job.validate = true;
    job.data = DataKind::kFresh;
    const Job copy = Job::decode(Decoder(job.encode().bytes()));
    EXPECT_EQ(copy.test, job.test);
    EXPECT_EQ(copy.op, job.op);
    EXPECT_EQ(copy.size, job.size);
    EXPECT_EQ(copy.window, job.window);
    EXPECT_TRUE(copy.validate);
    EXPECT_EQ(copy.data, DataKind::kFresh);
    EXPECT_FALSE(copy.bidir);
}

TEST(Job, with_impossible_values_is_refused) {
    Job job;
    job.window = 0;
    EXPECT_THROW(Job::decode(Decoder(job.encode().bytes())), Failure);
    Encoder unknown_test;
    unknown_test.number(99);
    EXPECT_THROW(Job::decode(Decoder(unknown_test.bytes())), Failure);
}

}  // namespace
}  // namespace tagwire::test
