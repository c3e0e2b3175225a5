#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A link gets slower in the middle of a job, between hosts that are network
# namespaces: it is found, and data stays right.
. "${srcdir:-.}/tests/jobs/perf.sh"

if [ "${DICOMM_TEST_THREADS:-0}" = 1 ] ||
	! ./dicomm-info --transports | grep -q 'ucx *usable'; then
	echo "no network between hosts here"
	exit 77
fi
DICOMM_DEBUG=info timeout 100 sh "${srcdir:-.}/tests/net/shaped" "$out/job" \
	400mbit,400mbit,400mbit "$PWD/dicomm-perf" \
	allreduce -b 1M -e 1M -n 120 >"$out/table" 2>"$out/errors" &
job=$!
# Not before the operations, whose communicator is the second one, run.
while kill -0 $job 2>/dev/null &&
	[ "$(grep -c 'measured the ways' "$out/job.0" 2>/dev/null)" != 2 ]; do
	sleep 0.1
done
sleep 1
echo '2 100mbit' >"$out/job.change"
wait $job
status=$?
if [ $status -eq 77 ]; then
	cat "$out/table"
	exit 77
fi
[ $status -eq 0 ] || fail "status $status: $(cat "$out"/job.?)"
cp "$out/job.0" "$out/table"
has 'operations no longer take what they did'
has '^ *1048576 .* 0$'
# What was measured last: up and down of each host.
sed -n 's/.*measured the ways of 3 hosts (Gbit.s)://p' "$out/job.0" |
	tail -n 1 | tr , '\n' | awk '{ rate[NR] = $1 > $3 ? $1 : $3 }
		END { exit NR != 3 || rate[3] * 2 > rate[1] ||
			rate[3] * 2 > rate[2] }' ||
	fail "the third host is not the slow one"
exit $bad
