/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending by a connection. A message goes into the socket from where it lies;
 * if the kernel takes only a part of it, the rest is copied. Control frames
 * that find no room are queued as bytes. Memory that a peer reads is cut into
 * pieces, between which messages may go.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/base/log.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

#define PIECE_BYTES (256u << 10)
/* In one call, so that other connections get theirs */
#define BYTES_MOST (4u << 20)

dicomm_result_t tcp_send_open(struct tcp_conn *c,
			      void (*lost)(struct tcp_conn *c, int error))
{
	c->lost = lost;
	c->tail = malloc(sizeof(struct tcp_head) +
			 c->dev->base.config.slot_bytes);
	c->replies = malloc(TCP_REPLIES * sizeof(*c->replies));
	return c->tail && c->replies ? DICOMM_SUCCESS : DICOMM_ERR_NO_MEMORY;
}

bool tcp_send_is_amid_frame(const struct tcp_conn *c)
{
	return c->tail_end || c->control_end || c->piece_open;
}

bool tcp_send_is_pending(const struct tcp_conn *c)
{
	return tcp_send_is_amid_frame(c) || c->reply_count ||
	       (c->seal && tcp_seal_waits(c->seal));
}

/* If the kernel had no room, let epoll watch for it. */
static void watch_room(struct tcp_conn *c)
{
	uint32_t events = EPOLLIN;

	if (c->state != TCP_OPEN)
		return;
	if (c->blocked)
		events |= EPOLLOUT;
	tcp_socket_watch(c, events);
}

/* Bytes that the kernel took; -1: the connection is gone. */
static ssize_t send_bytes(struct tcp_conn *c, struct iovec *v, int n)
{
	size_t len = 0;
	ssize_t sent;

	for (int i = 0; i < n; i++)
		len += v[i].iov_len;
	sent = tcp_socket_send(c, v, n);
	if (sent < 0) {
		/* What came before may still be read. */
		if (errno != EPIPE && errno != ECONNRESET)
			c->lost(c, errno);
		return -1;
	}
	if (((size_t)sent < len || (c->seal && tcp_seal_waits(c->seal))) &&
	    !c->blocked) {
		c->blocked = true;
		watch_room(c);
	}
	return sent;
}

/* ---- what is queued ---- */

static bool flush(struct tcp_conn *c, uint8_t *bytes, uint32_t *begin,
		  uint32_t *end)
{
	struct iovec v = {bytes + *begin, *end - *begin};
	ssize_t n;

	if (!*end)
		return true;
	n = send_bytes(c, &v, 1);
	if (n < 0)
		return false;
	*begin += (uint32_t)n;
	if (*begin < *end)
		return false;
	*begin = *end = 0;
	return true;
}

static void next_piece(struct tcp_conn *c)
{
	struct tcp_reply *s = &c->replies[c->reply_first];

	c->piece = s->head;
	c->piece.len = s->left < PIECE_BYTES ? s->left : PIECE_BYTES;
	c->piece_len = sizeof(c->piece) + c->piece.len;
	c->piece_sent = 0;
	c->piece_open = true;
}

static void end_piece(struct tcp_conn *c)
{
	struct tcp_reply *s = &c->replies[c->reply_first];

	c->piece_open = false;
	s->at += c->piece.len;
	s->left -= c->piece.len;
	s->head.offset += c->piece.len;
	if (s->left)
		return;
	c->reply_first = (c->reply_first + 1) % TCP_REPLIES;
	c->reply_count--;
}

/* False: the kernel has no room. */
static bool send_piece(struct tcp_conn *c)
{
	struct tcp_reply *s = &c->replies[c->reply_first];
	struct iovec v[2];
	uint64_t at = c->piece_sent;
	int n = 0;
	ssize_t sent;

	if (at < sizeof(c->piece)) {
		v[n++] = (struct iovec){(uint8_t *)&c->piece + at,
					sizeof(c->piece) - at};
		at = sizeof(c->piece);
	}
	if (at < c->piece_len)
		v[n++] = (struct iovec){
			(void *)(uintptr_t)(s->at + at - sizeof(c->piece)),
			c->piece_len - at};
	sent = send_bytes(c, v, n);
	if (sent < 0)
		return false;
	c->piece_sent += (uint64_t)sent;
	if (c->piece_sent < c->piece_len)
		return false;
	end_piece(c);
	return true;
}

