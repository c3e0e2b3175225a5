# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of dicomm-perf: in the folder of the build, a folder $out
# that goes at the end, and what says that something is not as it should be. The
# test ends with "exit $bad".
cd "${top_builddir:-.}" || exit 99
perf=./dicomm-perf
if [ ! -x $perf ]; then
	echo "dicomm-perf is not built"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
bad=0

fail() {
	echo "FAIL: $*"
	sed 's/^/	/' "$out/table" "$out/errors" 2>/dev/null | tail -20
	bad=1
}

# Run it with these arguments; the exit status must be the first.
perf() { # status, arguments
	expected=$1
	shift
	timeout 60 $perf "$@" >"$out/table" 2>"$out/errors"
	status=$?
	[ $status -eq "$expected" ] ||
		fail "dicomm-perf $*: status $status, not $expected"
}

has() { # a pattern that the table or the errors must have
	grep -q -e "$1" "$out/table" "$out/errors" || fail "no '$1'"
}
