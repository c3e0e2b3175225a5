#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run one test within a bound of time: bounded.sh COMMAND... A test program
# built with Check leaves its single cases in NAME.tap, where scripts/count
# finds them. What it took is left in NAME.seconds, which scripts/check sorts.
for last; do :; done
seconds=${DICOMM_TEST_SECONDS:-420}
case $last in
*/torch.sh | */vendor/*) seconds=$((seconds + 480)) ;; # may have to download
esac
CK_TAP_LOG_FILE_NAME=${last%.sh}.tap
CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-30}
# Jobs have bounds of their own, which grow where they lack cores: by as much as
# STARVED_TIMES of tests/support/starved.h.
CK_TIMEOUT_MULTIPLIER=$((5 * ${DICOMM_TEST_TIMES:-1}))
case $last in
*.sh) unset CK_TAP_LOG_FILE_NAME ;;
*)
	rm -f "$CK_TAP_LOG_FILE_NAME"
	export CK_TAP_LOG_FILE_NAME CK_DEFAULT_TIMEOUT CK_TIMEOUT_MULTIPLIER
	;;
esac

# No settings of the caller's shell, no words and decimal commas of its language,
# no core files, and sanitizers that speak.
for name in $(env | sed -nE 's/^((DICOMM|NCCL)_[A-Z0-9_]*)=.*/\1/p'); do
	case $name in
	DICOMM_TEST_*) ;;
	*) unset "$name" ;;
	esac
done
export LC_ALL=C
# Kernels are kept in the build, not in the home of who runs the tests.
export DICOMM_CACHE_DIR="$PWD/tests/kernel-cache"
ulimit -c 0
# Code generators of OpenCL give threads another stack for signals, which ASan
# would free as its own.
ASAN_OPTIONS=abort_on_error=0:detect_leaks=1:use_sigaltstack=0:$ASAN_OPTIONS
UBSAN_OPTIONS=print_stacktrace=1:$UBSAN_OPTIONS
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=0:$TSAN_OPTIONS
export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS

# The thread sanitizer sees the threads of one process, and slows these, which
# have few in each, tenfold.
case ${DICOMM_TEST_THREADS:-0},$last in
1,*tests/jobs/test_algorithms | 1,*tests/jobs/test_collectives | \
	1,*tests/jobs/test_deterministic | 1,*tests/jobs/test_devices | \
	1,*tests/jobs/test_many_ranks | 1,*tests/jobs/test_memory | \
	1,*tests/jobs/test_fault_nth | 1,*tests/kernels/* | 1,*tests/plans/* | \
	1,*tests/topo/*)
	echo "$last: skipped: too slow, and its processes have few threads"
	exit 77
	;;
esac

# timeout has a process group of its own, which what ends this one's misses.
with=
! setpriv --pdeathsig TERM true 2>/dev/null || with='setpriv --pdeathsig TERM'
began=$(date +%s)
$with timeout -k 5 "$seconds" "$@"
status=$?
name=tests/${last##*tests/}
echo "$(($(date +%s) - began)) $name" >"${name%.sh}.seconds"
[ $status -ne 124 ] || echo "$last: stopped after $seconds s"
exit $status
