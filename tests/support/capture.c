/* SPDX-License-Identifier: BSD-3-Clause */
/* Collects what this process writes to stderr. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/support/capture.h"

static FILE *file;

void capture_start(void)
{
	file = tmpfile();
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
}

const char *capture_text(void)
{
	static char text[1 << 20];
	ssize_t len;

	len = pread(fileno(file), text, sizeof(text) - 1, 0);
	ck_assert_int_ge(len, 0);
	text[len] = '\0';
	return text;
}

int capture_count(const char *word)
{
	int count = 0;

	for (const char *c = capture_text(); (c = strstr(c, word)); c++)
		count++;
	return count;
}

static void no_log(int level, const char *message, void *ctx)
{
	(void)level;
	(void)message;
	(void)ctx;
}

void capture_nothing(void)
{
	log_set_sink(no_log, NULL);
}

int capture_lines(const char *path, const char *word)
{
	FILE *f = fopen(path, "r");
	char line[512];
	int n = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, word) != NULL;
	fclose(f);
	return n;
}
