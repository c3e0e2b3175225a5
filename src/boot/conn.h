/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One TCP connection that carries frames. First driven by the thread that made
 * it (conn_next(), conn_flush()), then handed to the control thread, which
 * calls frame() and lost(). Everything is non-blocking.
 *
 * The first member of what it belongs to, and freed with that by
 * source.released. Once it was handed over, the lock of the loop guards it and
 * is held by whoever calls these functions.
 */
#ifndef DICOMM_BOOT_CONN_H
#define DICOMM_BOOT_CONN_H

#include "src/boot/loop.h"
#include "src/boot/sock.h"
#include "src/boot/wire.h"

struct conn_segment;
struct conn_shared;

struct conn {
	struct loop_source source;
	char peer[SOCK_TEXT];
	size_t limit; /* longest frame that is taken */

	/* May drop or linger the connection. The payload is valid until it
	 * returns. */
	void (*frame)(struct conn *c, enum wire_type type, struct wire_in *in);
	/* It has ended; drop it. */
	void (*lost)(struct conn *c, const char *why);

	uint8_t *in; /* owned: bytes [in_pos, in_len) are unread */
	size_t in_pos, in_len, in_size;
	struct conn_segment *out, **out_last; /* owned */
	size_t out_len;                       /* bytes queued */
	bool lingers;
};

/* Take fd; with the lock held. */
void conn_init(struct conn *c, int fd, size_t limit);
/* Free what it owns; from source.released. */
void conn_fini(struct conn *c);
/* Have the control thread serve it from now on, starting with what is already
 * read. With the lock held, as for the next two. */
dicomm_result_t conn_serve(struct conn *c);
/* End it now; no callback comes any more. */
void conn_drop(struct conn *c);
/* End it once all queued frames are sent and the peer has closed too, or after
 * two seconds; no callback comes any more. */
void conn_linger(struct conn *c);

/* Queue a frame; it is sent by conn_flush() or, if the connection is served,
 * soon. A peer that does not read for long is cut off. */
void conn_send(struct conn *c, const struct wire_out *frame);
/* The same bytes, already framed, for many. Takes data (from malloc), also on
 * failure, which is NULL; the caller then holds one reference. */
struct conn_shared *conn_shared_take(uint8_t *data, size_t len);
void conn_shared_release(struct conn_shared *s);
void conn_send_shared(struct conn *c, struct conn_shared *s);
/* 0: all is sent; EAGAIN: not yet; else the errno that ended it. */
int conn_flush(struct conn *c);

/* Read what has come; 0, EAGAIN when there was nothing, ENODATA at its end,
 * else errno. */
int conn_fill(struct conn *c);
/* Take the next frame that was read. */
enum wire_found conn_next(struct conn *c, enum wire_type *type,
			  struct wire_in *in);

#endif
