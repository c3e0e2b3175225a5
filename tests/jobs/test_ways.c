/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind of traffic takes the way that src/message/README.md says: in the
 * line of a slot, in one slot, in several, as a reference that is mapped or
 * read, or through a bounce buffer. The counters tell which one it was. What
 * devices send is in test_devices.c. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define MOST 1200000
#define TAG 7
#define MINE 3  /* what rank 0 adds to a sum */
#define TIMES 3 /* the first connects: its receiver says what it can reach */
#define SLOT_BYTES 32768
#define BOUNCE_BYTES (16u * SLOT_BYTES) /* of all bounce buffers */

/* Rank 1 has the bytes, rank 0 gets them. */
enum kind { BROADCAST, REDUCE, SEND, GROUP, ANY, TAGGED, PUT, GET, KINDS };
static const char *const kind_names[KINDS] = {
	"broadcast",       "reduce",           "send",
	"send in a group", "receive of any",   "send with a tag",
	"put in a window", "get from a window"};

enum counter { RING, MAPPED, CMA };

static const struct way {
	const char *name;
	size_t bytes;
	bool shared; /* memory that neighbours map */
	/* A reduction reads it to a bounce buffer. */
	bool bounces;
	enum counter counter;
	const char *env[4];
} ways[] = {
	{"in the line of a slot", 64, .counter = RING},
	{"in one slot", 2000, .counter = RING},
	{"in slices", MOST, .counter = RING,
	 .env = {"DICOMM_SHM_MAP_THRESHOLD=1G"}},
	{"in the line of a slot, over tcp", 64, .counter = RING,
	 .env = {"DICOMM_TRANSPORTS=tcp"}},
	{"in slices, over tcp", MOST, .counter = RING,
	 .env = {"DICOMM_TRANSPORTS=tcp"}},
	{"a reference that is mapped", MOST, .shared = true, .counter = MAPPED,
	 .env = {"DICOMM_SHM_CMA=off"}},
	{"a reference that is read", MOST, .bounces = true, .counter = CMA,
	 .env = {"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA_THRESHOLD=1",
		 "DICOMM_SHM_SLOT_BYTES=32768"}},
};

struct buffers {
	uint8_t *mine, *theirs; /* to send; to receive */
	dicomm_window_t window; /* of what rank 0 receives, rank 1 sends */
};

static void *alloc(const struct way *w)
{
	void *p = NULL;

	if (w->shared)
		JOB_TRY(dicomm_mem_alloc(&p, MOST));
	else
		p = malloc(MOST);
	JOB_CHECK(p, "out of memory");
	return p;
}

static void release(const struct way *w, void *p)
{
	if (w->shared)
		JOB_TRY(dicomm_mem_free(p));
	else
		free(p);
}

static void send(const struct job_rank *me, const struct buffers *b, size_t n,
		 int tag)
{
	JOB_TRY(dicomm_send_tag(b->mine, n, DICOMM_UINT8, 0, tag, me->comm,
				NULL));
}

static void receive(const struct job_rank *me, const struct buffers *b,
		    size_t n, int source, int tag)
{
	JOB_TRY(dicomm_recv_tag(b->theirs, n, DICOMM_UINT8, source, tag,
				me->comm, NULL, NULL));
}

static void wait_for(const struct job_rank *me, int peer)
{
	dicomm_wait_signal_desc_t d = {1, peer, 0, 0};

	JOB_TRY(dicomm_wait_signal(1, &d, me->comm, NULL));
}

static void one_sided(const struct job_rank *me, const struct buffers *b,
		      enum kind kind, size_t n)
{
	if (kind == PUT && me->rank)
		JOB_TRY(dicomm_put_signal(b->mine, n, DICOMM_UINT8, 0,
					  b->window, 0, 0, 0, 0, me->comm,
					  NULL));
	else if (kind == PUT)
		wait_for(me, 1);
	else if (!me->rank)
		JOB_TRY(dicomm_get(b->theirs, n, DICOMM_UINT8, 1, b->window, 0,
				   me->comm, NULL));
}

