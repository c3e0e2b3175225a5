/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on unlike devices in one communicator. Of these, PoCL's is a real one,
 * whose kernels run on the processor; CUDA's and HIP's are mocks, and what
 * passes here says nothing about a GPU.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cast.h"

/* All ranks have their buffers before any of them calls. */
static void together(struct trial t, const struct job_rank *me,
		     struct gadget *g)
{
	t.gadget = g->accel->work ? g : NULL;
	trial_fill(&t, me);
	job_barrier();
	JOB_TRY(trial_call(&t, g->native));
	trial_check(&t);
	trial_free(&t);
}

/* ---- the bytes that are staged ---- */

static const struct pair {
	const char *a, *b;
	uint64_t staged[2]; /* of what each of them receives */
	bool shared;        /* host memory is of dicomm_mem_alloc() */
} pairs[] = {
	{"host", "cuda:0", {0, 4000}, false},
	{"host", "cuda:0", {0, 0}, true},
	{"hip:1", "host", {4000, 0}, false},
	{"hip:1", "host", {0, 0}, true},
	{"cuda:0", "hip:0", {4000, 4000}, false},
	{"opencl:0", "hip:0", {4000, 4000}, false},
	{"cuda:0", "cuda:1", {0, 0}, false},
	{"cuda:0", "cuda:0", {0, 0}, false},
	{"hip:1", "hip:0", {0, 0}, false},
	{"opencl:0", "host", {0, 0}, false},
	{"opencl:0", "opencl:0", {0, 0}, false},
	{"host", "host", {0, 0}, false},
};
#define PAIRS ((int)(sizeof(pairs) / sizeof(*pairs)))

static void sum(struct job_rank *me, struct gadget *g)
{
	const struct pair *p = me->arg;

	together((struct trial){.kind = TRIAL_ALLREDUCE,
				.type = DICOMM_FLOAT32,
				.op = DICOMM_SUM,
				.count = 1000,
				.shared = p->shared},
		 me, g);
	JOB_CHECK(cast_staged(me->comm) == p->staged[me->rank],
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
}

/* Of two ranks, each receives the other's input once. */
START_TEST(what_passes_through_host_memory_is_counted)
{
	struct cast cast = {.device = {pairs[_i].a, pairs[_i].b},
			    .run = sum,
			    .arg = &pairs[_i]};

	if (cast_has(pairs[_i].a) && cast_has(pairs[_i].b))
		cast_play(&cast, 2);
}
END_TEST

/* ---- devices and hosts ---- */

/* Every operation, where no byte may be staged, in buffers that come and go. */
static void shared(struct job_rank *me, struct gadget *g)
{
	struct trial t = {
		.type = DICOMM_INT32, .op = DICOMM_SUM, .shared = true};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (t.count = 7; t.count < 50000; t.count *= 83) {
			t.kind = (enum trial_kind)k;
			t.in_place =
				trial_can_be_in_place(t.kind) && t.seed % 2;
			t.seed++;
			together(t, me, g);
		}
	JOB_CHECK(!cast_staged(me->comm), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
}

START_TEST(a_host_shares_its_memory_with_devices_of_one_kind)
{
	const char *const kinds[][2] = {{"cuda:0", "cuda:1"},
					{"hip:0", "hip:1"}};

	if (cast_has(kinds[_i][0]))
		cast_play(&(struct cast){.device = {"host", kinds[_i][0],
						    "host", kinds[_i][1]},
					 .run = shared,
					 .staging = "never"},
			  4);
}
END_TEST

/* Where nothing may be staged, a host has to send from memory that the device
 * reaches, and is told so. */
static void refused(struct job_rank *me, struct gadget *g)
{
	float buffer[10] = {0};

	if (!g->accel->work)
		JOB_REFUSED(dicomm_allreduce(buffer, buffer, 10, DICOMM_FLOAT32,
					     DICOMM_SUM, me->comm, NULL),
			    DICOMM_ERR_INVALID_ARGUMENT,
			    "is not memory of dicomm_mem_alloc: rank 1 "
			    "(cuda:0) reaches no other of rank 0 (host)");
	together((struct trial){.kind = TRIAL_ALLREDUCE,
				.count = 1000,
				.shared = true},
		 me, g);
}

START_TEST(a_host_has_to_share_where_nothing_is_staged)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"host", "cuda:0"},
					 .run = refused,
					 .staging = "never"},
			  2);
}
END_TEST

/* Memory that a host allocates while the device waits for it is staged, and
 * read in place from the next call on. */
