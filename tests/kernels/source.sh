#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The source of the kernels as the C++ that HIP's run-time compiler takes, by
# the compiler that this is made of: the same kernels as from OpenCL C, which
# round and treat denormals alike. Nothing here runs.
if [ "${DEVICE_CLANG:-no}" = no ]; then
	echo "this build has no compiler for devices"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -r "$out"' EXIT
source=${srcdir:-.}/src/accel/kernels/reduce.cl
object=src/accel/kernels/gfx90a.co
hip='-x hip -nogpuinc -nogpulib --cuda-device-only --offload-arch=gfx90a'

# all MODE VALUE: does every kernel have that?
all()
{
	n=$(grep -c "\.amdhsa_$1 $2\$" "$out/hip")
	if [ "$n" -ne "$kernels" ]; then
		echo "of $kernels kernels, $n have $1 $2"
		exit 1
	fi
}

if ! echo '__attribute__((global)) void k(float *p) { *p += 1.5f; }' |
	"$DEVICE_CLANG" $hip -S -o /dev/null - 2>/dev/null; then
	echo "$DEVICE_CLANG does not compile HIP for gfx90a"
	exit 77
fi
"$DEVICE_CLANG" $hip -Wall -Wextra -Werror -Wno-unused-parameter -O1 \
	-ffp-contract=off -S -o "$out/hip" "$source" || exit 1
sed -n 's/.*\.amdhsa_kernel //p' "$out/hip" | sort >"$out/hip.kernels"
kernels=$(wc -l <"$out/hip.kernels")
if [ "$kernels" -eq 0 ]; then
	echo "no kernel seen; is this check blind?"
	exit 1
fi
if [ -e $object ]; then
	grep -ao '[a-z0-9_]*\.kd' $object | sed 's/\.kd//' | sort -u \
		>"$out/cl.kernels"
	if ! diff "$out/cl.kernels" "$out/hip.kernels"; then
		echo "< from OpenCL C, > from HIP"
		exit 1
	fi
fi
all float_round_mode_32 0
all float_round_mode_16_64 0
all float_denorm_mode_32 3
all float_denorm_mode_16_64 3
echo "$kernels kernels"
