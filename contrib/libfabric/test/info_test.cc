// SPDX-License-Identifier: BSD-3-Clause
// Loading of the provider, and the answers of fi_getinfo().
#include <dlfcn.h>
#include <rdma/providers/fi_prov.h>

#include <cstdlib>
#include <cstring>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kAll = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                               FI_LOCAL_COMM | FI_REMOTE_COMM | FI_FENCE | FI_VARIABLE_MSG;

TEST(FiLoad, the_library_loads_by_itself_and_has_the_entry) {
    const std::string path = std::string(std::getenv("FI_PROVIDER_PATH")) + "/libtagwire-fi.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    auto* entry = reinterpret_cast<fi_provider* (*)()>(dlsym(library, "fi_prov_ini"));
    ASSERT_NE(entry, nullptr);
    dlclose(library);
}

TEST(FiInfo, a_plain_question_is_answered) {
    const auto info = ask(hints_for(0).get());
    ASSERT_NE(info, nullptr);
    EXPECT_STREQ(info->fabric_attr->prov_name, "tagwire");
    EXPECT_EQ(info->ep_attr->type, FI_EP_RDM);
    EXPECT_EQ(info->domain_attr->mr_mode, 0);
    EXPECT_EQ(info->mode, 0U);
    EXPECT_NE(info->src_addr, nullptr);
    EXPECT_EQ(info->next, nullptr);
    EXPECT_EQ(info->caps & FI_VARIABLE_MSG, 0U);
    EXPECT_GE(info->tx_attr->inject_size, 64U);
}

TEST(FiInfo, what_was_asked_for_is_there_and_what_costs_something_is_not_besides) {
    const auto all = ask(hints_for(kAll).get());
    ASSERT_NE(all, nullptr);
    EXPECT_EQ(all->caps & kAll, kAll);
    const auto tagged = ask(hints_for(FI_TAGGED).get());
    ASSERT_NE(tagged, nullptr);
    EXPECT_EQ(tagged->caps & (FI_MSG | FI_SOURCE | FI_DIRECTED_RECV | FI_VARIABLE_MSG), 0U);
    EXPECT_EQ(tagged->caps & (FI_SEND | FI_RECV), std::uint64_t{FI_SEND | FI_RECV});
    const auto sends = ask(hints_for(FI_TAGGED | FI_SEND).get());
    ASSERT_NE(sends, nullptr);
    EXPECT_EQ(sends->caps & FI_RECV, 0U);
}

TEST(FiInfo, what_is_not_offered_has_no_answer) {
    for (const std::uint64_t caps :
         {FI_MULTICAST, FI_NAMED_RX_CTX, FI_HMEM, FI_SHARED_AV, FI_COLLECTIVE})
        EXPECT_EQ(ask(hints_for(FI_MSG | caps).get()), nullptr) << fi_tostr(&caps, FI_TYPE_CAPS);
}

using Change = std::function<void(fi_info&)>;

TEST(FiInfo, a_hint_that_cannot_be_met_has_no_answer) {
    const Change changes[] = {
        [](fi_info& hints) { hints.ep_attr->type = FI_EP_MSG; },
        [](fi_info& hints) { hints.ep_attr->type = FI_EP_DGRAM; },
        [](fi_info& hints) { hints.ep_attr->protocol = FI_PROTO_RXM; },
        [](fi_info& hints) { hints.ep_attr->tx_ctx_cnt = 2; },
        [](fi_info& hints) { hints.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; },
        [](fi_info& hints) { hints.ep_attr->msg_prefix_size = 8; },
        [](fi_info& hints) { hints.addr_format = FI_SOCKADDR_IN; },
        [](fi_info& hints) { hints.tx_attr->inject_size = SIZE_MAX; },
        [](fi_info& hints) { hints.tx_attr->iov_limit = 17; },
        [](fi_info& hints) { hints.tx_attr->rma_iov_limit = 17; },
        [](fi_info& hints) { hints.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
        [](fi_info& hints) { hints.tx_attr->caps = FI_MULTICAST; },
        [](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_RAW; },
        [](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_ATOMIC_RAW; },
        [](fi_info& hints) { hints.ep_attr->max_order_raw_size = 1; },
        [](fi_info& hints) { hints.tx_attr->comp_order = 1; },
        [](fi_info& hints) { hints.rx_attr->iov_limit = 17; },
        [](fi_info& hints) { hints.rx_attr->op_flags = FI_DELIVERY_COMPLETE; },
        [](fi_info& hints) { hints.rx_attr->size = SIZE_MAX; },
        [](fi_info& hints) { hints.domain_attr->cq_data_size = 9; },
        [](fi_info& hints) { hints.domain_attr->mr_key_size = 9; },
        [](fi_info& hints) { hints.domain_attr->max_ep_stx_ctx = 1; },
        [](fi_info& hints) { hints.domain_attr->name = strdup("elsewhere"); },
        [](fi_info& hints) { hints.fabric_attr->name = strdup("elsewhere"); },
    };
    for (std::size_t i = 0; i < std::size(changes); ++i) {
        const auto hints = hints_for(FI_MSG);
        changes[i](*hints);
        EXPECT_EQ(ask(hints.get()), nullptr) << "change " << i;
    }
}

TEST(FiInfo, a_hint_that_can_be_met_is_repeated_in_the_answer) {
    const auto hints = hints_for(FI_MSG);
    hints->tx_attr->op_flags = FI_MATCH_COMPLETE;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->inject_size = 64;
    hints->rx_attr->op_flags = FI_MULTI_RECV;
    hints->domain_attr->threading = FI_THREAD_ENDPOINT;
    hints->domain_attr->av_type = FI_AV_MAP;
    hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
    hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
    hints->domain_attr->cq_data_size = 8;
    hints->ep_attr->mem_tag_format = 0xff00;
    const auto info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->tx_attr->op_flags, std::uint64_t{FI_MATCH_COMPLETE});
    EXPECT_EQ(info->rx_attr->op_flags, std::uint64_t{FI_MULTI_RECV});
    EXPECT_EQ(info->domain_attr->threading, FI_THREAD_ENDPOINT);
    EXPECT_EQ(info->domain_attr->av_type, FI_AV_MAP);
    EXPECT_EQ(info->domain_attr->control_progress, FI_PROGRESS_AUTO);
    EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
    EXPECT_EQ(info->domain_attr->mr_mode, 0);
    EXPECT_EQ(info->ep_attr->mem_tag_format, 0xff00U);
}

