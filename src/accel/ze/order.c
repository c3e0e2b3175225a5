/* SPDX-License-Identifier: BSD-3-Clause */
/* In-order streams, events and host functions on devices of Level Zero. */
#include "src/accel/ze/order.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/thread.h"

#define POOL_EVENTS 64
/* Interval at which the caller thread and the probe look at events. */
#define LOOK_NS 20000
/* A list that can run reaches its end within this time. */
#define PROBE_NS UINT64_C(2000000000)
/* A list that was held reaches its end within this time after the hold ends. */
#define FOLLOWS_NS UINT64_C(200000000)

/* An event, with the number of its users: a mark, a hold, a call, each list
 * that waits for it. */
struct slot {
	int index;
	ze_event event;
	int users;
	/* what the event's list waited for before it; no longer needed once the
	 * event has happened */
	struct waited *passed;
	struct slot *next;
};

/* An event that a list waits for. */
struct waited {
	struct slot *slot;
	struct waited *next;
};

struct ze_list {
	int index;
	bool user, shared;
	uint32_t queue, priority;
	ze_command_list handle;
	/* events it waits for, since its own last event */
	struct waited *waited;
	/* last event of a spare list: when it has happened, the list is idle */
	struct slot *last;
	struct ze_list *next;
};

struct ze_mark {
	struct slot *slot;
};

struct ze_hold {
	struct slot *slot;
	struct ze_hold *next;
};

struct call {
	struct slot *reached, *done;
	void (*fn)(void *arg);
	void *arg;
	struct call *next;
};

struct ze_functions ze;
struct ze_place ze_places[ZE_DEVICES];

/* Guards everything here. Whoever releases a stream wait takes this lock, so no
 * call of the driver that may block is made under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guards lists that several threads use, since Level Zero allows one thread at
 * a time for a list. Taken before `lock`. */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static struct per_device {
	struct slot *unused, *retired;
	struct ze_list *spare, *shared;
} per_device[ZE_DEVICES];
static struct call *calls;
static bool caller_runs;

static void list_lock(const struct ze_list *list)
{
	if (list->shared)
		pthread_mutex_lock(&sharing);
}

static void list_unlock(const struct ze_list *list)
{
	if (list->shared)
		pthread_mutex_unlock(&sharing);
}

/* Taken to append to a list. */
static void enter(const struct ze_list *list)
{
	list_lock(list);
	pthread_mutex_lock(&lock);
}

static void leave(const struct ze_list *list)
{
	pthread_mutex_unlock(&lock);
	list_unlock(list);
}

/* ---- events ---- */

static void slot_put(struct slot *s)
{
	struct per_device *d = &per_device[s->index];

	if (--s->users)
		return;
	s->next = d->retired;
	d->retired = s;
}

/* The event has happened, so its list no longer needs the events that it waited
 * for before it. */
static void slot_happened(struct slot *s)
{
	struct waited *w;

	while ((w = s->passed)) {
		s->passed = w->next;
		slot_put(w->slot);
		free(w);
	}
}

static void slots_sweep(int index)
{
	struct per_device *d = &per_device[index];
	struct slot *s = d->retired, *next;

	d->retired = NULL;
	for (; s; s = next) {
		next = s->next;
		if (ze.event_query(s->event) == ZE_SUCCESS) {
			slot_happened(s);
			if (ze.event_reset(s->event) == ZE_SUCCESS) {
				s->next = d->unused;
				d->unused = s;
				continue;
			}
		}
		s->next = d->retired;
		d->retired = s;
	}
}

static int slots_make(int index)
{
	const struct ze_place *place = &ze_places[index];
	const ze_pool_desc pool_desc = {.type = ZE_POOL_DESC,
					.flags = ZE_POOL_HOST_VISIBLE,
					.count = POOL_EVENTS};
	struct per_device *d = &per_device[index];
	ze_pool pool = NULL;
	int error;

	error = (int)ze.pool_create(place->context, &pool_desc, 0, NULL, &pool);
	for (uint32_t i = 0; i < POOL_EVENTS && !error; i++) {
		const ze_event_desc desc = {.type = ZE_EVENT_DESC,
					    .index = i,
					    .signal = ZE_SCOPE_HOST,
					    .wait = ZE_SCOPE_HOST};
		struct slot *s = calloc(1, sizeof(*s));

		if (!s)
			return ZE_OUT_OF_HOST_MEMORY;
		s->index = index;
		error = (int)ze.event_create(pool, &desc, &s->event);
		if (error) {
			free(s);
			return error;
		}
		s->next = d->unused;
		d->unused = s;
	}
	return error;
}

