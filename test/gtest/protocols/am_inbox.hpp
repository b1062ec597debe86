// SPDX-License-Identifier: BSD-3-Clause
// Active messages: a handler that uses, keeps, receives or drops its messages.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>

#include "protocols/pair_test.hpp"

namespace tagwire::test {

inline constexpr std::size_t kAmKinds[] = {0, kShort, kEager, kParts, kRndv};
inline constexpr unsigned kAmId = 7;

enum class Act : std::uint8_t { kUse, kKeep, kReceive, kDrop };

/// The handler of an id, and the messages that it has seen.
class AmInbox {
  public:
    struct Message {
        Bytes header;
        Bytes data;  // where it was there, or is received into
        bool is_rndv;
        std::size_t length;
        std::uint64_t source;
        tw_ep_h ep;
        const void* kept_header = nullptr;
        const void* kept_data = nullptr;
        tw_message_h message = nullptr;
    };

    AmInbox(Node& at, unsigned id, Act act = Act::kReceive) : at_(at), act_(act) {
        EXPECT_EQ(tw_am_register(at.worker(), id, &AmInbox::take, this), TW_OK);
    }
    AmInbox(const AmInbox&) = delete;
    AmInbox& operator=(const AmInbox&) = delete;

    std::deque<Message> seen;
    std::size_t received = 0;  // rendezvous whose data is here
    std::function<void(const tw_am_t&)> also;

    /// Every message that has come is here.
    bool has(std::size_t count) const { return seen.size() - pending_ >= count; }
    void release(Message& message) {
        EXPECT_EQ(tw_message_drop(at_.worker(), message.message), TW_OK);
        message.message = nullptr;
    }

  private:
    static Bytes bytes_of(const void* from, std::size_t length) {
        const auto* bytes = static_cast<const std::byte*>(from);
        return {bytes, bytes + length};
    }
    static void take(void* arg, tw_am_t* am) { static_cast<AmInbox*>(arg)->take(*am); }
    void take(tw_am_t& am) {
        const bool is_rndv = (am.flags & TW_AM_RNDV) != 0;
        EXPECT_EQ(is_rndv, am.data == nullptr);
        EXPECT_EQ(am.worker, at_.worker());
        seen.push_back({bytes_of(am.header, am.header_length),
                        is_rndv ? Bytes(am.length) : bytes_of(am.data, am.length), is_rndv,
                        am.length, am.source, am.ep});
        Message& message = seen.back();
        if (act_ == Act::kKeep) {
            EXPECT_EQ(tw_am_keep(&am, &message.message), TW_OK);
            EXPECT_EQ(am.message, message.message);
            message.kept_header = am.header;
            message.kept_data = am.data;
        } else if (act_ == Act::kReceive && is_rndv) {
            receive(am);
        }
        if (also)
            also(am);
    }
    void receive(const tw_am_t& am) {
        ++pending_;
        tw_op_t how{};
        how.context = this;
        how.flags = TW_OP_COMPLETION;
        how.complete = [](const tw_completion_t* done) {
            EXPECT_EQ(done->status, TW_OK);
            EXPECT_NE(done->flags & TW_DONE_AM, 0U);
            auto& inbox = *static_cast<AmInbox*>(done->context);
            --inbox.pending_;
            ++inbox.received;
        };
        Bytes& data = seen.back().data;
        EXPECT_EQ(tw_message_recv(am.worker, am.message, data.data(), data.size(), &how, nullptr),
                  TW_INPROGRESS);
    }

    Node& at_;
    const Act act_;
    std::size_t pending_ = 0;
};

class MsgAm : public PairTest {
  protected:
    /// Starts to send; its end is reported with `mark`.
    static void begin(Node& from, Node& to, const Bytes& header, const Bytes& data, int* mark,
                      std::uint32_t flags = 0, unsigned id = kAmId) {
        const tw_op_t how = op(mark, flags);
        ASSERT_EQ(tw_am_send(from.to(to), id, header.data(), header.size(), data.data(),
                             data.size(), &how, nullptr),
                  TW_INPROGRESS);
    }
    /// ... as a program that asks for nothing does, again until it may.
    void send_plainly(Node& from, Node& to, const Bytes& header, const Bytes& data,
                      unsigned id = kAmId) {
        const Bytes& stays = plain_.emplace_back(data);
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = tw_am_send(from.to(to), id, header.data(), header.size(), stays.data(),
                                stays.size(), nullptr, nullptr);
            return status != TW_ERR_NO_RESOURCE;
        });
        EXPECT_GE(status, TW_OK);
    }
    static bool keeps_nothing(const Node& at) {
        return at.description().find("unexpected: 0 messages in 0 bytes") != std::string::npos;
    }
    Node& from() { return node(0); }
    Node& to() { return node(1); }

  private:
    std::deque<Bytes> plain_;  // until the worker has gone
};

}  // namespace tagwire::test
