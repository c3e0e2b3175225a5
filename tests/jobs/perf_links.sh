#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-perf links on hosts that are network namespaces, one with a way of a
# tenth of the others': what it saves makes the library choose as a description
# by hand does. And dicomm-perf simulate, which shows what is chosen.
. "${srcdir:-.}/tests/jobs/perf.sh"
chips=${srcdir:-.}/tests/topo/four_chips.json

# --- what nobody has at hand ------------------------------------------------------

chosen() { # file, operation
	perf 0 simulate --topo "$1" "$2" --ranks 3 -b 8M -e 8M
	awk '!/^#/ { print $2 }' "$out/table"
}

# The thread sanitizer makes it twenty times slower.
many=${chips%.json}_4096.json n=4096
[ "${DICOMM_TEST_THREADS:-0}" = 0 ] || many=$chips n=1024
perf 0 simulate --topo "$many" allreduce --ranks $n -b 1K -e 1G
has '^ *1024 recursive_doubling '
has '^ *1073741824 hierarchical '
[ "$(grep -vc '^#' "$out/table")" -eq 11 ] || fail "not 11 sizes"
if command -v gnuplot >/dev/null; then
	perf 0 simulate --topo "$chips" broadcast --ranks 64 \
		--plot "$out/a.svg"
	grep -q '<svg' "$out/a.svg" || fail "no picture"
fi
perf 0 simulate --help
has '^Usage: dicomm-perf simulate OPERATION --ranks N '
perf 6 simulate
has 'which one'
perf 6 simulate allreduce
has 'ranks 0'
perf 6 simulate allreduce --ranks 2000 --topo "$chips"
has 'the cluster has 1024'
perf 6 simulate allreduce --ranks 4 -b 8M -e 1M
has '8388608 > 1048576'
perf 6 simulate nothing --ranks 4
has 'nothing'
# What can be read once is not taken for a cluster of one algorithm.
mkfifo "$out/fifo"
perf 6 simulate --topo "$out/fifo" allreduce --ranks 4
has '--topo .*/fifo: cannot be read several times'
# shellcheck disable=SC2002
cat "$chips" | DICOMM_TOPO_FILE=/dev/stdin timeout 60 $perf simulate \
	allreduce --ranks 4 >"$out/table" 2>"$out/errors"
[ $? -eq 6 ] || fail "a cluster that is gone when it is read again"
has '^dicomm-perf: simulate: invalid argument: topology file /dev/stdin'

# --- this machine -----------------------------------------------------------------

./dicomm-info --topo "$out/here.json" --dot >"$out/table" 2>"$out/errors" ||
	fail "dicomm-info --topo --dot"
has '^graph {'
has 'numa0'
has '"host" \[shape=component\]'
[ "$(tail -n 1 "$out/table")" = '}' ] || fail "the graph has no end"
DICOMM_TOPO_FILE=$out/here.json ./dicomm-info --explain allreduce --ranks 1 \
	>"$out/table" 2>"$out/errors" || fail "here.json is not read"
# One with two ports of which one is idle: the rate is that of the other.
mkdir -p "$out/class/infiniband/mlx5_9/device"
mkdir -p "$out/class/infiniband/mlx5_9/ports/1" \
	"$out/class/infiniband/mlx5_9/ports/2"
echo '10 Gb/sec (4X SDR)' >"$out/class/infiniband/mlx5_9/ports/1/rate"
echo '1: DOWN' >"$out/class/infiniband/mlx5_9/ports/1/state"
echo '200 Gb/sec (4X HDR)' >"$out/class/infiniband/mlx5_9/ports/2/rate"
echo '4: ACTIVE' >"$out/class/infiniband/mlx5_9/ports/2/state"
if unshare --user --map-root-user --mount \
	mount --bind "$out/class" /sys/class 2>/dev/null; then
	# shellcheck disable=SC2016
	unshare --user --map-root-user --mount sh -c '
		mount --bind "$1/class" /sys/class &&
		./dicomm-info --topo "$1/rdma.json"' sh "$out" \
		>"$out/table" 2>"$out/errors" || fail "a NIC of two ports"
	grep -q '"gbit_per_s": 200.0' "$out/rdma.json" ||
		fail "a NIC of two ports: $(cat "$out/rdma.json")"
	echo '1: DOWN' >"$out/class/infiniband/mlx5_9/ports/2/state"
	# shellcheck disable=SC2016
	unshare --user --map-root-user --mount sh -c '
		mount --bind "$1/class" /sys/class &&
		./dicomm-info --topo "$1/rdma.json"' sh "$out" \
		>"$out/table" 2>"$out/errors" || fail "an idle NIC"
	! grep -q gbit_per_s "$out/rdma.json" ||
		fail "an idle NIC: $(cat "$out/rdma.json")"
