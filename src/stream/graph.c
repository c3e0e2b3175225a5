/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are captured into graphs, and the thread that starts them when a
 * graph is replayed. */
#include "src/stream/graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/yield.h"
#include "src/core/fault.h"
#include "src/core/member.h"

/* While replays come, the thread looks without a pause; BUSY_NS after the last
 * one, it sleeps NAP_NS between looks. Nobody can wake it: a replay writes a
 * word in memory. After IDLE_NS its naps grow with the pause since the last
 * replay, to LONG_NAP_NS. So they make the next replay later by a 5,000th of
 * that pause at most. */
#define BUSY_NS UINT64_C(200000)
#define IDLE_NS UINT64_C(1000000000)
#define NAP_NS 20000
#define LONG_NAP_NS 1000000
#define NAPS_IN_PAUSE 5000

/* A stop of a call in the graph of one stream, or of several of one device */
struct gate {
	struct stream_fence fence; /* of the replay that is under way */
	const struct accel_graphs *graphs;
	struct accel_stop *stop;
	int index;              /* of the device */
	dicomm_stream_t stream; /* the first of them */
	struct comm_graphs *of;
	struct graph_call *call;
};

struct graph_call {
	struct item *items; /* of the communicators for graphs */
	size_t **counts;    /* theirs, which they lend to replays */
	size_t nitems;
	struct gate *gates;
	size_t ngates;
	/* Gates whose graphs are not gone, and one while it is captured */
	_Atomic unsigned alive;
	_Atomic bool runs;
	/* It never runs: not all of it was captured, or a communicator has
	 * ended. */
	bool dead;
	struct graph_call *next; /* in the order of their captures */
};

/* Of a communicator: another one, for what is captured */
struct comm_graphs {
	struct dicomm_comm *of;
	dicomm_comm_t comm; /* NULL: it is being made */
	struct accel_order order;
	struct comm_graphs *next;
};

/* Guards all of this, and `graphs` of communicators. Its owner may take
 * stream_lock, and writes log lines only if memory is out. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct graph_call *calls, **last_call = &calls;
static struct comm_graphs *all;
static bool watched; /* the thread runs */

/* The child of a fork has no graphs, for its drivers do not work. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&some, NULL);
	calls = NULL;
	last_call = &calls;
	all = NULL;
	watched = false;
}

/* ---- calls ---- */

static void release_gate(struct stream_fence *fence)
{
	struct gate *gate = (struct gate *)fence;

	gate->graphs->stop_release(gate->stop);
}

/* The driver calls this when a graph is gone. The thread frees the call. */
static void gone(void *ctx)
{
	struct gate *gate = ctx;

	atomic_fetch_sub(&gate->call->alive, 1);
}

static void free_call(struct graph_call *call)
{
	for (size_t i = 0; i < call->ngates; i++)
		if (call->gates[i].stop)
			call->gates[i].graphs->stop_free(call->gates[i].stop);
	for (size_t i = 0; i < call->nitems; i++)
		free(call->counts[i]);
	free(call->counts);
	free(call->items);
	free(call->gates);
	free(call);
}

static bool is_reached(const struct gate *gate)
{
	return gate->stop && gate->graphs->stop_reached(gate->stop);
}

/* With the lock held */
static bool is_broken(const struct graph_call *call)
{
	for (size_t i = 0; i < call->nitems; i++)
		if (call->dead || fault_is(call->items[i].comm))
			return true;
	return false;
}

static bool are_all_reached(const struct graph_call *call)
{
	for (size_t i = 0; i < call->ngates; i++)
		if (!is_reached(&call->gates[i]))
			return false;
	return true;
}

static bool let_go(struct graph_call *call)
{
	bool any = false;

	for (size_t i = 0; i < call->ngates; i++) {
		if (!is_reached(&call->gates[i]))
			continue;
		release_gate(&call->gates[i].fence);
		any = true;
	}
	return any;
}

