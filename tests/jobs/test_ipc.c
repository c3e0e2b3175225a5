/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of several processes on devices of one kind: what is sent from buffers
 * that are announced, or of the library, is read where it is. On mocks, so that
 * what passes here says nothing about a GPU.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/image.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/memory/ipc.h"
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

static void play(const char *one, const char *other, int ranks,
		 void (*run)(struct job_rank *me, struct gadget *g))
{
	if (cast_has(one) && (!other || cast_has(other)))
		cast_play(&(struct cast){.device = {one, other},
					 .run = run,
					 .staging = "never"},
			  ranks);
}

/* Without staging a device has to reduce. CUDA and HIP compile what a build
 * without images lacks, but Level Zero cannot. */
static bool can_reduce(const char *device)
{
	if (strncmp(device, "ze", 2) != 0 || image_find("spirv_i32"))
		return true;
	printf("%s: this build has no kernels for it\n", device);
	return false;
}

static uint64_t copied(const struct job_rank *me)
{
	return cast_stats(me).bytes_copied;
}

/* ---- all operations ---- */

/* Map what the others offer by now. */
static void look(struct job_rank *me)
{
	job_barrier();
	neighbour_refresh(me->comm);
	job_barrier();
}

/* Buffers are given back while nobody waits in another operation, and so does
 * not let go of them. */
static uint64_t copied_for(struct trial t, struct job_rank *me,
			   struct gadget *g, bool looked)
{
	uint64_t before;

	t.gadget = g;
	trial_fill(&t, me);
	if (looked)
		look(me);
	before = copied(me);
	JOB_TRY(trial_call(&t, g->native));
	trial_check(&t);
	before = copied(me) - before;
	job_barrier();
	trial_free(&t);
	job_barrier();
	return before;
}

static void trial(struct trial t, struct job_rank *me, struct gadget *g)
{
	uint64_t bytes;

	t.announced = true;
	bytes = copied_for(t, me, g, true);
	JOB_CHECK(!bytes, "%s of %zu: %llu bytes were copied",
		  trial_name(t.kind), t.count, (unsigned long long)bytes);
}

static void everything(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.seed = 1};

	for (int r = 0; r < me->ranks; r++)
		JOB_CHECK(r == me->rank || (me->comm->peers[r].neighbour &&
					    me->comm->peers[r].neighbour->view),
			  "rank %d offers nothing", r);
	gadget_delay(g, 100);
	for (int k = 0; k < TRIAL_KINDS; k++) {
		t.kind = (enum trial_kind)k;
		for (int i = 0; i < 8; i++) {
			t.type = element_types[(i * 5 + k) % element_ntypes];
			t.op = element_ops[(i + k) % element_nops];
			if (!element_op_fits(t.op, t.type))
				t.op = DICOMM_SUM;
			t.count = i % 4 ? 300 : 10007;
			t.root = i % me->ranks;
			t.seed++;
			trial_place(&t, me,
				    (enum trial_placement)(
					    i % trial_placements(t.kind)));
			trial(t, me, g);
		}
	}
	gadget_delay(g, 0);
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
	job_barrier();
}

START_TEST(every_operation_reads_where_it_is)
{
	const char *const *kind = kinds[_i / 2];

	if (_i % 2)
		short_slices();
	if ((!job_is_short() || _i % 2) && can_reduce(kind[0]))
		play(kind[0], kind[_i % 2], 2 + _i % 2, everything);
}
END_TEST

/* What is not announced, or was not when a neighbour last looked, goes by way
 * of stages, and arrives all the same. */
static void unannounced(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	for (int i = 0; i < 30; i++) {
		t.kind = (enum trial_kind)(i % TRIAL_KINDS);
		t.count = i % 4 ? 77 : 20001;
		t.announced = (i + me->rank) % 3;
		t.seed++;
		(void)copied_for(t, me, g, false);
	}
	JOB_CHECK(copied(me), "nothing was copied");
	job_barrier();
}

START_TEST(what_is_not_announced_goes_by_stages)
{
	short_slices();
	if (can_reduce(kinds[_i][0]))
		play(kinds[_i][0], NULL, 3, unannounced);
}
END_TEST

