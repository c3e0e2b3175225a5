/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/texts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_repeated(const char *text, size_t stride, size_t room,
			uint32_t i)
{
	return i && !strncmp(text, text - stride, room);
}

struct texts *texts_pack(const char *first, size_t stride, size_t room,
			 uint32_t n)
{
	size_t bytes = sizeof(struct texts) + n * sizeof(uint32_t), at = bytes;
	const char *text = first;
	struct texts *t;

	for (uint32_t i = 0; i < n; i++, text += stride)
		if (!is_repeated(text, stride, room, i))
			bytes += strnlen(text, room - 1) + 1;
	t = bytes <= UINT32_MAX ? malloc(bytes) : NULL;
	if (!t)
		return NULL;
	t->n = n;
	text = first;
	for (uint32_t i = 0; i < n; i++, text += stride) {
		size_t len = strnlen(text, room - 1);

		if (is_repeated(text, stride, room, i)) {
			t->at[i] = t->at[i - 1];
			continue;
		}
		t->at[i] = (uint32_t)at;
		memcpy((char *)t + at, text, len);
		((char *)t)[at + len] = '\0';
		at += len + 1;
	}
	return t;
}
