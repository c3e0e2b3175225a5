#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Our declarations of NCCL's interface against headers of NCCL's, as many as are
# found: in NCCL_HEADERS (folders, with colons between) and where CUDA is. Each
# is of some version: its functions have our signatures, its types our layout,
# and a program that it compiles runs on libnccl.so.2.
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
build=$PWD
compat=$build/.libs/dicomm/compat
if [ ! -e "$compat/libnccl.so.2" ]; then
	echo "this build has no libnccl.so.2"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0
cc=${CC:-cc}

fail() {
	echo "FAIL: $*"
	[ ! -s "$out/log" ] || head -20 "$out/log"
	bad=1
}

# All that nccl.h needs of CUDA is the names of two pointers.
mkdir "$out/cuda"
cat >"$out/cuda/cuda_runtime.h" <<'END'
#include <stddef.h>
#define CUDART_VERSION 12000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
END
touch "$out/cuda/cuda_fp16.h" "$out/cuda/cuda_bf16.h"

cat >"$out/signatures.c" <<'END'
#include <nccl.h>
#include "compat/nccl/abi.h"
END
cat >"$out/runs.c" <<'END'
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#define MUST(call) do { ncclResult_t result = call; if (result) { \
	printf("%s: %s: %s\n", #call, ncclGetErrorString(result), \
	       ncclGetLastError(NULL)); return 1; } } while (0)
int main(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t state = ncclInProgress;
	ncclUniqueId id;
	ncclComm_t comm;
	float x = 2, factor = 3;
	ncclRedOp_t op;

	MUST(ncclGetUniqueId(&id));
	config.blocking = 0;
	if (ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclInProgress)
		return printf("blocking was not read\n"), 1;
	while (state == ncclInProgress)
		MUST(ncclCommGetAsyncError(comm, &state));
	MUST(state);
	MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat,
				      ncclScalarHostImmediate, comm));
	MUST(ncclAllReduce(&x, &x, 1, ncclFloat, op, comm, NULL));
	if (x != 6)
		return printf("2 times 3 is %g\n", x), 1;
#if NCCL_VERSION_CODE >= 22200
	{
		ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

		MUST(ncclGroupStart());
		MUST(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
		MUST(ncclGroupSimulateEnd(&info));
		if (info.estimatedTime < 0)
			return printf("no estimate\n"), 1;
	}
#endif
#if NCCL_VERSION_CODE >= 23100
	{
		ncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;

		MUST(ncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclSum, comm,
					 NULL, &call));
	}
#endif
	MUST(ncclCommDestroy(comm));
	return 0;
}
END

$cc -I"$top" -o "$out/ours" "$top/tests/jobs/nccl_layout.c" 2>"$out/log" || fail ours
"$out/ours" | sort >"$out/ours.txt"

seen=
folders=$NCCL_HEADERS:/usr/local/cuda/include:/usr/local/include:/usr/include
IFS=:
for dir in $folders; do
	unset IFS
	[ -n "$dir" ] && [ -e "$dir/nccl.h" ] || continue
	version=$(awk '/define NCCL_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' \
		"$dir/nccl.h")
	case " $seen " in *" $version "*) continue ;; esac
	seen="$seen $version"
	flags="-I$out/cuda -I$dir"
	# The prototype of a function without parameters is not one to C.
	$cc -std=gnu11 $flags -I"$top" -Werror -fsyntax-only \
		-DNCCL_OS_LINUX=1 "$out/signatures.c" >"$out/log" 2>&1 ||
		fail "$version: other signatures"
	if $cc $flags -I"$top" "-DHEADER=\"$dir/nccl.h\"" -o "$out/theirs" \
		"$top/tests/jobs/nccl_layout.c" >"$out/log" 2>&1; then
		"$out/theirs" | sort >"$out/theirs.txt"
		comm -13 "$out/ours.txt" "$out/theirs.txt" >"$out/log"
		[ ! -s "$out/log" ] || fail "$version has what we have not"
		[ "$(wc -l <"$out/theirs.txt")" -ge 35 ] || fail "$version: few lines"
	else
		fail "$version: the layout does not compile"
	fi
	if $cc $flags -o "$out/runs" "$out/runs.c" -L"$compat" -l:libnccl.so.2 \
		-Wl,-rpath,"$compat" -Wl,-rpath-link,"$build/.libs" \
		>"$out/log" 2>&1; then
		timeout 60 "$out/runs" >"$out/log" 2>&1 ||
			fail "$version: a program of that version"
	else
		fail "$version: a program of that version does not link"
	fi
	echo "nccl.h $version of $dir: compared"
done
if [ -z "$seen" ]; then
	echo "no nccl.h is found: NCCL_HEADERS names folders of some"
	exit 77
fi
exit $bad
