#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What make install lays down runs from there: dicomm-info, dicomm-perf, and its
# links of the names of nccl-tests, each of which is its operation; and make
# uninstall leaves nothing.

# In the folder of the build, which has no spaces: libtool takes none.
TMPDIR=$(cd "${top_builddir:-.}" && pwd)
export TMPDIR
. "${srcdir:-.}/tests/jobs/perf.sh"
to=$out/prefix
examples=$(cd "${srcdir:-.}" && pwd)/examples
bench=$(cd "${srcdir:-.}" && pwd)/tests/bench

# make TARGET, for that prefix and no other, wherever configure was told to
make_it() {
	MAKEFLAGS= make -s "$1" prefix="$to" exec_prefix="$to" \
		bindir="$to/bin" libdir="$to/lib" includedir="$to/include" \
		mandir="$to/share/man" datadir="$to/share" \
		DESTDIR= >"$out/table" 2>&1 || fail "make $1"
}

make_it install
[ $bad -eq 0 ] || exit 1
# Nobody says where the library is.
unset LD_LIBRARY_PATH

cd "$out" || exit 99
"$to/bin/dicomm-info" --version >"$out/table" 2>"$out/errors" ||
	fail "dicomm-info"
has '^version '

# Name of the operation, of the link; all_reduce and so on are spelt both ways.
# Nothing of them is in the arguments.
while read -r op link; do
	perf=$to/bin/dicomm-perf
	perf 0 "$op" -b 8 -e 1K -f 16 -n 1 -w 0 --ranks 2
	grep -v '^#' "$out/table" | awk 'NF { print $1, $2, $3, $4, $5 }' \
		>"$out/by_name"
	perf=$to/bin/$link
	if ! [ -L "$perf" ]; then
		fail "$link is no link"
		continue
	fi
	perf 0 -b 8 -e 1K -f 16 -n 1 -w 0 --ranks 2
	has "^# Collective test starting: $link\$"
	has '^# Out of bounds values : 0 OK$'
	has "^# Collective test concluded: $link\$"
	grep -v '^#' "$out/table" | awk 'NF { print $1, $2, $3, $4, $5 }' |
		cmp -s - "$out/by_name" || fail "$link is not $op"
	[ -s "$out/by_name" ] || fail "$link: no rows"
	echo "$link" >>"$out/links"
done <<-END
	allgather all_gather_perf
	allreduce all_reduce_perf
	alltoall alltoall_perf
	alltoallv alltoallv_perf
	barrier barrier_perf
	broadcast broadcast_perf
	gather gather_perf
	gatherv gatherv_perf
	get get_perf
	put put_perf
	reduce reduce_perf
	reduce_scatter reduce_scatter_perf
	scatter scatter_perf
	scatterv scatterv_perf
	sendrecv sendrecv_perf
END
(cd "$to/bin" && ls ./*_perf) | sed 's|^\./||' | sort >"$out/table"
sort "$out/links" | cmp -s - "$out/table" || fail "other links than these"

# The program that measures all of this beside MPIs checks its results.
ops=allreduce,allgather,reduce_scatter,broadcast,alltoall,sendrecv
"$bench/peers.sh" -p '' -r 1 -o $ops -s 8,100000 -t 0.001 "$to" \
	>"$out/table" 2>"$out/errors" || fail "peers.sh"
[ "$(grep -c '^| [18]' "$out/table")" = 12 ] || fail "peers.sh: not 12 rows"

# Each tool has its page, and so have the functions.
for path in "$to"/bin/*; do
	[ -s "$to/share/man/man1/${path##*/}.1" ] ||
		fail "no man page of ${path##*/}"
done
[ -s "$to/share/man/man3/dicomm_allreduce.3" ] ||
	fail "no man page of dicomm_allreduce()"

# bash completes what the tools say of themselves; it cuts words at "=".
for name in perf info plan run; do
	[ -e "$to/share/bash-completion/completions/dicomm-$name" ] ||
		fail "no completion of dicomm-$name"
