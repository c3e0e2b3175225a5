#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A machine loses its power in the middle of an operation: the rank on the
# other one ends with an error that names who is missing, in bounded time.
if [ "${DICOMM_TEST_VMS:-1}" != 2 ]; then
	echo "skipped: this is not one of two virtual machines"
	exit 77
fi
if [ ! -x "$top_builddir/dicomm-perf" ]; then
	echo "skipped: built without dicomm-perf"
	exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DICOMM_RANK=$DICOMM_TEST_VM DICOMM_SIZE=2 DICOMM_TRANSPORTS=verbs
export DICOMM_COMM_ID=192.168.77.1:7399 DICOMM_COMM_KEY=not-a-secret-at-all
export DICOMM_IB_TIMEOUT=17 DICOMM_IB_RETRY_CNT=5

# Row after row, for ever.
work()
{
	timeout 150 "$top_builddir/dicomm-perf" allreduce \
		-b 1M -e 1M -n 2 -w 0 -c 1 -N 0 >"$log" 2>&1
}

# An all-reduce of 1 MiB is about 260 of them each way.
packets()
{
	cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
}

before=$(packets)
work &
worker=$!
for ((i = 0; i < 600 && $(packets) < before + 3000; i++)); do
	sleep 0.1
done
if [ "$(packets)" -lt $((before + 3000)) ]; then
	echo "hardly any work is done"
	cat "$log"
	exit 1
fi
if [ "$DICOMM_TEST_VM" = 1 ]; then
	echo o >/proc/sysrq-trigger
	sleep 60
	echo "still alive"
	exit 1
fi
began=$SECONDS
wait $worker
status=$?
echo "ended with status $status $((SECONDS - began)) s later:"
tail -n 12 "$log"
[ $status != 0 ] && [ $status != 124 ] && grep -q 'rank 1' "$log"