TEST(FiInfo, atomics_are_ordered_among_each_other) {
    constexpr std::uint64_t kOrders = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                      FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    const auto hints = hints_for(FI_MSG | FI_ATOMIC);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = kOrders;
    hints->ep_attr->max_order_raw_size = 4096;
    const auto info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->tx_attr->msg_order, kOrders);
    EXPECT_EQ(info->ep_attr->max_order_raw_size, 4096U);
    hints->ep_attr->max_order_raw_size = 4097;
    EXPECT_EQ(ask(hints.get()), nullptr);
    EXPECT_EQ(ask(hints_for(FI_MSG).get())->tx_attr->msg_order, std::uint64_t{FI_ORDER_SAS});
}

TEST(FiInfo, one_sided_operations_come_to_who_asks_for_them) {
    constexpr std::uint64_t kWays = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    const auto rma = ask(hints_for(FI_RMA).get());
    ASSERT_NE(rma, nullptr);
    EXPECT_EQ(rma->caps & (FI_RMA | kWays), FI_RMA | kWays);
    EXPECT_EQ(rma->caps & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_RMA_EVENT), 0U);
    EXPECT_EQ(rma->tx_attr->caps & kWays, std::uint64_t{FI_READ | FI_WRITE});
    EXPECT_EQ(rma->rx_attr->caps & kWays, std::uint64_t{FI_REMOTE_READ | FI_REMOTE_WRITE});
    EXPECT_EQ(rma->tx_attr->rma_iov_limit, 16U);
    const auto target = ask(hints_for(FI_RMA | FI_REMOTE_READ | FI_RMA_EVENT).get());
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(target->caps & kWays, std::uint64_t{FI_REMOTE_READ});
    EXPECT_NE(target->caps & FI_RMA_EVENT, 0U);
    const auto tagged = ask(hints_for(FI_TAGGED).get());
    ASSERT_NE(tagged, nullptr);
    EXPECT_EQ(tagged->caps & (FI_RMA | kWays), 0U);
    EXPECT_EQ(tagged->tx_attr->rma_iov_limit, 0U);
}

TEST(FiInfo, no_mode_of_memory_is_needed_and_the_old_values_are_kept) {
    constexpr int kBasic = 1, kScalable = 2;
    constexpr int kModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    for (const std::uint64_t caps : {std::uint64_t{FI_RMA}, std::uint64_t{FI_TAGGED}}) {
        for (const auto& [asked, expected] :
             std::initializer_list<std::pair<int, int>>{{0, 0},
                                                        {FI_MR_PROV_KEY | FI_MR_LOCAL, 0},
                                                        {kModes, 0},
                                                        {~3, 0},
                                                        {kBasic, kBasic},
                                                        {kScalable, kScalable}}) {
            const auto hints = hints_for(caps);
            hints->domain_attr->mr_mode = asked;
            const auto info = ask(hints.get());
            ASSERT_NE(info, nullptr);
            EXPECT_EQ(info->domain_attr->mr_mode, expected);
        }
    }
}

TEST(FiInfo, an_answer_serves_as_hints) {
    const auto info = ask(hints_for(kAll).get());
    ASSERT_NE(info, nullptr);
    EXPECT_NE(ask(info.get()), nullptr);
}

