#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The secret of an id in DICOMM_COMM_ID or NCCL_COMM_ID is in no output of any
# tool, at any level of messages, whether the id is whole or damaged.
. "${srcdir:-.}/tests/jobs/perf.sh"
secret=Qm9nZW5zY2hsYWctR2VoZWltLUFiYzEyM19YWVpfNDI
port=$((20000 + $$ % 12000))
whole=dicomm1:127.0.0.1:$port:$secret
DICOMM_BOOTSTRAP_TIMEOUT=1
export DICOMM_BOOTSTRAP_TIMEOUT
runs=0

# All that a command says, whatever its status: to its output, to its file of
# messages, and to a report.
quiet() { # command, arguments
	runs=$((runs + 1))
	rm -f "$out"/said.*
	DICOMM_DEBUG_FILE=${file:+$out/said.file} timeout 60 "$@" \
		>"$out/said.out" 2>"$out/said.err"
	if grep -rq "$secret" "$out"/said.*; then
		fail "$*: DICOMM_COMM_ID=$DICOMM_COMM_ID" \
			"NCCL_COMM_ID=$NCCL_COMM_ID level $DICOMM_DEBUG" \
			"tells: $(grep -rh "$secret" "$out"/said.* | head -n 3)"
	fi
}

for variable in DICOMM_COMM_ID NCCL_COMM_ID; do
	for id in "$whole" "dicomm1:127.0.0.1:$port $secret" \
		"127.0.0.1:$port:$secret" "$secret" \
		"dicomm1:127.0.0.1:$secret:$port"; do
		unset DICOMM_COMM_ID NCCL_COMM_ID
		export "$variable=$id"
		for level in error warn info debug trace; do
			export DICOMM_DEBUG=$level
			quiet ./dicomm-info
			DICOMM_RANK=1 DICOMM_SIZE=2 quiet ./examples/allreduce
		done
		file=1
		quiet ./dicomm-info --config
		quiet ./dicomm-info --json
		file=
		quiet ./dicomm-info --machine --devices --paths --transports
		quiet ./dicomm-info --explain allreduce --ranks 4
		DICOMM_RANK=0 DICOMM_SIZE=2 quiet ./examples/allreduce
		DICOMM_RANK=1 DICOMM_SIZE=2 quiet $perf allreduce -e 8 \
			-J "$out/said.json"
	done
done
# Its own ranks meet elsewhere, so this one runs to its end and reports.
quiet $perf allreduce --ranks 2 -b 8 -e 8 -n 1 -w 1 -J "$out/said.json"
grep -q . "$out"/said.json* || fail "no report was written"
[ $runs -gt 100 ] || fail "only $runs commands were run"
exit $bad
