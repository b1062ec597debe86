// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/callbackq.hpp"

#include <cstring>
#include <new>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::ucs {
namespace {

constexpr int kRunSlowId = -2;

unsigned do_nothing(void*) {
    return 0;
}

// SYNC publish(callbackq): pairs with the acquire load in ucs_callbackq_dispatch(). The argument
// must be visible before the callback, since another thread may append run_slow() while this queue
// is being dispatched.
void publish(ucs_callbackq_elem_t& element, ucs_callback_t callback) {
    __atomic_store_n(&element.cb, callback, __ATOMIC_RELEASE);
}

}  // namespace

CallbackQueue::CallbackQueue(ucs_callbackq_t& c_queue) : c_queue_(c_queue) {}

CallbackQueue::~CallbackQueue() {
    const std::size_t left = size();
    if (left > 0)
        TW_LOG_WARN("%zu progress callbacks were never removed", left);
}

std::size_t CallbackQueue::size() const {
    const std::lock_guard guard(lock_);
    std::size_t count = 0;
    for (unsigned i = 0; i < fast_count_; ++i) {
        const ucs_callbackq_elem_t& element = c_queue_.fast_elems[i];
        count += element.id != kRunSlowId && element.cb != do_nothing ? 1 : 0;
    }
    for (const SlowElements* elements : {&arrivals_, &slow_})
        for (const auto& element : *elements)
            count += element->callback.load(std::memory_order_relaxed) != nullptr ? 1 : 0;
    return count;
}

int CallbackQueue::add(ucs_callback_t callback, void* arg, unsigned flags) {
    const std::lock_guard guard(lock_);
    const bool fast =
        (flags & UCS_CALLBACKQ_FLAG_FAST) != 0 && (flags & UCS_CALLBACKQ_FLAG_ONESHOT) == 0;
    const bool has_run_slow = find_fast(kRunSlowId) >= 0;
    if (fast && fast_count_ < kFastMax + (has_run_slow ? 1U : 0U)) {
        const int id = take_id();
        append_fast(callback, arg, flags, id);
        return id;
    }
    return add_slow(callback, arg, flags);
}

int CallbackQueue::add_safe(ucs_callback_t callback, void* arg, unsigned flags) {
    const std::lock_guard guard(lock_);
    return add_slow(callback, arg, flags);
}

void CallbackQueue::remove(int id) {
    const std::lock_guard guard(lock_);
    if (const int index = find_fast(id); index >= 0) {
        erase_fast(static_cast<unsigned>(index));
        free_ids_.push_back(id);
        return;
    }
    SlowElement* element = find_slow(id);
    TW_CHECK(element != nullptr);
    element->callback.store(nullptr, std::memory_order_relaxed);
    want_run_slow();
}

void CallbackQueue::remove_safe(int id) {
    const std::lock_guard guard(lock_);
    if (const int index = find_fast(id); index >= 0) {
        publish(c_queue_.fast_elems[index], do_nothing);
    } else {
        SlowElement* element = find_slow(id);
        TW_CHECK(element != nullptr);
        element->callback.store(nullptr, std::memory_order_relaxed);
    }
    want_run_slow();
}

void CallbackQueue::remove_if(ucs_callbackq_predicate_t predicate, void* arg) {
    ReserveVector<ucs_callbackq_elem_t> elements;
    {
        const std::lock_guard guard(lock_);
        for (unsigned i = 0; i < fast_count_; ++i) {
            const ucs_callbackq_elem_t& element = c_queue_.fast_elems[i];
            if (element.id != kRunSlowId && element.cb != do_nothing)
                elements.push_back(element);
        }
        for (const SlowElements* slow : {&slow_, &arrivals_}) {
            for (const auto& element : *slow)
                if (ucs_callback_t callback = element->callback.load(std::memory_order_relaxed))
                    elements.push_back({callback, element->arg, element->flags, element->id});
        }
    }
    for (const ucs_callbackq_elem_t& element : elements)
        if (predicate(&element, arg) != 0)
            remove(element.id);
}

unsigned CallbackQueue::run_slow_entry(void* self) {
    return static_cast<CallbackQueue*>(self)->run_slow();
}

// Callbacks that come while this runs wait for the next round, so that one that adds itself again
// cannot keep it here.
unsigned CallbackQueue::run_slow() {
    if (changed_.load(std::memory_order_relaxed))
        take_arrivals();
    ++depth_;
    unsigned done = 0;
    const std::size_t count = slow_.size();
    for (std::size_t i = 0; i < count; ++i) {
        SlowElement& element = *slow_[i];
        ucs_callback_t callback = element.callback.load(std::memory_order_relaxed);
        if (callback != nullptr && (element.flags & UCS_CALLBACKQ_FLAG_ONESHOT) != 0) {
            callback = element.callback.exchange(nullptr, std::memory_order_relaxed);
            changed_.store(true, std::memory_order_relaxed);
        }
        if (callback != nullptr)
            done += callback(element.arg);
    }
    --depth_;
    if (depth_ == 0 && changed_.load(std::memory_order_relaxed))
        sweep();
    return done;
}

