#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each function that libdicomm.so exports has a man page with its arguments, and
# no other function has one; each option that a tool's --help lists is in the
# page of the tool; mandoc and groff find nothing wrong with any page, where
# they are there.
build=$(cd "${top_builddir:-.}" && pwd)
header=${srcdir:-.}/include/dicomm.h
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

complain() {
	echo "$*"
	bad=1
}

library=$build/.libs/libdicomm.so
if [ -e "$library" ]; then
	${NM:-nm} -D --defined-only "$library" |
		awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }'
else
	sed -nE 's/^([a-z].*\b)?(dicomm_[a-z_]+)\(.*/\2/p' "$header"
fi | sort >"$work/exported"
if [ "$(wc -l <"$work/exported")" -lt 40 ]; then
	complain "hardly a function found in $library; is this check blind?"
fi
(cd "$build/man/man3" && ls) | sed 's/\.3$//' |
	grep -vxE 'dicomm|dicomm_types' | sort >"$work/pages"
diff "$work/exported" "$work/pages" ||
	complain "<: exported, but no page; >: a page, but not exported"

# Text of a page without what makes it a man page
text_of() {
	sed 's/\\f[BIR]//g; s/\\-/-/g; s/\\&//g' "$1"
}

# The arguments of the comment, word by word
awk '/^\/\*\*/ { n = 0 }
	/^ \* @param/ { args[n++] = $3 }
	/^[a-z].*dicomm_[a-z_0-9]+\(|^dicomm_[a-z_0-9]+\(/ && !/^typedef/ {
		sub(/\(.*/, ""); sub(/.*[ *]/, "")
		for (i = 0; i < n; i++)
			print $0, args[i]
		n = 0
	}' "$header" >"$work/arguments"
[ "$(wc -l <"$work/arguments")" -gt 200 ] ||
	complain "hardly an argument found in $header; is this check blind?"
while read -r name argument; do
	text_of "$build/man/man3/$name.3" | grep -qx "\.B $argument" ||
		complain "$name(3) does not say what $argument is"
done <"$work/arguments"

options=0
for page in "$build"/man/man1/*.1; do
	tool=${page##*/}
	tool=${tool%.1}
	case $tool in
	dicomm-perf) commands='. links simulate init' ;;
	*) commands=. ;;
	esac
	text_of "$page" >"$work/text"
	for command in $commands; do
		"$build/$tool" ${command#.} --help >"$work/help" 2>&1 ||
			complain "$tool ${command#.} --help fails"
		for option in $(grep -oE '^ +-.*' "$work/help" |
			grep -oE '(^ +|, )--?[A-Za-z?][a-z_-]*' | tr -d ' ,' |
			sed 's/?/[?]/'); do
			options=$((options + 1))
			grep -qE "^(-., )?$option([,= ]|\$)" "$work/text" ||
				complain "$tool(1) lacks $option"
		done
	done
done
if [ -x "$build/dicomm-perf" ] && [ $options -lt 80 ]; then
	complain "only $options options seen; is this check blind?"
fi

skipped=
if command -v mandoc >/dev/null; then
	# That of a page would change with every build.
	mandoc -Tlint "$build"/man/man?/*.[13] 2>&1 |
		grep -v 'missing date, using ""' && bad=1
else
	skipped="mandoc is missing"
fi
if command -v groff >/dev/null; then
	for page in "$build"/man/man?/*.[13]; do
		groff -man -ww -Tutf8 -z "$page" 2>&1
	done | grep . && bad=1
else
	skipped="$skipped${skipped:+; }groff is missing"
fi
if [ $bad -eq 0 ] && [ -n "$skipped" ]; then
	echo "pages not checked: $skipped"
	exit 77
fi
exit $bad
