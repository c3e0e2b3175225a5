/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes and devices, as dicomm-perf takes them; how sizes are told. */
#include <stdlib.h>
#include <string.h>

#include "perftest/base/size.h"
#include "perftest/operation/options.h"
#include "tests/fuzz/fuzz.h"

void fuzz_seeds(void)
{
	fuzz_seed_text("1.5M");
	fuzz_seed_text("32K");
	fuzz_seed_text("0=cuda:0,1=host");
	fuzz_seed_text("opencl:3");
}

static void read_devices(char *text)
{
	struct options o = {.device = text};
	char device[64], why[300];

	if (!options_devices_valid(text))
		return;
	for (int rank = 0; rank < 3; rank++)
		(void)options_device(&o, rank, device, sizeof(device));
	(void)why;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *text = fuzz_text(data, len), told[32];
	size_t size;

	if (size_parse(text, &size)) {
		size_print(told, sizeof(told), (double)size);
		if (!memchr(told, '\0', sizeof(told)))
			abort();
		if (size_next(size, SIZE_MAX, 2, 0, 4) == size && size)
			abort();
	}
	read_devices(text);
	free(text);
	return 0;
}
