/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving by a connection. Heads are read in a small input buffer. The first
 * bytes of a body, or all of a short one, come with the head and are copied
 * from there. The kernel writes the rest of a body to where it belongs, and
 * what follows it into the input buffer.
 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/tcp.h"

/* In one call, so that other connections get theirs */
#define RECEIVES_MOST 8

/* ---- frames ---- */

static void reject(struct tcp_conn *c, const char *what)
{
	log_warn("tcp: rank %" PRIu32 " sent %s: the connection is closed",
		 c->link->base.rank, what);
	framed_link_fail(&c->link->base, DICOMM_ERR_REMOTE, "it sent %s", what);
}

static void on_credit(struct tcp_conn *c, const struct tcp_head *head)
{
	if (!framed_credits_receive(&c->dev->base, c->link->base.rank,
				    head->channel_class, head->consumed))
		reject(c, "a credit beyond all numbers");
}

/* NULL: no memory. */
static struct framed_in *inbox_of(const struct tcp_conn *c, uint8_t class)
{
	struct framed *f = &c->dev->base;
	struct framed_in *in = framed_in_of(f, c->link->base.rank, class);

	return in ? in : framed_inbox_make(f, c->link->base.rank, class);
}

static void begin_message(struct tcp_conn *c, const struct tcp_head *head)
{
	/* It may overtake TCP_FRAME_CHANNEL, on another connection. */
	struct framed_in *in = inbox_of(c, head->channel_class);
	uint64_t bytes =
		head->kind == TP_REF ? sizeof(struct tcp_ref) : head->len;

	if (!in || head->kind > TP_REF ||
	    bytes > c->dev->base.config.slot_bytes ||
	    !framed_inbox_expects(in, head->seq)) {
		reject(c, "an invalid message");
		return;
	}
	on_credit(c, head);
	if (c->state != TCP_OPEN)
		return;
	c->body = framed_inbox_place(in, head->seq, bytes);
	c->body_left = bytes;
}

static struct framed_read *read_of(const struct tcp_conn *c,
				   const struct tcp_head *head)
{
	return framed_read_find(&c->dev->base, c->link->base.rank,
				head->channel_class, head->seq,
				head->signature);
}

static void begin_data(struct tcp_conn *c, const struct tcp_head *head)
{
	struct framed_read *read = read_of(c, head);

	c->body_left = head->len;
	c->body =
		read ? framed_read_claim(read, head->offset, head->len) : NULL;
	/* Once a read fails, its memory is the user's again, while another
	 * connection may be amid a part of it. So all of them are closed. */
	if (read && !c->body)
		reject(c, "more data than it was asked for");
}

static void end_data(struct tcp_conn *c, const struct tcp_head *head)
{
	struct framed_read *read = read_of(c, head);

	if (read)
		framed_read_advance(read, head->len);
}

/* Each connection of the link sends a part. */
static bool reply_parts(struct tcp_link *link, const struct tcp_head *to,
			const uint8_t *memory, uint64_t len)
{
	uint64_t each = (len / link->count + 4095) & ~UINT64_C(4095), at = 0;
	struct tcp_head head = *to;

	for (uint32_t i = 0; i < link->count; i++) {
		uint64_t n = i + 1 == link->count || len - at < each ? len - at
								     : each;

		head.offset = at;
		if ((n || !i) &&
		    (!link->conn[i] || link->conn[i]->state != TCP_OPEN ||
		     !tcp_send_reply(link->conn[i], &head, memory + at, n)))
			return false;
		at += n;
	}
	return true;
}

static void on_read(struct tcp_conn *c, const struct tcp_head *head,
		    const uint8_t *bytes)
{
	struct tcp_link *link = c->link;
	struct tcp_head answer = *head;
	struct tcp_read_request request;

	memcpy(&request, bytes, sizeof(request));
	/* Only what this rank has offered is an address. */
	if (request.ref.seal != tcp_ref_seal(c->dev, &request.ref) ||
	    request.offset > request.ref.len ||
	    request.len > request.ref.len - request.offset) {
		reject(c, "a read of what it was not offered");
		return;
	}
	answer.what = TCP_FRAME_DATA;
	answer.kind = 0;
	if (!reply_parts(link, &answer,
			 (const uint8_t *)(uintptr_t)request.ref.addr +
				 request.offset,
			 request.len)) {
		reject(c, "too many reads");
		return;
	}
	/* The link may break meanwhile. */
	for (uint32_t i = 0; i < TCP_CONNECTIONS; i++)
		if (link->conn[i] && !link->conn[i]->blocked)
			tcp_send_more(link->conn[i]);
}

