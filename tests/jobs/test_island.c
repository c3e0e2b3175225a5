/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Islands of a vendor's library. Our own libnccl.so.2 stands for that, as a
 * copy of the library of its own, and ranks of the host for ranks of devices;
 * DICOMM_HOSTID says which ranks are on one host.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/prompt.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/support/trial.h"

#define OWN ".libs/dicomm/compat/libnccl.so.2"
#define MOST 6
#define ROOM 4000

/* Which host each rank is on */
static const struct layout {
	const char *name;
	int ranks, host[MOST];
} layouts[] = {
	{"2 and 2", 4, {0, 0, 1, 1}},
	{"3 and 1", 4, {0, 0, 0, 1}},
	{"4 and 2", 6, {0, 0, 0, 0, 1, 1}},
	{"2 and 2, in turns", 4, {0, 1, 0, 1}},
	{"2, 1 and 3, mixed", 6, {2, 0, 1, 0, 2, 2}},
	{"2, 2 and 2", 6, {0, 0, 1, 1, 2, 2}},
	/* More shares than elements of short messages */
	{"2 and four alone", 6, {0, 0, 1, 2, 3, 4}},
};
static const struct layout one_host = {"3 alone", 3, {0, 0, 0}};
#define LAYOUTS (int)(sizeof(layouts) / sizeof(*layouts))

static void go_to_host(int host)
{
	char name[32];

	snprintf(name, sizeof(name), "host%d", host);
	setenv("DICOMM_HOSTID", name, 1);
	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
}

static void join(struct job_rank *me, const struct layout *l)
{
	go_to_host(l->host[me->rank]);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
}

static void explain(struct job_rank *me, const char *operation, size_t count,
		    dicomm_datatype_t type, const char *words)
{
	char text[8192];

	JOB_TRY(dicomm_comm_explain(me->comm, operation, count, type, text,
				    sizeof(text)));
	JOB_CHECK(strstr(text, words), "no \"%s\" in\n%s", words, text);
}

static uint64_t sent(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats.bytes_sent;
}

/* ---- results ---- */

struct attempt {
	struct job_rank *me;
	dicomm_datatype_t type;
	dicomm_redop_t op;
	size_t count, elem;
	bool in_place;
	uint8_t *send, *recv; /* of ROOM elements for each rank */
};

static void put(const struct attempt *t, uint8_t *at, int rank, size_t i)
{
	element_put(t->type, at, element_input(t->type, t->op, 5, rank, i));
}

static void put_all(const struct attempt *t, uint8_t *at, int rank,
		    size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(t, at + i * t->elem, rank, first + i);
}

static void check(const struct attempt *t, const uint8_t *at, size_t i,
		  size_t n, int of, const char *what)
{
	uint8_t want[16];

	for (size_t k = 0; k < n; k++) {
		if (of < 0)
			element_reduce(t->type, t->op, 5, t->me->ranks, i + k,
				       want, at + k * t->elem);
		else
			put(t, want, of, i + k);
		JOB_CHECK(!memcmp(want, at + k * t->elem, t->elem),
			  "%s of %zu %s, %s, %s: element %zu", what, t->count,
			  element_name(t->type), element_op_name(t->op),
			  t->in_place ? "in place" : "out of place", i + k);
	}
}

static void allreduce(const struct attempt *t)
{
	uint8_t *from = t->in_place ? t->recv : t->send;

	put_all(t, from, t->me->rank, 0, t->count);
	JOB_TRY(dicomm_allreduce(from, t->recv, t->count, t->type, t->op,
				 t->me->comm, NULL));
	check(t, t->recv, 0, t->count, -1, "all-reduce");
}

static void reduce(const struct attempt *t, int root)
{
	uint8_t *from = t->in_place && t->me->rank == root ? t->recv : t->send;

	put_all(t, from, t->me->rank, 0, t->count);
	JOB_TRY(dicomm_reduce(from, t->me->rank == root ? t->recv : NULL,
			      t->count, t->type, t->op, root, t->me->comm,
			      NULL));
	if (t->me->rank == root)
		check(t, t->recv, 0, t->count, -1, "reduce");
}

static void broadcast(const struct attempt *t, int root)
{
	uint8_t *from = t->in_place ? t->recv : t->send;

	memset(t->recv, 1, t->count * t->elem);
	if (t->me->rank == root)
		put_all(t, from, root, 0, t->count);
	JOB_TRY(dicomm_broadcast(t->me->rank == root ? from : NULL, t->recv,
				 t->count, t->type, root, t->me->comm, NULL));
	check(t, t->recv, 0, t->count, root, "broadcast");
}

static void allgather(const struct attempt *t)
{
	size_t block = t->count * t->elem;
	uint8_t *from =
		t->in_place ? t->recv + (size_t)t->me->rank * block : t->send;

	put_all(t, from, t->me->rank, 0, t->count);
	JOB_TRY(dicomm_allgather(from, t->recv, t->count, t->type, t->me->comm,
				 NULL));
	for (int r = 0; r < t->me->ranks; r++)
		check(t, t->recv + (size_t)r * block, 0, t->count, r,
		      "all-gather");
}

static void reduce_scatter(const struct attempt *t)
{
	size_t block = t->count * t->elem, first;
	uint8_t *to =
		t->in_place ? t->send + (size_t)t->me->rank * block : t->recv;

	first = (size_t)t->me->rank * t->count;
	put_all(t, t->send, t->me->rank, 0, t->count * (size_t)t->me->ranks);
	JOB_TRY(dicomm_reduce_scatter(t->send, to, t->count, t->type, t->op,
				      t->me->comm, NULL));
	check(t, to, first, t->count, -1, "reduce-scatter");
}

/* Another count, root and place each time */
static void all_of(struct attempt *t, int nth)
{
	static const size_t counts[5] = {1, 4, 7, 600, 1201};
	int root;

	t->elem = element_bytes(t->type);
	t->count = counts[nth % 5];
	t->in_place = nth % 2;
	root = nth % t->me->ranks;
	job_doing("%zu %s, %s", t->count, element_name(t->type),
		  element_op_name(t->op));
	allreduce(t);
	reduce(t, root);
	broadcast(t, root);
	t->count /= 2;
	allgather(t);
	reduce_scatter(t);
}

