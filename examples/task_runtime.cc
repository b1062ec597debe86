// SPDX-License-Identifier: BSD-3-Clause
// A small task runtime by active messages: a task runs on any rank, spawns tasks on others, and
// ends when those have reported to it. Handlers only note what has come; the main loop of a rank
// runs tasks and sends. The tasks place queens on a chessboard. In the end each rank sends a long
// table, whose data rank 0 receives into memory that its handler chooses.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "job.hpp"

namespace {

constexpr unsigned kQueens = 10, kSolutions = 724, kRowsToSplit = 4;
enum Handler : unsigned { kSpawn, kReport, kTable, kStop };  // ids

/// The first `row` rows have a queen each; bits are columns that they take, or attack.
struct Board {
    std::uint32_t row = 0, columns = 0, left = 0, right = 0;

    std::uint32_t free_columns() const { return ~(columns | left | right) & ((1U << kQueens) - 1); }
    Board with(std::uint32_t column) const {
        return {row + 1, columns | column, (left | column) << 1, (right | column) >> 1};
    }
};

/// Solutions that begin so.
std::uint64_t solve(const Board& board) {
    std::uint64_t count = board.row == kQueens ? 1 : 0;
    for (std::uint32_t free = board.free_columns(); free != 0; free &= free - 1)
        count += solve(board.with(free & -free));
    return count;
}

/// Where the result of a task goes.
struct Parent {
    std::uint32_t rank, frame;
};
struct Task {
    Board board;
    Parent parent;
};
struct Report {
    std::uint32_t frame;
    std::uint32_t count;
};
using Table = std::vector<std::uint32_t>;

/// For handlers, which must not throw.
void require(bool condition) {
    if (!condition)
        std::abort();
}

template <class Header>
Header header_of(const msg::ActiveMessage& message) {
    Header header{};
    require(message.header().size() == sizeof header);
    std::memcpy(&header, message.header().data(), sizeof header);
    return header;
}

class Runtime {
  public:
    /// The worker has not progressed yet, so no message has missed its handler.
    explicit Runtime(const Rank& me) : me_(me), tables_(me.size(), Table(table_.size())) {
        me.worker().on_am(kSpawn, on_spawn_).or_throw();
        me.worker().on_am(kReport, on_report_).or_throw();
        me.worker().on_am(kTable, on_table_).or_throw();
        me.worker().on_am(kStop, on_stop_).or_throw();
    }

    /// Runs tasks until the first one, of rank 0, has its result; returns that on rank 0.
    std::uint32_t run() {
        if (me_.rank() == 0)
            tasks_.push_back({{}, {kNobody, 0}});
        while (!is_over_) {
            me_.worker().progress();
            if (!ended_.empty()) {
                const Frame frame = frames_.at(ended_.front());
                ended_.pop_front();
                report(frame.parent, frame.count);
            } else if (!tasks_.empty()) {
                const Task task = tasks_.front();
                tasks_.pop_front();
                run(task);
            }
        }
        return result_;
    }

    /// Rank 0 gets the tables of all, and adds up how many boards each rank has solved.
    std::vector<std::uint64_t> collect() {
        const auto rank = static_cast<std::uint32_t>(me_.rank());
        msg::Request sent;
        post([&] {
            return me_.to(0).am_send(kTable, std::as_bytes(std::span(&rank, 1)),
                                     std::as_bytes(std::span(table_)), sent);
        });
        me_.wait(sent, "table");
        while (rank == 0 && tables_here_ < me_.size())
            me_.worker().progress();
        std::vector<std::uint64_t> sums;
        for (const Table& table : tables_) {
            sums.push_back(0);
            for (const std::uint32_t boards : table)
                sums.back() += boards;
        }
        return sums;
    }

  private:
    static constexpr std::uint32_t kNobody = UINT32_MAX;
    /// A task that waits for those that it has spawned.
    struct Frame {
        Parent parent;
        std::uint32_t open, count;
    };