/* A control frame, all of which is in the input buffer. */
static void on_control(struct tcp_conn *c, const struct tcp_head *head,
		       const uint8_t *body)
{
	struct tcp_link *link = c->link;

	switch (head->what) {
	case TCP_FRAME_CHANNEL:
		if (!inbox_of(c, head->channel_class))
			reject(c, "a channel, for which there is no memory");
		break;
	case TCP_FRAME_CREDIT:
		on_credit(c, head);
		break;
	case TCP_FRAME_READ:
		on_read(c, head, body);
		break;
	case TCP_FRAME_CLOSE:
		tcp_link_on_close(c);
		break;
	default:
		link->close_acked = true;
	}
}

static void end_body(struct tcp_conn *c)
{
	if (c->head.what == TCP_FRAME_MESSAGE)
		framed_inbox_deliver(inbox_of(c, c->head.channel_class),
				     c->head.seq, c->head.signature,
				     c->head.kind, c->head.len);
	else if (c->body)
		end_data(c, &c->head);
	c->head.what = TCP_FRAME_TYPES;
}

/* ---- bytes ---- */

static uint32_t input_bytes(const struct tcp_conn *c)
{
	return c->input_end - c->input_begin;
}

/* Copy the bytes of the body that are in the input buffer. */
static void copy_body(struct tcp_conn *c)
{
	uint64_t n =
		c->body_left < input_bytes(c) ? c->body_left : input_bytes(c);

	if (n && c->body) {
		memcpy(c->body, c->input + c->input_begin, n);
		c->body += n;
	}
	c->body_left -= n;
	c->input_begin += (uint32_t)n;
	if (!c->body_left)
		end_body(c);
}

static bool is_amid_body(const struct tcp_conn *c)
{
	return c->head.what == TCP_FRAME_MESSAGE ||
	       c->head.what == TCP_FRAME_DATA;
}

/* False: the frame is not complete, or the connection is closed. */
static bool parse_frame(struct tcp_conn *c)
{
	const uint8_t *at = c->input + c->input_begin;
	struct tcp_head head;
	uint32_t len = sizeof(head);

	if (input_bytes(c) < sizeof(head))
		return false;
	memcpy(&head, at, sizeof(head));
	if (head.what >= TCP_FRAME_TYPES || head.channel_class >= TP_CLASSES) {
		reject(c, "an invalid frame");
		return false;
	}
	len += head.what == TCP_FRAME_READ
		       ? (uint32_t)sizeof(struct tcp_read_request)
		       : 0;
	if (input_bytes(c) < len)
		return false;
	c->input_begin += len;
	if (head.what == TCP_FRAME_MESSAGE || head.what == TCP_FRAME_DATA) {
		c->head = head;
		if (head.what == TCP_FRAME_MESSAGE)
			begin_message(c, &head);
		else
			begin_data(c, &head);
		if (c->state == TCP_OPEN)
			copy_body(c);
	} else {
		on_control(c, &head, at + sizeof(head));
	}
	return c->state == TCP_OPEN && !c->body_left;
}

static void parse_input(struct tcp_conn *c)
{
	uint32_t n;

	while (c->state == TCP_OPEN && !c->body_left && parse_frame(c))
		;
	n = input_bytes(c);
	if (n && c->input_begin)
		memmove(c->input, c->input + c->input_begin, n);
	c->input_begin = 0;
	c->input_end = n;
}

/* Where the next bytes are received: the body, if one is coming, and the input
 * buffer. */
static int places(struct tcp_conn *c, struct iovec v[2])
{
	uint64_t room = TCP_INPUT_BYTES - c->input_end;
	int n = 0;

	if (c->body_left && c->body)
		v[n++] = (struct iovec){c->body, c->body_left};
	if (c->body_left && !c->body && c->body_left < room)
		room = c->body_left;
	v[n++] = (struct iovec){c->input + c->input_end, room};
	return n;
}

static bool holds_more(const struct tcp_conn *c)
{
	return c->state == TCP_OPEN && c->seal && tcp_seal_holds(c->seal);
}

/* True: there may be more. */
static bool receive_once(struct tcp_conn *c, bool *moved)
{
	struct iovec v[2];
	int n = places(c, v);
	ssize_t got = tcp_socket_receive(c, v, n);
	size_t all = v[0].iov_len + (n > 1 ? v[1].iov_len : 0), rest;

	if (got < 0) {
		tcp_link_lost(c, errno);
		*moved = true;
		return false;
	}
	if (!got)
		return false;
	*moved = true;
	rest = (size_t)got;
	if (n > 1) {
		size_t direct = rest < c->body_left ? rest : c->body_left;

		c->body += direct;
		c->body_left -= direct;
		rest -= direct;
	}
	c->input_end += (uint32_t)rest;
	if (is_amid_body(c))
		copy_body(c);
	parse_input(c);
	return c->state == TCP_OPEN && ((size_t)got == all || holds_more(c));
}

bool tcp_receive(struct tcp_conn *c)
{
	bool moved = false;

	/* Epoll has no event for what is decrypted already. */
	for (int i = 0;
	     (i < RECEIVES_MOST || holds_more(c)) && receive_once(c, &moved);
	     i++)
		;
	return moved;
}
