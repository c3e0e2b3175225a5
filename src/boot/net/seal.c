/* SPDX-License-Identifier: BSD-3-Clause */
/* The sealed streams of a connection. */
#include "src/boot/net/seal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

static_assert(SEAL_KEY == crypto_secretstream_xchacha20poly1305_KEYBYTES,
	      "size of a key");
static_assert(SEAL_START == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
	      "size of the start");
static_assert(SEAL_TAG == crypto_secretstream_xchacha20poly1305_ABYTES,
	      "size of a tag");

struct seal {
	crypto_secretstream_xchacha20poly1305_state send, receive;
	uint8_t send_key[SEAL_KEY], receive_key[SEAL_KEY];
	bool sends, receives; /* this direction has started */
	/* FRAME_MORE, or why the other end's stream is over. That stays. */
	enum frame_found over;

	/* The header of the frame whose payload has not arrived yet. */
	bool has_header;
	uint8_t header[FRAME_HEADER];
	size_t payload; /* bytes of that payload */

	uint8_t *opened; /* owned; the last payload */
	size_t opened_size;
};

struct seal *seal_create(const struct seal_keys *keys)
{
	struct seal *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	memcpy(s->send_key, keys->send, SEAL_KEY);
	memcpy(s->receive_key, keys->receive, SEAL_KEY);
	return s;
}

void seal_destroy(struct seal *s)
{
	if (!s)
		return;
	if (s->opened)
		sodium_memzero(s->opened, s->opened_size);
	free(s->opened);
	sodium_memzero(s, sizeof(*s));
	free(s);
}

static size_t push(struct seal *s, const uint8_t *from, size_t len, uint8_t *to)
{
	crypto_secretstream_xchacha20poly1305_push(&s->send, to, NULL, from,
						   len, NULL, 0, 0);
	return len + SEAL_TAG;
}

size_t seal_frame(struct seal *s, const uint8_t *frame, size_t len,
		  uint8_t *out)
{
	size_t n = 0;

	if (!s->sends) {
		crypto_secretstream_xchacha20poly1305_init_push(&s->send, out,
								s->send_key);
		sodium_memzero(s->send_key, sizeof(s->send_key));
		s->sends = true;
		n = SEAL_START;
	}
	n += push(s, frame, FRAME_HEADER, out + n);
	if (len > FRAME_HEADER)
		n += push(s, frame + FRAME_HEADER, len - FRAME_HEADER, out + n);
	return n;
}

size_t seal_wants(const struct seal *s)
{
	if (!s->receives)
		return SEAL_START;
	return SEAL_TAG + (s->has_header ? s->payload : FRAME_HEADER);
}

static bool pull(struct seal *s, const uint8_t *from, size_t len, uint8_t *to)
{
	return !crypto_secretstream_xchacha20poly1305_pull(
		&s->receive, to, NULL, NULL, from, len + SEAL_TAG, NULL, 0);
}

static bool reserve(struct seal *s, size_t len)
{
	uint8_t *bigger;

	if (len <= s->opened_size)
		return true;
	bigger = realloc(s->opened, len);
	if (!bigger)
		return false;
	s->opened = bigger;
	s->opened_size = len;
	return true;
}

/* Opens one part of the stream: the start, a header or a payload. All its bytes
 * have arrived. Returns FRAME_MORE if this does not complete a frame. */
static enum frame_found open_part(struct seal *s, const uint8_t *data,
				  size_t limit, enum frame_type *type,
				  struct frame_reader *payload)
{
	enum frame_found found;
	size_t want = FRAME_HEADER;

	if (!s->receives) {
		s->receives = true;
		if (crypto_secretstream_xchacha20poly1305_init_pull(
			    &s->receive, data, s->receive_key))
			return FRAME_FORGED;
		sodium_memzero(s->receive_key, sizeof(s->receive_key));
		return FRAME_MORE;
	}
	if (!s->has_header) {
		if (!pull(s, data, FRAME_HEADER, s->header))
			return FRAME_FORGED;
		found = frame_parse(s->header, FRAME_HEADER, limit, type,
				    payload, &want);
		s->payload = want - FRAME_HEADER;
		s->has_header = found == FRAME_MORE;
		return found;
	}
	if (!reserve(s, s->payload))
		return FRAME_GARBAGE;
	if (!pull(s, data, s->payload, s->opened))
		return FRAME_FORGED;
	s->has_header = false;
	frame_parse_header(s->header, type);
	*payload = (struct frame_reader){.data = s->opened, .len = s->payload};
	return FRAME_COMPLETE;
}

enum frame_found seal_open(struct seal *s, const uint8_t *data, size_t len,
			   size_t limit, size_t *used, enum frame_type *type,
			   struct frame_reader *payload)
{
	enum frame_found found;
	size_t n;

	*used = 0;
	while (s->over == FRAME_MORE) {
		n = seal_wants(s);
		if (len - *used < n)
			return FRAME_MORE;
		found = open_part(s, data + *used, limit, type, payload);
		*used += n;
		if (found == FRAME_COMPLETE)
			return found;
		s->over = found;
	}
	return s->over;
}