/* Get an unused event, with one user. */
static int slot_get(int index, struct slot **out)
{
	struct per_device *d = &per_device[index];
	int error;

	if (!d->unused)
		slots_sweep(index);
	if (!d->unused) {
		error = slots_make(index);
		if (error && !d->unused)
			return error;
	}
	*out = d->unused;
	d->unused = (*out)->next;
	(*out)->users = 1;
	return ZE_SUCCESS;
}

/* Give back an event for which nothing was appended. */
static void slot_unget(struct slot *s)
{
	struct per_device *d = &per_device[s->index];

	s->users = 0;
	s->next = d->unused;
	d->unused = s;
}

/* ---- what is appended to lists ---- */

/* Append an event that happens when all earlier work of the list has run. */
static int append_event(struct ze_list *list, struct slot **out)
{
	struct slot *s = NULL;
	int error = slot_get(list->index, &s);

	if (error)
		return error;
	error = (int)ze.barrier(list->handle, s->event, 0, NULL);
	if (error) {
		slot_unget(s);
		return error;
	}
	s->passed = list->waited;
	list->waited = NULL;
	*out = s;
	return ZE_SUCCESS;
}

/* Make what is appended from now on run after the event. */
static int append_wait(struct ze_list *list, struct slot *s)
{
	struct waited *w = malloc(sizeof(*w));
	int error;

	if (!w)
		return ZE_OUT_OF_HOST_MEMORY;
	error = (int)ze.barrier(list->handle, NULL, 1, &s->event);
	if (error) {
		free(w);
		return error;
	}
	*w = (struct waited){.slot = s, .next = list->waited};
	list->waited = w;
	s->users++;
	return ZE_SUCCESS;
}

/* A list of the library ends in a barrier after each piece of work. A list of
 * the user may not, so work on it begins with one. */
static int work_begin(struct ze_list *list)
{
	return list->user ? (int)ze.barrier(list->handle, NULL, 0, NULL)
			  : ZE_SUCCESS;
}

static int work_end(struct ze_list *list, int error)
{
	return error ? error : (int)ze.barrier(list->handle, NULL, 0, NULL);
}

int ze_list_copy(struct ze_list *list, void *dst, const void *src, size_t bytes)
{
	int error;

	/* The driver refuses operands that overlap. */
	if (dst == src)
		return ZE_SUCCESS;
	/* The driver may wait for the list here, so `lock` is not taken;
	 * see gpu/device.h. */
	list_lock(list);
	error = work_begin(list);
	if (!error)
		error = (int)ze.copy(list->handle, dst, src, bytes, NULL, 0,
				     NULL);
	error = work_end(list, error);
	list_unlock(list);
	return error;
}

int ze_list_launch(struct ze_list *list, ze_kernel kernel, uint32_t blocks,
		   void *const *args)
{
	const ze_group_count count = {blocks, 1, 1};
	int error;

	enter(list);
	error = work_begin(list);
	for (uint32_t i = 0; args[i] && !error; i++)
		error = (int)ze.argument(kernel, i, sizeof(uint64_t), args[i]);
	if (!error)
		error = (int)ze.launch(list->handle, kernel, &count, NULL, 0,
				       NULL);
	error = work_end(list, error);
	leave(list);
	return error;
}

/* ---- lists ---- */

static int list_make(int index, uint32_t queue, uint32_t priority,
		     struct ze_list **out)
{
	const struct ze_place *place = &ze_places[index];
	const ze_queue_desc desc = {.type = ZE_QUEUE_DESC,
				    .ordinal = place->ordinal,
				    .index = queue,
				    .mode = ZE_MODE_ASYNCHRONOUS,
				    .priority = priority};
	struct ze_list *list = calloc(1, sizeof(*list));
	int error;

	if (!list)
		return ZE_OUT_OF_HOST_MEMORY;
	list->index = index;
	list->queue = queue;
	list->priority = priority;
	error = (int)ze.list_create(place->context, place->device, &desc,
				    &list->handle);
	if (error)
		free(list);
	else
		*out = list;
	return error;
}

/* Take a spare list whose work has all run. */
static struct ze_list *spare_get(int index, uint32_t queue, uint32_t priority)
{
	struct ze_list **at = &per_device[index].spare, *list;

	while (*at && ((*at)->queue != queue || (*at)->priority != priority ||
		       ze.event_query((*at)->last->event) != ZE_SUCCESS))
		at = &(*at)->next;
	list = *at;
	if (!list)
		return NULL;
	*at = list->next;
	slot_put(list->last);
	list->last = NULL;
	return list;
}

