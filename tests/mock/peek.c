/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mock/peek.h"

#include <dlfcn.h>
#include <stdint.h>

#include "tests/mock/driver.h"

void *peek_device(const void *at, enum peek_kind *kind)
{
	static const char *const names[] = {
		[PEEK_CUDA] = "libcuda.so.1", [PEEK_HIP] = "libamdhip64.so.7"};

	for (int i = 0; i < 2; i++) {
		void *lib = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
		__typeof__(mock_peek) *peek = NULL;
		void *seen = NULL;

		if (!lib)
			continue;
		*(void **)&peek = dlsym(lib, "mock_peek");
		if (peek)
			seen = peek((void *)(uintptr_t)at);
		dlclose(lib);
		/* Host memory is seen where it is. */
		if (!seen || seen == at)
			continue;
		if (kind)
			*kind = (enum peek_kind)i;
		return seen;
	}
	return NULL;
}
