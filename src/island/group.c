/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of a group of which some go by islands.
 *
 * Those are waves (wave.h): the first ones of all communicators, the second
 * ones, and so on. Other collectives come between two waves, so each
 * communicator has its collectives in the order in which they were called, as
 * ranks have that make the same calls in no group. Sends, receives and the like
 * are beside all of that: a rank may wait for them before it comes to a
 * collective.
 */
#include "src/island/group.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/device/neighbour.h"
#include "src/device/user_buffer.h"
#include "src/island/hold.h"
#include "src/island/wave.h"
#include "src/stream/batch.h"
#include "src/stream/driver.h"
#include "src/stream/graph.h"
#include "src/stream/request.h"

struct group {
	struct item *items;
	/* [n]: the wave that it is in, or before which it comes; BESIDE */
	size_t *wave;
	size_t n, waves;
	bool captured;
	dicomm_result_t status;
};

#define BESIDE SIZE_MAX

/* What is beside the collectives, and has begun */
struct beside {
	struct island_part
		*parts;        /* on devices of communicators with islands */
	dicomm_stream_t queue; /* of calls of the host that block, or NULL */
	struct dicomm_request done;
};

static void note(struct group *g, dicomm_result_t status)
{
	if (g->status == DICOMM_SUCCESS)
		g->status = status;
}

/* The others wait for calls that are missing. */
static void break_all(const struct group *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (!fault_is(g->items[i].comm))
			fault_own(g->items[i].comm, g->status, -1);
}

static bool goes_by_islands(const struct item *item)
{
	return item->run_group == island_group_run;
}

/* A collective, or what is in the order of those (engine/order.h) */
static bool is_in_order(const struct item *item)
{
	return item->call.function < COLL_KINDS ||
	       item->call.function == CALL_REDUCE_LOCAL ||
	       item->call.function == CALL_LOCAL_WORK;
}

/* ---- the order ---- */

/* How many before this one are of its communicator, and by islands */
static size_t count_before(const struct group *g, size_t at)
{
	size_t n = 0;

	for (size_t i = 0; i < at; i++)
		n += g->items[i].comm == g->items[at].comm &&
		     goes_by_islands(&g->items[i]);
	return n;
}

static void find_waves(struct group *g)
{
	for (size_t i = 0; i < g->n; i++) {
		g->wave[i] =
			is_in_order(&g->items[i]) ? count_before(g, i) : BESIDE;
		if (goes_by_islands(&g->items[i]) && g->wave[i] >= g->waves)
			g->waves = g->wave[i] + 1;
	}
}

/* ---- beside ---- */

enum kind { PARTS, HOST, OTHER };

static enum kind kind_of(const struct group *g, const struct item *item)
{
	if (g->captured || (item->comm->dev && !item->comm->has_islands))
		return OTHER;
	return item->comm->dev ? PARTS : HOST;
}

/* Moves those of that kind to `out`, which has room for all. */
static size_t take_kind(struct group *g, enum kind kind, struct item *out)
{
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		if (g->wave[i] == BESIDE && kind_of(g, &g->items[i]) == kind) {
			out[n++] = g->items[i];
			g->items[i].counts = NULL;
		}
	return n;
}

/* Streams of devices wait for them at the end of the group, so that what goes
 * by islands on the same stream need not. */
static void begin_parts(struct group *g, struct beside *b, struct item *items)
{
	size_t n = take_kind(g, PARTS, items);
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++)
		status = island_part_take(&items[i].comm->island->parts,
					  items[i].comm, items[i].native,
					  &b->parts);
	if (n)
		status = island_part_submit(b->parts, items, n, status);
	if (status != DICOMM_SUCCESS)
		b->parts = NULL;
	note(g, status);
}

static void begin_host(struct group *g, struct beside *b, struct item *items)
{
	size_t n = take_kind(g, HOST, items);
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		neighbour_refresh(items[i].comm);
		if (!items[i].stream && !b->queue)
			status = dicomm_host_stream_create(&b->queue);
		if (!items[i].stream)
			items[i].stream = b->queue;
	}
	for (size_t i = 0; i < n && status != DICOMM_SUCCESS; i++)
		free(items[i].counts);
	if (n && status == DICOMM_SUCCESS)
		status = stream_submit(items, n, NULL, NULL, false);
	if (b->queue) {
		request_init(&b->done);
		stream_attach(b->queue, &b->done);
	}
	note(g, status);
}

