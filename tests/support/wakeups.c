/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/wakeups.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/job.h"

static unsigned long of_thread(const char *thread, const char *name)
{
	char path[320], line[256], is[64] = "";
	unsigned long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "Name: %63s", is);
		sscanf(line, "voluntary_ctxt_switches: %lu", &n);
	}
	if (f)
		fclose(f);
	return !name || !strcmp(is, name) ? n : 0;
}

unsigned long wakeups(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *e;
	unsigned long sum = 0;

	JOB_CHECK(dir, "/proc/self/task: %m");
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			sum += of_thread(e->d_name, name);
	closedir(dir);
	return sum;
}
