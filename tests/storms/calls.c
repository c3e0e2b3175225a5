/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/storm.h"

#define GUARD 64
#define BLANK 0xC3
#define SIGNAL 3
#define TAG 1000 /* the first one */
#define MESSAGES 4
#define THREADS 3
#define TURNS 3

/* One call, as all ranks draw it. */
struct call {
	const struct job_rank *me;
	unsigned seed;
	size_t len;
	dicomm_stream_t stream; /* NULL: blocking */
};

static int beside(const struct job_rank *me, int step)
{
	return (me->rank + step + me->ranks) % me->ranks;
}

static void keep(dicomm_result_t *first, dicomm_result_t status)
{
	if (*first == DICOMM_SUCCESS)
		*first = status;
}

static void finish(dicomm_result_t *first, dicomm_stream_t stream)
{
	if (stream)
		keep(first, dicomm_host_stream_synchronize(stream));
}

/* ---- bytes of a rank ---- */

static uint8_t byte_of(unsigned seed, int rank, size_t i)
{
	return (uint8_t)(seed * 31 + (unsigned)rank * 7 + i * 13 + (i >> 8));
}

static uint8_t *blank(size_t len)
{
	uint8_t *at = malloc(len + GUARD);

	JOB_CHECK(at, "no memory for %zu bytes", len);
	memset(at, BLANK, len + GUARD);
	return at;
}

static uint8_t *filled(size_t len, unsigned seed, int rank)
{
	uint8_t *at = blank(len);

	for (size_t i = 0; i < len; i++)
		at[i] = byte_of(seed, rank, i);
	return at;
}

/* It has the bytes of that rank, and nothing behind them is touched. */
static void check(const uint8_t *at, size_t len, unsigned seed, int rank,
		  const char *what)
{
	for (size_t i = 0; i < len + GUARD; i++) {
		uint8_t want = i < len ? byte_of(seed, rank, i) : BLANK;

		JOB_CHECK(at[i] == want,
			  "%s, %zu bytes of rank %d, seed %u: receive buffer, "
			  "byte %zu: %02x instead of %02x",
			  what, len, rank, seed, i, at[i], want);
	}
}

/* ---- one-sided ---- */

/* To each rank into the place of this one there, with a signal. */
static dicomm_result_t put_to_all(const struct call *c, const uint8_t *mine,
				  dicomm_window_t win)
{
	size_t place = (c->len + GUARD) * (size_t)c->me->rank;
	dicomm_result_t first = DICOMM_SUCCESS;

	for (int i = 0; i < c->me->ranks; i++)
		keep(&first,
		     dicomm_put_signal(mine, c->len, DICOMM_UINT8,
				       beside(c->me, i), win, place, SIGNAL, 0,
				       0, c->me->comm, c->stream));
	return first;
}

static dicomm_result_t wait_for_all(const struct call *c)
{
	dicomm_wait_signal_desc_t from[c->me->ranks];

	for (int r = 0; r < c->me->ranks; r++)
		from[r] = (dicomm_wait_signal_desc_t){
			.count = 1, .peer = r, .signal = SIGNAL};
	return dicomm_wait_signal(c->me->ranks, from, c->me->comm, c->stream);
}

/* What this rank has put into the window of the next one, it reads there. */
static dicomm_result_t exchange(const struct call *c, const uint8_t *mine,
				uint8_t *back, dicomm_window_t win)
{
	size_t place = (c->len + GUARD) * (size_t)c->me->rank;
	dicomm_result_t first = put_to_all(c, mine, win);

	if (first == DICOMM_SUCCESS)
		first = dicomm_get(back, c->len, DICOMM_UINT8, beside(c->me, 1),
				   win, place, c->me->comm, c->stream);
	if (first == DICOMM_SUCCESS)
		first = wait_for_all(c);
	finish(&first, c->stream);
	return first;
}

