// SPDX-License-Identifier: BSD-3-Clause
#include "attacker.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace tagwire::torture {
namespace {

// docs/internals/formats/shared-memory.md and vhca/docs/formats.md
constexpr std::uint32_t kSmMagic = 0x74777031;
constexpr std::uint32_t kSmVersion = 4;
constexpr std::uint32_t kVhcaMagic = 0x61637677;
constexpr std::size_t kArenaBytes = std::size_t{16} << 20;
constexpr std::uint32_t kSlots = 256;
constexpr std::uint32_t kFrontSlots = 32;
constexpr std::uint32_t kReturns = 2048;
constexpr std::uint32_t kReserve = 8;
constexpr std::uint32_t kPoolBlocks = 1024;
constexpr std::size_t kPoolBytes = std::size_t{kPoolBlocks} * 512;
constexpr std::uint32_t kSegBytes = 8320;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlotBytes = 128;

struct Hello {
    std::uint32_t magic = kSmMagic;
    std::uint32_t version = kSmVersion;
    std::uint32_t type = 1;
    std::uint32_t has_membarrier = 1;
    std::uint64_t cookie = 0;
    std::uint64_t name = 0;
    std::uint64_t arena_id = 1;
    std::uint64_t arena_bytes = kArenaBytes;
    std::uint64_t bell_bytes = kPage;
    std::uint64_t probe_address = 0;
    std::uint64_t probe_value = 0;
    std::uint32_t bell_bit = 0;
    std::uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 80);

struct Offer {
    std::uint32_t magic = kSmMagic;
    std::uint32_t version = kSmVersion;
    std::uint32_t type = 2;
    std::uint32_t slot_count = kSlots;
    std::uint32_t seg_bytes = kSegBytes;
    std::uint32_t pool_blocks = kPoolBlocks;
    std::uint32_t page_bytes = kPage;
    std::uint32_t reserved = 0;
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
};
static_assert(sizeof(Offer) == 48);

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
    return (value + to - 1) / to * to;
}
constexpr std::size_t kSlotsAt =
    round_up(round_up(640 + kReturns * sizeof(std::uint32_t), 128) + std::size_t{256} * 64, kPage);
constexpr std::size_t kBackAt = round_up(kSlotsAt + kFrontSlots * kSlotBytes, kPage);
constexpr std::size_t kRingBytes = round_up(
    round_up(kBackAt + kSlots * kSlotBytes, kPage) + std::size_t{kReserve} * kSegBytes, kPage);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Fd memory(std::size_t bytes, unsigned seals = kSeals) {
    Fd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    static_cast<void>(!::ftruncate(fd.get(), static_cast<off_t>(bytes)));
    if (seals != 0)
        ::fcntl(fd.get(), F_ADD_SEALS, seals);
    return fd;
}

/// Name and cookie of the interface that a worker's address leads to; nothing where that is not of
/// sm.
struct SmTarget {
    std::string name;
    std::uint64_t cookie;
};
std::optional<SmTarget> sm_target(const Address& address) {
    constexpr std::size_t kHead = 16;
    constexpr char kOverSm = 2;
    if (address.bytes.at(1) != kOverSm)
        return std::nullopt;
    const std::size_t iface = kHead + static_cast<unsigned char>(address.bytes.at(2));
    std::uint64_t name = 0;
    SmTarget target = {};
    std::memcpy(&name, address.bytes.data() + iface + 8, sizeof name);
    std::memcpy(&target.cookie, address.bytes.data() + iface + 16, sizeof target.cookie);
    char text[32];
    std::snprintf(text, sizeof text, "tagwire-sm-%016llx", static_cast<unsigned long long>(name));
    target.name = text;
    return target;
}

/// Values that break arithmetic.
std::uint64_t edge(Random& random) {
    constexpr std::array<std::uint64_t, 16> kEdges = {
        0,    1,          2,          8,          64,         120,        255,   256,
        4096, 1ULL << 31, 0xffffffff, 1ULL << 32, 1ULL << 62, 1ULL << 63, ~0ULL, ~0ULL - 4095};
    return random.one_in(4) ? random.next() : kEdges.at(random.below(kEdges.size()));
}

