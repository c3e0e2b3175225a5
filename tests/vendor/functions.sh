# SPDX-License-Identifier: BSD-3-Clause
# For tests of libraries of vendors: which functions we ask for, and which a
# library has.

# list MACRO HEADER: the second argument of each F() there
list() {
	sed -n "/define $1(F)/,/[^\\\\]\$/p" "$top/$2" | tr -d '\n\\' |
		grep -oE '\bF\([a-z_0-9]+,[[:space:]]*[A-Za-z_0-9]+' |
		sed 's/.*[,[:space:]]//' | sort -u
}

# has FILE...: what dlsym() finds there, each with its version, if it has any
has() {
	for file; do
		${NM:-nm} -D --defined-only --with-symbol-versions "$file"
	done | awk '$2 ~ /^[TWi]$/ && ($3 !~ /@/ || $3 ~ /@@/) { print $3 }' |
		sort -u
}

# compare NEEDED WANTED HAS LATER: files of names, and of what has() prints; of
# those that are wanted, it lacks LATER, and not one more, which might be a name
# that is written wrongly
compare() {
	sed 's/@.*//' "$3" | sort -u >"$3.names"
	if [ "$(wc -l <"$1")" -lt 20 ] || [ "$(wc -l <"$2")" -lt 3 ]; then
		fail "too few names are read from our header; is this blind?"
	fi
	lacks=$(comm -23 "$1" "$3.names" | tr '\n' ' ')
	[ -z "$lacks" ] || fail "it lacks $lacks"
	lacks=$(comm -23 "$2" "$3.names" | tr '\n' ' ')
	[ "${lacks% }" = "$4" ] ||
		fail "of what need not be there it lacks ${lacks% }, not $4"
	echo "$(wc -l <"$1") functions that are needed, versions:" \
		"$(sed 's/@@/ /' "$3" | join "$1" - | cut -d' ' -f2 -s |
			sort -u | tr '\n' ' ')"
	echo "not in this one: $lacks"
}
