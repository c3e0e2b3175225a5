/* SPDX-License-Identifier: BSD-3-Clause */
/* The function of libibverbs or librdmacm for which a test has one of its own.
 * The library under test opens these at run time, so a program is not linked to
 * them. */
#ifndef DICOMM_TESTS_MOCK_REAL_VERBS_H
#define DICOMM_TESTS_MOCK_REAL_VERBS_H

#include <dlfcn.h>

static inline void *real_verbs(const char *name)
{
	void *function = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), name);

	return function ? function
			: dlsym(dlopen("librdmacm.so.1", RTLD_NOW), name);
}

#endif
