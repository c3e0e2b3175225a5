#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Fail if a folder includes from a folder that it may not depend on.
cd "${srcdir:-.}" || exit 99
bad=0

# A folder, then an extended regex of what it may include besides itself.
allow()
{
	[ -d "$1" ] || return 0
	found=$(grep -rnE --include='*.[ch]' \
		'# *include "(src|transports|collectives|perftest|tests)/' \
		"$1" | grep -vE "include \"($1/|$2)")
	if [ -n "$found" ]; then
		echo "$1 may include only itself and: $2"
		echo "$found"
		bad=1
	fi
}

allow src/base none
allow src/accel src/base/
allow src/topo src/base/
allow src/boot src/base/
allow src/boot/net src/base/
allow src/boot/control 'src/(base|boot/net)/'
allow src/boot/store 'src/(base|boot/net)/|src/boot/control/id.h'
allow collectives src/base/
allow src/core 'src/|collectives/|transports/'
allow transports 'src/(base|accel)/'
for folder in transports/*/; do
	allow "${folder%/}" 'src/(base|accel)/|transports/(transport|terms|defaults).h'
done
allow perftest none
allow examples none
allow include none

# Includes are written from the root, so that the line shows the layer.
found=$(grep -rnE --include='*.[ch]' '# *include "' src collectives \
	transports perftest tests examples include 2>/dev/null |
	grep -vE 'include "(dicomm\.h"|(src|transports|collectives|perftest|tests)/)')
if [ -n "$found" ]; then
	echo "not from the root of the tree:"
	echo "$found"
	bad=1
fi

# No module of these folders (x.c with x.h) includes itself by way of others.
found=$(grep -rE --include='*.[ch]' '# *include "src/' src/boot |
	sed -E 's/^([^:]*)\.[ch]:.*"(.*)\.h"/\1 \2/' |
	awk '$1 != $2' | sort -u | tsort 2>&1 >/dev/null)
if [ -n "$found" ]; then
	echo "an include circle:"
	echo "$found"
	bad=1
fi
exit $bad
