#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# On a few clusters no simple plan is faster than the one that is found. By
# rounds, not by time: the same on a busy machine.
plan=${top_builddir:-.}/dicomm-plan
if ! [ -x "$plan" ]; then
	echo "skipped: dicomm-plan is not built"
	exit 77
fi
command -v python3 >/dev/null || {
	echo "skipped: python3 is not installed"
	exit 77
}
exec python3 "${srcdir:-.}/tests/planner/rivals.py" "$plan" --simple -n 12 -r 16
