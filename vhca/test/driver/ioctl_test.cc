// SPDX-License-Identifier: BSD-3-Clause
// The codec of RDMA_VERBS_IOCTL, given what no library would give it.
#include "vhca/driver/ioctl.hpp"

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "vhca/engine/fault_handler.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

constexpr std::uint16_t kObjectId = 7, kMethodId = 3;
constexpr std::uint16_t kHandle = 0, kNumber = 1, kStruct = 2, kReply = 3, kFlags = 4, kMade = 5,
                        kLongReply = 6, kUnknown = 99;

constexpr std::array kAttributes = {
    object(kHandle, UVERBS_OBJECT_PD),
    in(kNumber, 4, false),
    in_struct(kStruct, 8, 16),
    out(kReply, 4, false),
    flags(kFlags),
    AttributeSpec{kMade, AttributeSpec::Kind::kNew, false, UVERBS_OBJECT_CQ},
    out_struct(kLongReply, 4, 8, false),
};
constexpr std::array kMethods = {
    IoctlMethod{kObjectId, kMethodId, kAttributes, nullptr, true},
    IoctlMethod{kObjectId, kMethodId + 1, {}, nullptr, false},
};

/// An ioctl's argument, as a program lays it out.
class Argument {
  public:
    Argument() : bytes_(4096) {
        header().object_id = kObjectId;
        header().method_id = kMethodId;
        header().driver_id = RDMA_DRIVER_MLX5;
        update();
    }
    ib_uverbs_ioctl_hdr& header() { return *reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes_.data()); }
    ib_uverbs_attr& at(std::size_t index) { return header().attrs[index]; }
    ib_uverbs_attr& add(std::uint16_t id, std::uint16_t bytes, std::uint64_t data,
                        std::uint16_t flags = UVERBS_ATTR_F_MANDATORY) {
        ib_uverbs_attr& attr = at(count_++);
        attr = {};
        attr.attr_id = id;
        attr.len = bytes;
        attr.flags = flags;
        attr.data = data;
        update();
        return attr;
    }
    ib_uverbs_attr& add_pointer(std::uint16_t id, std::uint16_t bytes, void* to) {
        return add(id, bytes, reinterpret_cast<std::uint64_t>(to));
    }
    /// The attributes that kAttributes demands.
    Argument& with_mandatory() {
        add(kHandle, 0, 5);
        add(kStruct, 8, 0x0102030405060708);
        return *this;
    }
    int decode(IoctlCall* call_p) { return driver::decode(bytes_.data(), kMethods, call_p); }
    int decode() {
        IoctlCall call;
        return decode(&call);
    }

  private:
    void update() {
        header().num_attrs = count_;
        header().length = static_cast<std::uint16_t>(sizeof(ib_uverbs_ioctl_hdr) +
                                                     count_ * sizeof(ib_uverbs_attr));
    }
    std::uint16_t count_ = 0;
    std::vector<std::byte> bytes_;
};