/* ---- until when ---- */

#define SOME ((size_t)300000)
#define ONE ((size_t)4096) /* one message */

/* Rank 0 sends what rank 1 then has to find. */
static void pass(struct job_rank *me, struct gadget *g, uint8_t *device,
		 uint8_t seed, uint64_t copies)
{
	uint8_t *host = gadget_host(g, SOME);
	uint64_t before = copied(me);

	for (size_t i = 0; i < SOME; i++)
		host[i] = me->rank ? 0xee : (uint8_t)(i * 7 + i / 256 + seed);
	gadget_copy(g, device, host, SOME);
	gadget_wait(g);
	if (me->rank)
		JOB_TRY(dicomm_recv(device, SOME, DICOMM_UINT8, 0, me->comm,
				    g->native));
	else
		JOB_TRY(dicomm_send(device, SOME, DICOMM_UINT8, 1, me->comm,
				    g->native));
	gadget_copy(g, host, device, SOME);
	gadget_wait(g);
	for (size_t i = 0; i < SOME; i++)
		JOB_CHECK(host[i] == (uint8_t)(i * 7 + i / 256 + seed),
			  "message %u: byte %zu is %02x", seed, i, host[i]);
	before = copied(me) - before;
	JOB_CHECK(before == (me->rank ? 0 : copies),
		  "message %u: %llu bytes were copied", seed,
		  (unsigned long long)before);
	gadget_host_free(g, host);
	job_barrier();
}

/* The same address is other memory each time. */
static void replace(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = gadget_alloc(g, SOME), *again;
	void *handle, *second;

	gadget_delay(g, 300);
	pass(me, g, at, 1, SOME);
	JOB_TRY(dicomm_comm_register(me->comm, at, SOME, &handle));
	look(me);
	pass(me, g, at, 2, 0);
	/* Twice is once more. */
	JOB_TRY(dicomm_comm_register(me->comm, at + 64, SOME / 2, &second));
	look(me);
	pass(me, g, at, 3, 0);
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	pass(me, g, at, 4, SOME);
	JOB_TRY(dicomm_comm_deregister(me->comm, second));
	for (uint8_t i = 5; i < 12; i++) {
		gadget_free(g, at);
		again = gadget_alloc(g, SOME);
		JOB_CHECK(again == at, "%p is freed, but %p allocated",
			  (void *)at, (void *)again);
		if (i % 3)
			JOB_TRY(dicomm_comm_register(me->comm, at, SOME,
						     &handle));
		look(me);
		pass(me, g, at, i, i % 3 ? 0 : SOME);
		if (i % 3)
			JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	}
	gadget_free(g, at);
}

START_TEST(nothing_is_read_from_what_was_there_before)
{
	play(kinds[_i][0], kinds[_i][1], 2, replace);
}
END_TEST

/* A part of an allocation in which other things lie, as of an allocator that
 * caches */
static void parts(struct job_rank *me, struct gadget *g)
{
	uint8_t *all = gadget_alloc(g, 4 * SOME);
	void *handles[3];

	for (size_t i = 0; i < 3; i++)
		JOB_TRY(dicomm_comm_register(me->comm, all + i * SOME + 13,
					     SOME, &handles[i]));
	look(me);
	for (uint8_t i = 0; i < 3; i++)
		pass(me, g, all + i * SOME + 13, i, 0);
	pass(me, g, all + 3 * SOME, 4, SOME);
	JOB_TRY(dicomm_comm_deregister(me->comm, handles[1]));
	pass(me, g, all + 2 * SOME + 13, 5, 0);
	pass(me, g, all + SOME + 13, 6, SOME);
	JOB_TRY(dicomm_comm_deregister(me->comm, handles[0]));
	JOB_TRY(dicomm_comm_deregister(me->comm, handles[2]));
	gadget_free(g, all);
}

START_TEST(parts_of_an_allocation_are_offered)
{
	play(kinds[_i][0], NULL, 2, parts);
}
END_TEST

