// SPDX-License-Identifier: BSD-3-Clause
#include "tools/soak_rma.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/failure.hpp"
#include "tools/loops.hpp"
#include "tools/pattern.hpp"

namespace tagwire::tools {

SoakRma::SoakRma(MsgLink& link, Channel& channel) : link_(link), theirs_(kDataBytes) {
    // Memory of the program at one side, allocated at the other.
    if (link.side() == Side::kDriver) {
        own_.resize(kWindowBytes);
        window_ = own_.data();
        check(tw_mem_map(link.context(), window_, kWindowBytes, nullptr, &memory_), "tw_mem_map");
    } else {
        check(tw_mem_alloc(link.context(), kWindowBytes, nullptr, &window_, &memory_),
              "tw_mem_alloc");
        std::memset(window_, 0, kWindowBytes);
    }
    const auto handle = [](void* arg, tw_am_t* am) { static_cast<SoakRma*>(arg)->handle(am); };
    check(tw_am_register(link.worker(), kHandler, handle, this), "tw_am_register");
    std::array<char, TW_KEY_BYTES_MAX> key{};
    std::size_t length = key.size();
    check(tw_mem_pack(memory_, key.data(), &length), "tw_mem_pack");
    Encoder mine;
    channel.send(MessageType::kRegion, mine.blob(key.data(), length));
    Decoder answer = channel.expect(MessageType::kRegion);
    const Bytes packed = answer.blob(TW_KEY_BYTES_MAX);
    answer.end();
    check(tw_key_unpack(link.worker(), packed.data(), packed.size(), &key_), "tw_key_unpack");
    tw_key_attr_t attr{};
    check(tw_key_query(key_, &attr), "tw_key_query");
    if (attr.length < kWindowBytes)
        throw Failure("the other side's window is too small");
    address_ = attr.address;
}

SoakRma::~SoakRma() {
    tw_key_free(key_);
    tw_am_register(link_.worker(), kHandler, nullptr, nullptr);
    tw_mem_unmap(link_.context(), memory_);
}

void SoakRma::run_round(Random& random, SoakCounts* counts) {
    constexpr unsigned kOperations = 6;
    for (unsigned i = 0; i < kOperations; ++i) {
        switch (random.below(4)) {
            case 0:
                put(random);
                ++counts->kinds[SoakCounts::kPut];
                break;
            case 1:
                get(random);
                ++counts->kinds[SoakCounts::kGet];
                break;
            case 2:
                add();
                ++counts->kinds[SoakCounts::kAtomic];
                break;
            default:
                send(random);
                ++counts->kinds[SoakCounts::kActive];
        }
    }
    if (!wrong_.empty())
        throw Failure(wrong_);
}

/// Until it has ended.
template <class Call>
void SoakRma::run(const char* what, const Call& call) {
    tw_request_h request = nullptr;
    tw_status_t status = TW_ERR_NO_RESOURCE;
    link_.wait_until([&] {
        status = call(&request);
        return status != TW_ERR_NO_RESOURCE;
    });
    if (status == TW_INPROGRESS) {
        link_.wait_until([&] {
            status = tw_request_test(request, nullptr);
            return status != TW_INPROGRESS;
        });
        tw_request_free(request);
    }
    if (status != TW_OK)
        throw Failure(text("%s ended with: %s", what, tw_status_string(status)));
}

void SoakRma::put(Random& random) {
    const std::size_t at = random.below(kDataBytes);
    const std::size_t length = random.below(kDataBytes - at) + 1;
    Pattern(static_cast<std::uint64_t>(link_.side()), ++puts_).fill(&theirs_[at], length);
    tw_op_t op{};
    op.flags = TW_OP_DELIVERY_COMPLETE;
    run("a put", [&](tw_request_h* request) {
        return tw_put(link_.endpoint(), &theirs_[at], length, address_ + 64 + at, key_, &op,
                      request);
    });
}

void SoakRma::get(Random& random) {
    const std::size_t at = random.below(kDataBytes);
    std::vector<std::uint8_t> data(random.below(kDataBytes - at) + 1);
    run("a get", [&](tw_request_h* request) {
        return tw_get(link_.endpoint(), data.data(), data.size(), address_ + 64 + at, key_, nullptr,
                      request);
    });
    const auto wrong = std::ranges::mismatch(data, std::span(theirs_).subspan(at, data.size()));
    if (wrong.in1 != data.end()) {
        throw Failure(text("a get of %zu bytes at %zu: byte %td is not what was put", data.size(),
                           at, wrong.in1 - data.begin()));
    }
}

/// The counter is this side's alone.
void SoakRma::add() {
    const std::uint64_t one = 1;
    std::uint64_t before = 0;
    run("an addition", [&](tw_request_h* request) {
        return tw_atomic_fetch(link_.endpoint(), TW_ATOMIC_ADD, TW_UINT64, &one, &before, address_,
                               key_, nullptr, request);
    });
    if (before != adds_++) {
        throw Failure(text("addition %llu found %llu", static_cast<unsigned long long>(adds_),
                           static_cast<unsigned long long>(before)));
    }
}

void SoakRma::send(Random& random) {
    const std::uint64_t number = sends_++;
    std::vector<std::uint8_t> data(random.one_in(4) ? random.below(kHandledMax) : random.below(64));
    Pattern(static_cast<std::uint64_t>(link_.side()), number).fill(data.data(), data.size());
    tw_op_t op{};
    op.flags = TW_OP_DELIVERY_COMPLETE;
    run("an active message", [&](tw_request_h* request) {
        return tw_am_send(link_.endpoint(), kHandler, &number, sizeof number, data.data(),
                          data.size(), &op, request);
    });
}

/// The sender may know that a message has been received, and send the next one, before the end of
/// the receive is told here.
struct SoakRma::Receiving {
    SoakRma* own;
    std::uint64_t number;
    std::vector<std::uint8_t> data;
};

void SoakRma::handle(tw_am_t* am) {
    std::uint64_t number = 0;
    if (am->header_length == sizeof number)
        std::memcpy(&number, am->header, sizeof number);
    if (am->header_length != sizeof number || number != arrived_ || am->length > kHandledMax) {
        return found(text("active message %llu came with %zu bytes, where %llu was to come",
                          static_cast<unsigned long long>(number), am->length,
                          static_cast<unsigned long long>(arrived_)));
    }
    ++arrived_;
    if ((am->flags & TW_AM_RNDV) == 0)
        return check_data(number, {static_cast<const std::uint8_t*>(am->data), am->length});
    auto receiving = std::make_unique<Receiving>(Receiving{this, number, Bytes(am->length)});
    tw_op_t op{};
    op.context = receiving.get();
    op.flags = TW_OP_COMPLETION;
    op.complete = [](const tw_completion_t* done) {
        const std::unique_ptr<Receiving> ended(static_cast<Receiving*>(done->context));
        if (done->status == TW_OK)
            return ended->own->check_data(ended->number, ended->data);
        ended->own->found(
            text("the data of an active message: %s", tw_status_string(done->status)));
    };
    const tw_status_t status = tw_message_recv(am->worker, am->message, receiving->data.data(),
                                               receiving->data.size(), &op, nullptr);
    if (status == TW_INPROGRESS)
        static_cast<void>(receiving.release());  // the callback's
    else
        found(text("tw_message_recv: %s", tw_status_string(status)));
}

void SoakRma::check_data(std::uint64_t number, std::span<const std::uint8_t> data) {
    const Pattern wanted(static_cast<std::uint64_t>(other(link_.side())), number);
    if (!wanted.matches(data.data(), data.size()))
        found(text("active message %llu has wrong data", static_cast<unsigned long long>(number)));
    ++handled_;
}

void SoakRma::found(std::string what) {
    if (wrong_.empty())
        wrong_ = std::move(what);
}

void SoakRma::tell_end(Encoder* message) const {
    message->number(adds_).number(sends_);
}

void SoakRma::check_end(Decoder* message) {
    const std::uint64_t adds = message->number(), sends = message->number();
    std::uint64_t counter = 0;
    std::memcpy(&counter, window_, sizeof counter);
    // The other side has ended; the end of its last message may not be told here yet.
    link_.wait_until([this] { return handled_ == arrived_ || !wrong_.empty(); });
    if (!wrong_.empty())
        throw Failure(wrong_);
    if (counter != adds || handled_ != sends) {
        throw Failure(text(
            "of %llu additions and %llu active messages %llu and %llu have come",
            static_cast<unsigned long long>(adds), static_cast<unsigned long long>(sends),
            static_cast<unsigned long long>(counter), static_cast<unsigned long long>(handled_)));
    }
}

}  // namespace tagwire::tools
