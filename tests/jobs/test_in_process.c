/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one process on one device: messages are read where the sender's user
 * has them. On mocks, so that what passes here says nothing about a GPU.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/device.h"
#include "src/memory/in_process.h"
#include "tests/support/cast.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define KINDS 3

static const char *const kinds[KINDS][2] = {
	{"cuda:0", "cuda:1"}, {"hip:1", "hip:0"}, {"ze:0", "ze:1"}};

/* Many slices of what mocks compute in a short time */
static void short_slices(void)
{
	setenv("DICOMM_SHM_SLOT_BYTES", "4096", 1);
}

static dicomm_stats_t stats_of(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats;
}

/* All have their buffers before any calls, for a stream that is held is one of
 * this process, and keep them until all have checked. */
static void together(struct trial t, const struct job_rank *me,
		     struct gadget *g)
{
	t.gadget = g->accel->work ? g : NULL;
	trial_fill(&t, me);
	job_barrier();
	JOB_TRY(trial_call(&t, g->native));
	trial_check(&t);
	job_barrier();
	trial_free(&t);
}

/* ---- all operations, types and operators ---- */

static void placement(struct trial t, const struct job_rank *me,
		      struct gadget *g, int p)
{
	trial_place(&t, me, (enum trial_placement)p);
	together(t, me, g);
}

static void each_type(struct trial t, const struct job_rank *me,
		      struct gadget *g)
{
	for (int i = 0; i < element_ntypes; i++) {
		t.type = element_types[i];
		t.op = element_ops[(i + (int)t.seed) % element_nops];
		if (!element_op_fits(t.op, t.type))
			t.op = DICOMM_SUM;
		t.seed++;
		placement(t, me, g, i % trial_placements(t.kind));
	}
}

static void each_operator(struct trial t, const struct job_rank *me,
			  struct gadget *g)
{
	t.type = DICOMM_INT32;
	for (int o = 0; o <= element_nops; o++) {
		t.op = o < element_nops ? element_ops[o] : ELEMENT_PREMULSUM;
		t.seed++;
		if (o == element_nops || element_op_fits(t.op, t.type))
			placement(t, me, g, o % trial_placements(t.kind));
	}
}

/* What nobody may write to */
static void paint(const struct device *dev, struct gadget *g, bool check)
{
	static const uint8_t pattern = 0x5c;
	size_t bytes = device_exported_bytes(dev);
	uint8_t *at = malloc(bytes);

	JOB_CHECK(at != NULL, "out of memory");
	memset(at, check ? 0 : pattern, bytes);
	if (check)
		gadget_copy(g, at, dev->exported, bytes);
	else
		gadget_copy(g, dev->exported, at, bytes);
	gadget_wait(g);
	for (size_t i = 0; i < bytes; i++)
		JOB_CHECK(at[i] == pattern, "byte %zu of the stages is %d", i,
			  at[i]);
	free(at);
}

static void everything(struct job_rank *me, struct gadget *g)
{
	const struct device *dev = me->comm->dev;
	struct trial t = {.seed = 1};
	dicomm_stats_t stats;

	for (int r = 0; r < me->ranks; r++)
		JOB_CHECK(me->comm->peers[r].has_peer_access &&
				  me->comm->peers[r].neighbour->in_process,
			  "rank %d lends nothing", r);
	paint(dev, g, false);
	job_barrier();
	gadget_delay(g, 100);
	for (int k = 0; k < TRIAL_KINDS; k++) {
		t.kind = (enum trial_kind)k;
		t.count = 300;
		each_type(t, me, g);
		if (trial_reduces(t.kind))
			each_operator(t, me, g);
		t.type = DICOMM_INT32;
		t.op = DICOMM_SUM;
		for (int p = 0; p < trial_placements(t.kind); p++) {
			t.count = 10007;
			t.seed++;
			placement(t, me, g, p);
		}
	}
	gadget_delay(g, 0);
	stats = stats_of(me);
	JOB_CHECK(stats.bytes_sent && !stats.bytes_staged &&
			  !stats.bytes_copied,
		  "%llu bytes were staged, %llu copied",
		  (unsigned long long)stats.bytes_staged,
		  (unsigned long long)stats.bytes_copied);
	paint(dev, g, true);
	job_barrier();
}

