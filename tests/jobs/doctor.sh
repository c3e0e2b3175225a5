#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-info --doctor on machines that are folders: one where all is well, one
# where all is wrong, and one of which nothing is known.
. "${srcdir:-.}/tests/jobs/perf.sh"
DICOMM_SOCKET_IFNAME=lo
DICOMM_DEBUG=none
export DICOMM_SOCKET_IFNAME DICOMM_DEBUG
unset LD_LIBRARY_PATH

doctor() { # status, arguments
	expected=$1
	shift
	last="dicomm-info --doctor $*"
	timeout 60 ./dicomm-info --doctor "$@" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$expected" ] ||
		fail "$last: status $status, not $expected"
}

says() { # verdict, check, what is seen
	has "^check  *$1  *$2: $3"
}

put() { # file, text
	mkdir -p "$tree/${1%/*}"
	printf '%s\n' "$2" >"$tree/$1"
}

limits() { # files, hard limit of files, locked, processes
	put proc/self/limits "Limit             Soft Limit  Hard Limit  Units
Max processes     $4          $4          processes
Max open files    $1          $2          files
Max locked memory $3          $3          bytes"
}

port() { # adapter, link layer, state
	put "sys/class/infiniband/$1/ports/1/link_layer" "$2"
	put "sys/class/infiniband/$1/ports/1/state" "$3"
	put "sys/class/infiniband/$1/ports/1/rate" '100 Gb/sec (4X EDR)'
}

gid() { # index, type, gid
	put "sys/class/infiniband/mlx5_1/ports/1/gids/$1" "$3"
	put "sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/$1" "$2"
}

pci() { # address, class, vendor, IOMMU
	put "sys/bus/pci/devices/$1/class" "$2"
	put "sys/bus/pci/devices/$1/vendor" "$3"
	put "sys/bus/pci/devices/$1/iommu_group/type" "$4"
}

# The configuration of a bridge: an error report first, then ACS with these bits
acs() { # control
	config=$tree/sys/bus/pci/devices/0000:00:01.0/config
	pci 0000:00:01.0 0x060400 0x8086 DMA
	head -c 256 /dev/zero >"$config"
	printf '\001\000\001\024' >>"$config" # at 0x100; the next is at 0x140
	head -c 60 /dev/zero >>"$config"
	printf "\\015\\000\\001\\000\\000\\000\\$1\\000" >>"$config"
	head -c 128 /dev/zero >>"$config"
}

# --- all is wrong ------------------------------------------------------------

tree=$out/wrong
limits 256 1024 65536 40
put proc/self/status 'CapEff:	0000000000000000'
put proc/self/cgroup '0::/job/step'
put sys/fs/cgroup/job/cpu.max '50000 100000'
put sys/fs/cgroup/job/step/cpu.max 'max 100000'
put sys/fs/cgroup/job/memory.max 1073741824
put sys/fs/cgroup/job/memory.current 1063004406
put sys/fs/cgroup/job/step/memory.max max
put sys/fs/cgroup/job/step/pids.max 100
put sys/fs/cgroup/job/step/pids.current 90
put proc/sys/kernel/yama/ptrace_scope 1
for cpu in 0 1 2 3; do
	put sys/devices/system/cpu/cpu$cpu/cpufreq/scaling_governor powersave
done
put sys/devices/system/cpu/cpu3/cpufreq/scaling_governor performance
put sys/devices/system/clocksource/clocksource0/current_clocksource hpet
put sys/class/net/eth7/operstate up
put sys/class/net/eth7/mtu 1500
put sys/class/net/eth7/speed 100000
put sys/class/net/eth8/operstate down
put sys/class/net/eth8/mtu 900
put sys/class/net/tun0/operstate up
put sys/class/net/tun0/mtu 1280
port mlx5_0 InfiniBand '2: INIT'
port mlx5_1 Ethernet '4: ACTIVE'
gid 0 'IB/RoCE v1' fe80:0000:0000:0000:0000:00ff:fe00:0001
gid 1 'RoCE v2' 0000:0000:0000:0000:0000:0000:0000:0000
pci 0000:01:00.0 0x030200 0x10de DMA-FQ
pci 0000:02:00.0 0x020000 0x15b3 DMA
mkdir -p "$tree/sys/bus/pci/devices/0000:02:00.0/infiniband"
put sys/class/iommu/dmar0/x ''
put sys/module/nvidia/version 535.104.05
acs 035
put usr/lib64/libucp.so.0.0.0 ''
put opt/hpcx/ucx/lib/libucp.so.0 ''
ln -s libucp.so.0.0.0 "$tree/usr/lib64/libucp.so.0"
ln -s lib64 "$tree/usr/lib"

