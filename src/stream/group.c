/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: calls of one thread that start, and make progress, together. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/device/neighbour.h"
#include "src/device/user_buffer.h"
#include "src/stream/graph.h"
#include "src/stream/submit.h"
#include "src/core/fault.h"

struct pending_init {
	const struct dicomm_comm *of; /* only compared, never followed */
	dicomm_result_t (*init)(void *arg);
	void (*refuse)(void *arg);
	void *arg;
	dicomm_result_t status;
	/* The first one of its communicator has a thread, which runs all
	 * of them. */
	bool has_thread;
	pthread_t thread;
	char text[512];
	struct pending_init *next;
};

/* Calls of a group that need no memory from the heap */
#define FEW 8

/* The group of the calling thread. */
static _Thread_local struct group {
	int depth;
	struct item few[FEW], *items; /* items: few, or from the heap */
	size_t n, room;
	const struct local_work *before; /* group_before() */
	struct pending_init *inits, **last_init;
} group;

/* In a shared library, each access by the name of a thread's variable is a
 * call, and the compiler would put the name in the place of a known address. */
static inline struct group *own_group(void)
{
	struct group *g = &group;

	__asm__("" : "+r"(g));
	return g;
}

bool group_open(void)
{
	return group.depth != 0;
}

void group_forget(void)
{
	memset(&group, 0, sizeof(group));
}

bool group_has(const void *of)
{
	for (size_t i = 0; i < group.n; i++)
		if (group.items[i].comm == of || group.items[i].stream == of)
			return true;
	return false;
}

dicomm_result_t group_check_end(const void *of, const char *function)
{
	if (!group_has(of))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "%s: this group has operations of %p, which would come "
		    "after its end",
		    function, of);
}

static void free_items(struct group *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->items[i].counts);
	if (g->items != g->few)
		free(g->items);
	g->items = NULL;
	g->n = g->room = 0;
	g->before = NULL;
}

static dicomm_result_t make_room(struct group *g)
{
	bool few = g->items == g->few;
	size_t room = g->room ? 4 * g->room : FEW;
	struct item *more = g->few;

	if (g->room)
		more = realloc(few ? NULL : g->items, room * sizeof(*more));
	if (!more)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "group: no memory for call %zu", g->n);
	if (few)
		memcpy(more, g->few, sizeof(g->few));
	g->items = more;
	g->room = room;
	return DICOMM_SUCCESS;
}

void group_before(const struct local_work *work)
{
	group.before = work;
}

static bool idle(const struct dicomm_comm *comm)
{
	return !data_path_queued(&comm->path);
}

/* Refuse a group that uses more streams than there are fences: it would wait
 * for itself. */
static dicomm_result_t check_room(const struct stream_fence *list,
				  const struct dicomm_comm *comm)
{
	int n = 0;

	for (; list; list = list->next)
		n += list->of == comm->dev->fences;
	if (n < DEVICE_CALLS)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "group: its calls on %s use more than %d streams of %s",
		    comm->name, DEVICE_CALLS, comm->device);
}

/* Get one fence for each device stream of the calls, and block these
 * streams. */
static dicomm_result_t take_fences(struct item *items, size_t n,
				   struct stream_fence **list)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct stream_fence *t;

	*list = NULL;
	/* These driver calls could wait for a blocked stream, so they
	 * come first. */
	for (size_t i = 0; i < n; i++) {
		neighbour_refresh(items[i].comm);
		user_buffer_find(items[i].comm, &items[i].call);
	}
	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		struct dicomm_comm *comm = items[i].comm;

		if (!comm->dev)
			continue;
		for (t = *list; t; t = t->next)
			if (stream_fence_is_of(t, comm, items[i].native))
				break;
		if (t)
			continue;
		status = check_room(*list, comm);
		if (status == DICOMM_SUCCESS)
			status = stream_fence_take(comm, items[i].native, &t);
		if (status != DICOMM_SUCCESS)
			continue;
		t->next = *list;
		*list = t;
	}
	if (status == DICOMM_SUCCESS)
		status = stream_fence_block(*list);
	while (status != DICOMM_SUCCESS && (t = *list)) {
		*list = t->next;
		stream_fence_release(t);
	}
	return status;
}

/* Capture the calls if their streams are captured. The calls may be those of
 * the group, and making the communicators that they need is a group, too. */
