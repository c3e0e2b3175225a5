#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The real loader of Level Zero, Debian's, over our mock of a driver: it has
# every function that we ask it for, and its validation layer, which checks
# parameters, has nothing against any of our calls.
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
if [ ! -e tests/mock/libze.so ]; then
	echo "skipped: the mock drivers are not built"
	exit 77
fi
# An address sanitizer comes first, or not at all.
if ${NM:-nm} -D tests/mock/libze.so | grep -q '__[at]san_init'; then
	echo "skipped: a sanitizer, and a loader that was loaded before it"
	exit 77
fi
folder=
loader=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
	sed -n 's/.*libze_loader\.so\.1 .*64.* => //p' | head -n 1)
if [ ! -e "$loader" ]; then
	folder=$(sh "$top/tests/vendor/part" debian_run libze1) || {
		echo "skipped: there is no loader of Level Zero"
		exit 77
	}
	loader=$(find "$folder" -name libze_loader.so.1 | head -n 1)
	export LD_LIBRARY_PATH="${loader%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
headers=/usr/include
if [ ! -e $headers/level_zero/ze_ddi.h ]; then
	folder=$(sh "$top/tests/vendor/part" debian libze-dev) || {
		echo "skipped: there are no headers of Level Zero"
		exit 77
	}
	headers=$folder/usr/include
fi
echo "$(readlink -f "$loader")"

# --- what it has --------------------------------------------------------------

list ZE_FUNCTIONS src/accel/ze/api.h >"$out/needed"
list ZE_MORE_FUNCTIONS src/accel/ze/api.h >"$out/wanted"
has "$loader" >"$out/has"
later=
if ! grep -q zeCommandListIsImmediate "$out/has"; then # before 1.9
	later='zeCommandListGetDeviceHandle zeCommandListGetOrdinal'
	later="$later zeCommandListImmediateGetIndex zeCommandListIsImmediate"
fi
compare "$out/needed" "$out/wanted" "$out/has" "$later"

# --- what it says of our calls ------------------------------------------------

(cd $headers/level_zero && awk -f "$top/tests/vendor/ze_driver.awk" \
	ze_api.h ze_ddi.h zet_ddi.h zes_ddi.h) >"$out/ze_tables.h"
${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$headers" \
	-DZE_TABLES="\"$out/ze_tables.h\"" \
	-o "$out/libze_driver.so" "$top/tests/vendor/ze_driver.c" -ldl \
	>"$out/log" 2>&1 || {
	echo "not ok: a driver of the mock: $(head -n 5 "$out/log")"
	exit 1
}

# Programs here find the loader that is loaded first, and it opens the mock.
checked() { # COMMAND...
	rm -f "$out/errors"
	LD_PRELOAD=$loader MOCK_ZE=$PWD/tests/mock/libze.so \
		ZE_ENABLE_ALT_DRIVERS=$out/libze_driver.so \
		ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 \
		ZE_ENABLE_TRACING_LAYER=1 ZE_ERRORS=$out/errors \
		timeout 120 "$@" >"$out/log" 2>&1
}
complaints() {
	grep -v ' calls$' "$out/errors" | sort | uniq -c
}

# Is the layer there? The mock would read what is at NULL.
checked "${PYTHON:-python3}" -c '
import ctypes
ze = ctypes.CDLL("libze_loader.so.1")
assert ze.zeInit(1) == 0 and ze.zeDriverGet(None, None) == 0x78000007'
if [ "$(complaints 2>/dev/null | awk '{ print $2, $4 }')" != \
	"zeDriverGet 0x78000007" ]; then
	fail "the validation layer does not refuse NULL: $(cat "$out/log")"
fi

perf() { # OPERATION ARGUMENT...
	operation=$1
	shift
	checked ./dicomm-perf "$operation" -b 8 -e 64K -f 8192 -n 2 -w 0 "$@" &&
		grep -q 'Out of bounds values : 0 OK' "$out/log" ||
		fail "$operation $*: $(tail -n 5 "$out/log")"
	calls=$(grep -c '^100 calls$' "$out/errors")
	[ "$calls" -gt 0 ] || fail "$operation $*: nobody called it"
	[ -z "$(complaints)" ] || fail "$operation $*: $(complaints)"
	echo "$operation $*: ${calls}00 calls"
}
perf allreduce --ranks 3 --device 0=ze:0,1=host,2=ze:1
perf alltoall --ranks 3 --device 0=ze:0,1=host,2=ze:1
perf broadcast -g 2 --device ze:0
exit $bad
