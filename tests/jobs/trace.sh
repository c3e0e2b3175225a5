#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# DICOMM_TRACE: every operation of each process is in its file, with when and
# with whom; dicomm-info --trace makes one of them, also of files that end in
# the middle; bad files are named; a job goes on without its trace.
. "${srcdir:-.}/tests/jobs/perf.sh"
info=./dicomm-info

# Events of a kind in a file of --trace
events() { # name, file
	grep -o "\"name\":\"$1\"" "$2" | wc -l
}

is() { # what, wanted, got
	[ "$2" -eq "$3" ] || fail "$1: $3, not $2"
}

traced() { # file, arguments
	export DICOMM_TRACE="$1"
	shift
	perf 0 "$@"
	unset DICOMM_TRACE
}

last="a trace"
traced "$out/t" allreduce --ranks 2 -b 1K -e 64K -f 64 -n 7 -w 2
set -- "$out"/t.*.json
is "files of 2 ranks" 2 $#
one=$(events allreduce "$1")
is "operations of both ranks" "$one" "$(events allreduce "$2")"
# Two sizes, in and out of place, 2 + 7 times at least
[ "$one" -ge 36 ] || fail "only $one operations"
grep '"name":"allreduce"' "$1" >"$out/lines"
is "lines with times, bytes, algorithm and peers" "$one" "$(grep -cE \
	'"ph":"X".*"ts":[0-9.]+,"dur":[0-9.]+.*"call":"allreduce count [0-9]+ float32 sum".*"number":[0-9]+,"bytes":[0-9]+,"queued_us":[0-9.]+,"algorithm":"[a-z_]+","peers":\[\{"rank":[01],"sent":[0-9]+,"received":[0-9]+\}\]' \
	"$out/lines")"
# The first operation of a communicator has the same number on both.
is "number 1 of both" 2 "$(cat "$@" | grep -c '"allreduce.*"number":1,')"

last="--trace"
$info --trace "$1" "$2" >"$out/all" || fail "status $?"
is "operations of both" $((2 * one)) "$(events allreduce "$out/all")"
is "processes" 2 "$(grep -oE '"pid":[0-9]+' "$out/all" | sort -u | wc -l)"
grep -q '^{"displayTimeUnit":"ns","baseTimeNanoseconds":[0-9]*,"traceEvents":\[' \
	"$out/all" || fail "$(head -c 100 "$out/all")"

last="--trace of what a killed process has left"
head -c -50 "$1" >"$out/cut"
$info --trace "$out/cut" >"$out/all" || fail "status $?"
[ "$(events allreduce "$out/all")" -ge $((one - 1)) ] || fail "events are lost"

last="--trace once more, with its own output"
$info --trace "$out/all" "$2" >"$out/again" || fail "status $?"
[ "$(events allreduce "$out/again")" -ge $((2 * one - 1)) ] ||
	fail "events are lost"

last="--trace of no trace"
echo "what is this" >"$out/bad"
$info --trace "$1" "$out/bad" >"$out/none" 2>"$out/errors" && fail "status 0"
grep -q "bad: no events of a trace" "$out/errors" || fail "$(cat "$out/errors")"
[ ! -s "$out/none" ] || fail "it has printed something"
$info --trace 2>"$out/errors" && fail "status 0 without a file"
grep -q "no file" "$out/errors" || fail "$(cat "$out/errors")"
$info --trace "$out/missing" 2>"$out/errors" && fail "status 0"
grep -q "missing: No such file" "$out/errors" || fail "$(cat "$out/errors")"

last="a trace of sends and receives"
rm -f "$out"/t.*
traced "$out/t" sendrecv --ranks 2 -b 8 -e 8 -n 3 -w 0
for way in send recv; do
	n=$(cat "$out"/t.*.json | grep -c "\"call\":\"$way count 2 .*\"peers\"")
	[ "$n" -ge 6 ] || fail "$n times $way"
done

last="a trace of puts"
rm -f "$out"/t.*
traced "$out/t" put --ranks 2 -b 8 -e 8 -n 3 -w 0
cat "$out"/t.*.json | grep -q '"name":"put_signal".*"peer":1' || fail "no put"

last="a trace that has no place"
traced "$out/missing/%p" barrier --ranks 2 -n 3 -w 0
has "DICOMM_TRACE $out/missing/%p: .*: No such file.*; nothing is traced"
exit $bad
