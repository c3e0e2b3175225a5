/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of devices, some of them mocks: who waits for whom, what is refused.
 */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/device/device.h"
#include "tests/support/capture.h"
#include "tests/support/cast.h"
#include "tests/support/gpu.h"
#include "tests/support/runner.h"
#include "transports/transport.h"
#include "tests/support/starved.h"

/* Streams are tested on what devices there are. */
static const char *some_device;

/* The scalar of an operator is written on the stream before the call. */
static void scalar(struct job_rank *me, struct gadget *g)
{
	float in[3] = {1, 2, 3}, by = (float)me->rank + 1, got[3];
	float want = (float)(me->ranks * (me->ranks + 1)) / 2;
	float *at = gadget_alloc(g, 64);
	dicomm_redop_t op;

	JOB_TRY(dicomm_redop_create_premulsum(&op, at + 8, DICOMM_FLOAT32,
					      DICOMM_SCALAR_DEVICE, me->comm));
	gadget_delay(g, 1000);
	gadget_copy(g, at, in, sizeof(in));
	gadget_copy(g, at + 8, &by, sizeof(by));
	JOB_TRY(dicomm_allreduce(at, at, 3, DICOMM_FLOAT32, op, me->comm,
				 g->native));
	gadget_copy(g, got, at, sizeof(got));
	gadget_wait(g);
	gadget_delay(g, 0);
	for (int i = 0; i < 3; i++)
		JOB_CHECK(got[i] == want * in[i], "element %d: %g", i,
			  (double)got[i]);
	JOB_TRY(dicomm_redop_destroy(op, me->comm));
	gadget_free(g, at);
}

START_TEST(a_scalar_is_read_from_the_device)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "opencl:0",
					    "cuda:1"},
				 .instead = some_device,
				 .run = scalar},
		  4);
}
END_TEST

/* One thread, one process, all kinds of device. */
static void together(struct job_rank *me)
{
	float in[CAST_DEVICES], got[CAST_DEVICES], *at[CAST_DEVICES];
	dicomm_comm_t comms[CAST_DEVICES];
	struct gadget g[CAST_DEVICES];
	const char *name;

	(void)me;
	for (int i = 0; i < CAST_DEVICES; i++)
		gadget_open(&g[i], cast_unlike[i]);
	JOB_TRY(dicomm_comm_init_all(comms, CAST_DEVICES, cast_unlike));
	for (int i = 0; i < CAST_DEVICES; i++) {
		JOB_TRY(dicomm_comm_device(comms[i], &name));
		JOB_CHECK(!strcmp(name, cast_unlike[i]), "rank %d: %s", i,
			  name);
		in[i] = (float)i;
		at[i] = gadget_alloc(&g[i], 64);
		if (i)
			gadget_copy(&g[i], at[i], &in[i], sizeof(float));
		else
			*at[i] = in[i];
	}
	JOB_TRY(dicomm_group_start());
	for (int i = 0; i < CAST_DEVICES; i++)
		JOB_TRY(dicomm_allreduce(at[i], at[i], 1, DICOMM_FLOAT32,
					 DICOMM_SUM, comms[i], g[i].native));
	JOB_TRY(dicomm_group_end());
	got[0] = *at[0];
	for (int i = 1; i < CAST_DEVICES; i++) {
		gadget_copy(&g[i], &got[i], at[i], sizeof(float));
		gadget_wait(&g[i]);
	}
	for (int i = 0; i < CAST_DEVICES; i++)
		JOB_CHECK(got[i] == 10, "rank %d: %g", i, (double)got[i]);
	for (int i = 0; i < CAST_DEVICES; i++)
		JOB_TRY(dicomm_comm_destroy(comms[i]));
	for (int i = 0; i < CAST_DEVICES; i++) {
		gadget_free(&g[i], at[i]);
		gadget_close(&g[i]);
	}
}

START_TEST(one_thread_holds_ranks_on_unlike_devices)
{
	for (int i = 0; i < CAST_DEVICES; i++)
		if (!cast_has(cast_unlike[i]))
			return;
	job_run(&(struct job){.run = together, .ranks = 1, .bare = true});
}
END_TEST

/* ---- streams ---- */

#define LINKS 40

/* Every operation reads what was queued before it, on one stream or the next,
 * and nobody waits in between: copies of the device, sums of two
 * communicators. */
static void chain(struct job_rank *me, struct gadget *g)
{
	int64_t *got = gadget_host(g, (LINKS + 1) * sizeof(*got));
	int64_t *one = got + LINKS, want = 1;
	int64_t *a = gadget_alloc(g, sizeof(*a));
	int64_t *b = gadget_alloc(g, sizeof(*b));
	dicomm_comm_t other;

	JOB_TRY(dicomm_comm_split(me->comm, 0, -me->rank, &other, NULL));
	gadget_delay(g, 2000);
	*one = 1;
	gadget_copy(g, a, one, sizeof(*one));
	for (int i = 0; i < LINKS; i++) {
		JOB_TRY(dicomm_allreduce(a, b, 1, DICOMM_INT64, DICOMM_SUM,
					 i % 2 ? other : me->comm, g->native));
		gadget_copy(g, a, b, sizeof(*a));
		gadget_copy(g, &got[i], a, sizeof(*a));
		if (i % 5 == me->rank)
			job_sleep_ms(1);
	}
	gadget_wait(g);
	gadget_delay(g, 0);
	for (int i = 0; i < LINKS; i++) {
		want = (int64_t)((uint64_t)want * (uint64_t)me->ranks);
		JOB_CHECK(got[i] == want, "link %d: %ld instead of %ld", i,
			  (long)got[i], (long)want);
	}
	JOB_TRY(dicomm_comm_destroy(other));
	gadget_host_free(g, got);
	gadget_free(g, a);
	gadget_free(g, b);
}