static void late(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.kind = TRIAL_BROADCAST,
			  .type = DICOMM_INT8,
			  .count = 5000,
			  .shared = true};

	if (g->accel->work) {
		t.gadget = g;
		trial_fill(&t, me);
		JOB_TRY(trial_call(&t, g->native));
		job_barrier();
	} else {
		job_barrier();
		trial_fill(&t, me);
		JOB_TRY(trial_call(&t, NULL));
	}
	trial_check(&t);
	JOB_CHECK(cast_staged(me->comm) == (g->accel->work ? 5000 : 0),
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
	trial_refill(&t, 5);
	JOB_TRY(trial_call(&t, g->native));
	trial_check(&t);
	JOB_CHECK(cast_staged(me->comm) == (g->accel->work ? 5000 : 0),
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
	trial_free(&t);
}

START_TEST(memory_that_comes_late_is_read_in_place_the_next_time)
{
	if (cast_has("hip:0"))
		cast_play(&(struct cast){.device = {"host", "hip:0"},
					 .run = late},
			  2);
}
END_TEST

/* ---- all operations, types and operators ---- */

static void placement(struct trial t, const struct job_rank *me,
		      struct gadget *g, int p)
{
	trial_place(&t, me, (enum trial_placement)p);
	t.shared = t.seed % 2;
	cast_trial(t, me, g);
}

static void placements(struct trial t, const struct job_rank *me,
		       struct gadget *g)
{
	for (int p = 0; p < trial_placements(t.kind); p++) {
		t.seed++;
		placement(t, me, g, p);
	}
}

/* Each operator in one placement, the next one in the next. */
static void operators(struct trial t, const struct job_rank *me,
		      struct gadget *g)
{
	for (int o = 0; o <= element_nops; o++) {
		t.op = o < element_nops ? element_ops[o] : ELEMENT_PREMULSUM;
		t.seed += 7;
		if (o == element_nops || element_op_fits(t.op, t.type))
			placement(t, me, g, (int)(t.seed % TRIAL_PLACES));
	}
}

static void small(struct job_rank *me, struct gadget *g)
{
	const size_t counts[] = {300, 1, 0};
	struct trial t = {.kind = TRIAL_ALLREDUCE};
	/* The interpreter of PTX is slow there, and is not what is tested. */
	int step = job_is_sanitized() ? 3 : 1;

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int i = 0; i < element_ntypes * 3; i += step) {
			t.kind = (enum trial_kind)k;
			t.type = element_types[i % element_ntypes];
			t.count = counts[i / element_ntypes];
			t.seed += 1000;
			/* Where there is little to do, some tell enough. */
			if (t.count < 10 && i % 4)
				continue;
			if (trial_reduces(t.kind))
				operators(t, me, g);
			else
				placements(t, me, g);
		}
}

/* More than fits a slot, and more than a ring. */
static void large(struct job_rank *me, struct gadget *g)
{
	static const struct {
		dicomm_datatype_t type;
		dicomm_redop_t op;
		size_t count;
	} calls[] = {{DICOMM_FLOAT32, DICOMM_AVG, 20001},
		     {DICOMM_FLOAT8E5M2, DICOMM_SUM, 70001},
		     {DICOMM_INT32, DICOMM_MAX, 150007}};
	struct trial t = {.kind = TRIAL_ALLREDUCE};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int c = 0; c < 3; c++) {
			t.kind = (enum trial_kind)k;
			t.type = calls[c].type;
			t.op = calls[c].op;
			t.count = calls[c].count;
			t.seed += 1000;
			placement(t, me, g, (k + c) % 3);
		}
}

START_TEST(small_messages_between_unlike_devices)
{
	struct cast cast = {.run = small};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, 4);
}
END_TEST

START_TEST(large_messages_between_unlike_devices)
{
	struct cast cast = {.run = large};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, 4);
}
END_TEST

/* Devices of one kind read each other's memory. */
static void alike(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (t.count = 5; t.count < 50000; t.count *= 90) {
			t.kind = (enum trial_kind)k;
			t.seed++;
			placement(t, me, g, (int)(t.seed % 3));
		}
	JOB_CHECK(!cast_staged(me->comm), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me->comm));
}

START_TEST(devices_of_one_kind_need_no_staging)
{
	const char *const kinds[][2] = {{"cuda:0", "cuda:1"},
					{"hip:0", "hip:1"}};

	for (int n = 1; n <= 4; n += 3)
		cast_play(&(struct cast){.device = {kinds[_i][0], kinds[_i][1],
						    kinds[_i][0], kinds[_i][0]},
					 .run = alike,
					 .staging = "never"},
			  n);
}
END_TEST

