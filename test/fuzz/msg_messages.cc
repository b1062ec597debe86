// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against messages that no peer of good will sends: they claim to
// come from its peer, and are mixed with what both programs really do. Whatever comes, each
// operation ends once, at the latest when everything is cancelled and the endpoint closed by force.
#include <tagwire.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "contract/entity.hpp"
#include "input.hpp"
#include "protocols/address.hpp"
#include "protocols/wire.hpp"

namespace tagwire::fuzz {
namespace {

constexpr std::size_t kMessageBytesMax = 600;
constexpr std::size_t kReceiveBytes = 3000;
constexpr std::size_t kSendBytes[] = {0, 8, 80, 500, 9000, 70000};
constexpr int kRounds = 20;
constexpr int kRoundsAtEnd = 2000;

/// An operation of a program. Its buffer stays for as long as the victim.
struct Operation {
    std::vector<std::byte> buffer;
    tw_request_h request = nullptr;
    bool is_pending = false;
    bool stays = false;                          // takes many messages until it is told to end
    std::vector<tw_message_h>* shown = nullptr;  // buffered: where what it shows goes
    unsigned sum = 0;

    static void ended(const tw_completion_t* done) {
        auto& operation = *static_cast<Operation*>(done->context);
        require(operation.is_pending);
        if (done->message != nullptr && operation.shown != nullptr) {
            const auto* data = static_cast<const std::byte*>(done->buffer);
            require(done->length <= done->message_length && done->status == TW_OK);
            for (std::size_t i = 0; i < done->length; ++i)
                operation.sum += std::to_integer<unsigned>(data[i]);
            operation.shown->push_back(done->message);
            operation.is_pending = operation.stays;
            return;
        }
        operation.is_pending = operation.stays && (done->flags & TW_DONE_MULTI_RECV) == 0;
    }
};

/// A worker, and the operations of its program.
class Program {
  public:
    explicit Program(tw_context_h context) {
        tw_worker_params_t params{};
        params.ep_failed = [](void* arg, tw_ep_h, tw_status_t) {
            static_cast<Program*>(arg)->has_failed_ = true;
        };
        params.ep_failed_arg = this;
        require(tw_worker_create(context, &params, &worker_) == TW_OK);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() { tw_worker_destroy(worker_); }

    std::vector<std::byte> address() const {
        std::vector<std::byte> bytes(TW_ADDRESS_BYTES_MAX);
        std::size_t length = bytes.size();
        require(tw_worker_address(worker_, bytes.data(), &length) == TW_OK);
        bytes.resize(length);
        return bytes;
    }
    void connect(const Program& other) {
        const std::vector<std::byte> to = other.address();
        const tw_ep_params_t params{to.data(), to.size(), nullptr};
        require(tw_ep_create(worker_, &params, &ep_) == TW_OK);
    }
    void progress() { tw_worker_progress(worker_); }

    void receive(Input& input) {
        Operation& operation = add(kReceiveBytes);
        tw_op_t op = op_of(operation);
        const auto choice = input.take<std::uint8_t>();
        if ((choice & 1) != 0 && ep_ != nullptr && !has_failed_)
            op.source = ep_;
        const std::size_t length = choice & 2 ? 100 : kReceiveBytes;
        tw_status_t status;
        if ((choice & 4) != 0) {
            operation.stays = (choice & 8) != 0;
            if (operation.stays)
                op.flags |= TW_OP_MULTI_RECV;
            status = tw_msg_recv(worker_, operation.buffer.data(), length, &op, &operation.request);
        } else {
            const std::uint64_t ignore = choice & 8 ? ~std::uint64_t{0} : 0;
            status = tw_tag_recv(worker_, operation.buffer.data(), length, choice >> 6, ignore, &op,
                                 &operation.request);
        }
        operation.is_pending = status == TW_INPROGRESS;
    }

    /// A receive without a buffer; what it shows is read at once, and claimed or dropped later.
    void receive_buffered(Input& input) {
        Operation& operation = add(0);
        operation.shown = &shown_;
        tw_op_t op = op_of(operation);
        op.flags |= TW_OP_BUFFERED;
        const auto choice = input.take<std::uint8_t>();
        if ((choice & 1) != 0 && ep_ != nullptr && !has_failed_)
            op.source = ep_;
        operation.stays = (choice & 2) != 0;
        if (operation.stays)
            op.flags |= TW_OP_MULTI_RECV;
        operation.is_pending = true;  // it may show something before the call returns
        const tw_status_t status = (choice & 6) != 0
                                       ? tw_msg_recv(worker_, nullptr, 0, &op, &operation.request)
                                       : tw_tag_recv(worker_, nullptr, 0, choice >> 6,
                                                     ~std::uint64_t{0}, &op, &operation.request);
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
    }
    void take_shown(Input& input) {
        if (shown_.empty())
            return;
        const auto choice = input.take<std::uint8_t>();
        const std::size_t at = (choice >> 1) % shown_.size();
        tw_message_h message = shown_[at];
        shown_.erase(shown_.begin() + static_cast<std::ptrdiff_t>(at));
        Operation& operation = add(kReceiveBytes);
        tw_op_t claim = op_of(operation);
        claim.flags |= TW_OP_CLAIM | (choice & 1 ? unsigned{TW_OP_DISCARD} : 0U);
        claim.message = message;
        operation.is_pending = tw_tag_recv(worker_, operation.buffer.data(), kReceiveBytes, 0, 0,
                                           &claim, &operation.request) == TW_INPROGRESS;
    }

    void send(Input& input) {
        if (ep_ == nullptr || has_failed_)
            return;
        const auto choice = input.take<std::uint8_t>();
        Operation& operation = add(kSendBytes[choice % std::size(kSendBytes)]);
        tw_op_t op = op_of(operation);
        constexpr std::uint32_t kFlags[] = {0, TW_OP_MATCH_COMPLETE, TW_OP_DELIVERY_COMPLETE,
                                            TW_OP_TRANSMIT_COMPLETE};
        op.flags |= kFlags[choice / std::size(kSendBytes) % std::size(kFlags)];
        operation.is_pending = true;  // it may end before the call returns
        const tw_status_t status = tw_tag_send(ep_, operation.buffer.data(),
                                               operation.buffer.size(), 0, &op, &operation.request);
        if (status != TW_INPROGRESS)
            operation.is_pending = false;
    }

    /// Looks for a message and takes or drops it.
    void peek(Input& input) {
        const auto choice = input.take<std::uint8_t>();
        tw_completion_t done{};
        tw_op_t op{};
        op.done = &done;
        op.flags = TW_OP_PEEK | (choice & 1 ? unsigned{TW_OP_CLAIM} : unsigned{TW_OP_DISCARD});
        if (tw_tag_recv(worker_, nullptr, 0, 0, ~std::uint64_t{0}, &op, nullptr) != TW_OK ||
            done.message == nullptr)
            return;
        Operation& operation = add(kReceiveBytes);
        tw_op_t claim = op_of(operation);
        claim.flags |= TW_OP_CLAIM;
        claim.message = done.message;
        operation.is_pending = tw_tag_recv(worker_, operation.buffer.data(), kReceiveBytes, 0, 0,
                                           &claim, &operation.request) == TW_INPROGRESS;
    }

    void cancel_some(Input& input) {
        if (operations_.empty())
            return;
        Operation& operation = operations_[input.take<std::uint8_t>() % operations_.size()];
        if (operation.is_pending)
            require(tw_request_cancel(operation.request) == TW_OK);
    }

    void close_by_force() {
        if (ep_ != nullptr)
            require(tw_ep_close(ep_, TW_EP_CLOSE_FORCE, nullptr, nullptr) == TW_OK);
        ep_ = nullptr;
    }
    void cancel_all() {
        for (Operation& operation : operations_) {
            if (operation.is_pending)
                tw_request_cancel(operation.request);
        }
    }
    bool is_anything_pending() const {
        for (const Operation& operation : operations_) {
            if (operation.is_pending)
                return true;
        }
        return false;
    }

  private:
    Operation& add(std::size_t bytes) {
        operations_.push_back({std::vector<std::byte>(bytes), nullptr, false});
        return operations_.back();
    }
    static tw_op_t op_of(Operation& operation) {
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION;
        op.context = &operation;
        op.complete = Operation::ended;
        return op;
    }

    tw_worker_h worker_ = nullptr;
    tw_ep_h ep_ = nullptr;
    bool has_failed_ = false;
    std::deque<Operation> operations_;
    std::vector<tw_message_h> shown_;  // by buffered receives
};

class Attack {
  public:
    Attack() : attacker_(test::resource_of("sm")) {
        tw_context_params_t params{};
        params.transports = "sm";
        require(tw_context_create(&params, &context_) == TW_OK);
        victim_ = std::make_unique<Program>(context_);
        peer_ = std::make_unique<Program>(context_);
        victim_->connect(*peer_);
        std::string reason;
        const auto at = proto::parse(victim_->address(), &reason);
        const auto from = proto::parse(peer_->address(), &reason);
        require(at.has_value() && from.has_value());
        victim_id_ = at->id;
        peer_id_ = from->id;
        to_victim_ = test::connect_to_address(attacker_, at->device, at->iface);
        for (int i = 0; i < kRounds * 10; ++i)
            progress();
    }
    Attack(const Attack&) = delete;
    Attack& operator=(const Attack&) = delete;
    ~Attack() {
        to_victim_.reset();
        victim_.reset();
        peer_.reset();
        tw_context_destroy(context_);
    }

