// SPDX-License-Identifier: BSD-3-Clause
// Trust between processes: which of them may connect, and how bytes move where the kernel does not
// let one process read another.
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "buffer.hpp"
#include "common/skip.hpp"
#include "harness.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr uid_t kNobody = 65534;

void become(uid_t uid) {
    ASSERT_EQ(0, setgroups(0, nullptr));
    ASSERT_EQ(0, setresgid(uid, uid, uid));
    ASSERT_EQ(0, setresuid(uid, uid, uid));
}

class Trust : public ProcessTest {};

TEST_F(Trust, another_user_is_refused) {
    if (getuid() != 0)
        TW_SKIP("needs root, to become two users");
    Child owner([](Channel& control) {
        Entity self(resource_of("sm"));
        control.send(address_of(self));
        progress_until(self, [&] { return control.has_message(); });
        progress_until(
            self, [] { return false; }, 50);
        EXPECT_TRUE(self.am.empty());
        EXPECT_TRUE(self.errors.empty());
    });
    const auto address = owner.channel().receive();
    ASSERT_TRUE(address.has_value());
    Child stranger([&](Channel&) {
        become(kNobody);
        Entity self(resource_of("sm"));
        const auto parts = unpack(*address);
        ucs_status_t status = UCS_OK;
        const Endpoint ep = connect_to_address(self, parts.at(0), parts.at(1), &status);
        if (status == UCS_OK) {  // it may be let down later, too, but never heard
            EXPECT_TRUE(progress_until(
                self,
                [&] {
                    uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0);
                    return !self.errors.empty();
                },
                5000));
        }
    });
    EXPECT_EQ(0, stranger.join());
    owner.channel().signal();
    EXPECT_EQ(0, owner.join());
}

struct Copies {
    const char* name;
    bool unprivileged;  // uid without rights over others, and processes that are not dumpable
    const char* cma;
};
void PrintTo(const Copies& copies, std::ostream* out) {
    *out << copies.name;
}

class CopyPath : public ProcessTest, public ::testing::WithParamInterface<Copies> {};

void move_all_ways(Entity& self, uct_ep_h ep, const std::vector<Bytes>& peer) {
    constexpr std::size_t kBytes = 1 << 20;
    const RemoteKey key(self, peer.at(0));
    std::uint64_t address = 0;
    std::copy(peer.at(1).begin(), peer.at(1).end(), reinterpret_cast<std::byte*>(&address));
    const auto finish = [&](const std::function<ucs_status_t(uct_completion_t*)>& operation) {
        Completion completion;
        const ucs_status_t status = retry(self, [&] { return operation(&completion); });
        if (status != UCS_INPROGRESS)
            return status;
        EXPECT_TRUE(progress_until(self, [&] { return completion.calls > 0; }));
        EXPECT_EQ(1, completion.calls);
        return completion.ended;
    };
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{8192}, std::size_t{100003}, kBytes}) {
        SCOPED_TRACE(std::to_string(size) + " bytes");
        const Buffer source = make_payload(self, size, size);
        const Buffer target(self, size, Backing::kRegistered);
        const uct_iov_t from = source.iov();
        const uct_iov_t to = target.iov();
        EXPECT_EQ(UCS_OK, finish([&](uct_completion_t* completion) {
                      return uct_ep_put_zcopy(ep, &from, 1, address, key.get(), completion);
                  }));
        EXPECT_TRUE(progress_until(
            self, [&] { return uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK; }));
        EXPECT_EQ(UCS_OK, finish([&](uct_completion_t* completion) {
                      return uct_ep_get_zcopy(ep, &to, 1, address, key.get(), completion);
                  }));
        EXPECT_EQ(size, first_mismatch(target.span(), size));
        EXPECT_EQ(UCS_OK, finish([&](uct_completion_t* completion) {
                      const auto handle =
                          uct_ep_tag_rndv_zcopy(ep, size, nullptr, 0, &from, 1, 0, completion);
                      return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_INPROGRESS;
                  }));
    }
}

