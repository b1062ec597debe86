// SPDX-License-Identifier: BSD-3-Clause
// Tag matching by device and software together, against a matcher that takes the completions of the
// CQ one by one: several senders, a fabric that loses and repeats, software that polls late.
//
// The software is a minimal message-passing library: it searches the unexpected messages before it
// adds a receive, says with its operations how many unexpected messages it has dealt with, and
// takes a receive back from the device when an unexpected message matches it.
#include <algorithm>
#include <deque>

#include "common/seeds.hpp"
#include "vhca/test/core/tag_world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kSenders = 3, kMessages = 20, kAll = kSenders * kMessages;
constexpr std::size_t kReceives = 60, kBufferBytes = 4000;
constexpr std::size_t kEagerMax = 3000, kDataMax = 6000;
constexpr std::uint64_t kTags = 4;
static_assert(kEagerMax < kBufferBytes && kBufferBytes < kDataMax, "some data do not fit");
static_assert(TagWorld::kTaggedAt + kReceives * kBufferBytes <= TagWorld::kMemoryBytes);
static_assert(TagWorld::kMessagesBytes + kAll * kDataMax <= TagWorld::kFinsAt);
static_assert(kAll * (kEagerMax + kTagHeaderBytes) <= TagWorld::kMessagesBytes);
constexpr std::uint64_t kOperation = 1 << 20;  // wr_id of operations

struct Message {
    TagOpcode opcode;
    std::uint64_t tag;
    std::string wire, data;  // what is sent; what the receiver wants in the end

    [[nodiscard]] bool is_rendezvous() const { return opcode == TagOpcode::kRendezvous; }
};

struct Receive {
    std::uint64_t tag, mask;
    std::uint32_t handle;
    const Message* message = nullptr;  // it matched

    [[nodiscard]] bool matches(const Message& arrived) const { return (arrived.tag & mask) == tag; }
};

/// Counts of the tested events, over all seeds.
struct Totals {
    std::size_t matched = 0, read = 0, incomplete = 0, unexpected = 0, taken_back = 0, refused = 0;
};

TagOptions tag_options_of(std::uint64_t seed) {
    SimRandom random(seed);
    TagOptions options;
    options.senders = kSenders;
    options.tags_max = 1 + static_cast<std::uint32_t>(random.below(12));
    options.ops_max = 128;
    options.untagged = 3;
    options.world.seed = seed;
    options.world.fabric.loss = random.chance(0.7) ? 0.04 : 0;
    options.world.fabric.duplication = random.chance(0.5) ? 0.05 : 0;
    options.world.fabric.delay_max = 1000 + random.below(4000);
    options.world.fabric.reorders_path = random.chance(0.3);
    options.world.connection.mtu = random.chance(0.5) ? IBV_MTU_256 : IBV_MTU_1024;
    options.world.connection.timeout = 6;
    return options;
}

class Run {
  public:
    explicit Run(std::uint64_t seed) : world_(tag_options_of(seed)), random_(seed + 99) {
        for (std::size_t i = 0; i < kAll; ++i)
            messages_.push_back(make_message(i));
    }

    [[nodiscard]] bool is_done() const { return seen_ == kAll && under_way_ == 0; }

    void step() {
        if (random_.chance(0.5))
            send_one();
        if (random_.chance(0.4))
            post_receive();
        if (random_.chance(0.1))
            operate({});
        world_.fabric.step();
        poll_sender();
        for (std::size_t count = random_.chance(0.5) ? random_.below(4) : 0; count != 0; --count)
            if (const auto completion = world_.poll_tags())
                take(*completion);
        if (!empty_slots_.empty() && random_.chance(0.5)) {
            ASSERT_EQ(world_.post_untagged(empty_slots_.front()), 0);
            empty_slots_.pop_front();
        }
    }

    void check_end(Totals* totals) {
        world_.settle();
        while (const auto completion = world_.poll_tags())
            take(*completion);
        poll_sender();
        EXPECT_EQ(fins_, read_by_device_) << "one FIN for each";
        EXPECT_TRUE(world_.b.cq->is_empty());
        totals->matched += totals_.matched;
        totals->read += read_by_device_;
        totals->incomplete += totals_.incomplete;
        totals->unexpected += dealt_with_;
        totals->taken_back += totals_.taken_back;
        totals->refused += world_.a.device.counters().rnr_naks;
    }

