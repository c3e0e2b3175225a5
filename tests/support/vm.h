/* SPDX-License-Identifier: BSD-3-Clause */
/* The virtual machine of tests/vm/run in which a test finds itself. */
#ifndef DICOMM_TESTS_SUPPORT_VM_H
#define DICOMM_TESTS_SUPPORT_VM_H

#include <stdbool.h>

struct vm {
	char kind[8]; /* of its RDMA devices: "rxe", "siw"; rxe0, rxe1, ... */
	int devices;
	bool iwarp;
};

/* False: this is none, and the test is skipped; that is printed. */
bool vm_find(struct vm *vm);

#endif