/* Each message is at least one copy that has to be started. */
static void slices(struct job_rank *me, struct gadget *g)
{
	static const struct {
		size_t bytes;
		uint64_t messages;
	} calls[] = {{16384, 1}, {65536, 4}, {8 << 20, 32}};
	dicomm_stats_t stats = {.size = sizeof(stats)};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		uint64_t before = stats.messages_sent;

		cast_trial((struct trial){.kind = TRIAL_SENDRECV,
					  .type = DICOMM_INT8,
					  .count = calls[i].bytes},
			   me, g);
		JOB_TRY(dicomm_comm_stats(me->comm, &stats));
		JOB_CHECK(stats.messages_sent - before == calls[i].messages,
			  "%zu bytes went in %llu messages", calls[i].bytes,
			  (unsigned long long)(stats.messages_sent - before));
	}
}

START_TEST(slices_between_devices_are_long)
{
	const char *const kinds[] = {"cuda:0", "hip:1"};

	if (cast_has(kinds[_i]))
		cast_play(&(struct cast){.device = {kinds[_i], kinds[_i]},
					 .run = slices},
			  2);
}
END_TEST

/* Folds in rank order, of more ranks than a kernel takes at once. */
static void folds(struct job_rank *me, struct gadget *g)
{
	const size_t counts[] = {1, 3, 501, 40000};

	for (int c = 0; c < 4; c++) {
		struct trial t = {.type = DICOMM_FLOAT16,
				  .op = DICOMM_AVG,
				  .count = counts[c],
				  .seed = (unsigned)c};

		t.kind = TRIAL_ALLREDUCE;
		placement(t, me, g, c % 3);
		t.kind = TRIAL_REDUCE_SCATTER;
		placement(t, me, g, (c + 1) % 3);
		t.kind = TRIAL_REDUCE;
		t.type = DICOMM_INT8;
		placement(t, me, g, (c + 2) % 3);
	}
}

START_TEST(devices_fold_in_rank_order)
{
	const int ranks[] = {1, 4, 10};
	struct cast cast = {.run = folds, .deterministic = 1};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, ranks[_i]);
}
END_TEST

/* ---- devices without kernels ---- */

/* Devices that take no image, with compilers that do not compile */
static void take_kernels(void)
{
	setenv("MOCK_IMAGES", "refused", 1);
	setenv("MOCK_COMPILER", "broken", 1);
}

/* Of all operations and types some, so that each meets each. */
static void without_kernels(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int i = k % 3; i < element_ntypes; i += 3) {
			t.kind = (enum trial_kind)k;
			t.type = element_types[i];
			t.count = i % 2 ? 300 : 30001;
			t.seed += 1000;
			if (trial_reduces(t.kind))
				operators(t, me, g);
			else
				placements(t, me, g);
		}
}

START_TEST(the_host_reduces_for_devices_without_kernels)
{
	struct cast cast = {.run = without_kernels};

	take_kernels();
	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, 4);
}
END_TEST

START_TEST(the_host_folds_for_devices_without_kernels)
{
	struct cast cast = {.run = folds, .deterministic = 1};

	take_kernels();
	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, 10);
}
END_TEST

/* Data still moves. */
static void refuses(struct job_rank *me, struct gadget *g)
{
	void *at = gadget_alloc(g, 40);

	JOB_REFUSED(dicomm_allreduce(at, at, 10, DICOMM_FLOAT32, DICOMM_SUM,
				     me->comm, g->native),
		    DICOMM_ERR_UNSUPPORTED, "has no kernels for type float32");
	gadget_free(g, at);
	cast_trial((struct trial){.kind = TRIAL_BROADCAST,
				  .type = DICOMM_FLOAT32,
				  .count = 1000},
		   me, g);
}

START_TEST(never_staged_such_devices_refuse_reductions)
{
	const char *const kinds[] = {"cuda", "hip"};
	char names[2][8];

	take_kernels();
	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "%s:%d", kinds[_i], i);
	cast_play(&(struct cast){.device = {names[0], names[1]},
				 .run = refuses,
				 .staging = "never"},
		  2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *tcase = tcase_create("devices");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, what_passes_through_host_memory_is_counted,
			    0, PAIRS);
	tcase_add_loop_test(
		tcase, a_host_shares_its_memory_with_devices_of_one_kind, 0, 2);
	tcase_add_test(tcase, a_host_has_to_share_where_nothing_is_staged);
	tcase_add_test(tcase,
		       memory_that_comes_late_is_read_in_place_the_next_time);
	tcase_add_test(tcase, small_messages_between_unlike_devices);
	tcase_add_test(tcase, large_messages_between_unlike_devices);
	tcase_add_loop_test(tcase, devices_of_one_kind_need_no_staging, 0, 2);
	tcase_add_loop_test(tcase, slices_between_devices_are_long, 0, 2);
	tcase_add_loop_test(tcase, devices_fold_in_rank_order, 0, 3);
	tcase_add_test(tcase, the_host_reduces_for_devices_without_kernels);
	tcase_add_test(tcase, the_host_folds_for_devices_without_kernels);
	tcase_add_loop_test(tcase, never_staged_such_devices_refuse_reductions,
			    0, 2);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
