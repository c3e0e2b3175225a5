#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# include/dicomm.h is the manual: each function, type and constant follows a
# comment that starts with two asterisks; a function's names each parameter
# (@param) and, if it returns a status, what it may be (@retval).
exec awk '
function fail(text) {
	printf "%s:%d: %s\n", FILENAME, FNR, text
	bad = 1
}

# "dicomm_result_t dicomm_x(int a, const void *b)": check its comment.
function check_function(decl,    name, list, n, i, arg) {
	name = decl
	sub(/\(.*/, "", name)
	sub(/.*[ *]/, "", name)
	functions++
	if (doc == "") {
		fail(name "() has no documentation")
		return
	}
	list = decl
	sub(/^[^(]*\(/, "", list)
	sub(/\)[^)]*$/, "", list)
	if (list ~ /^ *void *$/)
		list = ""
	n = split(list, args, ",")
	for (i = 1; i <= n; i++) {
		arg = args[i]
		sub(/ *$/, "", arg)
		sub(/.*[ *]/, "", arg)
		if (doc !~ "@param +" arg "[ \n,]")
			fail(name "() does not say what @param " arg " is")
	}
	if (decl ~ /^dicomm_result_t / && doc !~ /@retval/)
		fail(name "() does not say what it returns (@retval)")
}

/^\/\*\*/ { doc = ""; in_doc = 1 }
in_doc {
	doc = doc $0 "\n"
	if (/\*\//)
		in_doc = 0
	next
}
decl != "" {
	sub(/^[ \t]+/, " ")
	decl = decl $0
	if (/;/) {
		check_function(decl)
		decl = doc = ""
	}
	next
}
/^#define DICOMM_[A-Z]/ && $2 != "DICOMM_H" {
	things++
	if (doc == "")
		fail($2 " has no documentation")
	defining = 1
	next
}
/^typedef/ {
	things++
	if (doc == "")
		fail($0 " ... has no documentation")
	doc = ""
	in_type = /{/ && !/}/
	next
}
in_type {
	if (/^}/)
		in_type = 0
	next
}
/^[a-z].*dicomm_[a-z_]+\(/ && !/^extern/ {
	decl = $0
	if (/;/) {
		check_function(decl)
		decl = doc = ""
	}
	next
}
# One comment may serve a block of constants; a blank line ends it.
/^$/ { doc = "" }
END {
	if (functions < 40 || things < 5) {
		print FILENAME ": only " functions + 0 " functions and " \
			things + 0 " types seen; is this check blind?"
		bad = 1
	}
	exit bad
}
' "${srcdir:-.}/include/dicomm.h"
