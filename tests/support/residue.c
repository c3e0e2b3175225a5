/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/residue.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/job.h"

/* A failed id server tells late-comers why for 10 s. */
#define PATIENCE_MS 14000

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	JOB_CHECK(dir, "opendir %s: %m", path);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int shared_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	JOB_CHECK(maps, "/proc/self/maps: %m");
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:dicomm") || strstr(line, "/dev/shm");
	fclose(maps);
	return n;
}

int residue_descriptors(void)
{
	return entries("/proc/self/fd") - 3; /* ".", ".." and its own */
}

int residue_threads(void)
{
	return entries("/proc/self/task") - 2;
}

void residue_count(struct residue *now)
{
	now->descriptors = residue_descriptors();
	now->mappings = shared_mappings();
	now->threads = residue_threads();
}

static void list_descriptors(char *text, size_t len)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	size_t at = 0;

	text[0] = '\0';
	while (dir && (e = readdir(dir)) && at < len) {
		char path[280], to[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n <= 0)
			continue;
		to[n] = '\0';
		at += (size_t)snprintf(text + at, len - at, " %s", to);
	}
	if (dir)
		closedir(dir);
}

void residue_check(const struct residue *before, const char *when)
{
	double end = job_seconds() + PATIENCE_MS / 1e3;
	struct residue now;
	char text[400];

	do {
		residue_count(&now);
		if (now.descriptors <= before->descriptors &&
		    now.mappings <= before->mappings &&
		    now.threads <= before->threads)
			return;
		job_sleep_ms(10);
	} while (job_seconds() < end);
	list_descriptors(text, sizeof(text));
	job_fail("%s: %d descriptors instead of %d, %d shared mappings instead "
		 "of %d, %d threads instead of %d; open:%s",
		 when, now.descriptors, before->descriptors, now.mappings,
		 before->mappings, now.threads, before->threads, text);
}
