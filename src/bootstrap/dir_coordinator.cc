// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "bootstrap/dir.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::bootstrap {

Result DirCoordinator::join(const Deadline& deadline) {
    if (Result result = open_place(); !result.ok())
        return result;
    const std::string fresh = draw_id();
    Result result = place().write(current_name(), bytes_of(fresh));
    if (result.ok())
        result = make_session(fresh);
    if (result.ok())
        result = gather_ranks(deadline);
    if (result.ok())
        result = welcome();
    if (result.ok())
        remove_older_runs();
    else if (!id().empty())
        write_failure(result);
    return result;
}

/// Now that all have come here, none of them waits for anything in an older run.
void DirCoordinator::remove_older_runs() const {
    const std::string prefix = session_name("");
    for (const std::string& name : place().list()) {
        if (name.starts_with(prefix) && is_id(name.substr(prefix.size())) &&
            name != session_name(id())) {
            place().remove_below(name);
        }
    }
}

Result DirCoordinator::gather_ranks(const Deadline& deadline) {
    nonces_.resize(size());
    RankSet missing(size(), true);
    missing.remove(0);
    Pause pause;
    while (!missing.is_empty()) {
        for (const std::string& name : session().list())
            hear_hello(name, &missing);
        if (missing.is_empty())
            break;
        if (deadline.is_over()) {
            return failed(UCS_ERR_TIMED_OUT, "%s of %u did not come to %s within %s",
                          missing.text().c_str(), size(), settings().where.c_str(),
                          deadline.limit_text().c_str());
        }
        if (Result result = hold_current(); !result.ok())
            return result;
        pause.wait(deadline);
    }
    return {};
}

/// Writes `current` again if it is gone: a rank that leaves an older run may remove this run's.
Result DirCoordinator::hold_current() const {
    const std::string now = read_current();
    if (now.empty())
        return place().write(current_name(), bytes_of(id()));
    if (now == id())
        return {};
    return failed(UCS_ERR_CONNECTION_RESET, "another rank 0 of job '%s' took over in %s",
                  settings().job.c_str(), settings().where.c_str());
}

void DirCoordinator::hear_hello(const std::string& name, RankSet* missing) {
    std::uint32_t rank = 0;
    std::string nonce;
    if (!split_name(name, "hello.", &rank, &nonce) || nonce.empty() || !is_id(nonce.substr(1)))
        return;
    nonce.erase(0, 1);
    if (rank < size() && nonces_[rank] == nonce)
        return;
    const auto bytes = session().read(name, kFrameBytes);
    const auto hello = bytes ? decode_whole(*bytes) : std::nullopt;
    if (!hello || hello->kind != FrameKind::kHello)
        return;
    if (hello->size != size()) {
        refuse(nonce, "it expects a job of " + std::to_string(hello->size) +
                          " processes, but rank 0 one of " + std::to_string(size()));
    } else if (rank == 0 || rank >= size() || !nonces_[rank].empty()) {
        refuse(nonce, "rank " + std::to_string(rank) + " has joined already");
    } else {
        nonces_[rank] = nonce;
        missing->remove(rank);
    }
}

void DirCoordinator::refuse(const std::string& nonce, const std::string& why) const {
    const std::string name = "refused." + nonce;
    if (session().has(name))
        return;
    TW_LOG_WARN("bootstrap: refused a process: %s", why.c_str());
    const std::string text = "rank 0 refuses this process: " + why;
    const Frame frame = failure_frame(UCS_ERR_REJECTED, size(), text);
    if (Result result = session().write(name, with_payload(frame, bytes_of(text))); !result.ok())
        TW_LOG_WARN("bootstrap: %s", result.why.c_str());
}

Result DirCoordinator::welcome() const {
    std::string all;
    for (std::uint32_t rank = 1; rank < size(); ++rank)
        all += nonces_[rank];
    const auto bytes = std::as_bytes(std::span(all));
    const Frame frame{.kind = FrameKind::kWelcome,
                      .size = size(),
                      .bytes = static_cast<std::uint32_t>(bytes.size())};
    return session().write("welcome", with_payload(frame, bytes));
}

Result DirCoordinator::allgather(const Step& step) {
    if (!step.mine.empty())
        std::memmove(step.all.data(), step.mine.data(), step.mine.size());
    Result result = write_share(step);
    if (result.ok())
        result = collect(step);
    if (result.ok())
        result = spread(step);
    if (!result.ok())
        write_failure(result);
    return result;
}

Result DirCoordinator::collect(const Step& step) const {
    RankSet missing(size(), true);
    missing.remove(0);
    Pause pause;
    while (!missing.is_empty()) {
        const std::vector<std::string> files = session().list();
        for (const std::string& file : files)
            if (Result result = collect_one(step, file, &missing); !result.ok())
                return result;
        const RankSet gone = ranks_with("bye", true);
        for (std::uint32_t rank = 1; rank < size(); ++rank)
            if (missing.contains(rank) && gone.contains(rank))
                return failed(UCS_ERR_CONNECTION_RESET, "rank %u has left the job", rank);
        if (missing.is_empty())
            break;
        const Frame call = step.frame(FrameKind::kShare, 0, size());
        if (step.deadline.is_over()) {
            return failed(UCS_ERR_TIMED_OUT, "%s of %u did not call %s within %s",
                          missing.text().c_str(), size(), operation_text(call).c_str(),
                          step.deadline.limit_text().c_str());
        }
        if (Result result = check_session(); !result.ok())
            return result;
        pause.wait(step.deadline);
    }
    return {};
}

Result DirCoordinator::collect_one(const Step& step, const std::string& file,
                                   RankSet* missing) const {
    if (file == "failure")
        return read_failure();
    const std::string prefix = "share." + std::to_string(step.number) + ".";
    std::uint32_t rank = 0;
    std::string rest;
    if (!split_name(file, prefix, &rank, &rest) || rank >= size() || !missing->contains(rank))
        return {};
    const auto bytes = session().read(file, kFrameBytes + kShareBytesMax);
    const auto share = bytes ? decode_whole(*bytes) : std::nullopt;
    if (!share || share->kind != FrameKind::kShare || share->rank != rank)
        return failed(UCS_ERR_IO_ERROR, "rank %u wrote a malformed file", rank);
    if (Result result = check_share(*share, step.frame(FrameKind::kShare, 0, size())); !result.ok())
        return result;
    if (share->bytes != 0)
        std::memcpy(&step.all[std::size_t{rank} * share->bytes], bytes->data() + kFrameBytes,
                    share->bytes);
    missing->remove(rank);
    return {};
}

Result DirCoordinator::spread(const Step& step) const {
    const Frame frame = step.frame(FrameKind::kResult, 0, size());
    const std::string number = std::to_string(step.number);
    Result result = session().write("result." + number, with_payload(frame, step.all));
    if (!result.ok())
        return result;
    for (std::uint32_t rank = 0; rank < size(); ++rank)
        session().remove("share." + number + "." + std::to_string(rank));
    // Everybody's share of this call says that he has read the last result.
    if (step.number != 0)
        session().remove("result." + std::to_string(step.number - 1));
    return {};
}

}  // namespace tagwire::bootstrap
