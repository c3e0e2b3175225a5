#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The examples run, and print what they promise.
cd "${top_builddir:-.}" || exit 99
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0

# Start an example as that many processes; its output goes to $out/RANK. The
# port may be taken: try others, but look at nothing else than the first lines.
run() { # name, ranks, arguments
	name=$1
	ranks=$2
	shift 2
	try=0
	while [ $try -lt 3 ]; do
		port=$((20000 + ($$ * 7 + try * 1000) % 12000))
		pids=
		rank=0
		while [ $rank -lt "$ranks" ]; do
			DICOMM_RANK=$rank DICOMM_SIZE=$ranks DICOMM_COMM_KEY=test \
			DICOMM_COMM_ID=127.0.0.1:$port \
			DICOMM_BOOTSTRAP_TIMEOUT=20 DICOMM_TIMEOUT_MS=20000 \
				"examples/$name" "$@" >"$out/$rank" 2>"$out/$rank.err" &
			pids="$pids $!"
			rank=$((rank + 1))
		done
		failed=0
		for pid in $pids; do
			wait "$pid" || failed=1
		done
		[ $failed -eq 1 ] && grep -q 'Address already in use' \
			"$out"/*.err || break
		try=$((try + 1))
	done
	if [ $failed -eq 1 ]; then
		echo "examples/$name $* with $ranks ranks failed:"
		cat "$out"/*.err
		bad=1
	fi
}

expect() { # name, rank, line
	if ! grep -qxF "$3" "$out/$2"; then
		echo "examples/$1: rank $2 did not print '$3' but:"
		cat "$out/$2"
		bad=1
	fi
}

run allreduce 3
for rank in 0 1 2; do
	expect allreduce $rank "rank $rank: sum of ranks 3, ranks 3"
done

run pipeline_sendrecv 3
expect pipeline_sendrecv 2 "8 batches through 3 stages, 0 wrong"

run groups 4
for rank in 0 1 2 3; do
	expect groups $rank \
		"rank $rank: got $(((rank + 3) % 4)) from the one before"
done
expect groups 0 "rank 0: sum of row 1, of column 2"
expect groups 3 "rank 3: sum of row 5, of column 4"

if ! examples/several_ranks_one_process >"$out/0"; then
	echo "examples/several_ranks_one_process failed"
	bad=1
fi
expect several_ranks_one_process 0 "4 ranks in one thread, 0 wrong"

run kv_put 2
expect kv_put 0 "prefill: 64 blocks of 131072 bytes put"
expect kv_put 1 "decode: 64 blocks in order, 0 values wrong"

# Degrees and sizes that divide each other, and such that do not; fewer heads
# than ranks
run kv_pages 6 --tokens 150
pages() { # rank...
	for rank; do
		for way in plan puts sends; do
			expect kv_pages "$rank" \
				"rank $rank: by $way, 0 elements wrong"
		done
	done
}
pages 4 5
run kv_pages 5 --prefill 3 --from-page 7 --to-page 24 --heads 2 --tokens 50 \
	--width 16
pages 3 4
if examples/kv_pages --heads none 2>"$out/0" ||
	! grep -qxF -- '--heads: "none" is no number from 1 to 1048576' \
		"$out/0"; then
	echo "examples/kv_pages does not name a bad number: $(cat "$out/0")"
	bad=1
fi

for size in "--sequences 1048576 --tokens 1048576" \
	"--tokens 1048576 --heads 1048576" \
	"--sequences 1048576 --tokens 1 --layers 1048576"; do
	# shellcheck disable=SC2086 # words
	examples/kv_pages $size 2>"$out/0"
	if [ $? != 2 ] || ! grep -q 'more than [21]' "$out/0"; then
		echo "examples/kv_pages $size: $(cat "$out/0")"
		bad=1
	fi
done

run stage_boundary 6
for rank in 4 5; do
	expect stage_boundary $rank \
		"rank $rank: 4 batches of 524288 bytes, sent 262144 each, 0 wrong"
done

run weights 6
for rank in 4 5; do
	expect weights $rank \
		"rank $rank: 3 updates of 20 matrices by 4 messages, 0 wrong"
done
exit $bad
