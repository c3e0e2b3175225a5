#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A host of many network interfaces, all of which UCX may use: its address is
# long then. The host is a network namespace, of which UCX looks into /sys.
. "${srcdir:-.}/tests/jobs/perf.sh"
PATH=$PATH:/usr/sbin:/sbin # of ip

./dicomm-info --transports >"$out/table" 2>"$out/errors"
if ! grep -q 'ucx *usable' "$out/table"; then
	echo "no UCX: $(cat "$out/table")"
	exit 77
fi
cat >"$out/host" <<'END'
i=1
mount -t sysfs none /sys && ip link set lo up || exit
while [ $i -le "$1" ]; do
	ip link add a$i type veth peer name b$i &&
		ip addr add 10.77.$i.1/24 dev a$i &&
		ip link set a$i up && ip link set b$i up || exit
	i=$((i + 1))
done
shift
"$@"
END

inside() { # interfaces, command
	DICOMM_TRANSPORTS=ucx UCX_NET_DEVICES=all \
		timeout 60 unshare --user --map-root-user --net --mount \
		sh "$out/host" "$@" >"$out/table" 2>"$out/errors"
}

if ! inside 1 true; then
	echo "no network namespaces here: $(cat "$out/errors")"
	exit 77
fi

# --- in a card of usual size, and in one that is not -------------------------------

for interfaces in 5 24; do
	inside $interfaces $perf allreduce -b 8 -e 64K -f 8 -n 2 --ranks 4 ||
		fail "$interfaces interfaces: status $?"
	has ' OK$'
done

# --- longer than any may be --------------------------------------------------------

inside 40 $perf allreduce -b 8 -e 8 -n 1 --ranks 2
[ $? -eq 3 ] || fail "40 interfaces: status $?, not 3"
has 'ucx: its address has 1[0-9]* bytes, more than [0-9]*: .*UCX_NET_DEVICES'
exit $bad
