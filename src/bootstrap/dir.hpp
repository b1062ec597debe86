// SPDX-License-Identifier: BSD-3-Clause
// Method DIR: files in a directory that all ranks see. In it, for a job called NAME:
//
//     tagwire-NAME.current     16 hex digits: the id that rank 0 drew at random for this run
//     tagwire-NAME.ID/         the run's own directory:
//       hello.RANK.NONCE       a rank has come; NONCE is its own random number
//       refused.NONCE          why rank 0 does not take it
//       welcome                all are there; payload: the nonce of each rank
//       share.CALL.RANK        what a rank gives
//       result.CALL            what all gave; rank 0 then removes the shares, and the last result
//       failure                the job is over, and why
//       bye.RANK               a rank has left; the last one removes everything
//
// Remains of a killed job of the same name do no harm:
// 1. Rank 0 takes part only in the directory that it made itself, under an id that never was.
// 2. Another rank believes a directory only if it was still gathering when the rank said hello, and
//    the welcome has the rank's own nonce. While neither comes it follows `current`.
// 3. Once all ranks have come, rank 0 removes the directories of older runs. Not before: in one
//    that ended well a slow rank may still be reading the last result.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/dir_files.hpp"
#include "bootstrap/method.hpp"

namespace tagwire::bootstrap {

/// Common base of rank 0 and the other ranks.
class DirJob : public Method {
  public:
    explicit DirJob(const Settings& settings) : settings_(settings) {}
    ~DirJob() override;

    const char* name() const override { return "dir"; }
    std::uint32_t rank() const override { return settings_.rank; }
    std::uint32_t size() const override { return settings_.size; }

  protected:
    const Settings& settings() const { return settings_; }
    const Folder& session() const { return session_; }
    const std::string& id() const { return id_; }
    Result open_place();
    std::string read_current() const;
    std::string current_name() const { return "tagwire-" + settings_.job + ".current"; }
    std::string session_name(const std::string& id) const {
        return "tagwire-" + settings_.job + "." + id;
    }
    const Folder& place() const { return place_; }
    Result make_session(const std::string& id);
    bool open_session(const std::string& id);
    void forget_session() { id_.clear(); }

    /// The job's end, if a rank has written it.
    Result read_failure() const;
    void write_failure(const Result& result) const;
    Result write_share(const Step& step) const;
    /// UCS_ERR_CONNECTION_RESET: the directory was removed.
    Result check_session() const;
    RankSet ranks_with(const std::string& prefix, bool wanted) const;

  private:
    void leave() const;

    Settings settings_;
    Folder place_;
    Folder session_;
    std::string id_;  // empty: in no session
};

class DirCoordinator final : public DirJob {
  public:
    using DirJob::DirJob;
    Result join(const Deadline& deadline);
    Result allgather(const Step& step) override;

  private:
    Result gather_ranks(const Deadline& deadline);
    Result hold_current() const;
    void remove_older_runs() const;
    void hear_hello(const std::string& name, RankSet* missing);
    void refuse(const std::string& nonce, const std::string& why) const;
    Result welcome() const;
    Result collect(const Step& step) const;
    Result collect_one(const Step& step, const std::string& file, RankSet* missing) const;
    Result spread(const Step& step) const;

    std::vector<std::string> nonces_;  // by rank; empty: has not come
};

class DirRank final : public DirJob {
  public:
    explicit DirRank(const Settings& settings);
    Result join(const Deadline& deadline);
    Result allgather(const Step& step) override;

  private:
    Result follow_current();
    bool has_new_run() const;
    Result look_for_welcome(bool* is_in_p);
    Result read_refusal();
    Result missing_result(const Deadline& deadline) const;
    bool take_result(const Step& step, Result* result_p) const;
    Result await_result(const Step& step) const;

    std::string nonce_;
    std::string ignored_;  // id of a session that is over
};

/// Waits a little, and longer each time, but not beyond the deadline.
class Pause {
  public:
    void wait(const Deadline& deadline);

  private:
    int next_ms_ = 1;
};

/// Splits a name: "hello.3.xyz" with the prefix "hello." gives 3 and ".xyz". False: not of this
/// form.
bool split_name(const std::string& name, const std::string& prefix, std::uint32_t* number_p,
                std::string* rest_p);

/// A random number as 16 hex digits.
std::string draw_id();
bool is_id(const std::string& text);

}  // namespace tagwire::bootstrap