static void move(const struct job_rank *me, const struct buffers *b,
		 enum kind kind, size_t n)
{
	switch (kind) {
	case BROADCAST:
		JOB_TRY(dicomm_broadcast(b->mine, b->theirs, n, DICOMM_UINT8, 1,
					 me->comm, NULL));
		break;
	case REDUCE:
		JOB_TRY(dicomm_reduce(b->mine, b->theirs, n, DICOMM_UINT8,
				      DICOMM_SUM, 0, me->comm, NULL));
		break;
	case GROUP:
		JOB_TRY(dicomm_group_start());
		if (me->rank)
			send(me, b, n, 0);
		else
			receive(me, b, n, 1, 0);
		JOB_TRY(dicomm_group_end());
		break;
	case SEND:
	case ANY:
	case TAGGED:
		if (me->rank)
			send(me, b, n, kind == TAGGED ? TAG : 0);
		else
			receive(me, b, n, kind == ANY ? DICOMM_ANY_SOURCE : 1,
				kind == TAGGED ? TAG : 0);
		break;
	default:
		one_sided(me, b, kind, n);
	}
}

static dicomm_stats_t stats_of(const struct job_rank *me)
{
	dicomm_stats_t s = {.size = sizeof(s)};

	JOB_TRY(dicomm_comm_stats(me->comm, &s));
	return s;
}

static void check_way(const struct way *w, enum kind kind,
		      const dicomm_stats_t *a, const dicomm_stats_t *b)
{
	uint64_t bytes = b->bytes_received - a->bytes_received;
	uint64_t by[] = {b->bytes_ring - a->bytes_ring,
			 b->bytes_mapped - a->bytes_mapped,
			 b->bytes_cma - a->bytes_cma};

	JOB_CHECK(bytes == w->bytes, "%s, %s: %d of %zu bytes were received",
		  kind_names[kind], w->name, (int)bytes, w->bytes);
	JOB_CHECK(by[w->counter] == bytes,
		  "%s, %s: %d bytes by slots, %d mapped, %d read",
		  kind_names[kind], w->name, (int)by[RING], (int)by[MAPPED],
		  (int)by[CMA]);
}

static uint8_t pattern(unsigned seed, size_t k)
{
	return (uint8_t)(seed * 31 + k * 7 + (k >> 9));
}

static void try_kind(const struct job_rank *me, const struct way *w,
		     const struct buffers *b, enum kind kind)
{
	for (unsigned i = 0; i < TIMES; i++) {
		unsigned seed = kind * TIMES + i;
		dicomm_stats_t before, after;

		for (size_t k = 0; k < w->bytes; k++)
			b->mine[k] = me->rank ? pattern(seed, k) : MINE;
		memset(b->theirs, 0, w->bytes);
		/* The thread that serves windows sees what was written before
		 * a call, and this one after a call what that thread wrote. */
		JOB_TRY(dicomm_barrier(me->comm, NULL));
		before = stats_of(me);
		job_barrier();
		move(me, b, kind, w->bytes);
		after = stats_of(me);
		if (!me->rank) {
			if (i)
				check_way(w, kind, &before, &after);
			for (size_t k = 0; k < w->bytes; k++) {
				int is = (uint8_t)(pattern(seed, k) +
						   (kind == REDUCE ? MINE : 0));

				JOB_CHECK(b->theirs[k] == is,
					  "%s, %s: byte %zu is %d, not %d",
					  kind_names[kind], w->name, k,
					  b->theirs[k], is);
			}
		}
		JOB_TRY(dicomm_barrier(me->comm, NULL));
	}
}

static void all_kinds(struct job_rank *me)
{
	const struct way *w = me->arg;
	struct buffers b = {alloc(w), alloc(w), NULL};
	uint64_t held;

	JOB_TRY(dicomm_comm_window_register(me->comm,
					    me->rank ? b.mine : b.theirs, MOST,
					    &b.window, DICOMM_WINDOW_DEFAULT));
	/* Reduce last: the bounce buffers are made when one is needed. */
	for (int kind = 0; kind < KINDS; kind++)
		if (kind != REDUCE)
			try_kind(me, w, &b, (enum kind)kind);
	held = stats_of(me).memory_bytes;
	try_kind(me, w, &b, REDUCE);
	held = stats_of(me).memory_bytes - held;
	JOB_CHECK((held >= BOUNCE_BYTES) == (w->bounces && !me->rank),
		  "reduce, %s: holds %d bytes more", w->name, (int)held);
	JOB_TRY(dicomm_comm_window_deregister(me->comm, b.window));
	release(w, b.mine);
	release(w, b.theirs);
}

START_TEST(all_traffic_takes_the_same_way)
{
	struct job job = {.run = all_kinds,
			  .arg = &ways[_i],
			  .ranks = 2,
			  .timeout_s = 40};

	memcpy(job.env, ways[_i].env, sizeof(ways[_i].env));
	job_run(&job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ways");
	TCase *tcase = tcase_create("ways");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, all_traffic_takes_the_same_way, 0,
			    sizeof(ways) / sizeof(*ways));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
