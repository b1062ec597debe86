// SPDX-License-Identifier: BSD-3-Clause
#include "tools/labels.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kLineMax = 64 << 10;  // a longer one is printed in pieces

}  // namespace

Labels::~Labels() {
    for (const Stream& stream : streams_)
        if (stream.reader >= 0)
            close(stream.reader);
}

/// Returns the end for writing.
int Labels::add(std::uint64_t rank, int target) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        throw Failure(text("pipe: %s", std::strerror(errno)));
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    streams_.push_back({rank, target, fds[0], false, ""});
    return fds[1];
}

RankOutput Labels::open(std::uint64_t rank) {
    const int out = add(rank, STDOUT_FILENO);
    try {
        return {out, add(rank, STDERR_FILENO)};
    } catch (const Failure&) {
        close(out);
        throw;
    }
}

void Labels::add_to(std::vector<pollfd>* polled) const {
    for (const Stream& stream : streams_)
        polled->push_back({stream.reader, POLLIN, 0});
}

void Labels::forward(const std::vector<pollfd>& polled) {
    const std::size_t first = polled.size() - streams_.size();
    for (std::size_t i = 0; i < streams_.size(); ++i)
        if (polled[first + i].revents != 0)
            read_some(&streams_[i]);
}

void Labels::drain() {
    for (Stream& stream : streams_) {
        while (read_some(&stream)) {
        }
        if (stream.line.empty() && !stream.is_within_line)
            continue;
        stream.line += '\n';
        print(&stream, stream.line.size());
    }
}

bool Labels::read_some(Stream* stream) {
    char buffer[16384];
    const ssize_t n = stream->reader < 0 ? 0 : read(stream->reader, buffer, sizeof buffer);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        if (stream->reader >= 0)
            close(std::exchange(stream->reader, -1));
        return false;
    }
    stream->line.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = stream->line.find('\n')) != std::string::npos;)
        print(stream, end + 1);
    if (stream->line.size() > kLineMax)
        print(stream, stream->line.size());
    return true;
}

/// In one piece, so that lines of ranks do not mix.
void Labels::print(Stream* stream, std::size_t length) {
    const std::string line = (stream->is_within_line ? "" : text("[%zu] ", stream->rank)) +
                             stream->line.substr(0, length);
    stream->is_within_line = line.back() != '\n';
    stream->line.erase(0, length);
    std::FILE* const out = stream->target == STDOUT_FILENO ? stdout : stderr;
    std::fwrite(line.data(), 1, line.size(), out);
    std::fflush(out);
}

}  // namespace tagwire::tools
