/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames as they travel after the handshake: encrypted, authenticated and in
 * order. Each direction is one stream of libsodium's secretstream
 * (XChaCha20-Poly1305). A frame that was changed, repeated, left out, moved or
 * injected is detected, and nothing after it is accepted.
 *
 *   24 bytes                once: the start of the stream
 *   8 + 17 bytes            for each frame: its header
 *   n + 17 bytes            its payload of n bytes, unless n is 0
 *
 * The header is sealed separately. So a changed length is noticed at once, and
 * nobody waits for bytes that do not arrive.
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

/* Returns NULL if there is no memory. */
struct seal *seal_create(const struct seal_keys *keys);
/* Overwrites the keys. s may be NULL. */
void seal_destroy(struct seal *s);

/* Seals one frame of len bytes, including its header. `out` has room for
 * SEAL_START + SEAL_FRAME_MAX bytes. Returns the number of bytes written. */
size_t seal_frame(struct seal *s, const uint8_t *frame, size_t len,
		  uint8_t *out);

/* Opens the next frame from the len bytes that have arrived. Whatever the
 * result, *used of them are consumed. FRAME_COMPLETE: the payload is valid
 * until the next call. FRAME_MORE: seal_wants() bytes are needed. FRAME_FORGED:
 * the other end has not sent these bytes. FRAME_GARBAGE: the frame is invalid
 * or longer than `limit` bytes, or there is no memory for it. */
enum frame_found seal_open(struct seal *s, const uint8_t *data, size_t len,
			   size_t limit, size_t *used, enum frame_type *type,
			   struct frame_reader *payload);
size_t seal_wants(const struct seal *s);

#endif