/* Neighbours that are elsewhere have it mapped, yet to free it does not wait,
 * and it is freed when they have let go. Before and after a count of what the
 * driver has nobody offers more, which others might have mapped by then. */
static void library(struct job_rank *me, struct gadget *g)
{
	int live = gadget_live(g);
	void *at, *more;
	double begin;

	job_barrier();
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &at, SOME));
	/* It is offered when it is first sent. */
	JOB_TRY(dicomm_broadcast(at, at, SOME, DICOMM_UINT8, 0, me->comm,
				 g->native));
	gadget_wait(g);
	look(me);
	pass(me, g, at, 1, 0);
	begin = job_seconds();
	JOB_TRY(dicomm_mem_free(at));
	JOB_CHECK(job_seconds() - begin < 10 + starved_s(), "it took %.1f s",
		  job_seconds() - begin);
	look(me);
	/* Others have let go meanwhile: what waited goes. */
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &more, 8));
	JOB_TRY(dicomm_mem_free(more));
	JOB_CHECK(gadget_live(g) == live, "%d things instead of %d are left",
		  gadget_live(g), live);
	job_barrier();
	JOB_CHECK(dicomm_mem_free(more) == DICOMM_ERR_INVALID_ARGUMENT,
		  "it was freed twice");
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &at, SOME));
	JOB_TRY(dicomm_broadcast(at, at, SOME, DICOMM_UINT8, 0, me->comm,
				 g->native));
	gadget_wait(g);
	look(me);
	pass(me, g, at, 2, 0);
	JOB_TRY(dicomm_mem_free(at));
	job_barrier();
}

START_TEST(memory_of_the_library_needs_no_announcement)
{
	play(kinds[_i][0], NULL, 2, library);
}
END_TEST

/* A neighbour that is elsewhere lets go all the same, and at once, unless it
 * lacks its core; one whose stream is held cannot, and is not waited for any
 * longer than that. */
static void busy(struct job_rank *me, struct gadget *g)
{
	enum { HELD = 5 };
	uint8_t *at = gadget_alloc(g, SOME), *other = gadget_alloc(g, SOME);
	void *handle;
	double begin, took, least = 1;

	for (int i = 0; i <= HELD; i++) {
		JOB_TRY(dicomm_comm_register(me->comm, at, SOME, &handle));
		look(me);
		pass(me, g, at, (uint8_t)i, 0);
		if (me->rank && i == HELD)
			JOB_TRY(dicomm_recv(other, SOME, DICOMM_UINT8, 0,
					    me->comm, g->native));
		job_barrier();
		begin = job_seconds();
		if (!me->rank)
			JOB_TRY(dicomm_comm_deregister(me->comm, handle));
		took = job_seconds() - begin;
		if (i < HELD && took < least)
			least = took;
		if (!me->rank && i == HELD)
			JOB_CHECK(took > 0.19 && took < 10, "it took %.1f s",
				  took);
		if (!me->rank && i == HELD)
			JOB_TRY(dicomm_send(other, SOME, DICOMM_UINT8, 1,
					    me->comm, g->native));
		gadget_wait(g);
		job_barrier();
		if (me->rank)
			JOB_TRY(dicomm_comm_deregister(me->comm, handle));
		job_sleep_ms(100);
		job_barrier();
	}
	JOB_CHECK(least < 0.19, "it took %.1f s each time", least);
	gadget_free(g, at);
	gadget_free(g, other);
}

START_TEST(deregistering_waits_for_neighbours_but_not_for_long)
{
	play("cuda:0", NULL, 2, busy);
}
END_TEST

/* Of more than can be offered, the rest goes by stages. */
static void many(struct job_rank *me, struct gadget *g)
{
	enum { MORE = IPC_OFFERS + 5 };
	uint8_t *at[MORE];
	void *handle[MORE];
	uint64_t before = copied(me);

	for (int i = 0; i < MORE; i++) {
		at[i] = gadget_alloc(g, 4096);
		JOB_TRY(dicomm_comm_register(me->comm, at[i], 4096,
					     &handle[i]));
	}
	look(me);
	for (int i = 0; i < MORE; i++)
		JOB_TRY(dicomm_broadcast(at[i], at[i], 4096, DICOMM_UINT8, 0,
					 me->comm, g->native));
	gadget_wait(g);
	/* One place is scratch's. */
	JOB_CHECK(copied(me) - before == (me->rank ? 0 : 6 * 4096),
		  "%llu bytes were copied",
		  (unsigned long long)(copied(me) - before));
	job_barrier();
	for (int i = 0; i < MORE; i++) {
		JOB_TRY(dicomm_comm_deregister(me->comm, handle[i]));
		gadget_free(g, at[i]);
	}
	job_barrier();
}

