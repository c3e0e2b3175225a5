/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects of kernels, as the mock drivers see them. */
#include "tests/mock/object.h"

#include <stdio.h>
#include <string.h>

#include "tests/kernels/twin.h"
#include "tests/mock/driver.h"

bool object_has(const void *object, size_t bytes, const char *kernel)
{
	char symbol[64];

	snprintf(symbol, sizeof(symbol), "%s.kd", kernel);
	return memmem(object, bytes, symbol, strlen(symbol) + 1);
}

int object_arguments(const char *kernel)
{
	return !strncmp(kernel, "reduce_", 7) ? 5
	       : !strncmp(kernel, "fold_", 5) ? 13
					      : 6;
}

/* The twin works on the memory of this process. What lies in none of a device
 * is a number, or it is not the kernel's: then that is an error. */
int object_run(const char *kernel, uint64_t args[OBJECT_ARGS])
{
	int nargs = object_arguments(kernel), npointers = nargs == 13 ? 9 : 3;

	for (int i = 0; i < npointers; i++) {
		void *at = driver_translate(args[i], 1);

		if (!at && (args[i] || i != 2))
			return DRIVER_ILLEGAL_ADDRESS;
		args[i] = (uintptr_t)at;
	}
	return twin_run(kernel, args, nargs) ? DRIVER_SUCCESS
					     : DRIVER_ILLEGAL_ADDRESS;
}
