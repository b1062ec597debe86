// SPDX-License-Identifier: BSD-3-Clause
// A thousand peers of one worker over tcp: each is heard and gets a reply, and an idle one costs
// little memory. The report of the test has the time of an idle progress with one and with all.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <fstream>

#include "common/network.hpp"
#include "common/skip.hpp"
#include "protocols/members.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kCrowds = 4;
constexpr unsigned kOfEach = 250;
constexpr unsigned kPeers = kCrowds * kOfEach;
constexpr std::size_t kCrowdLengths[] = {100, 20'000};  // two messages of each peer
constexpr std::size_t kReply = 300;
constexpr std::uint64_t kReplyTag = ~std::uint64_t{0};
constexpr std::uint64_t kAnyTag = ~std::uint64_t{0};
constexpr rlim_t kDescriptors = 4096;
constexpr std::uint64_t kBytesOfPeerMax = 32 * 1024;

struct CrowdReport {
    std::uint64_t received = 0, wrong = 0, failures = 0;
    std::uint64_t bytes_before = 0, bytes_after = 0;  // of memory
    std::uint64_t idle_one_ns = 0, idle_all_ns = 0;   // processor time of a call of progress
};

bool raise_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < kDescriptors)
        return false;
    limit.rlim_cur = std::max(limit.rlim_cur, kDescriptors);
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::uint64_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t processor_ns() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

tw_context_h open_context() {
    raise_descriptors();
    setenv("TAGWIRE_TCP_DEVICES", "lo", 1);
    setenv("TAGWIRE_CALIBRATION", "none", 1);
    tw_context_params_t params{};
    params.transports = "tcp";
    tw_context_h context = nullptr;
    EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
    return context;
}

/// The worker that all others send to. A message's tag decides its length and content.
class Popular {
  public:
    Popular() : context_(open_context()), node_(std::make_unique<Node>(context_)) {
        for (Receive& receive : receives_)
            post(receive);
    }
    Popular(const Popular&) = delete;
    Popular& operator=(const Popular&) = delete;
    ~Popular() {
        node_.reset();
        tw_context_destroy(context_);
    }

    [[nodiscard]] Node& node() { return *node_; }
    CrowdReport report;

    /// Until so many have come in all, and the replies are gone.
    void serve(std::uint64_t messages, const Channel& control) {
        while ((report.received < messages || replies_ > 0) && !control.has_message()) {
            node_->progress();
            for (const tw_completion_t& done : std::exchange(node_->done, {}))
                take(done);
        }
        report.failures = node_->failures.size();
    }
    std::uint64_t idle_ns() {
        constexpr std::uint64_t kCalls = 50'000;
        for (std::uint64_t i = 0; i < kCalls; ++i)
            tw_worker_progress(node_->worker());
        const std::uint64_t before = processor_ns();
        for (std::uint64_t i = 0; i < kCalls; ++i)
            tw_worker_progress(node_->worker());
        return (processor_ns() - before) / kCalls;
    }

  private:
    struct Receive {
        Bytes bytes = Bytes(kCrowdLengths[1] + 1);
    };

    void post(Receive& receive) {
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        how.context = &receive;
        EXPECT_EQ(tw_tag_recv(node_->worker(), receive.bytes.data(), receive.bytes.size(), 0,
                              kAnyTag, &how, nullptr),
                  TW_INPROGRESS);
    }
    void take(const tw_completion_t& done) {
        if (done.context == &reply_) {
            --replies_;
            return;
        }
        auto& receive = *static_cast<Receive*>(done.context);
        const Bytes expected = pattern(kCrowdLengths[done.tag % 2], done.tag);
        const bool is_right = done.status == TW_OK && done.length == expected.size() &&
                              std::equal(expected.begin(), expected.end(), receive.bytes.begin());
        ++report.received;
        report.wrong += is_right ? 0 : 1;
        if (done.tag % 2 == 1)
            reply(done.source);
        post(receive);
    }
    void reply(std::uint64_t peer) {
        tw_ep_h ep = tw_ep_find(node_->worker(), peer);
        if (ep == nullptr) {
            EXPECT_EQ(tw_ep_create_to(node_->worker(), peer, nullptr, &ep), TW_OK);
        }
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        how.context = &reply_;
        EXPECT_GE(tw_tag_send(ep, reply_.data(), reply_.size(), kReplyTag, &how, nullptr), TW_OK);
        ++replies_;
    }

    tw_context_h context_;
    std::unique_ptr<Node> node_;
    Bytes reply_ = pattern(kReply, kReplyTag);
    unsigned replies_ = 0;  // that are under way
    std::vector<Receive> receives_{64};
};

