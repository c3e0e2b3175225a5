#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A link gets slower in the middle of a job, from 8 to 1, between hosts that are
# network namespaces: it is found, data stays right, and from the 20th operation
# on the time is near the least that the new rates allow. Once all need it, once
# it is that of the root, to which all sent.
. "${srcdir:-.}/tests/jobs/perf.sh"

if [ "${DICOMM_TEST_THREADS:-0}" = 1 ]; then
	echo "the thread sanitizer takes longer than a slow link"
	exit 77
fi
slow=100 # Mbit/s

# It drops after a second of operations, none of which takes less than 66 ms:
# when at most 22 of them are over, of the 42 before those in place are timed,
# and at least eight, from which the library learns what is usual.
drop() { # operation, bytes, rates, the host whose way drops
	rm -f "$out"/job.?
	DICOMM_DEBUG=info timeout 100 sh "${srcdir:-.}/tests/net/shaped" \
		"$out/job" "$3" "$PWD/dicomm-perf" "$1" -b "$2" -e "$2" \
		-w 10 -n 22 --stats >"$out/table" 2>"$out/errors" &
	job=$!
	# Not before the operations, whose communicator is the second one, run.
	while kill -0 $job 2>/dev/null &&
		[ "$(grep -c 'the uplinks of' "$out/job.0" \
			2>/dev/null)" != 2 ]; do
		sleep 0.05
	done
	sleep 1
	echo "$4 ${slow}mbit" >"$out/job.change"
	wait $job
}

# The bound: the slow way takes all of it once, and TCP carries 0.956 of a rate.
# Who has not seen the drop has had no operation that took so long.
is_back() { # bytes
	awk -v bound="$(awk "BEGIN { print $1 * 8 / (0.956 * $slow) }")" '
		/^ *[0-9]+ .* float / {
			n++
			printf "after the drop up to %d us, after 20 more " \
				"%d, where %d is the least\n", $16, $22, bound
			bad = $16 < bound || $22 > 1.3 * bound
		}
		END { exit n != 1 || bad }' "$out/job.0"
}

case_of() { # as drop()
	for attempt in 1 2; do
		drop "$@"
		status=$?
		if [ $status -eq 77 ]; then
			cat "$out/table"
			exit 77
		fi
		[ $status -eq 0 ] || fail "status $status: $(cat "$out"/job.?)"
		# Other work on this machine takes time as well: once more.
		is_back "$2" && break
		[ $attempt -eq 1 ] || fail "$1: the time is not back"
	done
	cp "$out/job.0" "$out/table"
	has 'the duration of operations has changed'
	has "^ *$2 .* float .* sum "
	awk '/^ *[0-9]+ .* float / && ($9 != 0 || $13 != 0) { exit 1 }' \
		"$out/job.0" || fail "$1: wrong data"
	# What was measured last: up and down of each host.
	sed -n 's/.*measured the uplinks of . hosts (Gbit.s)://p' "$out/job.0" |
		tail -n 1 | tr , '\n' | awk -v host="$4" '
			{ rate[NR - 1] = $1 > $3 ? $1 : $3 }
			END { for (h = 0; h < NR; h++)
					bad = bad || h != host &&
						rate[host] * 1.3 > rate[h]
				exit NR < 4 || bad }' ||
		fail "$1: host $4 is not the slow one"
}

case_of allreduce 4194304 800mbit,800mbit,800mbit,800mbit 3
case_of reduce 1048576 800mbit,800mbit,150mbit,150mbit,150mbit 0
exit $bad