START_TEST(every_operation_reads_where_it_is)
{
	const char *device = kinds[_i / 3][0];

	short_slices();
	if (cast_has(device) && (!job_is_short() || _i % 3 == 1))
		cast_play(&(struct cast){.device = {device},
					 .run = everything,
					 .staging = "never",
					 .threads = true},
			  2 + _i % 3);
}
END_TEST

static void in_order(struct job_rank *me, struct gadget *g)
{
	const enum trial_kind reducing[] = {TRIAL_ALLREDUCE, TRIAL_REDUCE,
					    TRIAL_REDUCE_SCATTER};
	struct trial t = {.type = DICOMM_FLOAT16, .op = DICOMM_SUM};

	for (int i = 0; i < 9; i++) {
		t.kind = reducing[i % 3];
		t.count = i % 2 ? 501 : 20001;
		t.seed++;
		placement(t, me, g, i / 3);
	}
	JOB_CHECK(!stats_of(me).bytes_copied, "bytes were copied");
}

START_TEST(what_is_folded_in_order_is_read_where_it_is)
{
	short_slices();
	if (cast_has(kinds[_i][0]))
		cast_play(&(struct cast){.device = {kinds[_i][0]},
					 .run = in_order,
					 .deterministic = 1,
					 .staging = "never",
					 .threads = true},
			  3);
}
END_TEST

static bool has_peers(void)
{
	return !getenv("MOCK_NO_PEERS");
}

/* Ranks on one device reach each other, and of two devices where the driver
 * lets them: of what is announced, nothing is copied then. */
static void two_devices(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM, .seed = 3};

	for (int r = 0; r < me->ranks; r++) {
		const struct peer *p = &me->comm->peers[r];
		bool apart = r % 2 != me->rank % 2;

		JOB_CHECK(p->has_peer_access == (has_peers() || !apart) &&
				  (!p->has_peer_access ||
				   p->neighbour->apart == apart),
			  "rank %d is %s", r,
			  p->has_peer_access ? "reached" : "not reached");
	}
	for (int k = 0; k < TRIAL_KINDS; k++)
		for (t.count = 7; t.count < 30000; t.count *= 60) {
			uint64_t before = stats_of(me).bytes_copied;

			t.kind = (enum trial_kind)k;
			t.seed++;
			t.announced = t.seed % 3;
			placement(t, me, g,
				  (int)t.seed % trial_placements(t.kind));
			JOB_CHECK(stats_of(me).bytes_copied == before ||
					  (has_peers() && !t.announced),
				  "%s of %zu: bytes were copied",
				  trial_name(t.kind), t.count);
		}
	JOB_CHECK(!stats_of(me).bytes_copied == !has_peers(),
		  "of what is not announced, %llu bytes were copied",
		  (unsigned long long)stats_of(me).bytes_copied);
	JOB_CHECK(!stats_of(me).bytes_staged == has_peers(),
		  "%llu bytes were staged",
		  (unsigned long long)stats_of(me).bytes_staged);
}

START_TEST(ranks_on_two_devices_take_the_way_of_each_pair)
{
	const char *const *kind = kinds[_i / 2];

	short_slices();
	if (_i % 2)
		setenv("MOCK_NO_PEERS", "1", 1);
	if (cast_has(kind[0]) && cast_has(kind[1]))
		cast_play(&(struct cast){.device = {kind[0], kind[1]},
					 .run = two_devices,
					 .staging = _i % 2 ? "auto" : "never",
					 .threads = true},
			  4);
}
END_TEST

/* ---- several processes ---- */

#define OWN 3 /* ranks of each process */

struct thread {
	struct job_rank me;
	const char *device;
	const dicomm_unique_id_t *id;
	struct gadget g;
	pthread_barrier_t *barrier;
};

