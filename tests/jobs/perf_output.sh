#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-perf as its users see it: every operation is right for 1, 2 and 4
# ranks, what it prints has the columns of nccl-tests, its exit status tells what
# happened, and none of its processes stays behind.
. "${srcdir:-.}/tests/jobs/perf.sh"

# Each row: as many fields, of the kinds and in the columns that scripts expect.
# A field that is N/A for #wrong is one column narrower.
rows() { # number of rows, type (any if empty)
	awk -v want="$1" -v type="$2" '
	function bad(text) {
		printf "row %d: %s: %s\n", rows, text, $0
		failed = 1
	}
	/^#/ || /^$/ { next }
	{
		rows++
		if (NF != 13) bad(NF " fields")
		if ($1 !~ /^[0-9]+$/ || $2 !~ /^[0-9]+$/) bad("size, count")
		if (type != "" && $3 != type) bad("type")
		if (substr($0, 1, 12) + 0 != $1) bad("size column")
		if (substr($0, 13, 14) + 0 != $2) bad("count column")
		if (substr($0, 27, 10) !~ $3 "$") bad("type column")
		if (substr($0, 37, 8) !~ $4 "$") bad("redop column")
		if (substr($0, 45, 8) !~ $5 "$") bad("root column")
		if (substr($0, 53, 9) !~ $6 "$") bad("time column")
		if (substr($0, 62, 8) !~ $7 "$") bad("algbw column")
		if (substr($0, 70, 8) !~ $8 "$") bad("busbw column")
		if ($9 != "0" && $9 != "N/A") bad("wrong elements")
		if ($13 != "0" && $13 != "N/A") bad("wrong elements in place")
		if ($6 !~ /^[0-9.e+]+$/ || $6 <= 0) bad("time")
		if ($9 == "0" && $13 == "0" && length($0) != 118) bad("width")
	}
	END {
		if (rows != want) { print rows " rows, not " want; failed = 1 }
		exit failed
	}' "$out/table" || fail "rows of $last"
}

line() { # a line that must be in the table
	grep -qxF -e "$1" "$out/table" || fail "$last: no line '$1'"
}

# --- the frame ----------------------------------------------------------------

last="allreduce, 2 ranks"
perf 0 allreduce -b 8 -e 64K -f 8 -n 3 --ranks 2
rows 5 float
line '# Collective test starting: all_reduce_perf'
line '# nThread 1 nGpus 1 minBytes 8 maxBytes 65536 step: 8(factor) warmup iters: 1 iters: 3 agg iters: 1 validation: 1 graph: 0 unalign: 0'
line '# Using devices'
line '#                                                              out-of-place                       in-place          '
line '#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong '
line '#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         '
line '# Out of bounds values : 0 OK'
line '# Collective test concluded: all_reduce_perf'
grep -Eq '^# [a-z-]+ version [0-9.]+ nccl-headers=[0-9]+ nccl-library=[0-9]+$' \
	"$out/table" || fail "version line"
grep -Eq '^#  Rank  1 Group  0 Pid +[0-9]+ on +[^ ]+ device  0 \[0000:00:00\] host' \
	"$out/table" || fail "device line"
grep -Eq '^# Avg bus bandwidth    : [0-9.e+-]+ $' "$out/table" ||
	fail "bandwidth line"
[ -z "$(tail -n 1 "$out/table")" ] || fail "the last line is not empty"

last="additive steps"
perf 0 allreduce -b 1000 -e 4000 -i 1000 -f 1 -n 2 --ranks 2
rows 4 float

last="from zero bytes"
perf 0 allgather -b 0 -e 1K -f 4 -n 2 --ranks 2
rows 6 float

last="unchecked"
perf 0 allreduce -b 8 -e 8 -c 0 -n 2 --ranks 2
grep -Eq '^ +8 .*    N/A .*    N/A$' "$out/table" || fail "no N/A"

# --- every operation, by processes, threads and groups ---------------------------

