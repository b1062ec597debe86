// SPDX-License-Identifier: BSD-3-Clause
// Two endpoints, and memory of the second one that the first one reads and writes.
#pragma once

#include <algorithm>
#include <vector>

#include "pair.hpp"

namespace tagwire::fi_test {

inline constexpr std::uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;

class RmaPair : public Pair {
  protected:
    static constexpr std::uint64_t kRmaCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE;

    ~RmaPair() override {
        mr.reset();
        close();
    }

    void open_rma(Wanted wanted = {}) {
        wanted.caps |= FI_RMA;
        ASSERT_NO_FATAL_FAILURE(open(wanted));
        memory = text_of(4096);
        enter(kRemote);
    }
    void enter(std::uint64_t access, std::uint64_t key = 7) {
        mr.reset();
        ASSERT_EQ(enter_into(mr, memory, access, key), 0);
    }
    int enter_into(Owner<fid_mr>& into, Text& text, std::uint64_t access, std::uint64_t key) {
        fid_mr* made = nullptr;
        const int status =
            fi_mr_reg(domain.get(), text.data(), text.size(), access, 0, key, 0, &made, nullptr);
        if (status == 0)
            into.reset(made);
        return status;
    }
    /// The name that a peer has for a byte of the memory.
    std::uint64_t at(std::size_t offset) const {
        const bool has_addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ||
                                   info->domain_attr->mr_mode == 1;  // FI_MR_BASIC
        return offset + (has_addresses ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0);
    }
    std::uint64_t key() const { return fi_mr_key(mr.get()); }

    void write(const Text& text, std::size_t offset, void* context = nullptr) {
        const Text& kept = texts.emplace_back(text);
        retry([&] {
            return fi_write(a.ep.get(), kept.data(), kept.size(), nullptr, to_b, at(offset), key(),
                            context);
        });
    }
    void read(Text& text, std::size_t offset, void* context = nullptr) {
        retry([&] {
            return fi_read(a.ep.get(), text.data(), text.size(), nullptr, to_b, at(offset), key(),
                           context);
        });
    }
    /// One local buffer, one remote range.
    ssize_t call_msg(bool is_read, Text& text, std::size_t offset, std::uint64_t flags,
                     void* context = nullptr) {
        const iovec iov = {text.data(), text.size()};
        const fi_rma_iov remote = {at(offset), text.size(), key()};
        fi_msg_rma msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        msg.context = context;
        msg.data = 0xda7a;
        return is_read ? fi_readmsg(a.ep.get(), &msg, flags) : fi_writemsg(a.ep.get(), &msg, flags);
    }
    void writemsg(const Text& text, std::size_t offset, std::uint64_t flags,
                  void* context = nullptr) {
        Text& kept = texts.emplace_back(text);
        retry([&] { return call_msg(false, kept, offset, flags, context); });
    }
    bool holds(const Text& text, std::size_t offset) const {
        return memory.compare(offset, text.size(), text) == 0;
    }
    void expect_held(const Text& text, std::size_t offset) {
        run_until([&] { return holds(text, offset); });
    }

    Text memory;
    Owner<fid_mr> mr;
};

}  // namespace tagwire::fi_test
