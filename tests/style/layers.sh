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
for folder in cuda hip ze; do
	allow src/accel/$folder 'src/base/|src/accel/(accel.h|gpu/|launch/)'
done
allow src/accel/opencl 'src/base/|src/accel/(accel.h|launch/)'
allow src/accel/host 'src/base/|src/accel/accel.h'
allow src/accel/gpu 'src/base/|src/accel/(accel.h|launch/|reduce/)'
allow src/accel/launch 'src/base/|src/accel/(accel.h|reduce/reciprocal.h)'
allow src/accel/reduce src/base/
allow src/topo src/base/
allow src/boot src/base/
allow collectives src/base/
allow collectives/plan src/base/
allow collectives/groups 'src/base/|collectives/plan/'
allow collectives/select 'src/base/|collectives/plan/'
allow collectives/algorithms 'src/base/|collectives/(plan|groups)/'
allow src/core 'src/|collectives/|transports/'
allow transports 'src/(base|accel)/'
for folder in transports/*/; do
	allow "${folder%/}" 'src/(base|accel)/|transports/(transport|terms|defaults).h'
done
allow perftest none
allow perftest/base none
allow perftest/operation perftest/base/
allow perftest/report 'perftest/(base|operation)/'
allow perftest/run 'perftest/(base|operation|report)/'
allow perftest/links perftest/base/
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
exit $bad
