#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test_network once more, with hosts that are network namespaces.
tests=${top_builddir:-.}/tests/jobs/test_network

if [ ! -x "$tests" ]; then
	echo "no test_network: built without Check"
	exit 77
fi
sh "${srcdir:-.}/tests/net/hosts" 4 "$tests"
