#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-perf beside the programs of the package perftest, and beside Open MPI
# over UCX where that is installed, on the first two devices of a machine:
# bench/verbs.sh BUILD [ROUNDS [FOLDER]]; ROUNDS 0: costs only.
#
# Each round measures everything once, so that whatever else the machine does
# falls on all alike; the tables have medians over rounds, also over those that
# earlier runs have left in FOLDER. With strace, another table has what one
# operation costs: packets, doorbells, other system calls.
#
# In a virtual machine: tests/vm/run -d rxe:2 -- bash tests/bench/verbs.sh build
set -u
here=$(CDPATH='' cd "$(dirname "$0")" && pwd -P)
build=$1 rounds=${2:-5}
large=$((16 << 20)) port=18600
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
rows=${3:-$work}
mkdir -p "$rows" || exit 1
kind=rxe
[ -e /sys/class/infiniband/rxe0 ] || kind=siw
flags="-F -x 1"
[ $kind = rxe ] || flags="-F -R"
address=192.168.77.2 # of the second device
export DICOMM_IB_NICS=1 # a device for each rank, as perftest has

# One perftest program, from the first device to the second; prints the table.
between() # PROGRAM ARGUMENT...
{
	local program=$1 server
	shift
	port=$((port + 1))
	# shellcheck disable=SC2086
	timeout 60 "$program" -d ${kind}1 $flags -p $port "$@" \
		>"$work/server" 2>&1 &
	server=$!
	sleep 1
	# shellcheck disable=SC2086
	timeout 60 "$program" -d ${kind}0 $flags -p $port "$@" $address \
		2>&1 | tee "$work/client"
	wait $server
}

# The row of a size in the table of a perftest program; one of its columns.
column() # SIZE COLUMN
{
	awk -v size="$1" -v n="$2" '$1 == size { print $n }'
}

ours() # OPERATION BYTES ITERATIONS [ARGUMENT...]
{
	local operation=$1 bytes=$2 n=$3
	shift 3
	DICOMM_TRANSPORTS=verbs timeout 120 "$build/dicomm-perf" "$operation" \
		--ranks 2 -b "$bytes" -e "$bytes" -n "$n" -w 1 -c 0 "$@" \
		2>&1 | tee "$work/ours"
}

note() # NAME VALUE
{
	[ -n "$2" ] || {
		echo "no value for $1:" >&2
		cat "$work/client" "$work/ours" >&2
		return
	}
	echo "$2" >>"$rows/row.$1"
}

median() # NAME
{
	sort -n "$rows/row.$1" | awk '{ v[NR] = $1 }
		END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# Megabytes (10^6) per second from the microseconds of an operation.
rate() # BYTES MICROSECONDS
{
	awk -v b="$1" -v t="$2" 'BEGIN { if (t > 0) print b / t }'
}

half_trip() # BYTES ITERATIONS
{
	DICOMM_TRANSPORTS=verbs timeout 120 "$build/tests/bench/half_trip" \
		"$@" >"$work/ours" 2>&1
}

one_round()
{
	local m=1048576
	# perftest counts 2^20 as a megabyte.
	note write_bw "$(between ib_write_bw -s $large -n 5 |
		column $large 4 | awk -v m=$m '{ print $1 * m / 1e6 }')"
	note broadcast "$(rate $large "$(ours broadcast $large 1 |
		column $large 6)")"
	note write_bw_both "$(between ib_write_bw -b -s $large -n 5 |
		column $large 4 | awk -v m=$m '{ print $1 * m / 1e6 / 2 }')"
	note sendrecv "$(rate $large "$(ours sendrecv $large 1 |
		column $large 6)")"
	note write_1m_both "$(between ib_write_bw -b -s $m -n 20 |
		column $m 4 | awk -v m=$m '{ print $1 * m / 1e6 / 2 }')"
	note allreduce "$(rate $m "$(ours allreduce $m 20 | column $m 6)")"
	note allreduce_large "$(rate $large "$(ours allreduce $large 1 |
		column $large 6)")"
	# Where its clock cannot be measured, it says "inf".
	for _ in 1 2 3; do
		between ib_send_lat -s 8 -n 300 >/dev/null
		grep -q inf "$work/client" || break
	done
	note send_lat "$(column 8 5 <"$work/client")"
	note send_lat_mean "$(column 8 6 <"$work/client")"
	half_trip 8 300
	note half_trip "$(awk '{ print $1 }' "$work/ours")"
	note half_trip_mean "$(awk '{ print $2 }' "$work/ours")"
	half_trip $large 3
	note one_way "$(rate $large "$(awk '{ print $1 }' "$work/ours")")"
}

# --- Open MPI over UCX ------------------------------------------------------

# First and last size, factor, iterations: what is brief is measured more often.
mpi_sweeps=("8 4096 8 100" "32768 2097152 8 5")

has_mpi()
{
	[ $kind = rxe ] && [ -x "$work/mpi" ]
}

if command -v mpicc.openmpi >/dev/null; then
	mpicc.openmpi -O2 -o "$work/mpi" "$here/mpi_allreduce.c"
fi

# It has the same device for each rank. UCX 1.13 connects by GID 0 alone.
mpi() # ARGUMENT...
{
	local common=(-np 1 -x UCX_TLS=rc,ud,self -x UCX_IB_GID_INDEX=0)
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		timeout 120 mpirun.openmpi --oversubscribe --mca pml ucx \
		--mca osc ucx --mca btl ^openib,vader,tcp,uct \
		"${common[@]}" -x UCX_NET_DEVICES=${kind}0:1 "$work/mpi" "$@" : \
		"${common[@]}" -x UCX_NET_DEVICES=${kind}1:1 "$work/mpi" "$@" \
		>"$work/client" 2>&1
}

