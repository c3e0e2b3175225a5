/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are captured into graphs of mocked CUDA and HIP, and replayed. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cast.h"
#include "tests/support/gpu.h"
#include "tests/support/runner.h"
#include "tests/support/wakeups.h"

#define OWN ".libs/dicomm/compat/libnccl.so.2"
#define REPLAYS 1000
#define SHORT 60

enum { GLOBAL, THREAD_LOCAL, RELAXED };

/* The driver's functions for graphs, which CUDA and HIP call alike */
static struct {
	int (*begin)(void *stream, int mode);
	int (*end)(void *stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*update_cuda)(void *exec, void *graph, void *result);
	int (*update_hip)(void *exec, void *graph, void **node, int *result);
	int (*launch)(void *exec, void *stream);
	int (*exec_destroy)(void *exec);
	int (*destroy)(void *graph);
	int (*event_create)(void **event, unsigned flags);
	int (*event_record)(void *event, void *stream);
	int (*event_wait)(void *stream, void *event, unsigned flags);
	int (*event_destroy)(void *event);
	int (*event_query)(void *event);
	int (*retain)(void **context, int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*set)(int device);
	unsigned event_flags;
} api;

static void *find(void *lib, const char *cuda, const char *hip, bool is_cuda)
{
	const char *name = is_cuda ? cuda : hip;
	void *at = *name ? dlsym(lib, name) : NULL;

	JOB_CHECK(at || !*name, "the driver has no %s", name);
	return at;
}

/* The calling thread uses the device, as a program does. */
static void use(const struct gadget *g)
{
	bool cuda = !strncmp(g->name, "cuda", 4);
	void *lib = dlopen(cuda ? "libcuda.so.1" : "libamdhip64.so.7",
			   RTLD_NOW | RTLD_NOLOAD);
	static void *contexts[2];
	static bool pushed;
	void *last;

	if (!lib && !cuda)
		lib = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD);
	JOB_CHECK(lib, "the driver of %s is not loaded", g->name);
#define FIND(member, c, h) *(void **)&api.member = find(lib, c, h, cuda)
	FIND(begin, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
	FIND(end, "cuStreamEndCapture", "hipStreamEndCapture");
	FIND(instantiate, "cuGraphInstantiateWithFlags",
	     "hipGraphInstantiateWithFlags");
	FIND(update_cuda, "cuGraphExecUpdate_v2", "");
	FIND(update_hip, "", "hipGraphExecUpdate");
	FIND(launch, "cuGraphLaunch", "hipGraphLaunch");
	FIND(exec_destroy, "cuGraphExecDestroy", "hipGraphExecDestroy");
	FIND(destroy, "cuGraphDestroy", "hipGraphDestroy");
	FIND(event_create, "cuEventCreate", "hipEventCreateWithFlags");
	FIND(event_record, "cuEventRecord", "hipEventRecord");
	FIND(event_wait, "cuStreamWaitEvent", "hipStreamWaitEvent");
	FIND(event_destroy, "cuEventDestroy_v2", "hipEventDestroy");
	FIND(event_query, "cuEventQuery", "hipEventQuery");
	FIND(retain, "cuDevicePrimaryCtxRetain", "");
	FIND(push, "cuCtxPushCurrent_v2", "");
	FIND(pop, "cuCtxPopCurrent_v2", "");
	FIND(set, "", "hipSetDevice");
#undef FIND
	api.event_flags = cuda ? 2 : 2 | 0x80000000u;
	if (!cuda) {
		JOB_CHECK(!api.set(g->index), "hipSetDevice");
		return;
	}
	if (pushed)
		api.pop(&last);
	pushed = true;
	if (!contexts[g->index])
		JOB_CHECK(!api.retain(&contexts[g->index], g->index),
			  "no context of %s", g->name);
	JOB_CHECK(!api.push(contexts[g->index]), "cuCtxPushCurrent");
}

#define DRIVER(call) driver_expect((call), 0, #call)
#define DRIVER_REFUSES(call, error) driver_expect((call), (error), #call)

