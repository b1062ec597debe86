// SPDX-License-Identifier: BSD-3-Clause
// fi_getinfo: a hint is honoured, or there is no answer.
#include <array>
#include <cstring>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

Info plain() {
    return hints_of({});
}

void plain_hints_are_answered() {
    const Info answer = ask(*plain());
    holds("there is an answer to FI_MSG and FI_TAGGED on FI_EP_RDM", answer != nullptr);
    holds("the answer has the capabilities",
          (answer->caps & (FI_MSG | FI_TAGGED)) == (FI_MSG | FI_TAGGED));
    same("type", static_cast<int>(FI_EP_RDM), static_cast<int>(answer->ep_attr->type));
    holds("iov_limit is at least 1",
          answer->tx_attr->iov_limit >= 1 && answer->rx_attr->iov_limit >= 1);
    holds("there is a source address", answer->src_addr != nullptr);
    holds("it asks for no mode that was not offered",
          (answer->mode & ~(FI_CONTEXT | FI_CONTEXT2)) == 0);
}

void capabilities_are_honoured() {
    constexpr std::array<std::uint64_t, 14> kCaps{
        FI_MSG,        FI_TAGGED,        FI_RMA,       FI_ATOMIC,      FI_COLLECTIVE,
        FI_MULTI_RECV, FI_DIRECTED_RECV, FI_SOURCE,    FI_FENCE,       FI_LOCAL_COMM,
        FI_TRIGGER,    FI_REMOTE_COMM,   FI_RMA_EVENT, FI_VARIABLE_MSG};
    for (const auto cap : kCaps) {
        const Info hints = plain();
        hints->caps |= cap;
        const Info answer = ask(*hints);
        holds("a capability in the hints is in each answer",
              !answer || (answer->caps & hints->caps) == hints->caps);
    }
}

void types_are_honoured() {
    for (const auto type : {FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM, FI_EP_SOCK_STREAM}) {
        const Info hints = plain();
        hints->ep_attr->type = type;
        const Info answer = ask(*hints);
        // Headers from 2.0 on have FI_EP_UNSPEC for types that were dropped.
        holds("an answer has the type of the hints",
              !answer || type == FI_EP_UNSPEC || answer->ep_attr->type == type);
    }
}

void limits_are_honoured() {
    const std::array<void (*)(fi_info&), 8> too_much{
        [](fi_info& i) { i.tx_attr->inject_size = SIZE_MAX; },
        [](fi_info& i) { i.tx_attr->iov_limit = 100000; },
        [](fi_info& i) { i.rx_attr->iov_limit = 100000; },
        [](fi_info& i) { i.domain_attr->cq_data_size = 64; },
        [](fi_info& i) { i.ep_attr->max_msg_size = SIZE_MAX; },
        [](fi_info& i) { i.tx_attr->size = SIZE_MAX / 4; },
        [](fi_info& i) { i.ep_attr->tx_ctx_cnt = 1000000; },
        [](fi_info& i) { i.ep_attr->rx_ctx_cnt = 1000000; },
    };
    for (const auto change : too_much) {
        const Info hints = plain();
        change(*hints);
        const Info answer = ask(*hints);
        if (!answer)
            continue;
        holds("a limit in an answer is at least that of the hints",
              answer->tx_attr->inject_size >= hints->tx_attr->inject_size &&
                  answer->tx_attr->iov_limit >= hints->tx_attr->iov_limit &&
                  answer->rx_attr->iov_limit >= hints->rx_attr->iov_limit &&
                  answer->domain_attr->cq_data_size >= hints->domain_attr->cq_data_size &&
                  answer->ep_attr->max_msg_size >= hints->ep_attr->max_msg_size &&
                  answer->tx_attr->size >= hints->tx_attr->size);
    }
}

