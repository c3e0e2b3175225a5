/* SPDX-License-Identifier: BSD-3-Clause */
#include "compat/nccl/other.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/environment.h"
#include "compat/nccl/say.h"

struct search {
	char own[1024], other[1024];
};

static bool has_name(const char *path, const char *name)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, name, strlen(name));
}

/* In one folder? So lie the two that are ours. */
static bool beside(const char *a, const char *b)
{
	const char *end = strrchr(a, '/'), *end_b = strrchr(b, '/');

	return end && end_b && end - a == end_b - b &&
	       !strncmp(a, b, (size_t)(end - a));
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	char real[PATH_MAX];
	const char *path = info->dlpi_name;

	(void)size;
	if (!path || !*path ||
	    !(has_name(path, "libnccl.so") || has_name(path, "librccl.so")))
		return 0;
	if (realpath(path, real))
		path = real;
	if (!strcmp(path, s->own) || beside(path, s->own))
		return 0;
	snprintf(s->other, sizeof(s->other), "%.1000s", path);
	return 1;
}

static bool find_other(struct search *s)
{
	char real[PATH_MAX];
	Dl_info info;

	memset(s, 0, sizeof(*s));
	if (!dladdr((void *)(uintptr_t)look_at, &info) || !info.dli_fname)
		return false;
	snprintf(s->own, sizeof(s->own), "%.1000s",
		 realpath(info.dli_fname, real) ? real : info.dli_fname);
	return dl_iterate_phdr(look_at, s) != 0;
}

static void look(void)
{
	struct search s;

	nccl_environment();
	if (find_other(&s))
		nccl_warn("two libraries of this interface are in this "
			  "process: libdicomm's from %.300s, which was called "
			  "just now, and another one from %.300s; what one has "
			  "made is nothing to the other, and who calls the "
			  "other does not meet ranks of libdicomm",
			  s.own, s.other);
}

void nccl_look_around(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
}

void nccl_tell_other(char *text, size_t room)
{
	struct search s;
	size_t len = strlen(text);

	if (find_other(&s))
		snprintf(text + len, room - len,
			 "; another library of this interface is in this "
			 "process, from %.300s",
			 s.other);
}
