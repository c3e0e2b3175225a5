#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each file of the tree is in Makefile.am, so that it is built and in the
# tarball, and has its line in docs/architecture.md.
cd "${srcdir:-.}" || exit 99
bad=0

# A test program is named without .c, its source being the default one.
for file in $(find collectives examples include perftest src tests \
	transports -name '*.[ch]' -o -name '*.sh' -o -name '*.map' | sort); do
	if ! grep -qE "(^|[^a-z/_])${file%.c}([ .]|\$)" Makefile.am; then
		echo "Makefile.am does not list $file"
		bad=1
	fi
	if ! grep -qE "^$file  *[^ ]" docs/architecture.md; then
		echo "docs/architecture.md has no line for $file"
		bad=1
	fi
done

for file in $(grep -oE '^[a-z_/.]+/[a-z_0-9.]+\.(c|h|sh|map)' \
	docs/architecture.md); do
	if [ ! -e "$file" ]; then
		echo "docs/architecture.md has a line for $file, which is gone"
		bad=1
	fi
done
exit $bad