START_TEST(operations_keep_the_order_of_their_stream)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "opencl:0",
					    "cuda:1"},
				 .instead = some_device,
				 .run = chain},
		  4);
}
END_TEST

/* The call returns though what is before it on the stream has not run, and
 * cannot, until this very thread goes on. */
static void held(struct job_rank *me, struct gadget *g)
{
	const struct accel_work *work = g->accel->work;
	float *a = gadget_alloc(g, 4096);
	float *in = gadget_host(g, 4096), *got = in + 1;
	struct accel_stream_wait *stream_wait;

	*in = 2;
	*got = 0;
	JOB_TRY(work->stream_wait_create(g->index, &stream_wait));
	JOB_TRY(work->stream_wait_queue(stream_wait, g->stream));
	gadget_copy(g, a, in, sizeof(*in));
	JOB_TRY(dicomm_allreduce(a, a, 1, DICOMM_FLOAT32, DICOMM_SUM, me->comm,
				 g->native));
	gadget_copy(g, got, a, sizeof(*got));
	job_barrier();
	JOB_CHECK(*got == 0, "the operation did not wait for its stream");
	*in = 3;
	work->stream_wait_release(stream_wait);
	gadget_wait(g);
	JOB_CHECK(*got == 3 * (float)me->ranks, "%g", (double)*got);
	work->stream_wait_destroy(stream_wait);
	gadget_host_free(g, in);
	gadget_free(g, a);
}

START_TEST(a_call_returns_at_once_and_waits_for_its_stream)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "opencl:0",
					    "cuda:1"},
				 .instead = some_device,
				 .run = held},
		  4);
}
END_TEST

/* Far more calls at once than a communicator keeps: some wait, and none asks
 * the driver for what could wait for the streams that the others hold. */
static void many(struct job_rank *me, struct gadget *g)
{
	int32_t *got = gadget_host(g, 4096), one = 1, want = 1;
	int32_t *at = gadget_alloc(g, sizeof(*at));

	gadget_copy(g, at, &one, sizeof(one));
	for (int i = 0; i < DEVICE_CALLS + 50; i++) {
		JOB_TRY(dicomm_allreduce(at, at, 1, DICOMM_INT32, DICOMM_SUM,
					 me->comm, g->native));
		want = (int32_t)((uint32_t)want * 3);
	}
	gadget_copy(g, got, at, sizeof(*got));
	gadget_wait(g);
	JOB_CHECK(*got == want, "%d instead of %d", *got, want);
	gadget_host_free(g, got);
	gadget_free(g, at);
}

/* Each stream of a group is held until all of it has run. */
static void crowd(struct job_rank *me, struct gadget *g)
{
	static struct gadget many[DEVICE_CALLS + 1];
	float *at = gadget_alloc(g, sizeof(float) * (DEVICE_CALLS + 1));

	for (int i = 0; i <= DEVICE_CALLS; i++)
		gadget_open(&many[i], g->name);
	for (int n = DEVICE_CALLS + 1; n >= DEVICE_CALLS; n--) {
		JOB_TRY(dicomm_group_start());
		for (int i = 0; i < n; i++)
			JOB_TRY(dicomm_allreduce(at + i, at + i, 1,
						 DICOMM_FLOAT32, DICOMM_SUM,
						 me->comm, many[i].native));
		if (n > DEVICE_CALLS)
			JOB_REFUSED(dicomm_group_end(),
				    DICOMM_ERR_INVALID_USAGE,
				    "more than 256 streams");
		else
			JOB_TRY(dicomm_group_end());
		for (int i = 0; i <= DEVICE_CALLS; i++)
			gadget_wait(&many[i]);
	}
	for (int i = 0; i <= DEVICE_CALLS; i++)
		gadget_close(&many[i]);
	gadget_free(g, at);
}

START_TEST(a_group_of_too_many_streams_is_refused)
{
	cast_play(&(struct cast){.device = {some_device}, .run = crowd}, 1);
}
END_TEST

START_TEST(calls_beyond_what_is_kept_wait)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "cuda:0"},
				 .instead = some_device,
				 .run = many},
		  3);
}
END_TEST

/* One group, two communicators, two streams of a device: it begins when both
 * have come there. */
static void group(struct job_rank *me, struct gadget *g)
{
	int32_t *at = gadget_alloc(g, 64), in[4] = {1, 2, 3, 4}, got[4];
	dicomm_comm_t other;
	struct gadget second;

	gadget_open(&second, g->name);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	gadget_delay(g, 3000);
	gadget_copy(g, at, in, 8);
	gadget_copy(&second, at + 2, in + 2, 8);
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(at, at, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 g->native));
	JOB_TRY(dicomm_allreduce(at + 2, at + 2, 2, DICOMM_INT32, DICOMM_SUM,
				 other, second.native));
	JOB_TRY(dicomm_allreduce(at + 1, at + 1, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, g->native));
	JOB_TRY(dicomm_group_end());
	gadget_copy(g, got, at, 16);
	gadget_wait(g);
	gadget_wait(&second);
	for (int i = 0; i < 4; i++)
		JOB_CHECK(got[i] == in[i] * me->ranks, "element %d: %d", i,
			  got[i]);
	gadget_delay(g, 0);
	gadget_close(&second);
	JOB_TRY(dicomm_comm_destroy(other));
	gadget_free(g, at);
}

START_TEST(a_group_waits_for_all_its_streams)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "opencl:0",
					    "hip:1"},
				 .instead = some_device,
				 .run = group},
		  4);
}
END_TEST

