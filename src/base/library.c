/* SPDX-License-Identifier: BSD-3-Clause */
/* Look up the functions of a library that was opened at run time. */
#include "src/base/library.h"

#include <dlfcn.h>
#include <stdio.h>

bool library_fill(void *library, const char *soname,
		  const struct library_function *functions, size_t n,
		  void *table, char *why, size_t len)
{
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(library, functions[i].name);

		if (!f) {
			snprintf(why, len, "%s has no %s", soname,
				 functions[i].name);
			return false;
		}
		*(void **)((char *)table + functions[i].at) = f;
	}
	return true;
}