class Ring {
  public:
    Ring() : fd_(memory(kRingBytes)) {
        memory_ = static_cast<std::byte*>(
            ::mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() { ::munmap(memory_, kRingBytes); }

    int fd() const { return fd_.get(); }

    /// A slot of any kind, id and length, around a body of any bytes.
    void publish(Random& random, std::uint32_t position) {
        std::byte* slot = memory_ + kSlotsAt + (position % kFrontSlots) * kSlotBytes;
        for (std::size_t at = 8; at < kSlotBytes; at += 8) {
            const std::uint64_t word = edge(random);
            std::memcpy(slot + at, &word, sizeof word);
        }
        const std::uint64_t length = random.one_in(10) ? random.next() & 0xffff : random.below(121);
        const std::uint64_t control = random.below(32) << 56 | random.below(19) << 48 |
                                      length << 32 | (std::uint64_t{position} + 1);
        auto* word = reinterpret_cast<std::uint64_t*>(slot);
        __atomic_store_n(word, control, __ATOMIC_RELEASE);  // the slot format's publish
    }

  private:
    Fd fd_;
    std::byte* memory_;
};

}  // namespace

Attacker::Attacker(int victim, const Address& address, Random& random)
    : victim_(victim), address_(address), random_(random), names_(listening_names(victim)) {}

std::uint32_t Attacker::run(Attack attack) {
    switch (attack) {
        case Attack::kGarbage:
            return garbage();
        case Attack::kDescriptors:
            return descriptors();
        case Attack::kSilence:
            return silence();
        case Attack::kDatagrams:
            return datagrams();
        case Attack::kHellos:
            return hellos();
        case Attack::kRings:
            return rings(false);
        case Attack::kLastWords:
            return rings(true);
        default:
            return 0;
    }
}

std::vector<std::byte> Attacker::random_bytes(std::size_t length) {
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random_.next());
    return bytes;
}

std::uint32_t Attacker::garbage() {
    constexpr std::array<std::size_t, 10> kLengths = {0, 1, 12, 16, 32, 40, 48, 80, 200, 5000};
    std::uint32_t sent = 0;
    for (const std::string& name : names_) {
        for (int i = 0; i < 100; ++i) {
            const Fd socket = connect_to(name);
            for (std::uint64_t k = random_.below(5); k <= 5 && socket.get() >= 0; ++k) {
                std::vector<std::byte> packet =
                    random_bytes(kLengths.at(random_.below(kLengths.size())));
                const std::array<std::uint32_t, 3> head = {
                    random_.one_in(2) ? kSmMagic : kVhcaMagic, random_.one_in(2) ? kSmVersion : 2,
                    static_cast<std::uint32_t>(random_.below(6))};
                if (packet.size() >= sizeof head && !random_.one_in(3))
                    std::memcpy(packet.data(), head.data(), sizeof head);
                sent += send_packet(socket.get(), packet, {}) ? 1 : 0;
            }
        }
    }
    return sent;
}

std::uint32_t Attacker::descriptors() {
    int pipe[2] = {-1, -1};
    static_cast<void>(!::pipe2(pipe, O_CLOEXEC));
    const Fd in(pipe[0]);
    const Fd out(pipe[1]);
    const Fd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    const Fd root(::open("/", O_RDONLY | O_CLOEXEC));
    const Fd unsealed = memory(kPage, 0);
    const Fd writable = memory(kPage, F_SEAL_SHRINK);
    const Fd empty = memory(0);
    const std::array kinds = {in.get(),       out.get(),      zero.get(), root.get(),
                              unsealed.get(), writable.get(), empty.get()};
    const auto target = sm_target(address_);
    std::uint32_t sent = 0;
    for (const std::string& name : names_) {
        for (const unsigned count : {1U, 1U, 2U, 2U, 2U, 2U, 3U, 10U, 253U}) {
            const Fd socket = connect_to(name);
            std::vector<int> passed;
            for (unsigned i = 0; i < count; ++i)
                passed.push_back(kinds.at(random_.below(kinds.size())));
            Hello hello;
            hello.cookie = target ? target->cookie : random_.next();
            hello.name = random_.next();
            hello.magic = random_.one_in(3) ? kVhcaMagic : kSmMagic;
            sent += socket.get() >= 0 && send_packet(socket.get(), bytes_of(hello), passed) ? 1 : 0;
        }
    }
    return sent;
}

