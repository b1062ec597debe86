// SPDX-License-Identifier: BSD-3-Clause
#include "av.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "ep.hpp"
#include "service.hpp"

namespace tagwire::fi {

namespace {

Av& av_of(fid_av* handle) {
    return static_cast<Av&>(*handle);
}

int close_av(fid* handle) {
    auto& av = object_of<Av, fid_av>(handle);
    if (!av.eps.empty())
        return -FI_EBUSY;
    delete &av;
    return 0;
}

int bind_av(fid* handle, fid* other, std::uint64_t flags) {
    auto& av = object_of<Av, fid_av>(handle);
    if (other->fclass != FI_CLASS_EQ || flags != 0 || av.eq != nullptr)
        return -FI_EINVAL;
    av.eq = &object_of<Eq, fid_eq>(other);
    ++av.eq->users;
    return 0;
}

/// The outcome of an insertion. One that ends for want of memory has had no effect: no address is
/// there, and no event is told.
class Insertion {
  public:
    Insertion(Av& av, std::size_t count, fi_addr_t* addrs, std::uint64_t flags, void* context)
        : av_(av), addrs_(addrs), flags_(flags), context_(context) {
        inserted_.reserve(count);
    }
    Insertion(const Insertion&) = delete;
    Insertion& operator=(const Insertion&) = delete;
    ~Insertion() {
        const Guard guard(av_.domain);
        for (; !inserted_.empty(); inserted_.pop_back())
            av_.remove(inserted_.back());
    }

    /// The next address; nothing: it is no name. Others may work with the domain while an endpoint
    /// is asked for its name, so it is locked here.
    void add(const std::optional<Name>& name) {
        fi_addr_t addr = FI_ADDR_NOTAVAIL;
        if (name) {
            const Guard guard(av_.domain);
            addr = av_.insert(*name);
        }
        const bool is_there = addr != FI_ADDR_NOTAVAIL;
        if (is_there)
            inserted_.push_back(addr);
        if (addrs_ != nullptr)
            addrs_[index_] = addr;
        if (av_.is_asynchronous && !is_there) {
            fi_eq_err_entry entry{};
            entry.fid = &av_.fid;
            entry.context = context_;
            entry.data = index_;
            entry.err = FI_EINVAL;
            entry.prov_errno = FI_EINVAL;
            Eq::add_error(events_, entry);
        } else if ((flags_ & FI_SYNC_ERR) != 0) {
            static_cast<int*>(context_)[index_] = is_there ? 0 : FI_EINVAL;
        }
        ++index_;
    }

    int end() {
        const std::size_t count = inserted_.size();
        if (av_.is_asynchronous) {
            const fi_eq_entry entry = {&av_.fid, context_, count};
            Eq::add(events_, FI_AV_COMPLETE, &entry, sizeof entry);
            av_.eq->push(events_);
        }
        inserted_.clear();
        return av_.is_asynchronous ? 0 : static_cast<int>(count);
    }

