// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ib_md.hpp"

#include <endian.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/anonymous_memory.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/topo/topology.hpp"
#include "uct/ib/options.hpp"
#include "uct/ib/transport.hpp"

namespace tagwire::ib {

namespace {

constexpr unsigned kWriteAccess =
    UCT_MD_MEM_ACCESS_LOCAL_WRITE | UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;

// A system call, and a look at every page.
constexpr double kRegisterSeconds = 10e-6;
constexpr double kRegisterSecondsPerByte = 0.06e-9;

constexpr int kPartitionMask = 0x7fff;

/// All of `text` is a number from 0 to `max`.
bool read_whole(std::string_view text, int base, int max, int* number_p) {
    const char* const end = text.data() + text.size();
    int number = -1;
    const auto [rest, error] = std::from_chars(text.data(), end, number, base);
    if (error != std::errc() || rest != end || number < 0 || number > max)
        return false;
    *number_p = number;
    return true;
}

int verbs_access_of(unsigned flags, bool has_atomics) {
    // Without the right to write, read-only memory can be sent.
    const bool is_source =
        (flags & UCT_MD_MEM_ACCESS_LOCAL_READ) != 0 && (flags & kWriteAccess) == 0;
    int access = is_source ? 0 : IBV_ACCESS_LOCAL_WRITE;
    if ((flags & UCT_MD_MEM_ACCESS_REMOTE_PUT) != 0)
        access |= IBV_ACCESS_REMOTE_WRITE;
    if ((flags & UCT_MD_MEM_ACCESS_REMOTE_GET) != 0)
        access |= IBV_ACCESS_REMOTE_READ;
    if ((flags & UCT_MD_MEM_ACCESS_REMOTE_ATOMIC) != 0 && has_atomics)
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

std::string locked_memory_hint() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return {};
    return "; the limit of locked memory (ulimit -l) is " + std::to_string(limit.rlim_cur / 1024) +
           " kB; set it to unlimited";
}

ucs_status_t status_of_registration(int error) {
    switch (error) {
        case ENOMEM:
        case EAGAIN:
            return UCS_ERR_NO_MEMORY;
        case EFAULT:
            return UCS_ERR_INVALID_ADDR;
        case EINVAL:
            return UCS_ERR_INVALID_PARAM;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

ucs_status_t prepare_for_fork(const Device& device, ForkSupport wanted) {
    const int error = wanted == ForkSupport::kNo ? 0 : device.verbs().fork_init();
    if (error == 0)
        return UCS_OK;
    if (wanted == ForkSupport::kTry) {
        TW_LOG_DEBUG("%s: ibv_fork_init failed: %s", device.name().c_str(), std::strerror(error));
        return UCS_OK;
    }
    TW_LOG_ERROR("%s: TAGWIRE_IB_FORK=y, but ibv_fork_init failed: %s%s", device.name().c_str(),
                 std::strerror(error),
                 error == EINVAL ? " (too late: this process has registered memory already)" : "");
    return UCS_ERR_UNSUPPORTED;
}

}  // namespace

std::uint8_t port_number_of(std::string_view dev_name) {
    const std::size_t colon = dev_name.rfind(':');
    if (colon == std::string_view::npos)
        return 0;
    const char* end = dev_name.data() + dev_name.size();
    std::uint8_t number = 0;
    const auto [rest, error] = std::from_chars(dev_name.data() + colon + 1, end, number);
    return error == std::errc() && rest == end ? number : 0;
}

ucs_status_t IbMd::open(const uct::Component& family, const char* name, const IbMdOptions& options,
                        uct::Md** md_p) {
    Path path;
    if (const ucs_status_t status = read_path(options, &path); status != UCS_OK)
        return status;
    std::unique_ptr<Device> device;
    if (const ucs_status_t status = Device::open(name, &device); status != UCS_OK)
        return status;
    // Nothing is registered for it yet.
    if (const ucs_status_t status =
            prepare_for_fork(*device, static_cast<ForkSupport>(options.fork));
        status != UCS_OK)
        return status;
    if (!ucs::make_nonblocking(device->context()->async_fd))
        return ucs::fd_error("fcntl of a device's events", errno);
    errno = 0;
    OwnedPd pd = owned(device->verbs().alloc_pd(device->context()), device->verbs().dealloc_pd);
    if (!pd)
        return call_failed(*device, "ibv_alloc_pd", errno);
    *md_p = new IbMd(family, std::move(device), std::move(pd), path, options);
    return UCS_OK;
}

ucs_status_t IbMd::read_path(const IbMdOptions& options, Path* path_p) {
    const auto read = [](const char* name, const char* text, const char* expected, auto&& parse) {
        if (std::string_view(text) == "auto" || parse(std::string_view(text)))
            return true;
        TW_LOG_ERROR("%s=%s: expected auto or %s", name, text, expected);
        return false;
    };
    PortChoice& choice = path_p->choice;
    const bool is_sound =
        read("TAGWIRE_IB_GID_INDEX", options.gid_index.text, "a number from 0",
             [&](std::string_view text) {
                 return read_whole(text, 10, INT32_MAX, &choice.gid_index);
             }) &&
        read("TAGWIRE_IB_PKEY", options.pkey.text,
             "a partition in hexadecimal digits, 0x1 to 0x7fff, or to 0xffff with the membership "
             "bit",
             [&](std::string_view text) {
                 const bool has_prefix = text.starts_with("0x") || text.starts_with("0X");
                 int key = 0;
                 if (!read_whole(text.substr(has_prefix ? 2 : 0), 16, UINT16_MAX, &key))
                     return false;
                 choice.pkey = key & kPartitionMask;
                 return choice.pkey != 0;
             });
    if (!is_sound)
        return UCS_ERR_INVALID_PARAM;
    path_p->traffic_class = static_cast<std::uint8_t>(options.traffic_class);
    path_p->service_level = static_cast<std::uint8_t>(options.service_level);
    path_p->mtu_max = static_cast<ibv_mtu>(std::min(options.mtu_max + 1, int{IBV_MTU_4096}));
    return UCS_OK;
}

IbMd::IbMd(const uct::Component& family, std::unique_ptr<Device> device, OwnedPd pd,
           const Path& path, const IbMdOptions& options)
    : Md(family),
      device_(std::move(device)),
      pd_(std::move(pd)),
      async_(device_->verbs(), device_->context()),
      path_(path),
      ordering_(static_cast<RelaxedOrdering>(options.relaxed_ordering)),
      tx_sges_(static_cast<unsigned>(options.tx_sges)) {}

IbMd::~IbMd() {
    const std::lock_guard lock(mutex_);
    for (const Registration* memory : registrations_) {
        TW_LOG_WARN("%s: memory domain closed while %p (%zu bytes) was still %s",
                    device_->name().c_str(), memory->mr->addr, memory->bytes,
                    memory->mapping != nullptr ? "allocated" : "registered");
        verbs().dereg_mr(memory->mr);
        delete memory;
    }
}

ucs_status_t IbMd::query(uct_md_attr_t* attr) {
    attr->cap.max_alloc = device_->attr().orig_attr.max_mr_size;
    attr->cap.max_reg = device_->attr().orig_attr.max_mr_size;
    attr->cap.flags = UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH |
                      UCT_MD_FLAG_NEED_RKEY | UCT_MD_FLAG_FIXED;
    attr->cap.reg_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.alloc_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.detect_mem_types = 0;
    attr->reg_cost = ucs_linear_func_make(kRegisterSeconds, kRegisterSecondsPerByte);
    CPU_ZERO(&attr->local_cpus);
    const int node = device_->numa_node();
    if (node >= 0) {
        for (const int cpu : ucs::system_topology().cpus_of_node(node))
            if (cpu < CPU_SETSIZE)
                UCS_CPU_SET(cpu, &attr->local_cpus);
        return UCS_OK;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        UCS_CPU_SET(cpu, &attr->local_cpus);
    return UCS_OK;
}

ucs_status_t IbMd::query_tl_resources(std::vector<uct::TlDevice>* devices) {
    for (unsigned number = 1; number <= device_->port_count(); ++number) {
        Port port;
        if (device_->port(static_cast<std::uint8_t>(number), {}, &port, nullptr) != UCS_OK)
            continue;
        for (const Transport* transport : transports()) {
            std::string reason;
            if (!transport->usable(*device_, &reason))
                continue;
            devices->push_back({transport->tl.name, device_->name() + ":" + std::to_string(number),
                                UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN});
        }
    }
    return UCS_OK;
}

ucs_status_t IbMd::iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                              const void* iface_values, uct_iface_h* iface_p) {
    const auto is_wanted = [&params](const Transport* transport) {
        return std::strcmp(transport->tl.name, params.mode.device.tl_name) == 0;
    };
    const auto found = std::ranges::find_if(transports(), is_wanted);
    // The facade has looked it up in query_tl_resources().
    if (found == transports().end())
        return UCS_ERR_NO_DEVICE;
    return (*found)->open(*this, worker, params, iface_values, iface_p);
}

ucs_status_t IbMd::track(ibv_mr* mr, void* mapping, std::size_t bytes, uct_mem_h* memh_p) {
    auto* memory = new Registration{{}, mr, mapping, bytes};
    const std::lock_guard lock(mutex_);
    registrations_.insert(memory);
    *memh_p = memory;
    return UCS_OK;
}

// A completion is never written before the data that it tells of, whatever the order of the data.
// So only programs that watch memory could see a difference.
ibv_mr* IbMd::reg_mr(void* address, std::size_t bytes, int access) const {
    const bool is_watched = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    const bool is_relaxed =
        ordering_ == RelaxedOrdering::kYes || (ordering_ == RelaxedOrdering::kAuto && !is_watched);
    if (!is_relaxed || verbs().reg_mr_iova2 == nullptr)
        return verbs().reg_mr(pd(), address, bytes, access);
    return verbs().reg_mr_iova2(pd(), address, bytes, reinterpret_cast<std::uintptr_t>(address),
                                static_cast<unsigned>(access) | IBV_ACCESS_RELAXED_ORDERING);
}

ibv_mr* IbMd::register_memory(void* address, std::size_t bytes, unsigned flags, int* error_p) {
    const bool has_atomics = device_->attr().orig_attr.atomic_cap != IBV_ATOMIC_NONE;
    const int access = verbs_access_of(flags, has_atomics);
    errno = 0;
    ibv_mr* mr = reg_mr(address, bytes, access);
    if (mr != nullptr)
        return mr;
    *error_p = errno;
    const auto level =
        (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0 ? ucs::LogLevel::kDebug : ucs::LogLevel::kError;
    TW_LOG(level, "%s: memory at %p of %zu bytes cannot be registered (access 0x%x): %s%s",
           device_->name().c_str(), address, bytes, static_cast<unsigned>(access),
           std::strerror(*error_p), *error_p == ENOMEM ? locked_memory_hint().c_str() : "");
    return nullptr;
}

ucs_status_t IbMd::mem_reg(void* address, std::size_t length, unsigned flags, uct_mem_h* memh_p) {
    int error = 0;
    ibv_mr* mr = register_memory(address, length, flags, &error);
    return mr != nullptr ? track(mr, nullptr, length, memh_p) : status_of_registration(error);
}

ucs_status_t IbMd::mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                             unsigned flags, const char*, uct_mem_h* memh_p) {
    if (type != UCS_MEMORY_TYPE_HOST)
        return UCS_ERR_UNSUPPORTED;
    ucs::AnonymousMemory memory{};
    const ucs_status_t status =
        ucs::map_anonymous(*length_p, ucs::AnonymousPages::kNormal, *address_p,
                           (flags & UCT_MD_MEM_FLAG_FIXED) != 0, &memory);
    if (status != UCS_OK)
        return status;
    int error = 0;
    ibv_mr* mr = register_memory(memory.address, memory.bytes, flags, &error);
    if (mr == nullptr) {
        ucs::unmap_anonymous(memory);
        return status_of_registration(error);
    }
    *length_p = memory.bytes;
    *address_p = memory.address;
    return track(mr, memory.address, memory.bytes, memh_p);
}

ucs_status_t IbMd::forget(Registration* memory) {
    if (const int error = verbs().dereg_mr(memory->mr); error != 0) {
        TW_LOG_ERROR("%s: ibv_dereg_mr failed: %s", device_->name().c_str(), std::strerror(error));
        return error == EBUSY ? UCS_ERR_BUSY : UCS_ERR_IO_ERROR;
    }
    const std::lock_guard lock(mutex_);
    registrations_.erase(memory);
    return UCS_OK;
}

ucs_status_t IbMd::mem_free(uct_mem_h memh) {
    auto* memory = static_cast<Registration*>(memh);
    if (memory->mapping == nullptr) {
        TW_LOG_ERROR("mem_free: this memory was registered, not allocated: use uct_md_mem_dereg()");
        return UCS_ERR_INVALID_PARAM;
    }
    if (const ucs_status_t status = forget(memory); status != UCS_OK)
        return status;
    const ucs_status_t status = ucs::unmap_anonymous({memory->mapping, memory->bytes});
    delete memory;
    return status;
}

ucs_status_t IbMd::mem_dereg(uct_mem_h memh) {
    auto* memory = static_cast<Registration*>(memh);
    if (memory->mapping != nullptr) {
        TW_LOG_ERROR("mem_dereg: this memory was allocated by the domain: use uct_mem_free()");
        return UCS_ERR_INVALID_PARAM;
    }
    if (const ucs_status_t status = forget(memory); status != UCS_OK)
        return status;
    delete memory;
    return UCS_OK;
}

ucs_status_t IbMd::mkey_pack(uct_mem_h memh, void* packed) {
    const PackedRkey rkey{htole32(kRkeyMagic), htole32(registration_of(memh).mr->rkey)};
    std::memcpy(packed, &rkey, sizeof rkey);
    return UCS_OK;
}

}  // namespace tagwire::ib
