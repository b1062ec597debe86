#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# replay.sh FOLDER: carries out the last stage of the Containerfile on this machine, with the
# package tagwire-vhca of FOLDER, then the commands of examples/ci. For a machine that may be thrown
# away, without docker: check_packages.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
folder=$1
cp "$folder"/tagwire-vhca_*.deb /tmp/

user=root
# The lines of the last stage; those that end with a backslash go on in the next.
while read -r word rest; do
    case $word in
        RUN)
            printf -- '-- %s: %s\n' "$user" "$rest"
            if [[ $user == root ]]; then
                sh -c "$rest"
            else
                su "$user" -c "$rest"
            fi
            ;;
        USER) user=$rest ;;
        COPY | WORKDIR | CMD) ;;
        *) echo "FAILED: the Containerfile has a $word, which is not known here"; exit 1 ;;
    esac
done < <(sed -e '/^#/d' -e '/^$/d' -e ':more' -e '/\\$/{N;s/\\\n */ /;b more' -e '}' \
    Containerfile | tac | sed '/^FROM /,$d' | tac)

echo '-- examples/ci'
test_folder=$(su tester -c 'mktemp -d')
cp ../../examples/ci/* "$test_folder"
su tester -c "'$test_folder'/run_test.sh"
rm -rf "$test_folder"