static dicomm_result_t use_window(const struct call *c)
{
	const struct job_rank *me = c->me;
	size_t step = c->len + GUARD;
	uint8_t *mine = filled(c->len, c->seed, me->rank);
	uint8_t *back = blank(c->len);
	uint8_t *memory = blank(step * (size_t)me->ranks);
	dicomm_window_t win = NULL;
	dicomm_result_t status, end = DICOMM_SUCCESS;

	status = dicomm_comm_window_register(me->comm, memory,
					     step * (size_t)me->ranks, &win, 0);
	if (status == DICOMM_SUCCESS)
		status = exchange(c, mine, back, win);
	if (status == DICOMM_SUCCESS) {
		check(back, c->len, c->seed, me->rank, "get");
		for (int r = 0; r < me->ranks; r++)
			check(memory + step * (size_t)r, c->len, c->seed, r,
			      "put");
	}
	if (win)
		end = dicomm_comm_window_deregister(me->comm, win);
	keep(&status, end);
	free(mine);
	free(back);
	free(memory);
	return status;
}

/* ---- tagged messages ---- */

/* Sent in the order of their tags, received in the opposite one; every other
 * receive takes it from any source, and only one rank has sent that tag. */
static dicomm_result_t exchange_tags(const struct call *c, uint8_t **out,
				     uint8_t **in, dicomm_status_t *from)
{
	const struct job_rank *me = c->me;
	dicomm_result_t first = DICOMM_SUCCESS;

	JOB_TRY(dicomm_group_start());
	for (int i = 0; i < MESSAGES; i++)
		keep(&first, dicomm_send_tag(out[i], c->len >> i, DICOMM_UINT8,
					     beside(me, 1), TAG + i, me->comm,
					     c->stream));
	for (int i = MESSAGES; i--;)
		keep(&first,
		     dicomm_recv_tag(in[i], c->len >> i, DICOMM_UINT8,
				     i % 2 ? DICOMM_ANY_SOURCE : beside(me, -1),
				     TAG + i, me->comm, c->stream, &from[i]));
	keep(&first, dicomm_group_end());
	finish(&first, c->stream);
	return first;
}

static dicomm_result_t use_tags(const struct call *c)
{
	const struct job_rank *me = c->me;
	uint8_t *out[MESSAGES], *in[MESSAGES];
	dicomm_status_t from[MESSAGES];
	dicomm_result_t status;

	for (int i = 0; i < MESSAGES; i++) {
		out[i] = filled(c->len >> i, c->seed + (unsigned)i, me->rank);
		in[i] = blank(c->len >> i);
	}
	status = exchange_tags(c, out, in, from);
	for (int i = 0; i < MESSAGES; i++) {
		if (status == DICOMM_SUCCESS) {
			check(in[i], c->len >> i, c->seed + (unsigned)i,
			      beside(me, -1), "message with a tag");
			JOB_CHECK(from[i].source == beside(me, -1) &&
					  from[i].tag == TAG + i,
				  "tag %d of rank %d came as tag %d of rank %d",
				  TAG + i, beside(me, -1), from[i].tag,
				  from[i].source);
		}
		free(out[i]);
		free(in[i]);
	}
	return status;
}

/* ---- redistribution: a sum with a term on each rank, into blocks ---- */

static int32_t term_of(const struct call *c, int rank, size_t i)
{
	return (int32_t)(c->seed % 1000 + (unsigned)rank * 5 + i);
}

static int32_t sum_at(const struct call *c, size_t i)
{
	int32_t sum = 0;

	for (int r = 0; r < c->me->ranks; r++)
		sum += term_of(c, r, i);
	return sum;
}

static void make_boxes(const struct call *c, const int64_t *count,
		       dicomm_placement_kind_t kind, dicomm_box_t *boxes)
{
	int ranks[c->me->ranks];
	dicomm_mesh_t mesh = {.dims = 1,
			      .extent = {c->me->ranks},
			      .ranks = ranks,
			      .placements = {{.kind = kind}}};

	/* Blocks fall to the ranks in falling order. */
	for (int r = 0; r < c->me->ranks; r++)
		ranks[r] = kind == DICOMM_PARTIAL ? r : c->me->ranks - 1 - r;
	JOB_TRY(dicomm_mesh_boxes(&mesh, 1, count, 0, boxes));
}

static dicomm_result_t move(const struct call *c, const dicomm_tensor_t *t,
			    const int32_t *from, int32_t *to)
{
	const void *source[] = {from};
	void *target[] = {to};
	dicomm_redistribute_t plan = NULL;
	dicomm_result_t status =
		dicomm_redistribute_plan(&plan, t, 1, NULL, c->me->comm);

	if (status == DICOMM_SUCCESS)
		status = dicomm_redistribute_run(plan, source, target,
						 c->stream);
	finish(&status, c->stream);
	JOB_TRY(dicomm_redistribute_free(plan));
	return status;
}

