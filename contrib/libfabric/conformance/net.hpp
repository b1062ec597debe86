// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of one provider in one process, and the steps that cases are made of. Everything goes
// through libfabric's public calls.
//
//  1. A call that is refused for now is tried again after progress; one that the provider does not
//     have ends the case as not supported; any other error as failed.
//  2. Progress reads all queues of all endpoints; entries wait here until a case takes them.
//  3. Waiting ends with Hung when nothing came for a while.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "verdict.hpp"

namespace conformance {

using Bytes = std::vector<std::uint8_t>;

// The provider that this process judges, and those that it starts.
void name_provider(const std::string& name);
// Loads what has been named, for the processes that are forked afterwards, too: libfabric reads the
// kernel's symbols then, which takes 0.1 s of a processor.
void load_providers();
const std::string& provider();

// The longest time that a wait lasts before it ends with Hung.
std::chrono::milliseconds patience();
void set_patience(std::chrono::milliseconds patience);

Bytes pattern(std::size_t length, unsigned seed = 1);

template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
void same(const char* what, A expected, B got) {
    if (!(static_cast<std::common_type_t<A, B>>(expected) ==
          static_cast<std::common_type_t<A, B>>(got))) {
        throw Failed(std::string(what) + ": expected " + std::to_string(expected) + ", got " +
                     std::to_string(got));
    }
}
void same(const char* what, const void* expected, const void* got);
void holds(const char* what, bool is_so);
void same_bytes(const char* what, const Bytes& expected, const Bytes& got);
void done(const char* what, std::int64_t status);  // zero, or how the case ends

struct Want {
    std::uint64_t caps = FI_MSG | FI_TAGGED;
    std::uint64_t mode = FI_CONTEXT | FI_CONTEXT2;
    std::uint64_t tx_op_flags = 0;
    std::uint64_t rx_op_flags = 0;
    std::uint64_t order = FI_ORDER_SAS;
    fi_threading threading = FI_THREAD_DOMAIN;
    fi_av_type av = FI_AV_MAP;
    fi_cq_format format = FI_CQ_FORMAT_TAGGED;
    fi_wait_obj wait = FI_WAIT_NONE;
    bool selective_tx = false;
    bool selective_rx = false;
    bool counters = false;
    bool enable = true;
    int mr_mode = 0;
    std::size_t ends = 2;
};

// An owner of what fi_close() ends.
template <class T>
struct Closes {
    void operator()(T* object) const { fi_close(&object->fid); }
};
template <class T>
using Owned = std::unique_ptr<T, Closes<T>>;

struct FreesInfo {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreesInfo>;

Info hints_of(const Want& want);
// The provider's first answer; empty if there is none.
Info ask(const fi_info& hints);

struct Entry : fi_cq_tagged_entry {
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    int err = 0;
    std::size_t olen = 0;
};

struct End {
    Owned<fid_cq> tx_queue, rx_queue;
    Owned<fid_cntr> tx_counter, rx_counter;
    Owned<fid_ep> ep;
    std::deque<Entry> sent, received;
};

// Arguments of a call with a message structure, except the data.
struct Message {
    std::uint64_t tag = 0;
    std::uint64_t flags = 0;
    std::uint64_t data = 0;
    std::uint64_t ignore = 0;
    std::size_t context = 0;
    fi_addr_t from = FI_ADDR_UNSPEC;
};

class Net {
  public:
    explicit Net(const Want& want = {});
    ~Net();
    Net(const Net&) = delete;
    Net& operator=(const Net&) = delete;

    fi_info& info() { return *info_; }
    fid_fabric* fabric() { return fabric_.get(); }
    fid_domain* domain() { return domain_.get(); }
    fid_av* av() { return av_.get(); }
    End& end(std::size_t i) { return ends_.at(i); }
    fid_ep* ep(std::size_t i) { return ends_.at(i).ep.get(); }
    fi_addr_t address(std::size_t i) { return addresses_.at(i); }
    void* context(std::size_t n) { return &contexts_.at(n); }
    void add_address(const Bytes& name);

    void post(const char* what, const std::function<std::int64_t()>& call);
    void progress();
    void until(const char* what, const std::function<bool()>& reached);

    // One call each; `n` is the number of the operation's context.
    void tsend(std::size_t from, std::size_t to, const Bytes& bytes, std::uint64_t tag,
               std::size_t n = 0);
    void trecv(std::size_t at, Bytes& bytes, std::uint64_t tag, std::size_t n = 0);
    void send(std::size_t from, std::size_t to, const Bytes& bytes, std::size_t n = 0);
    void recv(std::size_t at, Bytes& bytes, std::size_t n = 0);
    void tsendmsg(std::size_t from, std::size_t to, const Bytes& bytes, const Message& message);
    void trecvmsg(std::size_t at, Bytes& bytes, const Message& message);
    void sendmsg(std::size_t from, std::size_t to, const Bytes& bytes, const Message& message);
    void recvmsg(std::size_t at, Bytes& bytes, const Message& message);

    // The next entry, whatever it is; one without an error; one with that error.
    Entry next_sent(std::size_t at);
    Entry next_received(std::size_t at);
    Entry sent(std::size_t at);
    Entry received(std::size_t at);
    Entry failed(std::size_t at, int err);
    // Nothing comes, although there is progress.
    void quiet(const char* what, const std::deque<Entry>& entries);
    // A message that has no receive yet has surely come: one behind it was received.
    void settle(std::size_t from, std::size_t to);

    Bytes name_of(std::size_t i);

  private:
    const Bytes& keep(const Bytes& bytes, std::uint64_t flags = 0);
    void open_end(const Want& want);
    void bind(End& end, const Want& want);
    void read(fid_cq* queue, std::deque<Entry>& into);

    Info info_;
    Owned<fid_fabric> fabric_;
    Owned<fid_domain> domain_;
    Owned<fid_av> av_;
    std::array<fi_context2, 1024> contexts_{};
    std::deque<Bytes> kept_;  // what operations that may not have ended send
    std::deque<End> ends_;
    std::vector<fi_addr_t> addresses_;
};

}  // namespace conformance
