#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# DICOMM_RANGES: NVIDIA's own NVTX library, from PyPI, tells a profiler of each
# operation: its name, bytes, beginning and end; ROCTX's functions, of a mock,
# their names. Without a profiler, or off, nothing is opened.
top=$(cd "${srcdir:-.}" && pwd) || exit 99
cd "${top_builddir:-.}" || exit 99
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0

fail() {
	echo "not ok: $*"
	bad=1
}

if ${NM:-nm} -D dicomm-perf 2>/dev/null | grep -q '__[at]san_init'; then
	echo "skipped: a sanitizer, and a profiler that is built without it"
	exit 77
fi

build() { # SOURCE LIBRARY ARGUMENT...
	source=$1 library=$2
	shift 2
	${CC:-cc} -std=gnu11 -shared -fPIC -Wall "$@" -o "$library" "$source" \
		>"$out/log" 2>&1 || fail "$source: $(head -n 20 "$out/log")"
}

perf() { # ARGUMENT...
	timeout 60 ./dicomm-perf "$@" --ranks 2 -n 3 -w 0 >"$out/table" \
		2>"$out/perf" ||
		fail "dicomm-perf $*: $(tail -n 5 "$out/table" "$out/perf")"
}

# ---- ROCTX, and a library that is not there ----

cat >"$out/roctx.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void say(const char *what, const char *name, unsigned long long id)
{
	char line[256];
	int n = snprintf(line, sizeof(line), "%s %s %llu\n", what, name, id);
	if (write(STDERR_FILENO, line, (size_t)n) != n)
		abort();
}
unsigned long long roctxRangeStartA(const char *name)
{
	static _Atomic unsigned long long n;
	unsigned long long id = ++n;
	say("roctx begin", name, id);
	return id;
}
void roctxRangeStop(unsigned long long id)
{
	say("roctx end", "-", id);
}
END
mkdir "$out/lib" "$out/none"
build "$out/roctx.c" "$out/lib/libroctx64.so.4"
was=$LD_LIBRARY_PATH
export LD_LIBRARY_PATH="$out/lib${was:+:$was}"
DICOMM_RANGES=roctx perf allgather -b 4K -e 4K
n=$(grep -c '^roctx begin allgather ' "$out/perf")
[ "$n" -ge 6 ] || fail "ROCTX: $n ranges of allgather: $(tail "$out/perf")"
[ "$n" -le "$(grep -c '^roctx end' "$out/perf")" ] || fail "ROCTX: no end"
perf allgather -b 4K -e 4K
! grep -q roctx "$out/perf" || fail "ROCTX without having been asked for"
LD_LIBRARY_PATH=$was
DICOMM_RANGES=roctx perf allgather -b 4K -e 4K
[ -e /opt/rocm ] || grep -q 'DICOMM_RANGES: roctx: its library cannot' \
	"$out/perf" || fail "ROCTX is not missed: $(tail "$out/perf")"

# ---- NVTX ----

if ! folder=$(sh "$top/tests/vendor/part" pypi nvidia-nvtx==13.5.25 \
	'nvidia/*'); then
	[ $bad = 0 ] || exit 1
	echo "skipped: there is no NVTX"
	exit 77
fi
build "$top/tests/vendor/nvtx_tool.c" "$out/tool.so" \
	-isystem "$folder/nvidia/cu13/include"
export LD_LIBRARY_PATH="$folder/nvidia/cu13/lib${was:+:$was}"
export NVTX_INJECTION64_PATH="$out/tool.so" RANGES_OUT="$out/ranges"
perf allreduce -b 64K -e 64K
set -- "$out"/ranges.*
[ $# = 2 ] || fail "files of 2 ranks: $*"
for file; do
	[ "$(grep -c '^domain dicomm$' "$file")" = 1 ] || fail "no domain"
	n=$(grep -c '^begin [0-9]* allreduce 65536$' "$file")
	[ "$n" -ge 3 ] || fail "$n ranges of allreduce: $(head "$file")"
	# Each range that has begun ends.
	sed -n 's/^begin \([0-9]*\) .*/\1/p' "$file" | sort >"$out/begun"
	sed -n 's/^end //p' "$file" | sort >"$out/ended"
	cmp "$out/begun" "$out/ended" || fail "beginnings and ends differ"
	! grep wrong "$file" || fail "NVTX sees other attributes"
done
rm -f "$out"/ranges.*
# Not on the fast path, and both at once.
DICOMM_TRACE="$out/t" perf sendrecv -b 8 -e 8
cat "$out"/ranges.* | grep -q '^begin [0-9]* send 8$' || fail "no send"
cat "$out"/t.*.json | grep -q '"name":"send"' || fail "no send in the trace"
rm -f "$out"/ranges.*
DICOMM_RANGES=off perf allreduce -b 64K -e 64K
[ ! -e "$(echo "$out"/ranges.*)" ] || fail "off, and NVTX was opened"
exit $bad
