#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The network between hosts is away for some seconds. Two ranks that take a host
# for dead after that time (DICOMM_TCP_SILENT_MS) fail, and say so; two that
# wait for longer go on, and so do those that wait for ever; dicomm-info --job
# tells what was sent again.
. "${srcdir:-.}/tests/jobs/perf.sh"

top=${srcdir:-.}
if [ "$1" != --inside ]; then
	exec sh "$top/tests/net/hosts" 6 sh "$0" --inside
fi
PATH=$PATH:/usr/sbin:/sbin # of ip

rank() { # host, rank 0's host, milliseconds; the last work of the shell
	DICOMM_RANK=$(($1 - $2)) DICOMM_SIZE=2 DICOMM_HOSTID=host$1 \
		DICOMM_COMM_ID=10.77.0.$(($2 + 1)):7777 DICOMM_COMM_KEY=test \
		DICOMM_TCP_SILENT_MS=$3 DICOMM_PROBE=off \
		exec nsenter --net=/run/netns/host$1 timeout 100 \
		$perf allreduce -b 4K -e 4K -n 20 -w 0 -c 1 -N 0 \
		>"$out/$1" 2>&1
}

rows() { # host
	grep -c '^ *4096 ' "$out/$1"
}

# Rank 0 of two prints a row after each 20 operations.
more_rows() { # hosts
	for host in "$@"; do
		begun=$(rows $host)
		n=0
		while [ "$(rows $host)" -lt $((begun + 3)) ]; do
			n=$((n + 1))
			[ $n -lt 600 ] || return
			sleep 0.1
		done
	done
}

i=0
for ms in 3000 60000 0; do
	rank $i $i $ms &
	pids="$pids $!"
	rank $((i + 1)) $i $ms &
	pids="$pids $!"
	i=$((i + 2))
done
set -- $pids
more_rows 0 2 4 || fail "no work is done: $(tail -n 3 "$out"/?)"
ip link set br0 down || exit 99
for pid in $1 $2; do
	wait $pid && fail "who waits for 3 s has not failed"
done
ip link set br0 up
for host in 0 1; do
	grep -q 'host has not answered for' "$out/$host" ||
		fail "host $host: $(tail -n 3 "$out/$host")"
done
more_rows 2 4 || fail "who waits has not gone on: $(tail -n 3 "$out"/[2-5])"
# What was under way then had to be sent again.
nsenter --net=/run/netns/host2 timeout 30 ./dicomm-info --job >"$out/asked" 2>&1
grep -q '[1-9][0-9]* retransmits$' "$out/asked" ||
	fail "nothing was sent again on host 2: $(cat "$out/asked")"
kill $3 $4 $5 $6
grep -h 'host has not answered for' "$out"/[01]
exit $bad