START_TEST(more_than_can_be_offered_goes_by_stages)
{
	play("cuda:0", NULL, 2, many);
}
END_TEST

/* Two communicators offer the same; each is forgotten by itself. */
static void shared(struct job_rank *me, struct gadget *g)
{
	dicomm_comm_t first = me->comm, second;
	void *at, *one, *two;

	JOB_TRY(dicomm_comm_mem_alloc(first, &at, SOME));
	JOB_TRY(dicomm_comm_split(first, 0, me->rank, &second, NULL));
	JOB_TRY(dicomm_comm_register(first, at, SOME, &one));
	JOB_TRY(dicomm_comm_register(second, at, SOME, &two));
	for (uint8_t i = 0; i < 2; i++) {
		me->comm = i ? second : first;
		look(me);
		pass(me, g, at, i, 0);
	}
	JOB_TRY(dicomm_comm_deregister(second, two));
	JOB_TRY(dicomm_comm_destroy(second));
	me->comm = first;
	pass(me, g, at, 3, 0);
	JOB_TRY(dicomm_comm_deregister(first, one));
	JOB_TRY(dicomm_mem_free(at));
	look(me);
	job_barrier();
}

START_TEST(communicators_offer_the_same_memory)
{
	play(kinds[_i][0], NULL, 2, shared);
}
END_TEST

/* A driver that frees or unmaps may wait for all streams, so for one that is
 * held until the last rank, a host, sends: what is given back meanwhile goes
 * when it has, though nobody frees anything any more. */
static void held(struct job_rank *me, struct gadget *g)
{
	bool is_last = me->rank == me->ranks - 1;
	void *unused, *offered, *at;
	dicomm_comm_t again;
	double begin;
	int live;

	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &at, ONE));
	look(me);
	live = gadget_live(g);
	job_barrier();
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &unused, SOME));
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &offered, SOME));
	JOB_TRY(dicomm_broadcast(offered, offered, SOME, DICOMM_UINT8, 0,
				 me->comm, g->native));
	JOB_TRY(dicomm_comm_stream_synchronize(me->comm, g->native));
	look(me);
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &again, NULL));
	job_barrier();
	if (!is_last)
		JOB_TRY(dicomm_recv(at, ONE, DICOMM_UINT8, me->ranks - 1,
				    me->comm, g->native));
	job_barrier();
	begin = job_seconds();
	JOB_TRY(dicomm_mem_free(unused));
	JOB_TRY(dicomm_mem_free(offered));
	JOB_TRY(dicomm_comm_destroy(again));
	JOB_CHECK(job_seconds() - begin < 20 + starved_s(), "it took %.1f s",
		  job_seconds() - begin);
	JOB_CHECK(!gadget_hangs(g), "%d calls would have waited for a stream",
		  gadget_hangs(g));
	job_barrier();
	for (int r = 0; is_last && r < me->rank; r++)
		JOB_TRY(dicomm_send(at, ONE, DICOMM_UINT8, r, me->comm,
				    g->native));
	begin = job_seconds();
	while (gadget_live(g) != live && job_seconds() - begin < 20) {
		/* To let go of what the host has freed */
		neighbour_refresh(me->comm);
		job_sleep_ms(1);
	}
	JOB_CHECK(gadget_live(g) == live, "%d things instead of %d are left",
		  gadget_live(g), live);
	job_barrier();
	JOB_TRY(dicomm_mem_free(at));
}