static dicomm_result_t capture(struct item *items, size_t n,
			       const struct local_work *before, bool *does)
{
	struct group *g = own_group();
	struct item *kept = g->items;
	size_t kept_n = g->n, room = g->room;
	dicomm_result_t status = graph_captures(items, n, before, does);

	if (status == DICOMM_SUCCESS && !*does)
		return DICOMM_SUCCESS;
	if (status != DICOMM_SUCCESS) {
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		return status;
	}
	g->items = NULL;
	g->n = g->room = 0;
	g->before = NULL;
	status = graph_capture(items, n);
	g->items = kept;
	g->n = kept_n;
	g->room = room;
	return status;
}

/* Queue calls for the driver. Waits for them if one is a blocking call of a
 * host rank. */
static dicomm_result_t submit(struct item *items, size_t n,
			      const struct local_work *before)
{
	CANCEL_HELD();
	struct stream_fence *fences;
	dicomm_result_t status;
	bool wait = false, captured;

	TRY(capture(items, n, before, &captured));
	if (captured)
		return DICOMM_SUCCESS;
	for (size_t i = 0; i < n; i++)
		wait |= !items[i].stream && !items[i].comm->dev;
	status = take_fences(items, n, &fences);
	if (status == DICOMM_SUCCESS)
		return stream_submit(items, n, fences, before, wait);
	for (size_t i = 0; i < n; i++)
		free(items[i].counts);
	return status;
}

static struct item item_of(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream)
{
	return (struct item){.comm = comm,
			     .call = *call,
			     .counts = counts,
			     .stream = comm->dev ? NULL : stream,
			     .native = comm->dev ? stream : NULL};
}

/* Takes over the counts. */
static dicomm_result_t keep(struct group *g, struct item item)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (g->n == g->room)
		status = make_room(g);
	if (status == DICOMM_SUCCESS)
		g->items[g->n++] = item;
	else
		free(item.counts);
	return status;
}

dicomm_result_t group_call(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream)
{
	struct group *g = own_group();
	struct item alone;
	dicomm_result_t status;

	if (__builtin_expect(!g->depth && !stream && !comm->dev, 1)) {
		status = engine_call(comm, call);
		if (status != DICOMM_AGAIN) {
			free(counts);
			return status;
		}
	}
	alone = item_of(comm, call, counts, stream);
	return g->depth ? keep(g, alone) : submit(&alone, 1, NULL);
}

dicomm_result_t group_keep(struct dicomm_comm *comm, const struct call *call,
			   size_t *counts, dicomm_stream_t stream,
			   group_run_fn *run)
{
	struct item item = item_of(comm, call, counts, stream);

	item.run_group = run;
	return keep(own_group(), item);
}

/* Enter all communicators before any is left: a communicator that was left may
 * be freed. *status is the fault of the first one that is broken. Returns false
 * if another thread is inside one. */
static bool enter_all(struct item *items, size_t n, dicomm_result_t *status)
{
	for (size_t i = 0; i < n; i++) {
		enum data_path_entry entry =
			data_path_enter_one(&items[i].comm->path);

		items[i].entered = entry == DATA_PATH_ENTERED;
		if (entry == DATA_PATH_BROKEN && *status == DICOMM_SUCCESS)
			*status = fault_report(items[i].comm);
		if (entry != DATA_PATH_BUSY)
			continue;
		while (i--)
			if (items[i].entered)
				data_path_leave_one(&items[i].comm->path);
		return false;
	}
	return true;
}

/* Run a group's calls in this thread, if all are blocking and no other thread
 * drives their communicators. DICOMM_AGAIN: one does, and nothing has
 * happened. */
static dicomm_result_t run_here(struct item *items, size_t nitems)
{
	struct operation **ops = calloc(nitems, sizeof(*ops));
	dicomm_result_t status = DICOMM_SUCCESS, s;
	size_t n = 0;

	if (!ops)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "group: no memory for %zu operations", nitems);
	if (!enter_all(items, nitems, &status)) {
		free(ops);
		return DICOMM_AGAIN;
	}
	for (size_t i = 0; i < nitems; i++) {
		struct item *item = &items[i];

		if (!item->entered)
			continue;
		if (fault_is(item->comm))
			s = fault_report(item->comm);
		else
			s = engine_prepare(item->comm, &item->call, &ops[n]);
		if (s == DICOMM_SUCCESS) {
			n++;
			continue;
		}
		engine_leave(item->comm);
		if (status == DICOMM_SUCCESS)
			status = s;
	}
	s = engine_run(ops, n);
	if (status == DICOMM_SUCCESS)
		status = s;
	free(ops);
	return status;
}

/* Only once: what it writes may be what it reads. */
static dicomm_result_t run_before(struct group *g)
{
	const struct local_work *work = g->before;
	dicomm_result_t status;

	if (!work)
		return DICOMM_SUCCESS;
	g->before = NULL;
	status = work->run(work, NULL);
	return status == DICOMM_SUCCESS
		       ? status
		       : fault_own(g->items[0].comm, status, -1);
}

