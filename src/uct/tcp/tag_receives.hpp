// SPDX-License-Identifier: BSD-3-Clause
// The tag receives of an interface, and eager tagged messages. Rendezvous match here, too, and are
// carried out by Rendezvous. Owner thread only.
#pragma once

#include "ucs/memory/mpool.hpp"
#include "uct/iov.hpp"
#include "uct/soft_tags.hpp"
#include "uct/tcp/stream_reader.hpp"

namespace tagwire::tcp {

/// A posted receive. Its second cache line is valid only as far as the flags in the first say.
struct alignas(64) Posted : uct::SoftReceive {
    using SoftReceive::SoftReceive;
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;
    ~Posted() {
        if (has_extension())
            pool_->destroy(pieces_);
    }

    /// The buffer has several pieces, of which SoftReceive::buffer is the first.
    void scatter(uct::IovCopy* pieces, ucs::ObjectPool<uct::IovCopy>& pool) {
        set_extension();
        pieces_ = pieces;
        pool_ = &pool;
    }
    /// The whole buffer; `iov` holds it as long as the cursor is used.
    uct::IovCursor cursor(uct::IovCopy* iov) const {
        if (has_extension())
            return pieces_->cursor();
        const uct_iov_t one{buffer, capacity(), nullptr, 0, 1};
        iov->assign(&one, 1);
        return iov->cursor();
    }
    void copy_from(const std::byte* data, std::size_t bytes) const {
        if (has_extension())
            pieces_->cursor().scatter(data, bytes);
        else
            ucs::copy_short(buffer, data, bytes);
    }

  private:
    uct::IovCopy* pieces_;
    ucs::ObjectPool<uct::IovCopy>* pool_;
};

class TagReceives {
  public:
    explicit TagReceives(TcpIface& owner) : iface_(owner) {}
    TagReceives(const TagReceives&) = delete;
    TagReceives& operator=(const TagReceives&) = delete;

    /// `depth` 0: the interface has no tag callbacks.
    ucs_status_t open(std::size_t depth);
    ucs_status_t post(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov, std::size_t iovcnt,
                      uct_tag_context_t* ctx);
    ucs_status_t cancel(uct_tag_context_t& ctx, bool forced);
    [[nodiscard]] bool has_cancelled() const { return tags_.has_cancelled(); }
    unsigned report_cancelled() { return tags_.report_cancelled(); }
    [[nodiscard]] std::size_t posted() const { return tags_.posted(); }
    void destroy(Posted& posted) { tags_.destroy(posted); }
    void destroy_all() { tags_.destroy_all(); }

    /// False, and the connection ends: nobody would be told of a tagged message.
    bool takes_tags(Connection& connection);
    /// A whole message. True: the program keeps the descriptor.
    bool deliver(Connection& connection, const Message& message);
    /// A message of which a part has come: the receive that it fills, told that it is consumed, and
    /// in `in` where its bytes go. Null: none matches, or the connection ends.
    Posted* begin_eager(Connection& connection, const TagEagerBody& body, Incoming* in,
                        std::uint64_t* room_p);
    Posted* consume(uct_tag_t tag) { return tags_.consume(tag); }
    void complete(Posted& posted, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                  ucs_status_t status);
    /// A rendezvous that the program carries out completes the receive that it matches. False:
    /// there is none.
    bool give_rndv(uct_tag_t tag, const void* header, unsigned bytes);

  private:
    ucs_status_t abandon(Posted& posted);

    TcpIface& iface_;
    ucs::ObjectPool<uct::IovCopy> iovs_;  // of scattered receives
    uct::SoftTags<Posted> tags_;
};

}  // namespace tagwire::tcp
