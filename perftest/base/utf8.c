/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/base/utf8.h"

#include <stdlib.h>
#include <string.h>

void utf8_replace(char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] & 0x80)
			bytes[i] = '?';
}

json_t *utf8_string(const char *text)
{
	json_t *string = json_string(text);
	char *clean;

	if (string)
		return string;
	clean = strdup(text);
	if (!clean)
		return NULL;
	utf8_replace(clean, strlen(clean));
	string = json_string(clean);
	free(clean);
	return string;
}
