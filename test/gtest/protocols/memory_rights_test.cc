// SPDX-License-Identifier: BSD-3-Clause
// The rights with which memory is registered: those that its owner gave, once; on a device that
// refuses what a kernel refuses: to write where the program may only read. The virtual HCA whose
// registration the test replaces.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "protocols/rma_pair.hpp"
#include "uct/ib/verbs.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kRemoteWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kRemote = kRemoteWrite | IBV_ACCESS_REMOTE_READ;
constexpr std::size_t kMappedBytes = 256 << 10;

/// Memory of the test, and what was registered of it.
class Watched {
  public:
    Watched() {
        self = this;
        for (const ib::VerbsLibrary& library : ib::verbs_libraries())
            if (library.origin == ib::VerbsOrigin::kVirtual)
                table_ = const_cast<ib::VerbsTable*>(&library.verbs);
        real_ = *table_;
        table_->reg_mr = reg_mr;
        table_->reg_mr_iova2 = reg_mr_iova2;
        memory_ = static_cast<std::byte*>(::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const Bytes data = pattern(kMappedBytes, 3);
        std::copy(data.begin(), data.end(), memory_);
    }
    ~Watched() {
        ::munmap(memory_, kMappedBytes);
        *table_ = real_;
        self = nullptr;
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    void make_read_only() {
        ASSERT_EQ(0, ::mprotect(memory_, kMappedBytes, PROT_READ));
        is_read_only_ = true;
    }
    [[nodiscard]] std::byte* memory() const { return memory_; }

    std::vector<unsigned> granted;  // rights of each registration that was made

  private:
    static ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
        return look(address, length, static_cast<unsigned>(access),
                    [&] { return self->real_.reg_mr(pd, address, length, access); });
    }
    static ibv_mr* reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                                unsigned access) {
        return look(address, length, access,
                    [&] { return self->real_.reg_mr_iova2(pd, address, length, iova, access); });
    }
    template <class Register>
    static ibv_mr* look(void* address, std::size_t length, unsigned access, Register&& make) {
        auto* const at = static_cast<std::byte*>(address);
        const bool is_ours = at < self->memory_ + kMappedBytes && self->memory_ < at + length;
        if (is_ours && self->is_read_only_ && (access & IBV_ACCESS_LOCAL_WRITE) != 0) {
            errno = EFAULT;
            return nullptr;
        }
        ibv_mr* mr = make();
        if (is_ours && mr != nullptr)
            self->granted.push_back(access);
        return mr;
    }

    static inline Watched* self = nullptr;
    ib::VerbsTable* table_ = nullptr;
    ib::VerbsTable real_{};
    std::byte* memory_ = nullptr;
    bool is_read_only_ = false;
};

struct GivenRights {
    const char* name;
    std::uint32_t access;
    unsigned rights;  // of peers
};

void PrintTo(const GivenRights& given, std::ostream* out) {
    *out << given.name;
}

class MemoryRights : public RmaTest, public ::testing::WithParamInterface<GivenRights> {
  protected:
    tw_mem_h map(tw_status_t expected = TW_OK) {
        tw_mem_params_t params{};
        params.access = GetParam().access;
        tw_mem_h mem = nullptr;
        EXPECT_EQ(expected,
                  tw_mem_map(context_.get(), watched_.memory(), kMappedBytes, &params, &mem));
        return mem;
    }
    /// A long message from the memory, which its receiver may read by itself.
    void send_from(tw_mem_h mem) {
        tw_op_t how = op(&how);
        how.mem = mem;
        Bytes into(kMappedBytes);
        const tw_op_t receives = op(&into);
        tw_tag_recv(node(1).worker(), into.data(), into.size(), 9, ~std::uint64_t{0}, &receives,
                    nullptr);
        tw_tag_send(node(0).to(node(1)), watched_.memory(), kMappedBytes, 9, &how, nullptr);
        EXPECT_EQ(TW_OK, end_of(node(0), &how).status);
        EXPECT_EQ(TW_OK, end_of(node(1), &into).status);
        EXPECT_EQ(pattern(kMappedBytes, 3), into);
    }
    /// A long message into the memory.
    void receive_into(tw_mem_h mem) {
        tw_op_t how = op(&how);
        how.mem = mem;
        const Bytes data = pattern(kMappedBytes, 4);
        tw_op_t sends = op(&sends);
        tw_tag_recv(node(1).worker(), watched_.memory(), kMappedBytes, 9, ~std::uint64_t{0}, &how,
                    nullptr);
        tw_tag_send(node(0).to(node(1)), data.data(), kMappedBytes, 9, &sends, nullptr);
        EXPECT_EQ(TW_OK, end_of(node(0), &sends).status);
        EXPECT_EQ(TW_OK, end_of(node(1), &how).status);
        EXPECT_EQ(0, std::memcmp(data.data(), watched_.memory(), kMappedBytes));
    }

    Watched watched_;
};

TEST_P(MemoryRights, are_registered_once_as_the_owner_gave_them) {
    connected(node(0), node(1));
    const tw_mem_h mem = map();
    ASSERT_EQ(1U, watched_.granted.size());
    EXPECT_EQ(GetParam().rights, watched_.granted[0] & kRemote);
    send_from(mem);
    receive_into(mem);
    for (const unsigned rights : watched_.granted)
        EXPECT_EQ(0U, rights & kRemoteWrite & ~GetParam().rights);
    EXPECT_EQ(TW_OK, tw_mem_unmap(context_.get(), mem));
}

TEST_P(MemoryRights, of_memory_that_the_program_only_reads_are_not_to_write) {
    connected(node(0), node(1));
    watched_.make_read_only();
    if ((GetParam().rights & kRemoteWrite) != 0) {
        map(TW_ERR_INVALID_ADDR);
        return;
    }
    const tw_mem_h mem = map();
    ASSERT_NE(nullptr, mem);
    ASSERT_EQ(1U, watched_.granted.size());
    EXPECT_EQ(unsigned{IBV_ACCESS_REMOTE_READ}, watched_.granted[0] & kRemote);
    send_from(mem);
    tw_op_t how = op(&how);
    how.mem = mem;
    EXPECT_EQ(TW_ERR_INVALID_PARAM, tw_tag_recv(node(1).worker(), watched_.memory(), kMappedBytes,
                                                9, ~std::uint64_t{0}, &how, nullptr));
    EXPECT_EQ(TW_OK, tw_mem_unmap(context_.get(), mem));
}

INSTANTIATE_TEST_SUITE_P(
    Msg, MemoryRights,
    ::testing::Values(GivenRights{"none", TW_ACCESS_NONE, IBV_ACCESS_REMOTE_READ},
                      GivenRights{"read", TW_ACCESS_READ, IBV_ACCESS_REMOTE_READ},
                      GivenRights{"write", TW_ACCESS_WRITE, IBV_ACCESS_REMOTE_WRITE},
                      GivenRights{"atomic", TW_ACCESS_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
                      GivenRights{"all", TW_ACCESS_ALL, kRemote}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tagwire::test
