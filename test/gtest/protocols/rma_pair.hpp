// SPDX-License-Identifier: BSD-3-Clause
// A worker that uses memory of another one, by keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "protocols/fixture.hpp"

namespace tagwire::test {

/// Memory with a key: of the program, or allocated by the library.
class Shared {
  public:
    enum class Kind { kMapped, kAllocated };

    Shared(tw_context_h context, std::size_t length, Kind kind = Kind::kMapped,
           std::uint32_t access = 0, tw_counter_h counter = nullptr)
        : context_(context) {
        tw_mem_params_t params{};
        params.access = access;
        params.counter = counter;
        if (kind == Kind::kAllocated) {
            void* address = nullptr;
            EXPECT_EQ(tw_mem_alloc(context, length, &params, &address, &handle_), TW_OK);
            at_ = static_cast<std::byte*>(address);
        } else {
            own_.resize(length);
            at_ = own_.data();
            EXPECT_EQ(tw_mem_map(context, at_, length, &params, &handle_), TW_OK);
        }
        std::memset(at_, 0, length);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { unmap(); }

    void unmap() {
        if (handle_ != nullptr) {
            EXPECT_EQ(tw_mem_unmap(context_, handle_), TW_OK);
        }
        handle_ = nullptr;
    }
    std::byte* at() const { return at_; }
    std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(at_); }
    tw_mem_h handle() const { return handle_; }
    std::string packed() const {
        std::array<char, TW_KEY_BYTES_MAX> bytes{};
        std::size_t length = bytes.size();
        EXPECT_EQ(tw_mem_pack(handle_, bytes.data(), &length), TW_OK);
        return {bytes.data(), length};
    }
    tw_key_h key_for(const Node& user) const {
        const std::string bytes = packed();
        tw_key_h key = nullptr;
        EXPECT_EQ(tw_key_unpack(user.worker(), bytes.data(), bytes.size(), &key), TW_OK);
        return key;
    }
    template <class T>
    T number(std::size_t offset = 0) const {
        T value;
        std::memcpy(&value, at_ + offset, sizeof value);
        return value;
    }

  private:
    tw_context_h context_;
    Bytes own_;
    std::byte* at_ = nullptr;
    tw_mem_h handle_ = nullptr;
};

class RmaTest : public MsgTest {
  protected:
    /// Waits for the end of an operation.
    tw_status_t end(tw_status_t answer, tw_request_h request) {
        if (answer != TW_INPROGRESS)
            return answer;
        run_until([&] { return tw_request_test(request, nullptr) != TW_INPROGRESS; });
        const tw_status_t status = tw_request_test(request, nullptr);
        tw_request_free(request);
        return status;
    }
    /// Repeats a call while there is no room for it, and waits for its end.
    template <class Call>
    tw_status_t run(const Call& call) {
        tw_request_h request = nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = call(&request);
            return status != TW_ERR_NO_RESOURCE;
        });
        return end(status, request);
    }
    tw_status_t put(tw_ep_h ep, const void* from, std::size_t length, std::uint64_t to,
                    tw_key_h key, std::uint32_t flags = 0, tw_mem_h mem = nullptr) {
        tw_op_t how{};
        how.flags = flags;
        how.mem = mem;
        how.imm = 77;
        return run([&](tw_request_h* request) {
            return tw_put(ep, from, length, to, key, &how, request);
        });
    }
    tw_status_t get(tw_ep_h ep, void* to, std::size_t length, std::uint64_t from, tw_key_h key,
                    std::uint32_t flags = 0, tw_mem_h mem = nullptr) {
        tw_op_t how{};
        how.flags = flags;
        how.mem = mem;
        return run([&](tw_request_h* request) {
            return tw_get(ep, to, length, from, key, &how, request);
        });
    }
    tw_status_t flush(tw_ep_h ep) {
        return run([&](tw_request_h* request) {
            return tw_ep_flush(ep, TW_FLUSH_DELIVERED, nullptr, request);
        });
    }
    /// The endpoint is connected.
    tw_ep_h connected(Node& from, Node& to) {
        send(from, to, Bytes(1), 1);
        expect_message(to, Bytes(1), 1);
        return from.to(to);
    }
};

}  // namespace tagwire::test
