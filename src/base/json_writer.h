/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes JSON into a buffer of the caller's, without memory from the heap. */
#ifndef DICOMM_BASE_JSON_WRITER_H
#define DICOMM_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer {
	char *text;
	size_t n, room;
	bool full; /* something did not fit, so the text is not whole */
};

/* Formatted as by printf(). The caller writes what separates values. */
__attribute__((format(printf, 2, 3))) void json_put(struct json_writer *j,
						    const char *format, ...);
void json_put_char(struct json_writer *j, char c);
/* Writes "key":"value", with what JSON does not allow in a string escaped. */
void json_put_string(struct json_writer *j, const char *key, const char *value);
/* Writes ,"key":value */
void json_put_number(struct json_writer *j, const char *key, uint64_t value);

#endif