void threading_is_honoured() {
    for (const auto threading :
         {FI_THREAD_SAFE, FI_THREAD_DOMAIN, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION}) {
        const Info hints = plain();
        hints->domain_attr->threading = threading;
        const Info answer = ask(*hints);
        holds("FI_THREAD_SAFE is answered by no weaker model",
              !answer || threading != FI_THREAD_SAFE ||
                  answer->domain_attr->threading == FI_THREAD_SAFE);
    }
}

void vectors_are_honoured() {
    for (const auto type : {FI_AV_MAP, FI_AV_TABLE}) {
        const Info hints = plain();
        hints->domain_attr->av_type = type;
        const Info answer = ask(*hints);
        holds("the answer has the av_type of the hints",
              !answer || answer->domain_attr->av_type == type ||
                  answer->domain_attr->av_type == FI_AV_UNSPEC);
    }
}

void progress_is_honoured() {
    for (const auto progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
        const Info hints = plain();
        hints->domain_attr->data_progress = progress;
        const Info answer = ask(*hints);
        holds("FI_PROGRESS_AUTO is answered by itself only",
              !answer || progress == FI_PROGRESS_MANUAL ||
                  answer->domain_attr->data_progress == FI_PROGRESS_AUTO);
    }
}

void order_is_honoured() {
    for (const std::uint64_t order :
         {FI_ORDER_SAS, FI_ORDER_SAW, FI_ORDER_RAW, FI_ORDER_WAW, FI_ORDER_RAS}) {
        const Info hints = plain();
        hints->tx_attr->msg_order = order;
        hints->rx_attr->msg_order = order;
        const Info answer = ask(*hints);
        holds("the answer has the message order of the hints",
              !answer || ((answer->tx_attr->msg_order & order) == order &&
                          (answer->rx_attr->msg_order & order) == order));
    }
}

void levels_are_honoured() {
    for (const std::uint64_t level :
         {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
        const Info hints = plain();
        hints->tx_attr->op_flags = level;
        const Info answer = ask(*hints);
        holds("the answer has the op_flags of the hints",
              !answer || (answer->tx_attr->op_flags & level) == level);
    }
}

void strange_names_have_no_answer() {
    const Info domain = plain();
    domain->domain_attr->name = strdup("no such domain");
    holds("no answer for an unknown domain", ask(*domain) == nullptr);
    const Info fabric = plain();
    fabric->fabric_attr->name = strdup("no such fabric");
    holds("no answer for an unknown fabric", ask(*fabric) == nullptr);
}

void tag_format_is_told() {
    const Info answer = ask(*plain());
    holds("there is an answer", answer != nullptr);
    holds("mem_tag_format has bits", answer->ep_attr->mem_tag_format != 0);
}

constexpr const char* kInfo = "fi_getinfo";
constexpr std::array kInfoCases{
    Case{"info_plain", kInfo, "", "fi_getinfo DESCRIPTION", plain_hints_are_answered},
    Case{"info_caps", kInfo, "", "fi_getinfo CAPABILITIES", capabilities_are_honoured},
    Case{"info_types", kInfo, "", "fi_endpoint type", types_are_honoured},
    Case{"info_limits", kInfo, "", "fi_getinfo hints", limits_are_honoured},
    Case{"info_threading", kInfo, "", "fi_domain threading", threading_is_honoured},
    Case{"info_vectors", kInfo, "", "fi_domain av_type", vectors_are_honoured},
    Case{"info_progress", kInfo, "", "fi_domain data_progress", progress_is_honoured},
    Case{"info_order", kInfo, "", "fi_endpoint msg_order", order_is_honoured},
    Case{"info_levels", kInfo, "", "fi_endpoint op_flags", levels_are_honoured},
    Case{"info_names", kInfo, "", "fi_domain name, fi_fabric name", strange_names_have_no_answer},
    Case{"info_tag_format", kInfo, "", "fi_endpoint mem_tag_format", tag_format_is_told},
};

}  // namespace

std::span<const Case> info_cases() {
    return kInfoCases;
}

}  // namespace conformance
