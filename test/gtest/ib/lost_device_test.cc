// SPDX-License-Identifier: BSD-3-Clause
// A device that is lost under an interface (reset by its firmware, unplugged, broken): it completes
// nothing any more, and refuses to stop queue pairs, or says that it did. The virtual HCA whose
// functions the test replaces.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "entity.hpp"
#include "ib/verbs_parts.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

/// The first sign of the loss.
enum class Sign { kEvent, kRefusal, kSilence };

struct Loss {
    const char* name;
    const char* transport;
    Sign sign;
    std::vector<std::pair<std::string, std::string>> options;
};

void PrintTo(const Loss& loss, std::ostream* out) {
    *out << loss.name;
}

class LostDevice : public ::testing::TestWithParam<Loss> {
  protected:
    static constexpr std::size_t kEndpoints = 6;
    static constexpr int kStepsMax = 20'000'000;

    void SetUp() override {
        self = this;
        sign_ = GetParam().sign;
        EntityOptions options;
        options.has_tag_callbacks = false;
        options.iface_config = GetParam().options;
        options.before_iface = [this](uct_md_h md) { watch(md); };
        entity_ = std::make_unique<Entity>(resource_of(GetParam().transport), options);
        for (auto& link : links_)
            link = connect(*entity_, *entity_);
        payload_ = std::make_unique<Buffer>(make_payload(*entity_, 1000, 1));
        // All at a time, so that each has a queue pair, or part of one.
        for (auto& link : links_)
            ASSERT_EQ(UCS_OK, uct_ep_am_short(link.forward, Entity::kAmId, 0, nullptr, 0));
        ASSERT_TRUE(until([this] {
            return entity_->am_count == kEndpoints &&
                   uct_iface_flush(entity_->iface(), 0, nullptr) == UCS_OK;
        }));
    }
    void TearDown() override {
        for (auto& link : links_)
            link = {};
        payload_.reset();
        entity_.reset();
        *table_ = real_;
        self = nullptr;
    }
    /// One operation with a completion and a flush behind it are under way on each.
    void lose() {
        const uct_iov_t iov = payload_->iov();
        is_lost_ = true;
        for (std::size_t i = 0; i < kEndpoints; ++i) {
            const uct_ep_h ep = links_[i].forward;
            ASSERT_EQ(UCS_INPROGRESS,
                      uct_ep_am_zcopy(ep, Entity::kAmId, nullptr, 0, &iov, 1, 0, &sent_[i]));
            ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, &flushed_[i]));
        }
    }
    template <class Done>
    bool until(Done&& done) {
        for (int i = 0; i < kStepsMax && !done(); ++i)
            entity_->progress();
        return done();
    }
    [[nodiscard]] bool has_all_ended() const {
        for (std::size_t i = 0; i < kEndpoints; ++i)
            if (sent_[i].calls == 0 || flushed_[i].calls == 0)
                return false;
        return true;
    }
    void expect_ends() const {
        for (std::size_t i = 0; i < kEndpoints; ++i) {
            EXPECT_EQ(1, sent_[i].calls);
            EXPECT_LT(sent_[i].ended, UCS_OK);
            EXPECT_EQ(1, flushed_[i].calls);
            EXPECT_LT(flushed_[i].ended, UCS_OK);
        }
    }

    std::unique_ptr<Entity> entity_;
    std::unique_ptr<Buffer> payload_;
    std::array<Connection, kEndpoints> links_;
    std::array<Completion, kEndpoints> sent_, flushed_;
    bool is_lost_ = false;

  private:
    void watch(uct_md_h md) {
        auto& domain = static_cast<ib::IbMd&>(uct::md_of(md));
        table_ = const_cast<ib::VerbsTable*>(&domain.verbs());
        real_ = *table_;
        ibv_context* context = domain.device().context();
        poll_ = context->ops.poll_cq;
        context->ops.poll_cq = [](ibv_cq* cq, int count, ibv_wc* wc) {
            return self->is_lost_ ? 0 : self->poll_(cq, count, wc);
        };
        table_->modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
            if (!self->is_lost_)
                return self->real_.modify_qp(qp, attr, mask);
            return self->sign_ == Sign::kRefusal ? EIO : 0;
        };
        table_->get_async_event = [](ibv_context* of, ibv_async_event* event) {
            if (!self->is_lost_)
                return self->real_.get_async_event(of, event);
            if (self->sign_ != Sign::kEvent || std::exchange(self->has_told_, true)) {
                errno = EAGAIN;
                return -1;
            }
            event->event_type = IBV_EVENT_DEVICE_FATAL;
            event->element.port_num = 0;
            return 0;
        };
        table_->ack_async_event = [](ibv_async_event* event) {
            if (!self->is_lost_)
                self->real_.ack_async_event(event);
        };
    }

    static inline LostDevice* self = nullptr;
    Sign sign_{};
    bool has_told_ = false;
    ib::VerbsTable* table_ = nullptr;
    ib::VerbsTable real_{};
    decltype(ibv_context_ops::poll_cq) poll_ = nullptr;
};