static void driver_expect(int got, int want, const char *call)
{
	JOB_CHECK(got == want, "%s: %d instead of %d", call, got, want);
}

/* ---- graphs ---- */

struct recorded {
	void *graph, *exec;
};

static void record_end(struct recorded *r, const struct gadget *g)
{
	DRIVER(api.end(g->native, &r->graph));
	DRIVER(api.instantiate(&r->exec, r->graph, 0));
}

static void recorded_free(struct recorded *r)
{
	DRIVER(api.exec_destroy(r->exec));
	DRIVER(api.destroy(r->graph));
}

#define COUNT 1000

struct numbers {
	int64_t *host, *in, *out;
};

static void numbers_alloc(struct numbers *n, struct gadget *g)
{
	n->host = gadget_host(g, COUNT * sizeof(int64_t));
	n->in = gadget_alloc(g, COUNT * sizeof(int64_t));
	n->out = gadget_alloc(g, COUNT * sizeof(int64_t));
}

static void numbers_free(struct numbers *n, struct gadget *g)
{
	gadget_wait(g);
	gadget_host_free(g, n->host);
	gadget_free(g, n->in);
	gadget_free(g, n->out);
}

static void numbers_set(struct numbers *n, struct gadget *g, int64_t first)
{
	gadget_wait(g);
	for (int i = 0; i < COUNT; i++)
		n->host[i] = first + i;
	gadget_copy(g, n->in, n->host, COUNT * sizeof(int64_t));
}

/* The sum over ranks of first + rank + i */
static void numbers_check(struct numbers *n, struct gadget *g,
			  const int64_t *at, int ranks, int64_t first,
			  const char *what)
{
	gadget_copy(g, n->host, at, COUNT * sizeof(int64_t));
	gadget_wait(g);
	for (int i = 0; i < COUNT; i++) {
		int64_t want = ranks * (first + i) + ranks * (ranks - 1) / 2;

		JOB_CHECK(n->host[i] == want, "%s: element %d is %ld, not %ld",
			  what, i, (long)n->host[i], (long)want);
	}
}

static void sum(struct job_rank *me, const struct numbers *n, void *stream)
{
	JOB_TRY(dicomm_allreduce(n->in, n->out, COUNT, DICOMM_INT64, DICOMM_SUM,
				 me->comm, stream));
}

static void record_sum(struct job_rank *me, struct gadget *g,
		       const struct numbers *n, struct recorded *r)
{
	DRIVER(api.begin(g->native, RELAXED));
	sum(me, n, g->native);
	record_end(r, g);
}

/* The second rank's device: of HIP; but a real GPU is alone, or with others of
 * CUDA. */
static const char *other_kind(void)
{
	return gpu_is_wanted("cuda:0") ? "cuda:1" : "hip:0";
}

/* On two devices of CUDA or of HIP */
static void
play_on(bool hip, void (*run)(struct job_rank *me, struct gadget *g), void *arg)
{
	cast_play(&(struct cast){.device = {hip ? "hip:0" : "cuda:0",
					    hip ? "hip:1" : "cuda:1"},
				 .run = run,
				 .arg = arg},
		  2);
}

/* What PyTorch and vLLM do: some calls on another stream first, then a capture,
 * then replays among calls that are not captured, without a wait between. */
static void replays(struct job_rank *me, struct gadget *g)
{
	int mode = *(const int *)me->arg;
	struct numbers n, eager;
	struct recorded r;
	struct gadget side;

	use(g);
	numbers_alloc(&n, g);
	numbers_alloc(&eager, g);
	gadget_open(&side, g->name);
	for (int i = 0; i < 3; i++) {
		numbers_set(&n, &side, i + me->rank);
		sum(me, &n, side.native);
		numbers_check(&n, &side, n.out, me->ranks, i, "warm-up");
	}
	DRIVER(api.begin(g->native, mode));
	sum(me, &n, g->native);
	record_end(&r, g);
	for (int i = 0; i < (job_is_short() ? SHORT : REPLAYS); i++) {
		job_doing("replay %d", i);
		numbers_set(&n, g, i + me->rank);
		DRIVER(api.launch(r.exec, g->native));
		if (i % 3 == 0)
			gadget_copy(g, eager.in, n.in, COUNT * sizeof(int64_t));
		if (i % 3 == 0)
			sum(me, &eager, g->native);
		if (i % 10)
			continue;
		numbers_check(&n, g, n.out, me->ranks, i, "replay");
		if (i % 3 == 0)
			numbers_check(&eager, g, eager.out, me->ranks, i,
				      "eager");
	}
	gadget_wait(g);
	recorded_free(&r);
	gadget_close(&side);
	numbers_free(&n, g);
	numbers_free(&eager, g);
}