/* Have others than the engine run the calls, which may make groups of some. */
static dicomm_result_t hand_over(struct group *g, group_run_fn *run)
{
	struct group kept = *g;
	dicomm_result_t status;

	if (g->items == g->few)
		kept.items = kept.few;
	g->items = NULL;
	g->n = g->room = 0;
	status = run(kept.items, kept.n);
	if (kept.items != kept.few)
		free(kept.items);
	return status;
}

static dicomm_result_t launch(struct group *g)
{
	const struct item *items = g->items;
	size_t n = g->n;
	bool here = true;
	dicomm_result_t status;

	for (size_t i = 0; i < n; i++)
		if (items[i].run_group)
			return hand_over(g, items[i].run_group);
	for (size_t i = 0; i < n; i++)
		if (items[i].stream || items[i].comm->dev ||
		    !idle(items[i].comm))
			here = false;
	if (here)
		TRY(run_before(g));
	status = here ? run_here(g->items, n) : DICOMM_AGAIN;
	if (status != DICOMM_AGAIN)
		return status;
	status = submit(g->items, n, g->before);
	g->n = 0; /* the batch owns the counts now */
	return status;
}

/* Returns the next init or end of the same communicator, or NULL. */
static struct pending_init *next_of(const struct pending_init *p)
{
	struct pending_init *q = p->next;

	while (q && q->of != p->of)
		q = q->next;
	return q;
}

static bool is_first(const struct pending_init *p)
{
	const struct pending_init *q = group.inits;

	while (q->of != p->of)
		q = q->next;
	return q == p;
}

static void *init_thread(void *arg)
{
	for (struct pending_init *p = arg; p; p = next_of(p)) {
		p->status = p->init(p->arg);
		if (p->status != DICOMM_SUCCESS)
			snprintf(p->text, sizeof(p->text), "%s",
				 log_last_error());
	}
	return NULL;
}

dicomm_result_t group_init(const struct dicomm_comm *of,
			   dicomm_result_t (*init)(void *arg),
			   void (*refuse)(void *arg), void *arg)
{
	struct pending_init *p;

	if (!group.depth)
		return init(arg);
	p = calloc(1, sizeof(*p));
	if (!p) {
		if (refuse)
			refuse(arg);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "group: no memory for an initialisation");
	}
	p->of = of;
	p->init = init;
	p->refuse = refuse;
	p->arg = arg;
	if (!group.inits)
		group.last_init = &group.inits;
	*group.last_init = p;
	group.last_init = &p->next;
	return DICOMM_SUCCESS;
}

/* Returns true if there is no failure yet. The first failure is kept; later
 * results do not replace it. */
static bool is_good(dicomm_result_t status)
{
	return status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS;
}

static void refuse_all_of(struct pending_init *p, int err)
{
	dicomm_result_t status = FAIL(
		DICOMM_ERR_SYSTEM, "group: create a thread: %s", strerror(err));

	for (; p; p = next_of(p)) {
		if (p->refuse)
			p->refuse(p->arg);
		p->status = status;
		snprintf(p->text, sizeof(p->text), "%s", log_last_error());
	}
}

/* Run the inits and ends of the group. Each communicator waits for its other
 * ranks, which may be in this group, so each one needs a thread. */
static dicomm_result_t run_inits(void)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct pending_init *p;

	for (p = group.inits; p; p = p->next) {
		int err;

		if (!is_first(p))
			continue;
		err = thread_start(&p->thread, "dicomm-group", init_thread, p);
		p->has_thread = !err;
		if (err)
			refuse_all_of(p, err);
	}
	while ((p = group.inits)) {
		if (p->has_thread)
			pthread_join(p->thread, NULL);
		if (p->status != DICOMM_SUCCESS && is_good(status)) {
			status = p->status;
			log_set_last_error(p->text);
		}
		group.inits = p->next;
		free(p);
	}
	return status;
}

dicomm_result_t dicomm_group_start(void)
{
	group.depth++;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_group_end(void)
{
	CANCEL_HELD();
	struct group *g = own_group();
	dicomm_result_t status = DICOMM_SUCCESS, s;

	if (!g->depth)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "group_end: no group was started by this thread");
	if (g->depth > 1) {
		g->depth--;
		return DICOMM_SUCCESS;
	}
	/* Calls that the inits themselves make do not belong to the group. */
	g->depth = 0;
	if (g->inits)
		status = run_inits();
	if (g->n) {
		s = launch(g);
		if (s != DICOMM_SUCCESS && is_good(status))
			status = s;
	}
	free_items(g);
	return status;
}