/* Out of place, in place, and on some ranks so */
static void all_to_all(struct job_rank *me)
{
	static const size_t counts[] = {1, 9, 300, 1001};
	static const dicomm_datatype_t types[] = {
		DICOMM_INT8, DICOMM_FLOAT8E4M3, DICOMM_FLOAT64};
	struct trial t = {.op = DICOMM_SUM};

	for (int i = 0; i < 12; i++) {
		t.count = counts[i % 4];
		t.type = types[i % 3];
		t.seed++;
		t.kind = TRIAL_ALLTOALLV;
		trial_run(t, me);
		t.kind = TRIAL_ALLTOALL;
		for (int p = 0; p < TRIAL_PLACES; p++) {
			trial_place(&t, me, (enum trial_placement)p);
			trial_run(t, me);
		}
	}
}

static uint32_t pair_value(int from, int to, size_t i)
{
	return (uint32_t)(from * 100 + to) << 16 | (uint32_t)i;
}

/* In place, each pair of ranks swaps as much; no block is where the order of
 * ranks has it. */
static void swap_in_place(struct job_rank *me)
{
	int n = me->ranks, r = me->rank;
	size_t counts[MOST], displs[MOST], end = 3;
	uint32_t *data;

	for (int q = n; q--;) {
		counts[q] = (size_t)((q + r) * 7 % 5) * 301;
		displs[q] = end;
		end += counts[q];
	}
	data = calloc(end, sizeof(*data));
	JOB_CHECK(data, "out of memory");
	for (int q = 0; q < n; q++)
		for (size_t i = 0; i < counts[q]; i++)
			data[displs[q] + i] = pair_value(r, q, i);
	JOB_TRY(dicomm_alltoallv(data, counts, displs, data, counts, displs,
				 DICOMM_UINT32, me->comm, NULL));
	for (int q = 0; q < n; q++)
		for (size_t i = 0; i < counts[q]; i++)
			JOB_CHECK(data[displs[q] + i] == pair_value(q, r, i),
				  "from rank %d: element %zu is %x", q, i,
				  data[displs[q] + i]);
	free(data);
}

static void results(struct job_rank *me)
{
	int nth = 0;
	struct attempt t = {
		.me = me, .send = calloc(ROOM, 8), .recv = calloc(ROOM, 8)};

	JOB_CHECK(t.send && t.recv, "out of memory");
	join(me, me->arg);
	explain(me, "allreduce", 600, DICOMM_FLOAT32, "vendor islands: ");
	for (int y = 0; y < element_ntypes; y++)
		for (int o = 0; o < element_nops; o++) {
			t.type = element_types[y];
			t.op = element_ops[o];
			if (element_op_fits(t.op, t.type))
				all_of(&t, nth++);
		}
	all_to_all(me);
	swap_in_place(me);
	free(t.send);
	free(t.recv);
}

#define ISLANDS                                        \
	"DICOMM_ISLAND=auto", "DICOMM_ISLAND_BYTES=0", \
		"DICOMM_ISLAND_LIBRARY=own:" OWN

/* Tests run with all layouts in whole calls, then with all in parts. */
static const char *parts_of(int i, int layouts_used)
{
	return i < layouts_used ? "DICOMM_ISLAND_PART_BYTES=0"
				: "DICOMM_ISLAND_PART_BYTES=1000";
}

static void run_on_layout(void (*run)(struct job_rank *me), int i)
{
	const struct layout *l = &layouts[i % LAYOUTS];

	job_run(&(struct job){.run = run,
			      .arg = (void *)(uintptr_t)l,
			      .ranks = l->ranks,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {ISLANDS, parts_of(i, LAYOUTS)}});
}

START_TEST(results_are_those_of_the_definition)
{
	run_on_layout(results, _i);
}
END_TEST

/* One island: nothing is left to do between islands, but to divide. */
START_TEST(one_island_is_enough)
{
	job_run(&(struct job){.run = results,
			      .arg = &one_host,
			      .ranks = one_host.ranks,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {ISLANDS}});
}
END_TEST

/* Algorithms that fold blocks of all ranks count those of their group. */
START_TEST(owners_fold_in_their_order)
{
	const struct layout *l = &layouts[_i ? 3 : 0];

	job_run(&(struct job){.run = results,
			      .arg = (void *)(uintptr_t)l,
			      .ranks = l->ranks,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {ISLANDS, "DICOMM_ALGO=allreduce:ordered;"
					       "reduce_scatter:ordered"}});
}
END_TEST

/* ---- groups and streams ---- */

/* By islands and not, collectives and messages, by turns */
static const struct {
	enum trial_kind kind;
	size_t count;
} grouped[] = {
	{TRIAL_GATHER, 40},      {TRIAL_ALLREDUCE, 900},
	{TRIAL_SENDRECV, 9000},  {TRIAL_ALLGATHER, 1},
	{TRIAL_ALLTOALL, 300},   {TRIAL_REDUCE_SCATTER, 301},
	{TRIAL_SENDRECV, 20000}, {TRIAL_BROADCAST, 777},
	{TRIAL_BARRIER, 0},      {TRIAL_ALLTOALLV, 200},
	{TRIAL_ALLREDUCE, 1200}, {TRIAL_ALLGATHER, 400},
	{TRIAL_REDUCE, 500},     {TRIAL_REDUCE_LOCAL, 60},
};
#define GROUPED (sizeof(grouped) / sizeof(*grouped))

static void fill_group(struct job_rank *me, struct trial *t,
		       const struct gadget *g, unsigned seed)
{
	for (size_t i = 0; i < GROUPED; i++) {
		t[i] = (struct trial){.kind = grouped[i].kind,
				      .type = DICOMM_FLOAT32,
				      .op = DICOMM_SUM,
				      .count = grouped[i].count,
				      .root = (int)i % me->ranks,
				      .seed = seed + (unsigned)i,
				      .in_place = i % 4 == 1,
				      .gadget = g};
		trial_fill(&t[i], me);
	}
}

static void check_group(struct trial *t)
{
	for (size_t i = 0; i < GROUPED; i++) {
		trial_check(&t[i]);
		trial_free(&t[i]);
	}
}

