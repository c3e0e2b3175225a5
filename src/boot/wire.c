/* SPDX-License-Identifier: BSD-3-Clause */
/* Framing and bounded parsing of the control plane. */
#include <assert.h>
#include <string.h>

#include "src/boot/wire.h"

/* First two bytes of a frame: what speaks another protocol is known at once,
 * and not by waiting for a length that was never one. */
#define MARK 0xd1c0u

static const char *const type_names[WIRE_TYPES] = {
	[WIRE_CHALLENGE] = "challenge",
	[WIRE_PROOF] = "proof",
	[WIRE_WELCOME] = "welcome",
	[WIRE_REFUSED] = "refused",
	[WIRE_HELLO] = "hello",
	[WIRE_GO] = "go",
	[WIRE_ROSTER] = "roster",
	[WIRE_START] = "start",
	[WIRE_WHO] = "who",
	[WIRE_MISSING] = "missing",
	[WIRE_GAVE_UP] = "gave up",
	[WIRE_FAILED] = "failed",
	[WIRE_DIED] = "died",
	[WIRE_LEFT] = "left",
	[WIRE_BYE] = "bye",
	[WIRE_GATHER] = "gather",
	[WIRE_GATHERED] = "gathered",
	[WIRE_GATHER_FAILED] = "gather failed",
	[WIRE_QUERY] = "query",
	[WIRE_ANSWER] = "answer",
};

static uint32_t get(const uint8_t *p, int bytes)
{
	uint32_t v = 0;

	for (int i = bytes; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

enum wire_found wire_parse(const uint8_t *data, size_t len, size_t limit,
			   enum wire_type *type, struct wire_in *payload,
			   size_t *want)
{
	uint32_t kind, n;

	if (len >= 2 && get(data, 2) != MARK)
		return WIRE_GARBAGE;
	*want = WIRE_HEADER;
	if (len < WIRE_HEADER)
		return WIRE_MORE;
	kind = get(data + 2, 2);
	n = get(data + 4, 4);
	if (!kind || kind >= WIRE_TYPES || n > limit)
		return WIRE_GARBAGE;
	*want = WIRE_HEADER + n;
	if (len < *want)
		return WIRE_MORE;
	*type = (enum wire_type)kind;
	*payload = (struct wire_in){.data = data + WIRE_HEADER, .len = n};
	return WIRE_FRAME;
}

const char *wire_type_name(enum wire_type type)
{
	return type_names[type];
}

static const uint8_t *take(struct wire_in *in, size_t len)
{
	const uint8_t *p = in->data + in->pos;

	if (in->bad || len > in->len - in->pos) {
		in->bad = true;
		return NULL;
	}
	in->pos += len;
	return p;
}

uint32_t wire_u32(struct wire_in *in)
{
	const uint8_t *p = take(in, 4);

	return p ? get(p, 4) : 0;
}

uint64_t wire_u64(struct wire_in *in)
{
	uint64_t low = wire_u32(in);

	return low | (uint64_t)wire_u32(in) << 32;
}

void wire_bytes(struct wire_in *in, void *out, size_t len)
{
	const uint8_t *p = take(in, len);

	if (p)
		memcpy(out, p, len);
	else
		memset(out, 0, len);
}

const uint8_t *wire_rest(struct wire_in *in, size_t *len)
{
	*len = in->bad ? 0 : in->len - in->pos;
	return take(in, *len);
}

void wire_text(struct wire_in *in, char *out, size_t size)
{
	const uint8_t *p = take(in, 2);
	size_t len = p ? get(p, 2) : 0;

	out[0] = '\0';
	if (len >= size)
		in->bad = true;
	p = take(in, len);
	if (!p)
		return;
	/* It ends in a log or on a terminal. */
	for (size_t i = 0; i < len; i++)
		out[i] = p[i] >= ' ' && p[i] <= '~' ? (char)p[i] : '?';
	out[len] = '\0';
}

bool wire_done(const struct wire_in *in)
{
	return !in->bad && in->pos == in->len;
}

static uint8_t *room(struct wire_out *out, size_t len)
{
	uint8_t *p = out->data + out->len;

	if (out->bad || len > sizeof(out->data) - out->len) {
		out->bad = true;
		return NULL;
	}
	out->len += len;
	return p;
}

void wire_begin(struct wire_out *out, enum wire_type type)
{
	out->len = WIRE_HEADER;
	out->bad = false;
	put(out->data, MARK, 2);
	put(out->data + 2, type, 2);
}

void wire_put_u32(struct wire_out *out, uint32_t v)
{
	uint8_t *p = room(out, 4);

	if (p)
		put(p, v, 4);
}

void wire_put_u64(struct wire_out *out, uint64_t v)
{
	uint8_t *p = room(out, 8);

	if (p)
		put(p, v, 8);
}

void wire_put_bytes(struct wire_out *out, const void *data, size_t len)
{
	uint8_t *p = room(out, len);

	if (p && len)
		memcpy(p, data, len);
}

/* A text too long is cut: it is for people. */
void wire_put_text(struct wire_out *out, const char *text)
{
	size_t len = strnlen(text, WIRE_TEXT - 1);
	uint8_t *p = room(out, 2);

	if (p)
		put(p, len, 2);
	wire_put_bytes(out, text, len);
}

void wire_end(struct wire_out *out)
{
	/* Our own frames fit: each has a fixed bound below WIRE_MAX. */
	assert(!out->bad);
	put(out->data + 4, out->len - WIRE_HEADER, 4);
}