/* An abort ends what waits for a peer, and lets the stream go on. */
static void aborted(struct job_rank *me, struct gadget *g)
{
	dicomm_result_t async = DICOMM_SUCCESS;
	float *a = gadget_alloc(g, 1 << 20);
	float *got = gadget_host(g, 4096);

	if (me->rank == 0) {
		JOB_TRY(dicomm_allreduce(a, a, 1 << 18, DICOMM_FLOAT32,
					 DICOMM_SUM, me->comm, g->native));
		gadget_copy(g, got, a, sizeof(*got));
	}
	job_barrier();
	job_sleep_ms(20);
	if (me->rank == 0) {
		JOB_TRY(dicomm_comm_abort(me->comm));
		gadget_wait(g);
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		JOB_CHECK(async == DICOMM_ERR_ABORTED, "%d", (int)async);
	}
	gadget_host_free(g, got);
	gadget_free(g, a);
}

START_TEST(an_abort_lets_the_stream_go_on)
{
	const char *const names[] = {"cuda:0", "hip:0", "opencl:0", "ze:0"};
	struct cast cast = {.device = {names[_i], "cuda:0"},
			    .instead = some_device,
			    .run = aborted};

	cast_play(&cast, 2);
}
END_TEST

/* A group of two communicators, of which one is aborted while the stream of the
 * other has not come to the call; or that is the stream of both. */
static void abort_beside(struct job_rank *me, struct gadget *g)
{
	const bool same = *(const bool *)me->arg || !g->native;
	const struct accel_work *work = g->accel->work;
	int32_t *at = gadget_alloc(g, 64), in[2] = {1, 2};
	int32_t *got = gadget_host(g, 64);
	struct accel_stream_wait *stream_wait;
	dicomm_comm_t other;
	struct gadget held;

	gadget_open(&held, g->name);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	JOB_TRY(work->stream_wait_create(g->index, &stream_wait));
	gadget_copy(g, at, in, sizeof(in));
	gadget_wait(g);
	job_barrier();
	if (me->rank == 0)
		JOB_TRY(work->stream_wait_queue(stream_wait, held.stream));
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(at + 1, at + 1, 1, DICOMM_INT32, DICOMM_SUM,
				 other, same ? held.native : g->native));
	JOB_TRY(dicomm_allreduce(at, at, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 held.native));
	JOB_TRY(dicomm_group_end());
	job_barrier();
	if (me->rank == 0) {
		JOB_TRY(dicomm_comm_abort(other));
		if (!same)
			gadget_wait(g);
		/* Drivers of GPUs free nothing while a stream is held. */
		if (!strncmp(g->name, "opencl", 6)) {
			JOB_TRY(dicomm_comm_destroy(other));
			other = NULL;
		}
		work->stream_wait_release(stream_wait);
	}
	gadget_copy(&held, got, at, sizeof(*got));
	gadget_wait(&held);
	JOB_CHECK(*got == me->ranks, "the sum is %d", *got);
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(other));
	work->stream_wait_destroy(stream_wait);
	gadget_close(&held);
	gadget_host_free(g, got);
	gadget_free(g, at);
}

START_TEST(an_abort_does_not_wait_for_streams_of_others)
{
	/* Of OpenCL's, tests have but one stream. */
	const char *const names[] = {"cuda:0", "opencl:0", "cuda:0"};
	bool same = _i > 0;

	cast_play(&(struct cast){.device = {names[_i]},
				 .instead = some_device,
				 .run = abort_beside,
				 .arg = &same},
		  2);
}
END_TEST

/* ---- two threads, the same streams ---- */

#define CROSSINGS 20
#define CROSSED 100

/* One of two threads, each with a group of all streams. */
struct crosser {
	dicomm_comm_t comm;
	const struct gadget *streams;
	int32_t *at;
	bool backwards;
	pthread_barrier_t *start;
};

static void *cross(void *arg)
{
	struct crosser *c = arg;

	for (int i = 0; i < CROSSINGS; i++) {
		pthread_barrier_wait(c->start);
		JOB_TRY(dicomm_group_start());
		for (int k = 0; k < CROSSED; k++) {
			int s = c->backwards ? CROSSED - 1 - k : k;

			JOB_TRY(dicomm_allreduce(
				c->at + k, c->at + k, 1, DICOMM_INT32,
				DICOMM_SUM, c->comm, c->streams[s].native));
		}
		JOB_TRY(dicomm_group_end());
		pthread_barrier_wait(c->start);
		for (int k = 0; k < CROSSED && !c->backwards; k++)
			gadget_wait(&c->streams[k]);
	}
	return NULL;
}

static void crossing(struct job_rank *me, struct gadget *g)
{
	static struct gadget streams[CROSSED];
	int32_t *at = gadget_alloc(g, 2 * CROSSED * sizeof(*at));
	struct crosser a = {.comm = me->comm, .streams = streams, .at = at};
	struct crosser b = a;
	pthread_barrier_t start;
	pthread_t thread;

	for (int i = 0; i < CROSSED; i++)
		gadget_open(&streams[i], g->name);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &b.comm, NULL));
	pthread_barrier_init(&start, NULL, 2);
	a.start = b.start = &start;
	b.at = at + CROSSED;
	b.backwards = true;
	JOB_CHECK(!pthread_create(&thread, NULL, cross, &b), "no thread");
	cross(&a);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&start);
	JOB_TRY(dicomm_comm_destroy(b.comm));
	for (int i = 0; i < CROSSED; i++)
		gadget_close(&streams[i]);
	gadget_free(g, at);
}

