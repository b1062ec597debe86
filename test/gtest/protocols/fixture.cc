// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "common/nomem.hpp"

namespace tagwire::test {

namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // then it hangs
constexpr int kRoundsPerLook = 1024;
constexpr int kSomeRounds = 2000;

}  // namespace

Bytes pattern(std::size_t length, std::uint64_t seed) {
    Bytes bytes(length);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = static_cast<std::byte>((i * 131 + seed * 7 + (i >> 8)) & 0xff);
    return bytes;
}

Node::Node(tw_context_h context, tw_thread_mode_t mode) {
    tw_worker_params_t params{};
    params.thread_mode = mode;
    params.ep_failed = [](void* arg, tw_ep_h ep, tw_status_t status) {
        static_cast<Node*>(arg)->failures.emplace_back(ep, status);
    };
    params.ep_failed_arg = this;
    params.peer_event = [](void* arg, std::uint64_t id, tw_peer_event_t event, tw_status_t status) {
        static_cast<Node*>(arg)->events.push_back({id, event, status});
    };
    params.peer_event_arg = this;
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context, &params, &worker), TW_OK);
    worker_.reset(worker);
}

Node::Node(tw_context_h context, const tw_worker_params_t& params) {
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context, &params, &worker), TW_OK);
    worker_.reset(worker);
}

Bytes Node::address() const {
    Bytes bytes(TW_ADDRESS_BYTES_MAX);
    std::size_t length = bytes.size();
    EXPECT_EQ(tw_worker_address(worker(), bytes.data(), &length), TW_OK);
    bytes.resize(length);
    return bytes;
}

std::uint64_t Node::id() const {
    tw_worker_attr_t attr{};
    EXPECT_EQ(tw_worker_query(worker(), &attr), TW_OK);
    return attr.id;
}

tw_ep_h Node::to(Node& other) {
    if (tw_ep_h ep = tw_ep_find(worker(), other.id()))
        return ep;
    const Bytes address = other.address();
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = &other};
    tw_ep_h ep = nullptr;
    EXPECT_EQ(tw_ep_create(worker(), &params, &ep), TW_OK);
    return ep;
}

void Node::progress() {
    if (worker_ == nullptr)
        return;
    {
        const NoMemory failing(nomem::Where::kOutside);
        tw_worker_progress(worker());
    }
    tw_completion_t polled[16];
    while (const unsigned count = tw_worker_poll(worker(), polled, 16))
        done.insert(done.end(), polled, polled + count);
}

std::uint64_t Node::counter(const std::string& name) const {
    tw_worker_counter_t counters[64];
    unsigned count = 64;
    EXPECT_EQ(tw_worker_counters(worker(), counters, &count), TW_OK);
    for (unsigned i = 0; i < count; ++i)
        if (name == counters[i].name)
            return counters[i].value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

std::string Node::description() const {
    std::string text;
    const auto add = [](void* arg, const char* key, const char* value) {
        *static_cast<std::string*>(arg) += std::string(key) + ": " + value + "\n";
    };
    if (worker_ != nullptr)
        tw_worker_describe(worker(), add, &text);
    return text;
}

Settings::Settings(std::initializer_list<std::pair<std::string, std::string>> values) {
    for (const auto& [name, value] : values) {
        const char* before = std::getenv(name.c_str());
        before_.emplace_back(name,
                             before == nullptr ? std::nullopt : std::optional<std::string>(before));
        ::setenv(name.c_str(), value.c_str(), 1);
    }
}

Settings::~Settings() {
    for (const auto& [name, value] : before_)
        if (value)
            ::setenv(name.c_str(), value->c_str(), 1);
        else
            ::unsetenv(name.c_str());
}

std::string MsgTest::transports() {
    const char* named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
    return named == nullptr ? "sm" : named;
}

std::string MsgTest::lane_transport() {
    const std::string named = transports();
    const std::string first = named.substr(0, named.find(','));
    return first == "auto" ? "sm" : first;
}

bool MsgTest::offloads() {
    const char* offload = std::getenv("TAGWIRE_TAG_OFFLOAD");
    return offload != nullptr && std::string_view(offload) == "y";
}

MsgTest::MsgTest() {
    renew_context();
}

void MsgTest::renew_context() {
    nodes_.clear();
    context_.reset();
    const std::string named = transports();
    tw_context_params_t params{};
    params.transports = named.c_str();
    tw_context_h context = nullptr;
    EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
    context_.reset(context);
}

Node& MsgTest::node(std::size_t i) {
    while (nodes_.size() <= i)
        nodes_.push_back(std::make_unique<Node>(context_.get()));
    return *nodes_[i];
}

void MsgTest::run_until(const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (int round = 0; round % kRoundsPerLook != 0 || std::chrono::steady_clock::now() < end;
         round = (round + 1) % kRoundsPerLook) {
        if (is_over())
            return;
        for (const auto& node : nodes_)
            node->progress();
    }
    std::string state;
    for (const auto& node : nodes_)
        state += node->description();
    FAIL() << "it did not end\n" << state;
}

void MsgTest::run_some() {
    for (int round = 0; round < kSomeRounds; ++round)
        for (const auto& node : nodes_)
            node->progress();
}

tw_completion_t MsgTest::end_of(Node& node, const void* context) {
    const auto is_it = [&](const tw_completion_t& done) { return done.context == context; };
    run_until([&] { return std::ranges::any_of(node.done, is_it); });
    const auto found = std::ranges::find_if(node.done, is_it);
    if (found == node.done.end())
        return {};
    const tw_completion_t done = *found;
    node.done.erase(found);
    return done;
}

tw_op_t MsgTest::op(void* context, std::uint32_t flags) {
    tw_op_t result{};
    result.context = context;
    result.flags = flags | TW_OP_COMPLETION;
    return result;
}

void MsgTest::send(Node& from, Node& to, const Bytes& data, std::uint64_t tag,
                   std::uint32_t flags) {
    int mark = 0;
    const tw_op_t how = op(&mark, flags);
    ASSERT_EQ(tw_tag_send(from.to(to), data.data(), data.size(), tag, &how, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(end_of(from, &mark).status, TW_OK);
}

void MsgTest::send_unexpected(Node& from, Node& to, const Bytes& data, std::uint64_t tag,
                              const tw_op_t& how) {
    const std::uint64_t before = to.counter("rx_unexpected");
    ASSERT_EQ(tw_tag_send(from.to(to), data.data(), data.size(), tag, &how, nullptr),
              TW_INPROGRESS);
    run_until([&] { return to.counter("rx_unexpected") > before; });
}

void MsgTest::expect_message(Node& at, const Bytes& data, std::uint64_t tag) {
    int mark = 0;
    const tw_op_t how = op(&mark);
    Bytes received(data.size());
    ASSERT_EQ(tw_tag_recv(at.worker(), received.data(), received.size(), tag, 0, &how, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(end_of(at, &mark).status, TW_OK);
    EXPECT_EQ(received, data);
}

}  // namespace tagwire::test