/* Queue the call, whose streams wait. */
static void start(struct graph_call *call)
{
	struct stream_fence *fences = NULL;

	for (size_t i = call->ngates; i--;) {
		struct gate *gate = &call->gates[i];

		gate->fence =
			(struct stream_fence){.of = gate->of->comm->dev->fences,
					      .stream = gate->stream,
					      .reached = true,
					      .let_go = release_gate,
					      .next = fences};
		fences = &gate->fence;
	}
	atomic_store(&call->runs, true);
	if (stream_submit(call->items, call->nitems, fences, NULL, false) ==
	    DICOMM_SUCCESS)
		return;
	/* The other ranks make this call. */
	for (size_t i = 0; i < call->nitems; i++)
		fault_raise(call->items[i].comm, DICOMM_ERR_NO_MEMORY,
			    call->items[i].comm->rank, true,
			    "graphs: no memory to begin %zu calls",
			    call->nitems);
	atomic_store(&call->runs, false);
}

/* ---- the thread ---- */

/* With the lock held. Returns true if a replay was there. */
static bool look_at(struct graph_call *call)
{
	if (atomic_load(&call->runs))
		return false;
	if (is_broken(call))
		return let_go(call);
	if (!are_all_reached(call))
		return false;
	start(call);
	return true;
}

/* With the lock held */
static bool look_at_all(void)
{
	struct graph_call **at = &calls, *call;
	bool any = false;

	while ((call = *at)) {
		any |= look_at(call);
		if (atomic_load(&call->alive) || atomic_load(&call->runs)) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		if (last_call == &call->next)
			last_call = at;
		free_call(call);
	}
	return any;
}

/* What breaks one of the two communicators breaks the other. With the lock
 * held; the caller holds log lines back. */
static void share_faults(void)
{
	char text[512];

	for (struct comm_graphs *g = all; g; g = g->next) {
		struct dicomm_comm *from = g->of, *to = g->comm;

		if (!to || fault_is(from) == fault_is(to))
			continue;
		if (!fault_is(from)) {
			from = to;
			to = g->of;
		}
		fault_text(from, text, sizeof(text));
		fault_raise(to,
			    (dicomm_result_t)atomic_load(&from->fault.status),
			    from->fault.culprit, false, "%s", text);
	}
}

static long nap_ns(uint64_t idle_ns)
{
	if (idle_ns < IDLE_NS)
		return NAP_NS;
	if (idle_ns / NAPS_IN_PAUSE > LONG_NAP_NS)
		return LONG_NAP_NS;
	return (long)(idle_ns / NAPS_IN_PAUSE);
}

static void pause_looking(uint64_t since_ns)
{
	uint64_t idle = clock_ns() - since_ns;
	const struct timespec nap = {.tv_nsec = nap_ns(idle)};

	if (idle >= BUSY_NS || !core_yield())
		nanosleep(&nap, NULL);
}

static void *watch(void *arg)
{
	unsigned faults = 0, now;
	uint64_t since = clock_ns();

	(void)arg;
	for (;;) {
		bool any;

		pthread_mutex_lock(&lock);
		while (!calls && !all)
			pthread_cond_wait(&some, &lock);
		any = look_at_all();
		pthread_mutex_unlock(&lock);
		if (any)
			since = clock_ns();
		now = atomic_load(&fault_count);
		if (now != faults) {
			log_hold();
			pthread_mutex_lock(&lock);
			share_faults();
			pthread_mutex_unlock(&lock);
			log_release(true);
			faults = now;
		}
		pause_looking(since);
	}
	return NULL;
}

/* With the lock held */
static dicomm_result_t start_watching(void)
{
	int error;

	if (watched)
		return DICOMM_SUCCESS;
	error = thread_start(NULL, "dicomm-graphs", watch, NULL);
	if (error)
		return FAIL(DICOMM_ERR_SYSTEM, "graphs: create a thread: %s",
			    strerror(error));
	watched = true;
	return DICOMM_SUCCESS;
}

/* ---- communicators ---- */