START_TEST(nothing_is_given_back_while_a_stream_is_held)
{
	const char *const *kind = kinds[_i];

	if (cast_has(kind[0]) && cast_has(kind[1]))
		cast_play(&(struct cast){.device = {kind[0], kind[1], "host"},
					 .run = held},
			  3);
}
END_TEST

/* ---- ranks that give up, and die ---- */

/* What a rank sends is its own again once it has aborted. Who has read
 * something else since does not take it for the message, and waits for no news
 * of it: rank 0, if there are three, has left, and tells nobody. */
static void give_up(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = gadget_alloc(g, ONE), *host = gadget_host(g, ONE);
	bool sends = me->rank == me->ranks - 2;
	dicomm_result_t status;
	double begin;
	void *handle;

	JOB_TRY(dicomm_comm_register(me->comm, at, ONE, &handle));
	memset(host, sends ? 0x11 : 0, ONE);
	gadget_copy(g, at, host, ONE);
	gadget_wait(g);
	gadget_delay(g, sends ? 0 : 60000);
	begin = job_seconds();
	if (sends) {
		JOB_TRY(dicomm_send(at, ONE, DICOMM_UINT8, me->rank + 1,
				    me->comm, g->native));
		/* It is on its way, and not read. */
		job_sleep_ms(20);
		JOB_TRY(dicomm_comm_abort(me->comm));
		gadget_wait(g);
		memset(host, 0xee, ONE);
		gadget_copy(g, at, host, ONE);
		gadget_wait(g);
	} else {
		status = dicomm_recv(at, ONE, DICOMM_UINT8, me->rank - 1,
				     me->comm, g->native);
		gadget_wait(g);
		if (status == DICOMM_SUCCESS)
			JOB_TRY(dicomm_comm_get_async_error(me->comm, &status));
		gadget_copy(g, host, at, ONE);
		gadget_wait(g);
		for (size_t i = 0; i < ONE && status == DICOMM_SUCCESS; i++)
			JOB_CHECK(host[i] == 0x11,
				  "byte %zu is %02x, and no error", i, host[i]);
	}
	JOB_CHECK(job_seconds() - begin < 15 + starved_s(), "it took %.1f s",
		  job_seconds() - begin);
	job_barrier();
	gadget_delay(g, 0);
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	gadget_free(g, at);
	gadget_host_free(g, host);
}

static void lives(struct job_rank *me, struct gadget *g)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t first = me->comm;

	config.device = g->name;
	for (int life = 0; life < (me->ranks > 2 ? 2 : 6); life++) {
		JOB_TRY(dicomm_comm_init_rank_config(
			&me->comm, me->ranks, job_id(), me->rank, &config));
		job_barrier();
		if (me->rank == me->ranks - 3) {
			JOB_TRY(dicomm_comm_destroy(me->comm));
			job_barrier();
			job_barrier();
		} else {
			job_barrier();
			give_up(me, g);
			JOB_TRY(dicomm_comm_destroy(me->comm));
		}
		job_barrier();
	}
	me->comm = first;
	cast_sum(me, g);
}

START_TEST(what_is_read_after_an_abort_is_no_message)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0"}, .run = lives},
			  2 + _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ipc");
	TCase *tcase = tcase_create("operations");

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, every_operation_reads_where_it_is, 0,
			    2 * KINDS);
	tcase_add_loop_test(tcase, what_is_not_announced_goes_by_stages, 0,
			    KINDS);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("until");
	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, nothing_is_read_from_what_was_there_before,
			    0, KINDS);
	tcase_add_loop_test(tcase, parts_of_an_allocation_are_offered, 0,
			    KINDS);
	tcase_add_loop_test(tcase, memory_of_the_library_needs_no_announcement,
			    0, KINDS);
	tcase_add_test(tcase,
		       deregistering_waits_for_neighbours_but_not_for_long);
	tcase_add_test(tcase, more_than_can_be_offered_goes_by_stages);
	tcase_add_loop_test(tcase, nothing_is_given_back_while_a_stream_is_held,
			    0, KINDS);
	tcase_add_loop_test(tcase, communicators_offer_the_same_memory, 0,
			    KINDS);
	tcase_add_loop_test(tcase, what_is_read_after_an_abort_is_no_message, 0,
			    2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
