#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-info as its users see it: each part alone and all together, as text and
# as JSON; and what it was asked wrongly is named, with a status of its own.
. "${srcdir:-.}/tests/jobs/perf.sh"
DICOMM_DEBUG=none
export DICOMM_DEBUG

info() { # status, arguments
	expected=$1
	shift
	last="dicomm-info $*"
	timeout 60 ./dicomm-info "$@" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$expected" ] ||
		fail "$last: status $status, not $expected"
	[ "$expected" -ne 0 ] || [ ! -s "$out/errors" ] ||
		fail "$last: not without a word"
}

# The first words of all lines, each once, in the order they come in.
parts() { # words
	found=$(awk '/^[a-z]/ && !($1 in seen) { seen[$1]; printf "%s ", $1 }' \
		"$out/table")
	[ "$found" = "$* " ] || fail "$last: $found, not $*"
}

# --- the parts ----------------------------------------------------------------

info 0 --version
parts version library host
has '^version    [0-9]*\.[0-9]*\.[0-9]* (header [0-9]*, library [0-9]*)$'
has "^host       $(uname -n), Linux $(uname -r), "
info 0 --devices
parts device
has '^device     host '
info 0 --transports
parts transport
has '^transport  shm        usable'
has '^transport  verbs      '
has '^transport  tcp        usable'
has '^transport  ucx        '
# What is up depends on the machine; loopback is, or nothing (interface.sh).
info 0 --network
parts network
has '^network    [^ ]*  *[^ ]'
info 0 --paths
has '^path       host, host: '
# The name of one release before
info 0 --ways
has '^path       host, host: '
info 0 --machine
parts machine numa cache
has "^machine .*, $(getconf _NPROCESSORS_ONLN) cpus$"
has '^numa       node 0: [0-9.]* GiB, cpus 0'
has '^cache      .* KiB, lines of [0-9]*, shared by [0-9]* cpus$'

# Value and origin of each parameter, and beneath what it does
DICOMM_TIMEOUT_MS=7654 info 0 --config
parts parameter
has '^parameter  DICOMM_TIMEOUT_MS  *int  *7654  *(environment DICOMM_TIMEOUT_MS)$'
has '^parameter  DICOMM_BOOTSTRAP_TIMEOUT  *int  *60  *(default)$'
[ "$(grep -c '^parameter ' "$out/table")" -eq \
	"$(grep -c '^           .*; default ..*$' "$out/table")" ] ||
	fail "$last: a parameter without help or default"
has '^           .* (also read: NCCL_IB_HCA); default '
info 0
parts version library host device transport network path machine numa cache parameter
info 0 --version --machine
parts version library host machine numa cache

# --- the table of algorithms ----------------------------------------------------

info 0 --explain allreduce --ranks 8 --bytes 1M
has '^allreduce of 1048576 bytes on 8 ranks$'
has '^\*  *[a-z_]*  *[0-9.]*  chosen$'
[ "$(grep -c '^\*' "$out/table")" -eq 1 ] || fail "$last: not one is chosen"
DICOMM_ALGO=allreduce:ring info 0 --explain allreduce
has '^allreduce of 1048576 bytes on 2 ranks$'
has '^\*  *ring .* chosen$'
for op in allgather reduce_scatter broadcast reduce alltoall alltoallv gather \
	scatter barrier; do
	info 0 --explain $op --ranks 5 --bytes 64
	has "^$op of "
	has '^\* .* chosen$'
done

# --- JSON -----------------------------------------------------------------------

info 0 --json --job
has '^ "job": {$'
has '^  "comms": \['
has '^  "silent": \['
info 0 --json --explain broadcast --ranks 3
has '"explain": "broadcast of 1048576 bytes on 3 ranks'
if command -v python3 >/dev/null; then
	info 0 --json
	python3 - "$out/table" <<'PYTHON' || fail "$last"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version_code"] == r["header_code"], r
assert any(d["name"] == "host" for d in r["devices"]), r
assert any(t["name"] == "shm" and t["usable"] for t in r["transports"]), r
assert {"interface", "address", "reason"} == r["network"].keys(), r
assert r["numa"] and r["caches"] and r["paths"], r
assert r["paths"] == r["ways"], r
assert {"name", "type", "default", "value", "origin", "help"} <= \
	r["parameters"][0].keys(), r
PYTHON
	# A name that is not UTF-8, and one that is
	last="a variable of any bytes"
	DICOMM_DEBUG_FILE=$(printf '/tmp/\351.log') \
		DICOMM_TOPO_FILE=$(printf '/tmp/\303\251.json') \
		info 0 --json --config
	python3 - "$out/table" <<'PYTHON' || fail "$last"
import json, sys
r = json.load(open(sys.argv[1], encoding="utf-8"))
value = {p["name"]: p["value"] for p in r["parameters"]}
assert value["DICOMM_DEBUG_FILE"] == "/tmp/?.log", value
assert value["DICOMM_TOPO_FILE"] == "/tmp/\xe9.json", value
PYTHON
fi

# --- what it cannot do ------------------------------------------------------------

wrong() { # status, what is said, arguments
	expected=$1 said=$2
	shift 2
	info "$expected" "$@"
	grep -q "^dicomm-info: $said" "$out/errors" || fail "$last: no '$said'"
	[ ! -s "$out/table" ] || fail "$last: prints what was not understood"
}

wrong 6 '--colour: unknown option' --colour
wrong 6 'machine: one too many' machine
wrong 6 '--explain: missing argument' --explain
wrong 6 '--ranks 0: not positive' --explain allreduce --ranks 0
wrong 6 '--ranks -3: not positive' --explain allreduce --ranks -3
wrong 6 'two: invalid numeric value' --explain allreduce --ranks two
wrong 6 '99999999999: number too large' --explain allreduce --ranks 99999999999
wrong 6 '--ranks: only with --explain or --doctor' --ranks 8
wrong 6 '--bytes: only with --explain' --bytes 1M --version
wrong 6 '--dot: alone, or with --topo' --dot --json
wrong 6 '--dot: alone, or with --topo' --dot --version
wrong 6 '--job x1: neither a process number nor HOST:PORT' --job x1
wrong 6 '--job: not with --doctor' --job --doctor
wrong 3 '--job 4194305: no such process' --job 4194305
wrong 3 "--job $$: it has no communicator" --job $$
wrong 6 '--bytes 1Q: not a size' --explain allreduce --bytes 1Q
wrong 6 '--bytes -1: not a size' --explain allreduce --bytes -1
wrong 3 'explain nothing: invalid argument: .*nothing' --explain nothing
DICOMM_ALGO=allreduce:fastest wrong 3 \
	'explain allreduce: invalid argument: .*fastest' --explain allreduce
wrong 3 '--topo /nowhere/x.json: No such file' --topo /nowhere/x.json
info 0 --help
has '^Usage: dicomm-info'

# What cannot be written was not printed.
if [ -c /dev/full ]; then
	last="dicomm-info --version >/dev/full"
	./dicomm-info --version >/dev/full 2>"$out/errors"
	[ $? -eq 3 ] || fail "$last: not status 3"
	has '^dicomm-info: standard output: No space left on device'
fi
exit $bad
