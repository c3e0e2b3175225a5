/* SPDX-License-Identifier: BSD-3-Clause */
/* The SPIR-V that is shipped, translated back and compiled for the processor,
 * against the reducers of the CPU. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/accel/launch/launch.h"
#include "tests/kernels/suite.h"
#include "tests/support/leaks.h"
#include "tests/support/runner.h"

#define LIBRARY "tests/kernels/libspirv.so"

typedef void (*reduce_kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef void (*scalar_kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			      uint64_t);
typedef void (*fold_kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			    uint64_t, uint64_t, uint64_t);

static void *library;
static void (*thread_set)(uint64_t number);

static void run_thread(void *kernel, int nargs, const uint64_t *a)
{
	union {
		void *at;
		reduce_kernel reduce;
		scalar_kernel scalar;
		fold_kernel fold;
	} k = {.at = kernel};

	if (nargs == 5)
		k.reduce(a[0], a[1], a[2], a[3], a[4]);
	else if (nargs == 6)
		k.scalar(a[0], a[1], a[2], a[3], a[4], a[5]);
	else
		k.fold(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
		       a[9], a[10], a[11], a[12]);
}

static bool run(const struct launch *l, uint32_t blocks)
{
	void *kernel = dlsym(library, l->kernel);

	if (!kernel)
		return false;
	for (uint64_t i = 0; i < (uint64_t)blocks * LAUNCH_BLOCK; i++) {
		thread_set(i);
		run_thread(kernel, l->nargs, l->args);
	}
	return true;
}

int main(void)
{
	const char *top = getenv("top_builddir");
	struct executor e = suite_launcher(run, 1);
	char path[4096];
	Suite *s;

	leaks_ignore();
	snprintf(path, sizeof(path), "%s/" LIBRARY, top ? top : ".");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		*(void **)&thread_set = dlsym(library, "spirv_thread");
	if (!thread_set) {
		printf("%s\n", dlerror());
		return EXIT_FAILURE;
	}
	s = suite_create("spirv");
	suite_add(s, &e);
	return runner_main(s);
}
