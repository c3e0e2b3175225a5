#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The PTX of this build, and what NVRTC makes of the kernels, by NVIDIA's own
# assemblers, of PyPI: for every architecture that they know from sm_60 on,
# without an error, a stack or a spilled register. Every kernel loads and stores
# 16 bytes at a time, and a thread that reduces waits only when it has read 64
# bytes ahead, 32 with NVRTC. Prints which registers the kernels need, how far
# they read ahead, and whether they are bound by memory. Nothing here runs.
#
# All modules are assembled for the oldest and the newest architecture, one for
# each other; with DICOMM_TEST_LONG all for all, by both assemblers. That of
# CUDA 12 is the last to know sm_60 and sm_70; no disassembler of PyPI's does.
top=$(cd "${srcdir:-.}" && pwd) || exit 99
cd "${top_builddir:-.}" || exit 99
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
kernels=$PWD/src/accel/kernels
modules=
if [ -e "$kernels/ptx_f32.ptx" ]; then
	modules=$(cd "$kernels" && echo ptx_*.ptx |
		sed 's/ptx_//g; s/\.ptx//g')
fi

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

# NVRTC's PTX of each architecture in a folder of its own: of PyPI, else that of
# this machine. What an earlier run has made is kept (DICOMM_CACHE_DIR).
nvrtc=
if [ -n "$new" ] && [ -x tests/vendor/nvrtc ]; then
	folder=$(part pypi nvidia-cuda-nvrtc==13.5.37 '*/lib/libnvrtc*.so.1*')
	mkdir "$out/nvrtc"
	LD_LIBRARY_PATH="$folder/nvidia/cu13/lib:$LD_LIBRARY_PATH" \
		tests/vendor/nvrtc "$out/nvrtc" 60 >"$out/log" 2>&1
	case $? in
	0) nvrtc=$(tail -n 1 "$out/log") ;;
	77) echo "not tried: $(tail -n 1 "$out/log")" ;;
	*)
		cat "$out/log"
		exit 1
		;;
	esac
fi
if [ -z "$modules$nvrtc" ]; then
	echo "skipped: this build has no PTX, and there is no NVRTC"
	exit 77
fi

archs() { # ASSEMBLER: the numbers of what it knows from sm_60 on
	[ -z "$1" ] || "$1" --help | grep -oE "'sm_[0-9]+'" | tr -cd '0-9\n' |
		sort -nu | awk '$1 >= 60'
}

# A line "old 60 FILE clang f32" for each module that is to be assembled
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
	[ -n "$modules" ] || some=
	for module in $some; do
		echo "$assembler $arch $kernels/ptx_$module.ptx clang $module"
	done
done >"$out/plan"
for file in "$out"/nvrtc/*/*.ptx; do
	[ -e "$file" ] || continue
	arch=${file%/*}
	arch=${arch##*/}
	grep -qx "$arch" "$out/new" || continue
	module=${file##*/ptx_}
	echo "new $arch $file nvrtc ${module%.ptx}"
done >>"$out/plan"

# one old|new ARCHITECTURE FILE COMPILER MODULE: a line "version architecture
# compiler module kernel registers" for each kernel, and if it is disassembled
# "loads stores ahead"; or lines that begin with "not ok"
cat >"$out/one" <<'END'
name=$out/$1-$2-$4-$5
[ "$1" = old ] && assembler=$old || assembler=$new
if ! "$assembler" -v -arch "sm_$2" -o "$name.cubin" "$3" \
	>"$name.log" 2>&1; then
	sed "s/^/not ok sm_$2 $4 $5: /" "$name.log"
	exit
fi
grep 'bytes stack frame' "$name.log" |
	grep -v ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' |
	sed "s/^/not ok sm_$2 $4 $5: /"
: >"$name.vectors"
if [ -n "$disassembler" ] && [ "$2" -ge 75 ]; then
	"$disassembler" -ndf -c "$name.cubin" >"$name.sass" 2>"$name.err" ||
		sed "s/^/not ok sm_$2 $4 $5: /" "$name.err"
	awk -f "$top/tests/vendor/vectors.awk" "$name.sass" >"$name.vectors"
fi
awk -v about="$("$assembler" --version | sed -n 's/.*, V//p') sm_$2 $4 $5" '
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
entries=$(while read -r assembler arch file rest; do
	cat "$file"
done <"$out/plan" | grep -c '^\.visible \.entry')
if [ "$entries" = 0 ] ||
	[ "$(grep -vc '^not ok' "$out/kernels")" != "$entries" ]; then
	echo "not ok: of $entries kernels," \
		"$(grep -vc '^not ok' "$out/kernels") were assembled"
	bad=1
fi
# NVRTC makes loops of 64-bit types that read less far ahead; the table below
# says whether that is enough.
awk 'NF == 9 && ($7 < 1 || $8 < 1 ||
	$5 ~ /^reduce_/ && $9 < ($3 == "nvrtc" ? 2 : 4)) {
	print "not ok " $0 ": loads, stores, and loads before it waits"
	bad = 1
}
END { exit bad }' "$out/kernels" || bad=1

