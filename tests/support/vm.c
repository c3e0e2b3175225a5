/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool vm_find(struct vm *vm)
{
	/* As the script that makes the devices was told: "rxe:2". */
	const char *made = getenv("DICOMM_TEST_DEVICES");

	if (!made || sscanf(made, "%7[a-z]:%d", vm->kind, &vm->devices) != 2) {
		printf("skipped: not in a virtual machine of tests/vm/run\n");
		return false;
	}
	vm->iwarp = !strcmp(vm->kind, "siw");
	return true;
}