void be_popular(const Channel& control) {
    Popular self;
    control.send(self.node().address());
    self.serve(2, control);
    self.report.idle_one_ns = self.idle_ns();
    self.report.bytes_before = resident_bytes();
    control.signal();
    self.serve(2 * kPeers, control);
    self.report.idle_all_ns = self.idle_ns();
    self.report.bytes_after = resident_bytes();
    control.send_value(self.report);
    control.await_signal();
}

/// One of the crowd.
struct Peer {
    explicit Peer(tw_context_h context) : node(context) {}
    void begin(const Bytes& address, std::uint64_t number) {
        const tw_ep_params_t params{
            .address = address.data(), .address_length = address.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        ASSERT_EQ(tw_ep_create(node.worker(), &params, &ep), TW_OK);
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        ASSERT_GE(tw_tag_recv(node.worker(), received.data(), received.size(), kReplyTag, 0, &how,
                              nullptr),
                  TW_OK);
        for (const std::uint64_t which : {0U, 1U}) {
            const std::uint64_t tag = 2 * number + which;
            sent.push_back(pattern(kCrowdLengths[which], tag));
            ASSERT_GE(tw_tag_send(ep, sent.back().data(), sent.back().size(), tag, &how, nullptr),
                      TW_OK);
        }
    }
    [[nodiscard]] bool is_over() const { return node.done.size() == 3; }
    [[nodiscard]] bool is_right() const {
        return node.failures.empty() && received == pattern(kReply, kReplyTag) &&
               std::ranges::all_of(
                   node.done, [](const tw_completion_t& done) { return done.status == TW_OK; });
    }

    Node node;
    Bytes received = Bytes(kReply);
    std::deque<Bytes> sent;
};

/// Some of the crowd, a first one before the others.
void be_crowd(const Channel& control, unsigned first) {
    tw_context_h context = open_context();
    const Bytes address = control.receive().value_or(Bytes{});
    std::deque<Peer> peers;
    const auto run = [&](unsigned count) {
        for (unsigned i = static_cast<unsigned>(peers.size()); i < count; ++i)
            peers.emplace_back(context).begin(address, first + i);
        while (!std::ranges::all_of(peers, &Peer::is_over) && !control.has_message())
            for (Peer& peer : peers)
                peer.node.progress();
    };
    if (first == 0)
        run(1);
    control.signal();
    control.await_signal();
    run(kOfEach);
    EXPECT_TRUE(std::ranges::all_of(peers, &Peer::is_right));
    control.signal();
    control.await_signal();
    peers.clear();
    tw_context_destroy(context);
}

TEST(MsgCrowd, a_thousand_peers_are_served_and_cost_little) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < kDescriptors)
        TW_SKIP("a process may not have 4096 descriptors");
    if (!enter_network_with_loopback())
        TW_SKIP("network namespaces cannot be made here");
    Child popular(be_popular);
    const auto address = popular.channel().receive();
    ASSERT_TRUE(address.has_value());
    std::deque<Child> crowds;
    for (unsigned i = 0; i < kCrowds; ++i)
        crowds.emplace_back([i](const Channel& control) { be_crowd(control, i * kOfEach); })
            .channel()
            .send(*address);
    for (Child& crowd : crowds)
        ASSERT_TRUE(crowd.channel().await_signal());
    ASSERT_TRUE(popular.channel().await_signal());
    for (Child& crowd : crowds)
        crowd.channel().signal();
    for (Child& crowd : crowds)
        ASSERT_TRUE(crowd.channel().await_signal());
    const auto report = popular.channel().receive_value<CrowdReport>();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->received, 2 * kPeers);
    EXPECT_EQ(report->wrong, 0U);
    EXPECT_EQ(report->failures, 0U);
    const std::uint64_t bytes = (report->bytes_after - report->bytes_before) / (kPeers - 1);
    EXPECT_LE(bytes, kBytesOfPeerMax);
    RecordProperty("bytes_of_peer", std::to_string(bytes));
    RecordProperty("idle_one_ns", std::to_string(report->idle_one_ns));
    RecordProperty("idle_all_ns", std::to_string(report->idle_all_ns));
    popular.channel().signal();
    for (Child& crowd : crowds)
        crowd.channel().signal();
    EXPECT_EQ(popular.join(), 0);
    for (Child& crowd : crowds)
        EXPECT_EQ(crowd.join(), 0);
}

}  // namespace
}  // namespace tagwire::test
