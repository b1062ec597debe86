// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/mpool.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/anonymous_memory.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TW_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TW_ASAN 1
#endif
#endif
#if defined(TW_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace tagwire::ucs {
namespace {

constexpr unsigned char kPoison = 0xd5;

// Whoever takes elements at random from a large pool would wait for translations of addresses: one
// that has grown to twice a huge page takes whole ones from then on.
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::size_t kLargePool = 2 * kHugeBytes;

void* heap_allocate(void*, std::size_t bytes, std::size_t alignment) {
    // The elements of a chunk may fill a huge page but for a rest.
    if (bytes >= kHugeBytes - kHugeBytes / 32 && alignment <= kHugeBytes)
        return allocate_for_huge_pages(bytes);
    return std::aligned_alloc(alignment, bytes);
}

void heap_release(void*, void* memory, std::size_t) {
    reserve_free(memory);
}

/// Elements that a pool on the heap takes from the reserve at once when the heap has no memory.
constexpr std::size_t kReservedElements = 8;

void make_inaccessible([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(TW_ASAN)
    __asan_poison_memory_region(memory, bytes);
#endif
}

void make_accessible([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(TW_ASAN)
    __asan_unpoison_memory_region(memory, bytes);
#endif
}

void poison(void* element, std::size_t bytes) {
    std::memset(element, kPoison, bytes);
    make_inaccessible(element, bytes);
}

bool is_poisoned(const void* element, std::size_t bytes) {
    const auto* begin = static_cast<const unsigned char*>(element);
    return std::all_of(begin, begin + bytes, [](unsigned char byte) { return byte == kPoison; });
}

}  // namespace

template <bool Checked>
ucs_status_t BasicMpool<Checked>::init(const MpoolParams& params) {
    TW_CHECK(chunks_.empty());
    TW_CHECK((params.source.allocate == nullptr) == (params.source.release == nullptr));
    if (params.element_bytes == 0 || params.elements_per_chunk == 0 ||
        !std::has_single_bit(params.alignment) ||
        params.element_bytes > SIZE_MAX / 2 / params.elements_per_chunk) {
        TW_LOG_ERROR(
            "mpool %s: elements of %zu bytes aligned to %zu, %zu per chunk, are impossible",
            params.name, params.element_bytes, params.alignment, params.elements_per_chunk);
        return UCS_ERR_INVALID_PARAM;
    }
    params_ = params;
    name_ = params.name;
    if (params_.source.allocate == nullptr)
        params_.source = {.allocate = heap_allocate, .release = heap_release, .arg = nullptr};
    stride_ = (params.element_bytes + params.alignment - 1) & ~(params.alignment - 1);
    return UCS_OK;
}

template <bool Checked>
ucs_status_t BasicMpool<Checked>::reserve(std::size_t elements) {
    if (elements > params_.elements_max)
        return UCS_ERR_EXCEEDS_LIMIT;
    while (elements_total_ < elements)
        if (!grow())
            return UCS_ERR_NO_MEMORY;
    return UCS_OK;
}

template <bool Checked>
bool BasicMpool<Checked>::grow() {
    // Memory of the heap grows by a share, so that the list of free elements is not copied for each
    // few, and yet little of it lies idle.
    const bool is_heap = params_.source.allocate == heap_allocate;
    std::size_t wanted =
        std::max(params_.elements_per_chunk, is_heap ? elements_total_ / 8 : std::size_t{0});
    if (is_heap && elements_total_ * stride_ >= kLargePool)
        wanted = std::max(wanted, kHugeBytes / stride_);
    std::size_t elements = std::min(wanted, params_.elements_max - elements_total_);
    if (elements == 0)
        return false;
    // Whatever may fail comes before the memory is taken.
    const std::size_t free_before = elements_free();
    free_.resize(1 + elements_total_ + elements);
    top_ = free_.data() + free_before;
    chunks_.reserve(chunks_.size() + 1);
    Chunk chunk;
    if constexpr (Checked)
        chunk.taken.resize(elements);
    std::size_t bytes = elements * stride_;
    auto* memory = static_cast<std::byte*>(
        params_.source.allocate(params_.source.arg, bytes, params_.alignment));
    if (memory == nullptr && is_heap) {
        elements = std::min(elements, kReservedElements);
        bytes = elements * stride_;
        memory = static_cast<std::byte*>(reserve_allocate(bytes, params_.alignment));
    }
    if (memory == nullptr) {
        TW_LOG_ERROR("mpool %s: no memory for %zu more elements (%zu bytes)", name_.c_str(),
                     elements, bytes);
        return false;
    }
    TW_CHECK(reinterpret_cast<std::uintptr_t>(memory) % params_.alignment == 0);
    chunk.memory = memory;
    chunk.bytes = bytes;
    chunks_.push_back(std::move(chunk));
    // The last pushed is the first taken: hand a new chunk out in ascending order.
    for (std::size_t i = elements; i-- > 0;) {
        std::byte* element = memory + i * stride_;
        *++top_ = element;
        if constexpr (Checked)
            poison(element, params_.element_bytes);
    }
    elements_total_ += elements;
    return true;
}

template <bool Checked>
std::pair<typename BasicMpool<Checked>::Chunk*, std::size_t> BasicMpool<Checked>::locate(
    void* element) {
    const auto address = reinterpret_cast<std::uintptr_t>(element);
    for (Chunk& chunk : chunks_) {
        const auto begin = reinterpret_cast<std::uintptr_t>(chunk.memory);
        if (address >= begin && address < begin + chunk.bytes && (address - begin) % stride_ == 0)
            return {&chunk, (address - begin) / stride_};
    }
    return {nullptr, 0};
}

template <bool Checked>
void BasicMpool<Checked>::check_get(void* element) {
    auto [chunk, index] = locate(element);
    TW_CHECK(chunk != nullptr && !chunk->taken[index]);
    chunk->taken[index] = true;
    make_accessible(element, params_.element_bytes);
    const bool written_while_free = !is_poisoned(element, params_.element_bytes);
    TW_CHECK(!written_while_free);
}

template <bool Checked>
void BasicMpool<Checked>::check_put(void* element) {
    auto [chunk, index] = locate(element);
    const bool foreign_pointer = chunk == nullptr;
    TW_CHECK(!foreign_pointer);
    const bool put_twice = !chunk->taken[index];
    TW_CHECK(!put_twice);
    chunk->taken[index] = false;
    poison(element, params_.element_bytes);
}

template <bool Checked>
std::size_t BasicMpool<Checked>::clean_up() {
    const std::size_t leaked = elements_taken();
    if (leaked > 0) {
        TW_LOG_WARN("mpool %s: %zu of %zu elements were never put back", name_.c_str(), leaked,
                    elements_total_);
    }
    for (const Chunk& chunk : chunks_) {
        make_accessible(chunk.memory, chunk.bytes);
        params_.source.release(params_.source.arg, chunk.memory, chunk.bytes);
    }
    chunks_.clear();
    free_ = {};
    top_ = &none_;
    elements_total_ = 0;
    return leaked;
}

template class BasicMpool<false>;
template class BasicMpool<true>;

}  // namespace tagwire::ucs