    void run(const Task& task) {
        const std::uint32_t all = task.board.free_columns();
        if (task.board.row == kRowsToSplit || all == 0) {
            ++table_.at(task.board.columns);
            return report(task.parent, static_cast<std::uint32_t>(solve(task.board)));
        }
        const auto frame = static_cast<std::uint32_t>(frames_.size());
        frames_.push_back({task.parent, static_cast<std::uint32_t>(std::popcount(all)), 0});
        const Parent parent{static_cast<std::uint32_t>(me_.rank()), frame};
        for (std::uint32_t free = all; free != 0; free &= free - 1)
            send(next_++ % me_.size(), kSpawn, Task{task.board.with(free & -free), parent});
    }
    void report(const Parent& parent, std::uint32_t count) {
        if (parent.rank != kNobody)
            return send(parent.rank, kReport, Report{parent.frame, count});
        result_ = count;
        for (std::size_t rank = 0; rank < me_.size(); ++rank)
            send(rank, kStop, 0);
    }

    /// A message that is all header, which the call copies.
    template <class Header>
    void send(std::size_t rank, unsigned id, const Header& header) {
        post([&] { return me_.to(rank).am_send(id, std::as_bytes(std::span(&header, 1)), {}); });
    }
    template <class Call>
    void post(Call call) {
        tw_status_t status = call();
        for (; status == TW_ERR_NO_RESOURCE; status = call())
            me_.worker().progress();
        msg::check(status, "am_send");
    }

    // ---- Handlers

    void spawned(const msg::ActiveMessage& message) { tasks_.push_back(header_of<Task>(message)); }
    void reported(const msg::ActiveMessage& message) {
        const auto report = header_of<Report>(message);
        require(report.frame < frames_.size());
        Frame& frame = frames_[report.frame];
        frame.count += report.count;
        if (--frame.open == 0)
            ended_.push_back(report.frame);
    }
    void stopped(const msg::ActiveMessage&) { is_over_ = true; }
    /// The data of a long message comes by rendezvous, but a handler cannot be sure of that.
    void table_came(const msg::ActiveMessage& message) {
        const auto rank = header_of<std::uint32_t>(message);
        require(rank < tables_.size());
        const auto to = std::as_writable_bytes(std::span(tables_[rank]));
        require(message.length() == to.size());
        if (message.is_rndv()) {
            const auto op = msg::Op(TW_OP_COMPLETION).on_complete(on_received_);
            require(message.receive(to, op) == TW_INPROGRESS);
        } else {
            std::memcpy(to.data(), message.data().data(), to.size());
            ++tables_here_;
        }
    }
    void received(const tw_completion_t& done) {
        require(done.status == TW_OK);
        ++tables_here_;
    }

    template <auto kHandler>
    struct Bound {
        Runtime* runtime;
        void operator()(const auto& what) const { (runtime->*kHandler)(what); }
    };

    const Rank& me_;
    std::deque<Task> tasks_;
    std::vector<Frame> frames_;
    std::deque<std::uint32_t> ended_;  // frames whose tasks have reported
    Table table_ = Table(1U << 16);    // boards that this rank has solved, by their columns
    std::vector<Table> tables_;        // of all ranks, on rank 0
    std::size_t tables_here_ = 0;
    std::size_t next_ = 0;  // the rank of the next task, around
    std::uint32_t result_ = 0;
    bool is_over_ = false;
    Bound<&Runtime::spawned> on_spawn_{this};
    Bound<&Runtime::reported> on_report_{this};
    Bound<&Runtime::table_came> on_table_{this};
    Bound<&Runtime::received> on_received_{this};
    Bound<&Runtime::stopped> on_stop_{this};
};

}  // namespace

int main() {
    return run_ranks(4, [](Rank& me) {
        Runtime runtime(me);
        const std::uint32_t solutions = runtime.run();
        const std::vector<std::uint64_t> boards = runtime.collect();
        if (me.rank() != 0)
            return;
        std::printf("task_runtime: %u solutions for %u queens, boards by rank", solutions, kQueens);
        for (const std::uint64_t number : boards)
            std::printf(" %llu", static_cast<unsigned long long>(number));
        std::printf(": %s\n", solutions == kSolutions ? "right" : "wrong");
    });
}
