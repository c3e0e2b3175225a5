/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection that carries frames: buffers, queue, closing. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "src/boot/net/conn.h"

/* Bytes of the first buffer; most connections need no larger one. */
#define IN_FIRST 1024
#define SEGMENT 512 /* bytes; small frames share a segment */
/* Bytes to read before other connections get their turn. */
#define TURN (256 << 10)
/* Most bytes queued for a peer that does not read. */
#define OUT_MAX ((size_t)4 << 30)
#define LINGER_NS 2000000000ull
#define SEALED (SEAL_START + 2 * SEAL_FRAME_MAX) /* bytes sealed in advance */

const char conn_forged[] =
	"a frame was changed, repeated, left out or injected on the way";

/* Bytes that one or several connections send. */
struct conn_shared {
	int refs;
	size_t len, size;
	uint8_t *data; /* owned */
};

struct conn_segment {
	struct conn_segment *next;
	struct conn_shared *shared;
	size_t pos;
};

/* Some connections send without the lock. */
static _Atomic uint64_t bytes_sent;

static void ready(struct loop_source *s, uint32_t events);
static void send_queued(struct loop_source *s);

void conn_init(struct conn *c, int fd, size_t limit)
{
	c->source.fd = fd;
	c->source.ready = ready;
	c->source.send = send_queued;
	c->limit = limit;
	c->in = NULL;
	c->in_pos = c->in_len = c->in_size = 0;
	c->out = NULL;
	c->out_last = &c->out;
	c->out_len = 0;
	c->seal = NULL;
	c->plain = 0;
	c->sealed = NULL;
	c->sealed_pos = c->sealed_len = 0;
	c->lingers = c->waits_to_send = false;
	loop_add(&c->source);
}

static void pop_segment(struct conn *c)
{
	struct conn_segment *s = c->out;

	c->out = s->next;
	if (!c->out)
		c->out_last = &c->out;
	conn_shared_release(s->shared);
	free(s);
}

static void clear_queue(struct conn *c)
{
	while (c->out)
		pop_segment(c);
	c->out_len = 0;
	free(c->sealed);
	c->sealed = NULL;
	c->sealed_pos = c->sealed_len = 0;
}

bool conn_seal(struct conn *c, const struct seal_keys *keys)
{
	c->plain = c->out_len;
	c->seal = seal_create(keys);
	return c->seal != NULL;
}

bool conn_has_output(const struct conn *c)
{
	return c->out || c->sealed;
}

void conn_fini(struct conn *c)
{
	clear_queue(c);
	seal_destroy(c->seal);
	c->seal = NULL;
	free(c->in);
	c->in = NULL;
}

void conn_drop(struct conn *c)
{
	/* Free the queue now, not only when the thread releases the source. */
	clear_queue(c);
	loop_drop(&c->source);
}

static void linger_expired(struct loop_source *s)
{
	conn_drop((struct conn *)s);
}

/* Reads to the end before closing. Closing with unread bytes would reset the
 * connection, and the reset might overtake the last frames of this end. */
void conn_linger(struct conn *c)
{
	if (c->source.dead || c->lingers)
		return;
	/* Without the thread nobody would end it. */
	if (!loop_is_running()) {
		conn_flush(c);
		conn_drop(c);
		return;
	}
	c->lingers = true;
	c->source.expired = linger_expired;
	loop_deadline(&c->source, clock_ns() + LINGER_NS);
	if (!c->source.watched &&
	    loop_watch(&c->source, EPOLLIN | EPOLLRDHUP) != DICOMM_SUCCESS) {
		conn_drop(c);
		return;
	}
	if (conn_flush(c) == 0)
		shutdown(c->source.fd, SHUT_WR);
}

static void lose(struct conn *c, const char *why)
{
	if (c->source.dead)
		return;
	if (c->lingers || !c->lost)
		conn_drop(c);
	else
		c->lost(c, why);
}

#define CUT_OFF "cut off: no memory here, or the other end does not read"

/* Ends the connection without calling lost(), because the caller may be in the
 * middle of something. The control thread notices the hang-up and calls
 * lost(). */
static void cut_off(struct conn *c)
{
	log_warn("connection to %s: %s", c->remote, CUT_OFF);
	clear_queue(c);
	c->was_cut_off = true;
	shutdown(c->source.fd, SHUT_RDWR);
}

static struct conn_shared *make_shared(size_t size)
{
	uint8_t *data = malloc(size);

	return data ? conn_shared_take(data, size) : NULL;
}

/* Appends s to the queue. On success the queue owns the caller's reference. */
static bool push_segment(struct conn *c, struct conn_shared *s)
{
	struct conn_segment *segment = malloc(sizeof(*segment));

	if (!segment)
		return false;
	*segment = (struct conn_segment){.shared = s};
	*c->out_last = segment;
	c->out_last = &segment->next;
	return true;
}