/* Returns the graphs of a communicator, if it has none, new ones. */
static dicomm_result_t graphs_of(struct dicomm_comm *comm, bool *fresh)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct comm_graphs *g;

	*fresh = false;
	fork_add(FORK_GRAPHS, forget);
	pthread_mutex_lock(&lock);
	if (comm->graphs) {
		if (!comm->graphs->comm)
			status = FAIL(DICOMM_ERR_INVALID_USAGE,
				      "graphs: another thread captures the "
				      "first call of %s",
				      comm->name);
	} else if (!(g = calloc(1, sizeof(*g)))) {
		status = FAIL(DICOMM_ERR_NO_MEMORY, "graphs: out of memory");
	} else {
		g->of = comm;
		comm->graphs = g;
		*fresh = true;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* All ranks capture the same first call, so all of them split. */
static dicomm_result_t split(struct dicomm_comm *comm, dicomm_comm_t *out)
{
	dicomm_config_t config = comm->config;
	char name[COMM_NAME_BYTES];

	snprintf(name, sizeof(name), "%.*s graphs",
		 (int)sizeof(name) - (int)sizeof(" graphs"), comm->name);
	config.name = name;
	config.blocking = 1;
	config.timeout_ms = atomic_load(&comm->timeout_ms);
	config.bootstrap.allgather = NULL;
	config.island = "off"; /* replays queue their calls past islands */
	return dicomm_comm_split(comm, 0, comm->rank, out, &config);
}

/* The splits of a group run at the same time, as their ranks may be in one
 * thread. */
static dicomm_result_t split_all(const struct item *items, const bool *fresh,
				 dicomm_comm_t *made, size_t n)
{
	dicomm_result_t status = DICOMM_SUCCESS, s;

	dicomm_group_start();
	for (size_t i = 0; i < n; i++) {
		if (!fresh[i])
			continue;
		s = split(items[i].comm, &made[i]);
		if (status == DICOMM_SUCCESS)
			status = s;
	}
	s = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : s;
}

static void keep(struct dicomm_comm *comm, dicomm_comm_t made)
{
	struct comm_graphs *g = comm->graphs;

	pthread_mutex_lock(&lock);
	if (made) {
		g->comm = made;
		g->next = all;
		all = g;
	} else {
		comm->graphs = NULL;
		free(g);
	}
	pthread_mutex_unlock(&lock);
}

/* Make what communicators of the calls lack. */
static dicomm_result_t open_graphs(const struct item *items, size_t n)
{
	bool *fresh = calloc(n, sizeof(*fresh)), any = false;
	dicomm_comm_t *made = calloc(n, sizeof(dicomm_comm_t));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!fresh || !made)
		status = FAIL(DICOMM_ERR_NO_MEMORY, "graphs: out of memory");
	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		bool again = false;

		for (size_t j = 0; j < i && !again; j++)
			again = items[j].comm == items[i].comm;
		if (!again)
			status = graphs_of(items[i].comm, &fresh[i]);
		any |= fresh[i];
	}
	if (any && status == DICOMM_SUCCESS)
		status = split_all(items, fresh, made, n);
	for (size_t i = 0; any && i < n; i++)
		if (fresh[i])
			keep(items[i].comm, made[i]);
	free(fresh);
	free(made);
	return status;
}

void graph_abort(struct dicomm_comm *comm)
{
	dicomm_comm_t hidden = NULL;

	pthread_mutex_lock(&lock);
	if (comm->graphs)
		hidden = comm->graphs->comm;
	pthread_mutex_unlock(&lock);
	if (hidden)
		dicomm_comm_abort(hidden);
}

void graph_set_timeout(struct dicomm_comm *comm, int timeout_ms)
{
	pthread_mutex_lock(&lock);
	if (comm->graphs && comm->graphs->comm)
		atomic_store(&comm->graphs->comm->timeout_ms, timeout_ms);
	pthread_mutex_unlock(&lock);
}

void graph_close(struct dicomm_comm *comm)
{
	struct comm_graphs **at = &all, *g;

	pthread_mutex_lock(&lock);
	g = comm->graphs;
	comm->graphs = NULL;
	if (!g) {
		pthread_mutex_unlock(&lock);
		return;
	}
	while (*at && *at != g)
		at = &(*at)->next;
	if (*at)
		*at = g->next;
	for (struct graph_call *call = calls; call; call = call->next)
		for (size_t i = 0; i < call->ngates; i++)
			call->dead |= call->gates[i].of == g;
	pthread_mutex_unlock(&lock);
	if (fault_is(comm))
		dicomm_comm_abort(g->comm);
	/* Waits for what a replay has begun. */
	dicomm_comm_destroy(g->comm);
	free(g);
}

