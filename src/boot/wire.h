/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of the control plane: frames of at most WIRE_MAX bytes, all
 * numbers little-endian, and a reader that cannot be led outside its frame.
 * Whatever does not parse sets `bad`, which sticks.
 */
#ifndef DICOMM_BOOT_WIRE_H
#define DICOMM_BOOT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_HEADER 8
#define WIRE_MAX 16384 /* bytes of one frame, without its header */
#define WIRE_TEXT 1024 /* longest text, with its NUL */

enum wire_type {
	/* handshake: listener, guest, listener */
	WIRE_CHALLENGE = 1, /* u64 magic, u32 protocol, nonce */
	WIRE_PROOF,         /* nonce, proof */
	WIRE_WELCOME,       /* proof */
	WIRE_REFUSED,       /* u32 status, text; the connection ends */

	/* meeting */
	WIRE_HELLO,   /* see hello.h; text hub address, nonce */
	WIRE_GO,      /* text hub address, nonce */
	WIRE_ROSTER,  /* u32 first, u32 n, n texts: host and pid */
	WIRE_START,   /* all have come */
	WIRE_WHO,     /* u64 gather: whom are we waiting for? */
	WIRE_MISSING, /* u64 gather, text */
	WIRE_GAVE_UP, /* u32 status, text */

	/* a communicator at work */
	WIRE_FAILED,        /* u32 status, u32 culprit, text */
	WIRE_DIED,          /* u32 rank, text */
	WIRE_LEFT,          /* u32 rank */
	WIRE_BYE,           /* the sender leaves */
	WIRE_GATHER,        /* u64 gather, u64 len, bytes */
	WIRE_GATHERED,      /* u64 gather, bytes */
	WIRE_GATHER_FAILED, /* u64 gather, u32 status, text */
	WIRE_QUERY,  /* u64 tag, u32 from, u32 to, u32 class, u64 number */
	WIRE_ANSWER, /* u64 tag, u32 to, u32 status, u32 known, u32 signature,
			text */
	WIRE_TYPES
};

/* A frame being read. */
struct wire_in {
	const uint8_t *data;
	size_t len, pos;
	bool bad;
};

/* A frame being written; begin with wire_begin(). */
struct wire_out {
	size_t len; /* with the header */
	bool bad;
	uint8_t data[WIRE_HEADER + WIRE_MAX];
};

enum wire_found { WIRE_MORE, WIRE_FRAME, WIRE_GARBAGE };

/* Look at the head of a stream. WIRE_FRAME: type and payload are set, and the
 * frame ends at payload->data + payload->len. WIRE_MORE: *want bytes are
 * needed to know more. WIRE_GARBAGE: no frame of at most limit bytes. */
enum wire_found wire_parse(const uint8_t *data, size_t len, size_t limit,
			   enum wire_type *type, struct wire_in *payload,
			   size_t *want);
const char *wire_type_name(enum wire_type type);

uint32_t wire_u32(struct wire_in *in);
uint64_t wire_u64(struct wire_in *in);
void wire_bytes(struct wire_in *in, void *out, size_t len);
/* What is left of the frame. */
const uint8_t *wire_rest(struct wire_in *in, size_t *len);
/* Always ends in NUL and is printable. */
void wire_text(struct wire_in *in, char *out, size_t size);
/* Read to its end, and nothing was missing? */
bool wire_done(const struct wire_in *in);

void wire_begin(struct wire_out *out, enum wire_type type);
void wire_put_u32(struct wire_out *out, uint32_t v);
void wire_put_u64(struct wire_out *out, uint64_t v);
void wire_put_bytes(struct wire_out *out, const void *data, size_t len);
void wire_put_text(struct wire_out *out, const char *text);
/* Fill in the header; the frame is data[0 .. len). */
void wire_end(struct wire_out *out);

#endif
