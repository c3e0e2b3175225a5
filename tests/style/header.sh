#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public header is enough by itself: for C from 1999 on, for C++ from 1998
# on, and for each example. Nothing is linked. A created operator is a value of
# its type, for compilers that take the enumerators at their word.
cd "${srcdir:-.}" || exit 99
cc=${CC:-cc}
cxx=${CXX:-c++}
flags='-Wall -Wextra -Wshadow -Wconversion -Werror -Iinclude -fsyntax-only'
bad=0

try() { # what it is, then the command that must succeed
	what=$1
	shift
	if ! "$@"; then
		echo "$what does not compile: $*"
		bad=1
	fi
}

main='#include <dicomm.h>
dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
int main(void);
int main(void) { return dicomm_get_version(0) == DICOMM_SUCCESS; }'
for std in c99 c11; do
	try "the header as $std" sh -c \
		"echo '$main' | $cc -std=$std -pedantic $flags -x c -"
done
if command -v ${cxx%% *} >/dev/null; then
	for std in c++98 c++17; do
		try "the header as $std" sh -c \
			"echo '$main' | $cxx -std=$std -pedantic $flags -x c++ -"
	done
else
	echo "no C++ compiler ($cxx): the header is not tried with one"
fi

try "a type of operators that holds created ones" sh -c \
	"echo '#include <dicomm.h>
typedef char holds[sizeof(dicomm_redop_t) == sizeof(int) ? 1 : -1];' |
		$cc -std=c11 -fshort-enums $flags -x c -"

examples=0
for file in examples/*.c; do
	try "$file" $cc -std=c11 -pedantic $flags "$file"
	examples=$((examples + 1))
done
if [ $examples -lt 4 ]; then
	echo "only $examples examples seen; is this check blind?"
	bad=1
fi
exit $bad
