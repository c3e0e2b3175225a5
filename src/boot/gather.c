/* SPDX-License-Identifier: BSD-3-Clause */
/* Fan-in and fan-out of an all-gather through the hub. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/gather.h"
#include "src/boot/hub.h"

static void begin(struct gather *g)
{
	g->number++;
	g->complete = 0;
	for (int i = 0; i < g->roster->ranks; i++) {
		free(g->parts[i].data);
		g->parts[i] = (struct gather_part){0};
		g->roster->seats[i].awaited = true;
	}
}

bool gather_init(struct gather *g, struct roster *roster)
{
	g->roster = roster;
	g->number = 0;
	g->parts = calloc((size_t)roster->ranks, sizeof(*g->parts));
	if (!g->parts)
		return false;
	begin(g);
	return true;
}

void gather_fini(struct gather *g)
{
	if (!g->parts)
		return;
	for (int i = 0; i < g->roster->ranks; i++)
		free(g->parts[i].data);
	free(g->parts);
	g->parts = NULL;
}

static void fail(struct gather *g, dicomm_result_t status, const char *text)
{
	struct wire_out out;

	wire_begin(&out, WIRE_GATHER_FAILED);
	wire_put_u64(&out, g->number);
	wire_put_u32(&out, (uint32_t)status);
	wire_put_text(&out, text);
	wire_end(&out);
	roster_broadcast(g->roster, &out, NULL);
}

/* A rank whose part has another length than rank 0's; -1 if none has. */
static int odd_rank(const struct gather *g)
{
	for (int i = 1; i < g->roster->ranks; i++)
		if (g->parts[i].len != g->parts[0].len)
			return i;
	return -1;
}

static void fail_by_length(struct gather *g, int rank)
{
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text),
		 "all-gather %" PRIu64
		 " of the control plane: rank 0 (%s) gave %zu bytes, rank %d "
		 "(%s) %zu",
		 g->number, g->roster->seats[0].where, g->parts[0].len, rank,
		 g->roster->seats[rank].where, g->parts[rank].len);
	fail(g, DICOMM_ERR_INVALID_USAGE, text);
}

/* Copy up to room bytes of the whole from position *at of part *rank on. */
static size_t copy_some(const struct gather *g, int *rank, size_t *at,
			uint8_t *to, size_t room)
{
	size_t done = 0, n, len = g->parts[0].len;

	while (done < room && *rank < g->roster->ranks) {
		n = len - *at < room - done ? len - *at : room - done;
		if (n)
			memcpy(to + done, g->parts[*rank].data + *at, n);
		done += n;
		*at += n;
		if (*at == len) {
			*at = 0;
			++*rank;
		}
	}
	return done;
}

/* The whole, already cut into frames, so that all connections share it. */
static struct conn_shared *make_whole(const struct gather *g)
{
	size_t total = g->parts[0].len * (size_t)g->roster->ranks, at = 0, n;
	size_t frames = total / GATHER_CHUNK + 1, len = 0;
	uint8_t *data = malloc(total + frames * (WIRE_HEADER + 8));
	uint8_t chunk[GATHER_CHUNK];
	struct wire_out out;
	int rank = 0;

	if (!data)
		return NULL;
	for (size_t i = 0; i < frames; i++) {
		n = copy_some(g, &rank, &at, chunk, sizeof(chunk));
		wire_begin(&out, WIRE_GATHERED);
		wire_put_u64(&out, g->number);
		wire_put_bytes(&out, chunk, n);
		wire_end(&out);
		memcpy(data + len, out.data, out.len);
		len += out.len;
	}
	return conn_shared_take(data, len);
}

static bool is_lost(const struct gather *g)
{
	for (int i = 0; i < g->roster->ranks; i++)
		if (g->parts[i].lost)
			return true;
	return false;
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
	for (int i = 0; shared && i < g->roster->ranks; i++)
		if (g->roster->seats[i].guest)
			conn_send_shared(&g->roster->seats[i].guest->conn,
					 shared);
	conn_shared_release(shared);
	begin(g);
}

/* What was announced is believed only as far as it comes. */
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

bool gather_take(struct gather *g, int rank, struct wire_in *in)
{
	struct gather_part *p = &g->parts[rank];
	uint64_t number = wire_u64(in), len = wire_u64(in);
	size_t n;
	const uint8_t *data = wire_rest(in, &n);

	if (!wire_done(in) || number != g->number || p->complete ||
	    len > HUB_GATHER_MAX ||
	    len * (uint64_t)g->roster->ranks > HUB_GATHER_TOTAL)
		return false;
	if (!p->begun) {
		p->begun = true;
		p->len = len;
	}
	if (len != p->len || n > p->len - p->got)
		return false;
	/* Count on: only once all have come does everybody know of which
	 * all-gather it is said that it failed. */
	p->lost |= !reserve(p, n);
	if (n && !p->lost)
		memcpy(p->data + p->got, data, n);
	p->got += n;
	if (p->got < p->len)
		return true;
	p->complete = true;
	g->roster->seats[rank].awaited = false;
	if (++g->complete == g->roster->ranks)
		finish(g);
	return true;
}
