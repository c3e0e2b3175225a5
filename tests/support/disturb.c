/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/disturb.h"

#include <string.h>

enum { OMIT, REPEAT, SWAP, OF_RECORDS, CUT = OF_RECORDS, FLIP, OPERATIONS };

struct order {
	size_t record[DISTURB_RECORDS];
	size_t n;
};

static void disturb_order(struct order *o, const uint8_t step[DISTURB_STEP])
{
	size_t a = o->n ? step[1] % o->n : 0, b = o->n ? step[2] % o->n : 0;
	size_t record = o->record[a], *at = &o->record[a];

	if (!o->n)
		return;
	switch (step[0] % OPERATIONS) {
	case OMIT:
		memmove(at, at + 1, (--o->n - a) * sizeof(*at));
		break;
	case REPEAT:
		if (o->n < DISTURB_RECORDS)
			memmove(at + 1, at, (o->n++ - a) * sizeof(*at));
		break;
	default:
		*at = o->record[b];
		o->record[b] = record;
	}
}

static size_t disturb_bytes(uint8_t *out, size_t len,
			    const uint8_t step[DISTURB_STEP])
{
	size_t at = len ? (step[1] | (size_t)step[2] << 8) % len : 0;

	if (step[0] % OPERATIONS == CUT)
		return at;
	if (len)
		out[at] ^= (uint8_t)(1 << step[3] % 8);
	return len;
}

size_t disturb(const uint8_t *stream, const size_t *at, size_t n,
	       const uint8_t *script, size_t len, uint8_t *out, size_t room)
{
	struct order o = {.n = n};
	size_t end = 0, i;

	for (i = 0; i < n; i++)
		o.record[i] = i;
	for (i = 0; i + DISTURB_STEP <= len; i += DISTURB_STEP)
		if (script[i] % OPERATIONS < OF_RECORDS)
			disturb_order(&o, script + i);
	for (i = 0; i < o.n; i++) {
		size_t from = at[o.record[i]];
		size_t bytes = at[o.record[i] + 1] - from;

		if (bytes > room - end)
			break;
		memcpy(out + end, stream + from, bytes);
		end += bytes;
	}
	for (i = 0; i + DISTURB_STEP <= len; i += DISTURB_STEP)
		if (script[i] % OPERATIONS >= OF_RECORDS)
			end = disturb_bytes(out, end, script + i);
	return end;
}

size_t disturb_right(const uint8_t *stream, const size_t *at, size_t n,
		     const uint8_t *out, size_t len)
{
	size_t same = 0, right = 0;

	while (same < len && same < at[n] && out[same] == stream[same])
		same++;
	while (right < n && at[right + 1] <= same)
		right++;
	return right;
}