static bool append(struct conn *c, const uint8_t *data, size_t len)
{
	struct conn_segment *last;
	struct conn_shared *s;

	if (c->out) {
		last = (struct conn_segment *)(void *)c->out_last;
		s = last->shared;
		if (s->refs == 1 && s->size - s->len >= len) {
			memcpy(s->data + s->len, data, len);
			s->len += len;
			return true;
		}
	}
	s = make_shared(len < SEGMENT ? SEGMENT : len);
	if (!s)
		return false;
	memcpy(s->data, data, len);
	s->len = len;
	if (push_segment(c, s))
		return true;
	conn_shared_release(s);
	return false;
}

/* Leaves sending to the release of the lock, so that many frames need few
 * system calls. */
static void queued(struct conn *c, size_t len)
{
	c->out_len += len;
	if (c->out_len > OUT_MAX)
		cut_off(c);
	else if (c->source.watched && !c->waits_to_send)
		loop_send_later(&c->source);
}

void conn_send(struct conn *c, const struct frame_writer *frame)
{
	/* Each frame that this library makes has a fixed bound below
	 * FRAME_MAX. */
	assert(!frame->bad);
	if (c->source.dead || c->lingers)
		return;
	if (append(c, frame->data, frame->len))
		queued(c, frame->len);
	else
		cut_off(c);
}

struct conn_shared *conn_shared_take(uint8_t *data, size_t len)
{
	struct conn_shared *s = malloc(sizeof(*s));

	if (!s) {
		free(data);
		return NULL;
	}
	*s = (struct conn_shared){
		.refs = 1, .len = len, .size = len, .data = data};
	return s;
}

size_t conn_shared_len(const struct conn_shared *s)
{
	return s->len;
}

void conn_shared_release(struct conn_shared *s)
{
	if (!s || --s->refs)
		return;
	free(s->data);
	free(s);
}

void conn_send_shared(struct conn *c, struct conn_shared *s)
{
	if (c->source.dead || c->lingers)
		return;
	s->refs++;
	if (push_segment(c, s)) {
		queued(c, s->len);
		return;
	}
	s->refs--;
	cut_off(c);
}

static void advance(struct conn *c, size_t n)
{
	struct conn_segment *s = c->out;

	s->pos += n;
	c->out_len -= n;
	if (s->pos == s->shared->len)
		pop_segment(c);
}

/* Seals frames of the queue just before they are sent, because connections may
 * share the bytes in the queue. Returns false if there is no memory. */
static bool seal_some(struct conn *c)
{
	if (!c->sealed)
		c->sealed = malloc(SEALED);
	if (!c->sealed)
		return false;
	c->sealed_pos = c->sealed_len = 0;
	while (c->out &&
	       SEALED - c->sealed_len >= SEAL_START + SEAL_FRAME_MAX) {
		const uint8_t *frame = c->out->shared->data + c->out->pos;
		enum frame_type type;
		size_t len = frame_parse_header(frame, &type);

		c->sealed_len += seal_frame(c->seal, frame, len,
					    c->sealed + c->sealed_len);
		advance(c, len);
	}
	return true;
}