for op in allreduce allgather reduce_scatter broadcast reduce alltoall gather \
	scatter sendrecv; do
	for how in '' '--ranks 2' '--ranks 4' '-t 2 -g 2'; do
		# In place it sends what it receives into at the same time: it is
		# timed, as nccl-tests do, and a race for who looks for such.
		case ${DICOMM_TEST_THREADS:-0},$op,$how in
		1,sendrecv,-t*) continue ;;
		esac
		last="$op $how"
		# shellcheck disable=SC2086 # several words on purpose
		perf 0 $op -b 0 -e 100K -f 37 -n 2 $how
		rows 4 float
	done
done
# One-sided operations are not in place; -u shifts the windows.
for how in 'put' 'put --ranks 4 -u 3' 'get --ranks 2 -y 0' \
	'get -t 2 -g 2 -m 2'; do
	last="$how"
	# shellcheck disable=SC2086
	perf 0 $how -b 0 -e 100K -f 37 -n 2
	rows 4 float
done
for how in '' '--ranks 2' '--ranks 4' '-t 2 -g 2'; do
	last="barrier $how"
	# shellcheck disable=SC2086
	perf 0 barrier -n 2 $how
	rows 1 none
done
last="alltoallv"
perf 0 alltoallv -b 64 -e 64K -f 32 -n 2 --ranks 4
grep -q PRINT_SUMMARY "$out/table" && fail "a summary that nobody asked for"
grep -v '^#' "$out/table" | awk 'NF && $9 != "0" { exit 1 }' || fail "$last"
export NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY=1
perf 0 alltoallv -b 64K -e 64K -n 2 --ranks 4
has '_SUMMARY: mode=generated nranks=4 total_bytes=65536 spread=1.000 time_usec='
printf '0 1024\n64 0\n' >"$out/matrix"
NCCL_TESTS_ALLTOALLV_MATRIX_FILE=$out/matrix \
	perf 0 alltoallv -b 1K -e 1K -n 2 --ranks 2 --explain
has '^#   alltoallv of 1024 bytes on 2 ranks'
has '_SUMMARY: mode=matrix nranks=2 matrix_dim=2 scale=1.000 time_usec='
has '^#   rank=0 send_bytes=1024 recv_bytes=64 alg_bw='
has '^#   rank=1 send_bytes=64 recv_bytes=1024 alg_bw='
# Both by the larger of the two, in the time of that line
awk -F '[ =]' '/time_usec=/ { us = $NF }
	/ rank=/ { alg = $(NF - 2); bus = $NF; n++; d = alg - 1.024 / us
		if (d > 0.02 || d < -0.02 || bus > alg) exit 1 }
	END { exit n != 2 }' "$out/table" || fail "bandwidths of the summary"
last="a summary of what takes longer than its call"
perf 0 alltoallv -b 1M -e 1M -n 5 -y 0 -C 1 --ranks 2
awk -F '[ =]+' '$2 == 1048576 { alg = $8 }
	/ rank=/ { n++; d = alg - $(NF - 2); if (d > 0.02 || d < -0.02) exit 1 }
	END { exit n != 2 }' "$out/table" || fail "$last"
unset NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY

last="every root"
perf 0 broadcast -b 1K -e 1K -r -1 -n 2 --ranks 4
rows 4 float

last="all types and operators"
for op in allreduce reduce_scatter reduce; do
	perf 0 $op -b 4K -e 4K -n 1 -w 0 -o all -d all --ranks 3
	rows 120
done

last="one size"
for size in 1M 16M; do
	perf 0 allreduce -b $size -e $size -n 1 -w 0 --ranks 2
	rows 1 float
	perf 0 allreduce -b $size -e $size -n 1 -w 0 --ranks 2 --mem alloc
	rows 1 float
done

# --- files ------------------------------------------------------------------------

last="JSON"
perf 0 allreduce -b 8 -e 64 -f 8 -n 5 -I 1 --ranks 2 -J "$out/a.json"
SLURM_JWT=hush DICOMM_COMM_KEY=hush perf 0 allreduce -b 8 -e 8 -n 5 --ranks 2 \
	-J "$out/a.json"