static void check_block(const struct call *c, const dicomm_box_t *box,
			const int32_t *got, size_t count)
{
	size_t n = (size_t)(box->hi[0] - box->lo[0]);

	for (size_t i = 0; i < count; i++) {
		int32_t want = i < n ? sum_at(c, (size_t)box->lo[0] + i) : -1;

		JOB_CHECK(got[i] == want,
			  "redistribution of %zu, seed %u: receive buffer, "
			  "byte %zu: %d instead of %d",
			  count, c->seed, i * 4, got[i], want);
	}
}

static dicomm_result_t redistribute(const struct call *c)
{
	int n = c->me->ranks;
	int64_t count = (int64_t)(c->len / 4) + n;
	dicomm_box_t source[n], target[n];
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	int32_t *from = malloc((size_t)count * 4);
	int32_t *to = malloc((size_t)count * 4);
	dicomm_result_t status;

	JOB_CHECK(from && to, "no memory for %d elements", (int)count);
	for (size_t i = 0; i < (size_t)count; i++) {
		from[i] = term_of(c, c->me->rank, i);
		to[i] = -1;
	}
	make_boxes(c, &count, DICOMM_PARTIAL, source);
	make_boxes(c, &count, DICOMM_SHARD, target);
	t.type = DICOMM_INT32;
	t.axes = 1;
	t.shape[0] = count;
	t.terms = n;
	t.source = source;
	t.target = target;
	t.sources = t.targets = (size_t)n;
	status = move(c, &t, from, to);
	if (status == DICOMM_SUCCESS)
		check_block(c, &target[n - 1 - c->me->rank], to, (size_t)count);
	free(from);
	free(to);
	return status;
}

/* ---- several threads ---- */

struct worker {
	const struct call *c;
	int number;
	dicomm_result_t status;
	pthread_t thread;
};

/* With the same thread of the ranks beside this one, by a tag of its own */
static dicomm_result_t take_turn(const struct worker *w, unsigned seed)
{
	const struct job_rank *me = w->c->me;
	size_t len = w->c->len >> w->number;
	uint8_t *out = filled(len, seed, me->rank), *in = blank(len);
	dicomm_result_t first = DICOMM_SUCCESS;

	JOB_TRY(dicomm_group_start());
	keep(&first,
	     dicomm_send_tag(out, len, DICOMM_UINT8, beside(me, 1),
			     TAG + MESSAGES + w->number, me->comm, NULL));
	keep(&first,
	     dicomm_recv_tag(in, len, DICOMM_UINT8, beside(me, -1),
			     TAG + MESSAGES + w->number, me->comm, NULL, NULL));
	keep(&first, dicomm_group_end());
	if (first == DICOMM_SUCCESS)
		check(in, len, seed, beside(me, -1), "message of a thread");
	free(out);
	free(in);
	return first;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < TURNS && w->status == DICOMM_SUCCESS; i++)
		w->status = take_turn(w, w->c->seed + i);
	return NULL;
}

static dicomm_result_t use_threads(const struct call *c)
{
	struct worker w[THREADS];
	dicomm_result_t first = DICOMM_SUCCESS;

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.c = c, .number = i};
		JOB_CHECK(!pthread_create(&w[i].thread, NULL, work, &w[i]),
			  "no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		keep(&first, w[i].status);
	}
	return first;
}

/* ---- the next one ---- */

dicomm_result_t calls_next(const struct job_rank *me, unsigned seed,
			   dicomm_stream_t stream)
{
	static const struct {
		const char *name;
		dicomm_result_t (*call)(const struct call *);
	} all[] = {{"puts, signals and gets", use_window},
		   {"tagged messages", use_tags},
		   {"redistribution", redistribute},
		   {"three threads", use_threads}};
	static const size_t lens[] = {8, 700, 4097, 40000, 300000};
	unsigned state = seed * 2246822519u + 5;
	unsigned which = storm_random(&state, sizeof(all) / sizeof(*all));
	struct call c = {.me = me, .seed = seed};

	c.len = lens[storm_random(&state, sizeof(lens) / sizeof(*lens))];
	if (storm_random(&state, 2))
		c.stream = stream;
	job_doing("%s of %zu bytes%s", all[which].name, c.len,
		  c.stream ? ", on a stream" : "");
	return all[which].call(&c);
}