    [[nodiscard]] std::string describe() const {
        return "seen " + std::to_string(seen_) + " under way " + std::to_string(under_way_) +
               " receives " + std::to_string(receives_.size());
    }

  private:
    Message make_message(std::size_t index) {
        static constexpr TagOpcode kOpcodes[] = {TagOpcode::kEager, TagOpcode::kEager,
                                                 TagOpcode::kRendezvous, TagOpcode::kNoTag};
        const TagOpcode opcode =
            random_.chance(0.1) ? TagOpcode::kNoTag : kOpcodes[random_.below(3)];
        const bool is_rendezvous = opcode == TagOpcode::kRendezvous;
        const std::size_t bytes = is_rendezvous         ? random_.below(kDataMax)
                                  : random_.chance(0.5) ? random_.below(100)
                                                        : random_.below(kEagerMax);
        Message message{opcode, random_.below(kTags), {}, std::string(bytes, ' ')};
        std::generate(message.data.begin(), message.data.end(),
                      [this] { return static_cast<char>(random_.next() >> 56); });
        if (is_rendezvous) {
            world_.a.write(TagWorld::kMessagesBytes + index * kDataMax, message.data);
            message.wire = world_.rendezvous(message.tag, index * kDataMax, bytes);
        } else {
            message.wire = TagWorld::header(opcode, message.tag) + message.data;
        }
        return message;
    }

    void send_one() {
        const std::size_t sender = random_.below(kSenders);
        if (sent_[sender] != kMessages) {
            const Message& message = messages_[sender * kMessages + sent_[sender]++];
            ASSERT_EQ(world_.send_message(message.wire, {}, sender), 0);
        }
    }

    int operate(TagWork work) {
        const bool is_needed = ++operations_ % 8 == 0;  // a queue nobody polls stays full
        work.wr_id = kOperation;
        work.flags = (is_needed || random_.chance(0.3) ? unsigned{IBV_OPS_SIGNALED} : 0U) |
                     (random_.chance(0.8) ? unsigned{IBV_OPS_TM_SYNC} : 0U);
        work.unexpected_count = dealt_with_;
        const int error = world_.operate(work);
        handle_ = work.handle;
        return error;
    }

