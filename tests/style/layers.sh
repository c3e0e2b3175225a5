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
		'# *include "(src|transports|collectives|compat|perftest|planner|tests)/' \
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
allow src/boot/net src/base/
allow src/boot/control 'src/(base|boot/net)/'
allow src/boot/store 'src/(base|boot/net)/|src/boot/control/id.h'
allow collectives src/base/
low='src/(base|accel|topo|boot)/|collectives/|transports/transport.h'
allow src/memory 'src/(base|accel)/'
allow src/core "$low|src/memory/"
allow src/message "$low|src/(memory|core)/"
allow src/links "$low|src/(memory|core|message)/"
allow src/engine "$low|src/(memory|core|message|links)/"
allow src/device "$low|src/(memory|core|message|links|engine)/"
allow src/stream "$low|src/(memory|core|message|links|engine|device)/"
allow src/island "$low|src/(memory|core|message|links|engine|device|stream)/"
allow src/comm "$low|src/(memory|core|message|links|engine|device|stream|island)/"
allow src/redistribute "$low|src/(memory|core|message|links|engine|device|stream)/"
allow src/window "$low|src/(memory|core|message|links|engine|device|stream)/"
allow src/api "$low|src/(memory|core|message|links|engine|device|stream|island|comm)/"
allow collectives/plan src/base/
allow collectives/groups 'src/base/|collectives/plan/'
allow collectives/select 'src/base/|collectives/plan/'
allow collectives/algorithms 'src/base/|collectives/(plan|groups)/'
allow collectives/redistribute 'src/base/|collectives/select/estimate_params.h'
allow transports 'src/(base|accel)/'
for folder in transports/*/; do
	allow "${folder%/}" 'src/(base|accel)/|transports/((transport|terms|defaults|progress_thread).h|framed/)'
done
# Rooms of a transport: each may include those before it.
seam='src/(base|accel)/|transports/transport.h'
allow transports/verbs/nic "$seam"
allow transports/verbs/channel "$seam|transports/verbs/nic/"
allow transports/verbs/connection "$seam|transports/verbs/(nic|channel)/"
allow transports/verbs/message "$seam|transports/verbs/(nic|channel|connection)/"
allow compat none
allow perftest none
allow perftest/base none
allow perftest/doctor perftest/base/
allow perftest/job perftest/base/
allow perftest/operation perftest/base/
allow perftest/report 'perftest/(base|operation)/'
allow perftest/run 'perftest/(base|operation|report)/'
allow perftest/links perftest/base/
# A planner asks the estimator and reads topologies, of clusters that are not
# there: no public call takes any group of ranks.
allow planner 'src/(base|topo)/|collectives/'
allow planner/input 'src/(base|topo)/'
allow planner/cost 'planner/input/|src/base/|collectives/'
allow planner/output 'planner/(input|cost)/'
allow planner/search 'planner/(input|cost|output)/|planner/options.h|src/base/'
allow examples none
allow include none

# Includes are written from the root, so that the line shows the layer.
found=$(grep -rnE --include='*.[ch]' '# *include "' src collectives \
	transports compat perftest planner tests examples include 2>/dev/null |
	grep -vE 'include "(dicomm\.h"|(src|transports|collectives|compat|perftest|planner|tests)/)')
if [ -n "$found" ]; then
	echo "not from the root of the tree:"
	echo "$found"
	bad=1
fi

# How bytes get to a peer is decided in src/message.
found=$(grep -rnE --include='*.[ch]' -e '->(put|offer|map|read|release)\(' \
	-e 'transport->(put|offer|map|read|release)\>' src |
	grep -vE '^src/(message|memory)/')
if [ -n "$found" ]; then
	echo "messages are put and read in src/message only:"
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
