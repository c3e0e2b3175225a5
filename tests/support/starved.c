/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/starved.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static double starved_thread_s(int pid, const char *thread)
{
	unsigned long long ran_ns, waited_ns = 0;
	char path[320];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid, thread);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &ran_ns, &waited_ns) != 2)
		waited_ns = 0;
	fclose(f);
	return (double)waited_ns / 1e9;
}

double starved_process_s(int pid)
{
	const struct dirent *e;
	double sum = 0;
	char path[40];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			sum += starved_thread_s(pid, e->d_name);
	closedir(dir);
	return sum;
}

double starved_s(void)
{
	return starved_process_s(getpid());
}

unsigned starved_ms(void)
{
	return (unsigned)(starved_s() * 1e3);
}
