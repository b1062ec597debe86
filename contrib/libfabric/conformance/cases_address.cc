// SPDX-License-Identifier: BSD-3-Clause
// Names and address vectors.
#include <array>
#include <cstring>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void use(Net& net, fi_addr_t to) {
    Bytes in(8);
    const Bytes out = pattern(8);
    net.trecv(1, in, 1, 1);
    net.post("fi_tsend",
             [&] { return fi_tsend(net.ep(0), out.data(), 8, nullptr, to, 1, net.context(2)); });
    net.received(1);
    net.sent(0);
    same_bytes("message", pattern(8), in);
}

void map_works() {
    Net net({.av = FI_AV_MAP});
    use(net, net.address(1));
}

void table_is_an_index() {
    Net net({.av = FI_AV_TABLE, .ends = 3});
    for (std::size_t i = 0; i < 3; ++i)
        same("fi_addr_t of a table", i, net.address(i));
    use(net, 1);
}

void batch_is_inserted() {
    Net net;
    const Bytes name = net.name_of(1);
    Bytes names;
    for (int i = 0; i < 3; ++i)
        names.insert(names.end(), name.begin(), name.end());
    std::array<fi_addr_t, 3> got{};
    same("addresses inserted", 3, fi_av_insert(net.av(), names.data(), 3, got.data(), 0, nullptr));
    use(net, got[2]);
}

void inserted_before_enable() {
    Net net({.enable = false});
    done("fi_enable", fi_enable(net.ep(0)));
    net.add_address(net.name_of(0));
    done("fi_enable", fi_enable(net.ep(1)));
    net.add_address(net.name_of(1));
    use(net, net.address(1));
}

void lookup_gives_the_name() {
    Net net;
    const Bytes name = net.name_of(1);
    Bytes got(name.size());
    std::size_t length = got.size();
    done("fi_av_lookup", fi_av_lookup(net.av(), net.address(1), got.data(), &length));
    same("length of the name", name.size(), length);
    same_bytes("name", name, got);
}

void lookup_of_a_short_buffer() {
    Net net;
    const Bytes name = net.name_of(1);
    Bytes got(4);
    std::size_t length = got.size();
    done("fi_av_lookup", fi_av_lookup(net.av(), net.address(1), got.data(), &length));
    same("length of the name", name.size(), length);
}

void removed() {
    Net net;
    fi_addr_t address = net.address(1);
    const Bytes name = net.name_of(1);
    done("fi_av_remove", fi_av_remove(net.av(), &address, 1, 0));
    same("addresses inserted", 1, fi_av_insert(net.av(), name.data(), 1, &address, 0, nullptr));
    use(net, address);
}

void straddr_is_text() {
    Net net;
    const Bytes name = net.name_of(1);
    std::array<char, 256> text{};
    std::size_t length = text.size();
    holds("fi_av_straddr returns the buffer",
          fi_av_straddr(net.av(), name.data(), text.data(), &length) == text.data());
    same("length with its end", std::strlen(text.data()) + 1, length);
    std::array<char, 4> little{'a', 'b', 'c', 'd'};
    std::size_t wanted = 2;
    fi_av_straddr(net.av(), name.data(), little.data(), &wanted);
    same("length that is needed", length, wanted);
    same("byte behind a short buffer", 'c', little[2]);
}

void name_too_small() {
    Net net;
    const Bytes name = net.name_of(0);
    std::size_t length = 0;
    same("fi_getname without room", -FI_ETOOSMALL, fi_getname(&net.ep(0)->fid, nullptr, &length));
    same("length that is needed", name.size(), length);
    std::array<std::uint8_t, 4> little{};
    length = 2;
    same("fi_getname with little room", -FI_ETOOSMALL,
         fi_getname(&net.ep(0)->fid, little.data(), &length));
    same("length that is needed", name.size(), length);
}

void names_differ() {
    Net net({.ends = 3});
    holds("endpoints have names of their own",
          net.name_of(0) != net.name_of(1) && net.name_of(1) != net.name_of(2));
}

constexpr const char* kVector = "address vectors";
constexpr std::array kAddressCases{
    Case{"av_map", kVector, "", "fi_av FI_AV_MAP", map_works},
    Case{"av_table", kVector, "", "fi_av FI_AV_TABLE", table_is_an_index},
    Case{"av_batch", kVector, "", "fi_av fi_av_insert", batch_is_inserted},
    Case{"av_before_enable", kVector, "", "fi_av fi_av_insert", inserted_before_enable},
    Case{"av_lookup", kVector, "", "fi_av fi_av_lookup", lookup_gives_the_name},
    Case{"av_lookup_short", kVector, "", "fi_av fi_av_lookup", lookup_of_a_short_buffer},
    Case{"av_remove", kVector, "", "fi_av fi_av_remove", removed},
    Case{"av_straddr", kVector, "", "fi_av fi_av_straddr", straddr_is_text},
    Case{"name_too_small", "names", "", "fi_cm fi_getname", name_too_small},
    Case{"names_differ", "names", "", "fi_cm fi_getname", names_differ},
};

}  // namespace

std::span<const Case> address_cases() {
    return kAddressCases;
}

}  // namespace conformance