[ -s "$out/a.json.0" ] || fail "a taken name is not avoided"
! grep -q hush "$out/a.json.0" || fail "a secret is told"
if command -v python3 >/dev/null; then
	python3 - "$out/a.json" <<'PYTHON' || fail "$last"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 3
for key in ("start_time", "args", "env", "nccl_version", "end_time", "errors"):
    assert key in r, key
assert [d["rank"] for d in r["config"]["devices"]] == [0, 1]
assert r["config"]["step_factor"] == 8
assert len(r["results"]) == 2
for row in r["results"]:
    half, each = row["out_of_place"], row["out_of_place_per_iter"]
    assert half["nwrong"] == 0 and row["root"] == "    -1"
    times = each["times_us"]
    assert len(times) == 5 and len(each["per_process_max_times_us"]) == 2
    assert times == [max(t) for t in zip(*each["per_process_max_times_us"])]
    assert abs(each["min_us"] - min(times)) < 1e-6
    assert abs(each["max_us"] - max(times)) < 1e-6
    assert abs(each["avg_us"] - sum(times) / 5) < 1e-3
    assert each["p99_us"] == each["max_us"]
    assert abs(half["alg_bw"] - row["size"] / half["time"] / 1e3) < 1e-6
    assert abs(half["bus_bw"] - half["alg_bw"]) < 1e-9
assert r["out_of_bounds"] == {"count": 0, "okay": "true"}
PYTHON
fi
last="plot"
if command -v gnuplot >/dev/null; then
	perf 0 allreduce -b 8 -e 64K -f 8 -n 2 --ranks 2 --plot "$out/a.svg"
	grep -q '<svg' "$out/a.svg" || fail "no picture"
	perf 0 broadcast -b 8 -e 64K -f 8 -n 2 --ranks 2 -r -1 --plot "$out/a.svg"
	grep -q 'root 1 in place' "$out/a.svg" || fail "no legend for roots"
	last="one size"
	perf 0 allreduce -b 8 -e 8 -n 2 --ranks 2 --plot "$out/a.svg"
	grep -q 'float sum in place' "$out/a.svg" || fail "no legend"
	! grep "empty x range" "$out/errors" || fail "gnuplot complains"
	last="nothing to draw"
	perf 6 barrier --plot "$out/b.svg"
	has "^dicomm-perf: plot $out/b.svg: a barrier has no sizes"
	perf 1 allreduce -b 0 -e 0 -n 2 --plot "$out/b.svg"
	has "^dicomm-perf: plot $out/b.svg: no row has bytes"
	[ ! -e "$out/b.svg" ] || fail "a picture of nothing"
fi
(
	PATH=/nonexistent
	export PATH
	exec $perf allreduce -b 8 -e 8 --plot "$out/b.svg" 2>/dev/null
)
[ $? -eq 6 ] || fail "a missing gnuplot is not said at once"

# --- where there is no room ---------------------------------------------------------

# The table on what stands for a full disk; ranks of its own, or of a launcher.
full_table() { # arguments
	last="dicomm-perf $* >/dev/full"
	: >"$out/table"
	timeout 60 $perf "$@" >/dev/full 2>"$out/errors"
	status=$?
	[ $status -eq 1 ] || fail "$last: status $status, not 1"
	has '^dicomm-perf: standard output: not all of it could be written'
}

if [ -c /dev/full ]; then
	full_table allreduce -b 8 -e 1M -f 32 -n 2
	full_table allreduce -b 8 -e 1M -f 32 -n 2 --ranks 2
	full_table simulate --ranks 4 allreduce
	full_table --help
	ln -s /dev/full "$out/full.json"
	for how in '' '--ranks 2'; do
		last="JSON on a full disk $how"
		# shellcheck disable=SC2086
		perf 1 allreduce -b 8 -e 8 -n 2 $how -J "$out/full.json"
		has "^dicomm-perf: JSON report $out/full.json: No space left on"
	done
else
	echo "not tried: a full disk: there is no /dev/full"
