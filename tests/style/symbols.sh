#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The shared library exports what include/dicomm.h declares, under its version
# node, and nothing else.
library=${top_builddir:-.}/.libs/libdicomm.so
header=${srcdir:-.}/include/dicomm.h
node=DICOMM_1.0
if [ ! -e "$library" ]; then
	echo "skipped: built without a shared library"
	exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

${NM:-nm} -D --defined-only --with-symbol-versions "$library" |
	awk '$2 != "A" { print $3 }' | sort >"$work/exported"
grep -oE '^[a-z].*\bdicomm_[a-z_]+\(' "$header" | grep -v '^typedef' |
	sed "s/.*\\b\\(dicomm_[a-z_]*\\)(\$/\\1@@$node/" |
	sort >"$work/declared"

if [ ! -s "$work/declared" ]; then
	echo "no declaration found in $header"
	exit 1
fi
if ! diff -u "$work/declared" "$work/exported"; then
	echo "-: declared, not exported; +: exported, not declared"
	exit 1
fi