/* On one stream, or on two by turns; in a group, or one call after the other */
static void call_group(struct job_rank *me, const struct gadget *g,
		       const dicomm_stream_t *streams, unsigned seed,
		       bool group)
{
	struct trial t[GROUPED];

	fill_group(me, t, g, seed);
	job_barrier();
	if (group)
		JOB_TRY(dicomm_group_start());
	for (size_t i = 0; i < GROUPED; i++)
		JOB_TRY(trial_call(&t[i], streams[i % 2]));
	if (group)
		JOB_TRY(dicomm_group_end());
	for (int i = 0; i < 2 && !g; i++)
		if (streams[i])
			JOB_TRY(dicomm_host_stream_synchronize(streams[i]));
	check_group(t);
}

/* Each needs the result of the one before. */
static void in_call_order(struct job_rank *me)
{
	static int32_t one[900], sum[900], both[900], all[900];
	int n = me->ranks;

	for (int i = 0; i < 900; i++)
		one[i] = both[i] = 1;
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(one, sum, 900, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_TRY(dicomm_reduce_local(sum, both, 900, DICOMM_INT32, DICOMM_SUM,
				    me->comm, NULL));
	JOB_TRY(dicomm_allreduce(both, all, 900, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_TRY(dicomm_group_end());
	for (int i = 0; i < 900; i++)
		JOB_CHECK(all[i] == n * (n + 1), "element %d is %d", i, all[i]);
}

static void in_groups(struct job_rank *me)
{
	dicomm_stream_t a, b;

	join(me, me->arg);
	job_doing("a group in call order");
	in_call_order(me);
	JOB_TRY(dicomm_host_stream_create(&a));
	JOB_TRY(dicomm_host_stream_create(&b));
	job_doing("a group");
	call_group(me, NULL, (dicomm_stream_t[]){NULL, NULL}, 1, true);
	job_doing("a group on a stream");
	call_group(me, NULL, (dicomm_stream_t[]){a, a}, 20, true);
	job_doing("a group on two streams");
	call_group(me, NULL, (dicomm_stream_t[]){a, b}, 40, true);
	job_doing("a group on a stream and on none");
	call_group(me, NULL, (dicomm_stream_t[]){a, NULL}, 60, true);
	job_doing("a group on some ranks");
	call_group(me, NULL, (dicomm_stream_t[]){NULL, NULL}, 80,
		   me->rank % 3 != 1);
	JOB_TRY(dicomm_host_stream_destroy(a));
	JOB_TRY(dicomm_host_stream_destroy(b));
}

START_TEST(groups_and_streams_go_by_islands)
{
	run_on_layout(in_groups, _i);
}
END_TEST

/* A thread may have all ranks of an island, if it calls for them in groups. */
#define SEATS 2

static void several_in_a_thread(struct job_rank *me)
{
	struct trial t[SEATS][GROUPED];
	struct job_rank seat[SEATS];
	dicomm_unique_id_t id = job_id();

	go_to_host(me->rank);
	JOB_TRY(dicomm_group_start());
	for (int s = 0; s < SEATS; s++) {
		seat[s] = *me;
		seat[s].ranks = SEATS * me->ranks;
		seat[s].rank = SEATS * me->rank + s;
		JOB_TRY(dicomm_comm_init_rank(&seat[s].comm, seat[s].ranks, id,
					      seat[s].rank));
	}
	JOB_TRY(dicomm_group_end());
	for (int s = 0; s < SEATS; s++)
		fill_group(&seat[s], t[s], NULL, 7);
	JOB_TRY(dicomm_group_start());
	for (int s = 0; s < SEATS; s++)
		for (size_t i = 0; i < GROUPED; i++)
			JOB_TRY(trial_call(&t[s][i], NULL));
	JOB_TRY(dicomm_group_end());
	for (int s = 0; s < SEATS; s++)
		check_group(t[s]);
	JOB_TRY(dicomm_group_start());
	for (int s = 0; s < SEATS; s++)
		JOB_TRY(dicomm_comm_destroy(seat[s].comm));
	JOB_TRY(dicomm_group_end());
}

START_TEST(a_thread_calls_for_several_ranks_in_a_group)
{
	job_run(&(struct job){.run = several_in_a_thread,
			      .ranks = 2,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {ISLANDS, parts_of(_i, 1)}});
}
END_TEST

/* ---- devices ---- */

#define AT_ONCE 3

/* Each call is of `grows` times as many elements as the one before. */
static void many_at_once(struct job_rank *me, const struct gadget *g,
			 struct trial first, size_t grows)
{
	struct trial t[AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++) {
		t[i] = first;
		t[i].seed += (unsigned)i;
		t[i].gadget = g;
		trial_fill(&t[i], me);
		first.count *= grows;
	}
	job_doing("%d times %s at once", AT_ONCE, trial_name(first.kind));
	job_barrier();
	for (int i = 0; i < AT_ONCE; i++)
		JOB_TRY(trial_call(&t[i], g->native));
	for (int i = 0; i < AT_ONCE; i++) {
		trial_check(&t[i]);
		trial_free(&t[i]);
	}
}

/* On the stream of a device nothing waits for the host: each call follows the
 * one before, and what was queued before and after. */
static void on_devices(struct job_rank *me)
{
	static const enum trial_kind kinds[] = {
		TRIAL_ALLREDUCE,      TRIAL_REDUCE,    TRIAL_BROADCAST,
		TRIAL_REDUCE_SCATTER, TRIAL_ALLGATHER, TRIAL_ALLTOALL,
		TRIAL_ALLTOALLV};
	struct gadget g;
	struct trial t = {.type = DICOMM_FLOAT32, .op = DICOMM_SUM};

	gadget_open(&g, "cuda:0");
	t.gadget = &g;
	join(me, me->arg);
	explain(me, "allreduce", 600, DICOMM_FLOAT32, "vendor islands: ");
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (t.count = 5; t.count < 5000; t.count *= 30) {
			t.kind = kinds[k];
			t.root = (int)k % me->ranks;
			t.seed++;
			job_doing("%s of %zu", trial_name(t.kind), t.count);
			trial_fill(&t, me);
			job_barrier();
			JOB_TRY(trial_call(&t, g.native));
			trial_check(&t);
			trial_free(&t);
		}
	/* In parts, the vendor's library makes more calls than can be under
	 * way. */
	many_at_once(me, &g,
		     (struct trial){.kind = TRIAL_ALLREDUCE,
				    .type = DICOMM_FLOAT32,
				    .op = DICOMM_SUM,
				    .count = 12000,
				    .seed = 77},
		     1);
	/* Sums need more memory while those of the call before are made. */
	many_at_once(me, &g,
		     (struct trial){.kind = TRIAL_REDUCE,
				    .type = DICOMM_FLOAT32,
				    .op = DICOMM_SUM,
				    .count = 2500,
				    .seed = 88},
		     4);
	many_at_once(me, &g,
		     (struct trial){.kind = TRIAL_ALLTOALL,
				    .type = DICOMM_FLOAT32,
				    .count = 300,
				    .in_place = true,
				    .seed = 99},
		     2);
	job_doing("a group on some ranks");
	call_group(me, &g, (dicomm_stream_t[]){g.native, g.native}, 120,
		   me->rank % 3 != 1);
	job_doing("a group");
	call_group(me, &g, (dicomm_stream_t[]){g.native, g.native}, 100, true);
	JOB_CHECK(!gadget_hangs(&g), "%d calls of the driver would have hung",
		  gadget_hangs(&g));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	gadget_close(&g);
}

START_TEST(ranks_of_mock_devices_follow_their_streams)
{
	static const int used[] = {0, 1, 4};
	const struct layout *l = &layouts[used[_i % 3]];
	char why[200];

	if (!gadget_exists("cuda:0", why, sizeof(why))) {
		fprintf(stderr, "no cuda:0: %s\n", why);
		return;
	}
	job_run(&(struct job){
		.run = on_devices,
		.arg = (void *)(uintptr_t)l,
		.ranks = l->ranks,
		.bare = true,
		.timeout_s = 60,
		.env = {ISLANDS, "DICOMM_DEVICE=cuda:0", parts_of(_i, 3)}});
}
END_TEST

/* ---- what crosses the boundary ---- */

/* Bytes of which each enters and leaves an island once, whatever its size */
#define CROSSING 480000

static void check_crossing(struct job_rank *me, const char *what,
			   uint64_t before, uint64_t want)
{
	_Atomic uint64_t *bytes = job_board();
	int host = ((const struct layout *)me->arg)->host[me->rank];

	atomic_fetch_add(&bytes[host], sent(me) - before);
	job_barrier();
	JOB_CHECK(bytes[host] == want,
		  "%s: %llu bytes leave the island of rank %d, not %llu", what,
		  (unsigned long long)bytes[host], me->rank,
		  (unsigned long long)want);
	job_barrier();
	atomic_store(&bytes[host], 0);
	job_barrier();
}

static size_t hosts_of(const struct layout *l)
{
	size_t last = 0;

	for (int r = 0; r < l->ranks; r++)
		if ((size_t)l->host[r] > last)
			last = (size_t)l->host[r];
	return last + 1;
}

/* From the island of the root, or to it, each byte passes once; the others pass
 * on what they got of it. */
static void crossing_rooted(struct job_rank *me, uint8_t *data)
{
	const struct layout *l = me->arg;
	size_t others = hosts_of(l) - 1;
	bool home = l->host[me->rank] == l->host[0];
	uint64_t before = sent(me);

	JOB_TRY(dicomm_broadcast(data, data, CROSSING, DICOMM_UINT8, 0,
				 me->comm, NULL));
	check_crossing(me, "a broadcast", before,
		       home ? CROSSING : CROSSING / others * (others - 1));
	before = sent(me);
	JOB_TRY(dicomm_reduce(data, data + CROSSING, CROSSING, DICOMM_UINT8,
			      DICOMM_SUM, 0, me->comm, NULL));
	check_crossing(me, "a reduce", before, home ? 0 : CROSSING);
}

/* Each of the calls does so, in a group or not, on a stream or on none. */
static void crossing(struct job_rank *me)
{
	uint8_t *data = calloc(3, CROSSING);
	size_t hosts = hosts_of(me->arg), want;
	uint64_t before;
	dicomm_stream_t stream;

	JOB_CHECK(data, "out of memory");
	join(me, me->arg);
	/* Each island has to get the rest of the sum, and what the others have
	 * of its share. */
	want = 2 * CROSSING / hosts * (hosts - 1);
	JOB_TRY(dicomm_host_stream_create(&stream));
	before = sent(me);
	JOB_TRY(dicomm_allreduce(data, data, CROSSING, DICOMM_UINT8, DICOMM_SUM,
				 me->comm, NULL));
	check_crossing(me, "a call", before, want);
	before = sent(me);
	JOB_TRY(dicomm_group_start());
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_allreduce(
			data + i * CROSSING, data + i * CROSSING, CROSSING,
			DICOMM_UINT8, DICOMM_SUM, me->comm, NULL));
	JOB_TRY(dicomm_group_end());
	check_crossing(me, "a group", before, 2 * want);
	before = sent(me);
	JOB_TRY(dicomm_allreduce(data, data, CROSSING, DICOMM_UINT8, DICOMM_AVG,
				 me->comm, stream));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	check_crossing(me, "a stream", before, want);
	JOB_TRY(dicomm_host_stream_destroy(stream));
	crossing_rooted(me, data);
	free(data);
}

/* Of an all-gather, the blocks of an island leave it for each other one; of a
 * reduce-scatter, the sums for the other ranks do. */
static void crossing_blocks(struct job_rank *me)
{
	const struct layout *l = me->arg;
	size_t block = CROSSING / MOST, own = 0, others = hosts_of(l) - 1;
	uint8_t *data = calloc(2, CROSSING);
	uint64_t before;

	JOB_CHECK(data, "out of memory");
	join(me, l);
	for (int r = 0; r < l->ranks; r++)
		own += l->host[r] == l->host[me->rank];
	before = sent(me);
	JOB_TRY(dicomm_allgather(data, data + CROSSING, block, DICOMM_UINT8,
				 me->comm, NULL));
	check_crossing(me, "an all-gather", before, own * block * others);
	before = sent(me);
	JOB_TRY(dicomm_reduce_scatter(data, data + CROSSING, block,
				      DICOMM_UINT8, DICOMM_AVG, me->comm,
				      NULL));
	check_crossing(me, "a reduce-scatter", before,
		       ((size_t)l->ranks - own) * block);
	free(data);
}

START_TEST(a_byte_crosses_the_boundary_once)
{
	job_run(&(struct job){.run = crossing,
			      .arg = &layouts[_i % 5],
			      .ranks = layouts[_i % 5].ranks,
			      .bare = true,
			      .env = {ISLANDS, parts_of(_i, 5)}});
}
END_TEST

START_TEST(a_block_crosses_the_boundary_once)
{
	job_run(&(struct job){.run = crossing_blocks,
			      .arg = &layouts[_i % 5],
			      .ranks = layouts[_i % 5].ranks,
			      .bare = true,
			      .env = {ISLANDS, parts_of(_i, 5)}});
}
END_TEST

/* Blocks of ranks of an island do not leave it, if they are long enough. */
#define SHORT_BLOCK 100
#define LONG_BLOCK 4000

static bool are_neighbours(const struct layout *l, int a, int b)
{
	return a != b && l->host[a] == l->host[b];
}

static void by_length(struct job_rank *me)
{
	const struct layout *l = me->arg;
	size_t counts[MOST], displs[MOST], all = 0;
	uint8_t *data = calloc(2 * MOST, LONG_BLOCK);
	uint64_t before, ours = 0;

	JOB_CHECK(data, "out of memory");
	join(me, l);
	explain(me, "alltoallv", LONG_BLOCK, DICOMM_UINT8,
		"blocks of less than 2000 bytes by this library");
	explain(me, "alltoallv", SHORT_BLOCK, DICOMM_UINT8,
		"vendor islands: no: predicted");
	for (int r = 0; r < l->ranks; r++) {
		bool is_long = (r + me->rank) % 3;

		counts[r] = is_long ? LONG_BLOCK : SHORT_BLOCK;
		displs[r] = all;
		all += counts[r];
		if (r != me->rank &&
		    !(are_neighbours(l, r, me->rank) && is_long))
			ours += counts[r];
	}
	before = sent(me);
	JOB_TRY(dicomm_alltoallv(data, counts, displs, data + all, counts,
				 displs, DICOMM_UINT8, me->comm, NULL));
	JOB_CHECK(sent(me) - before == ours, "%llu bytes, not %llu",
		  (unsigned long long)(sent(me) - before),
		  (unsigned long long)ours);
	before = sent(me);
	JOB_TRY(dicomm_alltoall(data, data, LONG_BLOCK, DICOMM_UINT8, me->comm,
				NULL));
	ours = 0;
	for (int r = 0; r < l->ranks; r++)
		ours += l->host[r] == l->host[me->rank] ? 0 : LONG_BLOCK;
	JOB_CHECK(sent(me) - before == ours, "%llu bytes, not %llu",
		  (unsigned long long)(sent(me) - before),
		  (unsigned long long)ours);
	free(data);
}

START_TEST(blocks_inside_an_island_go_by_the_vendors_library)
{
	static const char *const bytes[] = {[4] = "DICOMM_ISLAND_BYTES=8000",
					    [6] = "DICOMM_ISLAND_BYTES=12000"};
	const struct layout *l = &layouts[_i];

	job_run(&(struct job){.run = by_length,
			      .arg = (void *)(uintptr_t)l,
			      .ranks = l->ranks,
			      .bare = true,
			      .env = {"DICOMM_ISLAND=auto", bytes[l->ranks],
				      "DICOMM_ISLAND_LIBRARY=own:" OWN}});
}
END_TEST

/* ---- what islands do not do ---- */

static void other_ways(struct job_rank *me)
{
	int n = me->ranks, one = 1, sum = 0, more[MOST] = {0};
	double scale = 2, two = 1, scaled = 0;
	dicomm_redop_t op;
	dicomm_stream_t stream;

	join(me, me->arg);
	explain(me, "gather", 100, DICOMM_INT32, "not for this collective");
	explain(me, "alltoall", 100, DICOMM_INT32, "vendor islands: 2");
	explain(me, "allreduce", 100, DICOMM_FLOAT8E4M3, "lacks the type");
	JOB_TRY(dicomm_redop_create_premulsum(&op, &scale, DICOMM_FLOAT64,
					      DICOMM_SCALAR_HOST_IMMEDIATE,
					      me->comm));
	JOB_TRY(dicomm_allreduce(&two, &scaled, 1, DICOMM_FLOAT64, op, me->comm,
				 NULL));
	JOB_CHECK(scaled == 2 * n, "%g", scaled);
	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, stream));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_CHECK(sum == n, "on a stream: %d", sum);
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32, DICOMM_MAX,
				 me->comm, NULL));
	JOB_TRY(dicomm_allgather(&me->rank, more, 1, DICOMM_INT32, me->comm,
				 NULL));
	JOB_TRY(dicomm_group_end());
	for (int r = 0; r < n; r++)
		JOB_CHECK(sum == 1 && more[r] == r, "in a group");
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

