#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Fail if a C file is not as .clang-format says. Versions of the tool format
# differently, so only the one of Debian 12 judges.
cd "${srcdir:-.}" || exit 99
tool=
for name in clang-format-14 clang-format; do
	if $name --version 2>/dev/null | grep -q 'version 14\.'; then
		tool=$name
		break
	fi
done
if [ -z "$tool" ]; then
	echo "skipped: clang-format 14 is not installed"
	exit 77
fi
find collectives compat examples include perftest planner src tests transports \
	-name '*.[ch]' -print 2>/dev/null | sort |
	xargs "$tool" --dry-run -Werror
