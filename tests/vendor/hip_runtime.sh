#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# AMD's own HIP runtime, Debian's, on a machine that need not have a GPU: it has
# every function that we ask it for, HIPRTC's too, in a version that dlsym()
# finds; without a device it is refused in words, and ranks of the host do not
# mind it, be it loaded or not.
top=$(cd "${srcdir:-.}" && pwd) || exit 99
cd "${top_builddir:-.}" || exit 99
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0

fail() {
	echo "not ok: $*"
	bad=1
}

. "$top/tests/vendor/functions.sh"
if ! folder=$(sh "$top/tests/vendor/part" debian_run libamdhip64-5); then
	echo "skipped: there is no HIP runtime"
	exit 77
fi
library=$(find "$folder" -name libamdhip64.so.5 | head -n 1)
[ -n "$library" ] || {
	echo "not ok: $folder has no libamdhip64.so.5"
	exit 1
}
version=$(readlink -f "$library" | sed 's/.*\.so\.//')
case $version in
5.2.*) ;; # what it lacks, see below, is known
*)
	echo "skipped: of HIP $version, nobody has written down what it lacks"
	exit 77
	;;
esac
export LD_LIBRARY_PATH="${library%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if ldd "$library" | grep 'not found' >"$out/lacks"; then
	echo "skipped: this machine lacks what $library needs:"
	cat "$out/lacks"
	exit 77
fi

# --- what it has --------------------------------------------------------------

{
	list HIP_FUNCTIONS src/accel/hip/api.h
	list RTC_FUNCTIONS src/accel/launch/rtc.h | sed 's/^/hiprtc/'
	list RTC_HIP_RESULTS src/accel/launch/rtc.h
	echo hiprtcGetErrorString
} | sort -u >"$out/needed"
list HIP_MORE_FUNCTIONS src/accel/hip/api.h >"$out/wanted"
# dlsym() also looks in what it is linked to.
# shellcheck disable=SC2046 # a word for each
has "$library" $(ldd "$library" | awk '$3 ~ /\/libhsa/ { print $3 }') \
	>"$out/has"
# Of ROCm 5.2:
later='hipGraphRetainUserObject hipLaunchHostFunc hipMemGetHandleForAddressRange'
later="$later hipStreamGetDevice hipUserObjectCreate hipUserObjectRelease"
later="$later hsa_amd_portable_export_dmabuf"
compare "$out/needed" "$out/wanted" "$out/has" "$later"

# --- what it says without a device --------------------------------------------

./dicomm-info --devices >"$out/devices" 2>&1 ||
	fail "dicomm-info: $(cat "$out/devices")"
said=$(sed -n 's/^device *hip/hip/p' "$out/devices")
echo "$said"
case $said in
hip:*)
	echo "this machine has a device of HIP: nothing is refused"
	exit $bad
	;;
*': the HIP runtime has no device'*) ;;
*) fail "of HIP, dicomm-info says $said" ;;
esac

perf() { # ARGUMENT...
	timeout 60 ./dicomm-perf allreduce -b 8 -e 64K -f 8192 -n 2 -w 0 \
		--ranks 2 "$@" >"$out/perf" 2>&1
}
right() {
	grep -q 'Out of bounds values : 0 OK' "$out/perf"
}
perf && right || fail "ranks of the host: $(tail -n 5 "$out/perf")"
# As in a process of PyTorch for ROCm; a sanitizer wants to be the first
if ! ${NM:-nm} -D dicomm-perf 2>/dev/null | grep -q '__[at]san_init'; then
	LD_PRELOAD=$library perf && right ||
		fail "ranks of the host with it loaded: $(tail -n 5 "$out/perf")"
fi
! perf --device 0=host,1=hip:0 || fail "a rank of hip:0 got one"
grep -q 'hip:0.*the HIP runtime has no device' "$out/perf" ||
	fail "a rank of hip:0: $(tail -n 5 "$out/perf")"
exit $bad
