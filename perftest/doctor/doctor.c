/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the checks, reads files for them, and prints what they say. */
#include "perftest/doctor/doctor.h"

#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dicomm.h"

static const char *const verdict_names[] = {
	[VERDICT_OK] = "ok",
	[VERDICT_UNKNOWN] = "unknown",
	[VERDICT_WARN] = "warn",
	[VERDICT_BAD] = "bad",
};

void doctor_tell(struct doctor *d, enum verdict verdict, const char *format,
		 ...)
{
	const struct check *c = d->check;
	char seen[2 * DOCTOR_LINE];
	va_list args;

	va_start(args, format);
	vsnprintf(seen, sizeof(seen), format, args);
	va_end(args);
	if (verdict > d->worst)
		d->worst = verdict;
	/* A file may have any bytes; JSON allows UTF-8 only. */
	for (char *s = seen; *s; s++)
		if ((*s & 0x80) || *s < ' ')
			*s = '?';
	if (d->findings) {
		json_array_append_new(
			d->findings,
			json_pack("{s:s, s:s, s:s, s:s, s:s}", "check", c->what,
				  "verdict", verdict_names[verdict], "seen",
				  seen, "wanted", c->wanted, "mend", c->mend));
		return;
	}
	printf("check      %-7s %s: %s", verdict_names[verdict], c->what, seen);
	if (verdict >= VERDICT_WARN)
		printf("; wanted: %s; mend: %s", c->wanted, c->mend);
	printf("\n");
	/* A step of a peer may take seconds. */
	fflush(stdout);
}

static FILE *open_below(const struct doctor *d, const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", d->root, file);
	return fopen(path, "re");
}

bool doctor_read(const struct doctor *d, char line[DOCTOR_LINE],
		 const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	bool read;
	size_t n;
	FILE *f;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	f = open_below(d, path);
	read = f && fgets(line, DOCTOR_LINE, f);
	if (f)
		fclose(f);
	if (!read)
		return false;
	n = strspn(line, " \t");
	memmove(line, line + n, strlen(line + n) + 1);
	for (n = strlen(line); n && strchr(" \t\n", line[n - 1]);)
		line[--n] = '\0';
	return true;
}

bool doctor_read_key(const struct doctor *d, char rest[DOCTOR_LINE],
		     const char *file, const char *key)
{
	FILE *f = open_below(d, file);
	const char *at = NULL;
	char line[PATH_MAX];

	while (f && !at && fgets(line, sizeof(line), f))
		at = strstr(line, key);
	if (at)
		snprintf(rest, DOCTOR_LINE, "%.*s",
			 (int)strcspn(at + strlen(key), "\n"),
			 at + strlen(key));
	if (f)
		fclose(f);
	return at;
}

size_t doctor_each(struct doctor *d, const char *pattern, doctor_each_fn *fn,
		   void *ctx)
{
	size_t root = strlen(d->root), n;
	char path[PATH_MAX];
	glob_t found = {0};

	snprintf(path, sizeof(path), "%s%s", d->root, pattern);
	n = glob(path, 0, NULL, &found) ? 0 : found.gl_pathc;
	for (size_t i = 0; fn && i < n; i++)
		fn(d, found.gl_pathv[i] + root, ctx);
	globfree(&found);
	return n;
}

const char *doctor_param(const char *name)
{
	dicomm_param_info_t p;

	for (int i = 0; dicomm_param_info(i, &p) == DICOMM_SUCCESS; i++)
		if (!strcmp(p.name, name) && p.value)
			return p.value;
	return "";
}

int doctor_ranks_here(struct doctor *d)
{
	int cpus = (int)doctor_each(d, "/sys/devices/system/cpu/cpu[0-9]*",
				    NULL, NULL);

	return cpus && cpus < d->ranks ? cpus : d->ranks;
}

void doctor_run(struct doctor *d)
{
	const struct check *const tables[] = {network_checks, host_checks,
					      adapter_checks};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		for (d->check = tables[i]; d->check->what; d->check++)
			d->check->look(d);
}