/* ---- captures ---- */

static const struct accel_graphs *graphs_for(const struct item *item)
{
	return item->comm->dev ? item->comm->dev->work->graphs : NULL;
}

/* Replays of all ranks run on the other communicator. */
static dicomm_result_t check_ranks(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++) {
		const char *device = comm->members[r].device;

		if (strncmp(device, "cuda", 4) && strncmp(device, "hip", 3))
			return FAIL(DICOMM_ERR_UNSUPPORTED,
				    "graphs: rank %d of %s is on %s, where "
				    "nothing can be captured into a graph",
				    r, comm->name, device);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t check(const struct item *item,
			     const struct local_work *before)
{
	const char *what = NULL;

	if (!strcmp(config_string(CONFIG_GRAPH), "off"))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "stream %p is being captured into a graph, which "
			    "DICOMM_GRAPH=off refuses",
			    item->native);
	if (item->call.window)
		what = "puts, gets and signals";
	else if (item->call.work || before)
		what = "redistributions";
	else if (item->call.status)
		what = "receives with a status";
	if (!what)
		return check_ranks(item->comm);
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "stream %p is being captured into a graph, which has no "
		    "place for %s",
		    item->native, what);
}

static dicomm_result_t capture_of(const struct item *item, uint64_t *capture)
{
	return graphs_for(item)->captured(item->comm->dev->index, item->native,
					  capture);
}

/* Streams of one communicator and one capture meet in one stop; but calls by
 * islands have stops of their own, each on its stream. */
static dicomm_result_t check_pair(const struct item *a, size_t i,
				  const struct item *b, size_t j)
{
	uint64_t one = 0, other = 0;
	const char *two = a->comm != b->comm ? "communicators" : "captures";

	if (a->comm == b->comm && a->native == b->native)
		return DICOMM_SUCCESS;
	TRY(capture_of(a, &one));
	TRY(capture_of(b, &other));
	if (a->comm == b->comm && one == other) {
		if (!a->run_group && !b->run_group)
			return DICOMM_SUCCESS;
		two = "streams, and some go by islands";
	}
	return FAIL(DICOMM_ERR_UNSUPPORTED,
		    "group: calls %zu and %zu on %s are captured into a graph "
		    "from two %s",
		    j, i, a->comm->device, two);
}

/* A call begins when all of its stops are reached. Stops in one graph would
 * wait for each other: a driver may run branches one after the other. */
static dicomm_result_t check_streams(const struct item *items, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t j = 0; j < i; j++) {
			const struct item *a = &items[i], *b = &items[j];

			if (graphs_for(a) == graphs_for(b) &&
			    a->comm->dev->index == b->comm->dev->index)
				TRY(check_pair(a, i, b, j));
		}
	return DICOMM_SUCCESS;
}

dicomm_result_t graph_captures(const struct item *items, size_t n,
			       const struct local_work *before, bool *does)
{
	size_t captured = 0, other = 0;

	*does = false;
	for (size_t i = 0; i < n; i++) {
		const struct accel_graphs *graphs = graphs_for(&items[i]);
		uint64_t capture = 0;

		if (graphs)
			TRY(graphs->captured(items[i].comm->dev->index,
					     items[i].native, &capture));
		if (capture)
			captured = i + 1;
		else
			other = i + 1;
	}
	if (!captured)
		return DICOMM_SUCCESS;
	if (other)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "group: call %zu is on a stream that is being "
			    "captured into a graph, and call %zu is not",
			    captured - 1, other - 1);
	for (size_t i = 0; i < n; i++)
		TRY(check(&items[i], before));
	TRY(check_streams(items, n));
	*does = true;
	return DICOMM_SUCCESS;
}

static struct gate *find_gate(struct graph_call *call, const struct item *item)
{
	for (size_t i = 0; i < call->ngates; i++) {
		struct gate *gate = &call->gates[i];

		if (gate->graphs == graphs_for(item) &&
		    gate->index == item->comm->dev->index &&
		    gate->of == item->comm->graphs)
			return gate;
	}
	return NULL;
}