fi
# What takes the place of what is closed differs from run to run.
for last in "all closed, 1" "all closed, 2" "all closed, 3" "all closed, 4"; do
	rm -f "$out/closed.json"
	timeout 60 $perf allreduce -b 1K -e 1K -n 2 --ranks 2 \
		-J "$out/closed.json" <&- >&- 2>&-
	status=$?
	[ $status -eq 1 ] || fail "$last: status $status, not 1"
	grep -q '"okay": "true"' "$out/closed.json" || fail "$last: no results"
done
last="JSON and a picture in a folder that is not there"
perf 6 allreduce -b 8 -e 8 -n 2 --ranks 2 -J "$out/none/a.json"
has "^dicomm-perf: JSON report $out/none/a.json: No such file or directory"
if command -v gnuplot >/dev/null; then
	for kind in svg png; do
		perf 1 allreduce -b 8 -e 64K -f 8 -n 2 --ranks 2 \
			--plot "$out/none/a.$kind"
		has "^dicomm-perf: plot $out/none/a.$kind: gnuplot failed"
		! grep -aq -e '<svg' -e IEND "$out/table" ||
			fail "the picture went to the table"
	done
	# One that finds room for half of the picture, and does not tell
	cat >"$out/gnuplot" <<-EOF
		#!/bin/sh
		trap '' XFSZ
		ulimit -f 4
		exec $(command -v gnuplot) "\$@"
	EOF
	chmod +x "$out/gnuplot"
	for kind in svg png; do
		last="a picture on a full disk: $kind"
		PATH=$out:$PATH perf 1 allreduce -b 8 -e 64K -f 8 -n 2 \
			--ranks 2 --plot "$out/full.$kind"
		has "^dicomm-perf: plot $out/full.$kind: not all of it could"
	done
fi

# --- ends -------------------------------------------------------------------------

perf 6 allreduce -G 1
perf 6 allreduce -n 99999999999
has '^dicomm-perf: iters 99999999999: not an integer from 1 to 2147483647'
NCCL_TESTS_SPLIT_MASK=zz perf 6 allreduce -b 8 -e 8
has '^dicomm-perf: NCCL_TESTS_SPLIT_MASK zz: no number'
NCCL_TESTS_SPLIT='MOD x' perf 6 allreduce -b 8 -e 8
has '^dicomm-perf: NCCL_TESTS_SPLIT .*x: no number'
NCCL_TESTS_SPLIT='MOD 2x' perf 6 allreduce -b 8 -e 8
has '^dicomm-perf: NCCL_TESTS_SPLIT .*2x: no number'
NCCL_TESTS_SPLIT='MOD 2' perf 6 broadcast -b 8 -e 8 -r -1 -n 2 --ranks 3
has '^dicomm-perf: root -1: the groups are of different sizes'
NCCL_TESTS_SPLIT='MOD 2' perf 0 broadcast -b 8 -e 8 -r -1 -n 2 --ranks 4
perf 6 nothing
perf 255 allreduce -b x
perf 0 allreduce --unknown
perf 6 broadcast -b 8 -e 8 -r 2 --ranks 2
perf 3 allreduce -b 8 -e 8 --device nothing:0 --ranks 2
DICOMM_DEVICE=0=host,1 perf 6 allreduce -b 8 -e 8 --ranks 2
# More than any machine has: sizes go down to what there is room for.
printf '0 1000000000000\n1000000000000 0\n' >"$out/matrix"
NCCL_TESTS_ALLTOALLV_MATRIX_FILE=$out/matrix \
	perf 6 alltoallv -b 1000G -e 1000G --ranks 2
has "the matrix needs"
NCCL_TESTS_MIN_BW=1e9 perf 7 allreduce -b 8 -e 8 -n 2 --ranks 2
NCCL_TESTS_MIN_BW=fast perf 6 allreduce -b 8 -e 8 -n 2 --ranks 2
has '^dicomm-perf: NCCL_TESTS_MIN_BW fast: no number'
NCCL_TESTS_MIN_BW=nan perf 6 allreduce -b 8 -e 8 -n 2
has '^dicomm-perf: NCCL_TESTS_MIN_BW nan: no number'

