/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/auth.h"

static int seeds;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	setenv("DICOMM_DEBUG", "none", 1);
	if (auth_init() != DICOMM_SUCCESS)
		abort();
	/* The fuzzer reads its folders after this. */
	if (getenv("FUZZ_SEEDS"))
		fuzz_seeds();
	return 0;
}

void fuzz_seed(const void *data, size_t len)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/seed-%d", getenv("FUZZ_SEEDS"),
		 seeds++);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, len, f) != len || fclose(f)) {
		perror(path);
		abort();
	}
}

void fuzz_seed_text(const char *text)
{
	fuzz_seed(text, strlen(text));
}

char *fuzz_text(const uint8_t *data, size_t len)
{
	char *text = malloc(len + 1);

	if (!text)
		abort();
	if (len)
		memcpy(text, data, len);
	text[len] = '\0';
	return text;
}