static int list_new(int index, uint32_t queue, uint32_t priority,
		    struct ze_list **out)
{
	int error = ZE_SUCCESS;
	struct ze_list *list;

	pthread_mutex_lock(&lock);
	list = spare_get(index, queue, priority);
	if (!list)
		error = list_make(index, queue, priority, &list);
	pthread_mutex_unlock(&lock);
	if (!error)
		*out = list;
	return error;
}

int ze_list_new(int index, uint32_t priority, struct ze_list **out)
{
	return list_new(index, ze_places[index].ours, priority, out);
}

int ze_list_of(int index, void *native, struct ze_list **out)
{
	struct per_device *d = &per_device[index];
	int error = ZE_SUCCESS;
	struct ze_list *list;

	if (native) {
		list = calloc(1, sizeof(*list));
		if (!list)
			return ZE_OUT_OF_HOST_MEMORY;
		list->index = index;
		list->user = true;
		list->handle = native;
		*out = list;
		return ZE_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	if (!d->shared) {
		error = list_make(index, 0, ZE_PRIORITY_NORMAL, &d->shared);
		if (!error)
			d->shared->shared = true;
	}
	if (!error)
		*out = d->shared;
	pthread_mutex_unlock(&lock);
	return error;
}

int ze_list_is_immediate(const struct ze_list *list, uint8_t *immediate)
{
	if (!ze.list_is_immediate)
		return ZE_UNSUPPORTED_FEATURE;
	return (int)ze.list_is_immediate(list->handle, immediate);
}

/* Append a last event to the list, which shows when all of its work has run. If
 * that fails, the list is not reused. */
void ze_list_close(struct ze_list *list)
{
	struct per_device *d = &per_device[list->index];
	struct slot *s = NULL;

	if (list->shared)
		return;
	pthread_mutex_lock(&lock);
	if ((list->user && !list->waited) || append_event(list, &s))
		s = NULL;
	if (!list->user && s) {
		list->last = s;
		list->next = d->spare;
		d->spare = list;
		list = NULL;
	} else if (s) {
		slot_put(s);
	}
	pthread_mutex_unlock(&lock);
	free(list);
}

/* ---- functions ---- */

static void nap(void)
{
	const struct timespec t = {.tv_nsec = LOOK_NS};

	nanosleep(&t, NULL);
}

/* Returns true if the list has reached the call, or if the device is lost. In
 * the latter case the function runs, too; the streams report the loss. */
static bool can_be_called(const struct call *c)
{
	ze_result state = ze.event_query(c->reached->event);

	return state == ZE_SUCCESS || state == ZE_DEVICE_LOST;
}

static struct call *call_next(void)
{
	struct call **at = &calls, *c;

	while (*at && !can_be_called(*at))
		at = &(*at)->next;
	c = *at;
	if (c)
		*at = c->next;
	return c;
}

static void *caller_run(void *arg)
{
	struct call *c;

	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!calls)
			pthread_cond_wait(&called, &lock);
		c = call_next();
		pthread_mutex_unlock(&lock);
		if (c)
			c->fn(c->arg);
		else
			nap();
		pthread_mutex_lock(&lock);
		if (!c)
			continue;
		ze.event_signal(c->done->event);
		slot_put(c->reached);
		slot_put(c->done);
		free(c);
	}
	return NULL;
}

/* Start the thread, once for the process. It never ends. */
static int caller_start(void)
{
	if (!caller_runs)
		caller_runs =
			!thread_start(NULL, "dicomm-ze", caller_run, NULL);
	return caller_runs ? ZE_SUCCESS : ZE_OUT_OF_HOST_MEMORY;
}

/* Append the event before the call and the wait behind it. On failure nothing
 * waits for a call that never comes. */
static int call_append(struct ze_list *list, struct call *c)
{
	int error = caller_start();

	if (!error)
		error = slot_get(list->index, &c->done);
	if (error)
		return error;
	error = append_event(list, &c->reached);
	if (error) {
		slot_unget(c->done);
		return error;
	}
	error = append_wait(list, c->done);
	if (error) {
		slot_put(c->reached);
		slot_unget(c->done);
	}
	return error;
}

int ze_list_call(struct ze_list *list, void (*fn)(void *arg), void *arg)
{
	struct call *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return ZE_OUT_OF_HOST_MEMORY;
	c->fn = fn;
	c->arg = arg;
	enter(list);
	error = call_append(list, c);
	if (!error) {
		c->next = calls;
		calls = c;
		pthread_cond_signal(&called);
	}
	leave(list);
	if (error)
		free(c);
	return error;
}

