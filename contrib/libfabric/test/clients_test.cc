// SPDX-License-Identifier: BSD-3-Clause
// The hints that known programs give fi_getinfo(), each with the answer that the provider has for
// them now. The sources are named so that a later release can be compared.
#include <algorithm>
#include <cctype>

#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kComm = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr std::uint64_t kRma = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr int kMrBasic = 1 << 0;  // FI_MR_BASIC, which only gives a warning from 2.0 on
constexpr int kMrBasicModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

enum class Answer {
    kServed,
    kNone  ///< Until the provider has what the program requires.
};

struct Client {
    const char* name;
    const char* source;
    std::uint32_t version;
    std::uint64_t caps;
    void (*ask_for)(fi_info& hints);
    Answer answer;
};

void same_order(fi_info& hints, std::uint64_t order) {
    hints.tx_attr->msg_order = order;
    hints.rx_attr->msg_order = order;
}

/// MPICH's, of both tries.
void ask_as_mpich(fi_info& hints) {
    hints.mode = FI_CONTEXT | FI_ASYNC_IOV | FI_RX_CQ_DATA;
    hints.domain_attr->threading = FI_THREAD_DOMAIN;
    hints.domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints.domain_attr->av_type = FI_AV_TABLE;
    hints.tx_attr->op_flags = FI_COMPLETION;
    hints.rx_attr->op_flags = FI_COMPLETION;
}

