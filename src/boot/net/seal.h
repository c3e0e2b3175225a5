/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames as they travel after the handshake: encrypted and authenticated, in
 * order. Each direction is one stream of libsodium's secretstream
 * (XChaCha20-Poly1305). A byte that was changed, and a frame that was repeated,
 * left out, moved or injected, does not open, and nothing after it does.
 *
 *   24 bytes                once: the start of the stream
 *   8 + 17 bytes            for each frame: its header
 *   n + 17 bytes            its payload of n bytes, unless n is 0
 *
 * The header is sealed alone, so that a changed length is noticed at once and
 * nobody waits for bytes that do not come.
 */
#ifndef DICOMM_BOOT_SEAL_H
#define DICOMM_BOOT_SEAL_H

#include "src/boot/net/frame.h"

#define SEAL_KEY 32
#define SEAL_START 24
#define SEAL_TAG 17
#define SEAL_FRAME_MAX (FRAME_HEADER + FRAME_MAX + 2 * SEAL_TAG)

struct seal_keys {
	uint8_t send[SEAL_KEY], receive[SEAL_KEY];
};

struct seal;

/* NULL: out of memory. */
struct seal *seal_create(const struct seal_keys *keys);
/* Overwrites the keys. NULL is allowed. */
void seal_destroy(struct seal *s);

/* Seal one frame, len bytes with its header, into out, which has room for
 * SEAL_START + SEAL_FRAME_MAX bytes. Returns the bytes written. */
size_t seal_frame(struct seal *s, const uint8_t *frame, size_t len,
		  uint8_t *out);

/* Open the next frame from the bytes that have come; *used of them are done
 * with, whatever the result. FRAME_COMPLETE: payload is valid until the next
 * call. FRAME_MORE: seal_wants() bytes are needed. FRAME_FORGED: the bytes are
 * not what the other end has sent. FRAME_GARBAGE: it has sent no frame of at
 * most limit bytes, or there is no memory for it. */
enum frame_found seal_open(struct seal *s, const uint8_t *data, size_t len,
			   size_t limit, size_t *used, enum frame_type *type,
			   struct frame_reader *payload);
size_t seal_wants(const struct seal *s);

#endif
