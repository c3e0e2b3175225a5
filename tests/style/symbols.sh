#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The libraries export what include/dicomm.h declares, the shared one under its
# version node, and nothing else; and the shared one can be opened at run time,
# and closed. libnccl.so.2 and librccl.so.1 export what nccl_symbols.txt lists,
# and docs/nccl.md has all of that. What a program of the last release needs is
# there: the soname, the symbols of packaging/debian/libdicomm1.symbols, the
# declarations of released.h.
libraries=${top_builddir:-.}/.libs
header=${srcdir:-.}/include/dicomm.h
node=DICOMM_1.0
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0
seen=0

sed -nE 's/^([a-z].*\b)?(dicomm_[a-z_]+)\(.*/\2/p' "$header" | sort >"$work/declared"
if [ "$(wc -l <"$work/declared")" -lt 40 ]; then
	echo "hardly a declaration found in $header; is this check blind?"
	exit 1
fi

compare() # library, names that it should have, names that it has
{
	seen=$((seen + 1))
	if ! diff -u "$2" "$3"; then
		echo "$1: -: declared, not exported; +: exported, not declared"
		bad=1
	fi
}

if [ -e "$libraries/libdicomm.so" ]; then
	sed "s/\$/@@$node/" "$work/declared" >"$work/wanted"
	${NM:-nm} -D --defined-only --with-symbol-versions \
		"$libraries/libdicomm.so" |
		awk '$2 != "A" { print $3 }' | sort >"$work/shared"
	compare libdicomm.so "$work/wanted" "$work/shared"
	${READELF:-readelf} -d "$libraries/libdicomm.so" |
		grep -qF 'soname: [libdicomm.so.1]' || {
		echo "libdicomm.so has another soname than libdicomm.so.1:" \
			"no program of an earlier release runs with it"
		bad=1
	}
	sed -n 's/^ \(dicomm_[^ ]*\) .*/\1/p' \
		"${srcdir:-.}/packaging/debian/libdicomm1.symbols" |
		sed 's/@/@@/' | sort >"$work/released"
	for name in $(comm -23 "$work/released" "$work/shared"); do
		echo "libdicomm.so has no $name any more, which programs of a" \
			"release need: it comes back, or the soname changes"
		bad=1
	done
	for name in $(comm -13 "$work/released" "$work/shared"); do
		echo "packaging/debian/libdicomm1.symbols lacks $name and the" \
			"version that will have it"
		bad=1
	done
	# Python, and plugins, open it when the room for such is spent.
	if ${READELF:-readelf} -d "$libraries/libdicomm.so" |
		grep STATIC_TLS; then
		echo "libdicomm.so: dlopen() may find no room for its variables" \
			"of threads: one has the model initial-exec"
		bad=1
	fi
	if ! ${READELF:-readelf} -d "$libraries/libdicomm.so" |
		grep -q NODELETE; then
		echo "libdicomm.so: dlclose() takes the code of its threads away"
		bad=1
	fi
fi
if [ -e "$libraries/libdicomm.a" ]; then
	${NM:-nm} -g --defined-only "$libraries/libdicomm.a" |
		awk 'NF == 3 { print $3 }' | sort >"$work/static"
	compare libdicomm.a "$work/declared" "$work/static"
fi

# A function that has other arguments, a field in another place, another value
printf '#include <dicomm.h>\n#include "%s"\n' "$(cd "${srcdir:-.}" && pwd \
	)/tests/style/released.h" >"$work/released.c"
${CC:-cc} -std=c11 -I"${srcdir:-.}/include" -fsyntax-only "$work/released.c" || {
	echo "include/dicomm.h is not what programs of a release were compiled" \
		"with: it becomes that again, or the soname changes"
	bad=1
}

# How many names of the list there are since a version of NCCL, or of PyTorch
count() # column, versions...
{
	column=$1
	shift
	echo "$*" | tr ' ' '\n' >"$work/versions"
	awk -v column="$column" 'NR == FNR { wanted[$1]; next }
		!/^#/ && $column in wanted' "$work/versions" "$list" | wc -l
}
list=${srcdir:-.}/tests/style/nccl_symbols.txt
nccl=$(count 2 2.14.3 2.18.3 2.21.5 2.23.4 2.27.5 2.28.9 2.29.7 2.30.7 2.31.2 2.32.3)
torch=$(count 3 2.9)\ $(count 3 2.9 2.11)\ $(count 3 2.9 2.11 2.13)\ $(count 3 2.9 2.11 2.13 2.14)
if [ "$nccl $torch" != "97 34 38 46 51" ]; then
	echo "$list: $nccl names of NCCL, $torch of PyTorch's, and not" \
		"97 of 2.32.3, 34 38 46 51 of PyTorch 2.9, 2.11, 2.13, 2.14"
	bad=1
fi
sed -n '/^#/d; s/ .*//p' "$list" | awk '{ print }
	$1 != "ncclResetDebugInitInternal" { print "p" $1 }' |
	sort >"$work/nccl"
for name in $(sed -n '/^#/d; s/ .*//p' "$list"); do
	grep -q "\`$name\`" "${srcdir:-.}/docs/nccl.md" || {
		echo "docs/nccl.md does not say what $name does"
		bad=1
	}
done
for library in libnccl.so.2 librccl.so.1; do
	path=$libraries/dicomm/compat/$library
	[ -e "$path" ] || continue
	${NM:-nm} -D --defined-only "$path" | awk '{ print $3 }' |
		sort >"$work/exported"
	compare $library "$work/nccl" "$work/exported"
	case $(${READELF:-readelf} -d "$path") in
	*"soname: [$library]"*) ;;
	*)
		echo "$library has another soname"
		bad=1
		;;
	esac
	if ! ${READELF:-readelf} -d "$path" |
		grep -qF 'path: [$ORIGIN/../..]'; then
		echo "$library does not find libdicomm.so.1 from where it is"
		bad=1
	fi
	# Or a tool that replaces one function replaces it for this library.
	if ${READELF:-readelf} -r "$path" | grep -E ' p?nccl[A-Z]'; then
		echo "$library calls itself by way of others"
		bad=1
	fi
done
if [ $seen -eq 0 ]; then
	echo "no library in $libraries"
	exit 1
fi
exit $bad