DICOMM_PORT_RANGE=31000-31003 doctor 1 --root "$tree" --ranks 512
says warn ports '4 of 31000-31003 can be bound; for 4 ranks; wanted: 2 for'
says warn address '127.0.0.1 of lo, which is this host only'
says warn mtu 'eth7: 1500, 100 Gbit/s; wanted: .*9000.*mend: ip link set'
says warn mtu 'tun0: 1280; '
! grep -q eth8 "$out/table" || fail "$last: an interface that is down"
says bad 'open files' \
	'soft limit 256, hard limit 1024; for 512 ranks; wanted: .*mend: ulimit'
says bad 'locked memory' '64.0 KB; wanted: unlimited.*mend: ulimit -l'
says warn processes '40; for 4 ranks of this host'
says warn 'cgroup pids' '100, 90 in use; for 4 ranks'
says warn 'cgroup memory' '1.00 GB, 1014 MB in use'
says warn 'cgroup cpu' '0.5 cpus; for 4 ranks'
says warn 'ptrace scope' '1; wanted: 0.*mend: sysctl -w kernel.yama.ptr'
says '[a-z]*' /dev/shm 'not known'
says warn 'cpu governor' 'powersave on 3 of 4 cpus; '
says warn 'clock source' 'hpet; '
says warn 'rdma port' 'mlx5_0:1: 2: INIT, InfiniBand, 100 Gb/sec'
says ok 'rdma port' 'mlx5_1:1: 4: ACTIVE, Ethernet, '
says warn 'rdma gid' 'mlx5_1:1: index 0, RoCE v1, fe80::ff:fe00:1; '
says '[a-z]*' verbs '.*usable: '
says warn ucx '.*lib64/libucp.so.0.0.0, .*/opt/hpcx/ucx/lib/libucp.so.0; '
says '[a-z]*' 'device driver' \
	'cuda: 1 on the bus, [0-9]* usable, version 535.104.05'
says warn iommu 'on; translates for 2 of 2 GPUs and RDMA adapters; '
says warn 'pci acs' 'on, of 1 of 1 bridges; '

# One that is bad gives its status; the same for fewer ranks, and by root
limits 256 1024 65536 40
put proc/self/status 'CapEff:	0000000000004000'
doctor 0 --root "$tree" --ranks 192
says ok 'open files' 'soft limit 256, hard limit 1024; for 192 ranks$'
says ok 'locked memory' '64.0 KB, and CAP_IPC_LOCK lifts it$'
doctor 1 --root "$tree" --ranks 193
says bad 'open files' 'soft limit 256, hard limit 1024; for 193 ranks; '
DICOMM_IB_GID_INDEX=1 doctor 1 --root "$tree"
says bad 'rdma gid' 'mlx5_1:1: index 1 is empty; '

# --- all is well --------------------------------------------------------------