const Client kClients[] = {
    {"Open MPI, mtl ofi", "ompi/mca/mtl/ofi/mtl_ofi_component.c", FI_VERSION(1, 9),
     FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         same_order(hints, FI_ORDER_SAS);
         hints.tx_attr->op_flags = FI_COMPLETION;
         hints.rx_attr->op_flags = FI_COMPLETION;
         hints.domain_attr->threading = FI_THREAD_DOMAIN;
         hints.domain_attr->cq_data_size = sizeof(int);
         hints.domain_attr->av_type = FI_AV_MAP;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
     },
     Answer::kServed},
    {"Open MPI, mtl ofi, of several threads", "ompi/mca/mtl/ofi/mtl_ofi_component.c",
     FI_VERSION(1, 5), FI_TAGGED | FI_DIRECTED_RECV | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         same_order(hints, FI_ORDER_SAS);
         hints.domain_attr->threading = FI_THREAD_SAFE;
         hints.domain_attr->cq_data_size = sizeof(int);
         hints.domain_attr->av_type = FI_AV_MAP;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
     },
     Answer::kServed},
    {"Open MPI, btl ofi, two-sided", "opal/mca/btl/ofi/btl_ofi_component.c", FI_VERSION(1, 9),
     FI_MSG,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
         hints.domain_attr->threading = FI_THREAD_DOMAIN;
     },
     Answer::kServed},
    {"Open MPI, btl ofi, one-sided", "opal/mca/btl/ofi/btl_ofi_component.c", FI_VERSION(1, 9),
     FI_RMA | FI_ATOMIC,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
         hints.domain_attr->threading = FI_THREAD_DOMAIN;
     },
     Answer::kServed},
    {"MPICH ch4:ofi, all of it", "src/mpid/ch4/netmod/ofi/init_settings.c", FI_VERSION(1, 17),
     FI_MSG | FI_MULTI_RECV | FI_TAGGED | FI_DIRECTED_RECV | FI_ATOMIC | kRma,
     [](fi_info& hints) {
         ask_as_mpich(hints);
         same_order(hints,
                    FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW);
         hints.domain_attr->cq_data_size = sizeof(int);
     },
     Answer::kNone},
    {"MPICH ch4:ofi, RMA by messages", "src/mpid/ch4/netmod/ofi/init_settings.c", FI_VERSION(1, 17),
     FI_MSG | FI_MULTI_RECV | FI_TAGGED | FI_DIRECTED_RECV,
     [](fi_info& hints) {
         ask_as_mpich(hints);
         same_order(hints, FI_ORDER_SAS);
         hints.domain_attr->cq_data_size = sizeof(int);
     },
     Answer::kServed},
    {"MPICH ch4:ofi, the least", "src/mpid/ch4/netmod/ofi/ofi_capability_sets.h", FI_VERSION(1, 17),
     FI_MSG | FI_MULTI_RECV, ask_as_mpich, Answer::kServed},
    {"aws-ofi-nccl, sends and receives, host memory", "src/nccl_ofi_sendrecv.cpp",
     FI_VERSION(1, 17), FI_TAGGED | FI_MSG | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         same_order(hints, FI_ORDER_SAS);
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
         hints.domain_attr->mr_key_size = 8;
         hints.domain_attr->threading = FI_THREAD_SAFE;
     },
     Answer::kServed},
    {"aws-ofi-nccl, sends and receives, GPU memory", "src/nccl_ofi_sendrecv.cpp", FI_VERSION(1, 17),
     FI_TAGGED | FI_MSG | FI_HMEM | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         same_order(hints, FI_ORDER_SAS);
         hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_HMEM | kMrBasicModes;
     },
     Answer::kNone},
    {"aws-ofi-nccl, RMA", "src/nccl_ofi_rdma.cpp", FI_VERSION(1, 17),
     FI_MSG | FI_RMA | FI_HMEM | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT | FI_CONTEXT2;
         hints.domain_attr->cq_data_size = 4;
         hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_HMEM | kMrBasicModes;
     },
     Answer::kNone},
    {"oneCCL, atl ofi", "src/atl/ofi/atl_ofi.cpp", FI_VERSION(1, 14), FI_TAGGED | FI_DIRECTED_RECV,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         same_order(hints, FI_ORDER_SAS);
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->control_progress = FI_PROGRESS_MANUAL;
         hints.domain_attr->data_progress = FI_PROGRESS_MANUAL;
         hints.tx_attr->op_flags = FI_COMPLETION;
     },
     Answer::kServed},
    {"BytePS ps-lite, fabric van", "src/fabric_van.h", FI_VERSION(1, 8), FI_TAGGED | FI_MSG,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         hints.domain_attr->av_type = FI_AV_TABLE;
         hints.domain_attr->control_progress = FI_PROGRESS_AUTO;
         hints.domain_attr->data_progress = FI_PROGRESS_AUTO;
         hints.domain_attr->mr_mode = FI_MR_LOCAL;
         same_order(hints, FI_ORDER_SAS);
     },
     Answer::kServed},
    {"GASNet, ofi-conduit", "ofi-conduit/gasnet_ofi.c", FI_VERSION(1, 5),
     FI_RMA | FI_MSG | FI_MULTI_RECV,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
         hints.rx_attr->op_flags = FI_MULTI_RECV | FI_COMPLETION;
         hints.domain_attr->threading = FI_THREAD_SAFE;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->av_type = FI_AV_TABLE;
     },
     Answer::kServed},
    {"LCI", "src/network/ofi/backend_ofi.cpp", FI_VERSION(1, 6), FI_RMA | FI_MSG,
     [](fi_info& hints) {
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
         hints.domain_attr->threading = FI_THREAD_SAFE;
     },
     Answer::kServed},
    {"NIXL, host memory", "src/utils/libfabric/libfabric_common.cpp", FI_VERSION(1, 17),
     FI_MSG | FI_RMA | kComm,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         hints.domain_attr->mr_mode = FI_MR_LOCAL | kMrBasicModes;
         hints.domain_attr->mr_key_size = 2;
         hints.domain_attr->threading = FI_THREAD_SAFE;
     },
     Answer::kServed},
    {"Mercury, na ofi", "src/na/na_ofi.c", FI_VERSION(1, 17),
     FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV | kRma,
     [](fi_info& hints) {
         hints.mode = FI_CONTEXT;
         hints.domain_attr->threading = FI_THREAD_SAFE;
         hints.domain_attr->av_type = FI_AV_MAP;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->mr_mode = kMrBasicModes;
     },
     Answer::kServed},
    {"Chapel, comm=ofi", "runtime/src/comm/ofi/comm-ofi.c", FI_VERSION(1, 9),
     FI_MSG | FI_MULTI_RECV | kRma,
     [](fi_info& hints) {
         hints.mode = ~std::uint64_t{0};
         hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
         hints.domain_attr->threading = FI_THREAD_DOMAIN;
         hints.domain_attr->av_type = FI_AV_TABLE;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->mr_mode = FI_MR_ENDPOINT | kMrBasicModes;
     },
     Answer::kServed},
    {"Charm++", "src/arch/ofi/machine.C", FI_VERSION(1, 0), FI_TAGGED | FI_RMA | FI_REMOTE_READ,
     [](fi_info& hints) {
         hints.mode = ~std::uint64_t{0};
         hints.domain_attr->mr_mode = kMrBasic;
         hints.domain_attr->threading = FI_THREAD_DOMAIN;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
     },
     Answer::kServed},
    {"Sandia OpenSHMEM", "src/transport_ofi.c", FI_VERSION(1, 5), FI_RMA | FI_ATOMIC,
     [](fi_info& hints) {
         hints.domain_attr->data_progress = FI_PROGRESS_AUTO;
         hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
         hints.domain_attr->threading = FI_THREAD_SAFE;
         hints.domain_attr->av_type = FI_AV_TABLE;
         hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
     },
     Answer::kServed},
    {"GPI-2", "src/devices/ofi", FI_VERSION(1, 5), FI_RMA | FI_ATOMIC | FI_MSG,
     [](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_SAFE; }, Answer::kServed},
    {"MSCCL++", "src/core/ofi.cc", FI_VERSION(1, 17), FI_RMA | FI_ATOMIC | FI_HMEM,
     [](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_HMEM | kMrBasicModes; },
     Answer::kNone},
    {"ROFI", "src/rofi.c", FI_VERSION(1, 9), FI_RMA | FI_ATOMIC | FI_COLLECTIVE | FI_MSG,
     [](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_SAFE; }, Answer::kNone},
};