TEST(FiInfo, buffered_receives_come_only_to_who_asks_for_them) {
    const auto hints = hints_for(FI_MSG);
    hints->mode = ~std::uint64_t{0};
    const auto any = ask(hints.get());
    ASSERT_NE(any, nullptr);
    EXPECT_EQ(any->mode, 0U);
    hints->mode = kBufferedRecv | FI_CONTEXT;
    const auto buffered = ask(hints.get());
    ASSERT_NE(buffered, nullptr);
    EXPECT_EQ(buffered->mode, kBufferedRecv);
}

TEST(FiInfo, a_program_of_a_later_libfabric_is_refused_by_the_core) {
    fi_info* found = nullptr;
    // The library may be later than the headers.
    EXPECT_EQ(fi_getinfo(fi_version() + 1, nullptr, nullptr, 0, hints_for(FI_MSG).get(), &found),
              -FI_ENOSYS);
    EXPECT_EQ(fi_getinfo(FI_VERSION(1, 5), nullptr, nullptr, 0, hints_for(FI_MSG).get(), &found),
              0);
    fi_freeinfo(found);
}

/// FI_RESCAN of headers from 2.2 on: a program that has them may ask for any version.
TEST(FiInfo, a_program_may_want_providers_looked_for_again) {
    constexpr std::uint64_t kRescan = std::uint64_t{1} << 35;
    EXPECT_NE(ask(hints_for(FI_MSG).get(), nullptr, kRescan), nullptr);
}

TEST(FiInfo, a_node_is_a_host_or_the_text_of_a_name) {
    const auto hints = hints_for(FI_MSG);
    EXPECT_EQ(ask(hints.get(), "tagwire://00"), nullptr);
    const auto info = ask(hints.get(), "localhost");
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->dest_addrlen, std::size_t{FI_NAME_MAX});
    EXPECT_NE(info->dest_addr, nullptr);
}

TEST(FiInfo, the_type_of_vectors_is_the_programs_choice) {
    const auto hints = hints_for(FI_MSG);
    const auto any = ask(hints.get());
    ASSERT_NE(any, nullptr);
    EXPECT_EQ(any->domain_attr->av_type, FI_AV_UNSPEC);
    for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
        hints->domain_attr->av_type = type;
        const auto info = ask(hints.get());
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(info->domain_attr->av_type, type);
    }
}

TEST(FiInfo, addresses_of_another_length_are_refused) {
    const auto hints = hints_for(FI_MSG);
    for (void** address : {&hints->src_addr, &hints->dest_addr}) {
        std::size_t& length =
            address == &hints->src_addr ? hints->src_addrlen : hints->dest_addrlen;
        *address = std::calloc(1, 16);
        length = 16;
        EXPECT_EQ(ask(hints.get()), nullptr);
        std::free(*address);
        *address = nullptr;
        length = 0;
    }
}

class FiNames : public Pair {};

TEST_F(FiNames, the_text_of_a_name_is_a_node) {
    open();
    char text[256];
    std::size_t length = sizeof text;
    ASSERT_NE(fi_av_straddr(av.get(), b.name.data(), text, &length), nullptr);
    EXPECT_EQ(length, std::strlen(text) + 1);
    const auto found = ask(hints_for(FI_MSG).get(), text);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->dest_addrlen, b.name.size());
    EXPECT_EQ(std::memcmp(found->dest_addr, b.name.data(), b.name.size()), 0);
    fi_addr_t again = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insertsvc(av.get(), text, nullptr, &again, 0, nullptr), 1);
    EXPECT_NE(again, FI_ADDR_NOTAVAIL);
}

TEST_F(FiNames, a_name_wants_room_and_says_how_much) {
    open();
    std::size_t length = 0;
    EXPECT_EQ(fi_getname(&a.ep->fid, nullptr, &length), -FI_ETOOSMALL);
    EXPECT_EQ(length, a.name.size());
}

TEST_F(FiNames, what_is_no_name_is_not_inserted) {
    open();
    std::array<Name, 3> names = {a.name, Name{}, b.name};
    fi_addr_t addrs[3] = {};
    int errors[3] = {-1, -1, -1};
    ASSERT_EQ(fi_av_insert(av.get(), names.data(), 3, addrs, FI_SYNC_ERR, errors), 2);
    EXPECT_EQ(addrs[1], FI_ADDR_NOTAVAIL);
    EXPECT_EQ(errors[0], 0);
    EXPECT_EQ(errors[1], FI_EINVAL);
    Name found{};
    std::size_t length = found.size();
    ASSERT_EQ(fi_av_lookup(av.get(), addrs[2], found.data(), &length), 0);
    EXPECT_EQ(found, b.name);
    EXPECT_EQ(fi_av_remove(av.get(), &addrs[2], 1, 0), 0);
    EXPECT_EQ(fi_av_lookup(av.get(), addrs[2], found.data(), &length), -FI_EINVAL);
}

}  // namespace

}  // namespace tagwire::fi_test