START_TEST(groups_of_two_threads_cross_on_streams)
{
	cast_play(&(struct cast){.device = {some_device}, .run = crossing}, 1);
}
END_TEST

/* ---- what is refused ---- */

/* Tell the mock of CUDA something. False: it is not there. */
static bool tell_mock(const char *what, void *about)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void (*mock)(void *about) = NULL;

	if (!driver)
		return false;
	*(void **)&mock = dlsym(driver, what);
	if (mock)
		mock(about);
	dlclose(driver);
	return mock;
}

static void refused(struct job_rank *me, struct gadget *g)
{
	float *a = gadget_alloc(g, 64), mine[16];
	const char *beside = strncmp(g->name, "cuda", 4) ? "hip:1" : "cuda:1";
	void *handle, *theirs;
	struct gadget other;
	char text[256];

	snprintf(text, sizeof(text), "is not memory of %s", g->name);
	JOB_REFUSED(dicomm_allreduce(a, mine, 16, DICOMM_FLOAT32, DICOMM_SUM,
				     me->comm, g->native),
		    DICOMM_ERR_INVALID_ARGUMENT, text);
	JOB_REFUSED(
		dicomm_send(mine, 16, DICOMM_FLOAT32, 0, me->comm, g->native),
		DICOMM_ERR_INVALID_ARGUMENT, "send: send 0x");
	if (gadget_exists(beside, text, sizeof(text))) {
		gadget_open(&other, beside);
		JOB_REFUSED(dicomm_allreduce(a, a, 16, DICOMM_FLOAT32,
					     DICOMM_SUM, me->comm,
					     other.native),
			    DICOMM_ERR_INVALID_ARGUMENT,
			    "is of another device or context");
		theirs = gadget_alloc(&other, 64);
		snprintf(text, sizeof(text),
			 "allreduce: recv %p is memory of %s, but rank %d has "
			 "%s",
			 theirs, beside, me->rank, g->name);
		JOB_REFUSED(dicomm_allreduce(a, theirs, 16, DICOMM_FLOAT32,
					     DICOMM_SUM, me->comm, g->native),
			    DICOMM_ERR_INVALID_ARGUMENT, text);
		gadget_free(&other, theirs);
		gadget_close(&other);
	}
	theirs = gadget_alloc(g, 64);
	if (!strcmp(g->name, "cuda:0") && tell_mock("mock_set_apart", theirs)) {
		snprintf(text, sizeof(text),
			 "send %p is memory of another context of cuda:0 than "
			 "the primary one, which rank %d uses",
			 theirs, me->rank);
		JOB_REFUSED(dicomm_allreduce(theirs, a, 16, DICOMM_FLOAT32,
					     DICOMM_SUM, me->comm, g->native),
			    DICOMM_ERR_INVALID_ARGUMENT, text);
		JOB_REFUSED(dicomm_comm_register(me->comm, theirs, 64, &handle),
			    DICOMM_ERR_INVALID_ARGUMENT, "another context");
	}
	gadget_free(g, theirs);
	/* Nothing of that has happened. */
	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE, .count = 1000}, me,
		   g);
	gadget_free(g, a);
}

START_TEST(memory_and_streams_of_others_are_refused)
{
	if (cast_has("cuda:0") && cast_has("hip:0"))
		cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
					 .run = refused},
			  2);
}
END_TEST

/* ---- memory of devices, given to who computes on the host ---- */

#define FEW 16

/* On the host a call has waited. */
static void wait_for(const struct gadget *g)
{
	if (g->accel->work)
		gadget_wait(g);
}

/* All that could touch it refuses it, naming both. */
static void untouched(struct job_rank *me, const struct gadget *g,
		      const char *owner, float *theirs)
{
	const dicomm_datatype_t t = DICOMM_FLOAT32;
	const size_t counts[] = {4, 4}, displs[] = {0, 4};
	float *mine = gadget_alloc(g, FEW * 2 * sizeof(float));
	dicomm_comm_t c = me->comm;
	dicomm_redop_t op;
	char text[256];
	void *handle;

	snprintf(text, sizeof(text), "%p is memory of %s, but rank %d has %s",
		 (void *)theirs, owner, me->rank, g->name);
#define REFUSED(call) JOB_REFUSED(call, DICOMM_ERR_INVALID_ARGUMENT, text)
	REFUSED(dicomm_allreduce(theirs, mine, FEW, t, DICOMM_SUM, c,
				 g->native));
	REFUSED(dicomm_allreduce(mine, theirs, FEW, t, DICOMM_SUM, c,
				 g->native));
	REFUSED(dicomm_allgather(mine, theirs, 4, t, c, g->native));
	REFUSED(dicomm_send(theirs, 1, t, 1 - me->rank, c, g->native));
	REFUSED(dicomm_recv(theirs, 1, t, 1 - me->rank, c, g->native));
	REFUSED(dicomm_alltoallv(theirs, counts, displs, mine, counts, displs,
				 t, c, g->native));
	JOB_TRY(dicomm_group_start());
	REFUSED(dicomm_alltoall(theirs, mine, 1, t, c, g->native));
	JOB_TRY(dicomm_group_end());
	REFUSED(dicomm_comm_register(c, theirs, 64, &handle));
	REFUSED(dicomm_comm_memcpy(c, mine, theirs, 4, g->native));
	REFUSED(dicomm_comm_memcpy(c, theirs, mine, 4, g->native));
	REFUSED(dicomm_redop_create_premulsum(&op, theirs, t,
					      DICOMM_SCALAR_HOST_IMMEDIATE, c));
	REFUSED(dicomm_redop_create_premulsum(&op, theirs, t,
					      DICOMM_SCALAR_DEVICE, c));
#undef REFUSED
	/* Where it holds nothing it does not matter. */
	JOB_TRY(dicomm_broadcast(me->rank ? theirs : mine,
				 me->rank ? mine : theirs, 0, t, 0, c,
				 g->native));
	wait_for(g);
	gadget_free(g, mine);
}

