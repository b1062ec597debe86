// SPDX-License-Identifier: BSD-3-Clause
// The owner of memory is killed while others use it: in any phase each operation ends once.
#include <signal.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>

#include "common/child.hpp"
#include "protocols/rma_pair.hpp"
#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytes = 3'000'000;
constexpr std::uint64_t kKeyTag = 3;

/// Makes memory, sends its key, and dies after so many calls of progress that did something.
[[noreturn]] void be_owner(int to_parent, int from_parent, Shared::Kind kind, unsigned steps) {
    constexpr unsigned kCallsMax = 200'000;
    DoomedNode doomed(to_parent, from_parent, kill_transports());
    const Shared memory(doomed.context(), kBytes, kind);
    const std::string key = memory.packed();
    if (tw_tag_send(doomed.ep(), key.data(), key.size(), kKeyTag, nullptr, nullptr) < TW_OK)
        _exit(7);
    for (unsigned calls = 0; steps > 0 && calls < kCallsMax; ++calls)
        steps -= tw_worker_progress(doomed.node().worker()) > 0 ? 1 : 0;
    ::raise(SIGKILL);
    _exit(6);
}

/// Begins operations of all kinds and lengths; the number of those that go on.
class User {
  public:
    User(Node& node, tw_ep_h ep, tw_key_h key, std::uint64_t address)
        : node_(node), ep_(ep), key_(key), address_(address) {}

    void begin_all() {
        for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, kBytes}) {
            for (const std::uint32_t flags : {0U, unsigned{TW_OP_DELIVERY_COMPLETE}}) {
                const tw_op_t how = op(flags);
                begun(tw_put(ep_, data_.data(), length, address_, key_, &how, nullptr));
            }
            const tw_op_t how = op(0);
            begun(tw_get(ep_, read_.data(), length, address_, key_, &how, nullptr));
        }
        const tw_op_t how = op(0);
        begun(tw_atomic_fetch(ep_, TW_ATOMIC_ADD, TW_UINT64, &one_, &before_, address_, key_, &how,
                              nullptr));
        begun(tw_atomic_fetch(ep_, TW_ATOMIC_MAX, TW_INT32, &one_, &before_, address_, key_, &how,
                              nullptr));
        tw_stride_t stride{data_.data(), address_, 100, kBytes / 128, 128, 128, key_, nullptr};
        tw_list_t list{};
        list.strides = &strides_.emplace_back(stride);
        list.stride_count = 1;
        const tw_op_t whole = op(TW_OP_DELIVERY_COMPLETE);
        begun(tw_put_list(ep_, &list, &whole, nullptr));
        stride.local = read_.data();
        list.strides = &strides_.emplace_back(stride);
        begun(tw_get_list(ep_, &list, &how, nullptr));
        const tw_op_t fenced = op(TW_OP_FENCE);
        begun(tw_put(ep_, data_.data(), 8, address_, key_, &fenced, nullptr));
        const tw_op_t flush = op(0);
        begun(tw_ep_flush(ep_, TW_FLUSH_DELIVERED, &flush, nullptr));
    }
    std::size_t expected() const { return expected_; }

  private:
    static tw_op_t op(std::uint32_t flags) {
        tw_op_t how{};
        how.flags = flags | TW_OP_COMPLETION;
        return how;
    }
    void begun(tw_status_t status) {
        expected_ += status == TW_INPROGRESS ? 1U : 0U;
        for (int i = 0; i < 3; ++i)
            node_.progress();
    }

    Node& node_;
    tw_ep_h ep_;
    tw_key_h key_;
    std::uint64_t address_;
    std::deque<tw_stride_t> strides_;
    Bytes data_ = pattern(kBytes, 1);
    Bytes read_ = Bytes(kBytes);
    std::uint64_t one_ = 1, before_ = 0;
    std::size_t expected_ = 0;
};

class MsgRmaKill : public ::testing::TestWithParam<unsigned> {};

TEST_P(MsgRmaKill, each_operation_ends_once_when_the_owner_of_the_memory_is_killed) {
    TW_SKIP_FORK_BESIDE_THREADS();
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Victim victim([&](int to_parent, int from_parent) {
            be_owner(to_parent, from_parent, kind, GetParam());
        });
        tw_context_params_t params{};
        params.transports = kill_transports();
        tw_context_h context = nullptr;
        ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
        {
            Node node(context);
            const Bytes theirs = victim.start(node.address());
            tw_ep_params_t ep_params{};
            ep_params.address = theirs.data();
            ep_params.address_length = theirs.size();
            tw_ep_h ep = nullptr;
            if (tw_ep_create(node.worker(), &ep_params, &ep) == TW_OK) {
                std::array<char, TW_KEY_BYTES_MAX> packed{};
                tw_op_t how{};
                how.context = &packed;
                how.flags = TW_OP_COMPLETION;
                how.source = ep;
                ASSERT_EQ(tw_tag_recv(node.worker(), packed.data(), packed.size(), kKeyTag, 0, &how,
                                      nullptr),
                          TW_INPROGRESS);
                while (node.done.empty())
                    node.progress();
                const tw_completion_t came = node.done.front();
                node.done.clear();
                tw_key_h key = nullptr;
                if (came.status == TW_OK &&
                    tw_key_unpack(node.worker(), packed.data(), came.length, &key) == TW_OK) {
                    tw_key_attr_t attr{};
                    ASSERT_EQ(tw_key_query(key, &attr), TW_OK);
                    User user(node, ep, key, attr.address);
                    for (int i = 0; i < 4; ++i)
                        user.begin_all();
                    while (node.failures.empty() || node.done.size() < user.expected())
                        node.progress();
                    for (int i = 0; i < 100; ++i)
                        node.progress();
                    EXPECT_EQ(node.done.size(), user.expected());
                    EXPECT_EQ(node.failures.size(), 1U);
                    tw_key_free(key);
                }
            }
        }
        victim.kill();
        tw_context_destroy(context);
    }
}

INSTANTIATE_TEST_SUITE_P(Steps, MsgRmaKill, ::testing::Values(3U, 6U, 10U, 20U, 40U));

}  // namespace
}  // namespace tagwire::test