TEST_P(LostDevice, ends_each_operation_once_and_fails_each_endpoint_once) {
    lose();
    if (GetParam().sign != Sign::kEvent) {  // one is closed, and that is refused
        uct_ep_flush(links_[0].forward, UCT_FLUSH_FLAG_CANCEL, nullptr);
    }
    if (GetParam().sign == Sign::kSilence)
        return;
    const std::size_t failures = links_[0].backward.get() == nullptr ? kEndpoints : 2 * kEndpoints;
    const std::size_t cancelled = GetParam().sign == Sign::kRefusal ? 1 : 0;
    ASSERT_TRUE(
        until([&] { return has_all_ended() && entity_->errors.size() == failures - cancelled; }));
    for (const PeerError& error : entity_->errors)
        EXPECT_EQ(UCS_ERR_IO_ERROR, error.status);
    for (std::size_t i = cancelled; i < kEndpoints; ++i) {
        EXPECT_EQ(UCS_ERR_IO_ERROR, sent_[i].ended);
        EXPECT_EQ(UCS_ERR_IO_ERROR, flushed_[i].ended);
        EXPECT_EQ(UCS_ERR_IO_ERROR,
                  uct_ep_am_short(links_[i].forward, Entity::kAmId, 0, nullptr, 0));
        EXPECT_FALSE(facts_of(*entity_, links_[i].forward).empty());
    }
    EXPECT_EQ(UCS_OK, uct_iface_flush(entity_->iface(), 0, nullptr));
    EXPECT_EQ(UCS_OK, uct_iface_event_arm(entity_->iface(), UCT_EVENT_RECV));
}

TEST_P(LostDevice, lets_endpoints_be_destroyed_whatever_is_under_way) {
    lose();
    for (auto& link : links_)
        link = {};
    expect_ends();
}

TEST_P(LostDevice, makes_no_new_endpoints) {
    lose();
    uct_ep_flush(links_[0].forward, UCT_FLUSH_FLAG_CANCEL, nullptr);
    if (GetParam().sign == Sign::kSilence)
        return;
    ASSERT_TRUE(until([this] { return has_all_ended(); }));
    EXPECT_THROW(connect(*entity_, *entity_), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(
    Ib, LostDevice,
    ::testing::Values(Loss{"rc_event", "rc", Sign::kEvent, {}},
                      Loss{"rc_refusal", "rc", Sign::kRefusal, {}},
                      Loss{"rc_silence", "rc", Sign::kSilence, {}},
                      Loss{"dc_event", "dc", Sign::kEvent, {}},
                      Loss{"dc_alone_event", "dc", Sign::kEvent, {{"DC_STREAMS", "1"}}},
                      Loss{"dc_alone_refusal", "dc", Sign::kRefusal, {{"DC_STREAMS", "1"}}},
                      Loss{"dc_shared_event", "dc", Sign::kEvent, {{"DC_POLICY", "hash"}}}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tagwire::test