/* As a group of the thread */
static void call_as_group(struct group *g, struct item *items, size_t n)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!n)
		return;
	dicomm_group_start();
	for (size_t i = 0; i < n; i++)
		if (status == DICOMM_SUCCESS)
			status = group_call(
				items[i].comm, &items[i].call, items[i].counts,
				items[i].comm->dev ? items[i].native
						   : items[i].stream);
		else
			free(items[i].counts);
	note(g, status);
	note(g, dicomm_group_end());
}

static void end_beside(struct group *g, struct beside *b)
{
	if (b->parts)
		note(g, island_part_end(b->parts));
	if (!b->queue)
		return;
	pthread_mutex_lock(&stream_lock);
	driver_await(&b->done, 0);
	pthread_mutex_unlock(&stream_lock);
	if (b->done.status != DICOMM_SUCCESS)
		log_set_last_error(b->done.text);
	note(g, b->done.status);
	dicomm_host_stream_destroy(b->queue);
}

/* ---- waves ---- */

static void run_wave(struct group *g, size_t wave, struct item *items,
		     struct wave_call *calls)
{
	size_t n = 0, others = 0;

	for (size_t i = 0; i < g->n; i++)
		if (g->wave[i] == wave && !goes_by_islands(&g->items[i])) {
			items[others++] = g->items[i];
			g->items[i].counts = NULL;
		}
	call_as_group(g, items, others);
	for (size_t i = 0; i < g->n; i++) {
		struct item *item = &g->items[i];

		if (g->wave[i] == wave && goes_by_islands(item))
			calls[n++] = (struct wave_call){
				item->comm, &item->call,
				item->comm->dev ? item->native : item->stream,
				g->captured};
	}
	if (n)
		note(g, island_wave_run(calls, n));
}

static void run(struct group *g, struct item *items, struct wave_call *calls)
{
	struct beside b = {0};

	find_waves(g);
	begin_parts(g, &b, items);
	if (g->status == DICOMM_SUCCESS)
		begin_host(g, &b, items);
	if (g->status == DICOMM_SUCCESS) {
		call_as_group(g, items, take_kind(g, OTHER, items));
		for (size_t i = 0; i <= g->waves; i++)
			run_wave(g, i, items, calls);
	} else if (b.parts || g->status == DICOMM_ERR_TIMEOUT) {
		break_all(g);
	}
	end_beside(g, &b);
}

/* One that was broken before they were held: an abort did not see the others,
 * which would wait without it. */
static struct dicomm_comm *broken_before(const struct group *g)
{
	/* See island_hold_abort(). */
	atomic_thread_fence(memory_order_seq_cst);
	for (size_t i = 0; i < g->n; i++)
		if (fault_is(g->items[i].comm))
			return g->items[i].comm;
	return NULL;
}

/* The others break with it, and say why. */
static void check_faults(struct group *g)
{
	struct dicomm_comm *cause = broken_before(g);
	char text[512];

	if (!cause)
		return;
	fault_text(cause, text, sizeof(text));
	g->status = (dicomm_result_t)atomic_load(&cause->fault.status);
	for (size_t i = 0; i < g->n; i++) {
		struct dicomm_comm *comm = g->items[i].comm;

		if (fault_is(comm))
			continue;
		log_error("%s was in one group with %s, which broke: %.300s",
			  comm->name, cause->name, text);
		fault_own(comm, g->status, -1);
	}
	fault_report(cause);
}

dicomm_result_t island_group_run(struct item *items, size_t n)
{
	struct group g = {.items = items, .n = n};
	struct island_hold hold = {.items = items, .n = n};
	struct item *room = calloc(n, sizeof(*room));
	struct wave_call *calls = calloc(n, sizeof(*calls));

	g.wave = calloc(n, sizeof(*g.wave));
	island_hold_begin(&hold);
	check_faults(&g);
	if (g.status == DICOMM_SUCCESS && (!room || !calls || !g.wave)) {
		g.status = FAIL(DICOMM_ERR_NO_MEMORY,
				"group: no memory for %zu calls", n);
		break_all(&g);
	} else if (g.status == DICOMM_SUCCESS) {
		g.status = graph_captures(items, n, NULL, &g.captured);
	}
	/* What is refused is so before anything has begun. */
	if (g.status == DICOMM_SUCCESS)
		run(&g, room, calls);
	island_hold_end(&hold);
	for (size_t i = 0; i < n; i++)
		free(items[i].counts);
	free(g.wave);
	free(calls);
	free(room);
	return g.status;
}
