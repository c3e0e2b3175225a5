/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries that are opened at run time, so that this one starts without them.
 * The functions of such a library that are called are listed once, by a macro
 * LIST(X) with X(NAME) for each, and kept in a struct of pointers:
 *
 * 	static struct api {
 * 		LIST(LIBRARY_POINTER)
 * 	} api;
 * 	#define ENTRY(f) LIBRARY_FUNCTION(struct api, f)
 * 	static const struct library_function functions[] = {
 * 		LIST(ENTRY) LIBRARY_END};
 */
#ifndef DICOMM_BASE_LIBRARY_H
#define DICOMM_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_function {
	const char *name;
	size_t at;     /* offset of its pointer in the table */
	bool optional; /* its pointer is NULL where the library lacks it */
};

#define LIBRARY_POINTER(f) __typeof__(f) *f;
#define LIBRARY_FUNCTION(table, f) LIBRARY_SYMBOL(table, f, f, true)
#define LIBRARY_END {NULL, 0, false},
/* For a pointer whose name is not that of the function. */
#define LIBRARY_SYMBOL(table, f, symbol, needed) \
	{#symbol, offsetof(table, f), !(needed)},

/* Fill in the table with the functions of an open library. Returns false if one
 * is missing; then `why` names it, and the library by its `soname`. */
bool library_fill(void *library, const char *soname,
		  const struct library_function *functions, void *table,
		  char *why, size_t len);

#endif
