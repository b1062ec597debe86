// SPDX-License-Identifier: BSD-3-Clause
// `tagwire info devices`: components, memory domains, transports with their capabilities, limits
// and performance attributes, and what an interface and a connection to a peer process tell about
// themselves.
#include "cli/failure.hpp"
#include "tools/describe.hpp"
#include "tools/info.hpp"
#include "tools/limits.hpp"
#include "tools/pinning.hpp"
#include "tools/resources.hpp"
#include "tools/session.hpp"

namespace tagwire::tools {
namespace {

struct Flag {
    std::uint64_t bit;
    const char* name;
};

template <std::size_t n>
std::string names_of(std::uint64_t bits, const Flag (&flags)[n]) {
    std::string names;
    for (const Flag& flag : flags)
        if ((bits & flag.bit) != 0)
            names += (names.empty() ? "" : " ") + std::string(flag.name);
    return names.empty() ? "none" : names;
}

constexpr Flag kMdFlags[] = {
    {UCT_MD_FLAG_ALLOC, "alloc"},         {UCT_MD_FLAG_REG, "reg"},
    {UCT_MD_FLAG_NEED_MEMH, "need_memh"}, {UCT_MD_FLAG_NEED_RKEY, "need_rkey"},
    {UCT_MD_FLAG_ADVISE, "advise"},       {UCT_MD_FLAG_FIXED, "fixed"},
    {UCT_MD_FLAG_RKEY_PTR, "rkey_ptr"},   {UCT_MD_FLAG_INVALIDATE, "invalidate"},
};

constexpr Flag kIfaceFlags[] = {
    {UCT_IFACE_FLAG_AM_SHORT, "am_short"},
    {UCT_IFACE_FLAG_AM_BCOPY, "am_bcopy"},
    {UCT_IFACE_FLAG_AM_ZCOPY, "am_zcopy"},
    {UCT_IFACE_FLAG_PUT_SHORT, "put_short"},
    {UCT_IFACE_FLAG_PUT_BCOPY, "put_bcopy"},
    {UCT_IFACE_FLAG_PUT_ZCOPY, "put_zcopy"},
    {UCT_IFACE_FLAG_GET_SHORT, "get_short"},
    {UCT_IFACE_FLAG_GET_BCOPY, "get_bcopy"},
    {UCT_IFACE_FLAG_GET_ZCOPY, "get_zcopy"},
    {UCT_IFACE_FLAG_TAG_EAGER_SHORT, "tag_eager_short"},
    {UCT_IFACE_FLAG_TAG_EAGER_BCOPY, "tag_eager_bcopy"},
    {UCT_IFACE_FLAG_TAG_EAGER_ZCOPY, "tag_eager_zcopy"},
    {UCT_IFACE_FLAG_TAG_RNDV_ZCOPY, "tag_rndv_zcopy"},
    {UCT_IFACE_FLAG_ATOMIC_CPU, "atomic_cpu"},
    {UCT_IFACE_FLAG_ATOMIC_DEVICE, "atomic_device"},
    {UCT_IFACE_FLAG_PENDING, "pending"},
    {UCT_IFACE_FLAG_CONNECT_TO_IFACE, "connect_to_iface"},
    {UCT_IFACE_FLAG_CONNECT_TO_EP, "connect_to_ep"},
    {UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE, "peer_failure"},
    {UCT_IFACE_FLAG_EP_CHECK, "ep_check"},
    {UCT_IFACE_FLAG_EP_KEEPALIVE, "ep_keepalive"},
    {UCT_IFACE_FLAG_CB_SYNC, "cb_sync"},
};

constexpr Flag kEventFlags[] = {
    {UCT_IFACE_FLAG_EVENT_SEND_COMP, "send_comp"},
    {UCT_IFACE_FLAG_EVENT_RECV, "recv"},
    {UCT_IFACE_FLAG_EVENT_RECV_SIG, "recv_sig"},
    {UCT_IFACE_FLAG_EVENT_FD, "fd"},
};

constexpr Flag kAtomicOps[] = {
    {UCS_BIT(UCT_ATOMIC_OP_ADD), "add"},   {UCS_BIT(UCT_ATOMIC_OP_AND), "and"},
    {UCS_BIT(UCT_ATOMIC_OP_OR), "or"},     {UCS_BIT(UCT_ATOMIC_OP_XOR), "xor"},
    {UCS_BIT(UCT_ATOMIC_OP_SWAP), "swap"}, {UCS_BIT(UCT_ATOMIC_OP_CSWAP), "cswap"},
};

const char* device_type_name(uct_device_type_t type) {
    switch (type) {
        case UCT_DEVICE_TYPE_NET:
            return "network";
        case UCT_DEVICE_TYPE_SHM:
            return "shared memory";
        case UCT_DEVICE_TYPE_ACC:
            return "accelerator";
        case UCT_DEVICE_TYPE_SELF:
            return "loopback";
        default:
            return "unknown";
    }
}

InfoNode::Value number(std::size_t value) {
    return std::uint64_t{value};
}

void add_message_limits(InfoNode* node, const uct_iface_attr_t& attr) {
    InfoNode& limits = node->add("limits");
    InfoNode& am = limits.add("am");
    am.add("max_short", number(attr.cap.am.max_short));
    am.add("max_bcopy", number(attr.cap.am.max_bcopy));
    am.add("max_zcopy", number(attr.cap.am.max_zcopy));
    am.add("max_hdr", number(attr.cap.am.max_hdr));
    am.add("max_iov", number(attr.cap.am.max_iov));
    InfoNode& put = limits.add("put");
    put.add("max_short", number(attr.cap.put.max_short));
    put.add("max_bcopy", number(attr.cap.put.max_bcopy));
    put.add("max_zcopy", number(attr.cap.put.max_zcopy));
    put.add("max_iov", number(attr.cap.put.max_iov));
    InfoNode& get = limits.add("get");
    get.add("max_short", number(attr.cap.get.max_short));
    get.add("max_bcopy", number(attr.cap.get.max_bcopy));
    get.add("max_zcopy", number(attr.cap.get.max_zcopy));
    get.add("max_iov", number(attr.cap.get.max_iov));
    const auto& tag = attr.cap.tag;
    InfoNode& tags = limits.add("tag");
    tags.add("eager_max_short", number(tag.eager.max_short));
    tags.add("eager_max_bcopy", number(tag.eager.max_bcopy));
    tags.add("eager_max_zcopy", number(tag.eager.max_zcopy));
    tags.add("eager_max_iov", number(tag.eager.max_iov));
    tags.add("rndv_max_zcopy", number(tag.rndv.max_zcopy));
    tags.add("rndv_max_hdr", number(tag.rndv.max_hdr));
    tags.add("rndv_max_iov", number(tag.rndv.max_iov));
    tags.add("recv_min", number(tag.recv.min_recv));
    tags.add("recv_max_zcopy", number(tag.recv.max_zcopy));
    tags.add("recv_max_iov", number(tag.recv.max_iov));
    tags.add("recv_max_outstanding", number(tag.recv.max_outstanding));
}

void add_attributes(InfoNode* node, const uct_iface_attr_t& attr) {
    node->add("capabilities", names_of(attr.cap.flags, kIfaceFlags));
    node->add("events", names_of(attr.cap.event_flags, kEventFlags));
    node->add("atomic32", names_of(attr.cap.atomic32.op_flags, kAtomicOps));
    node->add("atomic32_fetch", names_of(attr.cap.atomic32.fop_flags, kAtomicOps));
    node->add("atomic64", names_of(attr.cap.atomic64.op_flags, kAtomicOps));
    node->add("atomic64_fetch", names_of(attr.cap.atomic64.fop_flags, kAtomicOps));
    add_message_limits(node, attr);
    InfoNode& performance = node->add("performance");
    performance.add("overhead_ns", attr.overhead * 1e9);
    performance.add("latency_ns", attr.latency.c * 1e9);
    performance.add("latency_ns_per_ep", attr.latency.m * 1e9);
    performance.add("bandwidth_dedicated_bytes_per_s", attr.bandwidth.dedicated);
    performance.add("bandwidth_shared_bytes_per_s", attr.bandwidth.shared);
    performance.add("priority", std::uint64_t{attr.priority});
    InfoNode& addresses = node->add("address_bytes");
    addresses.add("device", number(attr.device_addr_len));
    addresses.add("iface", number(attr.iface_addr_len));
    addresses.add("ep", number(attr.ep_addr_len));
}

void add_facts(InfoNode* node, const char* name, const Facts& facts) {
    if (facts.empty())
        return;
    InfoNode& group = node->add(name);
    for (const auto& [key, value] : facts)
        group.add(key, value);
}

/// A connection to a peer process that has carried a message, so that what it tells is what a peer
/// really gets.
class PeerProbe {
  public:
    PeerProbe() : driver_(start_peer_process(), cpus()) {}

