// SPDX-License-Identifier: BSD-3-Clause
#include "ib/siege.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace tagwire::test {

Siege::Siege(const char* transport, const EntityOptions& options, std::uint64_t seed)
    : random(seed),
      victim(resource_of(transport), options),
      good(resource_of(transport), options),
      exposed(victim, 100'000, Backing::kRegistered) {
    Connection both = connect(good, victim);
    there_ = std::move(both.forward);
    back_ =
        both.backward.get() != nullptr ? std::move(both.backward) : connect(victim, good).forward;
    posted_ = fact_of(victim, "receive_buffers_posted");
    for (uct_tag_t tag = 0; tag < 4; ++tag) {
        receives_.push_back(std::make_unique<Receive>(victim, kSegBytes));
        receives_.back()->on_done = [this, tag](Receive& done) { post(done, tag); };
        post(*receives_.back(), tag);
    }
    victim.on_am = [this](const AmMessage& message) { return look_at(message.data); };
    victim.on_eager = [this](const EagerFragment& part) { return look_at(part.data); };
}

Siege::~Siege() {
    for (const auto& receive : receives_)
        receive->cancel(true);
}

void Siege::until(const std::function<bool()>& done) {
    for (int i = 0; i < kStepsMax && !done(); ++i)
        step();
}

void Siege::check_nothing_is_held() {
    keeps_ = false;  // also of what is still on its way
    release_kept();
    check_good_peer();
    // A queue of more than a few buffers gets them back in batches.
    const auto posted = [&] { return fact_of(victim, "receive_buffers_posted"); };
    for (long i = 0; i < posted_ && posted() != posted_; ++i)
        check_good_peer();
    EXPECT_EQ(posted_, posted());
    EXPECT_EQ(0, fact_of(victim, "receive_buffers_held"));
    EXPECT_EQ(0, fact_of(victim, "rendezvous_under_way"));
    EXPECT_TRUE(good.errors.empty());
    keeps_ = true;
}

// ---- The good peer

void Siege::check_good_peer() {
    release_kept();
    victim.am.clear();
    victim.eager.clear();
    victim.rndv.clear();
    Bytes bytes(300);
    fill_pattern(bytes, 1);
    send_until_taken([&] { return send_am_bytes(there_, Entity::kAmId, bytes); });
    until([&] { return seen_good_; });
    EXPECT_TRUE(std::exchange(seen_good_, false)) << "the message of a good peer is lost";
    exchange(good, there_, victim, false);
    exchange(good, there_, victim, true);
    exchange(victim, back_, good, true);
}

void Siege::exchange(Entity& from, uct_ep_h ep, Entity& to, bool is_rndv) {
    constexpr int kTriesMax = 20;
    int tries = 1;
    while (!is_exchanged(from, ep, to, is_rndv) && tries < kTriesMax)
        ++tries;
    EXPECT_LT(tries, kTriesMax) << "what a good peer sends is always unexpected";
}

// False: a device had not looked at the receive yet, because strangers' messages that nobody
// expects were on their way to software, and so our message is one of them.
bool Siege::is_exchanged(Entity& from, uct_ep_h ep, Entity& to, bool is_rndv) {
    const auto is_ours = [](const auto& message) { return message.tag == kGoodTag; };
    std::erase_if(to.eager, is_ours);
    std::erase_if(to.rndv, is_ours);
    const auto is_unexpected = [&] {
        return std::ranges::any_of(to.eager, is_ours) || std::ranges::any_of(to.rndv, is_ours);
    };
    Receive receive(to, kGoodBytes);
    EXPECT_EQ(UCS_OK, receive.post(kGoodTag));
    const Buffer payload = make_payload(from, is_rndv ? kGoodBytes : 200, 2);
    const uct_iov_t iov = payload.iov();
    Completion sent;
    ucs_status_ptr_t handle = nullptr;
    send_until_taken([&] {
        if (!is_rndv) {
            const ucs_status_t status = uct_ep_tag_eager_zcopy(ep, kGoodTag, 0, &iov, 1, 0, &sent);
            return status == UCS_INPROGRESS ? UCS_OK : status;
        }
        handle = uct_ep_tag_rndv_zcopy(ep, kGoodTag, nullptr, 0, &iov, 1, 0, &sent);
        return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
    });
    until([&] {
        return (receive.completed == 1 || is_unexpected()) && (is_rndv || sent.calls == 1);
    });
    if (receive.completed == 0 && is_unexpected()) {
        EXPECT_EQ(UCS_OK, receive.cancel(false));
        until([&] { return receive.completed == 1; });
        EXPECT_EQ(UCS_ERR_CANCELED, receive.status);
        if (is_rndv) {
            EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep, handle));
        }
        return false;
    }
    until([&] { return sent.calls == 1; });
    EXPECT_EQ(1, receive.completed);
    EXPECT_EQ(UCS_OK, receive.status);
    EXPECT_TRUE(has_pattern(receive.received(), 2));
    EXPECT_EQ(1, sent.calls);
    if (receive.completed == 0)
        receive.cancel(true);
    return true;
}

// ---- The victim's user

void Siege::post(Receive& receive, uct_tag_t tag) {
    // Exactly its tag, or any tag of strangers.
    EXPECT_EQ(UCS_OK, receive.post(tag, tag == 0 ? ~uct_tag_t{255} : ~uct_tag_t{0}));
}

ucs_status_t Siege::look_at(void* data) {
    if (has_pattern({static_cast<const std::byte*>(data), 300}, 1)) {
        seen_good_ = true;
        return UCS_OK;
    }
    if (!keeps_ || kept_.size() > 1 || random() % 4 != 0)
        return UCS_OK;
    kept_.push_back(data);
    return UCS_INPROGRESS;
}

void Siege::release_kept() {
    for (void* data : std::exchange(kept_, {}))
        uct_iface_release_desc(data);
}

void Siege::send_until_taken(const std::function<ucs_status_t()>& send) {
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    until([&] { return (status = send()) != UCS_ERR_NO_RESOURCE; });
    EXPECT_EQ(UCS_OK, status);
}

}  // namespace tagwire::test
