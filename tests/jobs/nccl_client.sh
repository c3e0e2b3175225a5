#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Programs that know NCCL only by its shared library (nccl_client.py), on the
# host, on mocks of CUDA and HIP, and in one communicator with ranks that call
# dicomm.h; started by dicomm-run; and with another library of that name.
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
build=$PWD
compat=$build/.libs/dicomm/compat
if [ ! -e "$compat/libnccl.so.2" ]; then
	echo "this build has no libnccl.so.2"
	exit 77
fi
python=$(command -v python3) || {
	echo "python3 is not installed"
	exit 77
}
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0
NCCL_LIBRARY=$compat/libnccl.so.2
LIBDICOMM=$build/.libs/libdicomm.so.1
MOCK_CUDA=$build/tests/mock/libcuda.so
MOCK_HIP=$build/tests/mock/libhip.so
export NCCL_LIBRARY LIBDICOMM MOCK_CUDA MOCK_HIP
export PYTHONDONTWRITEBYTECODE=1

fail() {
	echo "FAIL: $*"
	bad=1
}

# scene NAME WHERE...: a process for each WHERE
scene() {
	name=$1
	shift
	folder=$(mktemp -d "$out/XXXXXX")
	ranks=$#
	rank=0
	pids=
	for where; do
		library=$NCCL_LIBRARY
		case $where in
		hip:*) library=$compat/librccl.so.1 ;;
		esac
		NCCL_LIBRARY=$library timeout 60 "$python" \
			"$top/tests/jobs/nccl_client.py" "$name" "$where" \
			$rank $ranks "$folder" >"$folder/out$rank" 2>&1 &
		pids="$pids $!"
		rank=$((rank + 1))
	done
	rank=0
	for pid in $pids; do
		wait "$pid" || {
			fail "$name of $*: rank $rank"
			tail -5 "$folder/out$rank"
		}
		rank=$((rank + 1))
	done
	# Whoever ends without a word has died, to the others.
	if grep -h 'died' "$folder"/out* >"$out/died" && [ $name = leaves ]; then
		fail "$name of $*: $(cat "$out/died")"
	fi
	echo "$name: $*"
}

for name in vllm sglang leaves; do
	scene $name host host
	scene $name host host host host
done
scene aborts host host
scene meets host dicomm
scene meets host dicomm host dicomm

if [ -e "$MOCK_CUDA" ] && [ -e src/accel/kernels/ptx_f32.ptx ]; then
	scene vllm cuda:0 cuda:1
	scene vllm cuda:0 cuda:1 cuda:0 cuda:1
	scene sglang cuda:1 cuda:0
	scene graphs cuda:0 cuda:1
	scene graphs hip:0 cuda:1
	scene leaves cuda:0 cuda:1
	scene aborts cuda:0 cuda:1
	scene devices cuda:0
	grep -q 'this thread has no current device of CUDA' "$folder/out0" ||
		fail "a rank without a device is not told"
	# Each by its own library, with one id
	scene meets cuda:1 dicomm
	scene meets cuda:0 hip:1 host dicomm
	scene vllm hip:0 hip:1
else
	echo "no mocks of GPUs, or no kernels: the host only"
fi

# What it says of itself
"$build/dicomm-run" -q "$python" -c '
import ctypes
v = ctypes.c_int()
ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(v))
w = ctypes.c_int()
ctypes.CDLL("librccl.so.1").ncclGetVersion(ctypes.byref(w))
print(v.value, w.value)' >"$out/version" 2>&1
[ "$(cat "$out/version")" = "23007 23007" ] ||
	fail "dicomm-run: $(cat "$out/version")"
# What NCCL's variables and file ask for
echo 'NCCL_SHM_DISABLE=1
NCCL_ALGO_OF_MINE=x # nothing' >"$out/nccl.conf"
NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 NCCL_BUFFSIZE=1 NCCL_IB_TIMEOUT=17 NCCL_NET=ofi \
	NCCL_CONF_FILE=$out/nccl.conf env -u NCCL_LIBRARY "$python" -c '
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
value = ctypes.c_char_p()
nccl.ncclGetUniqueId((ctypes.c_byte * 128)())
nccl.ncclParamGetParameter(b"DICOMM_TRANSPORTS", ctypes.byref(value), None)
print(value.value.decode())' "$NCCL_LIBRARY" >"$out/said" 2>&1
for words in '^^ucx,shm,verbs$' 'NCCL INFO NCCL version 2\.30\.7' \
	'^[^ ]*:[0-9]*:[0-9]* \[0\] NCCL WARN variables of NCCL that mean nothing to libdicomm: NCCL_BUFFSIZE, NCCL_ALGO_OF_MINE$' \
	'NCCL WARN NCCL_NET=ofi means nothing to libdicomm'; do
	grep -q "$words" "$out/said" || fail "no $words: $(cat "$out/said")"
