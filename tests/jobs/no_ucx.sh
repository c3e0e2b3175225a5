#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A machine on which UCX cannot be loaded, though this was built with it: jobs
# go on without, unless they name it, and then the error says why.
. "${srcdir:-.}/tests/jobs/perf.sh"

# Found before the real one, and none.
mkdir "$out/lib" && : >"$out/lib/libucp.so.0" || exit 99
with=$LD_LIBRARY_PATH
LD_LIBRARY_PATH=$out/lib${with:+:$with}
export LD_LIBRARY_PATH

./dicomm-info --transports >"$out/table" 2>"$out/errors"
if ! grep -q 'ucx *not usable: .*libucp' "$out/table"; then
	echo "no UCX in this build, or no way to hide it: $(cat "$out/table")"
	exit 77
fi

# --- on one host ------------------------------------------------------------------

perf 0 allreduce -b 8 -e 64K -f 8 -n 2 --ranks 3
has ' OK$'
DICOMM_TRANSPORTS=ucx perf 3 allreduce -b 8 -e 8 -n 1 --ranks 2
has 'no transport is usable of ucx: ucx: .*libucp'

# --- on two -----------------------------------------------------------------------

# Two processes that take this machine for two; their output goes to $out/RANK.
# The port may be taken: try others.
apart() { # where rank 0 looks for libraries, how both end
	for try in 0 1 2; do
		pids= ends=
		port=$((20000 + ($$ * 7 + try * 1000) % 12000))
		for rank in 0 1; do
			where=$LD_LIBRARY_PATH
			[ $rank -eq 1 ] || where=$1
			DICOMM_RANK=$rank DICOMM_SIZE=2 DICOMM_HOSTID=h$rank \
			DICOMM_COMM_ID=127.0.0.1:$port DICOMM_COMM_KEY=test \
			DICOMM_SOCKET_IFNAME=lo DICOMM_BOOTSTRAP_TIMEOUT=20 \
			DICOMM_TRANSPORTS=$transports LD_LIBRARY_PATH=$where \
				timeout 30 $perf allreduce -b 8 -e 8 -n 1 \
				>"$out/$rank" 2>&1 &
			pids="$pids $!"
		done
		for pid in $pids; do
			wait "$pid"
			ends="$ends $?"
		done
		grep -q 'Address already in use' "$out/0" || break
	done
	cat "$out/0" "$out/1" >"$out/table"
	[ "$ends" = " $2 $2" ] || fail "two hosts end with$ends"
	for rank in 0 1; do
		[ "$2" -ne 0 ] || break
		grep -q 'no path from rank . (host) to rank . ' "$out/$rank" ||
			fail "rank $rank does not say that there is no path"
	done
}

transports=
apart "$LD_LIBRARY_PATH" 0
transports=shm
apart "$LD_LIBRARY_PATH" 3
! grep -q 'no path from .* ucx:' "$out/table" ||
	fail "a transport that nobody asked for is named"
transports=shm,ucx
apart "$LD_LIBRARY_PATH" 3
has 'no path from rank 0 .*; ucx: .*libucp'
has 'no path from rank 1 .*; ucx: .*libucp'
if [ "${DICOMM_TEST_THREADS:-0}" != 1 ]; then
	apart "$with" 3 # rank 0 has it
	has 'no path from rank 1 .*; ucx: .*libucp'
	transports=shm,ucx,tcp
	apart "$with" 0
fi
exit $bad
