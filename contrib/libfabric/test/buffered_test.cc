// SPDX-License-Identifier: BSD-3-Clause
// Buffered receives and variable messages.
#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::size_t kLimit = 1000;
constexpr std::size_t kMin = 100;

/// The parameter: by mode, or by capability.
class FiBuffered : public Pair, public testing::WithParamInterface<bool> {
  protected:
    void open_buffered() {
        Wanted wanted;
        if (GetParam())
            wanted.caps |= FI_VARIABLE_MSG;
        else
            wanted.mode = kBufferedRecv;
        open(wanted);
    }

    void set(int option, std::size_t value) {
        EXPECT_EQ(fi_setopt(&extra_->fid, FI_OPT_ENDPOINT, option, &value, sizeof value), 0);
    }

    std::size_t get(int option) {
        std::size_t value = 0;
        std::size_t length = sizeof value;
        EXPECT_EQ(fi_getopt(&extra_->fid, FI_OPT_ENDPOINT, option, &value, &length), 0);
        return value;
    }

    void send(const Text& text) {
        retry(
            [&] { return fi_send(a.ep.get(), text.data(), text.size(), nullptr, to_b, nullptr); });
    }

    ssize_t claim(Text& text, std::uint64_t flags, void* context) {
        const iovec iov = {text.data(), text.size()};
        const fi_msg msg{&iov, nullptr, 1, FI_ADDR_UNSPEC, context, 0};
        return fi_recvmsg(b.ep.get(), &msg, flags);
    }

    Owner<fid_ep> extra_;
};

TEST_P(FiBuffered, a_message_is_shown_without_a_receive_and_claimed) {
    open_buffered();
    int mark = 0;
    for (const std::size_t length : {0UL, 10UL, 500000UL}) {
        const Text text(length, 'm');
        send(text);
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        const auto shown = next(b.rx, &source);
        EXPECT_EQ(shown.flags & ~std::uint64_t{FI_MORE}, std::uint64_t{FI_MSG | FI_RECV});
        EXPECT_EQ((shown.flags & FI_MORE) != 0, length > 100000);
        EXPECT_EQ(shown.len, length);
        EXPECT_EQ(source, to_a);
        if (length > 0) {
            EXPECT_EQ(*static_cast<const char*>(shown.buf), 'm');
        }
        auto* record = static_cast<fi_recv_context*>(shown.op_context);
        EXPECT_EQ(record->ep, b.ep.get());
        EXPECT_EQ(record->context, nullptr);
        record->context = &mark;
        Text got(length, ' ');
        ASSERT_EQ(claim(got, FI_CLAIM, record), 0);
        const auto claimed = next(b.rx);
        EXPECT_EQ(claimed.op_context, &mark);
        EXPECT_EQ(claimed.flags, std::uint64_t{FI_MSG | FI_RECV | FI_CLAIM});
        EXPECT_EQ(claimed.len, length);
        EXPECT_EQ(got, text);
        EXPECT_LT(claim(got, FI_CLAIM, record), 0) << "only once";
    }
}

TEST_P(FiBuffered, a_shown_message_is_discarded) {
    open_buffered();
    for (const std::uint64_t flags : {FI_DISCARD, FI_CLAIM | FI_DISCARD}) {
        send("to be dropped");
        const auto shown = next(b.rx);
        Text none;
        ASSERT_EQ(claim(none, flags, shown.op_context), 0);
        EXPECT_TRUE(is_empty(b.rx));
    }
}

TEST_P(FiBuffered, tags_are_posted_and_their_messages_shown) {
    open_buffered();
    int mark = 0;
    Text ignored(1, ' ');
    for (const bool is_expected : {true, false}) {
        if (is_expected)
            trecv(ignored, 5, 0, &mark);
        tsend("of some length", 5);
        run_some();
        if (!is_expected)
            trecv(ignored, 5, 0, &mark);
        const auto shown = next(b.rx);
        EXPECT_EQ(shown.flags, std::uint64_t{FI_TAGGED | FI_RECV});
        EXPECT_EQ(shown.tag, 5U);
        EXPECT_EQ(shown.len, 14U);
        auto* record = static_cast<fi_recv_context*>(shown.op_context);
        EXPECT_EQ(record->ep, nullptr);
        EXPECT_EQ(record->context, &mark);
        Text got(14, ' ');
        ASSERT_EQ(trecvmsg(got, 0, FI_CLAIM, record), 0);
        EXPECT_EQ(next(b.rx).op_context, &mark);
        EXPECT_EQ(got, "of some length");
    }
}

TEST_P(FiBuffered, an_untagged_receive_has_no_place) {
    open_buffered();
    Text got(4, ' ');
    EXPECT_EQ(fi_recv(b.ep.get(), got.data(), 4, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EINVAL);
}

TEST_P(FiBuffered, limits_are_set_before_an_endpoint_is_enabled) {
    open_buffered();
    fid_ep* made = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &made, nullptr), 0);
    extra_.reset(made);
    set(FI_OPT_BUFFERED_LIMIT, kLimit);
    set(FI_OPT_BUFFERED_MIN, kMin);
    EXPECT_EQ(get(FI_OPT_BUFFERED_LIMIT), kLimit);
    EXPECT_EQ(get(FI_OPT_BUFFERED_MIN), kMin);
    const std::size_t too_large = kLimit + 1;
    EXPECT_EQ(
        fi_setopt(&made->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &too_large, sizeof too_large),
        -FI_EMSGSIZE);
    EXPECT_EQ(
        fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &too_large, sizeof too_large),
        -FI_EOPBADSTATE);
    set(FI_OPT_BUFFERED_LIMIT, SIZE_MAX);
    EXPECT_GT(get(FI_OPT_BUFFERED_LIMIT), 1U << 20);
}

INSTANTIATE_TEST_SUITE_P(, FiBuffered, testing::Bool(),
                         [](const auto& param) { return param.param ? "variable" : "mode"; });

}  // namespace

}  // namespace tagwire::fi_test
