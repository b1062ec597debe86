// SPDX-License-Identifier: BSD-3-Clause
// The directory where the ranks of a job on this host meet by the dir bootstrap: private to the
// user (mode 0700), and gone when the command has ended, also if it was killed. Where its keeper
// was killed as well, as with the whole of a control group, the next command of this user removes
// it: command and keeper hold a lock of the directory, which ends with them. The commands that
// start ranks have one each, before the ranks start.
#pragma once

#include <string>

namespace tagwire::tools {

class MeetingPlace {
  public:
    /// Makes the directory, and the keeper: a process that removes it if this one is killed.
    /// Throws Failure.
    MeetingPlace();
    ~MeetingPlace();
    MeetingPlace(const MeetingPlace&) = delete;
    MeetingPlace& operator=(const MeetingPlace&) = delete;

    /// Names the directory to this process and the ranks.
    void set() const;

  private:
    std::string path_;
    int lock_ = -1;    // the directory, locked
    int keeper_ = -1;  // a socket; the keeper removes the directory if it closes without a byte
};

}  // namespace tagwire::tools
