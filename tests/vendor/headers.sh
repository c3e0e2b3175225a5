#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What we declare of the drivers of CUDA and HIP and of their compilers, and
# what our mocks of them return, against headers of the vendors: the oldest and
# the newest CUDA that have all we use, from PyPI, Debian's HIP, and what is
# found where vendors install it or in CUDA_HEADERS and HIP_HEADERS (folders,
# with colons between). DICOMM_TEST_LONG adds the headers of HIP 7, from a wheel
# of 290 MB.
top=$(cd "${srcdir:-.}" && pwd) || exit 99
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0
seen=0

# compare SOURCE HEADER FOLDER...: if the header is in one of the folders
compare() {
	source=$top/tests/vendor/$1
	header=$2
	shift 2
	where=
	for folder; do
		[ ! -e "$folder/$header" ] || where=$folder
		shift
		set -- "$@" -isystem "$folder"
	done
	[ -n "$where" ] || return 0
	if ${CC:-cc} -std=gnu11 -I"$top" -I"$top/include" "$@" \
		-o "$out/compared" "$source" >"$out/log" 2>&1 &&
		"$out/compared" >"$out/log" 2>&1; then
		echo "ok $(cat "$out/log") ($where)"
	else
		echo "not ok $where:"
		head -n 20 "$out/log"
		bad=1
	fi
	seen=$((seen + 1))
}

part() {
	sh "$top/tests/vendor/part" "$@" 2>>"$out/missing"
}

# CUDA 11 lacks names that we use.
installed=$CUDA_HEADERS:/usr/local/cuda/include
IFS=:
for folder in $installed; do
	! grep -qs CAN_USE_STREAM_MEM_OPS_V1 "$folder/cuda.h" ||
		compare cuda_api.c cuda.h "$folder"
done
for folder in $HIP_HEADERS:${ROCM_PATH:-/opt/rocm}/include:/usr/include; do
	compare hip_api.c hip/hip_runtime_api.h "$folder"
done
unset IFS

if runtime=$(part pypi nvidia-cuda-runtime-cu12==12.0.107 '*/include/*'); then
	compiler=$(part pypi nvidia-cuda-nvrtc-cu12==12.0.140 '*/include/*')
	compare cuda_api.c cuda.h "$runtime/nvidia/cuda_runtime/include" \
		"$compiler/nvidia/cuda_nvrtc/include"
fi
if runtime=$(part pypi nvidia-cuda-runtime==13.5.37 '*/include/*'); then
	compare cuda_api.c cuda.h "$runtime/nvidia/cu13/include"
fi
if hip=$(part debian libamdhip64-dev); then
	compare hip_api.c hip/hip_runtime_api.h "$hip/usr/include"
fi
if [ -n "$DICOMM_TEST_LONG" ] &&
	hip=$(part pypi triton==3.9.0 '*/backends/amd/include/*'); then
	compare hip_api.c hip/hip_runtime_api.h \
		"$hip/triton/backends/amd/include"
fi

# Whether each of our numbers is compared, of every kind of device
numbers() {
	sed -n '/^enum {/,/^};/p' "$1" | grep -oE '^	[A-Z][A-Z0-9_]+'
}
uncompared() {
	for name in $(numbers "$top/$1"); do
		grep -qw "$name" "$top/$2" || {
			echo "not ok $2 lacks $name of $1"
			bad=1
		}
	done
	[ "$(numbers "$top/$1" | wc -l)" -gt 5 ] || {
		echo "not ok $1 has few numbers; is this check blind?"
		bad=1
	}
}
uncompared src/accel/cuda/api.h tests/vendor/cuda_api.c
uncompared src/accel/hip/api.h tests/vendor/hip_api.c
uncompared src/accel/opencl/api.h tests/unit/test_opencl_api.c
uncompared src/accel/ze/api.h tests/unit/test_ze_api.c
uncompared tests/mock/driver.h tests/vendor/cuda_api.c
uncompared tests/mock/driver.h tests/vendor/hip_api.c
uncompared tests/mock/rtc.h tests/vendor/cuda_api.c
uncompared tests/mock/rtc.h tests/vendor/hip_api.c

[ ! -e "$out/missing" ] || cat "$out/missing"
if [ $bad = 0 ] && [ $seen = 0 ]; then
	echo "skipped: there are no headers to compare with"
	exit 77
fi
exit $bad