START_TEST(a_graph_is_replayed_among_calls)
{
	static const char *const devices[][2] = {
		{"cuda:0", "cuda:1"}, {"hip:0", "hip:1"}, {"cuda:0", "hip:0"}};
	int which = gpu_is_wanted("cuda:0") ? 0 : _i, mode = _i;

	cast_play(
		&(struct cast){.device = {devices[which][0], devices[which][1]},
			       .run = replays,
			       .arg = &mode},
		2);
}
END_TEST

/* ---- what a graph may have in it ---- */

/* Two branches, whose calls the graph has to put in the order of their capture;
 * the second one waits for the first by an event. */
static void branches(struct job_rank *me, struct gadget *g, struct numbers *n,
		     struct numbers *other, struct gadget *side,
		     struct recorded *r)
{
	void *fork, *join;

	DRIVER(api.event_create(&fork, api.event_flags));
	DRIVER(api.event_create(&join, api.event_flags));
	DRIVER(api.begin(g->native, RELAXED));
	DRIVER(api.event_record(fork, g->native));
	DRIVER(api.event_wait(side->native, fork, 0));
	sum(me, n, g->native);
	sum(me, other, side->native);
	DRIVER(api.event_record(join, side->native));
	DRIVER(api.event_wait(g->native, join, 0));
	DRIVER_REFUSES(api.event_query(join), 907);
	record_end(r, g);
	DRIVER(api.event_destroy(fork));
	DRIVER(api.event_destroy(join));
}

/* A group of messages, and what all ranks have */
static void exchange(struct job_rank *me, struct gadget *g, struct numbers *n,
		     int64_t *all, struct recorded *r)
{
	int next = (me->rank + 1) % me->ranks;
	int last = (me->rank + me->ranks - 1) % me->ranks;

	DRIVER(api.begin(g->native, THREAD_LOCAL));
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_send(n->in, COUNT, DICOMM_INT64, next, me->comm,
			    g->native));
	JOB_TRY(dicomm_recv(n->out, COUNT, DICOMM_INT64, last, me->comm,
			    g->native));
	JOB_TRY(dicomm_group_end());
	JOB_TRY(dicomm_allgather(n->out, all, COUNT, DICOMM_INT64, me->comm,
				 g->native));
	record_end(r, g);
}

static void check_exchange(struct job_rank *me, struct gadget *g,
			   struct numbers *n, const int64_t *all, int first)
{
	for (int r = 0; r < me->ranks; r++) {
		int last = (r + me->ranks - 1) % me->ranks;

		gadget_copy(g, n->host, all + (size_t)r * COUNT,
			    COUNT * sizeof(int64_t));
		gadget_wait(g);
		for (int i = 0; i < COUNT; i++)
			JOB_CHECK(n->host[i] == first + last + i,
				  "block %d, element %d: %ld", r, i,
				  (long)n->host[i]);
	}
}