done
"$build/dicomm-run" true 2>"$out/said"
grep -q "libnccl.so.2 and librccl.so.1 are libdicomm's, from $compat" \
	"$out/said" || fail "dicomm-run says: $(cat "$out/said")"
"$build/dicomm-run" -p --rccl >"$out/said"
grep -q "^export VLLM_NCCL_SO_PATH='$compat/librccl.so.1'$" "$out/said" ||
	fail "dicomm-run -p: $(cat "$out/said")"
odd="/a'b\$(touch $out/ran)\"\\n; c
d"
got=$(
	eval "$(LD_LIBRARY_PATH=$odd "$build/dicomm-run" -p)"
	unset LD_PRELOAD
	printf %s "$LD_LIBRARY_PATH"
)
[ "$got" = "$compat:$odd" ] && [ ! -e "$out/ran" ] ||
	fail "dicomm-run -p: a quote in LD_LIBRARY_PATH: $got"
"$build/dicomm-run" --nonsense true 2>"$out/said" && fail "--nonsense is taken"
grep -q 'unknown option --nonsense' "$out/said" || fail "--nonsense: no word"

# A program that was linked with another one, by a path, gets ours; without
# dicomm-run, it gets that, and who opens ours beside it is warned.
cat >"$out/other.c" <<'END'
int ncclGetVersion(int *v);
int ncclGetVersion(int *v)
{
	*v = 111;
	return 0;
}
int ncclGetUniqueId(void *id);
int ncclGetUniqueId(void *id)
{
	for (int i = 0; i < 128; i++)
		((char *)id)[i] = (char)(i + 1);
	return 0;
}
END
cat >"$out/main.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int ncclGetVersion(int *v);
int main(int argc, char **argv)
{
	struct id { char c[128]; } id;
	int v = 0;
	void *comm, *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*init)(void **, int, struct id, int);
	int (*make)(struct id *);

	ncclGetVersion(&v);
	printf("%d\n", v);
	if (!lib)
		return 0;
	/* An id of the one is nothing to the other. */
	make = (int (*)(struct id *))dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
	init = (int (*)(void **, int, struct id, int))dlsym(lib,
							   "ncclCommInitRank");
	make(&id);
	return init(&comm, 2, id, 0);
}
END
mkdir "$out/real"
if ${CC:-cc} -shared -fPIC -o "$out/real/libnccl.so.2" "$out/other.c" \
	-Wl,-soname,libnccl.so.2 >"$out/cc" 2>&1 &&
	${CC:-cc} -o "$out/main" "$out/main.c" "$out/real/libnccl.so.2" \
		-Wl,-rpath,"$out/real" -ldl >>"$out/cc" 2>&1; then
	[ "$("$out/main")" = 111 ] || fail "the other library is not used"
	[ "$("$build/dicomm-run" -q "$out/main")" = 23007 ] ||
		fail "dicomm-run does not replace what a program was linked with"
	"$out/main" "$compat/libnccl.so.2" >"$out/said" 2>&1
	[ $? -eq 4 ] || fail "the id of another library is taken"
	grep -q "two libraries of this interface are in this process: libdicomm's from $compat/libnccl.so.2, .* another one from .*/real/libnccl.so.2" \
		"$out/said" || fail "no warning: $(cat "$out/said")"
	grep -q 'this id was made by NCCL or RCCL, not by libdicomm: .*; another library of this interface is in this process, from .*/real/libnccl.so.2' \
		"$out/said" || fail "no reason: $(cat "$out/said")"
else
	fail "$(cat "$out/cc")"
fi

# A Python with a CUDA build of PyTorch, if there is one: it needs no GPU for
# this, and stubs of CUDA's other libraries will do.
if [ -n "$DICOMM_TEST_TORCH" ]; then
	"$build/dicomm-run" -q "$DICOMM_TEST_TORCH" -c '
import torch
made = bytes(torch.cuda.nccl.unique_id())
print(torch.cuda.nccl.version(), made[:8], len(made))' >"$out/said" 2>&1
	[ "$(cat "$out/said")" = "(2, 30, 7) b'dicomm1:' 128" ] ||
		fail "PyTorch: $(tail -3 "$out/said")"
else
	echo "PyTorch is not tried: DICOMM_TEST_TORCH is no Python that has it"
fi
exit $bad
