#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of put (8 bytes), of a poll that finds nothing and of one that
# finds a message, over verbs, beside loops that do the least for the same
# (verbs_counts.c says what that is); by callgrind (package valgrind), without a
# NIC: bench/counts.sh BUILD
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

echo "| | verbs | bare | ratio | wanted | folded | ratio |"
echo "|---|---|---|---|---|---|---|"
for what in put poll message; do
	folded=
	[ $what = message ] || folded=$(count folded-$what)
	awk -v what=$what -v a="$(count $what)" -v b="$(count bare-$what)" \
		-v c="$folded" 'BEGIN {
		printf "| %s | %s | %s | %.2f | ≤ 1.5 | %s | %s |\n", what, a,
			b, a / b, c, c ? sprintf("%.2f", a / c) : "" }'
done
