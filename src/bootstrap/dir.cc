// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/dir.hpp"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "ucs/sys/process.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr int kLookMsMax = 20;
constexpr std::size_t kIdLetters = 16;

}  // namespace

void Pause::wait(const Deadline& deadline) {
    ::poll(nullptr, 0, std::min(next_ms_, deadline.left_ms()));
    next_ms_ = std::min(2 * next_ms_, kLookMsMax);
}

bool split_name(const std::string& name, const std::string& prefix, std::uint32_t* number_p,
                std::string* rest_p) {
    if (!name.starts_with(prefix))
        return false;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, *number_p);
    if (parsed.ec != std::errc())
        return false;
    *rest_p = std::string(parsed.ptr, end);
    return true;
}

std::string draw_id() {
    char text[kIdLetters + 1];
    std::snprintf(text, sizeof text, "%016" PRIx64, ucs::random_u64());
    return text;
}

bool is_id(const std::string& text) {
    return text.size() == kIdLetters && std::ranges::all_of(text, [](char letter) {
               return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
           });
}

DirJob::~DirJob() {
    if (!id_.empty())
        leave();
}

Result DirJob::open_place() {
    return Folder::open(settings_.where, &place_);
}

std::string DirJob::read_current() const {
    const auto bytes = place_.read(current_name(), kIdLetters);
    const std::string id = bytes ? text_of(*bytes) : "";
    return is_id(id) ? id : "";
}

Result DirJob::make_session(const std::string& id) {
    Result result = place_.make_below(session_name(id), &session_);
    if (result.ok())
        id_ = id;
    return result;
}

bool DirJob::open_session(const std::string& id) {
    if (!place_.open_below(session_name(id), &session_))
        return false;
    id_ = id;
    return true;
}

Result DirJob::read_failure() const {
    const auto bytes = session_.read("failure", kFrameBytes + kTextBytesMax);
    const auto frame = bytes ? decode_whole(*bytes) : std::nullopt;
    if (!frame || frame->kind != FrameKind::kFailure)
        return {};
    return {frame->status, reason_of(std::span(*bytes).subspan(kFrameBytes))};
}

void DirJob::write_failure(const Result& result) const {
    const Frame frame = failure_frame(result.status, settings_.size, result.why);
    session_.write_once("failure", std::to_string(settings_.rank),
                        with_payload(frame, bytes_of(result.why)));
}

Result DirJob::write_share(const Step& step) const {
    const Frame frame = step.frame(FrameKind::kShare, settings_.rank, settings_.size);
    const std::string name =
        "share." + std::to_string(step.number) + "." + std::to_string(settings_.rank);
    Result result = session_.write(name, with_payload(frame, step.mine));
    return session_.is_gone() ? check_session() : result;
}

Result DirJob::check_session() const {
    if (!session_.is_gone())
        return {};
    return failed(UCS_ERR_CONNECTION_RESET,
                  "the files of this run in %s were removed: another job has the name '%s', too",
                  settings_.where.c_str(), settings_.job.c_str());
}

/// The ranks for which there is a file PREFIX.RANK or PREFIX.RANK.x, or (not wanted) is none.
RankSet DirJob::ranks_with(const std::string& prefix, bool wanted) const {
    RankSet ranks(settings_.size, !wanted);
    for (const std::string& name : session_.list()) {
        std::uint32_t rank = 0;
        std::string rest;
        if (!split_name(name, prefix + ".", &rank, &rest) || rank >= settings_.size)
            continue;
        if (wanted)
            ranks.add(rank);
        else
            ranks.remove(rank);
    }
    return ranks;
}

void DirJob::leave() const {
    const Frame frame{.kind = FrameKind::kLeave, .rank = settings_.rank, .size = settings_.size};
    // Without it the directory stays until the next job of this name.
    if (!session_.write("bye." + std::to_string(settings_.rank), with_payload(frame, {})).ok())
        return;
    RankSet staying = ranks_with("hello", true);
    staying.add(0);
    const RankSet gone = ranks_with("bye", true);
    for (std::uint32_t rank = 0; rank < settings_.size; ++rank)
        if (staying.contains(rank) && !gone.contains(rank))
            return;
    if (read_current() == id_)
        place_.remove(current_name());
    place_.remove_below(session_name(id_));
}

Result join_dir(const Settings& settings, MethodPtr* method_p) {
    const Deadline deadline(settings.timeout_ns);
    const auto join = [&](auto method) {
        Result result = method->join(deadline);
        if (result.ok())
            *method_p = std::move(method);
        return result;
    };
    return settings.rank == 0 ? join(std::make_unique<DirCoordinator>(settings))
                              : join(std::make_unique<DirRank>(settings));
}

}  // namespace tagwire::bootstrap
