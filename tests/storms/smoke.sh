#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Short storms on one machine, always the same ones: ten events, after two of
# which a rank joins, and none of which waits for a time-out; and a rank that
# dies while the others set up their connections.
storm=${top_builddir:-.}/tests/storms/storm
"$storm" --seed 203 --events 10 --seconds 60 --transport shm &&
	"$storm" --seed 35023 --events 1 --seconds 30 --transport tcp