static void mixed_trial(struct trial t, struct thread *a)
{
	trial_place(&t, &a->me, (enum trial_placement)(t.seed % 3));
	t.gadget = a->g.accel->work ? &a->g : NULL;
	trial_fill(&t, &a->me);
	pthread_barrier_wait(a->barrier);
	JOB_TRY(trial_call(&t, a->g.native));
	trial_check(&t);
	pthread_barrier_wait(a->barrier);
	trial_free(&t);
}

static void mixed_trials(struct thread *a)
{
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM, .seed = 9};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (t.count = 5; t.count < 30000; t.count *= 70) {
			t.kind = (enum trial_kind)k;
			t.seed++;
			mixed_trial(t, a);
		}
}

static void *one_of_process(void *arg)
{
	struct thread *a = arg;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	int own = a->me.rank / OWN;

	gadget_open(&a->g, a->device);
	config.device = a->device;
	JOB_TRY(dicomm_comm_init_rank_config(&a->me.comm, a->me.ranks, *a->id,
					     a->me.rank, &config));
	for (int r = 0; r < a->me.ranks && a->g.accel->work; r++) {
		const struct peer *p = &a->me.comm->peers[r];
		bool reads = p->has_peer_access && p->neighbour->in_process;

		JOB_CHECK(reads == (r / OWN == own && r % OWN != OWN - 1),
			  "rank %d lends to rank %d: %d", r, a->me.rank, reads);
	}
	mixed_trials(a);
	JOB_TRY(dicomm_comm_destroy(a->me.comm));
	pthread_barrier_wait(a->barrier);
	gadget_close(&a->g);
	return NULL;
}

/* Two on a device and one on the host in each process */
static void mixed(struct job_rank *me)
{
	static const char *const devices[OWN] = {"cuda:0", "cuda:0", "host"};
	dicomm_unique_id_t id = job_id();
	pthread_barrier_t barrier;
	pthread_t threads[OWN];
	struct thread a[OWN];

	pthread_barrier_init(&barrier, NULL, OWN);
	for (int i = 0; i < OWN; i++) {
		a[i] = (struct thread){.me = {.rank = me->rank * OWN + i,
					      .ranks = me->ranks * OWN},
				       .device = devices[i],
				       .id = &id,
				       .barrier = &barrier};
		JOB_CHECK(!pthread_create(&threads[i], NULL, one_of_process,
					  &a[i]),
			  "no thread");
	}
	for (int i = 0; i < OWN; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
}

START_TEST(hosts_and_other_processes_take_part)
{
	short_slices();
	if (cast_has("cuda:0"))
		job_run(&(struct job){.run = mixed,
				      .ranks = 2,
				      .bare = true,
				      .timeout_s = 100});
}
END_TEST

/* ---- until when ---- */

#define ROUNDS 30
#define COUNT 3000

/* What follows the call on the sender's stream writes to what was sent, while
 * others may still read it. */
static dicomm_result_t call(int i, int32_t *send, int32_t *recv,
			    const struct job_rank *me, struct gadget *g)
{
	int to = (me->rank + 1) % me->ranks;
	int from = (me->rank + me->ranks - 1) % me->ranks;

	switch (i % 4) {
	case 0:
		return dicomm_allreduce(send, recv, COUNT, DICOMM_INT32,
					DICOMM_SUM, me->comm, g->native);
	case 1:
		return dicomm_allgather(send, recv, COUNT, DICOMM_INT32,
					me->comm, g->native);
	case 2:
		return dicomm_broadcast(send, recv, COUNT, DICOMM_INT32,
					i % me->ranks, me->comm, g->native);
	default:
		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_send(send, COUNT, DICOMM_INT32, to, me->comm,
				    g->native));
		JOB_TRY(dicomm_recv(recv, COUNT, DICOMM_INT32, from, me->comm,
				    g->native));
		return dicomm_group_end();
	}
}