/// Memory whose second page is not there.
class Edge {
  public:
    Edge() : bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
        install_fault_handler();
        base_ = static_cast<std::byte*>(
            mmap(nullptr, 2 * bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        munmap(base_ + bytes_, bytes_);
    }
    ~Edge() { munmap(base_, bytes_); }
    /// So many bytes are there, what follows is not.
    std::byte* before_end(std::size_t bytes) { return base_ + bytes_ - bytes; }

  private:
    std::size_t bytes_;
    std::byte* base_;
};

TEST(DriverIoctl, a_call_reads_what_its_attributes_say) {
    Argument argument;
    argument.with_mandatory().add(kNumber, 4, 0xfeedface);
    IoctlCall call;
    ASSERT_EQ(argument.decode(&call), 0);
    EXPECT_EQ(call.method().number, kMethodId);
    EXPECT_EQ(call.handle(kHandle), 5U);
    std::uint32_t number = 0;
    EXPECT_EQ(call.read(kNumber, &number), 0);
    EXPECT_EQ(number, 0xfeedfaceU);
    struct {
        std::uint64_t first, second;
    } both{1, 1};
    EXPECT_EQ(call.read(kStruct, &both), 0);
    EXPECT_EQ(both.first, 0x0102030405060708U);
    EXPECT_EQ(both.second, 0U) << "a program of before the structure grew gives zero";
}

TEST(DriverIoctl, more_than_eight_bytes_are_read_from_memory) {
    Argument argument;
    std::array<std::uint64_t, 2> data = {11, 12};
    argument.add(kHandle, 0, 5);
    argument.add_pointer(kStruct, sizeof data, data.data());
    IoctlCall call;
    ASSERT_EQ(argument.decode(&call), 0);
    std::array<std::uint64_t, 2> read{};
    EXPECT_EQ(call.read(kStruct, &read), 0);
    EXPECT_EQ(read, data);
}

TEST(DriverIoctl, a_grown_structure_is_taken_if_the_rest_is_zero) {
    std::array<std::uint64_t, 100> data = {11, 12};
    for (const std::uint64_t last : {0U, 1U}) {
        Argument argument;
        data.back() = last;
        argument.add(kHandle, 0, 5);
        argument.add_pointer(kStruct, sizeof data, data.data());
        EXPECT_EQ(argument.decode(), last == 0 ? 0 : EOPNOTSUPP);
    }
}

TEST(DriverIoctl, lengths_of_the_header_must_agree) {
    for (const int step : {-16, -1, 1, 16, 8192}) {
        Argument argument;
        argument.with_mandatory();
        argument.header().length = static_cast<std::uint16_t>(argument.header().length + step);
        EXPECT_EQ(argument.decode(), EINVAL) << step;
    }
    Argument argument;
    argument.header().num_attrs = 0xffff;
    argument.header().length =
        static_cast<std::uint16_t>(sizeof(ib_uverbs_ioctl_hdr) + 0xffff * sizeof(ib_uverbs_attr));
    EXPECT_EQ(argument.decode(), EINVAL) << "a length that wrapped around";
}

TEST(DriverIoctl, methods_that_we_do_not_have_are_told_from_mistakes) {
    Argument other;
    other.header().method_id = 44;
    EXPECT_EQ(other.decode(), EPROTONOSUPPORT);
    other.header().object_id = 44;
    EXPECT_EQ(other.decode(), EPROTONOSUPPORT);
    Argument reserved;
    reserved.header().reserved1 = 1;
    EXPECT_EQ(reserved.decode(), EPROTONOSUPPORT);
    Argument foreign;
    foreign.with_mandatory().header().driver_id = RDMA_DRIVER_MLX4;
    EXPECT_EQ(foreign.decode(), EINVAL);
}

TEST(DriverIoctl, an_unknown_attribute_fails_only_if_it_is_mandatory) {
    Argument optional;
    optional.with_mandatory().add(kUnknown, 4, 1, 0);
    EXPECT_EQ(optional.decode(), 0);
    Argument mandatory;
    mandatory.with_mandatory().add(kUnknown, 4, 1);
    EXPECT_EQ(mandatory.decode(), EPROTONOSUPPORT);
}

TEST(DriverIoctl, driver_data_belong_to_methods_that_take_them) {
    Argument taken;
    taken.with_mandatory().add(UVERBS_ATTR_UHW_IN, 0, 0);
    EXPECT_EQ(taken.decode(), 0);
    Argument not_taken;
    not_taken.header().method_id = kMethodId + 1;
    not_taken.add(UVERBS_ATTR_UHW_IN, 0, 0);
    EXPECT_EQ(not_taken.decode(), EPROTONOSUPPORT);
}

TEST(DriverIoctl, attributes_are_refused_when_they_are_not_as_they_should_be) {
    EXPECT_EQ(Argument().decode(), EINVAL) << "mandatory ones are missing";
    Argument twice;
    twice.with_mandatory().add(kHandle, 0, 5);
    EXPECT_EQ(twice.decode(), EINVAL);
    Argument too_short;
    too_short.with_mandatory().add(kNumber, 3, 0);
    EXPECT_EQ(too_short.decode(), EINVAL);
    Argument too_long;
    too_long.with_mandatory().add(kNumber, 5, 0);
    EXPECT_EQ(too_long.decode(), EINVAL);
    Argument reserved;
    reserved.with_mandatory().add(kNumber, 4, 0).attr_data.reserved = 1;
    EXPECT_EQ(reserved.decode(), EINVAL);
    Argument handle_with_length;
    handle_with_length.with_mandatory().at(0).len = 4;
    EXPECT_EQ(handle_with_length.decode(), EINVAL);
    Argument negative_handle;
    negative_handle.with_mandatory().at(0).data = ~std::uint64_t{0};
    EXPECT_EQ(negative_handle.decode(), EINVAL);
}

TEST(DriverIoctl, flags_have_four_or_eight_bytes) {
    std::uint64_t flags = 1;
    IoctlCall none;
    Argument without;
    ASSERT_EQ(without.with_mandatory().decode(&none), 0);
    EXPECT_EQ(none.read_flags(kFlags, 6, &flags), 0);
    EXPECT_EQ(flags, 0U);
    const std::array<std::pair<std::uint16_t, int>, 5> lengths = {
        {{4, 0}, {8, 0}, {5, EINVAL}, {6, EINVAL}, {7, EINVAL}}};
    for (const auto& [bytes, expected] : lengths) {
        Argument argument;
        argument.with_mandatory().add(kFlags, bytes, 4);
        IoctlCall call;
        ASSERT_EQ(argument.decode(&call), 0);
        EXPECT_EQ(call.read_flags(kFlags, 6, &flags), expected) << bytes;
        EXPECT_EQ(call.read_flags(kFlags, 3, &flags), EINVAL) << "a flag that is not allowed";
    }
}

TEST(DriverIoctl, output_is_cut_to_its_room_and_marked_as_valid) {
    Argument argument;
    std::array<std::uint32_t, 2> reply = {0, 7};
    argument.with_mandatory().add_pointer(kReply, 4, reply.data());
    IoctlCall call;
    ASSERT_EQ(argument.decode(&call), 0);
    EXPECT_EQ(call.write(kReply, std::uint64_t{0x9'0000'0008}), 0);
    EXPECT_EQ(reply, (std::array<std::uint32_t, 2>{8, 7}));
    EXPECT_EQ(argument.at(2).flags, UVERBS_ATTR_F_MANDATORY | UVERBS_ATTR_F_VALID_OUTPUT);
    EXPECT_EQ(call.write(kLongReply, 1), ENOENT);
    EXPECT_EQ(call.write_if_asked(kLongReply, 1), 0);
}

TEST(DriverIoctl, a_longer_reply_is_filled_with_zero) {
    Argument argument;
    std::array<std::uint32_t, 4> reply = {1, 1, 1, 1};
    argument.with_mandatory().add_pointer(kLongReply, sizeof reply, reply.data());
    IoctlCall call;
    ASSERT_EQ(argument.decode(&call), 0);
    const std::uint64_t value = 0x3'0000'0002;
    EXPECT_EQ(call.write_or_zero(kLongReply, &value, sizeof value), 0);
    EXPECT_EQ(reply, (std::array<std::uint32_t, 4>{2, 3, 0, 0}));
}

TEST(DriverIoctl, a_new_handle_is_told_in_its_attribute) {
    Argument argument;
    argument.with_mandatory().add(kMade, 0, ~std::uint64_t{0});
    IoctlCall call;
    ASSERT_EQ(argument.decode(&call), 0);
    EXPECT_EQ(call.tell(kMade, 77), 0);
    EXPECT_EQ(argument.at(2).data, 77U);
    EXPECT_EQ(call.tell(kUnknown, 1), ENOENT);
}

TEST(DriverIoctl, memory_that_is_not_there_is_no_fault) {
    Edge edge;
    IoctlCall call;
    EXPECT_EQ(decode(nullptr, kMethods, &call), EFAULT);
    EXPECT_EQ(decode(edge.before_end(8), kMethods, &call), EFAULT);

    Argument argument;
    argument.with_mandatory();
    std::byte* at = edge.before_end(argument.header().length - sizeof(ib_uverbs_attr));
    std::memcpy(at, &argument.header(), argument.header().length - sizeof(ib_uverbs_attr));
    EXPECT_EQ(decode(at, kMethods, &call), EFAULT) << "attributes that are not there";

    Argument long_one;
    long_one.add(kHandle, 0, 5);
    long_one.add_pointer(kStruct, 4096, edge.before_end(16));
    EXPECT_EQ(long_one.decode(), EFAULT);

    Argument reading;
    reading.add(kHandle, 0, 5);
    reading.add_pointer(kStruct, 16, edge.before_end(8));
    reading.add_pointer(kReply, 4, edge.before_end(2));
    ASSERT_EQ(reading.decode(&call), 0);
    std::array<std::uint64_t, 2> value{};
    EXPECT_EQ(call.read(kStruct, &value), EFAULT);
    EXPECT_EQ(call.write(kReply, 1), EFAULT);
}

TEST(DriverIoctl, anything_at_all_is_decoded_or_refused) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    install_fault_handler();
    for (unsigned round = 0; round < 20000; ++round) {
        Argument argument;
        const auto count = static_cast<unsigned>(random() % 6);
        for (unsigned i = 0; i < count; ++i) {
            ib_uverbs_attr& attr = argument.add(
                static_cast<std::uint16_t>(random() % 8),
                static_cast<std::uint16_t>(random() % 4 == 0 ? random() : random() % 24), random(),
                static_cast<std::uint16_t>(random() % 4));
            attr.attr_data.reserved = random() % 8 == 0 ? 1 : 0;
        }
        IoctlCall call;
        if (argument.decode(&call) != 0)
            continue;
        EXPECT_TRUE(call.has(kHandle));
        EXPECT_TRUE(call.has(kStruct));
        for (const IoctlCall::Attribute& attribute : call.attributes()) {
            std::uint64_t value = 0;
            const int error = call.read(attribute.spec.id, &value);
            EXPECT_TRUE(error == 0 || error == EFAULT);
        }
    }
}

}  // namespace
}  // namespace tagwire::vhca::driver
