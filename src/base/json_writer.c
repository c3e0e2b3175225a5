/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/json_writer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void json_put(struct json_writer *j, const char *format, ...)
{
	size_t left = j->room - j->n;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(j->text + j->n, left, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= left)
		j->full = true;
	else
		j->n += (size_t)n;
}

void json_put_char(struct json_writer *j, char c)
{
	if (j->n + 1 < j->room)
		j->text[j->n++] = c;
	else
		j->full = true;
}

void json_put_string(struct json_writer *j, const char *key, const char *value)
{
	json_put(j, "\"%s\":\"", key);
	for (const unsigned char *c = (const void *)value; *c; c++) {
		if (*c == '"' || *c == '\\')
			json_put_char(j, '\\');
		if (*c < ' ')
			json_put(j, "\\u%04x", *c);
		else
			json_put_char(j, (char)*c);
	}
	json_put_char(j, '"');
}

void json_put_number(struct json_writer *j, const char *key, uint64_t value)
{
	json_put(j, ",\"%s\":%" PRIu64, key, value);
}
