// SPDX-License-Identifier: BSD-3-Clause
// Cost over size as a picture. gnuplot draws it: it gets its script and the data over a pipe.
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "tools/explain.hpp"
#include "tools/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr int kWidth = 900;
constexpr int kHeight = 520;  // of each transport's picture
constexpr int kNotFound = 127;
// Told apart by those who see few colours, too.
constexpr const char* kColours[] = {"#0072b2", "#56b4e9", "#009e73",
                                    "#d55e00", "#cc79a7", "#e69f00"};

/// As gnuplot reads it between single quotes.
std::string quoted(const std::string& name) {
    std::string out = "'";
    for (const char c : name) {
        out += c == '\'' ? "''" : std::string(1, c);
    }
    return out + "'";
}

bool is_possible(const ExplainedRail& rail, unsigned protocol) {
    return std::ranges::any_of(rail.curve, [protocol](const tw_explanation_t& at) {
        return at.protocols[protocol].obstacle == nullptr;
    });
}

std::string axes() {
    std::string tics;
    for (std::size_t size = 1; size <= std::size_t{64} << 20; size *= 8) {
        tics += text("%s'%s' %zu", tics.empty() ? "" : ", ", size_name(size).c_str(), size);
    }
    return text(
        "set logscale xy\nset grid xtics ytics lc rgb '#dddddd'\nset border 3\n"
        "set xtics nomirror (%s)\nset xlabel 'bytes'\nset ytics nomirror ('1 ns' 1, '10 ns' 10, "
        "'100 ns' 100, '1 us' 1e3, '10 us' 1e4, '100 us' 1e5, '1 ms' 1e6, '10 ms' 1e7, '100 ms' "
        "1e8, '1 s' 1e9)\nset key top left reverse Left samplen 2\n"
        "set xrange [1:%zu]\n",
        tics.c_str(), std::size_t{64} << 20);
}

std::string data_of(const ExplainedRail& rail, unsigned protocol, std::size_t number) {
    std::string block = text("$r%zu_%u << EOD\n", number, protocol);
    for (const tw_explanation_t& at : rail.curve) {
        if (at.protocols[protocol].obstacle == nullptr) {
            block += text("%zu %.3f\n", at.length, at.protocols[protocol].ns);
        }
    }
    return block + "EOD\n";
}

std::string chosen_of(const ExplainedRail& rail, std::size_t number) {
    std::string block = text("$r%zu_chosen << EOD\n", number);
    for (const tw_explanation_t& at : rail.curve) {
        block += text("%zu %.3f\n", at.length, at.protocols[at.chosen].ns);
    }
    return block + "EOD\n";
}

std::string plot_of(const ExplainedRail& rail, std::size_t number) {
    const tw_explanation_t& first = rail.curve.front();
    std::string script = chosen_of(rail, number);
    std::string curves =
        text("$r%zu_chosen with lines lw 7 lc rgb '#e4e4e4' title 'chosen'", number);
    for (unsigned i = 0; i < first.protocol_count; ++i) {
        if (is_possible(rail, i)) {
            script += data_of(rail, i, number);
            curves += text(", $r%zu_%u with lines lw 2 lc rgb '%s' title '%s' noenhanced", number,
                           i, kColours[i % std::size(kColours)], first.protocols[i].name);
        }
    }
    script += "unset arrow\n";
    if (first.rndv_from != SIZE_MAX) {
        script += text(
            "set arrow from first %zu, graph 0 to first %zu, graph 1 nohead dt 2 lc rgb '#555555' "
            "back\n",
            first.rndv_from, first.rndv_from);
    }
    const std::string threshold =
        first.rndv_from == SIZE_MAX ? "" : text(", rendezvous from %zu bytes", first.rndv_from);
    script += text(
        "set title %s noenhanced\n",
        quoted(rail.name + threshold + (first.source[0] == '\0' ? " (modelled)" : " (measured)"))
            .c_str());
    return script + "plot " + curves + "\n";
}

std::string script_of(const std::string& file, const std::vector<ExplainedRail>& rails) {
    std::string script =
        text("set terminal svg size %d,%zu font 'sans-serif,13' background rgb 'white'\n", kWidth,
             static_cast<std::size_t>(kHeight) * rails.size());
    script += "set output " + quoted(file) + "\n" + axes();
    script += text("set multiplot layout %zu,1\n", rails.size());
    for (std::size_t i = 0; i < rails.size(); ++i) {
        script += plot_of(rails[i], i);
    }
    return script + "unset multiplot\nset output\n";
}

}  // namespace

void plot_explanations(const std::string& file, const std::vector<ExplainedRail>& rails) {
    const std::string script = script_of(file, rails);
    // gnuplot that is not there, or gives up, reads nothing.
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    std::FILE* const pipe = popen("exec gnuplot", "w");
    if (pipe == nullptr) {
        throw Failure(text("--plot: cannot start gnuplot: %s", std::strerror(errno)));
    }
    std::fwrite(script.data(), 1, script.size(), pipe);
    const int status = pclose(pipe);
    std::signal(SIGPIPE, before);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
        throw Failure("--plot: gnuplot is not installed (Debian and Ubuntu: gnuplot-nox)");
    }
    if (status != 0) {
        throw Failure(text("--plot: gnuplot could not draw %s", file.c_str()));
    }
}

}  // namespace tagwire::tools
