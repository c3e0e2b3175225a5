#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Only src/base/epoll_set.c changes sets of epoll, so that each descriptor is
# removed before it is closed (src/base/epoll_set.h).
cd "${srcdir:-.}" || exit 99
calls='epoll_(create1?|ctl) *\('
own=src/base/epoll_set.c

if [ "$(grep -cE "$calls" $own)" -lt 4 ]; then
	echo "few calls in $own; is this check blind?"
	exit 1
fi
! grep -rnE --include='*.[ch]' "$calls" src transports compat collectives \
	planner perftest | grep -v -e "^$own:" -e '^src/base/epoll_set\.h:'
