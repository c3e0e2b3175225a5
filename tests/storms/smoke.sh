#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A short storm on one machine, always the same one.
exec "${top_builddir:-.}/tests/storms/storm" --seed 7 --events 10 --seconds 60 \
	--transport shm
