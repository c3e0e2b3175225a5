#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every call in the library that makes a descriptor stands in
# descriptors_high(...), so that none is 0, 1 or 2 (src/base/descriptors.h).
# fopen() and opendir() have functions of their own there.
cd "${srcdir:-.}" || exit 99
find src transports -name '*.[ch]' ! -path src/base/descriptors.c | sort |
	xargs awk '
BEGIN {
	makes = "[^A-Za-z0-9_>.]((open|openat|creat|socket|socketpair|accept|" \
		"accept4|memfd_create|eventfd|epoll_create1?|" \
		"timerfd_create|signalfd|inotify_init1?|pipe|pipe2|dup|" \
		"fopen|opendir|mkstemp|userfaultfd) ?\\(" \
		"|F_DUPFD(_CLOEXEC)?, [012]\\)|SYS_pidfd_[a-z]+)"
}
function check(file, text,    before, name) {
	gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", text)
	gsub(/"([^"\\]|\\.)*"/, "\"\"", text)
	gsub(/[ \t\n]+/, " ", text)
	while (match(text, makes)) {
		before = substr(text, 1, RSTART)
		name = substr(text, RSTART + 1, RLENGTH - 1)
		text = substr(text, RSTART + RLENGTH)
		calls++
		if (before ~ /descriptors_high\( ?(\(int\) ?syscall\()?$/)
			continue
		# declarations of members and of functions of drivers
		if (before ~ /\( ?\*$/ || file ~ /api\.h$/)
			continue
		print file ": " name "...: not in descriptors_high()"
		bad = 1
	}
}
FNR == 1 && NR > 1 { check(last, all); all = "" }
{ all = all $0 "\n"; last = FILENAME }
END {
	check(last, all)
	if (calls < 15) {
		print "only " calls + 0 " calls seen; is this check blind?"
		bad = 1
	}
	exit bad
}'
