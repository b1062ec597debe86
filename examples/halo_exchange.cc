// SPDX-License-Identifier: BSD-3-Clause
// Heat diffusion on a plate. Each rank has some rows, and in each step gets one row from above and
// one from below (the halo). The result is compared with that of one process, bit for bit.
#include <algorithm>
#include <cstdio>

#include "job.hpp"

namespace {

constexpr std::size_t kWidth = 256, kRowsPerRank = 64, kSteps = 200;
using Row = std::vector<double>;

enum Tag : std::uint64_t { kUp, kDown };

double heat(std::size_t row, std::size_t column) {
    return static_cast<double>((row * 31 + column * 17) % 101);
}

/// One step of rows [1, size - 1); the first and the last are given.
void step(std::vector<Row>& plate) {
    std::vector<Row> next = plate;
    for (std::size_t row = 1; row + 1 < plate.size(); ++row) {
        for (std::size_t column = 1; column + 1 < kWidth; ++column) {
            next[row][column] = 0.25 * (plate[row - 1][column] + plate[row + 1][column] +
                                        plate[row][column - 1] + plate[row][column + 1]);
        }
    }
    plate.swap(next);
}

/// Rows [begin, end) of a plate, with one more on either side.
std::vector<Row> rows(std::size_t begin, std::size_t end) {
    std::vector<Row> plate(end - begin + 2, Row(kWidth));
    for (std::size_t row = 0; row < plate.size(); ++row)
        for (std::size_t column = 0; column < kWidth; ++column)
            plate[row][column] = heat(begin + row, column);
    return plate;
}

void swap_halos(const Rank& me, std::vector<Row>& plate) {
    std::vector<msg::Request> receives;
    if (me.rank() > 0)
        receives.push_back(me.post(me.rank() - 1, std::span(plate.front()), kDown));
    if (me.rank() + 1 < me.size())
        receives.push_back(me.post(me.rank() + 1, std::span(plate.back()), kUp));
    if (me.rank() > 0)
        me.send(me.rank() - 1, std::span<const double>(plate[1]), kUp);
    if (me.rank() + 1 < me.size())
        me.send(me.rank() + 1, std::span<const double>(plate[plate.size() - 2]), kDown);
    for (msg::Request& receive : receives)
        me.wait(receive, "receive");
}

void body(Rank& me) {
    const std::size_t begin = me.rank() * kRowsPerRank;
    std::vector<Row> mine = rows(begin, begin + kRowsPerRank);
    std::vector<Row> whole = rows(0, me.size() * kRowsPerRank);
    for (std::size_t i = 0; i < kSteps; ++i) {
        swap_halos(me, mine);
        step(mine);
        step(whole);
    }
    for (std::size_t row = 1; row <= kRowsPerRank; ++row)
        if (mine[row] != whole[begin + row])
            throw std::runtime_error("row " + std::to_string(begin + row) + " is wrong");
    if (me.rank() == 0)
        std::printf("halo_exchange: %zu ranks, %zu steps of %zu x %zu: right\n", me.size(), kSteps,
                    me.size() * kRowsPerRank, kWidth);
}

}  // namespace

int main() {
    return run_ranks(4, body);
}
