#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of put (8 bytes), of a poll that finds nothing and of one that
# finds a message, over verbs, beside loops that do the least for the same, and
# what is needed (verbs_counts.c says what that is); by callgrind (package
# valgrind), without a NIC: bench/counts.sh BUILD
set -u
program=$1/tests/bench/verbs_counts

# Of one call with its loop: the difference of two runs.
count() # WHAT
{
	local n
	for n in 1024 9216; do
		valgrind --tool=callgrind --callgrind-out-file=/dev/null \
			"$program" "$1" $n 2>&1 |
			sed -n 's/.*Collected : //p'
	done | paste -s | awk '{ printf "%.1f\n", ($2 - $1) / 8192 }'
}

echo "| | verbs | bare | ratio | needed | ratio | wanted |"
echo "|---|---|---|---|---|---|---|"
for what in put poll message; do
	bare=
	[ $what = message ] || bare=$(count bare-$what)
	awk -v what=$what -v a="$(count $what)" -v b="$bare" \
		-v c="$(count needed-$what)" 'BEGIN {
		printf "| %s | %s | %s | %s | %s | %.2f | ≤ 1.5 |\n", what, a,
			b, b ? sprintf("%.2f", a / b) : "", c, a / c }'
done
