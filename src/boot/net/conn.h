/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One TCP connection that carries frames. All its operations are non-blocking.
 *
 * First the thread that made the connection drives it with conn_next() and
 * conn_flush(). Then conn_serve() hands it to the control thread, which calls
 * frame() and lost().
 *
 * A conn is the first member of its owner's struct; source.released frees both.
 * After conn_serve() the lock of the loop guards the connection, and callers of
 * these functions hold that lock.
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
	char remote[SOCK_NAME]; /* address of the other end */
	size_t limit;           /* longest frame that is accepted, in bytes */

	/* Called for each frame that arrives. The callback may call conn_drop()
	 * or conn_linger(). The payload is valid until the callback returns. */
	void (*frame)(struct conn *c, enum frame_type type,
		      struct frame_reader *in);
	/* Called when the connection has ended. The callback drops it. */
	void (*lost)(struct conn *c, const char *why);

	uint8_t *in; /* owned; bytes [in_pos, in_len) are unread */
	size_t in_pos, in_len, in_size;
	/* Owned; a queue of whole frames. */
	struct conn_segment *out, **out_last;
	size_t out_len; /* bytes queued */
	/* Owned; NULL during the handshake. */
	struct seal *seal;
	/* Queued bytes of the handshake, which are sent without a seal. */
	size_t plain;
	uint8_t *sealed; /* owned; bytes [sealed_pos, sealed_len) to send */
	size_t sealed_pos, sealed_len;
	bool lingers;
	bool waits_to_send; /* its socket was full */
	bool was_cut_off;   /* by this end */
};

/* Takes ownership of fd. The caller holds the lock of the loop. */
void conn_init(struct conn *c, int fd, size_t limit);
/* Frees what the connection owns; to be called by source.released. */
void conn_fini(struct conn *c);
/* Seals all frames that are queued or read from now on. Returns false if there
 * is no memory. */
bool conn_seal(struct conn *c, const struct seal_keys *keys);
/* Returns true if conn_flush() has not sent everything yet. */
bool conn_has_output(const struct conn *c);
/* The reason that conn.lost() and client_next() get if a sealed frame is not
 * authentic. Compare the pointer. */
extern const char conn_forged[];
/* Lets the control thread serve the connection from now on, beginning with the
 * bytes that are already read. The caller of this function and of the next two
 * holds the lock of the loop. */
dicomm_result_t conn_serve(struct conn *c);
/* Ends the connection at once. No callback is called any more. */
void conn_drop(struct conn *c);
/* Ends the connection when all queued frames are sent and the other end has
 * closed too, or after two seconds. No callback is called any more. */
void conn_linger(struct conn *c);

/* Queues a frame. conn_flush() sends it; if the control thread serves the
 * connection, it leaves when the caller releases the lock, or when there is
 * room. If the other end does not read for a long time,
 * the connection is cut off. */
void conn_send(struct conn *c, const struct frame_writer *frame);
/* Bytes of frames that several connections send. conn_shared_take() takes
 * ownership of `data`, which comes from malloc(), also on failure; then it
 * returns NULL. The caller owns one reference. */
struct conn_shared *conn_shared_take(uint8_t *data, size_t len);
size_t conn_shared_len(const struct conn_shared *s);
void conn_shared_release(struct conn_shared *s);
void conn_send_shared(struct conn *c, struct conn_shared *s);
/* Sends what it can. Returns 0 if all is sent, EAGAIN if not, otherwise the
 * errno that ended the connection. */
int conn_flush(struct conn *c);

/* Bytes that the connections of this process have sent so far. */
uint64_t conn_bytes_sent(void);

/* Reads the bytes that have arrived. Returns 0, EAGAIN if there were none,
 * ENODATA at the end of the stream, otherwise errno. */
int conn_fill(struct conn *c);
/* Writes the reason that belongs to such an errno. */
void conn_reason(int error, char text[FRAME_TEXT]);
/* Takes the next frame from the bytes that were read. */
enum frame_found conn_next(struct conn *c, enum frame_type *type,
			   struct frame_reader *in);

#endif