/* Two graphs share a communicator. */
static void shared(struct job_rank *me, struct gadget *g)
{
	struct recorded a, b;
	struct numbers n, m, other;
	struct gadget side;
	int64_t *all;

	use(g);
	numbers_alloc(&n, g);
	numbers_alloc(&m, g);
	numbers_alloc(&other, g);
	all = gadget_alloc(g, (size_t)me->ranks * COUNT * sizeof(*all));
	gadget_open(&side, g->name);
	branches(me, g, &n, &other, &side, &a);
	exchange(me, g, &m, all, &b);
	for (int i = 0; i < 50; i++) {
		job_doing("round %d", i);
		numbers_set(&n, g, i + me->rank);
		numbers_set(&other, g, 2 * i + me->rank);
		numbers_set(&m, g, 3 * i + me->rank);
		DRIVER(api.launch(a.exec, g->native));
		DRIVER(api.launch(b.exec, g->native));
		DRIVER(api.launch(a.exec, g->native));
		numbers_check(&n, g, n.out, me->ranks, i, "a branch");
		numbers_check(&other, g, other.out, me->ranks, 2 * i,
			      "the other branch");
		check_exchange(me, g, &m, all, 3 * i);
	}
	recorded_free(&a);
	recorded_free(&b);
	gadget_close(&side);
	numbers_free(&n, g);
	numbers_free(&m, g);
	numbers_free(&other, g);
	gadget_free(g, all);
}

START_TEST(graphs_share_a_communicator)
{
	play_on(_i, shared, NULL);
}
END_TEST

/* An executable gets the calls of another graph, and the old ones end. */
static void updated(struct job_rank *me, struct gadget *g)
{
	struct numbers n, m;
	struct recorded a, b;
	void *node = NULL, *info[4];
	int result = 0;

	use(g);
	numbers_alloc(&n, g);
	numbers_alloc(&m, g);
	record_sum(me, g, &n, &a);
	record_sum(me, g, &m, &b);
	numbers_set(&n, g, 5 + me->rank);
	numbers_set(&m, g, 7 + me->rank);
	DRIVER(api.launch(a.exec, g->native));
	DRIVER(api.update_cuda
		       ? api.update_cuda(a.exec, b.graph, info)
		       : api.update_hip(a.exec, b.graph, &node, &result));
	DRIVER(api.launch(a.exec, g->native));
	numbers_check(&n, g, n.out, me->ranks, 5, "before the update");
	numbers_check(&m, g, m.out, me->ranks, 7, "after it");
	recorded_free(&a);
	recorded_free(&b);
	numbers_free(&n, g);
	numbers_free(&m, g);
}

START_TEST(a_graph_is_updated)
{
	play_on(_i, updated, NULL);
}
END_TEST

/* One thread captures for two ranks, in a group, into two graphs. */
static void one_thread(struct job_rank *me)
{
	const char *const names[] = {"cuda:0", "cuda:1"};
	struct recorded r[2];
	struct numbers n[2];
	struct gadget g[2];
	dicomm_comm_t comms[2];

	(void)me;
	for (int i = 0; i < 2; i++)
		gadget_open(&g[i], names[i]);
	JOB_TRY(dicomm_comm_init_all(comms, 2, names));
	for (int i = 0; i < 2; i++) {
		numbers_alloc(&n[i], &g[i]);
		use(&g[i]);
	}
	for (int i = 0; i < 2; i++) {
		use(&g[i]);
		DRIVER(api.begin(g[i].native, GLOBAL));
	}
	JOB_TRY(dicomm_group_start());
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_allreduce(n[i].in, n[i].out, COUNT, DICOMM_INT64,
					 DICOMM_SUM, comms[i], g[i].native));
	JOB_TRY(dicomm_group_end());
	for (int i = 0; i < 2; i++) {
		use(&g[i]);
		DRIVER(api.end(g[i].native, &r[i].graph));
	}
	for (int i = 0; i < 2; i++) {
		use(&g[i]);
		DRIVER(api.instantiate(&r[i].exec, r[i].graph, 0));
	}
	for (int k = 0; k < 10; k++) {
		for (int i = 0; i < 2; i++)
			numbers_set(&n[i], &g[i], k + i);
		for (int i = 0; i < 2; i++) {
			use(&g[i]);
			DRIVER(api.launch(r[i].exec, g[i].native));
		}
		for (int i = 0; i < 2; i++)
			numbers_check(&n[i], &g[i], n[i].out, 2, k, "replay");
	}
	for (int i = 0; i < 2; i++) {
		use(&g[i]);
		recorded_free(&r[i]);
		JOB_TRY(dicomm_comm_destroy(comms[i]));
	}
	for (int i = 0; i < 2; i++) {
		numbers_free(&n[i], &g[i]);
		gadget_close(&g[i]);
	}
}