static void repeat(struct job_rank *me, const struct gadget *g, float *at)
{
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < FEW; k++)
			at[k] = 1;
		JOB_TRY(dicomm_allreduce(at, at, FEW, DICOMM_FLOAT32,
					 DICOMM_SUM, me->comm, g->native));
		wait_for(g);
		for (int k = 0; k < FEW; k++)
			JOB_CHECK(at[k] == 2, "%g", (double)at[k]);
	}
}

/* The runtime is loaded when the communicator has been used already. */
static void touching(struct job_rank *me, struct gadget *g)
{
	float *mine = gadget_alloc(g, FEW * sizeof(float)), *theirs, *pinned;
	const char *owner = me->arg;
	struct gadget other;

	repeat(me, g, mine);
	gadget_open(&other, owner);
	theirs = gadget_alloc(&other, 64);
	pinned = gadget_host(&other, 64);
	untouched(me, g, owner, theirs);
	/* A call like those before, too. */
	JOB_REFUSED(dicomm_allreduce(theirs, theirs, FEW, DICOMM_FLOAT32,
				     DICOMM_SUM, me->comm, g->native),
		    DICOMM_ERR_INVALID_ARGUMENT, "is memory of");
	repeat(me, g, mine);
	if (!strncmp(g->name, "host", 4))
		repeat(me, g, pinned);
	/* What is managed the host may touch. */
	if (!strncmp(owner, "cuda", 4) && tell_mock("mock_manage", theirs))
		repeat(me, g, theirs);
	gadget_host_free(&other, pinned);
	gadget_free(&other, theirs);
	gadget_close(&other);
	gadget_free(g, mine);
}

START_TEST(memory_that_the_host_cannot_touch_is_refused_there)
{
	const char *const owners[] = {"cuda:1", "hip:0", "ze:1"};
	const char *where = _i < 3 ? "host" : "opencl:0";

	if (cast_has(owners[_i % 3]) && cast_has(where))
		cast_play(&(struct cast){.device = {where, where},
					 .run = touching,
					 .arg = owners[_i % 3]},
			  2);
}
END_TEST

/* What turns out when the call is run is not lost: no stream goes on as if it
 * had been done. */
static void unfit(struct job_rank *me, struct gadget *g)
{
	float *a = gadget_alloc(g, 4 << 20);
	dicomm_result_t status, async;

	status = dicomm_allreduce(a, a, 1 << 20, DICOMM_FLOAT32, DICOMM_SUM,
				  me->comm, g->native);
	/* The other rank may have been told already. */
	JOB_CHECK(status == DICOMM_SUCCESS ||
			  status == DICOMM_ERR_INVALID_USAGE,
		  "status %d", (int)status);
	gadget_wait(g);
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
	JOB_CHECK(async == DICOMM_ERR_INVALID_USAGE, "async %d", (int)async);
	JOB_REFUSED(dicomm_barrier(me->comm, g->native),
		    DICOMM_ERR_INVALID_USAGE, "does not fit a slot");
	gadget_free(g, a);
}

START_TEST(a_call_that_nothing_serves_is_an_error)
{
	setenv("DICOMM_ALGO", "allreduce:recursive_doubling", 1);
	cast_play(&(struct cast){.device = {some_device}, .run = unfit}, 2);
}
END_TEST

/* An operation that its device does not end in time: no other rank is blamed.
 */
static void end_late(struct job_rank *me, const char *device, size_t n,
		     int timeout_ms, unsigned delay_us, const char *words)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_result_t async;
	struct gadget g;
	const char *text;
	float *a, *b;

	gadget_open(&g, device);
	config.device = g.name;
	config.timeout_ms = timeout_ms;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	a = gadget_alloc(&g, n * sizeof(*a));
	b = gadget_alloc(&g, n * sizeof(*b));
	gadget_delay(&g, delay_us);
	JOB_TRY(dicomm_allreduce(a, b, n, DICOMM_FLOAT32, DICOMM_AVG, me->comm,
				 g.native));
	gadget_wait(&g);
	gadget_delay(&g, 0);
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
	text = dicomm_get_last_error(me->comm);
	JOB_CHECK(async == DICOMM_ERR_TIMEOUT && strstr(text, words),
		  "async %d: %s", (int)async, text);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	gadget_free(&g, a);
	gadget_free(&g, b);
	gadget_close(&g);
}

static void slow_device(struct job_rank *me)
{
	char words[80];

	snprintf(words, sizeof(words), "after 150 ms waiting for %s",
		 some_device);
	end_late(me, some_device, 1 << 20, 150, 4000000, words);
}

