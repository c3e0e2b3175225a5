#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The SPIR-V of this build: valid, with the kernels that the PTX has, nothing
# contracted, and nothing asked of a device that the source does not need.
# Nothing here runs.
images=src/accel/kernels
if [ ! -e $images/spirv_f32.spv ]; then
	echo "this build has no SPIR-V"
	exit 77
fi
if ! command -v spirv-val >/dev/null || ! command -v spirv-dis >/dev/null; then
	echo "spirv-val and spirv-dis are missing (Debian: package spirv-tools)"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -r "$out"' EXIT
bad=0
wrong()
{
	echo "$file: $*"
	bad=1
}
for file in $images/spirv_*.spv; do
	type=${file#*spirv_}
	type=${type%.spv}
	spirv-val --target-env opencl2.1 "$file" || wrong "is not valid"
	spirv-dis --raw-id "$file" >"$out/text" || wrong "does not read"
	sed -n 's/.*OpEntryPoint Kernel %\([0-9]*\) "\(.*\)".*/\2 \1/p' \
		"$out/text" | sort >"$out/kernels"
	[ -s "$out/kernels" ] || wrong "has no kernel"
	if [ -e $images/ptx_"$type".ptx ]; then
		sed -n 's/.*\.entry \([a-z0-9_]*\).*/\1/p' \
			$images/ptx_"$type".ptx | sort >"$out/wanted"
		cut -d' ' -f1 "$out/kernels" | diff "$out/wanted" - ||
			wrong "has other kernels than the PTX"
	fi
	while read -r kernel id; do
		grep -q "OpExecutionMode %$id LocalSize 256 1 1" "$out/text" ||
			wrong "$kernel is not of blocks of 256"
		case $type-$kernel in
		i*) ;;
		*_sum_* | *_avg_*)
			grep -q "OpExecutionMode %$id ContractionOff" \
				"$out/text" || wrong "$kernel may be contracted"
			;;
		esac
	done <"$out/kernels"
	grep OpExtInst "$out/text" | grep -v OpExtInstImport &&
		wrong "calls a library"
	sed -n 's/.*OpCapability //p' "$out/text" | while read -r needed; do
		case $type-$needed in
		*-Addresses | *-Linkage | *-Kernel | *-Int64 | *-Int16 | \
			*-Int8 | f64-Float64) ;;
		*) echo "$needed" ;;
		esac
	done >"$out/needed"
	[ ! -s "$out/needed" ] || wrong "needs $(cat "$out/needed")"
done
exit $bad
