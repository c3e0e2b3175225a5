/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/control/delta.h"

#include <stdlib.h>
#include <string.h>

/* Fewer alike bytes between others are not worth two numbers. */
#define ALIKE_LEAST 4
#define NUMBER_MOST 10 /* bytes of a u64 in groups of 7 bits */

/* ---- writing ---- */

static bool reserve(struct delta_writer *w, size_t more)
{
	size_t size = w->size ? 2 * w->size : 1024;
	uint8_t *bigger;

	if (w->bad || w->len + more <= w->size)
		return !w->bad;
	if (size < w->len + more)
		size = w->len + more;
	bigger = realloc(w->data, size);
	w->bad = !bigger;
	if (w->bad)
		return false;
	w->data = bigger;
	w->size = size;
	return true;
}

static void put_number(struct delta_writer *w, uint64_t v)
{
	for (; v > 127; v >>= 7)
		w->data[w->len++] = (uint8_t)(v | 128);
	w->data[w->len++] = (uint8_t)v;
}

static void put_pair(struct delta_writer *w, const uint8_t *data, size_t n)
{
	if (!reserve(w, 2 * NUMBER_MOST + n))
		return;
	put_number(w, w->alike);
	put_number(w, n);
	if (n)
		memcpy(w->data + w->len, data, n);
	w->len += n;
	w->alike = 0;
}

static size_t count_alike(const uint8_t *before, const uint8_t *part,
			  size_t len)
{
	size_t n = 0;

	while (n < len && part[n] == (before ? before[n] : 0))
		n++;
	return n;
}

/* Returns the number of bytes before the next alike ones that are worth it. */
static size_t count_unlike(const uint8_t *before, const uint8_t *part,
			   size_t len)
{
	size_t n = 0, alike = 0;

	for (; n < len && alike < ALIKE_LEAST; n++)
		alike = part[n] == (before ? before[n] : 0) ? alike + 1 : 0;
	/* At the end of a part, the next one may go on alike. */
	return n - alike;
}

void delta_add(struct delta_writer *w, const uint8_t *before,
	       const uint8_t *part, size_t len)
{
	size_t at = 0, n;

	while (at < len) {
		const uint8_t *b = before ? before + at : NULL;

		n = count_alike(b, part + at, len - at);
		w->alike += n;
		at += n;
		if (at == len)
			return;
		b = before ? before + at : NULL;
		n = count_unlike(b, part + at, len - at);
		put_pair(w, part + at, n);
		at += n;
	}
}

bool delta_end(struct delta_writer *w)
{
	if (w->alike)
		put_pair(w, NULL, 0);
	return !w->bad;
}

/* ---- reading ---- */

static void repeat(struct delta_reader *r, size_t n)
{
	while (n) {
		bool first = r->got < r->part;
		size_t room = first ? r->part - r->got : r->part;
		size_t some = n < room ? n : room;

		if (first)
			memset(r->to + r->got, 0, some);
		else
			memcpy(r->to + r->got, r->to + r->got - r->part, some);
		r->got += some;
		n -= some;
	}
}

/* Takes one byte of a number. */
static bool take_digit(struct delta_reader *r, uint8_t digit)
{
	if (r->shift > 56)
		return false;
	r->number |= (uint64_t)(digit & 127) << r->shift;
	r->shift += 7;
	if (digit & 128)
		return true;
	if (r->number > r->want - r->got)
		return false;
	if (r->has_alike)
		r->left = r->number;
	else
		repeat(r, (size_t)r->number);
	r->has_alike = !r->has_alike;
	r->number = 0;
	r->shift = 0;
	return true;
}

bool delta_take(struct delta_reader *r, const uint8_t *data, size_t len)
{
	while (len) {
		size_t n = r->left < len ? (size_t)r->left : len;

		if (!n) {
			if (!take_digit(r, *data++))
				return false;
			len--;
			continue;
		}
		memcpy(r->to + r->got, data, n);
		r->got += n;
		r->left -= n;
		data += n;
		len -= n;
	}
	return true;
}
