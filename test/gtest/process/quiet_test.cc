// SPDX-License-Identifier: BSD-3-Clause
// The data path allocates nothing and enters the kernel never: counted over a million messages.
// Allocations by wrapping malloc of this program; system calls by tracing a child.
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <map>

#include "common/skip.hpp"
#include "harness.hpp"
#include "operations.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TW_MALLOC_IS_OURS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TW_MALLOC_IS_OURS 0
#else
#define TW_MALLOC_IS_OURS 1
#endif
#else
#define TW_MALLOC_IS_OURS 1
#endif

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

#if TW_MALLOC_IS_OURS
// A symbol of the program is found before libc's, by the library, too.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* pointer, std::size_t size);

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* pointer, std::size_t size) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_realloc(pointer, size);
}
}
#endif

namespace tagwire::test {
namespace {

constexpr std::uint64_t kMessages = 1'000'000;
constexpr std::uint8_t kId = 9;

/// Two interfaces of one process and a way to send a million messages between them without any of
/// the test's recording.
class Stream {
  public:
    Stream()
        : sender_(resource_of("sm")),
          receiver_(resource_of("sm")),
          link_(connect(sender_, receiver_)) {
        require_ok(uct_iface_set_am_handler(
                       receiver_.iface(), kId,
                       [](void* arg, void*, std::size_t, unsigned) {
                           ++*static_cast<std::uint64_t*>(arg);
                           return UCS_OK;
                       },
                       &received_, 0),
                   "uct_iface_set_am_handler");
        receiver_.keep_record = false;
        receive_.completed_cb = [](uct_tag_context_t* self, uct_tag_t, std::uint64_t, std::size_t,
                                   void*, ucs_status_t) { ++*static_cast<Posted*>(self)->count; };
        receive_.tag_consumed_cb = [](uct_tag_context_t*) {};
        receive_.rndv_cb = [](uct_tag_context_t*, uct_tag_t, const void*, unsigned, ucs_status_t,
                              unsigned) {};
        receive_.count = &received_;
        memset(payload_, 0, sizeof payload_);
    }

    using Send = ucs_status_t (Stream::*)();

    ucs_status_t am_short() { return uct_ep_am_short(link_.forward, kId, 0, payload_, 8); }
    ucs_status_t am_bcopy() {
        return static_cast<ucs_status_t>(
            std::min<ssize_t>(0, uct_ep_am_bcopy(link_.forward, kId, pack, payload_, 0)));
    }
    ucs_status_t tag_posted() {
        const uct_iov_t iov = {buffer_, sizeof buffer_, nullptr, 0, 1};
        if (receive_posted_ == received_) {
            if (uct_iface_tag_recv_zcopy(receiver_.iface(), 5, ~uct_tag_t{0}, &iov, 1, &receive_) !=
                UCS_OK) {
                std::abort();
            }
            ++receive_posted_;
            return uct_ep_tag_eager_short(link_.forward, 5, payload_, 8);
        }
        return UCS_ERR_NO_RESOURCE;
    }

    /// Back to back: as many as there is room for, then the receiver's turn.
    void run(Send send, std::uint64_t count) {
        received_ = receive_posted_ = 0;
        for (std::uint64_t sent = 0; received_ < count;) {
            while (sent < count && (this->*send)() == UCS_OK)
                ++sent;
            receiver_.progress();
        }
    }

  private:
    struct Posted : uct_tag_context_t {
        std::uint64_t* count;
    };
    static std::size_t pack(void* dest, void* arg) {
        memcpy(dest, arg, 500);
        return 500;
    }

    Entity sender_;
    Entity receiver_;
    Connection link_;
    Posted receive_{};
    std::uint64_t received_ = 0;
    std::uint64_t receive_posted_ = 0;
    std::byte payload_[512];
    std::byte buffer_[64];
};

struct Kind {
    const char* name;
    Stream::Send send;
};
const Kind kKinds[] = {{"am short", &Stream::am_short},
                       {"am bcopy", &Stream::am_bcopy},
                       {"tag short, receive posted and matched", &Stream::tag_posted}};

class Quiet : public ProcessTest {};

#if TW_MALLOC_IS_OURS
TEST_F(Quiet, a_million_messages_allocate_nothing) {
    Child child([](Channel&) {
        Stream stream;
        for (const Kind& kind : kKinds) {
            SCOPED_TRACE(kind.name);
            stream.run(kind.send, 10000);  // connections and rings are made by the first messages
            const std::uint64_t before = allocations.load(std::memory_order_relaxed);
            stream.run(kind.send, kMessages);
            EXPECT_EQ(before, allocations.load(std::memory_order_relaxed));
        }
    });
    EXPECT_EQ(0, child.join());
}
#endif

// Marks the counted stretch for the tracer: a call that fails at once and that nobody else makes.
constexpr long kMarkArgument = 0x7457;
void mark() {
    syscall(SYS_getpgid, kMarkArgument);
}

/// Runs `child` to its end; the calls between the first and the second mark, the third and the
/// fourth ..., by number.
std::map<long, std::uint64_t> trace(pid_t child) {
    std::map<long, std::uint64_t> calls;
    bool is_counting = false;
    bool is_entry = true;
    int status = 0;
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    while (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0 &&
           waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) != (SIGTRAP | 0x80))
            continue;
        __ptrace_syscall_info info = {};
        ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), child, sizeof info, &info);
        is_entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
        if (!is_entry)
            continue;
        const auto number = static_cast<long>(info.entry.nr);
        if (number == SYS_getpgid && info.entry.args[0] == kMarkArgument)
            is_counting = !is_counting;
        else if (is_counting)
            ++calls[number];
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return calls;
}

TEST_F(Quiet, a_million_messages_make_no_system_call) {
    const pid_t child = fork();
    if (child == 0) {
        Stream stream;
        for (const Kind& kind : kKinds)
            stream.run(kind.send, 10000);
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
            _exit(2);
        raise(SIGSTOP);
        for (const Kind& kind : kKinds) {
            mark();
            stream.run(kind.send, kMessages);
            mark();
        }
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    if (!WIFSTOPPED(status))
        TW_SKIP("this process may not trace its child");
    const std::uint64_t start = now_ns();
    const auto calls = trace(child);
    const std::uint64_t milliseconds = (now_ns() - start) / 1'000'000 + 1;
    std::uint64_t total = 0;
    for (const auto& [number, count] : calls) {
        total += count;
        std::printf("system call %ld: %llu times\n", number,
                    static_cast<unsigned long long>(count));
    }
    // Only the look for newcomers and deaths is allowed, which is rarer than once per millisecond.
    EXPECT_LE(total, milliseconds) << "in " << milliseconds << " ms";
}

}  // namespace
}  // namespace tagwire::test
