#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ways of a redistribution between hosts that are network namespaces, beside what
# the plans predict, and beside a leader and a broadcast:
# bench/redistribute.sh BUILD [REPEATS [RATE]]. Each rank has a link of RATE Mbit/s
# (200), and half of it where 8 exchange data at once, slow enough that two cores
# do not matter. Takes a quarter of an hour. 77: not permitted.
set -u
here=$(CDPATH='' cd "$(dirname "$0")" && pwd -P)
program=$(CDPATH='' cd "$1" && pwd -P)/tests/bench/redistribute
repeats=${2:-5} rate=${3:-200}
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

ways() # RATE COUNT: RATE, so many times
{
	yes "$1mbit" | head -n "$2" | paste -s -d , -
}

# What is measured, on links of these rates; the rest is what runs on each host.
on() # WAYS COMMAND...
{
	ways=$1
	shift
	timeout 600 sh "$here/../net/shaped" "$out/rank" "$ways" "$@"
	status=$?
	cat "$out/rank.0"
	if [ $status -ne 0 ]; then
		tail -n 3 "$out"/rank.*
		exit $status
	fi
}

# The first half of the ranks is one machine and the other half another one, which
# have a NIC for each rank, and shared memory inside.
machines() # RANKS OF EACH, RATE
{
	cat >"$out/topo.json" <<-END
		{"nodes": [{"count": 2, "ranks": $1,
		            "gbit_per_s": $(echo "$1 $2" | awk '{ print $1 * $2 / 1000 }'),
		            "rank_gbit_per_s": $(echo "$2" | awk '{ print $1 / 1000 }')}]}
	END
	# shellcheck disable=SC2016
	printf '%s\n' "DICOMM_HOSTID=m\$((DICOMM_RANK / $1))" \
		"DICOMM_TOPO_FILE=$out/topo.json" \
		'export DICOMM_HOSTID DICOMM_TOPO_FILE' 'exec "$@"' >"$out/machine"
}

# Where 16 ranks start on two cores, what they measure of links is too low.
told() # HOSTS, RATE
{
	echo "{\"nodes\": [{\"count\": $1, \"gbit_per_s\":" \
		"$(echo "$2" | awk '{ print $1 / 1000 }')}]}" >"$out/told.json"
	DICOMM_TOPO_FILE=$out/told.json
	export DICOMM_TOPO_FILE
}

sizes='1048576 4194304 16777216 41943040 67108864'
for n in 4 8; do
	few=$sizes
	if [ $n -ne 4 ]; then
		few=41943040
		told $((2 * n)) "$rate"
	fi
	echo "## $n to $n hosts, a link of $rate Mbit/s each"
	# shellcheck disable=SC2086
	on "$(ways "$rate" $((2 * n)))" "$program" copies $n $n "$repeats" $few
	each=$((4 * rate / n))
	echo "## a machine of $n NICs to another one, $each Mbit/s each"
	machines $n $each
	# shellcheck disable=SC2086
	on "$(ways $each $((2 * n)))" sh "$out/machine" "$program" copies $n $n \
		"$repeats" $few
done
unset DICOMM_TOPO_FILE
echo "## 4 to 4 hosts, $((2 * rate)) Mbit/s each, $((rate / 2)) between the groups"
half=$(ways $((2 * rate)) 4)
on "$half/$((rate / 2))mbit/$half" "$program" copies 4 4 "$repeats" 4194304
echo "## 2 to 4 hosts, a link of $rate Mbit/s each: other layouts"
for layout in gather cut sum; do
	on "$(ways "$rate" 6)" "$program" $layout 2 4 "$repeats" 1048576 16777216
done
