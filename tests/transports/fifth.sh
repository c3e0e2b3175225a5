#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A fifth transport, added as transports/README.md says: a folder, and its place
# in registry.c. Nothing else of the library changes, and it passes the suite
# that all transports pass, which finds it in the registry. Here it is shared
# memory under another name.
top_srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
cd "${top_builddir:-.}" || exit 99
if [ ! -x tests/transports/test_conformance ]; then
	echo "tests/transports/test_conformance is not built"
	exit 77
fi
work=$PWD/tests/transports/fifth
rm -rf "$work"
mkdir "$work" || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

fail()
{
	echo "FAIL: $*"
	bad=1
}

# --- the tree with the transport ------------------------------------------------

cp -R "$top_srcdir/transports" "$work" && chmod -R u+w "$work" || exit 99
cd "$work/transports" || exit 99
cp -R shm fifth
mv fifth/shm.c fifth/fifth.c
sed -i -E 's/\bshm_/fifth_/g; s/\btransport_shm\b/transport_fifth/g
	s/"shm"/"fifth"/g; s|"transports/shm/|"transports/fifth/|' fifth/*.[ch]

# How transports/registry.c lists them, with these beside the first one
list() # file, names...
{
	file=$1
	shift
	sed -E -e "s/^extern .*transport_shm;/&\n$(
		printf 'extern const struct transport transport_%s;\\n' "$@"
	)/" -e "s/&transport_shm, /&$(printf '\\&transport_%s, ' "$@")/" \
		registry.c >"$file.c"
}
list fifth/registry fifth
list too_many a b c d e
cat >fifth/unusable.c <<'C'
/* One that no machine has */
#include <stdio.h>

#include "transports/defaults.h"

extern const struct transport transport_fifth;

static bool unusable(char *why, size_t len)
{
	snprintf(why, len, "a trial of a fifth transport");
	return false;
}

const struct transport transport_fifth = {
	.name = "fifth",
	.usable = unusable,
	.mem_support = defaults_mem_support,
};
C

srcdir=$work sh "$top_srcdir/tests/style/layers.sh" 2>/dev/null ||
	fail "its folder includes what it may not"

# --- built into two programs ------------------------------------------------------

cd "$work/../../.." || exit 99
cat >"$work/Makefile" <<'M'
include Makefile
at = tests/transports/fifth
folder = $(at)/transports/fifth
usable = $(filter-out %/unusable.o,$(patsubst %.c,%.o,$(wildcard $(folder)/*.c)))
unusable = $(folder)/unusable.o $(folder)/registry.o
compile = $(CC) -I$(at) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(AM_CPPFLAGS) \
	$(CPPFLAGS) $(libdicomm_internal_la_CFLAGS) $(CFLAGS)
example = examples/several_ranks_one_process.$(OBJEXT)
conformance = tests/transports/test_conformance.$(OBJEXT)
fifth: $(at)/conformance $(at)/example $(at)/unusable
$(at)/transports/%.o: $(at)/transports/%.c
	$(compile) -c -o $@ $<
$(at)/conformance: $(usable) $(conformance)
	$(LINK) $(usable) $(conformance) $(LDADD) $(LIBS)
$(at)/example: $(usable) $(example)
	$(LINK) $(usable) $(example) $(LDADD) $(LIBS)
$(at)/unusable: $(unusable) $(example)
	$(LINK) $(unusable) $(example) $(LDADD) $(LIBS)
too-many:
	$(compile) -fsyntax-only $(at)/transports/too_many.c
M
if ! ${MAKE:-make} -s -f "$work/Makefile" fifth; then
	echo "FAIL: it does not build"
	exit 1
fi

# --- it works ------------------------------------------------------------------------

DICOMM_TEST_TRANSPORT=fifth "$work/conformance" >"$work/log" 2>&1 &&
	grep -q '^100%.* Failures: 0' "$work/log" ||
	{
		cat "$work/log"
		fail "it does not pass the suite of all transports"
	}

# Also what comes after it in the list
works() # program, transport
{
	DICOMM_TRANSPORTS=$2 DICOMM_DEBUG=warn timeout 60 "$work/$1" \
		>"$work/log" 2>&1 || {
		cat "$work/log"
		fail "several ranks in one process, by $2, $1"
	}
}
works example fifth
works example tcp
works unusable tcp
DICOMM_TRANSPORTS=fifth "$work/unusable" >"$work/log" 2>&1
grep -q 'a trial of a fifth transport' "$work/log" || {
	cat "$work/log"
	fail "nobody says why it is not usable"
}

# More than the library has room for do not compile.
if ${MAKE:-make} -s -f "$work/Makefile" too-many >"$work/log" 2>&1; then
	fail "a list that is too long compiles"
elif ! grep -q 'more transports than masks of them have bits' "$work/log"; then
	cat "$work/log"
	fail "the compiler does not say that the list is too long"
fi
exit $bad