START_TEST(what_islands_lack_goes_our_way)
{
	job_run(&(struct job){.run = other_ways,
			      .arg = &layouts[1],
			      .ranks = layouts[1].ranks,
			      .bare = true,
			      .env = {ISLANDS}});
}
END_TEST

/* ---- which library ---- */

static void no_library(struct job_rank *me)
{
	go_to_host(me->rank / 2);
	JOB_REFUSED(
		dicomm_comm_init_rank(&me->comm, me->ranks, job_id(), me->rank),
		DICOMM_ERR_UNSUPPORTED, "DICOMM_ISLAND nccl: rank 0: ");
	JOB_CHECK(strstr(dicomm_get_last_error(NULL), (const char *)me->arg),
		  "no \"%s\" in \"%s\"", (const char *)me->arg,
		  dicomm_get_last_error(NULL));
}

START_TEST(nccl_without_a_library_is_an_error)
{
	job_run(&(struct job){
		.run = no_library,
		.arg = "/nowhere/libnccl.so.2: cannot open",
		.ranks = 4,
		.bare = true,
		.env = {"DICOMM_ISLAND=nccl", "DICOMM_DEBUG=none",
			"DICOMM_ISLAND_LIBRARY=own:/nowhere/libnccl.so.2"}});
	job_run(&(struct job){
		.run = no_library,
		.arg = "no vendor's library serves ranks of kind host",
		.ranks = 4,
		.bare = true,
		.env = {"DICOMM_ISLAND=nccl", "DICOMM_DEBUG=none",
			"DICOMM_ISLAND_LIBRARY=" OWN}});
}
END_TEST

