#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Two doctors on two hosts, which are network namespaces: what they say of a
# path that is well, and at which step of one that is not.
top=${srcdir:-.}
if [ "$1" != --inside ]; then
	exec sh "$top/tests/net/hosts" 2 sh "$0" --inside
fi
PATH=$PATH:/usr/sbin:/sbin # of ip
. "$top/tests/jobs/perf.sh"

on() { # host, command
	host=$1
	shift
	nsenter --net=/run/netns/"$host" timeout 60 "$@"
}

says() { # verdict, check, what is seen
	has "^check  *$1  *$2: $3"
}

wait_for() { # text, file
	tries=0
	until grep -q "$1" "$2" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || return
		sleep 0.1
	done
}

# host1 listens, host0 connects.
both() { # status, what host0 calls
	expected=$1
	: >"$out/there"
	on host1 ./dicomm-info --doctor :5000 >"$out/there" 2>&1 &
	wait_for 'waiting for' "$out/there"
	last="--doctor $2"
	on host0 ./dicomm-info --doctor "$2" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$expected" ] || fail "$last: status $status"
	wait $!
	there=$?
}

# --- a path that is well ----------------------------------------------------------

DICOMM_PORT_RANGE=31000-31009 both 0 10.77.0.2:5000
[ $there -eq 0 ] || fail "$last: status $there there"
says ok 'peer connect' '10.77.0.2 port 5000: connected$'
says ok 'peer sees' '10.77.0.1$'
says ok 'round trip' '[0-9.]* us, at least [0-9.]* us$'
says ok 'large packets' '64 KiB pass$'
says ok 'peer back' 'port 31000: connected from 10.77.0.2$'
cp "$out/there" "$out/table"
says ok 'peer answer' '10.77.0.1 has connected$'
says ok 'peer back' '10.77.0.1 port 31000: connected$'

# --- what goes wrong -----------------------------------------------------------------

calls() { # status, peer
	last="--doctor $2"
	on host0 ./dicomm-info --doctor "$2" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$1" ] || fail "$last: status $status"
}

calls 1 10.77.0.2:5000
says bad 'peer connect' '10.77.0.2 port 5000: Connection refused; wanted: '
calls 1 'no such name:5000'
says bad 'peer name' 'no such name: '
# What is sent there reaches nobody, and nobody says so, as with a firewall.
ip -n host0 neigh add 10.77.0.9 lladdr 02:00:00:00:00:99 dev eth0 || exit 99
calls 1 10.77.0.9:5000
says bad 'peer connect' '10.77.0.9 port 5000: no answer in 5 s; wanted: '

# The switch drops large packets and tells nobody, unless it gets several in
# one piece, which no wire has.
ip -n host0 link set eth0 gso_max_segs 1 && ip link set v1 mtu 1000 || exit 99
both 1 10.77.0.2:5000
says ok 'round trip' '[0-9.]* us'
says bad 'large packets' 'no answer in 5 s; wanted: .*mend: equal MTU'
[ $there -eq 1 ] || fail "$last: status $there there"
ip link set v1 mtu 1500

# Others than a doctor, and one that cannot connect back
cat >"$out/peer.py" <<'PYTHON'
import socket, struct, sys
s = socket.create_server(("10.77.0.2", 5001))
print("listens", flush=True)
c, _ = s.accept()
if sys.argv[1] == "silent":
    c.recv(1000)
    c.recv(1000)
elif sys.argv[1] == "stranger":
    c.sendall(b"x" * 84)
    c.recv(84, socket.MSG_WAITALL)
    c.recv(1)
else:
    c.sendall(b"dicomm-doctor-01" + b"10.99.0.1".ljust(64, b"\0") + bytes(4))
    hello = c.recv(84, socket.MSG_WAITALL)
    assert hello[:16] == b"dicomm-doctor-01" and hello[16:26] == b"10.77.0.2\0"
    for n in 200 * [64] + [65536]:
        c.sendall(c.recv(n, socket.MSG_WAITALL))
    c.sendall(struct.pack(">I", 110))
    c.recv(1)
PYTHON
stranger() { # how
	: >"$out/there"
	on host1 python3 "$out/peer.py" "$1" >"$out/there" 2>&1 &
	wait_for listens "$out/there"
	calls 1 10.77.0.2:5001
	wait $! || fail "peer.py $1: $(cat "$out/there")"
}
if command -v python3 >/dev/null; then
	stranger silent
	says bad 'peer answer' 'no answer in 5 s; '
	stranger stranger
	says bad 'peer answer' 'it is no doctor of this version; '
	stranger blocked
	says warn 'peer sees' '10.99.0.1; here it is 10.77.0.1; '
	says ok 'large packets' '64 KiB pass$'
	says bad 'peer back' 'port [0-9]*: no answer in 5 s; wanted: '
fi

# --- a small /dev/shm -------------------------------------------------------------------

mkdir -p "$out/tree/dev/shm"
mount -t tmpfs -o size=64m none "$out/tree/dev/shm" || exit 99
on host0 ./dicomm-info --doctor --root "$out/tree" >"$out/table" 2>"$out/errors"
umount "$out/tree/dev/shm"
says warn /dev/shm '64.0 MB, 64.0 MB free; wanted: 1 GiB'
says ok address '10.77.0.1 of eth0$'
exit $bad