/* Element e of rank r before call i */
static int32_t value(int r, int i, int e)
{
	return r * 1000003 + i * 1009 + e;
}

static void check_call(int i, const int32_t *got, const struct job_rank *me)
{
	int from = (me->rank + me->ranks - 1) % me->ranks;

	for (int e = 0; e < COUNT; e++) {
		int32_t want = 0;

		if (i % 4 == 0)
			for (int r = 0; r < me->ranks; r++)
				want += value(r, i, e);
		else if (i % 4 == 2)
			want = value(i % me->ranks, i, e);
		else if (i % 4 == 3)
			want = value(from, i, e);
		for (int r = 0; i % 4 == 1 && r < me->ranks; r++) {
			want = value(r, i, e);
			JOB_CHECK(got[r * COUNT + e] == want,
				  "call %d: element %d of rank %d", i, e, r);
		}
		JOB_CHECK(i % 4 == 1 || got[e] == want, "call %d: element %d",
			  i, e);
	}
}

static void overwrites(struct job_rank *me, struct gadget *g)
{
	size_t bytes = COUNT * sizeof(int32_t);
	size_t all = bytes * (size_t)me->ranks;
	int32_t *send = gadget_alloc(g, bytes), *recv = gadget_alloc(g, all);
	int32_t *in = gadget_host(g, ROUNDS * bytes);
	int32_t *got = gadget_host(g, ROUNDS * all);
	int32_t *junk = gadget_host(g, bytes);

	memset(junk, 0x99, bytes);
	for (int i = 0; i < ROUNDS; i++)
		for (int e = 0; e < COUNT; e++)
			in[i * COUNT + e] = value(me->rank, i, e);
	gadget_delay(g, 1500);
	job_barrier();
	for (int i = 0; i < ROUNDS; i++) {
		gadget_copy(g, send, in + i * COUNT, bytes);
		JOB_TRY(call(i, send, recv, me, g));
		gadget_copy(g, send, junk, bytes);
		gadget_copy(g, got + (size_t)i * all / sizeof(*got), recv, all);
		gadget_copy(g, recv, junk, bytes);
	}
	gadget_wait(g);
	gadget_delay(g, 0);
	for (int i = 0; i < ROUNDS; i++)
		check_call(i, got + (size_t)i * all / sizeof(*got), me);
	job_barrier();
	gadget_host_free(g, in);
	gadget_host_free(g, got);
	gadget_host_free(g, junk);
	gadget_free(g, send);
	gadget_free(g, recv);
}

START_TEST(a_sender_may_overwrite_what_it_sent_behind_the_call)
{
	if (_i)
		short_slices();
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = overwrites,
					 .staging = "never",
					 .threads = true},
			  2 + _i);
}
END_TEST

/* ---- ranks that give up ---- */

#define LIVES 12

/* Somewhere in the middle one rank aborts; all others hear of it. After it
 * nobody reads what it sent, and its user may do with it what it wants. */
static void give_up(struct job_rank *me, struct gadget *g, int life)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT32,
			  .op = DICOMM_SUM,
			  .count = 20000,
			  .gadget = g};
	dicomm_result_t status = DICOMM_SUCCESS;
	double begin = job_seconds();

	trial_fill(&t, me);
	job_barrier();
	for (int i = 0; i < 4 && status == DICOMM_SUCCESS; i++)
		status = trial_call(&t, g->native);
	if (me->rank == life % me->ranks) {
		job_sleep_ms(life);
		JOB_TRY(dicomm_comm_abort(me->comm));
		JOB_CHECK(in_process_close(me->comm->dev->in_process, 0),
			  "what it sent is still read");
	}
	gadget_wait(g);
	job_barrier();
	JOB_CHECK(job_seconds() - begin < 15 + starved_s(), "it took %.1f s",
		  job_seconds() - begin);
	trial_free(&t);
}

