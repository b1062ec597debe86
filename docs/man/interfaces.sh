#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# interfaces.sh FOLDER: makes of what Doxygen wrote there pages as they are in section 3: of
# headers, and links to these from what they declare. Values of enums and macros have no links.
set -eu
cd "$1"
rm -f -- [A-Z_]*.3 *md*_*.3 *dir_*.3
for page in *.3; do
    case $page in
        tw_bootstrap* | tagwire_bootstrap*)
            header=tagwire_bootstrap.h what='the processes of a job' ;;
        tw_*) header=tagwire.h what='messages between workers' ;;
        *) header=uct/api/uct.h what='operations of a transport' ;;
    esac
    target=$(sed -n 's/^\.so man3\///p' "$page")
    if [ -n "$target" ]; then
        [ ! -f "$target" ] && [ ! -f "$target.gz" ] || ln -sf "$target.gz" "$page.gz"
        rm "$page"
        continue
    fi
    # A name says what it is, and programs include one header.
    awk -v header="$header" -v what="$what" '
        after_name && NF && !/^\./ { if (!/\\-/) $0 = $0 " \\- " what; after_name = 0 }
        /^\.SH NAME/ { after_name = 1 }
        /#include </ { if (seen++) next; gsub(/<[^>]*>/, "<" header ">") }
        { if (/^\047/) $0 = "\\&" $0; print }' "$page" >"$page.new"
    mv "$page.new" "$page"
    gzip -9nf "$page"
done
find . -xtype l -delete