EntityOptions prepare(const Copies& copies) {
    if (copies.unprivileged) {
        become(kNobody);
        prctl(PR_SET_DUMPABLE, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // forgotten with the change of user
    }
    EntityOptions options;
    options.iface_config = {{"SM_CMA", copies.cma}};
    return options;
}

TEST_P(CopyPath, moves_and_validates_every_size) {
    if (GetParam().unprivileged && getuid() != 0)
        TW_SKIP("needs root, to become an unprivileged user");
    Child target([&](Channel& control) {
        Entity self(resource_of("sm"), prepare(GetParam()));
        const Buffer memory(self, 1 << 20, Backing::kRegistered);
        const std::uint64_t address = memory.address();
        const auto* first = reinterpret_cast<const std::byte*>(&address);
        control.send(pack({self.device_address(), self.iface_address(), memory.packed_rkey(),
                           Bytes(first, first + sizeof address)}));
        std::vector<std::unique_ptr<Receive>> receives;
        for (const std::size_t size : {1UL, 8192UL, 100003UL, 1UL << 20}) {
            receives.push_back(std::make_unique<Receive>(self, size));
            EXPECT_EQ(UCS_OK, receives.back()->post(size));
        }
        EXPECT_TRUE(progress_until(self, [&] { return control.has_message(); }));
        for (const auto& receive : receives) {
            EXPECT_EQ(1, receive->completed);
            EXPECT_EQ(UCS_OK, receive->status);
            EXPECT_TRUE(has_pattern(receive->received(), receive->sender_tag));
        }
    });
    const auto address = target.channel().receive();
    ASSERT_TRUE(address.has_value());
    const auto parts = unpack(*address);
    Child initiator([&](Channel&) {
        Entity self(resource_of("sm"), prepare(GetParam()));
        const Endpoint ep = connect_to_address(self, parts.at(0), parts.at(1));
        move_all_ways(self, ep, {parts.at(2), parts.at(3)});
        EXPECT_TRUE(self.errors.empty());
    });
    EXPECT_EQ(0, initiator.join());
    target.channel().signal();
    EXPECT_EQ(0, target.join());
}

/// Statuses with which a get and a put of the first bytes by a key end.
std::pair<ucs_status_t, ucs_status_t> use_key(Entity& self, uct_ep_h ep, const Bytes& packed,
                                              std::uint64_t address) {
    constexpr std::size_t kBytes = 100003;
    const RemoteKey key(self, packed);
    const Buffer local(self, kBytes, Backing::kRegistered);
    const uct_iov_t iov = local.iov();
    ucs_status_t ends[2];
    int i = 0;
    for (const auto operation : {uct_ep_get_zcopy, uct_ep_put_zcopy}) {
        Completion completion;
        ucs_status_t& end = ends[i++];
        end = retry(self, [&] { return operation(ep, &iov, 1, address, key.get(), &completion); });
        if (end == UCS_INPROGRESS) {
            EXPECT_TRUE(progress_until(self, [&] { return completion.calls > 0; }));
            end = completion.ended;
        }
    }
    return {ends[0], ends[1]};
}

TEST_P(CopyPath, a_key_that_was_taken_back_is_refused) {
    if (GetParam().unprivileged && getuid() != 0)
        TW_SKIP("needs root, to become an unprivileged user");
    for (const Backing backing : {Backing::kRegistered, Backing::kAllocated}) {
        Child target([&](Channel& control) {
            Entity self(resource_of("sm"), prepare(GetParam()));
            auto memory = std::make_unique<Buffer>(self, 1 << 20, backing);
            const std::uint64_t address = memory->address();
            const auto* first = reinterpret_cast<const std::byte*>(&address);
            control.send(pack({self.device_address(), self.iface_address(), memory->packed_rkey(),
                               Bytes(first, first + sizeof address)}));
            EXPECT_TRUE(progress_until(self, [&] { return control.has_message(); }));
            EXPECT_TRUE(control.await_signal());
            memory.reset();
            // The memory that takes its place has the place of its key, too.
            memory = std::make_unique<Buffer>(self, 1 << 20, backing);
            control.signal();
            EXPECT_TRUE(progress_until(self, [&] { return control.has_message(); }));
        });
        const auto told = target.channel().receive();
        ASSERT_TRUE(told.has_value());
        const auto parts = unpack(*told);
        Child initiator([&](Channel& control) {
            Entity self(resource_of("sm"), prepare(GetParam()));
            const Endpoint ep = connect_to_address(self, parts.at(0), parts.at(1));
            std::uint64_t address = 0;
            std::memcpy(&address, parts.at(3).data(), sizeof address);
            const auto before = use_key(self, ep, parts.at(2), address);
            EXPECT_EQ(UCS_OK, before.first);
            EXPECT_EQ(UCS_OK, before.second);
            control.signal();
            EXPECT_TRUE(control.await_signal());
            const auto after = use_key(self, ep, parts.at(2), address);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, after.first);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, after.second);
            EXPECT_TRUE(self.errors.empty());
        });
        EXPECT_TRUE(initiator.channel().await_signal());
        target.channel().signal();
        EXPECT_TRUE(target.channel().await_signal());
        initiator.channel().signal();
        EXPECT_EQ(0, initiator.join());
        target.channel().signal();
        EXPECT_EQ(0, target.join());
    }
}

std::string copies_label(const ::testing::TestParamInfo<Copies>& parameter) {
    return parameter.param.name;
}
INSTANTIATE_TEST_SUITE_P(Process, CopyPath,
                         ::testing::Values(Copies{"straight", false, "auto"},
                                           Copies{"switched_off", false, "off"},
                                           Copies{"not_permitted", true, "auto"},
                                           Copies{"asked_for", false, "allow-any"}),
                         copies_label);

}  // namespace
}  // namespace tagwire::test