else
	echo "not tried: a NIC of two ports: nothing can be mounted"
fi
! ./dicomm-info --topo /nowhere/x.json >"$out/table" 2>"$out/errors" ||
	fail "a file that cannot be"
has 'topo /nowhere/x.json: No such file'

# --- links ------------------------------------------------------------------------

perf 0 links --help
has '^Usage: dicomm-perf links '
perf 6 links
has 'there is one rank'
perf 6 links --ranks 0
has 'ranks 0: not an integer from 2 to 4096'
perf 6 links --ranks 2 --seconds 0
has 'seconds 0'
perf 6 links --ranks 2 --save "$out/none.json"
has 'on one host'
perf 0 links --ranks 3 --seconds 0.002
has '^rank2 '
perf 6 links --ranks 2 --plot "$out/a.pdf"
has 'must end in .svg or .png'
if command -v gnuplot >/dev/null; then
	perf 0 links --ranks 3 --seconds 0.002 --plot "$out/a.png"
	# The first bytes of a PNG, and that there is more than them.
	head -c 8 "$out/a.png" | grep -q PNG &&
		[ "$(wc -c <"$out/a.png")" -gt 1000 ] || fail "no picture"
fi
(
	PATH=/nonexistent
	export PATH
	exec $perf links --ranks 2 --plot "$out/b.svg"
) >"$out/table" 2>"$out/errors"
[ $? -eq 6 ] || fail "a missing gnuplot is not said at once"
has 'needs gnuplot'
[ ! -e "$out/b.svg" ] || fail "a picture without gnuplot"
if [ "${DICOMM_TEST_THREADS:-0}" = 1 ]; then
	echo "the thread sanitizer takes longer than links: they are not measured"
	exit $bad
fi
# Two hosts that have one name, as containers may: each is measured, and the file
# names none, for then it goes by their order. (It may find islands, which have
# names, on a machine that does other things.) The port may be taken: try others.
for try in 0 1 2; do
	port=$((20000 + ($$ * 7 + try * 1000) % 12000))
	for rank in 1 0; do
		DICOMM_RANK=$rank DICOMM_SIZE=2 DICOMM_HOSTID=h$rank \
		DICOMM_COMM_ID=127.0.0.1:$port DICOMM_COMM_KEY=test \
		DICOMM_SOCKET_IFNAME=lo DICOMM_BOOTSTRAP_TIMEOUT=20 \
			timeout 60 $perf links --seconds 0.01 \
			--save "$out/twins.json" >"$out/twin.$rank" 2>&1 &
	done
	wait $!
	status=$?
	wait
	grep -q 'Address already in use' "$out/twin.0" || break
done
[ $status -eq 0 ] || fail "two hosts of one name: $(cat "$out/twin.0")"
[ "$(grep -c '"ranks": 1' "$out/twins.json")" -eq 2 ] &&
	! sed '/"islands"/,$d' "$out/twins.json" | grep -q '"name"' &&
	! grep -q '"inside' "$out/twins.json" ||
	fail "two hosts of one name: $(cat "$out/twins.json")"
perf 0 simulate --topo "$out/twins.json" allreduce --ranks 2 -b 1K -e 1K
DICOMM_DEBUG=warn
export DICOMM_DEBUG
timeout 100 sh "${srcdir:-.}/tests/net/shaped" "$out/links" \
	400mbit,400mbit,40mbit \
	"$PWD/dicomm-perf" links --seconds 0.1 --save "$out/measured.json" \
	>"$out/table" 2>"$out/errors"
