#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-info --job HOST:PORT: a job of two hosts, which are network namespaces,
# asked from a third one: all of it, by who has the secret; a rank that is stopped;
# garbage; and another job that wants the port.
top=${srcdir:-.}
if [ "$1" != --inside ]; then
	exec sh "$top/tests/net/hosts" 3 sh "$0" --inside
fi
. "$top/tests/jobs/perf.sh"
at=10.77.0.1:5000
DICOMM_BOOTSTRAP_TIMEOUT=50
export DICOMM_BOOTSTRAP_TIMEOUT

on() { # host, command
	host=$1
	shift
	nsenter --net=/run/netns/"$host" "$@"
}

# Starts a rank that goes on until it is killed; $! is its process.
start() { # rank, of how many, host, secret
	DICOMM_RANK=$1 DICOMM_SIZE=$2 DICOMM_COMM_ID=$at DICOMM_COMM_KEY=$4 \
		nsenter --net=/run/netns/"$3" $perf allreduce -b 8 -e 8 \
		-n 1000000000 >"$out/rank$4$1" 2>&1 &
}

stop_all() {
	for pid in $ranks; do
		kill -KILL "$pid"
		wait "$pid"
	done 2>/dev/null
	ranks=
}
trap 'stop_all; rm -rf "$out"' EXIT
ranks=

ask() { # status, secret
	begin=$(date +%s)
	DICOMM_COMM_KEY=$2 on host2 timeout 60 ./dicomm-info --job "$at" \
		>"$out/table" 2>"$out/errors"
	status=$?
	took=$(($(date +%s) - begin))
	[ $status -eq "$1" ] || fail "secret $2: status $status, not $1"
}

# Asks until all ranks have told.
await() { # secret, words
	tries=0
	until ask_quietly "$1" && grep -q "$2" "$out/table"; do
		tries=$((tries + 1))
		if [ $tries -ge 100 ]; then
			fail "never said '$2'"
			exit 1
		fi
		sleep 0.2
	done
}

ask_quietly() { # secret
	DICOMM_COMM_KEY=$1 on host2 timeout 60 ./dicomm-info --job "$at" \
		>"$out/table" 2>"$out/errors"
}

descriptors() {
	find "/proc/$first/fd" -mindepth 1 | wc -l
}

# --- all of a job ----------------------------------------------------------------

for rank in 0 1 2 3; do
	start $rank 4 host$((rank / 2)) sesame
	ranks="$ranks $!"
	[ $rank -gt 0 ] || first=$!
	last=$!
done
await sesame ': 4 ranks, 4 told$'
for rank in 0 1 2 3; do
	has "^rank       $rank: .*, device host, ready; calls: "
done

# --- who has no secret learns nothing ---------------------------------------------

ask 3 swordfish
has "job at $at: wrong secret: "
[ ! -s "$out/table" ] || fail "it tells"
ask 3 ''
has 'DICOMM_COMM_KEY is not set: a job tells only who has its secret'
if command -v python3 >/dev/null; then
	cat >"$out/garbage.py" <<'PYTHON'
import os, socket
for i in range(200):
    s = socket.create_connection(("10.77.0.1", 5000))
    s.sendall(os.urandom(300))
    s.close()
silent = [socket.create_connection(("10.77.0.1", 5000)) for i in range(200)]
PYTHON
	on host2 python3 "$out/garbage.py" || fail "garbage.py: $?"
fi

# --- who asks again and again costs nothing -----------------------------------------

await sesame ': 4 ranks, 4 told$'
before=$(descriptors)
tries=0
while [ $tries -lt 50 ]; do
	ask 0 sesame
	tries=$((tries + 1))
done
# The last connections may linger.
sleep 3
after=$(descriptors)
[ "$after" -le "$before" ] || fail "$before descriptors, then $after"

# --- a rank that is stopped -----------------------------------------------------------

kill -STOP "$last"
ask 0 sesame
has ': 4 ranks, 3 told$'
has '^silent     rank 3 (.* pid [0-9]*): no answer in 3 s$'
[ $took -lt 10 ] || fail "a stopped rank: the answer took $took s"
kill -CONT "$last"
await sesame ': 4 ranks, 4 told$'

# --- another job that meets at the same place ---------------------------------------------

old=$ranks
start 0 1 host0 barley
ranks="$old $!"
await barley ': 1 ranks, 1 told$'
for pid in $old; do
	kill -0 "$pid" || fail "rank $pid of the first job has ended"
done
stop_all

# --- what was told before rank 0 dies --------------------------------------------------------

start 0 2 host0 oats
ranks=$!
start 1 2 host1 oats
last=$!
ranks="$ranks $last"
await oats ': 2 ranks, 2 told$'
kill -STOP "$last"
{
	sleep 1
	kill -KILL "${ranks%% *}"
} &
ask 3 oats
has "job at $at: "
has '^rank       0: '
stop_all

# --- who does not want it -------------------------------------------------------------------

export DICOMM_JOB_PORT=off
start 0 1 host0 sesame
ranks=$!
tries=0
until on host0 ./dicomm-info --job "$ranks" 2>/dev/null |
	grep -q ', ready; '; do
	tries=$((tries + 1))
	[ $tries -lt 100 ] || break
	sleep 0.2
done
ask 3 sesame
has "job at $at: Connection refused (is this the port "
exit $bad
