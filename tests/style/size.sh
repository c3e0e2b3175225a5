#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# No build output in the tree: no file is an ELF binary or an archive of objects,
# and none is larger than 1 MiB. Where there is git, files are those that it
# tracks, else those of the tarball's folders.
cd "${srcdir:-.}" || exit 99
most=1048576
list=$(mktemp) || exit 99
trap 'rm -f "$list"' EXIT

if git rev-parse --show-prefix >"$list" 2>/dev/null && [ -z "$(cat "$list")" ]
then
	git ls-files -c >"$list"
else
	find .ci collectives compat docs examples include perftest planner \
		python scripts src tests transports -type f >"$list"
fi

# A file that is deleted, and not committed so far, is not there.
files=$(xargs -d '\n' stat -c '%s %n' <"$list" 2>/dev/null |
	awk -v most=$most '
{ files++ }
$1 > most { print $2 " has " $1 " bytes, more than " most >"/dev/stderr"; bad = 1 }
END { print files + 0; exit bad }')
bad=$?
found=$(LC_ALL=C xargs -d '\n' grep -alE "^($(printf '\177')ELF|!<arch>)" \
	<"$list" 2>/dev/null)
if [ -n "$found" ]; then
	echo "binaries:"
	echo "$found"
	bad=1
fi

if [ $files -lt 500 ]; then
	echo "only $files files seen; is this check blind?"
	bad=1
fi
exit $bad