  private:
    Av& av_;
    fi_addr_t* const addrs_;
    const std::uint64_t flags_;
    void* const context_;
    std::size_t index_ = 0;
    std::vector<fi_addr_t> inserted_;  // to be taken back, until the end
    Eq::Events events_;
};

int check_insertion(const Av& av, std::uint64_t flags, const void* context) {
    if ((flags & ~std::uint64_t{FI_MORE | FI_SYNC_ERR}) != 0)
        return -FI_EBADFLAGS;
    if ((flags & FI_SYNC_ERR) != 0 && (context == nullptr || av.is_asynchronous))
        return -FI_EINVAL;
    return av.is_asynchronous && av.eq == nullptr ? -FI_ENOEQ : 0;
}

int insert_av(fid_av* handle, const void* addr, std::size_t count, fi_addr_t* addrs,
              std::uint64_t flags, void* context) {
    Av& av = av_of(handle);
    if (const int status = check_insertion(av, flags, context); status != 0)
        return status;
    return without_exceptions([&] {
        Insertion insertion(av, count, addrs, flags, context);
        for (std::size_t i = 0; i < count; ++i) {
            Name name;
            std::memcpy(&name, static_cast<const std::byte*>(addr) + i * sizeof name, sizeof name);
            insertion.add(name_at(name));
        }
        return insertion.end();
    });
}

int insert_service_av(fid_av* handle, const char* node, const char* service, fi_addr_t* addrs,
                      std::uint64_t flags, void* context) {
    Av& av = av_of(handle);
    if (const int status = check_insertion(av, flags, context); status != 0)
        return status;
    return without_exceptions([&] {
        const auto found = named(node, service, 0);
        Insertion insertion(av, 1, addrs, flags, context);
        insertion.add(found ? name_at(*found) : std::nullopt);
        return insertion.end();
    });
}

int remove_av(fid_av* handle, fi_addr_t* addrs, std::size_t count, std::uint64_t flags) {
    Av& av = av_of(handle);
    if (flags != 0)
        return -FI_EINVAL;
    const Guard guard(av.domain);
    return without_exceptions([&] {
        int status = 0;
        for (std::size_t i = 0; i < count; ++i)
            status = av.remove(addrs[i]) ? status : -FI_EINVAL;
        return status;
    });
}

int lookup_av(fid_av* handle, fi_addr_t addr, void* bytes, std::size_t* length) {
    Av& av = av_of(handle);
    const Guard guard(av.domain);
    const Name* name = av.find(addr);
    if (name == nullptr)
        return -FI_EINVAL;
    std::memcpy(bytes, name, std::min(*length, sizeof *name));
    *length = sizeof *name;
    return 0;
}

const char* straddr_av(fid_av*, const void* addr, char* buf, std::size_t* length) {
    Name name;
    std::memcpy(&name, addr, sizeof name);
    try {
        const auto place = Place::of(name);
        const std::string text = place ? place->str() : name.str();
        if (buf != nullptr && *length > 0) {
            const std::size_t bytes = std::min(*length - 1, text.size());
            std::memcpy(buf, text.data(), bytes);
            buf[bytes] = '\0';
        }
        *length = text.size() + 1;
    } catch (const std::exception&) {
        return nullptr;
    }
    return buf;
}

fi_ops av_fid_ops = {sizeof(fi_ops), close_av, bind_av, kAbsent, kAbsent, kAbsent, kAbsent};
fi_ops_av av_ops = with_later_calls(
    fi_ops_av{
        .size = sizeof(fi_ops_av),
        .insert = insert_av,
        .insertsvc = insert_service_av,
        .insertsym = kAbsent,
        .remove = remove_av,
        .lookup = lookup_av,
        .straddr = straddr_av,
        .av_set = kAbsent,
    },
    kAbsent);

}  // namespace

Av::Av(Domain& parent, const fi_av_attr& attr, void* user_context)
    : fid_av{}, domain(parent), is_asynchronous((attr.flags & FI_EVENT) != 0) {
    fid.fclass = FI_CLASS_AV;
    fid.context = user_context;
    fid.ops = &av_fid_ops;
    ops = &av_ops;
    ++domain.children;
}

Av::~Av() {
    if (eq != nullptr)
        --eq->users;
    --domain.children;
}

int Av::open(fid_domain* domain, fi_av_attr* attr, fid_av** av_p, void* user_context) {
    if (attr == nullptr || (attr->flags & ~std::uint64_t{FI_EVENT | FI_SYMMETRIC}) != 0)
        return -FI_EINVAL;
    auto& parent = static_cast<Domain&>(*domain);
    if (static_cast<unsigned>(attr->type) > FI_AV_TABLE)
        return -FI_EINVAL;
    if (attr->name != nullptr || attr->rx_ctx_bits != 0) {
        FI_WARN(&provider, FI_LOG_AV, "attr->name must be NULL and attr->rx_ctx_bits 0\n");
        return -FI_ENOSYS;
    }
    return without_exceptions([&] {
        auto av = std::make_unique<Av>(parent, *attr, user_context);
        av->entries_.reserve(attr->count);
        if (attr->type == FI_AV_UNSPEC)
            attr->type = parent.av_type == FI_AV_UNSPEC ? FI_AV_TABLE : parent.av_type;
        *av_p = av.release();
        return 0;
    });
}

fi_addr_t Av::insert(const Name& name) {
    const auto id = name.worker_id();
    if (!id)
        return FI_ADDR_NOTAVAIL;
    if (free_.empty()) {
        // Room for all, so that removing needs no memory.
        if (free_.capacity() <= entries_.size())
            free_.reserve(2 * entries_.size() + 1);
        entries_.emplace_back();
        free_.push_back(entries_.size() - 1);
    }
    const fi_addr_t addr = free_.back();
    if (const auto found = by_id_.find(*id); found != by_id_.end())
        found->second.push_back(addr);
    else
        by_id_.emplace(*id, std::vector{addr});
    free_.pop_back();
    entries_[addr] = {name, *id, true};
    return addr;
}

bool Av::remove(fi_addr_t addr) {
    if (find(addr) == nullptr)
        return false;
    free_.push_back(addr);
    Entry& entry = entries_[addr];
    const auto found = by_id_.find(entry.worker_id);
    std::erase(found->second, addr);
    const bool is_last = found->second.empty();
    const fi_addr_t source = is_last ? FI_ADDR_NOTAVAIL : found->second.front();
    if (is_last)
        by_id_.erase(found);
    for (Ep* ep : eps) {
        ep->forget(addr);
        ep->renumber(entry.worker_id, source);
    }
    entry.is_used = false;
    return true;
}

const Name* Av::find(fi_addr_t addr) const {
    return addr < entries_.size() && entries_[addr].is_used ? &entries_[addr].name : nullptr;
}

fi_addr_t Av::addr_of(std::uint64_t worker_id) const {
    const auto found = by_id_.find(worker_id);
    return found == by_id_.end() ? FI_ADDR_NOTAVAIL : found->second.front();
}

}  // namespace tagwire::fi
