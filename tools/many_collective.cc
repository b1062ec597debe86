// SPDX-License-Identifier: BSD-3-Clause
#include "tools/many_collective.hpp"

#include <algorithm>
#include <bit>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kTag = 43;

}  // namespace

ManyCollective::ManyCollective(ManyRank& rank, const Job& job)
    : rank_(rank),
      job_(job),
      power_(std::bit_floor(rank.size())),
      mine_(job.test == TestId::kBarrier ? 0 : job.size / sizeof(double)),
      sum_(mine_.size()),
      received_(mine_.size()) {
    for (std::size_t i = 0; i < mine_.size(); ++i)
        mine_[i] = own(i, rank.rank());
}

/// Small whole numbers, whose sums are exact in any order.
double ManyCollective::own(std::size_t i, std::size_t rank) const {
    constexpr std::size_t kValues = 1000;
    return static_cast<double>((i + rank) % kValues);
}

CollectiveShare ManyCollective::run(std::uint64_t count) {
    Samples samples;
    samples.reserve(count);
    validated_ = errors_ = 0;
    rank_.meet();
    const std::uint64_t begin = now_ns();
    std::uint64_t last = begin;
    for (std::uint64_t i = 0; i < count; ++i) {
        run_one();
        const std::uint64_t now = now_ns();
        samples.add(static_cast<double>(now - last));
        last = now;
        if (job_.validate) {
            validate();
            last = now_ns();
        }
    }
    CollectiveShare share;
    share.all_ns = static_cast<double>(now_ns() - begin);
    share.latency_ns = samples.summary();
    share.validated = validated_;
    share.errors = errors_;
    return share;
}

void ManyCollective::run_one() {
    if (job_.test == TestId::kBarrier)
        barrier();
    else if (job_.test == TestId::kAllreduce)
        allreduce();
    else
        exchange_with_next();
}

void ManyCollective::exchange_with_next() {
    const std::size_t size = rank_.size(), me = rank_.rank();
    source_ = (me + size - distance_) % size;
    exchange((me + distance_) % size, mine_, source_, received_);
    distance_ = distance_ + 1 < size ? distance_ + 1 : 1;
}

void ManyCollective::barrier() {
    const std::size_t size = rank_.size(), me = rank_.rank();
    for (std::size_t distance = 1; distance < size; distance *= 2)
        exchange((me + distance) % size, {}, (me + size - distance) % size, {});
}

void ManyCollective::allreduce() {
    const std::size_t rest = rank_.size() - power_, me = rank_.rank();
    msg::Request request;
    std::copy(mine_.begin(), mine_.end(), sum_.begin());
    if (me >= power_) {
        send(me - power_, sum_, &request);
        finish(me - power_, &request);
        receive(me - power_, sum_, &request);
        return finish(me - power_, &request);
    }
    if (me < rest) {
        receive(me + power_, received_, &request);
        finish(me + power_, &request);
        add_received();
    }
    for (std::size_t distance = 1; distance < power_; distance *= 2) {
        exchange(me ^ distance, sum_, me ^ distance, received_);
        add_received();
    }
    if (me < rest) {
        send(me + power_, sum_, &request);
        finish(me + power_, &request);
    }
}

void ManyCollective::add_received() {
    for (std::size_t i = 0; i < sum_.size(); ++i)
        sum_[i] += received_[i];
}

void ManyCollective::validate() {
    for (std::size_t i = 0; i < sum_.size(); ++i)
        errors_ += is_as_expected(i) ? 0 : 1;
    ++validated_;
}

bool ManyCollective::is_as_expected(std::size_t i) const {
    if (job_.test == TestId::kTagExchange)
        return received_[i] == own(i, source_);
    double expected = 0;
    for (std::size_t rank = 0; rank < rank_.size(); ++rank)
        expected += own(i, rank);
    return sum_[i] == expected;
}

void ManyCollective::exchange(std::size_t to, std::span<const double> out, std::size_t from,
                              std::span<double> in) {
    msg::Request received, sent;
    receive(from, in, &received);
    send(to, out, &sent);
    finish(from, &received);
    finish(to, &sent);
}

void ManyCollective::send(std::size_t to, std::span<const double> out, msg::Request* request) {
    tw_status_t status = TW_OK;
    rank_.wait_until([&] {
        status = rank_.to(to).tag_send(std::as_bytes(out), kTag, *request);
        return status != TW_ERR_NO_RESOURCE;
    });
    if (status < TW_OK)
        ManyRank::tell_lost(to, status);
}

void ManyCollective::receive(std::size_t from, std::span<double> in, msg::Request* request) {
    tw_status_t status = TW_OK;
    rank_.wait_until([&] {
        status = rank_.worker().tag_recv(std::as_writable_bytes(in), kTag, 0,
                                         {msg::Op().from(rank_.to(from).get()), *request});
        return status != TW_ERR_NO_RESOURCE;
    });
    if (status < TW_OK)
        ManyRank::tell_lost(from, status);
}

void ManyCollective::finish(std::size_t peer, msg::Request* request) {
    if (!*request)
        return;
    tw_status_t status = TW_OK;
    rank_.wait_until([&] {
        status = request->test();
        return status != TW_INPROGRESS;
    });
    request->reset();
    if (status < TW_OK)
        ManyRank::tell_lost(peer, status);
}

}  // namespace tagwire::tools
