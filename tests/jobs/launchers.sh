#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ranks started by the MPI launchers of this machine meet, and dicomm-perf takes
# them for those of one sweep. Skipped where there is none.
rank=${top_builddir:-.}/tests/unit/test_launcher
ran=0
bad=0

if [ ! -x "$rank" ]; then
	echo "no test_launcher: built without Check"
	exit 77
fi
# What an outer launcher or resource manager left behind.
for name in $(env | sed -n 's/^\(\(SLURM\|PMIX\|PMI\|OMPI\)_[A-Z_]*\)=.*/\1/p'); do
	unset "$name"
done
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID

# libpmix 4.2 forgets a few bytes of its own.
leaks=$(mktemp) || exit 99
trap 'rm -f "$leaks"' EXIT
echo "leak:libpmix" >"$leaks"
LSAN_OPTIONS=suppressions=$leaks:print_suppressions=0:$LSAN_OPTIONS
export LSAN_OPTIONS

# launcher, name of the store, ranks, sum of their numbers
check() {
	want=$3
	out=$(timeout 60 $1 -n "$3" "$rank" meet 2>&1)
	status=$?
	got=$(printf '%s\n' "$out" | grep -c \
		"^$2 rank [0-9]* of $3 sums $4 $4\$")
	ran=$((ran + 1))
	if [ $status -ne 0 ] || [ "$got" -ne "$want" ]; then
		echo "$1 -n $3: status $status, $got of $want ranks met:"
		printf '%s\n' "$out"
		bad=1
	fi
}

# launcher: the ranks of one sweep, and one table
sweep() {
	perf=${top_builddir:-.}/dicomm-perf
	[ -x "$perf" ] || return
	out=$(timeout 60 $1 -n 2 "$perf" allreduce -b 8 -e 64K -f 8 -n 3 2>&1)
	status=$?
	rows=$(printf '%s\n' "$out" | grep -c '^ *[0-9]* *[0-9]* *float *sum ')
	ranks=$(printf '%s\n' "$out" | grep -c '^#  Rank  [01] ')
	right=$(printf '%s\n' "$out" | grep -c 'Out of bounds values : 0 OK')
	if [ "$status $rows $ranks $right" != "0 5 2 1" ]; then
		echo "$1 -n 2 dicomm-perf: status $status, $rows rows of 5," \
			"$ranks ranks of 2, $right tables of 1:"
		printf '%s\n' "$out"
		bad=1
	fi
}

if command -v mpirun.openmpi >/dev/null; then
	flags="--oversubscribe --allow-run-as-root --bind-to none"
	flags="$flags --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo"
	# Only a build with PMIx can meet by it, and that is a clear error.
	if $rank stores | grep -q PMIx; then
		check "mpirun.openmpi $flags" PMIx 1 0
		check "mpirun.openmpi $flags" PMIx 4 6
		sweep "mpirun.openmpi $flags"
	fi
fi
if command -v mpirun.mpich >/dev/null; then
	check "mpirun.mpich" PMI-1 1 0
	check "mpirun.mpich" PMI-1 4 6
	sweep mpirun.mpich
fi

if [ $ran -eq 0 ]; then
	echo "neither Open MPI's nor MPICH's mpirun is installed"
	exit 77
fi
exit $bad
