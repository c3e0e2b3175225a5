#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make check-gpu and perftest/gpu-bench from end to end: on the mock of CUDA,
# which says nothing about a GPU, and on a machine that has none.
top=$(cd "${srcdir:-.}" && pwd)
. "$top/tests/jobs/perf.sh"
if [ ! -e tests/mock/libcuda.so ]; then
	echo "the mock drivers are not built"
	exit 77
fi
if [ ! -e src/accel/kernels/ptx_f32.ptx ]; then
	echo "this build has no kernels for the mock of CUDA"
	exit 77
fi

ends() { # STATUS COMMAND...
	expected=$1
	shift
	"$@" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$expected" ] || fail "$*: status $status, not $expected"
}

ends 0 bash "$top/perftest/gpu-bench" -m
has '^\*\*mock: '
has 'ok: dicomm-perf allreduce .* --ranks 8 --device cuda:0'
has 'ok: dicomm-perf broadcast .* --device 0=cuda:0,1=host'
has 'not run: compute-sanitizer: the driver is a mock'
has '^| copy: a read and a write | [0-9.]* | |'
has '^| sum of bfloat16: two reads and a write | [0-9.]* | [0-9]* %'
has 'All-reduce of 16KiB between two ranks of one process takes [0-9]'
has 'it is 5 times:$'
# By the rate of the copy, 4 and 5 times 16 KiB
awk '/^\| copy:/ { once = 16384 / $9 / 1e3 }
	/written, at the/ { four = $(NF - 6) }
	/read and written once more:/ { five = $(NF - 3) }
	function is(x, y) { return x - y < 0.06 && y - x < 0.06 }
	END { exit !(once && is(four, 4 * once) && is(five, 5 * once)) }' \
	"$out/table" || fail "the bounds are not 4 and 5 times the message"
has 'All-reduce of 8 B on streams of the device: [0-9.]* us; two kernels'
has '^9 passed, 0 failed, 1 skipped$'
# Elsewhere, for the same program may be running here.
mkdir -p "$out/build/tests/jobs" "$out/build/tests/bench"
for name in dicomm-info dicomm-perf tests/bench/device tests/mock \
	tests/jobs/test_device_streams; do
	ln -s "$PWD/$name" "$out/build/$name"
done
CK_RUN_CASE=refusals DICOMM_TEST_GPU=mock ends 0 \
	bash "$top/tests/gpu/check" "$out/build" tests/jobs/test_device_streams
has '^check-gpu: mock: '
has '^check-gpu: test_device_streams: PASS'
has '^| every type and operator, 2 ranks on it *| ok '
has '^| all-reduce of 8 B on streams *| [ob]'
has '^| sum of float16 beside that copy *| [ob].* %'
has '^| graphs, captured and replayed *| not run '
has '^| all-reduce of 16K, 2 ranks on one GPU *| [ob]'
has '^| all-reduce of 4K, host and GPU *| ok '
has '^| all-reduce of 4K by islands of NCCL *| not run '
has '^| test_device_streams *| ok *| [1-9][0-9]* cases, 0 failed '
has '^[1-9][0-9]* passed, 0 failed, 0 skipped$'

./dicomm-info --devices >"$out/table" 2>&1
if ! grep -q 'device *cuda:0' "$out/table"; then
	ends 77 bash "$top/perftest/gpu-bench"
	has 'gpu-bench: no GPU: cuda none: no CUDA driver: '
	ends 77 bash "$top/tests/gpu/check" "$out/build"
	has 'check-gpu: no GPU: cuda *none: no CUDA driver: '
	has '^0 passed, 0 failed, 7 skipped$'
fi
exit $bad
