/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets between windows of devices. */
#include "tests/support/puts.h"

#include <stdlib.h>
#include <string.h>

const char puts_directly[] = "directly";

#define ROUNDS 3
#define MOST PUTS_MOST

/* From one message with its head to many staging buffers */
static const size_t sizes[] = {8, 4096, 5000, 70001, MOST};

static uint8_t pattern(int from, int to, int round, size_t i)
{
	return (uint8_t)(from * 31 + to * 7 + round * 11 + (int)(i % 251));
}

/* What the work of a rank is done with */
struct room {
	uint8_t *mine, *window, *host; /* memory of the device; of the host */
	dicomm_window_t win;
};

static bool is_host(const struct gadget *g)
{
	return !strcmp(g->name, "host");
}

void *puts_alloc(struct gadget *g, size_t bytes)
{
	return is_host(g) ? malloc(bytes) : gadget_alloc(g, bytes);
}

void puts_free(struct gadget *g, void *at)
{
	if (is_host(g))
		free(at);
	else
		gadget_free(g, at);
}

static void copy(struct gadget *g, void *dst, const void *src, size_t bytes)
{
	if (is_host(g))
		memcpy(dst, src, bytes);
	else
		gadget_copy(g, dst, src, bytes);
}

static void finish(struct gadget *g)
{
	if (!is_host(g))
		gadget_wait(g);
}

void puts_store(struct gadget *g, uint8_t *at, const uint8_t *host,
		size_t bytes)
{
	copy(g, at, host, bytes);
	finish(g);
}

void puts_fetch(struct gadget *g, uint8_t *host, const uint8_t *at,
		size_t bytes)
{
	memset(host, 0xee, bytes);
	copy(g, host, at, bytes);
	finish(g);
}

uint8_t *puts_host(struct gadget *g, size_t bytes)
{
	return is_host(g) ? malloc(bytes) : gadget_host(g, bytes);
}

void puts_host_free(struct gadget *g, uint8_t *host)
{
	if (is_host(g))
		free(host);
	else
		gadget_host_free(g, host);
}

static void put_to(struct job_rank *me, struct gadget *g, struct room *r,
		   int peer, size_t bytes, int round)
{
	for (size_t i = 0; i < bytes; i++)
		r->host[i] = pattern(me->rank, peer, round, i);
	/* Not waited for: the put comes behind it on the stream. */
	copy(g, r->mine, r->host, bytes);
	JOB_TRY(dicomm_put_signal(r->mine, bytes, DICOMM_INT8, peer, r->win,
				  (size_t)me->rank * MOST, 3, 1, 0, me->comm,
				  g->native));
	finish(g);
}

static void expect(const uint8_t *got, size_t bytes, int from, int to,
		   int round, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		JOB_CHECK(got[i] == pattern(from, to, round, i),
			  "%s: byte %zu of %zu from %d to %d is %d, not %d",
			  what, i, bytes, from, to, got[i],
			  pattern(from, to, round, i));
}

static void round_of(struct job_rank *me, struct gadget *g, struct room *r,
		     size_t bytes, int round)
{
	int before = (me->rank + me->ranks - 1) % me->ranks;
	int next = (me->rank + 1) % me->ranks;
	dicomm_wait_signal_desc_t awaited = {
		.count = 1, .peer = before, .signal = 3, .context = 1};

	job_doing("round %d, %zu bytes", round, bytes);
	put_to(me, g, r, next, bytes, round);
	JOB_TRY(dicomm_wait_signal(1, &awaited, me->comm, g->native));
	/* It runs behind the wait. */
	puts_fetch(g, r->host, r->window + (size_t)before * MOST, bytes);
	expect(r->host, bytes, before, me->rank, round, "put");
	/* What this rank has put is read back. */
	memset(r->host, 0, bytes);
	puts_store(g, r->mine, r->host, bytes);
	JOB_TRY(dicomm_get(r->mine, bytes, DICOMM_INT8, next, r->win,
			   (size_t)me->rank * MOST, me->comm, g->native));
	puts_fetch(g, r->host, r->mine, bytes);
	expect(r->host, bytes, me->rank, next, round, "get");
	/* The next round overwrites it. */
	job_barrier();
}

static void rounds(struct job_rank *me, struct gadget *g, struct room *r)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int round = 0; round < ROUNDS; round++)
			round_of(me, g, r, sizes[i], round);
}

/* Where nothing is staged, devices copy at most what is put and what is got to
 * staging buffers of theirs; nothing, where the buffers are registered and
 * neighbours know them. */
static void exchange_directly(struct job_rank *me, struct gadget *g,
			      struct room *r)
{
	dicomm_stats_t before = cast_stats(me), after;
	bool in_place = false;
	void *handle;

	rounds(me, g, r);
	after = cast_stats(me);
	JOB_CHECK(!after.bytes_staged, "%s: %llu bytes were staged", g->name,
		  (unsigned long long)after.bytes_staged);
	JOB_CHECK(after.bytes_received - before.bytes_received >= 2 * MOST,
		  "%s: received %llu bytes", g->name,
		  (unsigned long long)after.bytes_received);
	JOB_TRY(dicomm_comm_register(me->comm, r->mine, MOST, &handle));
	/* A thread of the neighbour imports it within 10 ms or so. */
	for (int i = 0; i < 20; i++) {
		job_sleep_ms(10);
		before = cast_stats(me);
		round_of(me, g, r, 70001, i);
		after = cast_stats(me);
		in_place |= after.bytes_copied == before.bytes_copied;
	}
	JOB_CHECK(
		in_place, "%s: %llu bytes were copied", g->name,
		(unsigned long long)(after.bytes_copied - before.bytes_copied));
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
}

void puts_run(struct job_rank *me, struct gadget *g)
{
	bool direct = me->arg == puts_directly;
	struct room r = {.mine = puts_alloc(g, MOST),
			 .window = puts_alloc(g, MOST * (size_t)me->ranks),
			 .host = puts_host(g, MOST)};
	uint64_t staged = cast_staged(me);
	bool apart = !is_host(g) && strncmp(g->name, "opencl", 6);

	JOB_TRY(dicomm_comm_window_register(
		me->comm, r.window, MOST * (size_t)me->ranks, &r.win, 0));
	if (direct)
		exchange_directly(me, g, &r);
	else
		rounds(me, g, &r);
	JOB_TRY(dicomm_comm_window_deregister(me->comm, r.win));
	/* No other thread of the rank counts any more. */
	/* Barriers may stage a few bytes more. */
	JOB_CHECK((cast_staged(me) - staged >= MOST) == (apart && !direct),
		  "%s: %zu bytes were staged", g->name,
		  (size_t)(cast_staged(me) - staged));
	puts_host_free(g, r.host);
	puts_free(g, r.window);
	puts_free(g, r.mine);
}
