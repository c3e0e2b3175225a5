#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-perf between two virtual machines, by RDMA alone, and with shared memory
# inside of each. Both machines run this.
if [ "${DICOMM_TEST_VMS:-1}" != 2 ]; then
	echo "skipped: this is not one of two virtual machines"
	exit 77
fi
if [ ! -x "$top_builddir/dicomm-perf" ]; then
	echo "skipped: built without dicomm-perf"
	exit 77
fi
perf=$top_builddir/dicomm-perf
bad=0 port=7400

# One rank of a job; its output is shown if it fails.
rank() # RANK SIZE OPERATION
{
	local log
	log=$(mktemp)
	DICOMM_RANK=$1 DICOMM_SIZE=$2 DICOMM_COMM_ID=192.168.77.1:$port \
		DICOMM_COMM_KEY=not-a-secret-at-all \
		timeout 100 "$perf" "$3" -b 8 -e 1M -f 64 -n 2 -w 1 -c 1 \
		>"$log" 2>&1
	local status=$?
	if [ $status != 0 ]; then
		echo "$3, rank $1 of $2: status $status"
		tail -n 20 "$log"
		bad=1
	fi
	rm -f "$log"
	return $status
}

# All ranks of this machine, RANKS of them on each.
job() # RANKS OPERATION
{
	local r pids=() first=$((DICOMM_TEST_VM * $1))
	port=$((port + 1))
	for ((r = first; r < first + $1; r++)); do
		rank $r $(($1 * 2)) "$2" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do
		wait "$r" || bad=1
	done
}

DICOMM_TRANSPORTS=verbs job 1 allreduce
job 2 alltoallv
exit $bad