static void without(struct job_rank *me)
{
	go_to_host(me->rank / 2);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	explain(me, "allreduce", 1 << 20, DICOMM_FLOAT32,
		"vendor islands: no: rank 0: ");
	job_check_sums(me->comm, me->ranks, me->rank);
}

START_TEST(auto_without_a_library_goes_on)
{
	job_run(&(struct job){
		.run = without,
		.ranks = 4,
		.bare = true,
		.env = {"DICOMM_ISLAND=auto",
			"DICOMM_ISLAND_LIBRARY=own:/nowhere/libnccl.so.2"}});
}
END_TEST

/* Measured and predicted, all ranks find the same. */
static void by_cost(struct job_rank *me)
{
	static float data[1 << 18];
	static const char *const of[] = {"allreduce", "alltoallv"};
	char text[8192], (*all)[64] = job_board();
	const char *line;

	join(me, me->arg);
	for (int i = 0; i < 2; i++) {
		JOB_TRY(dicomm_comm_explain(me->comm, of[i], 1 << 18,
					    DICOMM_FLOAT32, text,
					    sizeof(text)));
		line = strstr(text, "vendor islands: ");
		JOB_CHECK(line, "no line in\n%s", text);
		snprintf(all[me->rank], sizeof(*all), "%.18s", line);
		job_barrier();
		JOB_CHECK(!strcmp(all[me->rank], all[0]),
			  "%s: \"%s\", not \"%s\"", of[i], all[me->rank],
			  all[0]);
		job_barrier();
	}
	all_to_all(me);
	data[1] = 1;
	JOB_TRY(dicomm_allreduce(data, data, 1 << 18, DICOMM_FLOAT32,
				 DICOMM_SUM, me->comm, NULL));
	JOB_CHECK(data[1] == (float)me->ranks, "%g", (double)data[1]);
}