    void act(Input& input) {
        Program& program = input.take<std::uint8_t>() & 1 ? *peer_ : *victim_;
        switch (input.take<std::uint8_t>() % 8) {
            case 0:
                program.receive(input);
                break;
            case 1:
                program.send(input);
                break;
            case 2:
                program.peek(input);
                break;
            case 3:
                program.cancel_some(input);
                break;
            case 4:
                program.receive_buffered(input);
                break;
            case 5:
                program.take_shown(input);
                break;
            default:
                strike(input);
                break;
        }
        for (int i = 0; i < kRounds; ++i)
            progress();
    }

    void end() {
        victim_->close_by_force();
        peer_->close_by_force();
        for (int i = 0; i < kRoundsAtEnd; ++i) {
            victim_->cancel_all();
            peer_->cancel_all();
            progress();
            if (!victim_->is_anything_pending() && !peer_->is_anything_pending())
                return;
        }
        require(false);
    }

  private:
    void progress() {
        victim_->progress();
        peer_->progress();
        attacker_.progress();
    }

    void strike(Input& input) {
        const auto id = static_cast<std::uint8_t>(1 + input.take<std::uint8_t>() % 7);
        std::vector<std::byte> message(input.take<std::uint16_t>() % (kMessageBytesMax + 1));
        input.take_into(message);
        // Nobody can guess the random numbers that name workers.
        if (id == static_cast<std::uint8_t>(proto::AmId::kWireup) &&
            message.size() >= sizeof(proto::Wireup)) {
            proto::Wireup head{};
            std::memcpy(&head, message.data(), sizeof head);
            head.version = proto::kWireVersion;
            head.from = head.from % 2 == 0 ? peer_id_ : head.from;
            head.to = victim_id_;
            std::memcpy(message.data(), &head, sizeof head);
        }
        const auto pack = [](void* to, void* arg) {
            const auto& bytes = *static_cast<const std::vector<std::byte>*>(arg);
            if (!bytes.empty())
                std::memcpy(to, bytes.data(), bytes.size());
            return bytes.size();
        };
        uct_ep_am_bcopy(to_victim_.get(), id, pack, &message, 0);
    }

