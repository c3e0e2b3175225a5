/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ncclConfig_t of programs of any version. Their pointers would be those of the
 * program; here a bit of the first byte says whether a text is there.
 */
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/config.h"
#include "tests/fuzz/fuzz.h"

void fuzz_seeds(void)
{
	ncclConfig_t config;
	uint8_t bytes[1 + sizeof(config)];

	memset(&config, 0x80, sizeof(config));
	config.size = sizeof(config);
	config.magic = NCCL_API_MAGIC;
	config.version = 23200;
	config.blocking = 1;
	config.cgaClusterSize = 4;
	bytes[0] = 1;
	memcpy(bytes + 1, &config, sizeof(config));
	fuzz_seed(bytes, sizeof(bytes));
	/* One of 2.18, which ends earlier */
	config.size = 48;
	config.version = 21800;
	memcpy(bytes + 1, &config, sizeof(config));
	fuzz_seed(bytes, 1 + 48);
}

static void point(void *config, size_t size, size_t at, const char *text)
{
	if (size >= at + sizeof(text))
		memcpy((char *)config + at, &text, sizeof(text));
}

/* The size that the struct claims is what there is, unless it is refused. */
static void read_options(const uint8_t *data, size_t len, const char *text)
{
	struct nccl_options options;
	size_t claimed, room = len;
	uint8_t *config;

	memcpy(&claimed, data, sizeof(claimed));
	if (claimed > room && claimed <= 65536)
		room = claimed;
	config = calloc(1, room);
	if (!config)
		abort();
	memcpy(config, data, len);
	point(config, room, offsetof(ncclConfig_t, commName), text);
	point(config, room, offsetof(ncclConfig_t, netName), text);
	if (nccl_config_read("fuzz", config, &options) == ncclSuccess &&
	    !memchr(options.name, '\0', sizeof(options.name)))
		abort();
	free(config);
}

static void read_call(const uint8_t *data, size_t len, const char *text)
{
	ncclCollConfig_t config = {0};

	memcpy(&config, data, len < sizeof(config) ? len : sizeof(config));
	config.algSelection = text;
	(void)nccl_config_check_call("fuzz", &config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char name[200];

	if (len < 1 + 24)
		return 0;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	read_options(data + 1, len - 1, data[0] & 1 ? name : NULL);
	read_call(data + 1, len - 1, data[0] & 1 ? name : NULL);
	return 0;
}