tree=$out/well
limits 1024 1048576 unlimited unlimited
put proc/self/cgroup '11:cpu,cpuacct:/a
4:memory:/a/b
3:pids:/'
put sys/fs/cgroup/cpu/cpu.cfs_quota_us -1
put sys/fs/cgroup/cpu/cpu.cfs_period_us 100000
put sys/fs/cgroup/memory/memory.limit_in_bytes 9223372036854771712
put sys/fs/cgroup/memory/a/memory.limit_in_bytes 8589934592
put sys/fs/cgroup/memory/a/memory.usage_in_bytes 1073741824
put sys/fs/cgroup/pids/pids.max 4096
put sys/fs/cgroup/pids/pids.current 17
put proc/sys/kernel/yama/ptrace_scope 0
put proc/sys/net/ipv4/ip_local_port_range '32768	60999'
put sys/devices/system/cpu/cpu0/cpufreq/scaling_governor performance
put sys/devices/system/clocksource/clocksource0/current_clocksource tsc
put sys/class/net/eth7/operstate up
put sys/class/net/eth7/mtu 9000
put sys/class/net/eth7/speed 100000
put sys/class/net/lo/operstate unknown
put sys/class/net/lo/mtu 65536
port mlx5_1 Ethernet '4: ACTIVE'
gid 0 'IB/RoCE v1' 0000:0000:0000:0000:0000:ffff:0a00:0001
gid 1 'RoCE v2' fe80:0000:0000:0000:0000:00ff:fe00:0001
gid 3 'RoCE v2' 0000:0000:0000:0000:0000:ffff:0a00:0001
pci 0000:01:00.0 0x030200 0x10de identity
put sys/class/iommu/dmar0/x ''
mkdir -p "$tree/sys/module/nvidia_peermem"
acs 021
doctor 0 --root "$tree"
says ok ports 'any of 32768-60999$'
says ok mtu 'eth7: 9000, 100 Gbit/s$'
! grep -q 'mtu: lo' "$out/table" || fail "$last: loopback"
says ok 'open files' 'soft limit 1024, hard limit 1048576; for 64 ranks$'
says ok 'locked memory' 'unlimited$'
says ok processes 'unlimited$'
says ok 'cgroup pids' '4096, 17 in use; for 1 ranks'
says ok 'cgroup memory' '8.00 GB, 1.00 GB in use$'
says ok 'cgroup cpu' 'no quota$'
says ok 'ptrace scope' '0$'
says ok 'cpu governor' 'performance on all cpus$'
says ok 'clock source' 'tsc$'
says ok 'rdma gid' 'mlx5_1:1: index 3, RoCE v2, ::ffff:10.0.0.1$'
says ok ucx 'none$'
says ok iommu 'on; translates for 0 of 1 GPUs and RDMA adapters$'
says ok 'pci acs' 'off$'
DICOMM_IB_GID_INDEX=1 doctor 0 --root "$tree"
says warn 'rdma gid' 'mlx5_1:1: index 1, RoCE v2, fe80::ff:fe00:1; '

# --- nothing is known ---------------------------------------------------------

tree=$out/nothing
doctor 0 --root "$tree"
for check in ports mtu 'open files' 'locked memory' processes 'cgroup pids' \
	'cgroup memory' 'cgroup cpu' 'ptrace scope' /dev/shm 'cpu governor' \
	'clock source' iommu; do
	says unknown "$check" 'not known'
done
# Nor of files that have what nobody expects
limits x y z u
put proc/self/cgroup '0::'
printf '\377\376\n' >"$out/bytes"
for file in proc/sys/kernel/yama/ptrace_scope proc/sys/net/ipv4/x \
	sys/class/infiniband/a/ports/1/state sys/class/infiniband/a/x \
	sys/devices/system/clocksource/clocksource0/current_clocksource; do
	put $file ''
	cp "$out/bytes" "$tree/$file"
done
acs 035
: >"$tree/sys/bus/pci/devices/0000:00:01.0/config"
pci 0000:01:00.0 0x030200 0x10de ''
doctor 0 --root "$tree" --json
for check in 'open files' 'cgroup cpu' 'pci acs'; do
	grep -A 2 "\"check\": \"$check\"" "$out/table" >"$out/row"
	grep -q '"verdict": "unknown"' "$out/row" ||
		fail "$last: $check is known"
	grep -q '"seen": "not known' "$out/row" || fail "$last: $check"
done
grep -q '"seen": "??",' "$out/table" || fail "$last: not UTF-8"
if command -v python3 >/dev/null; then
	python3 -c 'import json, sys
rows = json.load(open(sys.argv[1], encoding="utf-8"))["doctor"]
assert {"check", "verdict", "seen", "wanted", "mend"} == rows[0].keys()' \
		"$out/table" || fail "$last: JSON"
fi

# --- what it cannot do --------------------------------------------------------

DICOMM_SOCKET_IFNAME=nowhere doctor 1 --root "$out/well"
says bad address '.*DICOMM_SOCKET_IFNAME "nowhere".*; wanted: '
for peer in x host: host:0 host:70000 1:2:3 'a]:' ':x'; do
	doctor 6 "$peer"
	has "^dicomm-info: --doctor $peer: not HOST:PORT"
done
doctor 6 a:1 b:2
has '^dicomm-info: b:2: one too many'
last="dicomm-info --root"
./dicomm-info --root / >"$out/table" 2>"$out/errors"
[ $? -eq 6 ] || fail "$last: not status 6"
has '^dicomm-info: --root: only with --doctor'
exit $bad