START_TEST(one_thread_captures_for_two_ranks)
{
	job_run(&(struct job){.run = one_thread, .ranks = 1, .bare = true});
}
END_TEST

/* ---- ends ---- */

/* Captures that come to nothing leave the communicator as it was. */
static void cancelled(struct job_rank *me, struct gadget *g)
{
	struct recorded r = {NULL, NULL};
	struct numbers n;
	void *event;

	use(g);
	numbers_alloc(&n, g);
	DRIVER(api.event_create(&event, api.event_flags));
	for (int i = 0; i < 3; i++) {
		DRIVER(api.begin(g->native, GLOBAL));
		sum(me, &n, g->native);
		if (i == 0)
			/* What a thread must not do during a capture */
			DRIVER_REFUSES(api.event_query(event), 900);
		DRIVER_REFUSES(api.end(g->native, &r.graph), i ? 0 : 901);
		if (i)
			DRIVER(api.destroy(r.graph));
	}
	DRIVER(api.event_destroy(event));
	record_sum(me, g, &n, &r);
	numbers_set(&n, g, 3 + me->rank);
	DRIVER(api.launch(r.exec, g->native));
	numbers_check(&n, g, n.out, me->ranks, 3, "after cancelled captures");
	recorded_free(&r);
	numbers_free(&n, g);
}

START_TEST(cancelled_captures_do_no_harm)
{
	play_on(_i, cancelled, NULL);
}
END_TEST

/* The communicator ends first: replays go on at once. */
static void outlives(struct job_rank *me, struct gadget *g)
{
	struct recorded r;
	struct numbers n;

	use(g);
	numbers_alloc(&n, g);
	record_sum(me, g, &n, &r);
	numbers_set(&n, g, 1 + me->rank);
	DRIVER(api.launch(r.exec, g->native));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	gadget_wait(g);
	for (int i = 0; i < 3; i++)
		DRIVER(api.launch(r.exec, g->native));
	gadget_wait(g);
	recorded_free(&r);
	numbers_free(&n, g);
}

START_TEST(a_graph_outlives_its_communicator)
{
	play_on(_i, outlives, NULL);
}
END_TEST

/* When naps have their full length, with what a busy machine adds; and how many
 * there may be in a second: of 1 ms, and half as many again. */
#define LONG_AFTER_MS 5500
#define NAPS_MOST 1500

/* Long after the last replay it hardly looks, and finds the next one. */
static void seldom(struct job_rank *me, struct gadget *g)
{
	struct recorded r;
	struct numbers n;
	unsigned long before;
	double begin;

	use(g);
	numbers_alloc(&n, g);
	record_sum(me, g, &n, &r);
	for (int i = 0; i < 2; i++) {
		numbers_set(&n, g, 10 * i + me->rank);
		DRIVER(api.launch(r.exec, g->native));
		numbers_check(&n, g, n.out, me->ranks, 10 * i, "replay");
		if (i)
			continue;
		job_sleep_ms(LONG_AFTER_MS);
		before = wakeups("dicomm-graphs");
		JOB_CHECK(before, "no thread dicomm-graphs");
		begin = job_seconds();
		job_sleep_ms(1000);
		before = wakeups("dicomm-graphs") - before;
		begin = job_seconds() - begin;
		JOB_CHECK((double)before < NAPS_MOST * begin,
			  "%lu naps in %.1f s", before, begin);
	}
	recorded_free(&r);
	numbers_free(&n, g);
}

START_TEST(long_after_a_replay_its_thread_hardly_wakes)
{
	play_on(false, seldom, NULL);
}
END_TEST

