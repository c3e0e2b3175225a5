#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The PTX of this build by NVIDIA's own assemblers, of PyPI: for every
# architecture that they know from sm_60 on, without an error, a stack or a
# spilled register. Every kernel loads and stores 16 bytes at a time, and a
# thread that reduces waits only when it has read 64 bytes ahead. Prints which
# registers the kernels need, and how far they read ahead. Nothing here runs.
#
# All modules are assembled for the oldest and the newest architecture, one for
# each other; with DICOMM_TEST_LONG all for all, by both assemblers. That of
# CUDA 12 is the last to know sm_60 and sm_70; no disassembler of PyPI's does.
top=$(cd "${srcdir:-.}" && pwd) || exit 99
cd "${top_builddir:-.}/src/accel/kernels" 2>/dev/null || {
	echo "skipped: this build has no device kernels"
	exit 77
}
if [ ! -e ptx_f32.ptx ]; then
	echo "skipped: this build has no PTX"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
modules=$(echo ptx_*.ptx | sed 's/ptx_//g; s/\.ptx//g')

part() {
	sh "$top/tests/vendor/part" "$@"
}

disassembler=
if folder=$(part pypi nvidia-cuda-nvdisasm==13.5.37 '*/bin/nvdisasm'); then
	disassembler=$folder/nvidia/cu13/bin/nvdisasm
fi
old=
if folder=$(part pypi nvidia-cuda-nvcc-cu12==12.9.86 '*/bin/ptxas'); then
	old=$folder/nvidia/cuda_nvcc/bin/ptxas
fi
new=
if folder=$(part pypi nvidia-cuda-nvcc==13.5.37 '*/bin/ptxas'); then
	new=$folder/nvidia/cu13/bin/ptxas
fi
if [ -z "$old$new" ]; then
	echo "skipped: there is no assembler"
	exit 77
fi

archs() { # ASSEMBLER: the numbers of what it knows from sm_60 on
	[ -z "$1" ] || "$1" --help | grep -oE "'sm_[0-9]+'" | tr -cd '0-9\n' |
		sort -nu | awk '$1 >= 60'
}

# A line "old 60 f32" for each module that is to be assembled
archs "$new" >"$out/new"
archs "$old" >"$out/old"
oldest=$(sort -n "$out/old" "$out/new" | head -n 1)
newest=$(sort -n "$out/old" "$out/new" | tail -n 1)
if [ -z "$DICOMM_TEST_LONG" ]; then
	grep -vxFf "$out/new" "$out/old" >"$out/only"
	mv "$out/only" "$out/old"
fi
{
	sed 's/^/old /' "$out/old"
	sed 's/^/new /' "$out/new"
} | while read -r assembler arch; do
	some=f32
	if [ -n "$DICOMM_TEST_LONG" ] || [ "$arch" = "$oldest" ] ||
		[ "$arch" = "$newest" ]; then
		some=$modules
	fi
	for module in $some; do
		echo "$assembler $arch $module"
	done
done >"$out/plan"

# one old|new ARCHITECTURE MODULE: a line "version architecture module kernel
# registers" for each kernel, and if it is disassembled "loads stores ahead"; or
# lines that begin with "not ok"
cat >"$out/one" <<'END'
name=$out/$1-$2-$3
[ "$1" = old ] && assembler=$old || assembler=$new
if ! "$assembler" -v -arch "sm_$2" -o "$name.cubin" "ptx_$3.ptx" \
	>"$name.log" 2>&1; then
	sed "s/^/not ok sm_$2 $3: /" "$name.log"
	exit
fi
grep 'bytes stack frame' "$name.log" |
	grep -v ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' |
	sed "s/^/not ok sm_$2 $3: /"
: >"$name.vectors"
if [ -n "$disassembler" ] && [ "$2" -ge 75 ]; then
	"$disassembler" -ndf -c "$name.cubin" >"$name.sass" 2>"$name.err" ||
		sed "s/^/not ok sm_$2 $3: /" "$name.err"
	awk -f "$top/tests/vendor/vectors.awk" "$name.sass" >"$name.vectors"
fi
awk -v about="$("$assembler" --version | sed -n 's/.*, V//p') sm_$2 $3" '
FILENAME ~ /vectors$/ { vectors[$1] = " " $2 " " $3 " " $4; next }
/Compiling entry function/ { split($0, quoted, "\x27"); kernel = quoted[2] }
/Used [0-9]+ registers/ {
	match($0, /Used [0-9]+/)
	print about, kernel, substr($0, RSTART + 5, RLENGTH - 5) vectors[kernel]
}' "$name.vectors" "$name.log"
rm -f "$name".*
END
export out disassembler new old top
xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" sh "$out/one" \
	<"$out/plan" >"$out/kernels"

bad=0
if grep '^not ok' "$out/kernels"; then
	bad=1
fi
entries=$(while read -r assembler arch module; do
	cat "ptx_$module.ptx"
done <"$out/plan" | grep -c '^\.visible \.entry')
if [ "$(grep -vc '^not ok' "$out/kernels")" != "$entries" ]; then
	echo "not ok: of $entries kernels," \
		"$(grep -vc '^not ok' "$out/kernels") were assembled"
	bad=1
fi
awk 'NF == 8 && ($6 < 1 || $7 < 1 || $4 ~ /^reduce_/ && $8 < 4) {
	print "not ok " $0 ": loads, stores, and loads before it waits"
	bad = 1
}
END { exit bad }' "$out/kernels" || bad=1

# src/accel/README.md has some of this table.
sort -k 1,1 -k 2,2V -k 3,3 "$out/kernels" | awk '
function wider(kind, value) {
	if (!(kind in least) || value < least[kind])
		least[kind] = value
	if (value > most[kind])
		most[kind] = value
}
function range(kind) {
	if (!(kind in least))
		return "-"
	return least[kind] (least[kind] < most[kind] ? "-" most[kind] : "")
}
function row() {
	if (about)
		printf "%-22s %8s %8s %8s %8s\n", about, range("reduce"),
			range("fold"), range("other"), range("ahead")
	split("", least)
	split("", most)
}
BEGIN {
	printf "%-22s %8s %8s %8s %8s\n", "registers of", "reduce", "fold",
		"other", "ahead"
}
/^not ok/ { next }
about != $1 " " $2 " " $3 { row(); about = $1 " " $2 " " $3 }
{
	kind = $4
	sub(/_.*/, "", kind)
	if (kind != "reduce" && kind != "fold")
		kind = "other"
	wider(kind, $5 + 0)
	if (kind == "reduce" && NF == 8)
		wider("ahead", 16 * $8)
}
END { row() }'
exit $bad
