/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/cpuinfo.h"

#include <stdio.h>
#include <string.h>

#include "src/base/descriptors.h"

void cpuinfo_value(const char *key, char *value, size_t len)
{
	FILE *f = descriptors_fopen("/proc/cpuinfo");
	char line[4096]; /* the flags of a processor take half of it */

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, key, strlen(key)) || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(value, len, "%s", colon);
		break;
	}
	fclose(f);
}