START_TEST(all_ranks_find_the_same_size)
{
	job_run(&(struct job){.run = by_cost,
			      .arg = &layouts[_i],
			      .ranks = layouts[_i].ranks,
			      .bare = true,
			      .env = {"DICOMM_ISLAND=auto",
				      "DICOMM_ISLAND_LIBRARY=own:" OWN}});
}
END_TEST

static void by_config(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	char text[8192];

	go_to_host(me->rank / 2);
	config.island = "no";
	JOB_REFUSED(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
						 me->rank, &config),
		    DICOMM_ERR_INVALID_ARGUMENT, "config: island no");
	config.island = "off";
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1 << 20,
				    DICOMM_FLOAT32, text, sizeof(text)));
	JOB_CHECK(!strstr(text, "vendor islands"), "off, but\n%s", text);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	config.island = me->rank ? "auto" : "off";
	JOB_REFUSED(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
						 me->rank, &config),
		    DICOMM_ERR_INVALID_USAGE, "rank 0 has island off");
}

START_TEST(a_communicator_has_its_own_setting)
{
	job_run(&(struct job){.run = by_config,
			      .ranks = 2,
			      .bare = true,
			      .env = {ISLANDS, "DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- ends ---- */

#define DEATH_S 3.0

struct death {
	_Atomic int working;
	_Atomic bool killed;
	double at_s;
};

static dicomm_result_t sum_up(struct job_rank *me)
{
	static float data[1 << 16];

	return dicomm_allreduce(data, data, 1 << 16, DICOMM_FLOAT32, DICOMM_SUM,
				me->comm, NULL);
}

static dicomm_result_t exchange(struct job_rank *me)
{
	static float data[1 << 16];

	return dicomm_alltoall(data, data, (1 << 16) / (size_t)me->ranks,
			       DICOMM_FLOAT32, me->comm, NULL);
}

/* The victim stands still, then dies while the others wait for it, inside its
 * island and outside. */
static void die_in(struct job_rank *me,
		   dicomm_result_t (*call)(struct job_rank *))
{
	struct death *death = job_board();
	const int victim = 1;
	dicomm_result_t status = DICOMM_SUCCESS;
	dicomm_comm_t rest;
	char name[16];

	join(me, me->arg);
	snprintf(name, sizeof(name), "rank %d", victim);
	JOB_TRY(call(me));
	atomic_fetch_add(&death->working, 1);
	if (me->rank == victim) {
		while (atomic_load(&death->working) < me->ranks)
			job_sleep_ms(1);
		job_sleep_ms(100);
		death->at_s = job_seconds();
		atomic_store(&death->killed, true);
		raise(SIGKILL);
	}
	while (status == DICOMM_SUCCESS)
		status = call(me);
	JOB_CHECK(atomic_load(&death->killed), "%d before it was killed: %s",
		  (int)status, dicomm_get_last_error(me->comm));
	prompt_check("news of a death", job_seconds() - death->at_s, 0);
	JOB_CHECK(status == DICOMM_ERR_REMOTE, "%d: %s", (int)status,
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm), name),
		  "\"%s\" does not name %s", dicomm_get_last_error(me->comm),
		  name);
	JOB_TRY(dicomm_comm_shrink(me->comm, NULL, 0, &rest, NULL));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = rest;
	explain(me, "allreduce", 600, DICOMM_FLOAT32, "vendor islands: 2");
	job_check_sums(rest, me->ranks - 1, me->rank - (me->rank > victim));
}

static void die(struct job_rank *me)
{
	die_in(me, sum_up);
}

static void die_in_all_to_all(struct job_rank *me)
{
	die_in(me, exchange);
}

START_TEST(a_death_is_named_and_shrink_makes_islands_anew)
{
	job_run(&(struct job){
		.run = _i < 8 ? die : die_in_all_to_all,
		.arg = &layouts[_i % 4],
		.ranks = layouts[_i % 4].ranks,
		.bare = true,
		.may_die = 1u << 1,
		.env = {ISLANDS, "DICOMM_DEBUG=none", parts_of(_i, 4)}});
}
END_TEST

/* Two communicators in one group; one of them is without the victim. It may
 * break, too, but then says why. */
static void die_beside(struct job_rank *me)
{
	static float a[1 << 16], b[1 << 16];
	struct death *death = job_board();
	const int victim = 2;
	dicomm_result_t status = DICOMM_SUCCESS, beside;
	dicomm_comm_t rest;

	join(me, me->arg);
	JOB_TRY(dicomm_comm_split(me->comm,
				  me->rank == victim ? DICOMM_SPLIT_NOCOLOR : 0,
				  me->rank, &rest, NULL));
	atomic_fetch_add(&death->working, 1);
	if (me->rank == victim) {
		while (atomic_load(&death->working) < me->ranks)
			job_sleep_ms(1);
		job_sleep_ms(100);
		raise(SIGKILL);
	}
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(a, a, 1 << 16, DICOMM_FLOAT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_TRY(dicomm_allreduce(b, b, 1 << 16, DICOMM_FLOAT32, DICOMM_SUM,
				 rest, NULL));
	status = dicomm_group_end();
	JOB_CHECK(status == DICOMM_ERR_REMOTE, "%d: %s", (int)status,
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 2 "),
		  "\"%s\" does not name the victim",
		  dicomm_get_last_error(me->comm));
	JOB_TRY(dicomm_comm_get_async_error(rest, &beside));
	JOB_CHECK(beside == DICOMM_SUCCESS ||
			  strstr(dicomm_get_last_error(rest), "died"),
		  "\"%s\" names no death", dicomm_get_last_error(rest));
	JOB_TRY(dicomm_comm_destroy(rest));
}

START_TEST(a_death_breaks_others_of_a_group_by_name)
{
	job_run(&(struct job){
		.run = die_beside,
		.arg = &layouts[1],
		.ranks = layouts[1].ranks,
		.bare = true,
		.may_die = 1u << 2,
		.env = {ISLANDS, "DICOMM_DEBUG=none", parts_of(_i, 1)}});
}
END_TEST

/* A rank that does not come waits in no call, and aborts. */
static void give_up(struct job_rank *me)
{
	static float data[1 << 16];
	_Atomic int *called = job_board();
	double begin;

	join(me, me->arg);
	if (!me->rank) {
		while (atomic_load(called) < me->ranks - 1)
			job_sleep_ms(1);
		job_sleep_ms(200);
		JOB_TRY(dicomm_comm_abort(me->comm));
	} else {
		atomic_fetch_add(called, 1);
		JOB_REFUSED(dicomm_allreduce(data, data, 1 << 16,
					     DICOMM_FLOAT32, DICOMM_SUM,
					     me->comm, NULL),
			    DICOMM_ERR_REMOTE, "rank 0 aborted");
	}
	begin = job_seconds();
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	JOB_CHECK(job_seconds() - begin < DEATH_S + starved_s(),
		  "destroy took %.1f s", job_seconds() - begin);
}

START_TEST(an_abort_ends_what_waits_in_an_island)
{
	job_run(&(struct job){
		.run = give_up,
		.arg = &layouts[_i % 3],
		.ranks = layouts[_i % 3].ranks,
		.bare = true,
		.env = {ISLANDS, "DICOMM_DEBUG=none", parts_of(_i, 3)}});
}
END_TEST

/* Two communicators in a group, which rank 0 does not call. Another thread of
 * rank 1 aborts one of them: that does not wait for the other, which nobody
 * would abort. */
static void abort_one(struct job_rank *me, int after_ms)
{
	_Atomic int *called = job_board();
	double begin;

	while (atomic_load(called) < me->ranks - 1)
		job_sleep_ms(1);
	job_sleep_ms(after_ms);
	begin = job_seconds();
	JOB_TRY(dicomm_comm_abort(me->comm));
	prompt_check("an abort", job_seconds() - begin, 0);
}

static void *abort_later(void *me)
{
	abort_one(me, 200);
	return NULL;
}

/* `first`: before the group has begun */
static void abort_in_group(struct job_rank *me, bool first)
{
	static float a[1 << 16], b[1 << 16];
	_Atomic int *called = job_board();
	dicomm_result_t status, beside;
	dicomm_comm_t other;
	pthread_t thread;

	join(me, me->arg);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	if (me->rank == 1 && !first)
		JOB_CHECK(!pthread_create(&thread, NULL, abort_later, me),
			  "no thread");
	if (me->rank) {
		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_allreduce(a, a, 1 << 16, DICOMM_FLOAT32,
					 DICOMM_SUM, me->comm, NULL));
		JOB_TRY(dicomm_allreduce(b, b, 1 << 16, DICOMM_FLOAT32,
					 DICOMM_SUM, other, NULL));
		atomic_fetch_add(called, 1);
		if (me->rank == 1 && first)
			abort_one(me, 0);
		status = dicomm_group_end();
		JOB_CHECK(status == DICOMM_ERR_ABORTED ||
				  status == DICOMM_ERR_REMOTE,
			  "%d: %s", (int)status, dicomm_get_last_error(NULL));
		JOB_TRY(dicomm_comm_get_async_error(other, &beside));
		JOB_CHECK(beside != DICOMM_SUCCESS &&
				  strstr(dicomm_get_last_error(other),
					 "rank 1 aborted"),
			  "%d: \"%s\" does not say who aborted", (int)beside,
			  dicomm_get_last_error(other));
	}
	if (me->rank == 1 && !first)
		pthread_join(thread, NULL);
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

static void abort_beside(struct job_rank *me)
{
	abort_in_group(me, false);
}

static void abort_before(struct job_rank *me)
{
	abort_in_group(me, true);
}

START_TEST(an_abort_does_not_wait_for_others_of_a_group)
{
	const struct layout *l = &layouts[_i % 2];

	job_run(&(struct job){
		.run = _i < 4 ? abort_beside : abort_before,
		.arg = (void *)(uintptr_t)l,
		.ranks = l->ranks,
		.bare = true,
		.env = {ISLANDS, "DICOMM_DEBUG=none", parts_of(_i, 2)}});
}
END_TEST

/* A rank that stands still inside a call, and goes on when the others know. */
static void stand_still(struct job_rank *me)
{
	static float data[1 << 16];
	const int victim = 1;
	_Atomic int *pid = job_board(), *known = pid + 1;
	dicomm_result_t status;

	join(me, me->arg);
	JOB_TRY(sum_up(me));
	if (me->rank == victim) {
		atomic_store(pid, getpid());
		raise(SIGSTOP);
		return;
	}
	while (!atomic_load(pid))
		job_sleep_ms(1);
	status = dicomm_allreduce(data, data, 1 << 16, DICOMM_FLOAT32,
				  DICOMM_SUM, me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_TIMEOUT || status == DICOMM_ERR_REMOTE,
		  "%d: %s", (int)status, dicomm_get_last_error(me->comm));
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 1 ("),
		  "\"%s\" does not name rank 1",
		  dicomm_get_last_error(me->comm));
	if (atomic_fetch_add(known, 1) == me->ranks - 2)
		kill(atomic_load(pid), SIGCONT);
}

START_TEST(a_time_out_names_who_stands_still)
{
	const struct layout *l = &layouts[_i];

	job_run(&(struct job){.run = stand_still,
			      .arg = (void *)(uintptr_t)l,
			      .ranks = l->ranks,
			      .bare = true,
			      .env = {ISLANDS, "DICOMM_DEBUG=none",
				      "DICOMM_TIMEOUT_MS=1500"}});
}
END_TEST

/* Rank 0 has calls of two communicators in a group, and the others have them
 * one after the other. */
static void unlike_groups(struct job_rank *me)
{
	static float a[1 << 16], b[1 << 16];
	bool groups = !me->rank, told;
	dicomm_result_t status;
	dicomm_comm_t other;

	join(me, me->arg);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	if (groups)
		JOB_TRY(dicomm_group_start());
	status = dicomm_allreduce(a, a, 1 << 16, DICOMM_FLOAT32, DICOMM_SUM,
				  me->comm, NULL);
	if (status == DICOMM_SUCCESS)
		status = dicomm_allreduce(b, b, 1 << 16, DICOMM_FLOAT32,
					  DICOMM_SUM, other, NULL);
	if (groups)
		status = dicomm_group_end();
	JOB_CHECK(status != DICOMM_SUCCESS, "they do not wait");
	told = strstr(dicomm_get_last_error(me->comm), "the same groups") ||
	       strstr(dicomm_get_last_error(other), "the same groups");
	JOB_CHECK(!groups || told, "\"%s\", \"%s\": no word of groups",
		  dicomm_get_last_error(me->comm),
		  dicomm_get_last_error(other));
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(other));
}

START_TEST(a_time_out_tells_of_unlike_groups)
{
	job_run(&(struct job){.run = unlike_groups,
			      .arg = &layouts[0],
			      .ranks = layouts[0].ranks,
			      .bare = true,
			      .env = {ISLANDS, "DICOMM_DEBUG=none",
				      "DICOMM_TIMEOUT_MS=1500"}});
}
END_TEST

int main(void)
{
	Suite *s;
	TCase *tc;

	if (access(OWN, R_OK)) {
		fprintf(stderr, "no %s: it is made with shared libraries\n",
			OWN);
		return 77;
	}
	s = suite_create("island");
	tc = tcase_create("island");
	tcase_set_timeout(tc, 400);
	tcase_add_loop_test(tc, results_are_those_of_the_definition, 0,
			    2 * LAYOUTS);
	tcase_add_test(tc, one_island_is_enough);
	tcase_add_loop_test(tc, owners_fold_in_their_order, 0, 2);
	tcase_add_loop_test(tc,
			    blocks_inside_an_island_go_by_the_vendors_library,
			    0, LAYOUTS);
	tcase_add_test(tc, what_islands_lack_goes_our_way);
	tcase_add_test(tc, nccl_without_a_library_is_an_error);
	tcase_add_test(tc, auto_without_a_library_goes_on);
	tcase_add_loop_test(tc, all_ranks_find_the_same_size, 0, 3);
	tcase_add_test(tc, a_communicator_has_its_own_setting);
	tcase_add_loop_test(tc, a_death_is_named_and_shrink_makes_islands_anew,
			    1, 4);
	tcase_add_loop_test(tc, a_death_is_named_and_shrink_makes_islands_anew,
			    5, 8);
	tcase_add_loop_test(tc, a_death_is_named_and_shrink_makes_islands_anew,
			    9, 12);
	tcase_add_loop_test(tc, an_abort_ends_what_waits_in_an_island, 0, 6);
	suite_add_tcase(s, tc);
	tc = tcase_create("ways");
	tcase_set_timeout(tc, 400);
	tcase_add_loop_test(tc, a_byte_crosses_the_boundary_once, 0, 10);
	tcase_add_loop_test(tc, a_block_crosses_the_boundary_once, 0, 10);
	tcase_add_loop_test(tc, groups_and_streams_go_by_islands, 0,
			    2 * LAYOUTS);
	tcase_add_loop_test(tc, a_thread_calls_for_several_ranks_in_a_group, 0,
			    2);
	suite_add_tcase(s, tc);
	tc = tcase_create("beside");
	tcase_set_timeout(tc, 400);
	tcase_add_loop_test(tc, a_death_breaks_others_of_a_group_by_name, 0, 2);
	tcase_add_loop_test(tc, an_abort_does_not_wait_for_others_of_a_group, 0,
			    5);
	tcase_add_loop_test(tc, a_time_out_names_who_stands_still, 0, 2);
	tcase_add_test(tc, a_time_out_tells_of_unlike_groups);
	suite_add_tcase(s, tc);
	tc = tcase_create("devices");
	tcase_set_timeout(tc, 400);
	tcase_add_loop_test(tc, ranks_of_mock_devices_follow_their_streams, 0,
			    6);
	suite_add_tcase(s, tc);
	prompt_add(s);
	return runner_main(s);
}