/* Only rank 0 replays, and aborts. */
static void aborted(struct job_rank *me, struct gadget *g)
{
	dicomm_result_t async = DICOMM_SUCCESS;
	struct recorded r;
	struct numbers n;

	use(g);
	numbers_alloc(&n, g);
	record_sum(me, g, &n, &r);
	numbers_set(&n, g, me->rank);
	gadget_wait(g);
	job_barrier();
	if (me->rank == 0) {
		DRIVER(api.launch(r.exec, g->native));
		job_sleep_ms(20);
		JOB_TRY(dicomm_comm_abort(me->comm));
		gadget_wait(g);
		DRIVER(api.launch(r.exec, g->native));
		gadget_wait(g);
	}
	/* The other ranks hear of it. */
	for (int i = 0; i < 5000 && async == DICOMM_SUCCESS; i++) {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		job_sleep_ms(1);
	}
	JOB_CHECK(async == (me->rank ? DICOMM_ERR_REMOTE : DICOMM_ERR_ABORTED),
		  "%d", (int)async);
	recorded_free(&r);
	numbers_free(&n, g);
}

START_TEST(an_abort_ends_a_replay)
{
	play_on(_i, aborted, NULL);
}
END_TEST

/* ---- what is refused ---- */

static void refused(struct job_rank *me, struct gadget *g)
{
	const char *words = me->arg;
	struct numbers n;
	void *graph;

	use(g);
	numbers_alloc(&n, g);
	DRIVER(api.begin(g->native, RELAXED));
	JOB_REFUSED(dicomm_allreduce(n.in, n.out, COUNT, DICOMM_INT64,
				     DICOMM_SUM, me->comm, g->native),
		    DICOMM_ERR_UNSUPPORTED, words);
	DRIVER(api.end(g->native, &graph));
	DRIVER(api.destroy(graph));
	numbers_set(&n, g, me->rank);
	sum(me, &n, g->native);
	numbers_check(&n, g, n.out, me->ranks, 0, "after the refusal");
	numbers_free(&n, g);
}

START_TEST(a_variable_refuses_graphs)
{
	setenv("DICOMM_GRAPH", "off", 1);
	play_on(_i, refused, "DICOMM_GRAPH=off");
	unsetenv("DICOMM_GRAPH");
}
END_TEST

/* Either all streams of a group are captured, or none is. */
static void mixed(struct job_rank *me, struct gadget *g)
{
	struct gadget side;
	struct numbers n;
	void *graph;

	use(g);
	numbers_alloc(&n, g);
	gadget_open(&side, g->name);
	DRIVER(api.begin(g->native, RELAXED));
	JOB_TRY(dicomm_group_start());
	sum(me, &n, g->native);
	sum(me, &n, side.native);
	JOB_REFUSED(dicomm_group_end(), DICOMM_ERR_UNSUPPORTED,
		    "call 0 is on a stream that is being captured into a "
		    "graph, and call 1 is not");
	DRIVER(api.end(g->native, &graph));
	DRIVER(api.destroy(graph));
	gadget_close(&side);
	numbers_free(&n, g);
}

static void refuse_group(const struct numbers *n, dicomm_comm_t a, void *first,
			 dicomm_comm_t b, void *second, const char *words)
{
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(n->in, n->out, COUNT, DICOMM_INT64, DICOMM_SUM,
				 a, first));
	JOB_TRY(dicomm_allreduce(n->in, n->out, COUNT, DICOMM_INT64, DICOMM_SUM,
				 b, second));
	JOB_REFUSED(dicomm_group_end(), DICOMM_ERR_UNSUPPORTED, words);
}