done
cat >"$out/completion" <<'END'
. "$1/share/bash-completion/completions/dicomm-plan"
completes() { # to these words: command and its words
	local wanted=$1
	shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	_dicomm_tool "$1"
	[ "${COMPREPLY[*]}" = "$wanted" ] ||
		echo "'$*' is completed to '${COMPREPLY[*]}'"
}
PATH=$1/bin:$PATH
completes allreduce dicomm-perf allr
completes --ranks dicomm-perf allreduce --ra
completes 'malloc alloc' dicomm-perf allreduce --mem =
completes alloc dicomm-perf allreduce --mem = a
completes '' dicomm-perf allreduce --plot = x
completes 'search simulate' dicomm-plan s
completes --doctor dicomm-info --doc
END
bash "$out/completion" "$to" >"$out/table" 2>"$out/errors"
[ ! -s "$out/table" ] || fail "completion"

# libnccl.so.2 finds its libdicomm.so.1 from where it lies, and dicomm-run both.
if [ -e "$to/lib/libdicomm.so" ]; then
	for name in libnccl.so libnccl.so.2 librccl.so librccl.so.1; do
		[ -e "$to/lib/dicomm/compat/$name" ] || fail "no $name"
	done
	echo 'int ncclGetVersion(int *);
	int main(void) { int v = 0; return ncclGetVersion(&v) || v < 20000; }' \
		>"$out/nccl.c"
	if ${CC:-cc} -o "$out/nccl" "$out/nccl.c" -L"$to/lib/dicomm/compat" \
		-lnccl -Wl,-rpath-link,"$to/lib" >"$out/table" 2>&1; then
		"$to/bin/dicomm-run" "$out/nccl" \
			>"$out/table" 2>"$out/errors" || fail "dicomm-run"
		has "from $to/lib/dicomm/compat "
	else
		fail "linking with -lnccl"
	fi
else
	[ ! -e "$to/bin/dicomm-run" ] || fail "dicomm-run without a library"
fi

# Moved elsewhere, all of it still finds the rest of it.
mv "$to" "$out/moved" && to=$out/moved
"$to/bin/dicomm-info" --version >"$out/table" 2>"$out/errors" ||
	fail "dicomm-info, moved"
if [ -e "$to/lib/libdicomm.so" ]; then
	has "^library    $to/lib/libdicomm.so"
	"$to/bin/dicomm-run" "$out/nccl" >"$out/table" 2>"$out/errors" ||
		fail "dicomm-run, moved"
	has "from $to/lib/dicomm/compat "
fi
PKG_CONFIG_PATH=$to/lib/pkgconfig pkg-config --cflags --libs dicomm \
	>"$out/table" 2>"$out/errors" || fail "pkg-config, moved"
has "$to/lib"

# A project of CMake finds them there, too.
if command -v cmake >/dev/null; then
	mkdir "$out/project"
	cp "$examples/several_ranks_one_process.c" "$out/project/main.c"
	cat >"$out/project/CMakeLists.txt" <<-'END'
		cmake_minimum_required(VERSION 3.13)
		project(try C)
		find_package(dicomm 0.1 REQUIRED)
		add_executable(try main.c)
		target_link_libraries(try dicomm::dicomm)
	END
	cmake -S "$out/project" -B "$out/project/build" \
		-DCMAKE_PREFIX_PATH="$to" >"$out/table" 2>"$out/errors" &&
		cmake --build "$out/project/build" >"$out/table" \
			2>"$out/errors" &&
		timeout 60 "$out/project/build/try" >"$out/table" \
			2>"$out/errors" || fail "CMake, moved"
	sed -i 's/dicomm 0.1/dicomm 99/' "$out/project/CMakeLists.txt"
	cmake -S "$out/project" -B "$out/project/build" \
		-DCMAKE_PREFIX_PATH="$to" >"$out/table" 2>&1 &&
		fail "CMake found version 99"
else
	echo "CMake is missing: find_package(dicomm) was not tried"
fi
mv "$out/moved" "$out/prefix" && to=$out/prefix

# Over others of an earlier version, too
cd - >/dev/null || exit 99
make_it install
make_it uninstall
find "$to" ! -type d >"$out/table"
[ ! -s "$out/table" ] || fail "left after make uninstall"
exit $bad
