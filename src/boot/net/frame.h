/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The format of messages on the control plane. A frame has a header of 8 bytes
 * and at most FRAME_MAX bytes of payload. All numbers are little-endian. A
 * reader never reads outside its frame. If something does not parse, the reader
 * sets `bad`, which stays set.
 */
#ifndef DICOMM_BOOT_FRAME_H
#define DICOMM_BOOT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define FRAME_HEADER 8
#define FRAME_MAX 16384 /* bytes of payload */
#define FRAME_TEXT 1024 /* bytes of the longest text, with its NUL */

enum frame_type {
	/* Handshake: sent by the listener, the client, the listener. */
	FRAME_CHALLENGE = 1, /* u64 magic, u32 protocol, nonce, public key */
	FRAME_PROOF,         /* nonce, public key, proof */
	FRAME_WELCOME,       /* proof */
	FRAME_REFUSED,       /* u32 status, text; the connection ends */

	/* Recovery: is that rank alive? */
	FRAME_PROBE, /* nonce */
	FRAME_ALIVE, /* u32 state, proof; see handshake_answer() */

	/* Joining. */
	/* See rank_info.h; for the id server also text hub address (see
	 * id_server.h), nonce. For a parent (relay.h): u32 rank, u32 parent. */
	FRAME_JOIN,
	FRAME_HUB, /* text hub address, nonce */
	/* text rank 0's host and pid, u32 parent + 1, u32 children, key; see
	 * relay.h. */
	FRAME_TREE,
	/* All ranks have joined. Bytes: host and pid of each, see
	 * members_put_names(); none: the ranks gather them. */
	FRAME_START,
	FRAME_ASK_MISSING, /* u64 gather; asks which ranks are missing */
	FRAME_MISSING,     /* u64 gather, text, u32 1: all of them are busy */
	FRAME_GAVE_UP,     /* u32 status, text */

	/* A communicator in use. */
	FRAME_FAILED,        /* u32 status, u32 culprit, text */
	FRAME_DIED,          /* u32 rank, text */
	FRAME_LEFT,          /* u32 rank */
	FRAME_BYE,           /* the sender leaves the communicator */
	FRAME_GATHER,        /* u64 gather, u64 len, bytes */
	FRAME_GATHERED,      /* u64 gather, bytes; see delta.h */
	FRAME_GATHER_FAILED, /* u64 gather, u32 status, text */
	/* Results that a parent passes on; see relay.h. */
	FRAME_RELAY,  /* text: where a parent listens, "": nowhere */
	FRAME_CHILD,  /* u32 1: the sender has its parent, 0: not any more */
	FRAME_COMING, /* u64 gather: its result is on its way */
	FRAME_RESEND, /* u64 gather: it has not come */
	FRAME_QUERY,  /* u64 tag, u32 from, u32 to, u32 class, u64 number */
	FRAME_ANSWER, /* u64 tag, u32 to, u32 status, u32 known, u32 signature,
			text */
	FRAME_LETTER, /* u32 from, u32 to, u64 key, bytes */
	FRAME_BUSY, /* text: what the sender does before it gathers, "": done */

	/* An inquiry (dicomm-info --job HOST:PORT). */
	FRAME_ASKER,   /* as FRAME_PROOF, of one who does not join, but asks */
	FRAME_INQUIRE, /* u64 inquiry */
	/* To the hub: u64 inquiry, u32 kind, bytes. To who asks: u64 rank, u32
	 * kind, bytes. See job_port.h. */
	FRAME_TOLD,
	FRAME_TYPES
};

/* A frame that is being read. */
struct frame_reader {
	const uint8_t *data;
	size_t len, pos;
	bool bad;
};

/* A frame that is being written, beginning with frame_begin(); after each
 * addition, data[0 .. len) is a whole frame. `bad`: it was too long. */
struct frame_writer {
	size_t len; /* with the header */
	bool bad;
	uint8_t data[FRAME_HEADER + FRAME_MAX];
};

/* FRAME_FORGED is returned for sealed frames only (seal.h). */
enum frame_found { FRAME_MORE, FRAME_COMPLETE, FRAME_GARBAGE, FRAME_FORGED };

/* Parses the beginning of a stream. FRAME_COMPLETE: type and payload are set,
 * and the frame ends at payload->data + payload->len. FRAME_MORE: more bytes
 * are needed, *want in all. FRAME_GARBAGE: this is not a frame of at most
 * `limit` bytes. */
enum frame_found frame_parse(const uint8_t *data, size_t len, size_t limit,
			     enum frame_type *type,
			     struct frame_reader *payload, size_t *want);
/* Stores the type of a header that frame_parse() has accepted. Returns the
 * length of the whole frame in bytes. */
size_t frame_parse_header(const uint8_t header[FRAME_HEADER],
			  enum frame_type *type);
const char *frame_type_name(enum frame_type type);

uint32_t frame_get_u32(struct frame_reader *in);
uint64_t frame_get_u64(struct frame_reader *in);
void frame_get_bytes(struct frame_reader *in, void *out, size_t len);
/* Returns the rest of the frame. */
const uint8_t *frame_get_rest(struct frame_reader *in, size_t *len);
/* The text always ends in NUL and is printable. */
void frame_get_text(struct frame_reader *in, char *out, size_t size);
/* Returns true if the frame was read to its end and nothing was missing. */
bool frame_done(const struct frame_reader *in);

void frame_begin(struct frame_writer *out, enum frame_type type);
void frame_put_u32(struct frame_writer *out, uint32_t v);
void frame_put_u64(struct frame_writer *out, uint64_t v);
void frame_put_bytes(struct frame_writer *out, const void *data, size_t len);
void frame_put_text(struct frame_writer *out, const char *text);

/* Converts a number from the network to a status. Returns DICOMM_ERR_REMOTE if
 * it is not a status of this library. */
dicomm_result_t frame_status(uint32_t status);

#endif