/* ---- marks ---- */

int ze_mark_create(struct ze_mark **out)
{
	struct ze_mark *m = calloc(1, sizeof(*m));

	if (!m)
		return ZE_OUT_OF_HOST_MEMORY;
	*out = m;
	return ZE_SUCCESS;
}

int ze_mark_destroy(struct ze_mark *m)
{
	pthread_mutex_lock(&lock);
	if (m->slot)
		slot_put(m->slot);
	pthread_mutex_unlock(&lock);
	free(m);
	return ZE_SUCCESS;
}

int ze_mark_set(struct ze_mark *m, struct ze_list *list)
{
	struct slot *s = NULL;
	int error;

	enter(list);
	error = append_event(list, &s);
	if (!error) {
		if (m->slot)
			slot_put(m->slot);
		m->slot = s;
	}
	leave(list);
	return error;
}

int ze_mark_query(struct ze_mark *m)
{
	int error = ZE_SUCCESS;

	pthread_mutex_lock(&lock);
	if (m->slot)
		error = (int)ze.event_query(m->slot->event);
	pthread_mutex_unlock(&lock);
	return error;
}

int ze_mark_wait(struct ze_list *list, struct ze_mark *m)
{
	int error = ZE_SUCCESS;

	enter(list);
	if (m->slot)
		error = append_wait(list, m->slot);
	leave(list);
	return error;
}

/* ---- holds ---- */

int ze_hold_add(struct ze_holds *holds, struct ze_list *list)
{
	struct ze_hold *h = calloc(1, sizeof(*h));
	int error;

	if (!h)
		return ZE_OUT_OF_HOST_MEMORY;
	enter(list);
	error = slot_get(list->index, &h->slot);
	if (!error) {
		error = append_wait(list, h->slot);
		if (error)
			slot_unget(h->slot);
	}
	if (!error) {
		*holds->last = h;
		holds->last = &h->next;
	}
	leave(list);
	if (error)
		free(h);
	return error;
}

bool ze_hold_end(struct ze_holds *holds)
{
	struct ze_hold *h;
	bool was;

	pthread_mutex_lock(&lock);
	h = holds->first;
	was = h;
	if (h) {
		holds->first = h->next;
		if (!holds->first)
			holds->last = &holds->first;
		ze.event_signal(h->slot->event);
		slot_put(h->slot);
	}
	pthread_mutex_unlock(&lock);
	free(h);
	return was;
}

/* ---- queues ---- */

/* Find out whether the list reaches its end within that time. */
static int reaches_end(struct ze_list *list, uint64_t within_ns, bool *does)
{
	uint64_t until = clock_ns() + within_ns;
	struct ze_mark m = {NULL};
	int error = ze_mark_set(&m, list);

	if (error)
		return error;
	while ((error = ze_mark_query(&m)) == ZE_NOT_READY &&
	       clock_ns() < until)
		nap();
	*does = !error;
	pthread_mutex_lock(&lock);
	slot_put(m.slot);
	pthread_mutex_unlock(&lock);
	return error == ZE_NOT_READY ? ZE_SUCCESS : error;
}

/* Find out whether a held list `waiting` holds up `other`. Work of others on
 * the device could look like that. So `other` has to reach its end before the
 * hold, and again at once after it has ended. */
static int probe(struct ze_list *waiting, struct ze_list *other,
		 enum ze_apart *found)
{
	struct ze_holds holds = {NULL, &holds.first};
	bool goes_on = false, follows = false;
	int error = reaches_end(other, PROBE_NS, &goes_on);

	*found = ZE_BUSY;
	if (error || !goes_on)
		return error;
	error = ze_hold_add(&holds, waiting);
	if (!error)
		error = reaches_end(other, PROBE_NS, &goes_on);
	ze_hold_end(&holds);
	if (!error && !goes_on)
		error = reaches_end(other, FOLLOWS_NS, &follows);
	*found = goes_on ? ZE_APART : follows ? ZE_TOGETHER : ZE_BUSY;
	return error;
}

int ze_list_probe(int index, uint32_t queue, uint32_t priority,
		  enum ze_apart *found)
{
	struct ze_list *waiting = NULL, *other = NULL;
	int error = list_new(index, 0, ZE_PRIORITY_NORMAL, &waiting);

	if (error)
		return error;
	error = list_new(index, queue, priority, &other);
	if (!error) {
		error = probe(waiting, other, found);
		ze_list_close(other);
	}
	ze_list_close(waiting);
	return error;
}
