/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and parses frames of the control plane. */
#include <string.h>

#include "src/boot/net/frame.h"

/* The first two bytes of a frame. They tell at once if the other end speaks
 * another protocol; otherwise this end would wait for bytes that never
 * arrive. */
#define MARK 0xd1c0u

static const char *const type_names[FRAME_TYPES] = {
	[FRAME_CHALLENGE] = "challenge",
	[FRAME_PROOF] = "proof",
	[FRAME_WELCOME] = "welcome",
	[FRAME_REFUSED] = "refused",
	[FRAME_PROBE] = "probe",
	[FRAME_ALIVE] = "alive",
	[FRAME_JOIN] = "join",
	[FRAME_HUB] = "hub",
	[FRAME_TREE] = "tree",
	[FRAME_START] = "start",
	[FRAME_ASK_MISSING] = "ask missing",
	[FRAME_MISSING] = "missing",
	[FRAME_GAVE_UP] = "gave up",
	[FRAME_FAILED] = "failed",
	[FRAME_DIED] = "died",
	[FRAME_LEFT] = "left",
	[FRAME_BYE] = "bye",
	[FRAME_GATHER] = "gather",
	[FRAME_GATHERED] = "gathered",
	[FRAME_GATHER_FAILED] = "gather failed",
	[FRAME_RELAY] = "relay",
	[FRAME_CHILD] = "child",
	[FRAME_COMING] = "coming",
	[FRAME_RESEND] = "resend",
	[FRAME_QUERY] = "query",
	[FRAME_ANSWER] = "answer",
	[FRAME_LETTER] = "letter",
	[FRAME_BUSY] = "busy",
	[FRAME_ASKER] = "asker",
	[FRAME_INQUIRE] = "inquire",
	[FRAME_TOLD] = "told",
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

enum frame_found frame_parse(const uint8_t *data, size_t len, size_t limit,
			     enum frame_type *type,
			     struct frame_reader *payload, size_t *want)
{
	uint32_t kind, n;

	if (len >= 2 && get(data, 2) != MARK)
		return FRAME_GARBAGE;
	*want = FRAME_HEADER;
	if (len < FRAME_HEADER)
		return FRAME_MORE;
	kind = get(data + 2, 2);
	n = get(data + 4, 4);
	if (!kind || kind >= FRAME_TYPES || n > limit)
		return FRAME_GARBAGE;
	*want = FRAME_HEADER + n;
	if (len < *want)
		return FRAME_MORE;
	*type = (enum frame_type)kind;
	*payload = (struct frame_reader){.data = data + FRAME_HEADER, .len = n};
	return FRAME_COMPLETE;
}

size_t frame_parse_header(const uint8_t header[FRAME_HEADER],
			  enum frame_type *type)
{
	*type = (enum frame_type)get(header + 2, 2);
	return FRAME_HEADER + get(header + 4, 4);
}

const char *frame_type_name(enum frame_type type)
{
	return type_names[type];
}

static const uint8_t *take(struct frame_reader *in, size_t len)
{
	const uint8_t *p = in->data + in->pos;

	if (in->bad || len > in->len - in->pos) {
		in->bad = true;
		return NULL;
	}
	in->pos += len;
	return p;
}

uint32_t frame_get_u32(struct frame_reader *in)
{
	const uint8_t *p = take(in, 4);

	return p ? get(p, 4) : 0;
}

uint64_t frame_get_u64(struct frame_reader *in)
{
	uint64_t low = frame_get_u32(in);

	return low | (uint64_t)frame_get_u32(in) << 32;
}

void frame_get_bytes(struct frame_reader *in, void *out, size_t len)
{
	const uint8_t *p = take(in, len);

	if (p)
		memcpy(out, p, len);
	else
		memset(out, 0, len);
}

const uint8_t *frame_get_rest(struct frame_reader *in, size_t *len)
{
	*len = in->bad ? 0 : in->len - in->pos;
	return take(in, *len);
}

void frame_get_text(struct frame_reader *in, char *out, size_t size)
{
	const uint8_t *p = take(in, 2);
	size_t len = p ? get(p, 2) : 0;

	out[0] = '\0';
	if (len >= size)
		in->bad = true;
	p = take(in, len);
	if (!p)
		return;
	/* The text goes to a log or a terminal, so keep it printable. */
	for (size_t i = 0; i < len; i++)
		out[i] = p[i] >= ' ' && p[i] <= '~' ? (char)p[i] : '?';
	out[len] = '\0';
}

bool frame_done(const struct frame_reader *in)
{
	return !in->bad && in->pos == in->len;
}

static uint8_t *room(struct frame_writer *out, size_t len)
{
	uint8_t *p = out->data + out->len;

	if (out->bad || len > sizeof(out->data) - out->len) {
		out->bad = true;
		return NULL;
	}
	out->len += len;
	put(out->data + 4, out->len - FRAME_HEADER, 4);
	return p;
}

void frame_begin(struct frame_writer *out, enum frame_type type)
{
	out->len = FRAME_HEADER;
	out->bad = false;
	put(out->data, MARK, 2);
	put(out->data + 2, type, 2);
	put(out->data + 4, 0, 4);
}

void frame_put_u32(struct frame_writer *out, uint32_t v)
{
	uint8_t *p = room(out, 4);

	if (p)
		put(p, v, 4);
}

void frame_put_u64(struct frame_writer *out, uint64_t v)
{
	uint8_t *p = room(out, 8);

	if (p)
		put(p, v, 8);
}

void frame_put_bytes(struct frame_writer *out, const void *data, size_t len)
{
	uint8_t *p = room(out, len);

	if (p && len)
		memcpy(p, data, len);
}

/* Cuts a text that is too long, since it is for people. */
void frame_put_text(struct frame_writer *out, const char *text)
{
	size_t len = strnlen(text, FRAME_TEXT - 1);
	uint8_t *p = room(out, 2);

	if (p)
		put(p, len, 2);
	frame_put_bytes(out, text, len);
}

dicomm_result_t frame_status(uint32_t status)
{
	switch (status) {
	case DICOMM_ERR_DEVICE:
	case DICOMM_ERR_SYSTEM:
	case DICOMM_ERR_INTERNAL:
	case DICOMM_ERR_INVALID_ARGUMENT:
	case DICOMM_ERR_INVALID_USAGE:
	case DICOMM_ERR_TIMEOUT:
	case DICOMM_ERR_NO_MEMORY:
	case DICOMM_ERR_UNSUPPORTED:
	case DICOMM_ERR_NO_PATH:
	case DICOMM_ERR_ABORTED:
		return (dicomm_result_t)status;
	default:
		return DICOMM_ERR_REMOTE;
	}
}
