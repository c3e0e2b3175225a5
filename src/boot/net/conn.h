/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One TCP connection that carries frames. At first the thread that made it
 * drives it with conn_next() and conn_flush(). conn_serve() then hands it to
 * the control thread, which calls frame() and lost(). Everything is
 * non-blocking.
 *
 * A conn is the first member of its owner's struct; source.released frees both.
 * After conn_serve() the lock of the loop guards it, and callers of these
 * functions hold that lock.
 */
#ifndef DICOMM_BOOT_CONN_H
#define DICOMM_BOOT_CONN_H

#include "src/boot/net/loop.h"
#include "src/boot/net/seal.h"
#include "src/boot/net/sock.h"

struct conn_segment;
struct conn_shared;

struct conn {
	struct loop_source source;
	char remote[SOCK_TEXT]; /* address of the other end */
	size_t limit;           /* longest frame that is accepted */

	/* A frame has come. The callback may call conn_drop() or conn_linger().
	 * The payload is valid until it returns. */
	void (*frame)(struct conn *c, enum frame_type type,
		      struct frame_reader *in);
	/* The connection has ended. The callback drops it. */
	void (*lost)(struct conn *c, const char *why);

	uint8_t *in; /* owned: bytes [in_pos, in_len) are unread */
	size_t in_pos, in_len, in_size;
	struct conn_segment *out, **out_last; /* owned: whole frames */
	size_t out_len;                       /* bytes queued */
	struct seal *seal;                    /* owned; NULL: handshake */
	size_t plain;    /* queued bytes of the handshake, not to be sealed */
	uint8_t *sealed; /* owned: bytes [sealed_pos, sealed_len) to send */
	size_t sealed_pos, sealed_len;
	bool lingers;
};

/* Take fd. With the lock held. */
void conn_init(struct conn *c, int fd, size_t limit);
/* Free what it owns; from source.released. */
void conn_fini(struct conn *c);
/* Seal all frames that are queued or read from now on. False: out of memory. */
bool conn_seal(struct conn *c, const struct seal_keys *keys);
/* Is something queued that conn_flush() has not sent yet? */
bool conn_has_output(const struct conn *c);
/* What conn.lost() is told, and what client_next() returns, if a sealed frame
 * does not open. Compare the pointer. */
extern const char conn_forged[];
/* Have the control thread serve it from now on, starting with the bytes that
 * are already read. This and the next two need the lock. */
dicomm_result_t conn_serve(struct conn *c);
/* End it now. No callback comes any more. */
void conn_drop(struct conn *c);
/* End it once all queued frames are sent and the other end has closed too, or
 * after two seconds. No callback comes any more. */
void conn_linger(struct conn *c);

/* Queue a frame. conn_flush() sends it; if the connection is served, the
 * control thread does so soon. The connection is cut off if the other end does
 * not read for long. */
void conn_send(struct conn *c, const struct frame_writer *frame);
/* Bytes of frames that several connections send. Takes data (from malloc), also
 * on failure, which is NULL. The caller holds one reference. */
struct conn_shared *conn_shared_take(uint8_t *data, size_t len);
void conn_shared_release(struct conn_shared *s);
void conn_send_shared(struct conn *c, struct conn_shared *s);
/* 0: all is sent. EAGAIN: not yet. Otherwise the errno that ended it. */
int conn_flush(struct conn *c);

/* Read the bytes that have come. 0; EAGAIN if there were none; ENODATA at the
 * end of the stream; otherwise errno. */
int conn_fill(struct conn *c);
/* Take the next frame from the bytes read. */
enum frame_found conn_next(struct conn *c, enum frame_type *type,
			   struct frame_reader *in);

#endif
