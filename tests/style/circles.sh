#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Fail if files need each other in a circle. A module is a .c file with the
# header of its name: if a.c includes b.h, and b.c includes a.h, neither can be
# read, tested or moved without the other. The same holds where functions of a.c
# call those of b.c and the other way round by way of one header that declares
# both, which the symbols of the objects show.
build=$(cd "${top_builddir:-.}" && pwd) || exit 99
cd "${srcdir:-.}" || exit 99
folders='src transports collectives perftest planner compat'

# Circles that may be, one a line, as a regular expression: what goes from one
# module to another that match the same line is not counted.
# kernels.h has the function types of reduce.h; reduce.c lists the kernels.
includes='^src/accel/reduce/(kernels|reduce)$'
# The first captured call of a communicator splits another one off it, by public
# functions; that ends with it.
calls='^src/stream/(graph|group)$
^src/(stream/graph|comm/lifecycle)$
^src/(stream/graph|comm/split)$'

# Lines "from to [symbol]" are read. What needs nothing of what is left, or is
# needed by nothing of it, is in no circle, and is taken away until nothing
# changes; of the rest, an edge is in a circle if a way leads back.
find_circles() # word, exceptions, how many lines there are at least
{
	awk -v word="$1" -v exceptions="$2" -v least="$3" '
BEGIN {
	n = split(exceptions, lines, "\n")
}
{
	edges++
	for (i = 1; i <= n; i++)
		if ($1 ~ lines[i] && $2 ~ lines[i])
			next
	if (!(($1, $2) in symbols)) {
		from[++k] = $1
		to[k] = $2
	}
	symbols[$1, $2] = symbols[$1, $2] " " $3
}
function leads(a, b,  i) {
	if (a == b)
		return 1
	passed[a] = 1
	for (i = 1; i <= k; i++)
		if (from[i] == a && !(to[i] in passed) && leads(to[i], b))
			return 1
	return 0
}
END {
	do {
		split("", needs)
		split("", needed)
		for (i = 1; i <= k; i++) {
			needs[from[i]] = 1
			needed[to[i]] = 1
		}
		left = 0
		for (i = 1; i <= k; i++)
			if ((to[i] in needs) && (from[i] in needed)) {
				from[++left] = from[i]
				to[left] = to[i]
			}
		changed = left != k
		k = left
	} while (changed)
	for (i = 1; i <= k; i++) {
		split("", passed)
		if (!leads(to[i], from[i]))
			continue
		print "in a circle: " from[i] " " word " " to[i] \
			symbols[from[i], to[i]]
		bad = 1
	}
	if (edges < least) {
		print "only " edges + 0 " times " word "; is this check blind?"
		bad = 1
	}
	exit bad
}'
}

bad=0
find $folders -name '*.[ch]' | sort |
	xargs grep -HE "^ *# *include \"(${folders// /|})/" |
	sed -E 's/^([^:]*)\.[ch]:.*"([^"]*)\.[a-z]+".*/\1 \2/' |
	awk '$1 != $2 && !seen[$0]++' |
	find_circles includes "$includes" 300 || bad=1

if grep -q '^C\(C\|FLAGS\) = .*-flto' "$build/Makefile" 2>/dev/null; then
	echo "no look at calls: objects for -flto have no symbols yet"
	exit $((bad ? 1 : 77))
fi
cd "$build" || exit 99
objects=$(find $folders -name '*.o' 2>/dev/null | sort)
if [ -z "$objects" ]; then
	echo "no look at calls: no object in $build"
	exit $((bad ? 1 : 77))
fi
# "FOLDER/.libs/LIBRARY_la-FILE.o" is of FOLDER/FILE.c; an object whose source
# is there no more was built earlier.
echo "$objects" | xargs ${NM:-nm} -A -g |
	sed -E 's|/\.libs/|/|; s|^([^:]*/)?([^:/]*-)?([^-:/]*)\.o: *|\1\3 |' |
	(cd - >/dev/null && awk '
function exists(file,  line) {
	if (!(file in known)) {
		known[file] = (getline line < (file ".c")) > 0
		close(file ".c")
	}
	return known[file]
}
!exists($1) { next }
$2 == "U" { user[++n] = $1; used[n] = $3 }
$3 ~ /^[TW]$/ { owner[$4] = $1 }
END {
	for (i = 1; i <= n; i++)
		if ((used[i] in owner) && owner[used[i]] != user[i] &&
		    !seen[user[i], used[i]]++)
			print user[i], owner[used[i]], used[i]
}') | find_circles calls "$calls" 1000 || bad=1
exit $bad