/* Of two communicators on one stream, or of one on two streams of a capture */
static void refuse_fork(struct job_rank *me, struct gadget *g,
			dicomm_comm_t other, const char *words)
{
	bool beside = other == me->comm;
	struct gadget side;
	struct numbers n;
	void *graph, *fork, *join;

	use(g);
	numbers_alloc(&n, g);
	gadget_open(&side, g->name);
	DRIVER(api.event_create(&fork, api.event_flags));
	DRIVER(api.event_create(&join, api.event_flags));
	DRIVER(api.begin(g->native, RELAXED));
	DRIVER(api.event_record(fork, g->native));
	DRIVER(api.event_wait(side.native, fork, 0));
	refuse_group(&n, me->comm, g->native, other,
		     beside ? side.native : g->native, words);
	DRIVER(api.event_record(join, side.native));
	DRIVER(api.event_wait(g->native, join, 0));
	DRIVER(api.end(g->native, &graph));
	DRIVER(api.destroy(graph));
	DRIVER(api.event_destroy(fork));
	DRIVER(api.event_destroy(join));
	gadget_close(&side);
	numbers_free(&n, g);
}

/* Neither would begin: a graph may come to one stop behind the other. */
static void two_of_a_device(struct job_rank *me, struct gadget *g)
{
	dicomm_comm_t two;

	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &two, NULL));
	refuse_fork(me, g, two, "from two communicators");
	JOB_TRY(dicomm_comm_destroy(two));
}

/* Of calls by islands, each has stops of its own on its stream. All-reduces
 * share memory for sums, which unequal islands need. */
static void by_islands(struct job_rank *me, struct gadget *g)
{
	dicomm_comm_t first = me->comm;
	struct numbers a, b;
	struct recorded r;

	/* The vendor's library wants the device of the thread. */
	use(g);
	JOB_TRY(dicomm_comm_split(first, 0, me->rank, &me->comm, NULL));
	refuse_fork(me, g, me->comm, "from two streams, and some go by");
	numbers_alloc(&a, g);
	numbers_alloc(&b, g);
	DRIVER(api.begin(g->native, RELAXED));
	sum(me, &a, g->native);
	sum(me, &b, g->native);
	record_end(&r, g);
	for (int i = 0; i < 10; i++) {
		numbers_set(&a, g, i + me->rank);
		numbers_set(&b, g, 7 * i + me->rank);
		DRIVER(api.launch(r.exec, g->native));
		numbers_check(&a, g, a.out, me->ranks, i, "the first");
		numbers_check(&b, g, b.out, me->ranks, 7 * i, "the second");
	}
	recorded_free(&r);
	numbers_free(&a, g);
	numbers_free(&b, g);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = first;
}

/* Two captures at a time: neither waits for the other. */
static void two_captures(struct job_rank *me, struct gadget *g)
{
	struct gadget side;
	struct numbers n;
	void *graph;

	use(g);
	numbers_alloc(&n, g);
	gadget_open(&side, g->name);
	DRIVER(api.begin(g->native, RELAXED));
	DRIVER(api.begin(side.native, RELAXED));
	refuse_group(&n, me->comm, g->native, me->comm, side.native,
		     "from two captures");
	DRIVER(api.end(side.native, &graph));
	DRIVER(api.destroy(graph));
	DRIVER(api.end(g->native, &graph));
	DRIVER(api.destroy(graph));
	gadget_close(&side);
	numbers_free(&n, g);
}

/* Of more groups than a stream may have reached nodes */
#define FORKED_GROUPS 40

/* A group on two streams of one capture has one stop for both. Each stream has
 * calls of its own before and after the groups. */
static void two_streams(struct job_rank *me, struct gadget *g)
{
	struct gadget side;
	struct numbers a, b;
	struct recorded r;
	void *fork, *join;

	use(g);
	numbers_alloc(&a, g);
	numbers_alloc(&b, g);
	gadget_open(&side, g->name);
	numbers_set(&a, g, me->rank);
	numbers_set(&b, g, me->rank);
	DRIVER(api.event_create(&fork, api.event_flags));
	DRIVER(api.event_create(&join, api.event_flags));
	DRIVER(api.begin(g->native, RELAXED));
	DRIVER(api.event_record(fork, g->native));
	DRIVER(api.event_wait(side.native, fork, 0));
	sum(me, &a, g->native);
	for (int i = 0; i < FORKED_GROUPS; i++) {
		JOB_TRY(dicomm_group_start());
		sum(me, &a, g->native);
		sum(me, &b, side.native);
		JOB_TRY(dicomm_group_end());
	}
	sum(me, &b, side.native);
	DRIVER(api.event_record(join, side.native));
	DRIVER(api.event_wait(g->native, join, 0));
	record_end(&r, g);
	for (int i = 0; i < 5; i++)
		DRIVER(api.launch(r.exec, g->native));
	numbers_check(&a, g, a.out, me->ranks, 0, "on the first stream");
	numbers_check(&b, g, b.out, me->ranks, 0, "on the second stream");
	recorded_free(&r);
	DRIVER(api.event_destroy(fork));
	DRIVER(api.event_destroy(join));
	gadget_close(&side);
	numbers_free(&a, g);
	numbers_free(&b, g);
}

