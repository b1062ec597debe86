// SPDX-License-Identifier: BSD-3-Clause
// Allreduce (sum) of a vector around a ring: each rank passes on one part per step, so every link
// is always busy. A reduce-scatter makes the sums, an all-gather passes them round.
#include <cmath>
#include <cstdio>
#include <numeric>

#include "job.hpp"

namespace {

constexpr std::size_t kElements = 1 << 18;

void allreduce(const Rank& me, std::vector<double>& data) {
    const std::size_t size = me.size(), rank = me.rank();
    const std::size_t right = (rank + 1) % size, left = (rank + size - 1) % size;
    const auto part = [&](std::size_t i) {
        const std::size_t begin = data.size() * (i % size) / size;
        const std::size_t end = data.size() * (i % size + 1) / size;
        return std::span(data).subspan(begin, end - begin);
    };
    std::vector<double> arrived(data.size() / size + 1);
    for (std::size_t step = 0; step < 2 * (size - 1); ++step) {
        const bool sums = step < size - 1;
        const auto mine = part(rank + 2 * size - step);
        const auto theirs = part(left + 2 * size - step);
        const auto into = sums ? std::span(arrived).first(theirs.size()) : theirs;
        msg::Request receive = me.post(left, into, step);
        me.send(right, std::span<const double>(mine), step);
        me.wait(receive, "receive");
        for (std::size_t i = 0; sums && i < theirs.size(); ++i)
            theirs[i] += arrived[i];
    }
}

void body(Rank& me) {
    std::vector<double> data(kElements);
    for (int round = 0; round < 10; ++round) {
        for (std::size_t i = 0; i < data.size(); ++i)
            data[i] = static_cast<double>(me.rank() + 1) * static_cast<double>(i % 1000 + 1);
        allreduce(me, data);
        const auto ranks = 0.5 * static_cast<double>(me.size() * (me.size() + 1));
        for (std::size_t i = 0; i < data.size(); ++i)
            if (data[i] != ranks * static_cast<double>(i % 1000 + 1))
                throw std::runtime_error("element " + std::to_string(i) + " is wrong");
    }
    if (me.rank() == 0)
        std::printf("ring_allreduce: %zu ranks, 10 sums of %zu doubles: right\n", me.size(),
                    kElements);
}

}  // namespace

int main() {
    return run_ranks(4, body);
}
