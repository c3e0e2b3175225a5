/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and prints sizes, and computes the steps of a sweep. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "perftest/base/size.h"

bool size_parse(const char *text, size_t *size)
{
	static const char suffixes[] = "kmgt";
	double value;
	char *end;

	errno = 0;
	value = strtod(text, &end);
	if (end == text || errno || !(value >= 0))
		return false;
	while (*end == ' ')
		end++;
	if (*end && strcasecmp(end, "b") != 0) {
		const char *s = strchr(suffixes, *end | 0x20);

		if (!s)
			return false;
		value = ldexp(value, 10 * (int)(s - suffixes + 1));
		end++;
	}
	if (strcasecmp(end, "ib") == 0 || strcasecmp(end, "b") == 0)
		end += strlen(end);
	if (*end || value > 0x1p62)
		return false;
	*size = (size_t)value;
	return true;
}

void size_print(char *text, size_t len, double bytes)
{
	static const char *const units[] = {"B", "KB", "MB", "GB"};
	int unit = 0;

	while (unit < 3 && fabs(bytes) >= 1024) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, len, "%.*f %s",
		 fabs(bytes) < 10    ? 2
		 : fabs(bytes) < 100 ? 1
				     : 0,
		 bytes, units[unit]);
}

size_t size_next(size_t size, size_t max, size_t factor, size_t step,
		 size_t element)
{
	size_t next;

	if (factor > 1 && size == 0)
		next = element;
	else if (factor > 1 && __builtin_mul_overflow(size, factor, &next))
		return 0;
	else if (factor <= 1 && __builtin_add_overflow(size, step, &next))
		return 0;
	return next > size && next <= max ? next : 0;
}