/* Sends up to len bytes. Returns their number, or -1 and sets errno. */
static ssize_t send_some(struct conn *c, const uint8_t *data, size_t len)
{
	ssize_t n;

	do
		n = send(c->source.fd, data, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		atomic_fetch_add(&bytes_sent, (uint64_t)n);
	return n;
}

uint64_t conn_bytes_sent(void)
{
	return atomic_load(&bytes_sent);
}

/* Sends bytes of the handshake; returns like send_some(). */
static ssize_t send_plain(struct conn *c)
{
	const struct conn_segment *s = c->out;
	size_t len = s->shared->len - s->pos;
	ssize_t n;

	if (c->seal && len > c->plain)
		len = c->plain;
	n = send_some(c, s->shared->data + s->pos, len);
	if (n > 0 && c->seal)
		c->plain -= (size_t)n;
	if (n > 0)
		advance(c, (size_t)n);
	return n;
}

static ssize_t send_sealed(struct conn *c)
{
	ssize_t n;

	/* Nothing would trigger another attempt, so do not let the other end
	 * wait. */
	if (c->sealed_pos == c->sealed_len && !seal_some(c)) {
		cut_off(c);
		errno = ENOMEM;
		return -1;
	}
	n = send_some(c, c->sealed + c->sealed_pos,
		      c->sealed_len - c->sealed_pos);
	if (n > 0)
		c->sealed_pos += (size_t)n;
	if (c->sealed_pos == c->sealed_len && !c->out) {
		free(c->sealed);
		c->sealed = NULL;
		c->sealed_pos = c->sealed_len = 0;
	}
	return n;
}

/* The control thread goes on when there is room. */
static void await_room(struct conn *c)
{
	const uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLOUT;

	if (c->source.watched && !c->waits_to_send)
		c->waits_to_send =
			loop_watch(&c->source, events) == DICOMM_SUCCESS;
}

int conn_flush(struct conn *c)
{
	while (conn_has_output(c)) {
		if ((c->seal && !c->plain ? send_sealed(c) : send_plain(c)) >=
		    0)
			continue;
		if (errno != EWOULDBLOCK)
			return errno;
		await_room(c);
		return EAGAIN;
	}
	return 0;
}

/* An error shows as a hang-up in the next turn of the control thread. */
static void send_queued(struct loop_source *s)
{
	conn_flush((struct conn *)s);
}

/* Makes room for the rest of a frame of which a part has arrived; its length
 * was checked against the limit. Without such a frame, makes room for a first
 * read. */
static bool make_room(struct conn *c)
{
	size_t want = IN_FIRST, unread = c->in_len - c->in_pos;
	enum frame_type type;
	struct frame_reader in;
	uint8_t *bigger;

	if (c->in_pos) {
		memmove(c->in, c->in + c->in_pos, unread);
		c->in_pos = 0;
		c->in_len = unread;
	}
	if (c->seal)
		want = seal_wants(c->seal);
	else if (unread && frame_parse(c->in, unread, c->limit, &type, &in,
				       &want) == FRAME_GARBAGE)
		return true; /* conn_next() will report it */
	if (want <= c->in_size)
		return true;
	want = want > IN_FIRST ? SEAL_FRAME_MAX : IN_FIRST;
	bigger = realloc(c->in, want);
	if (!bigger)
		return false;
	c->in = bigger;
	c->in_size = want;
	return true;
}

int conn_fill(struct conn *c)
{
	ssize_t n;

	if (!make_room(c))
		return ENOMEM;
	if (c->in_len == c->in_size)
		return 0;
	do
		n = recv(c->source.fd, c->in + c->in_len,
			 c->in_size - c->in_len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? EAGAIN : errno;
	if (!n)
		return ENODATA;
	c->in_len += (size_t)n;
	return 0;
}

enum frame_found conn_next(struct conn *c, enum frame_type *type,
			   struct frame_reader *in)
{
	enum frame_found found;
	size_t want;

	if (c->seal) {
		found = seal_open(c->seal, c->in + c->in_pos,
				  c->in_len - c->in_pos, c->limit, &want, type,
				  in);
		c->in_pos += want;
		return found;
	}
	found = frame_parse(c->in + c->in_pos, c->in_len - c->in_pos, c->limit,
			    type, in, &want);
	if (found == FRAME_COMPLETE)
		c->in_pos += FRAME_HEADER + in->len;
	return found;
}

static void deliver_frames(struct conn *c)
{
	enum frame_found found;
	enum frame_type type;
	struct frame_reader in;

	if (!c->in)
		return;
	while (!c->source.dead && !c->lingers) {
		found = conn_next(c, &type, &in);
		if (found == FRAME_MORE)
			return;
		if (found != FRAME_COMPLETE) {
			lose(c, found == FRAME_FORGED
					? conn_forged
					: "it sent what does not parse");
			return;
		}
		c->frame(c, type, &in);
	}
	c->in_pos = c->in_len; /* nobody wants these bytes any more */
}

void conn_reason(int error, char text[FRAME_TEXT])
{
	if (error == ENODATA)
		snprintf(text, FRAME_TEXT, "connection closed");
	else
		tcp_reason(error, text, FRAME_TEXT);
}

static void receive(struct conn *c)
{
	size_t got = 0, before;
	char why[FRAME_TEXT];
	int err;

	while (got < TURN && !c->source.dead) {
		before = c->in_len - c->in_pos;
		err = conn_fill(c);
		if (err == EAGAIN)
			return;
		if (err) {
			conn_reason(err, why);
			lose(c, c->was_cut_off ? CUT_OFF : why);
			return;
		}
		got += c->in_len - before;
		deliver_frames(c);
	}
}

static void ready(struct loop_source *s, uint32_t events)
{
	struct conn *c = (struct conn *)s;

	/* Read the last frames before noticing the end. */
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		receive(c);
	if (c->source.dead || !(events & EPOLLOUT) || conn_flush(c) == EAGAIN)
		return;
	/* An error shows as a hang-up in the next turn. */
	loop_watch(s, EPOLLIN | EPOLLRDHUP);
	c->waits_to_send = false;
	if (c->lingers && !conn_has_output(c))
		shutdown(s->fd, SHUT_WR);
}

dicomm_result_t conn_serve(struct conn *c)
{
	uint32_t events = EPOLLIN | EPOLLRDHUP;

	c->waits_to_send = conn_has_output(c);
	TRY(loop_watch(&c->source,
		       c->waits_to_send ? events | EPOLLOUT : events));
	deliver_frames(c);
	return DICOMM_SUCCESS;
}