static void lives(struct job_rank *me, struct gadget *g)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t first = me->comm;

	for (int life = 0; life < LIVES; life++) {
		config.device = g->name;
		JOB_TRY(dicomm_comm_init_rank_config(
			&me->comm, me->ranks, job_id(), me->rank, &config));
		job_barrier();
		gadget_delay(g, 2000);
		give_up(me, g, life);
		gadget_delay(g, 0);
		JOB_TRY(dicomm_comm_destroy(me->comm));
		job_barrier();
	}
	me->comm = first;
	together((struct trial){.kind = TRIAL_ALLREDUCE,
				.type = DICOMM_INT32,
				.op = DICOMM_SUM,
				.count = 3000},
		 me, g);
}

START_TEST(a_rank_that_aborts_lends_nothing_any_more)
{
	short_slices();
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = lives,
					 .threads = true},
			  2 + _i);
}
END_TEST

/* ---- how much at a time ---- */

static void slices(struct job_rank *me, struct gadget *g)
{
	static const struct {
		size_t bytes;
		uint64_t messages;
	} calls[] = {{1 << 20, 1}, {4 << 20, 4}, {96 << 20, 6}};
	int other = !me->rank;

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		uint64_t before = stats_of(me).messages_sent;
		uint8_t *a = gadget_alloc(g, calls[i].bytes);
		uint8_t *b = gadget_alloc(g, calls[i].bytes), last = 0;

		last = (uint8_t)(me->rank + 1);
		gadget_copy(g, a + calls[i].bytes - 1, &last, 1);
		gadget_wait(g);
		job_barrier();
		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_send(a, calls[i].bytes, DICOMM_INT8, other,
				    me->comm, g->native));
		JOB_TRY(dicomm_recv(b, calls[i].bytes, DICOMM_INT8, other,
				    me->comm, g->native));
		JOB_TRY(dicomm_group_end());
		gadget_copy(g, &last, b + calls[i].bytes - 1, 1);
		gadget_wait(g);
		JOB_CHECK(last == other + 1, "the last byte is %d", last);
		before = stats_of(me).messages_sent - before;
		JOB_CHECK(before == calls[i].messages,
			  "%zu bytes went in %llu messages", calls[i].bytes,
			  (unsigned long long)before);
		job_barrier();
		gadget_free(g, a);
		gadget_free(g, b);
	}
}

START_TEST(slices_are_as_long_as_pays)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = slices,
					 .threads = true},
			  2);
}
END_TEST

/* Two read what both have, each one half of it. */
static void chosen(struct job_rank *me, struct gadget *g)
{
	char text[2048];

	(void)g;
	for (size_t mib = 64; mib <= 1024; mib *= 4) {
		JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", mib << 20,
					    DICOMM_INT8, text, sizeof(text)));
		JOB_CHECK(strstr(text, "* two_shot "), "%zu MiB: %s", mib,
			  text);
	}
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 8, DICOMM_INT8, text,
				    sizeof(text)));
	JOB_CHECK(me->ranks > 2 || strstr(text, "* direct "), "%s", text);
}

START_TEST(what_is_large_is_reduced_in_two_shots)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"},
					 .run = chosen,
					 .threads = true},
			  2 + 2 * _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("in_process");
	TCase *tcase = tcase_create("operations");

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, every_operation_reads_where_it_is, 0,
			    3 * KINDS);
	tcase_add_loop_test(tcase,
			    ranks_on_two_devices_take_the_way_of_each_pair, 0,
			    2 * KINDS);
	tcase_add_test(tcase, hosts_and_other_processes_take_part);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("order");
	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, what_is_folded_in_order_is_read_where_it_is,
			    0, KINDS);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("until");
	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase,
			    a_sender_may_overwrite_what_it_sent_behind_the_call,
			    0, 2);
	tcase_add_loop_test(tcase, a_rank_that_aborts_lends_nothing_any_more, 0,
			    2);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("slices");
	tcase_set_timeout(tcase, 200);
	tcase_add_test(tcase, slices_are_as_long_as_pays);
	tcase_add_loop_test(tcase, what_is_large_is_reduced_in_two_shots, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
