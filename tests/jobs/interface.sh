#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The first interface of each host has the same address everywhere and leads to
# nobody (a NAT of virtual machines); the second one leads to the others. Ranks
# that are told the address of rank 0 there find the second one by themselves,
# and DICOMM_SOCKET_IFNAME still has the last word. Where that one swallows what
# is sent, as a firewall does, the error names the address and the port.
top=${srcdir:-.}
if [ ! -x examples/allreduce ]; then
	echo "no examples/allreduce"
	exit 77
fi
if [ "$1" != --inside ]; then
	exec sh "$top/tests/net/hosts" 2 sh "$0" --inside
fi
PATH=$PATH:/usr/sbin:/sbin # of ip
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT

ip link add br1 type bridge && ip link set br1 up || exit 99
for i in 0 1; do
	ip -n host$i addr flush dev eth0 &&
		ip -n host$i addr add 10.0.2.15/24 dev eth0 &&
		ip link add w$i type veth peer name eth1 netns host$i &&
		ip link set w$i master br1 up &&
		ip -n host$i addr add 10.78.0.$((i + 1))/24 dev eth1 &&
		ip -n host$i link set eth1 up || exit 99
done

# What dicomm-info says of it, before anybody listens
network() { # host, what it should say
	[ -x dicomm-info ] || return 0
	DICOMM_COMM_ID=10.78.0.1:7777 nsenter --net=/run/netns/host$1 \
		./dicomm-info --network >"$out/network" 2>&1
	grep -q "^network    $2" "$out/network" && return
	echo "not ok: dicomm-info on host $1, not $2:"
	cat "$out/network"
	exit 1
}

rank() { # rank, command
	DICOMM_RANK=$1 DICOMM_SIZE=2 DICOMM_HOSTID=host$1 \
		DICOMM_COMM_ID=10.78.0.1:7777 DICOMM_COMM_KEY=test \
		DICOMM_BOOTSTRAP_TIMEOUT=$2 \
		nsenter --net=/run/netns/host$1 timeout 90 \
		examples/allreduce >"$out/$1" 2>&1
}

both() { # seconds of the bootstrap
	rank 0 "$1" &
	rank 1 "$1"
	status=$?
	wait $! && [ $status -eq 0 ]
}

network 0 'eth1  *10\.78\.0\.1: it leads to where ranks meet$'
network 1 'eth1  *10\.78\.0\.2: it leads to where ranks meet$'
if ! both 60; then
	echo "not ok: the interface that leads to rank 0 was not found"
	cat "$out/0" "$out/1"
	exit 1
fi
cat "$out/0" "$out/1"
DICOMM_SOCKET_IFNAME=eth0
export DICOMM_SOCKET_IFNAME
network 1 'eth0  *10\.0\.2\.15: DICOMM_SOCKET_IFNAME$'
if both 3; then
	echo "not ok: DICOMM_SOCKET_IFNAME=eth0 was not taken"
	exit 1
fi
grep -h ERROR "$out/0" "$out/1" | head -n 2

# Nobody has the address of the link layer that each host knows of the other.
for i in 0 1; do
	ip -n host$i addr flush dev eth0 &&
		ip -n host$i addr add 10.79.0.$((i + 1))/24 dev eth0 &&
		ip -n host$i neigh add 10.79.0.$((2 - i)) dev eth0 \
			lladdr 02:00:00:00:00:99 nud permanent || exit 99
done
if both 80; then
	echo "not ok: the data went another way than by eth0"
	exit 1
fi
for i in 0 1; do
	grep -q "rank $((1 - i)): no answer to connect to 10.79.0.$((2 - i)):[0-9]* .*DICOMM_PORT_RANGE" \
		"$out/$i" && told=1
done
if [ -z "$told" ]; then
	echo "not ok: a port without an answer was not told"
	cat "$out/0" "$out/1"
	exit 1
fi
grep -h ERROR "$out/0" "$out/1" | head -n 2
echo "ok"