    tw_context_h context_ = nullptr;
    std::unique_ptr<Program> victim_;
    std::unique_ptr<Program> peer_;
    std::uint64_t victim_id_ = 0;
    std::uint64_t peer_id_ = 0;
    test::Entity attacker_;
    test::Endpoint to_victim_;
};

}  // namespace
}  // namespace tagwire::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    // Each byte that is read for a peer is read by its owner, who knows what is his.
    ::setenv("TAGWIRE_SM_CMA", "off", 1);
    ::setenv("TAGWIRE_SM_ARENA_BYTES", "4m", 1);
    ::setenv("TAGWIRE_CALIBRATION", "none", 1);
    ::setenv("TAGWIRE_UNEXPECTED_BYTES", "64k", 1);
    ::setenv("TAGWIRE_UNEXPECTED_MAX", "64", 1);
    ::setenv("TAGWIRE_RNDV_THRESHOLD", "16k", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int ready = LLVMFuzzerInitialize(nullptr, nullptr);  // where it is only replayed
    tagwire::fuzz::require(ready == 0);
    tagwire::fuzz::Input input(data, size);
    tagwire::fuzz::Attack attack;
    for (int acts = 0; acts < 100 && !input.at_end(); ++acts)
        attack.act(input);
    attack.end();
    return 0;
}