class FiClients : public testing::TestWithParam<Client> {};

TEST_P(FiClients, are_answered_as_recorded) {
    const Client& client = GetParam();
    const auto hints = hints_for(client.caps);
    client.ask_for(*hints);
    // A program that is built here asks for what its headers have.
    const std::uint32_t built = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    const auto info = ask(hints.get(), nullptr, 0, nullptr, std::min(client.version, built));
    if (client.answer == Answer::kNone) {
        EXPECT_EQ(info, nullptr) << client.name << " (" << client.source << ")";
        return;
    }
    ASSERT_NE(info, nullptr) << client.name << " (" << client.source << ")";
    EXPECT_EQ(info->caps & client.caps, client.caps);
    EXPECT_EQ(info->mode & ~hints->mode, 0U) << "a mode that the program does not have";
    EXPECT_EQ(info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode, 0);
    EXPECT_EQ(info->tx_attr->msg_order & hints->tx_attr->msg_order, hints->tx_attr->msg_order);
    if (hints->domain_attr->data_progress != FI_PROGRESS_UNSPEC) {
        EXPECT_EQ(info->domain_attr->data_progress, hints->domain_attr->data_progress);
    }
    if (hints->domain_attr->av_type != FI_AV_UNSPEC) {
        EXPECT_EQ(info->domain_attr->av_type, hints->domain_attr->av_type);
    }
    if (hints->domain_attr->threading != FI_THREAD_UNSPEC) {
        EXPECT_EQ(info->domain_attr->threading, hints->domain_attr->threading);
    }
}

std::string name_of(const testing::TestParamInfo<Client>& client) {
    std::string name = client.param.name;
    for (char& one : name)
        if (std::isalnum(static_cast<unsigned char>(one)) == 0)
            one = '_';
    return name;
}

INSTANTIATE_TEST_SUITE_P(Known, FiClients, testing::ValuesIn(kClients), name_of);

}  // namespace

}  // namespace tagwire::fi_test
