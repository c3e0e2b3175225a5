/* SPDX-License-Identifier: BSD-3-Clause */
/* The first host of a Slurm host list. */
#include <string.h>

#include "src/boot/store/slurm_hosts.h"

/* Appends n characters to a text that ends at *at. */
static bool append(char *host, size_t len, size_t *at, const char *from,
		   size_t n)
{
	if (n >= len - *at)
		return false;
	memcpy(host + *at, from, n);
	*at += n;
	host[*at] = '\0';
	return true;
}

bool slurm_first_host(const char *list, char *host, size_t len)
{
	size_t at = 0, n;

	host[0] = '\0';
	while (*list && *list != ',') {
		n = strcspn(list, "[,");
		if (!append(host, len, &at, list, n))
			return false;
		list += n;
		if (*list != '[')
			continue;
		/* In "[07-12,20]", take the first number with its zeros. */
		list++;
		n = strcspn(list, "-,]");
		if (!n || !append(host, len, &at, list, n))
			return false;
		list = strchr(list, ']');
		if (!list)
			return false;
		list++;
	}
	return at > 0;
}
