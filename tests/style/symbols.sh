#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The libraries export what include/dicomm.h declares, the shared one under its
# version node, and nothing else; and the shared one can be opened at run time,
# and closed.
libraries=${top_builddir:-.}/.libs
header=${srcdir:-.}/include/dicomm.h
node=DICOMM_1.0
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0
seen=0

sed -nE 's/^[a-z].*\b(dicomm_[a-z_]+)\(.*/\1/p' "$header" | sort >"$work/declared"
if [ "$(wc -l <"$work/declared")" -lt 40 ]; then
	echo "hardly a declaration found in $header; is this check blind?"
	exit 1
fi

compare() # library, names that it should have, names that it has
{
	seen=$((seen + 1))
	if ! diff -u "$2" "$3"; then
		echo "$1: -: declared, not exported; +: exported, not declared"
		bad=1
	fi
}

if [ -e "$libraries/libdicomm.so" ]; then
	sed "s/\$/@@$node/" "$work/declared" >"$work/wanted"
	${NM:-nm} -D --defined-only --with-symbol-versions \
		"$libraries/libdicomm.so" |
		awk '$2 != "A" { print $3 }' | sort >"$work/shared"
	compare libdicomm.so "$work/wanted" "$work/shared"
	# Python, and plugins, open it when the room for such is spent.
	if ${READELF:-readelf} -d "$libraries/libdicomm.so" |
		grep STATIC_TLS; then
		echo "libdicomm.so: dlopen() may find no room for its variables" \
			"of threads: one has the model initial-exec"
		bad=1
	fi
	if ! ${READELF:-readelf} -d "$libraries/libdicomm.so" |
		grep -q NODELETE; then
		echo "libdicomm.so: dlclose() takes the code of its threads away"
		bad=1
	fi
fi
if [ -e "$libraries/libdicomm.a" ]; then
	${NM:-nm} -g --defined-only "$libraries/libdicomm.a" |
		awk 'NF == 3 { print $3 }' | sort >"$work/static"
	compare libdicomm.a "$work/declared" "$work/static"
fi
if [ $seen -eq 0 ]; then
	echo "no library in $libraries"
	exit 1
fi
exit $bad
