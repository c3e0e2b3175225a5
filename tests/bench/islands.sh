#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Collectives of 16 MiB by vendor islands beside those without, on two hosts that
# are network namespaces with a link between them, slow enough that two cores do
# not matter; this library's own libnccl.so.2 stands for the vendor's. And what
# leaves the host that sends more in each call, as its interface has counted it,
# beside the least, which is without headers: bench/islands.sh BUILD [RATE [CALLS]].
# RATE is in Mbit/s (100). Takes a quarter of an hour. 77: not permitted.
set -u
here=$(CDPATH='' cd "$(dirname "$0")" && pwd -P)
cd "$1" || exit 1
rate=${2:-100} calls=${3:-2} bytes=16777216
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

# The ranks of one host, and what its interface has sent meanwhile
cat >"$out/host" <<-'END'
	first=0 n=$FIRST i=0
	[ "$DICOMM_RANK" -eq 0 ] || first=$FIRST n=$SECOND
	export DICOMM_SIZE=$((FIRST + SECOND))
	while [ $i -lt $n ]; do
		DICOMM_RANK=$((first + i)) "$@" >"$OUT.$((first + i))" 2>&1 &
		i=$((i + 1))
	done
	wait
	ip -s link show eth0 | awk '/TX:/ { getline; print $1 }'
END

# Leaves the least time of a call in $ms, and the bytes that a host sent for each
# in $mb.
run() # COLLECTIVE SETTING...
{
	collective=$1
	shift
	timeout 300 sh "$here/../net/shaped" "$out/sent" \
		"${rate}mbit,${rate}mbit" env OUT="$out/rank" \
		FIRST="$first" SECOND="$second" "$@" \
		DICOMM_TOPO_FILE="$out/topo.json" \
		sh "$out/host" ./dicomm-perf "$collective" \
		-b $bytes -e $bytes -n "$calls" -w 1 -c 0 -y 1 --stats
	if [ $? -eq 77 ]; then
		cat "$out/sent.0"
		exit 77
	elif ! grep -q "^ *$bytes " "$out/rank.0"; then
		tail -n 3 "$out"/rank.*
		exit 1
	fi
	# Calls are out of place and in place.
	ms=$(awk -v b=$bytes '$1 == b {
			printf "%.0f", ($14 < $19 ? $14 : $19) / 1000
		}' "$out/rank.0")
	# One more for the first connections, and one of each to warm up
	mb=$(cat "$out/sent.0" "$out/sent.1" | sort -n |
		awk -v n="$calls" '{ most = $1 }
			END { printf "%.1f", most / (2 * n + 3) / 1e6 }')
}

flat=$(for c in allreduce reduce_scatter allgather; do
	echo "$c:ring"
done | paste -s -d ';')
flat="$flat;broadcast:chain;reduce:chain;alltoall:direct"
island="DICOMM_ISLAND=auto DICOMM_ISLAND_BYTES=0
	DICOMM_ISLAND_LIBRARY=own:.libs/dicomm/compat/libnccl.so.2"
g=$(echo "$rate" | awk '{ print $1 / 1000 }')

echo "| hosts | collective | ring, ms | chosen | islands, whole | in parts |" \
	"to ring | MB sent by ring | chosen | islands | least |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for hosts in '2 2' '4 4' '3 1' '4 2'; do
	first=${hosts% *} second=${hosts#* }
	cat >"$out/topo.json" <<-END
		{"nodes": [{"ranks": $first, "gbit_per_s": $g},
		           {"ranks": $second, "gbit_per_s": $g}]}
	END
	for c in allreduce reduce_scatter allgather broadcast reduce alltoall; do
		run $c "DICOMM_ALGO=$flat"
		ring=$ms ring_mb=$mb
		run $c DICOMM_ISLAND=off
		own=$ms own_mb=$mb
		# shellcheck disable=SC2086
		run $c $island DICOMM_ISLAND_PART_BYTES=0
		whole=$ms
		# shellcheck disable=SC2086
		run $c $island DICOMM_ISLAND_PART_BYTES=1M
		# Of the blocks of all ranks, those of the larger host; of an
		# all-to-all, one for each pair of ranks on both
		least=$(awk -v b=$bytes -v c=$c -v x="$first" -v y="$second" '
			BEGIN {
				if (c == "allgather" || c == "reduce_scatter")
					b *= (x > y ? x : y) / (x + y)
				if (c == "alltoall")
					b *= x * y / (x + y)
				printf "%.1f", b / 1e6
			}')
		echo "| ${first} + ${second} | $c | $ring | $own | $whole | $ms |" \
			"$(echo "$ring $ms" | awk '{ printf "%.2f", $1 / $2 }') |" \
			"$ring_mb | $own_mb | $mb | $least |"
	done
done
