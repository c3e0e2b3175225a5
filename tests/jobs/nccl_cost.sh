#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What NCCL's interface adds to an operation of a host rank: instructions of
# ncclAllReduce() less those of dicomm_allreduce(), by valgrind. At most 60, which
# is some 20 ns, whatever the size. An empty group takes at most 100; one of four,
# or of a send and a receive, at most 117/100 of one of the library.
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
compat=$PWD/.libs/dicomm/compat
if [ ! -e "$compat/libnccl.so.2" ]; then
	echo "this build has no libnccl.so.2"
	exit 77
fi
if ! command -v valgrind >/dev/null; then
	echo "valgrind is not installed"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
cat >"$out/cost.c" <<'END'
#include <stdlib.h>
#include <string.h>
#include <dicomm.h>
#include "compat/nccl/abi.h"
#define CALLS 1000
static float data[1 << 16];
/* In the place of a count */
#define EMPTY 1000000
#define GROUP 1000001
#define PAIR 1000002
static void pairs(ncclComm_t theirs, dicomm_comm_t ours)
{
	for (int i = 0; i < CALLS && theirs; i++) {
		ncclGroupStart();
		ncclSend(data, 64, ncclFloat32, 0, theirs, NULL);
		ncclRecv(data + 64, 64, ncclFloat32, 0, theirs, NULL);
		ncclGroupEnd();
	}
	for (int i = 0; i < CALLS && ours; i++) {
		dicomm_group_start();
		dicomm_send(data, 64, DICOMM_FLOAT32, 0, ours, NULL);
		dicomm_recv(data + 64, 64, DICOMM_FLOAT32, 0, ours, NULL);
		dicomm_group_end();
	}
}
static void groups(ncclComm_t theirs, dicomm_comm_t ours, size_t count)
{
	int calls = count == GROUP ? 4 : 0;

	if (count == PAIR) {
		pairs(theirs, ours);
		return;
	}
	for (int i = 0; i < CALLS && theirs; i++) {
		ncclGroupStart();
		for (int k = 0; k < calls; k++)
			ncclAllReduce(data, data, 64, ncclFloat32, ncclSum,
				      theirs, NULL);
		ncclGroupEnd();
	}
	for (int i = 0; i < CALLS && ours; i++) {
		dicomm_group_start();
		for (int k = 0; k < calls; k++)
			dicomm_allreduce(data, data, 64, DICOMM_FLOAT32,
					 DICOMM_SUM, ours, NULL);
		dicomm_group_end();
	}
}
/* Nothing else is counted. */
__attribute__((noinline)) void counted(ncclComm_t theirs, dicomm_comm_t ours,
				       size_t count);
void counted(ncclComm_t theirs, dicomm_comm_t ours, size_t count)
{
	if (count >= EMPTY) {
		groups(theirs, ours, count);
		return;
	}
	for (int i = 0; i < CALLS && theirs; i++)
		ncclAllReduce(data, data, count, ncclFloat32, ncclSum, theirs,
			      NULL);
	for (int i = 0; i < CALLS && ours; i++)
		dicomm_allreduce(data, data, count, DICOMM_FLOAT32, DICOMM_SUM,
				 ours, NULL);
}
int main(int argc, char **argv)
{
	size_t count = argc > 2 ? (size_t)atol(argv[2]) : 1;
	ncclComm_t theirs = NULL;
	dicomm_comm_t ours = NULL;
	dicomm_unique_id_t id;
	ncclUniqueId other;

	if (dicomm_get_unique_id(&id))
		return 1;
	memcpy(&other, &id, sizeof(other));
	if (argc > 1 && !strcmp(argv[1], "nccl")) {
		if (ncclCommInitRank(&theirs, 1, other, 0))
			return 1;
	} else if (dicomm_comm_init_rank(&ours, 1, id, 0)) {
		return 1;
	}
	if (count >= EMPTY) {
		groups(theirs, ours, count);
		counted(theirs, ours, count);
		return theirs ? ncclCommDestroy(theirs)
			      : dicomm_comm_destroy(ours);
	}
	/* The first is made ready. */
	for (int i = 0; i < 2; i++) {
		if (theirs && ncclAllReduce(data, data, count, ncclFloat32,
					    ncclSum, theirs, NULL))
			return 1;
		if (ours && dicomm_allreduce(data, data, count, DICOMM_FLOAT32,
					     DICOMM_SUM, ours, NULL))
			return 1;
	}
	counted(theirs, ours, count);
	return theirs ? ncclCommDestroy(theirs) : dicomm_comm_destroy(ours);
}
END
${CC:-cc} -O2 -I"$top/include" -I"$top" -o "$out/cost" "$out/cost.c" \
	-L"$compat" -L.libs -l:libnccl.so.2 -ldicomm \
	-Wl,-rpath,"$compat:$PWD/.libs" || exit 1

# Instructions of 1000 calls
instructions() { # interface, count
	timeout 100 valgrind --tool=callgrind --callgrind-out-file="$out/cg" \
		--toggle-collect=counted "$out/cost" "$1" "$2" \
		>"$out/log" 2>&1 || {
		cat "$out/log" >&2
		return 1
	}
	sed -n 's/.*Collected : //p' "$out/log"
}

bad=0
for count in 2 65536; do
	theirs=$(instructions nccl $count) && ours=$(instructions dicomm $count) ||
		exit 1
	added=$(((theirs - ours) / 1000))
	echo "$count floats: ncclAllReduce() $((theirs / 1000)) instructions," \
		"dicomm_allreduce() $((ours / 1000)): $added more"
	if [ "$ours" -lt 20000 ] || [ $added -lt 1 ] || [ $added -gt 60 ]; then
		echo "FAIL: not from 1 to 60 more"
		bad=1
	fi
done
empty=$(($(instructions nccl 1000000) / 1000))
echo "an empty group: $empty instructions"
if [ $empty -lt 1 ] || [ $empty -gt 100 ]; then
	echo "FAIL: not from 1 to 100"
	bad=1
fi
for group in 1000001 1000002; do
	theirs=$(instructions nccl $group) &&
		ours=$(instructions dicomm $group) || exit 1
	echo "a group of" \
		"$([ $group = 1000001 ] && echo four || echo send and receive):" \
		"$((theirs / 1000)) instructions, by dicomm.h $((ours / 1000))"
	if [ "$ours" -lt 20000 ] ||
		[ $((theirs * 100)) -gt $((ours * 117)) ]; then
		echo "FAIL: above 117/100"
		bad=1
	fi
done
exit $bad
