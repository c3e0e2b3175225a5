#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first program in README.md is examples/allreduce.c without its head
# comment, to the letter.
cd "${srcdir:-.}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$work/shown.c"
if ! [ -s "$work/shown.c" ]; then
	echo "README.md shows no program"
	exit 1
fi
sed -n '/^#include/,$p' examples/allreduce.c |
	diff -u "$work/shown.c" -
