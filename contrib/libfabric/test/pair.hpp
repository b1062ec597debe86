// SPDX-License-Identifier: BSD-3-Clause
// Two endpoints of the provider in one process, through libfabric's public API only.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tagwire::fi_test {

struct Close {
    template <class Object>
    void operator()(Object* object) const {
        EXPECT_EQ(fi_close(&object->fid), 0);
    }
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
template <class Object>
using Owner = std::unique_ptr<Object, Close>;

using Text = std::string;
using Name = std::array<char, FI_NAME_MAX>;

inline constexpr std::uint64_t kTaggedRecv = FI_TAGGED | FI_RECV;
inline constexpr std::uint64_t kMsgRecv = FI_MSG | FI_RECV;
/// The version of the interface that tests ask for, unless they say another.
inline constexpr std::uint32_t kVersion = FI_VERSION(1, 17);
/// libfabric 2.0 has no buffered receives.
#ifdef FI_BUFFERED_RECV
inline constexpr std::uint64_t kBufferedRecv = FI_BUFFERED_RECV;
#else
inline constexpr std::uint64_t kBufferedRecv = 0;
#endif

Text text_of(std::size_t length);
/// Hints for the provider with these capabilities.
Owner<fi_info> hints_for(std::uint64_t caps);
/// nullptr: there is no answer.
Owner<fi_info> ask(const fi_info* hints, const char* node = nullptr, std::uint64_t flags = 0,
                   const char* service = nullptr, std::uint32_t version = kVersion);

/// Settings that a test can change.
struct Wanted {
    std::uint64_t caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
    std::uint64_t mode = 0;
    std::uint64_t tx_op_flags = 0;
    std::uint64_t rx_op_flags = 0;
    std::uint64_t bind_flags = 0;  ///< FI_SELECTIVE_COMPLETION
    fi_threading threading = FI_THREAD_DOMAIN;
    fi_cq_format format = FI_CQ_FORMAT_TAGGED;
    fi_wait_obj wait_obj = FI_WAIT_NONE;
    bool has_counters = false;
    bool has_rma_counters = false;
    int mr_mode = 0;
    std::size_t cq_size = 0;
    std::uint32_t version = kVersion;
    fi_av_type av_type = FI_AV_UNSPEC;
    fi_progress data_progress = FI_PROGRESS_UNSPEC;
    bool is_inserted = true;  ///< The names of both are in the vector, and they know each other.
};

/// An endpoint with a queue for its sends and one for its receives.
struct Side {
    Owner<fid_cq> tx;
    Owner<fid_cq> rx;
    Owner<fid_cntr> tx_cntr;
    Owner<fid_cntr> rx_cntr;
    Owner<fid_cntr> reads;
    Owner<fid_cntr> writes;
    Owner<fid_cntr> remote_reads;
    Owner<fid_cntr> remote_writes;
    Owner<fid_ep> ep;
    Name name{};
};

class Pair : public testing::Test {
  protected:
    void open(const Wanted& wanted = {});
    /// As the destructor does.
    void close();
    void open_side(Side& side, const Wanted& wanted);
    /// A counter of those operations of the endpoint.
    void open_counter(Side& side, Owner<fid_cntr>& cntr, std::uint64_t way);
    /// A third endpoint, with the queue of `b`'s receives.
    Owner<fid_ep> open_third(Name* name_p);
    void greet(Side& from, Side& to, fi_addr_t addr);

    /// Progresses everything until it holds; fails after many steps.
    bool run_until(const std::function<bool()>& is_done);
    void run_some();
    /// The next entry of a queue.
    fi_cq_tagged_entry next(const Owner<fid_cq>& cq, fi_addr_t* source = nullptr);
    fi_cq_err_entry next_error(const Owner<fid_cq>& cq);
    bool is_empty(const Owner<fid_cq>& cq);
    void retry(const std::function<ssize_t()>& call);
    /// Repeats a call that ends with an entry until the queue of a's sends is full, then until it
    /// is taken again, without reading that queue; then reads the entries.
    void expect_taken_without_reading(const std::function<ssize_t()>& call);

    void tsend(const Text& text, std::uint64_t tag, void* context = nullptr);
    void tsendmsg(const Text& text, std::uint64_t tag, std::uint64_t flags,
                  void* context = nullptr);
    void trecv(Text& text, std::uint64_t tag, std::uint64_t ignore = 0, void* context = nullptr,
               fi_addr_t from = FI_ADDR_UNSPEC);
    ssize_t trecvmsg(Text& text, std::uint64_t tag, std::uint64_t flags, void* context);

    Owner<fi_info> info;
    Owner<fid_fabric> fabric;
    Owner<fid_domain> domain;
    Owner<fid_av> av;
    std::deque<Text> texts;  ///< Until the end, so that a test may send what it does not keep.
    Side a;
    Side b;
    fi_addr_t to_a = FI_ADDR_NOTAVAIL;
    fi_addr_t to_b = FI_ADDR_NOTAVAIL;
};

}  // namespace tagwire::fi_test
