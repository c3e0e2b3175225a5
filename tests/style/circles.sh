#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Fail if files include each other in a circle. A module is a .c file with the
# header of its name: if a.c includes b.h, and b.c includes a.h, neither can be
# read, tested or moved without the other.
cd "${srcdir:-.}" || exit 99

# Circles that are still to be undone, one a line, as a regular expression: an
# include between two modules that match the same line is not counted.
# kernels.h has the function types of reduce.h; reduce.c lists the kernels.
exceptions='^src/accel/reduce/(kernels|reduce)$'

find src transports collectives perftest planner -name '*.[ch]' | sort |
	xargs grep -HE '^ *# *include "(src|transports|collectives|perftest|planner)/' |
	sed -E 's/^([^:]*)\.[ch]:.*"([^"]*)\.[a-z]+".*/\1 \2/' |
	awk '$1 != $2 && !seen[$0]++' |
	awk -v exceptions="$exceptions" '
BEGIN {
	n = split(exceptions, lines, "\n")
}
{
	edges++
	for (i = 1; i <= n; i++)
		if ($1 ~ lines[i] && $2 ~ lines[i])
			next
	from[++k] = $1
	to[k] = $2
}
# What includes nothing of what is left, or is included by nothing of it, is in
# no circle: take it away until nothing changes.
END {
	do {
		split("", includes)
		split("", included)
		for (i = 1; i <= k; i++) {
			includes[from[i]] = 1
			included[to[i]] = 1
		}
		left = 0
		for (i = 1; i <= k; i++)
			if ((to[i] in includes) && (from[i] in included)) {
				from[++left] = from[i]
				to[left] = to[i]
			}
		changed = left != k
		k = left
	} while (changed)
	for (i = 1; i <= k; i++)
		print "in a circle: " from[i] " includes " to[i]
	if (edges < 300) {
		print "only " edges + 0 " includes seen; is this check blind?"
		exit 1
	}
	exit k > 0
}'