START_TEST(a_device_that_is_late_is_named)
{
	job_run(&(struct job){.run = slow_device,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* The library's stream is behind the user's, which waits for it: that ends by
 * the time-out, and the stream goes on soon. */
static void shared_queue(struct job_rank *me)
{
	const struct {
		const char *device, *words;
	} *c = me->arg;
	uint64_t begun = clock_ms();

	end_late(me, c->device, 1000, 300, 0, c->words);
	JOB_CHECK(clock_ms() - begun < 20000 + starved_ms(), "it took %d ms",
		  (int)(clock_ms() - begun));
}

START_TEST(streams_that_share_a_queue_end_by_the_time_out)
{
	static const struct {
		const char *device, *words;
	} cases[] = {
		{"cuda:0", "CUDA_DEVICE_MAX_CONNECTIONS may leave too few"},
		{"hip:0", "GPU_MAX_HW_QUEUES may leave too few"}};

	/* It takes some seconds, and older drivers are no different there. */
	if (!gpu_is_wanted(cases[_i].device) && cast_has(cases[_i].device) &&
	    !getenv("MOCK_DRIVERS"))
		job_run(&(struct job){
			.run = shared_queue,
			.arg = &cases[_i],
			.ranks = 1,
			.bare = true,
			.env = {"DICOMM_DEBUG=none", "MOCK_ONE_QUEUE=1"},
			.timeout_s = 60});
}
END_TEST

/* Where nothing may be staged, ranks that would have to are told apart. */
static void never(struct job_rank *me)
{
	const char *const *names = me->arg;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct gadget g;
	char text[80];

	gadget_open(&g, names[me->rank]);
	config.device = g.name;
	config.staging = me->rank == 1 ? "never" : "auto";
	snprintf(text, sizeof(text), "between rank 0 (%s) and rank 1 (%s)",
		 names[0], names[1]);
	JOB_REFUSED(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
						 me->rank, &config),
		    DICOMM_ERR_NO_PATH, text);
	JOB_CHECK(!me->comm, "there is a communicator");
	gadget_close(&g);
}

START_TEST(staging_never_refuses_unlike_devices_by_name)
{
	const char *const pairs[][2] = {{"opencl:0", "cuda:0"},
					{"cuda:0", "hip:0"},
					{"hip:1", "opencl:0"}};

	job_run(&(struct job){
		.run = never, .arg = pairs[_i], .ranks = 2, .bare = true});
}
END_TEST

/* What makes a communicator could wait for a stream that an operation of
 * another one holds. The mocks tell who did. */
static void second(struct job_rank *me, struct gadget *g)
{
	const struct timespec nap = {0, 100000000};
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT32,
			  .count = 1000,
			  .gadget = g};
	dicomm_comm_t again = NULL;

	trial_fill(&t, me);
	if (me->rank == 1)
		nanosleep(&nap, NULL);
	JOB_TRY(trial_call(&t, g->native));
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &again, NULL));
	trial_check(&t);
	trial_free(&t);
	JOB_TRY(dicomm_comm_destroy(again));
}

/* Drivers may wait for streams while they allocate; the mocks do not for as
 * long as this. */
static void allocating(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT32,
			  .count = 1000,
			  .gadget = g};
	void *at = NULL;

	trial_fill(&t, me);
	job_barrier();
	if (me->rank == 1)
		job_sleep_ms(900);
	JOB_TRY(trial_call(&t, g->native));
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &at, 1 << 20));
	trial_check(&t);
	trial_free(&t);
	JOB_TRY(dicomm_mem_free(at));
}

START_TEST(memory_is_allocated_while_streams_are_held)
{
	const char *const names[] = {"cuda:0", "hip:0", "ze:0"};

	if (cast_has(names[_i]))
		cast_play(&(struct cast){.device = {names[_i]},
					 .run = allocating},
			  2);
}
END_TEST

START_TEST(a_communicator_begins_while_streams_are_held)
{
	if (cast_has("cuda:0") && cast_has("hip:0"))
		cast_play(&(struct cast){.device = {"cuda:0", "hip:0"},
					 .run = second},
			  2);
}
END_TEST

/* Another thread holds a stream again and again meanwhile, each time for longer
 * than the mocks wait for it. */
struct caller {
	struct job_rank me; /* of a communicator of its own */
	struct gadget *g;
	_Atomic bool stop;
};

static void *call_often(void *arg)
{
	struct caller *c = arg;
	/* Both ranks end after the same operation. */
	uint8_t *stop = gadget_alloc(c->g, 64), *said = gadget_host(c->g, 64);

	do {
		*said = atomic_load(&c->stop);
		gadget_copy(c->g, stop, said, 1);
		if (c->me.rank)
			job_sleep_ms(700);
		JOB_TRY(dicomm_allreduce(stop, stop, 1, DICOMM_UINT8,
					 DICOMM_MIN, c->me.comm, c->g->native));
		gadget_copy(c->g, said, stop, 1);
		gadget_wait(c->g);
		job_sleep_ms(2);
	} while (!*said);
	gadget_free(c->g, stop);
	gadget_host_free(c->g, said);
	return NULL;
}

static void begins_beside(struct job_rank *me, struct gadget *g)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct caller c = {.me = *me, .g = g};
	dicomm_comm_t again;
	pthread_t thread;

	config.device = g->name;
	JOB_CHECK(!pthread_create(&thread, NULL, call_often, &c), "a thread");
	for (int i = 0; i < 3; i++) {
		JOB_TRY(dicomm_comm_init_rank_config(
			&again, me->ranks, job_id(), me->rank, &config));
		job_barrier();
		JOB_TRY(dicomm_comm_destroy(again));
	}
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
}

START_TEST(no_stream_becomes_held_while_a_communicator_begins)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = begins_beside},
			  2);
}
END_TEST

/* What is sent to ranks that are not yet there keeps up no collective, nor what
 * else is sent: they may wait for that first. Rank 0 sends much to all of the
 * others, which receive it last; first comes what it sends to the last one. */
