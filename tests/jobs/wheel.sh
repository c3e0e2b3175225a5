#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# scripts/wheel makes wheels of this build which pip installs into an empty
# environment; there, without a word of where anything is, the tools run, a C
# program is compiled and linked, and the library is the one of the wheel.
# Skipped, with the reason, where the tools of PyPI cannot be had.
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
build=$(pwd)
if [ ! -e .libs/libdicomm.so.1 ] || [ ! -x dicomm-perf ]; then
	echo "this build has no shared library, or no tools"
	exit 77
fi
if nm -D .libs/libdicomm.so.1 | grep -q ' U __[at]san_'; then
	echo "this build has a sanitizer, which no wheel brings along"
	exit 77
fi
if [ ! -w "$top" ] || [ ! -x "$top/scripts/wheel" ]; then
	echo "not a checkout"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
python3 -m venv "$out/try" && "$out/try/bin/pip" download -q --no-deps \
	--retries 1 --timeout 10 --disable-pip-version-check -d "$out" \
	auditwheel >"$out/log" 2>&1 || {
	echo "auditwheel cannot be had: $(tail -n 1 "$out/log")"
	exit 77
}

"$top/scripts/wheel" "$build/wheels" "$build" >"$out/log" 2>&1 || {
	cat "$out/log"
	exit 1
}
unset LD_LIBRARY_PATH LIBDICOMM_FILE PKG_CONFIG_PATH PYTHONPATH
"$out/try/bin/pip" install -q --no-index --disable-pip-version-check \
	"$build"/wheels/*.whl || exit 1
PATH=$out/try/bin:/usr/bin:/bin
site=$(cd "$out/try"/lib/python3*/site-packages && pwd -P)
cd "$out" || exit 99
bad=0
expect() { # TEXT COMMAND...
	text=$1
	shift
	"$@" >"$out/log" 2>&1 &&
		{ [ -z "$text" ] || grep -qF -e "$text" "$out/log"; } && return
	echo "not '$text': $*"
	cat "$out/log"
	bad=1
}
expect "library    $site/dicomm/lib/libdicomm.so.1" dicomm-info --version
expect '# Out of bounds values : 0 OK' \
	dicomm-perf allreduce --ranks 2 -b 8 -e 64K -f 16 -n 2 -w 1
expect '# Collective test starting: all_reduce_perf' \
	all_reduce_perf --ranks 2 -b 8 -e 8 -n 1 -w 0
expect "from $site/dicomm/lib/dicomm/compat " dicomm-run true
expect Usage: dicomm-plan --help
expect 'measure operations of libdicomm' \
	cat "$out/try/share/man/man1/dicomm-perf.1"
expect dicomm_allreduce cat "$out/try/share/man/man3/dicomm_allreduce.3"
PKG_CONFIG_PATH=$(python3 -c 'import dicomm; print(dicomm.get_pkgconfig())')
export PKG_CONFIG_PATH
expect '' ${CC:-cc} -o several "$top/examples/several_ranks_one_process.c" \
	$(pkg-config --cflags --libs dicomm) \
	-Wl,-rpath,"$site/dicomm/lib"
expect '' timeout 60 ./several
expect "$site/dicomm/lib/libdicomm.so.1" ldd ./several

# Nothing but the system's C library comes from the machine.
for file in "$site"/dicomm/bin/dicomm-perf "$site/dicomm/lib/libdicomm.so.1"; do
	ldd "$file" | grep '=> /' | grep -vF "$site" |
		grep -vE '/(libc|libm|libpthread|libdl)\.so' && {
		echo "these are of the machine"
		bad=1
	}
done
exit $bad