std::uint32_t Attacker::silence() {
    std::vector<Fd> sockets;
    for (const std::string& name : names_) {
        for (int i = 0; i < 40; ++i) {
            Fd socket = connect_to(name);
            if (socket.get() >= 0)
                sockets.push_back(std::move(socket));
            ::usleep(1000);  // so that the victim admits it and waits for the hello
        }
    }
    return static_cast<std::uint32_t>(sockets.size());
}

std::uint32_t Attacker::datagrams() {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::uint32_t sent = 0;
    for (const UdpPlace& place : udp_places(victim_)) {
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = place.address;
        to.sin_port = htons(place.port);
        for (int i = 0; i < 2000; ++i) {
            std::vector<std::byte> packet = random_bytes(random_.below(200));
            if (packet.size() > 4 && random_.one_in(2)) {
                packet[0] = static_cast<std::byte>(random_.below(32));  // an opcode of RC
                packet[2] = std::byte{0xff};                            // the default partition
                packet[3] = std::byte{0xff};
            }
            sent += ::sendto(socket.get(), packet.data(), packet.size(), 0,
                             reinterpret_cast<const sockaddr*>(&to), sizeof to) >= 0
                        ? 1
                        : 0;
        }
    }
    return sent;
}

std::uint32_t Attacker::hellos() {
    const auto target = sm_target(address_);
    if (!target)
        return 0;
    const Fd bell = memory(kPage);
    const Fd arena = memory(kArenaBytes);
    const Fd ring = memory(kRingBytes);
    const std::array hello_passes = {bell.get(), arena.get()};
    const Fd pool = memory(kPoolBytes);
    const std::array offer_passes = {ring.get(), pool.get()};
    std::uint32_t sent = 0;
    for (int i = 0; i < 200; ++i) {
        const Fd socket = connect_to(target->name);
        Hello hello;
        hello.cookie = random_.one_in(4) ? random_.next() : target->cookie;
        hello.name = random_.next();
        hello.arena_id = random_.next();
        hello.probe_address = edge(random_);
        hello.probe_value = edge(random_);
        hello.arena_bytes = random_.one_in(3) ? edge(random_) : kArenaBytes;
        hello.bell_bytes = random_.one_in(6) ? edge(random_) : kPage;
        hello.bell_bit = static_cast<std::uint32_t>(edge(random_));
        sent += send_packet(socket.get(), bytes_of(hello), hello_passes) ? 1 : 0;
        Offer offer;
        offer.bytes = random_.one_in(2) ? edge(random_) : kRingBytes;
        offer.start = edge(random_);
        for (std::uint32_t* field : {&offer.slot_count, &offer.pool_blocks, &offer.seg_bytes,
                                     &offer.page_bytes, &offer.type, &offer.version}) {
            if (random_.one_in(6))
                *field = static_cast<std::uint32_t>(edge(random_));
        }
        sent += send_packet(socket.get(), bytes_of(offer), offer_passes) ? 1 : 0;
    }
    return sent;
}

std::uint32_t Attacker::rings(bool only_last_words) {
    const auto target = sm_target(address_);
    if (!target)
        return 0;
    const Fd bell = memory(kPage);
    const Fd arena = memory(kArenaBytes);
    const std::array hello_passes = {bell.get(), arena.get()};
    std::uint32_t sent = 0;
    for (int i = 0; i < 60; ++i) {
        const Fd socket = connect_to(target->name);
        Ring ring;
        const Fd pool = memory(kPoolBytes);
        const std::array offer_passes = {ring.fd(), pool.get()};
        Hello hello;
        hello.cookie = target->cookie;
        hello.name = random_.next();
        hello.arena_id = random_.next() | 1;
        Offer offer;
        offer.bytes = kRingBytes;
        if (!send_packet(socket.get(), bytes_of(hello), hello_passes) ||
            !send_packet(socket.get(), bytes_of(offer), offer_passes)) {
            continue;
        }
        const auto count = static_cast<std::uint32_t>(only_last_words ? 1 : 1 + random_.below(60));
        for (std::uint32_t position = 0; position < count; ++position)
            ring.publish(random_, position);
        sent += count;
        if (!only_last_words)
            ::usleep(1000);  // so that the victim reads some before the hang-up
    }
    return sent;
}

}  // namespace tagwire::torture
