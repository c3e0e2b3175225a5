#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program in README.md is examples/allreduce.c without its head
# comment, to the letter, and what is installed as told there is found by its
# compile line.
build=$(cd "${top_builddir:-.}" && pwd) || exit 99
cd "${srcdir:-.}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$work/shown.c"
if ! [ -s "$work/shown.c" ]; then
	echo "README.md shows no program"
	exit 1
fi
sed -n '/^#include/,$p' examples/allreduce.c |
	diff -u "$work/shown.c" - || exit 1

# A place that configure was told stays, and is nobody's to write to.
for dir in exec_prefix includedir libdir; do
	case $(sed -n "s/^$dir = //p" "$build/Makefile") in
	'${prefix}'* | '${exec_prefix}'*) ;;
	*)
		echo "not tried: make install: configure was told $dir"
		exit 0
		;;
	esac
done
MAKEFLAGS= make -s -C "$build" install-data prefix="$work" DESTDIR= \
	>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$work" -name dicomm.pc)")
export PKG_CONFIG_PATH
for part in includedir libdir; do
	found=$(pkg-config --variable=$part dicomm)
	case $found in
	"$work"/*) ;;
	*)
		echo "after make install prefix=$work, $part is $found"
		exit 1
		;;
	esac
done
