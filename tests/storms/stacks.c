/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/stacks.h"

#include <stdio.h>
#include <stdlib.h>

void stacks_print(int pid)
{
	char command[200];

	fflush(stderr);
	snprintf(command, sizeof(command),
		 "timeout -k 5 60 gdb -p %d -batch -ex 'thread apply all bt "
		 "20' 2>/dev/null </dev/null | grep -E '^(Thread|#)' >&2",
		 pid);
	if (system(command) != 0)
		fprintf(stderr, "no stacks of process %d (gdb?)\n", pid);
}
