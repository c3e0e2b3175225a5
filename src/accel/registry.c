/* SPDX-License-Identifier: BSD-3-Clause */
/* The kinds of device of this build, and the parser of device names. */
#include "src/accel/accel.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

extern const struct accel accel_cuda;
extern const struct accel accel_hip;
extern const struct accel accel_host;
extern const struct accel accel_opencl;
extern const struct accel accel_ze;

const struct accel *const accels[] = {
	&accel_host, &accel_cuda, &accel_hip, &accel_ze, &accel_opencl, NULL,
};

/* Returns the name that a loaded file gives itself; "" if it gives none. */
static const char *name_of(const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *d = NULL;
	uintptr_t names = 0, at = 0;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const void *)(info->dlpi_addr +
					   info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_STRTAB)
			names = d->d_un.d_ptr;
		if (d->d_tag == DT_SONAME)
			at = d->d_un.d_val;
	}
	if (!names || !at)
		return "";
	/* Some loaders leave it relative. */
	if (names < info->dlpi_addr)
		names += info->dlpi_addr;
	return (const char *)(names + at);
}

static int begins_with(struct dl_phdr_info *info, size_t size, void *begin)
{
	const char *file = info->dlpi_name, *slash = strrchr(file, '/');
	size_t n = strlen(begin);

	(void)size;
	return !strncmp(slash ? slash + 1 : file, begin, n) ||
	       !strncmp(name_of(info), begin, n);
}

bool accel_may_have_loaded(const char *library)
{
	char begin[64];

	snprintf(begin, sizeof(begin), "%.*s", (int)strcspn(library, "."),
		 library);
	return dl_iterate_phdr(begins_with, begin) != 0;
}

bool accel_has_loaded(const char *library)
{
	void *lib;

	if (!accel_may_have_loaded(library))
		return false;
	lib = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	if (lib)
		dlclose(lib);
	return lib;
}

/* Parse N of "kind:N". Accepts digits only, so "+1", " 1" and "" are
 * refused. */
static bool index_parse(const char *text, int *index)
{
	long value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (*text - '0');
		if (value > INT_MAX)
			return false;
	}
	*index = (int)value;
	return true;
}

static void unknown_kind(const char *device, int kind_len, char *why,
			 size_t len)
{
	char kinds[128] = "";
	size_t used = 0;

	for (int i = 0; accels[i] && used < sizeof(kinds); i++)
		used += (size_t)snprintf(kinds + used, sizeof(kinds) - used,
					 "%s%s", i ? ", " : "",
					 accels[i]->name);
	snprintf(why, len, "no kind of device \"%.*s\" in this build, only %s",
		 kind_len, device, kinds);
}

const struct accel *accel_find(const char *device, int *index, char *why,
			       size_t len)
{
	size_t kind_len = strcspn(device, ":");
	const struct accel *a = NULL;
	char none[256];
	int i = 0, n;

	for (int k = 0; accels[k] && !a; k++)
		if (strlen(accels[k]->name) == kind_len &&
		    !memcmp(accels[k]->name, device, kind_len))
			a = accels[k];
	if (!a) {
		unknown_kind(device, (int)kind_len, why, len);
		return NULL;
	}
	if (device[kind_len] && !index_parse(device + kind_len + 1, &i)) {
		snprintf(why, len, "not of the form %s:NUMBER", a->name);
		return NULL;
	}
	n = a->count(none, sizeof(none));
	if (!n) {
		snprintf(why, len, "%s", none);
		return NULL;
	}
	if (i >= n) {
		snprintf(why, len, "there are only %d (%s:0 ...)", n, a->name);
		return NULL;
	}
	*index = i;
	return a;
}
