/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/file_pattern.h"

#include <stdio.h>
#include <unistd.h>

bool file_pattern_expand(const char *pattern, const char *host, int rank,
			 char *path, size_t room)
{
	size_t len = 0;
	int n;

	for (const char *c = pattern; *c; c++) {
		if (c[0] == '%' && c[1] == 'h') {
			n = snprintf(path + len, room - len, "%s", host);
			c++;
		} else if (c[0] == '%' && c[1] == 'p') {
			n = snprintf(path + len, room - len, "%d",
				     (int)getpid());
			c++;
		} else if (c[0] == '%' && c[1] == 'r' && rank >= 0) {
			n = snprintf(path + len, room - len, "%d", rank);
			c++;
		} else {
			if (c[0] == '%' && c[1] == '%')
				c++;
			n = snprintf(path + len, room - len, "%c", *c);
		}
		len += (size_t)n;
		if (len >= room)
			return false;
	}
	return true;
}