    void post_receive() {
        if (receives_.size() == kReceives)
            return;
        static constexpr std::uint64_t kMasks[] = {kExact, kExact, 1, 0};
        const std::uint64_t mask = kMasks[random_.below(std::size(kMasks))];
        Receive receive{random_.below(kTags) & mask, mask, 0};
        const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                        [&](const Message* m) { return receive.matches(*m); });
        if (found != unexpected_.end()) {
            unexpected_.erase(found);
            return;
        }
        const std::size_t index = receives_.size();
        const ibv_sge sge = world_.b.sge(TagWorld::kTaggedAt + index * kBufferBytes, kBufferBytes);
        const int error = operate({.opcode = IBV_WR_TAG_ADD,
                                   .recv_wr_id = index,
                                   .tag = receive.tag,
                                   .mask = mask,
                                   .sges = {&sge, 1}});
        if (error != 0) {
            ASSERT_EQ(error, ENOMEM);
            return;
        }
        receive.handle = handle_;
        receives_.push_back(receive);
        expected_.push_back(index);
    }

    /// The oldest receive that `message` belongs to, taken; kReceives: none.
    std::size_t match(const Message& message) {
        const auto found = std::find_if(expected_.begin(), expected_.end(), [&](std::size_t index) {
            return receives_[index].matches(message);
        });
        if (found == expected_.end())
            return kReceives;
        const std::size_t index = *found;
        expected_.erase(found);
        return index;
    }

    /// The messages of one sender begin to arrive in order.
    const Message& next_arrival(std::uint32_t qpn) {
        std::size_t sender = 0;
        while (world_.receivers[sender]->number() != qpn)
            ++sender;
        ++seen_;
        EXPECT_LT(arrived_[sender], sent_[sender]) << "received more than was sent";
        return messages_[sender * kMessages + arrived_[sender]++];
    }

    void take(const Completion& completion) {
        const ibv_wc& wc = completion.wc;
        if (wc.wr_id >= kOperation) {
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << "what software takes back waits, or is gone";
        } else if ((wc.wc_flags & kMatch) != 0) {
            take_match(completion);
        } else if ((wc.wc_flags & kValid) != 0) {
            take_data(wc);
        } else {
            take_untagged(completion);
        }
    }

    void take_match(const Completion& completion) {
        const Message& message = next_arrival(completion.wc.qp_num);
        ASSERT_EQ(completion.tm_tag, message.tag);
        ASSERT_EQ(completion.wc.wr_id, match(message)) << "not the oldest receive that matches";
        receives_[completion.wc.wr_id].message = &message;
        ++under_way_;
        ++totals_.matched;
        if ((completion.wc.wc_flags & kValid) != 0)
            take_data(completion.wc);
    }

    void take_data(const ibv_wc& wc) {
        const Message& message = *receives_[wc.wr_id].message;
        const bool is_incomplete = message.is_rendezvous() && message.data.size() > kBufferBytes;
        ASSERT_EQ(wc.status, is_incomplete ? IBV_WC_TM_RNDV_INCOMPLETE : IBV_WC_SUCCESS);
        const std::string& data = is_incomplete ? message.wire : message.data;
        ASSERT_EQ(wc.byte_len, data.size());
        ASSERT_EQ(world_.tagged(wc.wr_id * kBufferBytes, data.size()), data);
        totals_.incomplete += is_incomplete ? 1U : 0U;
        read_by_device_ += message.is_rendezvous() && !is_incomplete ? 1U : 0U;
        --under_way_;
    }

    void take_untagged(const Completion& completion) {
        const ibv_wc& wc = completion.wc;
        const Message& message = next_arrival(wc.qp_num);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(wc.byte_len, message.wire.size());
        ASSERT_EQ(world_.untagged(wc.wr_id, message.wire.size()), message.wire);
        empty_slots_.push_back(wc.wr_id);
        const bool has_tag = message.opcode != TagOpcode::kNoTag;
        ASSERT_EQ(wc.opcode, has_tag ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG);
        if (!has_tag)
            return;
        if (const std::size_t index = match(message); index != kReceives) {
            ASSERT_EQ(world_.remove(receives_[index].handle,
                                    {.wr_id = kOperation, .flags = IBV_OPS_SIGNALED}),
                      0);
            ++totals_.taken_back;
        } else {
            unexpected_.push_back(&message);
        }
        ++dealt_with_;
    }

    void poll_sender() {
        while (const auto completion = world_.a.poll()) {
            ASSERT_EQ(completion->wc.status, IBV_WC_SUCCESS);
            if (completion->wc.opcode == IBV_WC_RECV) {
                ++fins_;
                const auto sender = std::find_if(
                    world_.senders.begin(), world_.senders.end(),
                    [&](const Qp* qp) { return qp->number() == completion->wc.qp_num; });
                world_.post_fin(**sender);
            }
        }
    }

    TagWorld world_;
    SimRandom random_;
    std::deque<Message> messages_;
    std::array<std::size_t, kSenders> sent_{}, arrived_{};
    std::deque<Receive> receives_;            // by wr_id
    std::vector<std::size_t> expected_;       // those that nothing matched, in order of posting
    std::vector<const Message*> unexpected_;  // those that match nothing, in order of arrival
    std::deque<std::uint64_t> empty_slots_;   // untagged receives to be posted again
    Totals totals_;
    std::uint32_t dealt_with_ = 0, handle_ = 0;
    std::size_t operations_ = 0, seen_ = 0, under_way_ = 0, fins_ = 0, read_by_device_ = 0;
};

void run_seed(std::uint64_t seed, Totals* totals) {
    Run run(seed);
    constexpr std::size_t kStepsMax = 100'000;
    for (std::size_t step = 0; !run.is_done() && !testing::Test::HasFatalFailure(); ++step) {
        ASSERT_LT(step, kStepsMax) << "does not end: " << run.describe();
        run.step();
    }
    if (!testing::Test::HasFatalFailure())
        run.check_end(totals);
}

TEST(VhcaTagModel, outcome_is_that_of_one_matcher_whatever_fabric_and_software_do) {
    Totals totals;
    const std::uint64_t rounds =
        test::for_each_seed(300, [&totals](std::uint64_t seed) { run_seed(seed, &totals); });
    if (rounds == 0)
        return;  // one run need not reach everything
    for (const std::size_t count : {totals.matched, totals.read, totals.incomplete,
                                    totals.unexpected, totals.taken_back, totals.refused}) {
        EXPECT_GT(count, rounds / 10) << "the runs do not reach what they are for";
    }
}

}  // namespace

}  // namespace tagwire::vhca