# On a terminal, which sweep is under way; the line goes before a row comes.
if command -v script >/dev/null; then
	script -qec "timeout 60 $perf allreduce -b 8 -e 64 -f 8 -n 3 --ranks 2" \
		/dev/null </dev/null >"$out/table" 2>"$out/errors" ||
		fail "dicomm-perf on a terminal: status $?"
	clear=$(printf '\r\033[K')
	grep -qF "${clear}1 of 2: float 8.00 B$clear           8 " "$out/table" &&
		grep -qF "${clear}2 of 2: float 64.0 B$clear          64 " \
			"$out/table" || fail "the progress line on a terminal"
	has 'Out of bounds values : 0 OK'
	script -qec "timeout 1 $perf allreduce -b 8 -e 8 -N 0" /dev/null \
		</dev/null >"$out/table" 2>"$out/errors"
	grep -qF "${clear}2: float 8.00 B$clear" "$out/table" ||
		fail "the progress of a sweep without end"
else
	echo "not tried: the progress line: there is no script(1)"
fi

wait_for_row() {
	tries=0
	until grep -q '^ *1024 ' "$out/table" || [ $tries -ge 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
}

# Kill a rank in the middle: the run ends with its status, and nobody stays.
$perf allreduce -b 1K -e 1K -N 0 --ranks 3 >"$out/table" 2>"$out/errors" &
job=$!
wait_for_row
# shellcheck disable=SC2046
kill -9 $(ps -o pid= -o args= --ppid $job | awk '/launched-rank=2 /{print $1}')
wait $job
status=$?
[ $status -eq 137 ] || fail "status $status after a rank was killed"
grep -q 'rank 2 (pid [0-9]*) was killed by signal 9' "$out/errors" ||
	fail "the killed rank is not named"

# What it had measured when it was asked to end is in the report.
if command -v python3 >/dev/null; then
	last="JSON at a signal"
	timeout 60 python3 - $perf "$out" <<'PYTHON' || fail "$last"
import json, os, signal, subprocess, sys
for how in [], ["--ranks", "2"]:
    for sig in signal.SIGTERM, signal.SIGINT:
        path = sys.argv[2] + "/early.json"
        p = subprocess.Popen([sys.argv[1], "allreduce", "-b", "1K", "-e", "1K",
                              "-N", "0", "-J", path] + how,
                             start_new_session=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
        while not p.stdout.readline().startswith("        1024 "):
            pass
        # The key of a terminal is for all of them.
        if sig == signal.SIGINT:
            os.killpg(p.pid, sig)
        else:
            p.send_signal(sig)
        p.communicate()
        assert p.returncode == (128 + sig if how else -sig), p.returncode
        r = json.load(open(path))
        assert r["results"][0]["size"] == 1024, r
        assert r["errors"], r
        assert "end_time" in r, r
        os.unlink(path)
PYTHON
fi

# What nohup ignores does not end it; what asks it to end does.
: >"$out/table"
(
	trap '' HUP
	exec $perf allreduce -b 1K -e 1K -N 0 --ranks 2
) >"$out/table" 2>"$out/errors" &
job=$!
wait_for_row
kill -HUP $job
sleep 0.3
kill $job
wait $job
status=$?
[ $status -eq 143 ] || fail "status $status after an ignored hangup"

# Who does not care for its children starts it.
if env --ignore-signal=CHLD true 2>/dev/null; then
	last="SIGCHLD ignored"
	timeout -k 1 20 env --ignore-signal=CHLD $perf allreduce -b 8 -e 8 \
		-n 2 --ranks 2 >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq 0 ] || fail "$last: status $status"
else
	echo "not tried: SIGCHLD ignored: env(1) cannot"
fi
# --- making and ending communicators ---------------------------------------------

perf 0 init --ranks 2 --repeats 3
for what in "first +2" "by id +3" "split +3" "destroy +3"; do
	grep -Eq "^ +$what( +[0-9]+\.[0-9]){3}\$" "$out/table" ||
		fail "no row '$what'"
done
perf 6 init --repeats 0
has 'not an integer from 1'
perf 6 init
has 'no launcher'

exit $bad