void CallbackQueue::take_arrivals() {
    const std::lock_guard guard(lock_);
    for (auto& element : arrivals_)
        slow_.push_back(std::move(element));
    arrivals_.clear();
}

void CallbackQueue::sweep() {
    const std::lock_guard guard(lock_);
    std::erase_if(slow_, [this](const std::unique_ptr<SlowElement>& element) {
        const bool removed = element->callback.load(std::memory_order_relaxed) == nullptr;
        if (removed)
            free_ids_.push_back(element->id);
        return removed;
    });
    for (unsigned i = fast_count_; i-- > 0;) {
        if (c_queue_.fast_elems[i].cb == do_nothing) {
            free_ids_.push_back(c_queue_.fast_elems[i].id);
            erase_fast(i);
        }
    }
    changed_.store(!arrivals_.empty(), std::memory_order_relaxed);
    if (slow_.empty() && arrivals_.empty())
        erase_fast(static_cast<unsigned>(find_fast(kRunSlowId)));
}

int CallbackQueue::add_slow(ucs_callback_t callback, void* arg, unsigned flags) {
    auto element = std::make_unique<SlowElement>();
    element->callback.store(callback, std::memory_order_relaxed);
    element->arg = arg;
    element->flags = flags;
    element->id = take_id();
    arrivals_.push_back(std::move(element));
    want_run_slow();
    return arrivals_.back()->id;
}

void CallbackQueue::append_fast(ucs_callback_t callback, void* arg, unsigned flags, int id) {
    TW_CHECK(fast_count_ < UCS_CALLBACKQ_FAST_COUNT);
    ucs_callbackq_elem_t& element = c_queue_.fast_elems[fast_count_++];
    element.arg = arg;
    element.flags = flags;
    element.id = id;
    publish(element, callback);
}

// The last element takes the place: one that moved in front of the running callback waits for the
// next round.
void CallbackQueue::erase_fast(unsigned index) {
    ucs_callbackq_elem_t& last = c_queue_.fast_elems[--fast_count_];
    if (index != fast_count_)
        c_queue_.fast_elems[index] = last;
    last = {nullptr, nullptr, 0, UCS_CALLBACKQ_ID_NULL};
}

int CallbackQueue::find_fast(int id) const {
    for (unsigned i = 0; i < fast_count_; ++i)
        if (c_queue_.fast_elems[i].id == id)
            return static_cast<int>(i);
    return -1;
}

CallbackQueue::SlowElement* CallbackQueue::find_slow(int id) const {
    for (const SlowElements* elements : {&slow_, &arrivals_}) {
        for (const auto& element : *elements)
            if (element->id == id)
                return element.get();
    }
    return nullptr;
}

void CallbackQueue::want_run_slow() {
    changed_.store(true, std::memory_order_relaxed);
    if (find_fast(kRunSlowId) < 0)
        append_fast(run_slow_entry, this, UCS_CALLBACKQ_FLAG_FAST, kRunSlowId);
}

int CallbackQueue::take_id() {
    if (free_ids_.empty())
        return next_id_++;
    const int id = free_ids_.back();
    free_ids_.pop_back();
    return id;
}

namespace {

CallbackQueue*& private_part(ucs_callbackq_t* cbq) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): a pointer is what it has room for
    static_assert(sizeof(cbq->priv) >= sizeof(CallbackQueue*));
    static_assert(offsetof(ucs_callbackq_t, priv) % alignof(CallbackQueue*) == 0);
    return *reinterpret_cast<CallbackQueue**>(cbq->priv);
}

}  // namespace

std::size_t callback_count(const ucs_callbackq_t& c_queue) {
    return private_part(const_cast<ucs_callbackq_t*>(&c_queue))->size();
}

}  // namespace tagwire::ucs

using tagwire::ucs::CallbackQueue;
using tagwire::ucs::private_part;

ucs_status_t ucs_callbackq_init(ucs_callbackq_t* cbq) {
    *cbq = {};
    auto* queue = new (std::nothrow) CallbackQueue(*cbq);
    if (queue == nullptr)
        return UCS_ERR_NO_MEMORY;
    private_part(cbq) = queue;
    return UCS_OK;
}

void ucs_callbackq_cleanup(ucs_callbackq_t* cbq) {
    delete private_part(cbq);
    *cbq = {};
}

int ucs_callbackq_add(ucs_callbackq_t* cbq, ucs_callback_t cb, void* arg, unsigned flags) {
    return private_part(cbq)->add(cb, arg, flags);
}

void ucs_callbackq_remove(ucs_callbackq_t* cbq, int id) {
    private_part(cbq)->remove(id);
}

int ucs_callbackq_add_safe(ucs_callbackq_t* cbq, ucs_callback_t cb, void* arg, unsigned flags) {
    return private_part(cbq)->add_safe(cb, arg, flags);
}

void ucs_callbackq_remove_safe(ucs_callbackq_t* cbq, int id) {
    private_part(cbq)->remove_safe(id);
}

void ucs_callbackq_remove_if(ucs_callbackq_t* cbq, ucs_callbackq_predicate_t pred, void* arg) {
    private_part(cbq)->remove_if(pred, arg);
}