# The sizes of a sweep.
sizes() # FIRST LAST FACTOR ITERATIONS
{
	local bytes
	for ((bytes = $1; bytes <= $2; bytes *= $3)); do
		echo "$bytes"
	done
}

one_round_of_mpi()
{
	local sweep bytes
	for sweep in "${mpi_sweeps[@]}"; do
		# shellcheck disable=SC2086
		mpi $sweep
		# shellcheck disable=SC2086
		set -- $sweep
		DICOMM_TRANSPORTS=verbs timeout 120 "$build/dicomm-perf" \
			allreduce --ranks 2 -b "$1" -e "$2" -f "$3" -n "$4" \
			-w 2 -c 0 >"$work/ours" 2>&1
		for bytes in $(sizes "$@"); do
			note "mpi.$bytes" "$(column "$bytes" 6 <"$work/client")"
			note "ours.$bytes" "$(column "$bytes" 6 <"$work/ours")"
		done
	done
}

table_of_mpi()
{
	local sweep bytes
	echo
	echo "| all-reduce | Open MPI, UCX rc | dicomm-perf | ratio |"
	echo "|---|---|---|---|"
	for sweep in "${mpi_sweeps[@]}"; do
		# shellcheck disable=SC2086
		for bytes in $(sizes $sweep); do
			echo "$bytes $(median "mpi.$bytes")" \
				"$(median "ours.$bytes")"
		done
	done | awk '{ printf "| %d B | %.0f us | %.0f us | %.2f |\n", $1, $2, $3,
			($3 > 0 ? $2 / $3 : 0)
			log_sum += log($2 / $3) }
		END { printf "| geometric mean of ratios, wanted ≥ 1.0 | | | %.2f |\n",
			exp(log_sum / NR) }'
}

# ----------------------------------------------------------------------------

row() # WHAT UNIT THEIRS OURS BOUND
{
	local a b
	a=$(median "$3") b=$(median "$4")
	awk -v what="$1" -v unit="$2" -v a="$a" -v b="$b" -v bound="$5" \
		'BEGIN { printf "| %s | %.1f %s | %.1f %s | %.2f | %s |\n",
			what, a, unit, b, unit, (a > 0 ? b / a : 0), bound }'
}

speeds()
{
	echo "Medians of $(wc -l <"$rows/row.half_trip") rounds:"
	echo
	echo "| | perftest | dicomm-perf | ratio | wanted |"
	echo "|---|---|---|---|---|"
	row "16 MiB one way: ib_write_bw; send and recv" MB/s write_bw one_way \
		"≥ 0.90"
	row "16 MiB one way: ib_write_bw; broadcast" MB/s write_bw broadcast ""
	row "16 MiB both ways, each: ib_write_bw -b; sendrecv" MB/s write_bw_both \
		sendrecv "≥ 0.90"
	row "1 MiB both ways, each: ib_write_bw -b; allreduce" MB/s write_1m_both \
		allreduce "≥ 0.85"
	row "16 MiB both ways, each: ib_write_bw -b; allreduce" MB/s \
		write_bw_both allreduce_large "≥ 0.85"
	row "8 B, half round trip, typical: ib_send_lat; send and recv" us send_lat \
		half_trip "≤ 1.30"
	row "8 B, half round trip, mean: ib_send_lat; send and recv" us send_lat_mean \
		half_trip_mean ""
}

# --- what an operation costs ------------------------------------------------

# A doorbell of rxe is a write() to its device.

packets()
{
	cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts 2>/dev/null |
		awk '{ n += $1 } END { print n + 0 }'
}

# Of a whole run: packets, writes, other system calls.
traced() # OPERATION BYTES ITERATIONS
{
	local before
	before=$(packets)
	DICOMM_TRANSPORTS=verbs timeout 200 strace -f -c -U calls,name \
		-o "$work/calls" "$build/dicomm-perf" "$1" --ranks 2 -b "$2" \
		-e "$2" -n "$3" -w 1 -c 0 >/dev/null 2>&1
	echo "$(($(packets) - before))" "$(awk '
		$2 == "write" { w = $1 }
		$2 == "total" { print w, $1 - w }' "$work/calls")"
}

# Two runs of unlike length: their difference is that of 150 iterations, out of
# place and in place, of two ranks.
cost() # OPERATION BYTES
{
	{
		traced "$1" "$2" 50
		traced "$1" "$2" 200
	} | awk -v what="$1 of $2 B" '{ for (i = 1; i <= NF; i++) {
			d[i] = $i - last[i]; last[i] = $i } }
		END { printf "| %s |", what
			for (i = 1; i <= NF; i++) printf " %.2f |", d[i] / 600
			print "" }'
}

# ----------------------------------------------------------------------------

for ((i = 1; i <= rounds && SECONDS < ${DICOMM_TEST_SECONDS:-600}; i++)); do
	one_round
	! has_mpi || one_round_of_mpi
	echo "round $i of $rounds" >&2
done
if [ $i -gt 1 ]; then
	speeds
	! has_mpi || table_of_mpi
fi
[ "${COSTS:-1}" = 1 ] && command -v strace >/dev/null || exit 0
echo
echo "| per operation and rank | packets | doorbells | other system calls |"
echo "|---|---|---|---|"
cost sendrecv 8
cost sendrecv 4096
cost allreduce 8
cost allreduce 65536
