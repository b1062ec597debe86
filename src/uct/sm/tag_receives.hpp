// SPDX-License-Identifier: BSD-3-Clause
// The tag receives of an interface, and the tagged messages that come whole or in fragments.
// Rendezvous match here, too, and are carried out by Rendezvous.
#pragma once

#include "ucs/memory/mpool.hpp"
#include "uct/sm/iov.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/transfer.hpp"
#include "uct/soft_tags.hpp"

namespace tagwire::sm {

class TagReceives {
  public:
    explicit TagReceives(SmIface& owner) : iface_(owner) {}
    /// `depth` 0: the interface has no tag callbacks.
    ucs_status_t open(std::size_t depth) {
        const ucs_status_t status = tags_.open(depth, "sm posted receives");
        return status == UCS_OK ? iovs_.init({.name = "sm iov", .elements_per_chunk = 16}) : status;
    }

    // ---- Posted receives
    ucs_status_t post(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov, std::size_t iovcnt,
                      uct_tag_context_t* ctx) {
        if (iovcnt != 1 || iov->count != 1) [[unlikely]]
            return post_scattered(tag, mask, iov, iovcnt, ctx);
        PostedEntry* entry = nullptr;
        const ucs_status_t status =
            tags_.create(tag, mask, ctx, static_cast<std::byte*>(iov->buffer), iov->length, &entry);
        if (status != UCS_OK) [[unlikely]]
            return refuse_receive(status);
        tags_.post(*entry);
        return UCS_OK;
    }
    ucs_status_t cancel(uct_tag_context_t& ctx, bool forced);
    [[nodiscard]] bool has_cancelled() const { return tags_.has_cancelled(); }
    unsigned report_cancelled() { return tags_.report_cancelled(); }
    [[nodiscard]] std::size_t posted() const { return tags_.posted(); }
    /// For tear-down: without a callback.
    void destroy(PostedEntry& entry) { tags_.destroy(entry); }
    void destroy_all() { tags_.destroy_all(); }

    // ---- Messages
    /// False, and the connection ends: nobody would be told of a tagged message.
    bool takes_tags(Link& link);
    /// A whole message that lies in its slot.
    void deliver(uct_tag_t tag, std::uint64_t imm, const std::byte* data, std::size_t bytes);
    /// A message in a buffer, or a fragment of one. False: it stays where it is.
    bool deliver_seg(Link& link, Control control);

    // ---- For rendezvous
    /// The earliest receive that matches, told that it is consumed; null: there is none.
    PostedEntry* consume(uct_tag_t tag) { return tags_.consume(tag); }
    void complete(PostedEntry& entry, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                  ucs_status_t status);
    /// A rendezvous that the program carries out completes the receive that it matches. False:
    /// there is none.
    bool give_rndv(uct_tag_t tag, const void* header, unsigned bytes);

  private:
    [[gnu::cold]] ucs_status_t refuse_receive(ucs_status_t status) const;
    ucs_status_t post_scattered(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    ucs_status_t abandon(PostedEntry& entry);
    void refuse_tagged(const std::byte* data);
    bool deliver_fragment(Link& link, const TagSegBody& body, std::uint32_t bytes, bool more);

    SmIface& iface_;
    ucs::ObjectPool<IovCopy> iovs_;  // of scattered receives
    uct::SoftTags<PostedEntry> tags_;
};

}  // namespace tagwire::sm
