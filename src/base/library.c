/* SPDX-License-Identifier: BSD-3-Clause */
/* Look up the functions of a library that was opened at run time. */
#include "src/base/library.h"

#include <dlfcn.h>
#include <stdio.h>

bool library_fill(void *library, const char *soname,
		  const struct library_function *functions, void *table,
		  char *why, size_t len)
{
	for (; functions->name; functions++) {
		void *f = dlsym(library, functions->name);

		if (!f && !functions->optional) {
			snprintf(why, len, "%s has no %s", soname,
				 functions->name);
			return false;
		}
		*(void **)((char *)table + functions->at) = f;
	}
	return true;
}