START_TEST(a_captured_group_may_have_two_streams)
{
	play_on(_i, two_streams, NULL);
}
END_TEST

START_TEST(a_captured_group_has_one_capture_of_a_device)
{
	play_on(_i, two_captures, NULL);
}
END_TEST

START_TEST(a_captured_group_has_one_communicator_of_a_device)
{
	cast_play(&(struct cast){.device = {"cuda:0", other_kind()},
				 .run = two_of_a_device},
		  2);
}
END_TEST

START_TEST(calls_by_islands_are_captured)
{
	static const struct {
		const char *name, *value;
	} setting[] = {{"DICOMM_ISLAND", "auto"},
		       {"DICOMM_ISLAND_BYTES", "0"},
		       {"DICOMM_ISLAND_LIBRARY", "own:" OWN}};

	if (access(OWN, R_OK)) {
		fprintf(stderr, "no %s: it is made with shared libraries\n",
			OWN);
		return;
	}
	for (int i = 0; i < 3; i++)
		setenv(setting[i].name, setting[i].value, 1);
	cast_play(&(struct cast){.device = {"cuda:0", "cuda:1", other_kind()},
				 .run = by_islands},
		  3);
	for (int i = 0; i < 3; i++)
		unsetenv(setting[i].name);
}
END_TEST

START_TEST(a_group_is_captured_as_a_whole)
{
	cast_play(&(struct cast){.device = {"cuda:0", other_kind()},
				 .run = mixed},
		  2);
}
END_TEST

int main(void)
{
	/* Both vendors' backends are one code; a sanitizer's start takes
	 * long. */
	bool real = gpu_is_wanted("cuda:0");
	int vendors = job_is_sanitized() || real ? 1 : 2;
	Suite *suite;
	TCase *tcase;

	if (!cast_has("cuda:0") || (!real && !cast_has("hip:0")))
		return 77;
	suite = suite_create("graphs");
	tcase = tcase_create("graphs");
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, a_graph_is_replayed_among_calls, 0, 3);
	tcase_add_loop_test(tcase, graphs_share_a_communicator, 0, vendors);
	tcase_add_loop_test(tcase, a_graph_is_updated, 0, vendors);
	tcase_add_test(tcase, one_thread_captures_for_two_ranks);
	tcase_add_loop_test(tcase, cancelled_captures_do_no_harm, 0, vendors);
	tcase_add_loop_test(tcase, a_graph_outlives_its_communicator, 0,
			    vendors);
	tcase_add_test(tcase, long_after_a_replay_its_thread_hardly_wakes);
	tcase_add_loop_test(tcase, an_abort_ends_a_replay, 0, vendors);
	tcase_add_loop_test(tcase, a_variable_refuses_graphs, 0, vendors);
	tcase_add_test(tcase, a_group_is_captured_as_a_whole);
	tcase_add_test(tcase,
		       a_captured_group_has_one_communicator_of_a_device);
	tcase_add_loop_test(tcase, a_captured_group_has_one_capture_of_a_device,
			    0, vendors);
	tcase_add_loop_test(tcase, a_captured_group_may_have_two_streams, 0,
			    vendors);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("islands");
	tcase_set_timeout(tcase, 100);
	/* Three ranks want three devices. */
	if (!real)
		tcase_add_test(tcase, calls_by_islands_are_captured);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
