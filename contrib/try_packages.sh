#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# try_packages.sh FOLDER: installs the packages that lie there on this machine, uses each, and
# removes them again. For a machine that may be thrown away: check_packages.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf -- '-- %s\n' "$*"; }
fail() { echo "FAILED: $*"; exit 1; }
install() { DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@"; }

apt-get -qq update
say "tagwire-vhca alone"
install "$folder"/tagwire-vhca_*.deb ibverbs-utils ibverbs-providers
dpkg -s libtagwire0 >/dev/null 2>&1 && fail "tagwire-vhca brings libtagwire0"
tagwire-vhca --version
tagwire-vhca info >/dev/null
for link_layer in infiniband ethernet; do
    tagwire-vhca run --link-layer "$link_layer" -- ibv_devinfo >"$work/info"
    grep -qi "link_layer:.*$link_layer" "$work/info" || fail "ibv_devinfo: no $link_layer port"
done
tagwire-vhca run --driver mlx5 -- ibv_devinfo >"$work/info"
grep -q 'hca_id:.*vhca0' "$work/info" || fail "ibv_devinfo over the system's libmlx5: no vhca0"
for page in tagwire-vhca tagwire-vhca-run; do
    [[ -s /usr/share/man/man1/$page.1.gz ]] || fail "no manual page $page(1)"
done
apt-get -qq -y purge tagwire-vhca

say "tagwire and libtagwire0"
install "$folder"/libtagwire0_*.deb "$folder"/tagwire_*.deb
tagwire --version
tagwire info >"$work/info"
grep -q 'sm' "$work/info" || fail "tagwire info does not name shared memory"
tagwire perf tag_lat --size 8,64k --iters 2000 --validate
tagwire soak --seconds 2
tagwire explain --tl sm --size 8,1m >/dev/null
tagwire report "$work/page.html" 2>"$work/error" && fail "tagwire report works without gnuplot"
grep -q 'gnuplot-nox' "$work/error" || fail "tagwire report does not name the package"
install gnuplot-nox
tagwire explain --tl sm --plot "$work/cost.svg" >/dev/null
grep -q '<svg' "$work/cost.svg" || fail "tagwire explain --plot has drawn nothing"
tagwire report "$work/page.html" --quick
grep -q '<section id="latency">' "$work/page.html" || fail "tagwire report has no latencies"
for page in tagwire tagwire-info tagwire-perf tagwire-tune tagwire-explain tagwire-report \
    tagwire-soak tagwire-run tagwire-completion tagwire-demo; do
    [[ -s /usr/share/man/man1/$page.1.gz ]] || fail "no manual page $page(1)"
done
[[ -s /usr/share/man/man7/tagwire.7.gz ]] || fail "no manual page tagwire(7)"

tagwire vhca info 2>"$work/error" && fail "tagwire vhca info works without tagwire-vhca"
grep -q 'package tagwire-vhca' "$work/error" || fail "tagwire vhca does not name the package"

say "the virtual HCA"
install "$folder"/tagwire-vhca_*.deb
tagwire vhca run -- ibv_devinfo | grep -q vhca0 || fail "ibv_devinfo does not see the virtual HCA"
tagwire perf tag_lat --tl rc --size 8 --iters 500 --validate

say "libtagwire-dev"
install "$folder"/libtagwire-dev_*.deb g++ pkg-config
[[ -s /usr/share/man/man3/tw_tag_send.3.gz ]] || fail "no manual page tw_tag_send(3)"
[[ -s /usr/share/doc/libtagwire-dev/html/index.html ]] || fail "no guide in HTML"
[[ -s /usr/share/doc/libtagwire-dev/examples/hello.c ]] || fail "no examples"
read -ra flags < <(pkg-config --cflags --libs tagwire)
for example in examples/*.c examples/*.cc; do
    compile=(gcc -std=c11 -D_GNU_SOURCE)
    [[ $example == *.cc ]] && compile=(g++ -std=c++20)
    "${compile[@]}" -O2 "$example" -o "$work/example" "${flags[@]}"
    say "run $(basename "$example")"
    timeout 60 "$work/example"
done

if compgen -G "$folder/libtagwire-fi_*.deb" >/dev/null; then
    say "libtagwire-fi"
    install "$folder"/libtagwire-fi_*.deb libfabric-bin
    [[ -s /usr/share/man/man7/fi_tagwire.7.gz ]] || fail "no manual page fi_tagwire(7)"
    fi_info -p tagwire | grep -q 'provider: tagwire' || fail "fi_info does not list the provider"
    fi_pingpong -p tagwire -e rdm -m tagged -I 100 -S all >/dev/null &
    server=$!
    for ((attempt = 0; attempt < 50; ++attempt)); do
        sleep 0.1
        fi_pingpong -p tagwire -e rdm -m tagged -I 100 -S all 127.0.0.1 2>/dev/null && break
    done
    ((attempt < 50)) || { kill "$server"; fail "fi_pingpong did not run over tagwire"; }
    wait "$server"
fi

say "removal"
mapfile -t names < <(for package in "$folder"/*.deb; do dpkg-deb -f "$package" Package; done)
apt-get -qq -y purge "${names[@]}"
left=$(find /usr -path '*tagwire*' -not -path "$folder/*" | head)
[[ -z $left ]] || fail "left behind: $left"
echo "all packages installed, used and removed"