/* NULL: no memory; the counts are freed. */
static struct graph_call *make_call(const struct item *items, size_t n)
{
	struct graph_call *call = calloc(1, sizeof(*call));

	if (call) {
		call->items = calloc(n, sizeof(*items));
		call->counts = calloc(n, sizeof(*call->counts));
		call->gates = calloc(n, sizeof(*call->gates));
	}
	if (!call || !call->items || !call->counts || !call->gates) {
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		if (call)
			free_call(call);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		call->items[i] = items[i];
		call->items[i].counts = NULL;
		call->counts[i] = items[i].counts;
	}
	call->nitems = n;
	atomic_store(&call->alive, 1);
	call->dead = true;
	return call;
}

static void add_gates(struct graph_call *call)
{
	for (size_t i = 0; i < call->nitems; i++) {
		const struct item *item = &call->items[i];

		if (find_gate(call, item))
			continue;
		call->gates[call->ngates++] =
			(struct gate){.graphs = graphs_for(item),
				      .index = item->comm->dev->index,
				      .stream = item->native,
				      .of = item->comm->graphs,
				      .call = call};
	}
}

/* Streams of a gate meet there: the first of them comes behind the others, or
 * then these behind its stop, and so behind all that they have captured. */
static dicomm_result_t meet(const struct graph_call *call,
			    const struct gate *gate, bool behind)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < call->nitems && status == DICOMM_SUCCESS; i++) {
		const struct item *item = &call->items[i];

		if (item->comm != gate->of->comm ||
		    item->native == gate->stream)
			continue;
		status = gate->graphs->follow(
			gate->index, behind ? item->native : gate->stream,
			behind ? gate->stream : item->native, behind);
	}
	return status;
}

/* From the first stop on, graphs refer to the call, so it is in the list. */
static dicomm_result_t add_stops(struct graph_call *call)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < call->ngates && status == DICOMM_SUCCESS; i++) {
		struct gate *gate = &call->gates[i];
		struct accel_stop *stop = NULL;

		status = meet(call, gate, false);
		if (status != DICOMM_SUCCESS)
			break;
		atomic_fetch_add(&call->alive, 1);
		status = gate->graphs->stop_add(gate->index, gate->stream,
						&gate->of->order, gone, gate,
						&stop);
		if (!stop)
			atomic_fetch_sub(&call->alive, 1);
		pthread_mutex_lock(&lock);
		gate->stop = stop;
		pthread_mutex_unlock(&lock);
		if (status == DICOMM_SUCCESS)
			status = meet(call, gate, true);
	}
	return status;
}

/* Replays have all calls of a gate on its first stream. */
static void gather(struct graph_call *call)
{
	for (size_t i = 0; i < call->nitems; i++)
		for (size_t k = 0; k < call->ngates; k++)
			if (call->gates[k].of->comm == call->items[i].comm)
				call->items[i].native = call->gates[k].stream;
}

/* With the lock held */
static void list_call(struct graph_call *call)
{
	*last_call = call;
	last_call = &call->next;
	pthread_cond_signal(&some);
}

dicomm_result_t graph_capture(struct item *items, size_t n)
{
	struct graph_call *call = make_call(items, n);
	dicomm_result_t status;

	if (!call)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "graphs: no memory for %zu calls", n);
	status = open_graphs(call->items, n);
	pthread_mutex_lock(&lock);
	if (status == DICOMM_SUCCESS)
		status = start_watching();
	if (status == DICOMM_SUCCESS) {
		add_gates(call);
		list_call(call);
	}
	pthread_mutex_unlock(&lock);
	if (status != DICOMM_SUCCESS) {
		free_call(call);
		return status;
	}
	for (size_t i = 0; i < n; i++) {
		call->items[i].comm = call->items[i].comm->graphs->comm;
		call->items[i].replay_runs = &call->runs;
	}
	status = add_stops(call);
	gather(call);
	pthread_mutex_lock(&lock);
	call->dead = status != DICOMM_SUCCESS;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&call->alive, 1);
	return status;
}