static void waits_elsewhere(struct job_rank *me, struct gadget *g)
{
	enum { MUCH = 8 << 20 };
	uint8_t *at = gadget_alloc(g, MUCH), *small = gadget_alloc(g, 64);
	uint8_t *got = gadget_host(g, MUCH);
	int last = me->ranks - 1;

	memset(got, me->rank ? 0 : 7, MUCH);
	gadget_copy(g, at, got, MUCH);
	gadget_copy(g, small, got, 64);
	if (!me->rank) {
		JOB_TRY(dicomm_group_start());
		for (int r = 1; r < me->ranks; r++)
			JOB_TRY(dicomm_send(at, r < last ? MUCH : 1,
					    DICOMM_UINT8, r, me->comm,
					    g->native));
		JOB_TRY(dicomm_allreduce(small, small, 1, DICOMM_UINT8,
					 DICOMM_SUM, me->comm, g->native));
		JOB_TRY(dicomm_group_end());
	} else if (me->rank == last) {
		JOB_TRY(dicomm_recv(at, 1, DICOMM_UINT8, 0, me->comm,
				    g->native));
		JOB_TRY(dicomm_allreduce(small, small, 1, DICOMM_UINT8,
					 DICOMM_SUM, me->comm, g->native));
	} else {
		JOB_TRY(dicomm_allreduce(small, small, 1, DICOMM_UINT8,
					 DICOMM_SUM, me->comm, g->native));
		JOB_TRY(dicomm_recv(at, MUCH, DICOMM_UINT8, 0, me->comm,
				    g->native));
	}
	JOB_TRY(dicomm_comm_stream_synchronize(me->comm, g->native));
	gadget_copy(g, got, at, MUCH);
	gadget_wait(g);
	for (int i = 0; i < (me->rank == last ? 1 : MUCH); i++)
		JOB_CHECK(got[i] == 7, "byte %d is %d", i, got[i]);
	gadget_host_free(g, got);
	gadget_free(g, at);
	gadget_free(g, small);
}

START_TEST(what_is_not_received_keeps_up_nothing_else)
{
	setenv("DICOMM_TIMEOUT_MS", "8000", 1);
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = waits_elsewhere},
			  5);
}
END_TEST

/* Nor does a collective keep up what is sent to ranks that it waits for. */
static void waits_before(struct job_rank *me, struct gadget *g)
{
	enum { MUCH = 8 << 20 };
	int n = me->rank ? 1 : me->ranks;
	uint8_t *at = gadget_alloc(g, (size_t)n * MUCH);
	uint8_t *part = gadget_alloc(g, MUCH);
	uint8_t *small = gadget_alloc(g, 64), *got = gadget_host(g, MUCH);

	memset(got, me->rank ? 0 : 7, MUCH);
	for (int i = 0; i < n; i++)
		gadget_copy(g, at + (size_t)i * MUCH, got, MUCH);
	JOB_TRY(dicomm_group_start());
	if (me->rank == 1 || me->rank == 2) {
		JOB_TRY(dicomm_recv(small, 1, DICOMM_UINT8, 0, me->comm,
				    g->native));
		JOB_TRY(dicomm_group_end());
		JOB_TRY(dicomm_group_start());
	}
	JOB_TRY(dicomm_scatter(at, part, MUCH, DICOMM_UINT8, 0, me->comm,
			       g->native));
	for (int r = 1; r < 3 && !me->rank; r++)
		JOB_TRY(dicomm_send(at, 1, DICOMM_UINT8, r, me->comm,
				    g->native));
	JOB_TRY(dicomm_group_end());
	JOB_TRY(dicomm_comm_stream_synchronize(me->comm, g->native));
	gadget_copy(g, got, part, MUCH);
	gadget_wait(g);
	for (int i = 0; i < MUCH; i++)
		JOB_CHECK(got[i] == 7, "byte %d is %d", i, got[i]);
	gadget_host_free(g, got);
	gadget_free(g, at);
	gadget_free(g, part);
	gadget_free(g, small);
}

START_TEST(a_collective_keeps_up_no_single_message)
{
	setenv("DICOMM_TIMEOUT_MS", "8000", 1);
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = waits_before},
			  4);
}
END_TEST

/* Of a wire that was not opened it says why. */
static void check_reason(const struct transport *wire, const char *text)
{
	char why[160], wanted[256];

	if (wire->usable(why, sizeof(why)))
		return;
	snprintf(wanted, sizeof(wanted), "the memory of cuda:0 (%s: %s",
		 wire->name, why);
	JOB_CHECK(strstr(text, wanted), "no '%s' in %s", wanted, text);
}

/* What all ranks read of a communicator of four */
static void explained(struct job_rank *me, struct gadget *g)
{
	static const char *const lines[] = {
		("  rank 0 (cuda:0), rank 1 (hip:0): staged; not ipc: cuda and "
		 "hip do not map each other's memory; not mapped: neither is "
		 "the host; not rdma: no transport reaches the memory of "
		 "cuda:0"),
		"  rank 0 (cuda:0), rank 2 (cuda:0): ipc\n",
		("  rank 0 (cuda:0), rank 3 (host) and 1 like them: mapped, "
		 "the host copies or reduces what the device writes for it; "
		 "not ipc: the host does not map memory of cuda:0\n"),
		"  rank 1 (hip:0), rank 3 (host): mapped, ",
	};
	char text[4096];

	(void)g;
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1000, DICOMM_INT8,
				    text, sizeof(text)));
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		JOB_CHECK(strstr(text, lines[i]), "no '%s' in %s", lines[i],
			  text);
	check_reason(transport_find("verbs"), text);
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1000, DICOMM_INT8,
				    text, 40));
	JOB_CHECK(strlen(text) == 39, "%s", text);
}

START_TEST(each_way_is_explained)
{
	if (cast_has("cuda:0") && cast_has("hip:0"))
		cast_play(&(struct cast){.device = {"cuda:0", "hip:0", "cuda:0",
						    "host"},
					 .run = explained},
			  4);
}
END_TEST