/* True: all of it has gone, or something else goes first. */
static bool send_pieces(struct tcp_conn *c)
{
	uint64_t bytes = 0;

	while (c->reply_count && bytes < BYTES_MOST) {
		if (!c->piece_open) {
			if (c->put_waits || c->control_end)
				break;
			next_piece(c);
		}
		bytes += c->piece_len;
		if (!send_piece(c))
			return false;
	}
	c->put_waits = false;
	return true;
}

/* A frame that has begun must end before the next one. */
static bool end_frame(struct tcp_conn *c)
{
	return flush(c, c->tail, &c->tail_begin, &c->tail_end) &&
	       (!c->piece_open || send_piece(c)) &&
	       flush(c, c->control, &c->control_begin, &c->control_end);
}

bool tcp_send_more(struct tcp_conn *c)
{
	if (c->blocked) {
		c->blocked = false;
		watch_room(c);
	}
	if (!tcp_send_is_pending(c))
		return false;
	if (c->seal && send_bytes(c, NULL, 0) < 0)
		return false;
	if (end_frame(c))
		(void)send_pieces(c);
	return c->state == TCP_OPEN && !c->blocked;
}

/* ---- what is to be sent ---- */

static void keep_tail(struct tcp_conn *c, const struct iovec v[2], size_t sent)
{
	for (int i = 0; i < 2; i++) {
		size_t skip = sent < v[i].iov_len ? sent : v[i].iov_len;

		sent -= skip;
		if (v[i].iov_len == skip)
			continue;
		memcpy(c->tail + c->tail_end,
		       (const uint8_t *)v[i].iov_base + skip,
		       v[i].iov_len - skip);
		c->tail_end += (uint32_t)(v[i].iov_len - skip);
	}
}

dicomm_result_t tcp_send_message(struct tcp_conn *c,
				 const struct tcp_head *head, const void *body,
				 uint64_t len)
{
	struct iovec v[2] = {{(void *)(uintptr_t)head, sizeof(*head)},
			     {(void *)(uintptr_t)body, len}};
	ssize_t n;

	if (tcp_send_is_amid_frame(c) && !end_frame(c)) {
		c->put_waits = c->reply_count > 0;
		return DICOMM_AGAIN;
	}
	n = send_bytes(c, v, len ? 2 : 1);
	if (n <= 0)
		return DICOMM_AGAIN;
	if ((uint64_t)n < sizeof(*head) + len)
		keep_tail(c, v, (size_t)n);
	return DICOMM_SUCCESS;
}

dicomm_result_t tcp_send_control(struct tcp_conn *c,
				 const struct tcp_head *head, const void *body,
				 size_t len)
{
	struct iovec v[2] = {{(void *)(uintptr_t)head, sizeof(*head)},
			     {(void *)(uintptr_t)body, len}};
	size_t all = sizeof(*head) + len;
	ssize_t n = 0;

	if (!c || c->state != TCP_OPEN)
		return DICOMM_AGAIN;
	if (c->control_end + all > TCP_CONTROL_BYTES)
		return DICOMM_AGAIN;
	if (!tcp_send_is_amid_frame(c))
		n = send_bytes(c, v, len ? 2 : 1);
	if (n < 0)
		return DICOMM_AGAIN;
	for (int i = 0; i < 2 && (size_t)n < all; i++) {
		size_t skip =
			(size_t)n < v[i].iov_len ? (size_t)n : v[i].iov_len;

		if (v[i].iov_len > skip)
			memcpy(c->control + c->control_end,
			       (const uint8_t *)v[i].iov_base + skip,
			       v[i].iov_len - skip);
		c->control_end += (uint32_t)(v[i].iov_len - skip);
		n -= (ssize_t)skip;
		all -= v[i].iov_len;
	}
	return DICOMM_SUCCESS;
}

bool tcp_send_reply(struct tcp_conn *c, const struct tcp_head *head,
		    const void *memory, uint64_t len)
{
	uint32_t last = (c->reply_first + c->reply_count) % TCP_REPLIES;

	if (c->reply_count == TCP_REPLIES)
		return false;
	c->replies[last] =
		(struct tcp_reply){.head = *head, .at = memory, .left = len};
	c->reply_count++;
	return true;
}
