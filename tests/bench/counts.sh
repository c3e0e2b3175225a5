#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of put (8 bytes) and of a poll that finds nothing over verbs,
# beside loops that do the least for the same; by callgrind (package valgrind),
# without a NIC: bench/counts.sh BUILD
set -u
program=$1/tests/bench/verbs_counts

# Of one call with its loop: the difference of two runs.
count() # WHAT
{
	local n
	for n in 1000 9000; do
		valgrind --tool=callgrind --callgrind-out-file=/dev/null \
			"$program" "$1" $n 2>&1 |
			sed -n 's/.*Collected : //p'
	done | paste -s | awk '{ printf "%.1f\n", ($2 - $1) / 8000 }'
}

echo "| | verbs | least | ratio | wanted |"
echo "|---|---|---|---|---|"
for what in put poll; do
	ours=$(count $what) least=$(count bare-$what)
	awk -v what=$what -v a="$ours" -v b="$least" 'BEGIN {
		printf "| %s | %s | %s | %.1f | ≤ 1.5 |\n", what, a, b, a / b }'
done