case $? in
0) ;;
77) cat "$out/table" ;;
*) fail "links between hosts: $(cat "$out"/links.*)" ;;
esac
if [ -e "$out/measured.json" ]; then
	cat >"$out/by_hand.json" <<-END
		{"nodes": [{"name": "h0", "gbit_per_s": 0.4},
			   {"name": "h1", "gbit_per_s": 0.4},
			   {"name": "h2", "gbit_per_s": 0.04}]}
	END
	for op in allreduce allgather broadcast; do
		a=$(chosen "$out/measured.json" $op)
		b=$(chosen "$out/by_hand.json" $op)
		[ "$a" = "$b" ] || fail "$op: $a measured, $b by hand:" \
			"$(cat "$out/measured.json" "$out/links.0")"
	done
	echo "measured the links between three hosts"
	# What is simulated is what the library predicts when it is there: the
	# tree passes slices on, which are as long as the network's messages.
	perf 0 simulate --topo "$out/by_hand.json" allreduce --ranks 3 -b 1M \
		-e 1M
	a=$(awk '/^#  / { for (i = 4; i <= NF; i++) if ($i == "tree") at = i }
		!/^#/ { print $(at - 1) }' "$out/table")
	DICOMM_TOPO_FILE=$out/by_hand.json timeout 100 \
		sh "${srcdir:-.}/tests/net/shaped" "$out/there" \
		400mbit,400mbit,40mbit "$PWD/dicomm-perf" allreduce -b 1M \
		-e 1M -n 1 --explain >"$out/table" 2>"$out/errors"
	b=$(awk '$1 == "tree" || $2 == "tree" {
		print $1 == "tree" ? $2 : $3; exit }' "$out/there.0")
	[ -n "$a" ] && [ "$a" = "$b" ] ||
		fail "tree: $a us simulated, $b us there: $(cat "$out/there.0")"
	DICOMM_DEBUG=info timeout 100 sh "${srcdir:-.}/tests/net/shaped" \
		"$out/probe" 400mbit,400mbit,40mbit "$PWD/dicomm-perf" \
		barrier -n 1 >"$out/table" 2>"$out/errors" ||
		fail "the library between hosts: $(cat "$out"/probe.*)"
	# Of each host both ways; none by half of it off, and far from the others
	sed -n 's/.*measured the uplinks of 3 hosts (Gbit.s)://p' "$out/probe.0" |
		tr , '\n' | awk '{ w = NR % 3 ? 0.4 : 0.04; n++
			if ($1 < w / 2 || $1 > w * 2 || $3 < w / 2 ||
				$3 > w * 2) bad = 1 }
			END { exit bad || n < 3 }' ||
		fail "measured at init: $(cat "$out/probe.0")"
	# Nobody whom the first one meets is as fast as it; so it meets all of
	# them at once. Other work on this machine takes time as well: once more.
	for attempt in 1 2; do
		DICOMM_DEBUG=info timeout 100 \
			sh "${srcdir:-.}/tests/net/shaped" "$out/fast" \
			400mbit,100mbit,100mbit,100mbit "$PWD/dicomm-perf" \
			barrier -n 1 >"$out/table" 2>"$out/errors" ||
			fail "the library between hosts: $(cat "$out"/fast.*)"
		sed -n 's/.*measured the uplinks of 4 hosts (Gbit.s)://p' \
			"$out/fast.0" | tr , '\n' | awk '{ n++
				w = NR % 4 == 1 ? 0.3 : 0.1
				if ($1 < w * 0.7 || $1 > w * 1.5 ||
					$3 < w * 0.7 || $3 > w * 1.5) bad = 1 }
				END { exit bad || n < 4 }' && break
		[ $attempt -eq 1 ] ||
			fail "one fast host at init: $(cat "$out/fast.0")"
	done
fi

# --- two islands ------------------------------------------------------------------

# The rates of the file $out/islands.json, each within a quarter of what it is;
# and who is where.
check_islands() {
	awk '
		BEGIN { way = 0 }
		/"islands": / { way = 1 }
		/"island": / { where = where $2 }
		/"(up|down)_gbit_per_s": / {
			n[way]++
			rate = way ? 0.1 : 0.4
			off = $2 / rate - 1
			bad = bad || off > 0.25 || off < -0.25
		}
		END {
			gsub("[^01]", "", where)
			exit bad || n[0] != 8 || n[1] != 4 || where != "0011"
		}' "$out/islands.json"
}

set --
! command -v gnuplot >/dev/null || set -- --plot "$out/islands.svg"
for attempt in 1 2; do
	timeout 100 sh "${srcdir:-.}/tests/net/shaped" "$out/islands" \
		400mbit,400mbit/100mbit/400mbit,400mbit "$PWD/dicomm-perf" \
		links --seconds 0.1 --save "$out/islands.json" "$@" \
		>"$out/table" 2>"$out/errors"
	status=$?
	if [ $status -eq 77 ]; then
		cat "$out/table"
		exit $bad
	fi
	[ $status -eq 0 ] || fail "two islands: $(cat "$out"/islands.?)"
	# Other work on this machine takes time as well: once more.
	check_islands && break
	[ $attempt -eq 1 ] || fail "two islands: $(cat "$out/islands.json")"
done
# Hosts on both axes of both maps
[ $# -eq 0 ] || [ "$(grep -c '>h3<' "$out/islands.svg")" -eq 4 ] ||
	fail "no picture of the islands"
exit $bad
