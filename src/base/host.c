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