    const Link& connect(const Resource& resource) {
        Setup setup;
        setup.transport = resource.transport;
        setup.device = resource.device;
        setup.wait = cpus()[0] == cpus()[1] ? Wait::kYield : Wait::kSpin;
        driver_.open(setup);
        exchange();
        return driver_.link();
    }

  private:
    /// The first kind of test that the transport can do, large enough for its zero-copy path.
    void exchange() {
        for (const TestId test : {TestId::kTagLat, TestId::kAmLat, TestId::kPutLat}) {
            for (const std::uint64_t size : {256U << 10, 8U}) {
                std::string why;
                const auto op = choose_op(test, Op::kAuto, size, driver_.link().attr(), &why);
                if (op) {
                    Job job;
                    job.test = test;
                    job.op = *op;
                    job.size = size;
                    job.iterations = 1;
                    driver_.run(job);
                    return;
                }
            }
        }
    }

    /// Chosen before the first probe pins this process to one of them.
    static const std::vector<int>& cpus() {
        static const std::vector<int> chosen = choose_cpus({});
        return chosen;
    }

    Driver driver_;
};

void add_transport(InfoNode* list, const Resource& resource) {
    InfoNode& node = list->add("transport", resource.transport);
    node.add("device", resource.device);
    node.add("device_type", std::string(device_type_name(resource.device_type)));
    try {
        PeerProbe peer;
        const Link& link = peer.connect(resource);
        add_attributes(&node, link.attr());
        add_facts(&node, "interface", describe(link.interface(0)));
        add_facts(&node, "connection", describe(link.endpoint(0)));
    } catch (const std::exception& error) {
        node.add("error", std::string(error.what()));
    }
}

void fill_md(InfoNode& node, uct_component_h component, const std::string& name) {
    const MdHandle md = open_md(component, name);
    uct_md_attr_t attr{};
    check(uct_md_query(md.get(), &attr), "uct_md_query");
    node.add("capabilities", names_of(attr.cap.flags, kMdFlags));
    node.add("max_alloc", std::uint64_t{attr.cap.max_alloc});
    node.add("max_reg", number(attr.cap.max_reg));
    node.add("rkey_bytes", number(attr.rkey_packed_size));
    node.add("reg_cost_ns", attr.reg_cost.c * 1e9);
    node.add("reg_cost_ns_per_byte", attr.reg_cost.m * 1e9);
    InfoNode& transports = node.add_list("transports");
    for (const Resource& resource : resources_of(component, name, md.get()))
        add_transport(&transports, resource);
}

/// One that does not work is shown with the reason beside those that do.
void add_md(InfoNode* list, uct_component_h component, const std::string& name) {
    InfoNode& node = list->add("memory domain", name);
    try {
        fill_md(node, component, name);
    } catch (const std::exception& error) {
        node.add("error", std::string(error.what()));
    }
}

}  // namespace

InfoNode gather_devices() {
    InfoNode devices{"devices", {}, {}, true};
    for (const uct_component_h component : Components()) {
        InfoNode& node = devices.add("component", component_name(component));
        add_facts(&node, "found", describe(component));
        InfoNode& mds = node.add_list("memory_domains");
        for (const std::string& name : md_names(component))
            add_md(&mds, component, name);
    }
    return devices;
}

}  // namespace tagwire::tools
