/* SPDX-License-Identifier: BSD-3-Clause */
/* An all-gather through the hub: receive all parts, send the whole. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/control/delta.h"
#include "src/boot/control/gather.h"

static void begin(struct gather *g)
{
	g->number++;
	g->complete = 0;
	for (int i = 0; i < g->members->ranks; i++) {
		free(g->parts[i].data);
		g->parts[i] = (struct gather_part){0};
		g->members->list[i].awaited = true;
	}
}

bool gather_init(struct gather *g, struct members *members)
{
	g->members = members;
	g->number = 0;
	g->last = NULL;
	g->parts = calloc((size_t)members->ranks, sizeof(*g->parts));
	if (!g->parts)
		return false;
	begin(g);
	return true;
}

void gather_fini(struct gather *g)
{
	if (!g->parts)
		return;
	for (int i = 0; i < g->members->ranks; i++)
		free(g->parts[i].data);
	free(g->parts);
	g->parts = NULL;
	conn_shared_release(g->last);
	g->last = NULL;
}

static void fail(struct gather *g, dicomm_result_t status, const char *text)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_GATHER_FAILED);
	frame_put_u64(&out, g->number);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_text(&out, text);
	members_broadcast(g->members, &out, NULL);
}

/* Returns the first rank whose part is not as long as rank 0's; -1 if all
 * are. */
static int odd_rank(const struct gather *g)
{
	for (int i = 1; i < g->members->ranks; i++)
		if (g->parts[i].len != g->parts[0].len)
			return i;
	return -1;
}

static void fail_by_length(struct gather *g, int rank)
{
	char text[FRAME_TEXT];

	snprintf(text, sizeof(text),
		 "all-gather %" PRIu64
		 " of the control plane: rank 0 (%s) gave %zu bytes, rank %d "
		 "(%s) %zu",
		 g->number, g->members->list[0].where, g->parts[0].len, rank,
		 g->members->list[rank].where, g->parts[rank].len);
	fail(g, DICOMM_ERR_INVALID_USAGE, text);
}

/* Cuts the result into frames that all connections share. Returns NULL if there
 * is no memory. */
static struct conn_shared *make_frames(const struct gather *g,
				       const uint8_t *whole, size_t total)
{
	size_t frames = total / GATHER_CHUNK + 1, len = 0, at = 0, n;
	uint8_t *data = malloc(total + frames * (FRAME_HEADER + 8));
	struct frame_writer out;

	if (!data)
		return NULL;
	for (size_t i = 0; i < frames; i++, at += n) {
		n = total - at < GATHER_CHUNK ? total - at : GATHER_CHUNK;
		frame_begin(&out, FRAME_GATHERED);
		frame_put_u64(&out, g->number);
		frame_put_bytes(&out, whole + at, n);
		assert(!out.bad);
		memcpy(data + len, out.data, out.len);
		len += out.len;
	}
	return conn_shared_take(data, len);
}

static struct conn_shared *make_whole(const struct gather *g)
{
	struct delta_writer w = {.data = NULL};
	struct conn_shared *shared = NULL;
	size_t len = g->parts[0].len;

	for (int i = 0; i < g->members->ranks; i++)
		delta_add(&w, i ? g->parts[i - 1].data : NULL, g->parts[i].data,
			  len);
	if (delta_end(&w))
		shared = make_frames(g, w.data, w.len);
	free(w.data);
	return shared;
}

static bool is_lost(const struct gather *g)
{
	for (int i = 0; i < g->members->ranks; i++)
		if (g->parts[i].lost)
			return true;
	return false;
}

/* Ranks that have a parent get the result from it. */
static void send_result(const struct gather *g)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_COMING);
	frame_put_u64(&out, g->number);
	for (int i = 0; i < g->members->ranks; i++) {
		const struct member *m = &g->members->list[i];

		if (m->peer && m->has_parent)
			conn_send(&m->peer->conn, &out);
		else if (m->peer)
			conn_send_shared(&m->peer->conn, g->last);
	}
}

static void finish(struct gather *g)
{
	struct conn_shared *shared;
	int odd = odd_rank(g);

	if (odd >= 0) {
		fail_by_length(g, odd);
		begin(g);
		return;
	}
	shared = is_lost(g) ? NULL : make_whole(g);
	if (!shared)
		fail(g, DICOMM_ERR_NO_MEMORY,
		     "all-gather of the control plane: rank 0 is out of "
		     "memory");
	log_debug("rank 0: all-gather %" PRIu64 ": %zu bytes of each of %d "
		  "ranks, and %zu to each",
		  g->number, g->parts[0].len, g->members->ranks,
		  shared ? conn_shared_len(shared) : 0);
	conn_shared_release(g->last);
	g->last = shared;
	if (shared)
		send_result(g);
	begin(g);
}

void gather_resend(const struct gather *g, int rank, uint64_t number)
{
	if (g->last && number + 1 == g->number)
		conn_send_shared(&g->members->list[rank].peer->conn, g->last);
}

/* Makes room for `more` bytes. Memory grows with the bytes that arrive, not
 * with the length that the sender announced. */
static bool reserve(struct gather_part *p, size_t more)
{
	size_t size = p->size ? 2 * p->size : 4096;
	uint8_t *bigger;

	if (p->got + more <= p->size)
		return true;
	if (size < p->got + more)
		size = p->got + more;
	if (size > p->len)
		size = p->len;
	bigger = realloc(p->data, size);
	if (!bigger)
		return false;
	p->data = bigger;
	p->size = size;
	return true;
}

bool gather_take(struct gather *g, int rank, struct frame_reader *in)
{
	struct gather_part *p = &g->parts[rank];
	uint64_t number = frame_get_u64(in), len = frame_get_u64(in);
	size_t n;
	const uint8_t *data = frame_get_rest(in, &n);

	if (!frame_done(in) || number != g->number || p->complete ||
	    len > GATHER_MAX ||
	    len * (uint64_t)g->members->ranks > GATHER_TOTAL)
		return false;
	if (!p->begun) {
		p->begun = true;
		p->len = len;
	}
	if (len != p->len || n > p->len - p->got)
		return false;
	/* Without memory, only count the bytes. The ranks can be told that the
	 * all-gather failed when all parts have arrived, because only then do
	 * all ranks wait in this all-gather. */
	p->lost |= !reserve(p, n);
	if (n && !p->lost)
		memcpy(p->data + p->got, data, n);
	p->got += n;
	if (p->got < p->len)
		return true;
	p->complete = true;
	g->members->list[rank].awaited = false;
	if (++g->complete == g->members->ranks)
		finish(g);
	return true;
}
