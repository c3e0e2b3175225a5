/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names and variables may be of any bytes; JSON allows UTF-8 only.
 */
#ifndef DICOMM_PERFTEST_BASE_UTF8_H
#define DICOMM_PERFTEST_BASE_UTF8_H

#include <jansson.h>
#include <stddef.h>

/* Replaces each byte beyond ASCII by a question mark. */
void utf8_replace(char *bytes, size_t n);

/* Makes a JSON string of a text, with question marks if it is not UTF-8. NULL:
 * out of memory. */
json_t *utf8_string(const char *text);

#endif
