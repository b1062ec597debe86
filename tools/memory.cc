// SPDX-License-Identifier: BSD-3-Clause
#include "tools/memory.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kRkeyMax = 4096;

std::size_t page_bytes() {
    return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Buffer::Buffer(const Link& link, MemoryKind kind, std::size_t bytes)
    : md_(link.md()), bytes_(bytes > 0 ? bytes : 1) {
    if (kind == MemoryKind::kUser)
        allocate_user(link);
    else
        allocate_from_md(link);
    std::memset(data_, 0, bytes_);
}

void Buffer::allocate_user(const Link& link) {
    const std::size_t page = page_bytes();
    data_ = static_cast<std::uint8_t*>(std::aligned_alloc(page, (bytes_ + page - 1) / page * page));
    if (data_ == nullptr)
        throw Failure(text("out of memory for a buffer of %zu bytes", bytes_));
    if ((link.md_attr().cap.flags & UCT_MD_FLAG_REG) != 0) {
        std::memset(data_, 0, bytes_);
        const ucs_status_t status =
            uct_md_mem_reg(md_, data_, bytes_, UCT_MD_MEM_ACCESS_ALL, &memh_);
        if (status != UCS_OK) {
            std::free(data_);
            throw Failure(text("cannot register %zu bytes: %s", bytes_, ucs_status_string(status)));
        }
    }
}

void Buffer::allocate_from_md(const Link& link) {
    if ((link.md_attr().cap.flags & UCT_MD_FLAG_ALLOC) == 0) {
        throw UsageError(text("--memory alloc: memory domain %s does not allocate memory",
                              link.resource().md_name.c_str()));
    }
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS |
                        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = UCT_MD_MEM_ACCESS_ALL;
    params.mem_type = UCS_MEMORY_TYPE_HOST;
    params.mds.mds = &md_;
    params.mds.count = 1;
    params.name = "tagwire perf";
    const ucs_status_t status = uct_mem_alloc(bytes_, &method, 1, &params, &allocated_);
    if (status != UCS_OK) {
        throw Failure(text("memory domain %s cannot allocate %zu bytes: %s",
                           link.resource().md_name.c_str(), bytes_, ucs_status_string(status)));
    }
    from_md_ = true;
    data_ = static_cast<std::uint8_t*>(allocated_.address);
    memh_ = allocated_.memh;
}

Buffer::~Buffer() {
    if (from_md_) {
        uct_mem_free(&allocated_);
        return;
    }
    if (memh_ != UCT_MEM_HANDLE_NULL)
        uct_md_mem_dereg(md_, memh_);
    std::free(data_);
}

RemoteBuffer::RemoteBuffer(const Link& link, const Buffer& mine, std::size_t bytes)
    : component_(link.resource().component) {
    if (mine.memh() == UCT_MEM_HANDLE_NULL) {
        throw Failure(
            text("memory domain %s cannot register ordinary memory for remote access: use --memory "
                 "alloc",
                 link.resource().md_name.c_str()));
    }
    Bytes key(link.md_attr().rkey_packed_size);
    check(uct_md_mkey_pack(link.md(), mine.memh(), key.data()), "uct_md_mkey_pack");
    Encoder message;
    message.number(reinterpret_cast<std::uintptr_t>(mine.data()))
        .number(mine.bytes())
        .blob(key.data(), key.size());
    link.channel().send(MessageType::kRegion, message);

    Decoder theirs = link.channel().expect(MessageType::kRegion);
    address_ = theirs.number();
    const std::uint64_t length = theirs.number();
    const Bytes their_key = theirs.blob(kRkeyMax);
    theirs.end();
    if (length < bytes || their_key.size() != key.size())
        throw Failure("the peer offered memory of another size than agreed");
    key_.rkey = UCT_INVALID_RKEY;
    if ((link.md_attr().cap.flags & UCT_MD_FLAG_NEED_RKEY) != 0) {
        check(uct_rkey_unpack(component_, their_key.data(), &key_), "uct_rkey_unpack");
        unpacked_ = true;
    }
}

RemoteBuffer::~RemoteBuffer() {
    if (unpacked_)
        uct_rkey_release(component_, &key_);
}

}  // namespace tagwire::tools