# A kernel is bound by memory if what its threads have asked for is at least
# what is on its way from there at full rate: the bytes that a multiprocessor
# gets in 800 ns, which is more than a load takes on any of these. Of GPUs of
# each architecture, the one with the most: V100, T4, A100 80GB, RTX 3090 (84
# multiprocessors), Orin, RTX 4090, H200, B200, RTX 5090, from the data sheets.
# As many blocks of 256 threads are on a multiprocessor as its 65536 registers,
# 256 at a time for each warp, and its 1024 to 2048 threads allow.
# src/accel/README.md has some of these tables.
sort -k 1,1 -k 2,2V -k 3,3 -k 4,4 "$out/kernels" | awk '
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
function blocks(registers, threads, n) {
	n = int(65536 / (8 * 256 * int((registers * 32 + 255) / 256)))
	return n * 256 < threads ? n : int(threads / 256)
}
function row(   words, need, bound) {
	if (about) {
		split(about, words, " ")
		need = needs[words[2]]
		bound = "-"
		if (need && "there" in least)
			bound = least["there"] >= need ? "yes" : "no"
		printf "%-28s %8s %8s %8s %8s %8s %6s %s\n", about,
			range("reduce"), range("fold"), range("other"),
			range("ahead"), range("there"), need ? need : "-",
			bound
	}
	split("", least)
	split("", most)
}
BEGIN {
	# GB/s for each multiprocessor, times 0.8, is KB.
	split("70 900 80 75 320 40 80 2039 108 86 936 82 87 205 16 " \
		"89 1008 128 90 4800 132 100 8000 148 120 1792 170", gpu, " ")
	for (i = 1; gpu[i]; i += 3)
		needs["sm_" gpu[i]] = int(gpu[i + 1] / gpu[i + 2] * 0.8 + 0.5)
	split("75 1024 86 1536 87 1536 89 1536 120 1536 121 1536", few, " ")
	for (i = 1; few[i]; i += 2)
		threads["sm_" few[i]] = few[i + 1]
	printf "%-28s %8s %8s %8s %8s %8s %6s %s\n", "registers of", "reduce",
		"fold", "other", "ahead", "KB", "needs", "bound by memory?"
}
/^not ok/ { next }
about != $1 " " $2 " " $3 " " $4 { row(); about = $1 " " $2 " " $3 " " $4 }
{
	kind = $5
	sub(/_.*/, "", kind)
	if (kind != "reduce" && kind != "fold")
		kind = "other"
	wider(kind, $6 + 0)
	if (kind == "reduce" && NF == 9) {
		wider("ahead", 16 * $9)
		wider("there", int(16 * $9 * 256 / 1000 * blocks($6,
			$2 in threads ? threads[$2] : 2048)))
	}
}
END { row() }' >"$out/rows"
cat "$out/rows"
if grep -q ' no$' "$out/rows"; then
	echo "not ok: where the last word is no, threads ask for too little"
	bad=1
fi
exit $bad
