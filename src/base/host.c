/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/host.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/hash.h"

uint64_t host_name_hash(void)
{
	const char *name = config_string(CONFIG_HOSTID);
	char own[HOST_NAME_MAX + 1] = "";

	if (!*name && gethostname(own, sizeof(own) - 1) == 0)
		name = own;
	return hash_bytes(HASH_START, name, strlen(name));
}

static uint64_t host_at(const uint64_t *host, size_t stride, uint32_t rank)
{
	return *(const uint64_t *)((const char *)host + rank * stride);
}

uint32_t host_number_all(const uint64_t *host, size_t stride, uint32_t n,
			 uint32_t *of, uint32_t *first)
{
	uint32_t hosts = 0;

	for (uint32_t r = 0; r < n; r++) {
		uint64_t mine = host_at(host, stride, r);
		uint32_t k = r ? of[r - 1] : 0;

		/* Mostly the host of the rank before. */
		if (!r || mine != host_at(host, stride, r - 1))
			for (k = 0; k < hosts; k++)
				if (host_at(host, stride, first[k]) == mine)
					break;
		if (k == hosts)
			first[hosts++] = r;
		of[r] = k;
	}
	return hosts;
}