static void never_needed(struct job_rank *me, struct gadget *g)
{
	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE,
				  .type = DICOMM_BFLOAT16,
				  .count = 100000,
				  .shared = true},
		   me, g);
	JOB_CHECK(cast_staged(me) == 0, "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

START_TEST(staging_never_takes_devices_that_share_memory)
{
	cast_play(&(struct cast){.device = {"host", "opencl:0", "host",
					    "opencl:0"},
				 .run = never_needed,
				 .staging = "never"},
		  4);
}
END_TEST

/* ---- what an aborted rank has sent ---- */

#define GIVEN_BYTES ((size_t)4 << 20)

struct user_buffer {
	dicomm_comm_t sender;
	uint8_t *pages;
};

static void send_given(struct user_buffer *given, dicomm_comm_t comm)
{
	dicomm_result_t status;

	given->sender = comm;
	given->pages = mmap(NULL, GIVEN_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	JOB_CHECK(given->pages != MAP_FAILED, "out of memory");
	memset(given->pages, 1, GIVEN_BYTES);
	job_barrier();
	status = dicomm_send(given->pages, GIVEN_BYTES, DICOMM_UINT8, 1, comm,
			     NULL);
	JOB_CHECK(status == DICOMM_ERR_ABORTED, "send: status %d", (int)status);
}

/* The device is late with all that the library queues, and the sender is gone
 * by then: whoever reads from it ends in a fault. */
static void receive_given(struct user_buffer *given, dicomm_comm_t comm)
{
	const struct device *dev = comm->dev;
	uint8_t *to = aligned_alloc(4096, GIVEN_BYTES);
	struct accel_stream_wait *stream_wait;

	JOB_CHECK(to, "out of memory");
	JOB_TRY(dev->work->stream_wait_create(dev->index, &stream_wait));
	JOB_TRY(dev->work->stream_wait_queue(stream_wait, dev->stream));
	job_barrier();
	JOB_TRY(dicomm_recv(to, GIVEN_BYTES, DICOMM_UINT8, 0, comm, NULL));
	job_sleep_ms(200);
	JOB_TRY(dicomm_comm_abort(given->sender));
	JOB_CHECK(mprotect(given->pages, GIVEN_BYTES, PROT_NONE) == 0, "%m");
	dev->work->stream_wait_release(stream_wait);
	dicomm_comm_stream_synchronize(comm, NULL);
	dev->work->stream_wait_destroy(stream_wait);
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(comm));
	free(to);
}

static void abort_what_is_read(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct user_buffer *given = job_board();
	dicomm_unique_id_t id = job_id();
	dicomm_comm_t comm;

	capture_nothing();
	config.device = me->rank ? "opencl:0" : "host";
	JOB_TRY(dicomm_comm_init_rank_config(&comm, 2, id, me->rank, &config));
	if (me->rank) {
		receive_given(given, comm);
		return;
	}
	send_given(given, comm);
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(comm));
	munmap(given->pages, GIVEN_BYTES);
}

START_TEST(no_device_reads_what_an_aborted_rank_had_sent)
{
	if (cast_has("opencl:0"))
		job_run(&(struct job){.run = abort_what_is_read,
				      .ranks = 2,
				      .threads = true,
				      .bare = true});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("device_streams");
	TCase *tcase = tcase_create("streams");

	some_device = cast_has("cuda:0") ? "cuda:0" : "opencl:0";
	if (!cast_has(some_device))
		return 77;
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, a_scalar_is_read_from_the_device);
	tcase_add_test(tcase, one_thread_holds_ranks_on_unlike_devices);
	tcase_add_test(tcase, operations_keep_the_order_of_their_stream);
	tcase_add_test(tcase, a_call_returns_at_once_and_waits_for_its_stream);
	tcase_add_test(tcase, calls_beyond_what_is_kept_wait);
	tcase_add_test(tcase, a_group_waits_for_all_its_streams);
	tcase_add_test(tcase, a_group_of_too_many_streams_is_refused);
	tcase_add_loop_test(tcase, an_abort_lets_the_stream_go_on, 0, 4);
	tcase_add_loop_test(tcase, an_abort_does_not_wait_for_streams_of_others,
			    0, 3);
	tcase_add_test(tcase, no_device_reads_what_an_aborted_rank_had_sent);
	tcase_add_test(tcase, groups_of_two_threads_cross_on_streams);
	tcase_add_loop_test(tcase, memory_is_allocated_while_streams_are_held,
			    0, 3);
	tcase_add_test(tcase, a_communicator_begins_while_streams_are_held);
	tcase_add_test(tcase,
		       no_stream_becomes_held_while_a_communicator_begins);
	tcase_add_test(tcase, what_is_not_received_keeps_up_nothing_else);
	tcase_add_test(tcase, a_collective_keeps_up_no_single_message);
	tcase_add_loop_test(
		tcase, streams_that_share_a_queue_end_by_the_time_out, 0, 2);
	/* One that is there does what it is told within 150 ms. */
	if (!gpu_is_wanted(some_device))
		tcase_add_test(tcase, a_device_that_is_late_is_named);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("refusals");
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, memory_and_streams_of_others_are_refused);
	tcase_add_loop_test(tcase,
			    memory_that_the_host_cannot_touch_is_refused_there,
			    0, 6);
	tcase_add_test(tcase, a_call_that_nothing_serves_is_an_error);
	tcase_add_test(tcase, each_way_is_explained);
	tcase_add_loop_test(tcase, staging_never_refuses_unlike_devices_by_name,
			    0, 3);
	tcase_add_test(tcase, staging_never_takes_devices_that_share_memory);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
