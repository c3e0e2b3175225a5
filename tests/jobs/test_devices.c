/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on unlike devices in one communicator. Of these, PoCL's is a real one,
 * whose kernels run on the processor; CUDA's, HIP's and Level Zero's are mocks,
 * and what passes here says nothing about a GPU.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/image.h"
#include "src/device/device.h"
#include "tests/support/cast.h"
#include "tests/support/gpu.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

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

/* Of mocks */
#define KINDS 3

/* ---- the bytes that are staged ---- */

static const struct couple {
	const char *a, *b;
	uint64_t staged[2]; /* of what each of them receives */
	bool shared;        /* host memory is of dicomm_mem_alloc() */
} couples[] = {
	{"host", "cuda:0", {0, 4000}, false},
	{"host", "cuda:0", {0, 0}, true},
	{"hip:1", "host", {4000, 0}, false},
	{"hip:1", "host", {0, 0}, true},
	{"cuda:0", "hip:0", {4000, 4000}, false},
	{"opencl:0", "hip:0", {4000, 4000}, false},
	{"cuda:0", "cuda:1", {0, 0}, false},
	{"cuda:0", "cuda:0", {0, 0}, false},
	{"hip:1", "hip:0", {0, 0}, false},
	{"ze:0", "ze:1", {0, 0}, false},
	{"ze:0", "cuda:0", {4000, 4000}, false},
	{"ze:1", "host", {0, 0}, true},
	{"opencl:0", "host", {0, 0}, false},
	{"opencl:0", "opencl:0", {0, 0}, false},
	{"host", "host", {0, 0}, false},
};
#define COUPLES ((int)(sizeof(couples) / sizeof(*couples)))

static void sum(struct job_rank *me, struct gadget *g)
{
	const struct couple *p = me->arg;

	together((struct trial){.kind = TRIAL_ALLREDUCE,
				.type = DICOMM_FLOAT32,
				.op = DICOMM_SUM,
				.count = 1000,
				.shared = p->shared},
		 me, g);
	JOB_CHECK(cast_staged(me) == p->staged[me->rank],
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

/* Of two ranks, each receives the other's input once. */
START_TEST(what_passes_through_host_memory_is_counted)
{
	struct cast cast = {.device = {couples[_i].a, couples[_i].b},
			    .run = sum,
			    .arg = &couples[_i]};

	if (cast_has(couples[_i].a) && cast_has(couples[_i].b))
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
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

START_TEST(a_host_shares_its_memory_with_devices_of_one_kind)
{
	const char *const kinds[KINDS][2] = {
		{"cuda:0", "cuda:1"}, {"hip:0", "hip:1"}, {"ze:0", "ze:1"}};

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

/* What a device writes for a host is copied by it, or reduced where it is: both
 * are told, neither is staged, and so nothing is refused. */
static const struct taking {
	enum trial_kind kind;
	uint64_t landed, mapped; /* of what the host receives */
} takings[] = {
	{TRIAL_BROADCAST, 4000, 0},
	{TRIAL_SENDRECV, 4000, 0},
	{TRIAL_REDUCE, 0, 4000},
	{TRIAL_ALLTOALL, 4000, 0},
};

static void take(struct job_rank *me, struct gadget *g)
{
	const struct taking *t = me->arg;
	dicomm_stats_t stats = {.size = sizeof(stats)};
	char text[1024];

	together((struct trial){.kind = t->kind,
				.type = DICOMM_FLOAT32,
				.op = DICOMM_SUM,
				.count = 1000,
				.root = t->kind == TRIAL_BROADCAST,
				.shared = true},
		 me, g);
	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	JOB_CHECK(!stats.bytes_staged &&
			  stats.bytes_direct == stats.bytes_received,
		  "%d bytes were staged", (int)stats.bytes_staged);
	JOB_CHECK(me->rank || (stats.bytes_landed == t->landed &&
			       stats.bytes_mapped == t->mapped),
		  "%d bytes landed, %d were read in place",
		  (int)stats.bytes_landed, (int)stats.bytes_mapped);
	JOB_CHECK(!me->rank || !(stats.bytes_landed + stats.bytes_mapped),
		  "%d bytes landed on a device", (int)stats.bytes_landed);
	JOB_TRY(dicomm_comm_explain(me->comm, "broadcast", 4000, DICOMM_INT8,
				    text, sizeof(text)));
	JOB_CHECK(strstr(text, "mapped, the host copies or reduces what"), "%s",
		  text);
}

START_TEST(what_a_host_takes_in_is_told_and_not_staged)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"host", "cuda:0"},
					 .run = take,
					 .arg = &takings[_i],
					 .staging = _i % 2 ? "auto" : "never"},
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
	JOB_CHECK(cast_staged(me) == (g->accel->work ? 5000 : 0),
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
	trial_refill(&t, 5);
	JOB_TRY(trial_call(&t, g->native));
	trial_check(&t);
	JOB_CHECK(cast_staged(me) == (g->accel->work ? 5000 : 0),
		  "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
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

	gadget_delay(g, 50);
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

/* Some of each operation, type and operator */
static void some(const struct job_rank *me, struct gadget *g)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int i = k % 3; i < element_ntypes; i += 3) {
			t.kind = (enum trial_kind)k;
			t.type = element_types[i];
			t.count = i % 2 ? 40 : 9001;
			t.seed += 1000;
			t.op = element_ops[(k + i) % element_nops];
			if (!element_op_fits(t.op, t.type))
				t.op = DICOMM_AVG;
			placement(t, me, g, (k + i) % TRIAL_PLACES);
		}
}

/* Both halves have all kinds of device, in the other order. */
static void halves(struct job_rank *me, struct gadget *g)
{
	struct job_rank part = *me;

	JOB_TRY(dicomm_comm_split(me->comm, me->rank % 2, -me->rank, &part.comm,
				  NULL));
	JOB_TRY(dicomm_comm_user_rank(part.comm, &part.rank));
	JOB_TRY(dicomm_comm_count(part.comm, &part.ranks));
	JOB_CHECK(part.ranks == CAST_DEVICES &&
			  part.rank == CAST_DEVICES - 1 - me->rank / 2,
		  "rank %d of %d", part.rank, part.ranks);
	some(&part, g);
	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE, .count = 1000}, me,
		   g);
	JOB_TRY(dicomm_comm_destroy(part.comm));
	some(me, g);
}

START_TEST(parts_of_unlike_devices)
{
	struct cast cast = {.run = halves};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, 2 * CAST_DEVICES);
}
END_TEST

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

	gadget_delay(g, 50);
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
	cast_play(&cast, CAST_DEVICES);
}
END_TEST

START_TEST(large_messages_between_unlike_devices)
{
	struct cast cast = {.run = large};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, CAST_DEVICES);
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
	JOB_CHECK(!cast_staged(me), "%llu bytes were staged",
		  (unsigned long long)cast_staged(me));
}

START_TEST(devices_of_one_kind_need_no_staging)
{
	const char *const kinds[KINDS][2] = {
		{"cuda:0", "cuda:1"}, {"hip:0", "hip:1"}, {"ze:0", "ze:1"}};

	for (int n = 1; n <= 4; n += 3)
		cast_play(&(struct cast){.device = {kinds[_i][0], kinds[_i][1],
						    kinds[_i][0], kinds[_i][0]},
					 .run = alike,
					 .staging = "never"},
			  n);
}
END_TEST

/* ---- ranks that do not end together ---- */

static void alone(struct job_rank *me, struct gadget *g)
{
	const char *how = me->arg;
	const uint8_t *stages = me->comm->dev->exported;
	struct accel_owner owner;

	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE, .count = 1000}, me,
		   g);
	job_barrier();
	if (me->rank == 0) {
		if (!strcmp(how, "aborts"))
			JOB_TRY(dicomm_comm_abort(me->comm));
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
		JOB_CHECK(g->accel->work->owner(stages, &owner),
			  "what rank 1 maps is not there any more");
	}
	job_barrier();
}

/* What a rank has left behind is freed when its neighbour has let go. */
START_TEST(memory_stays_until_neighbours_have_let_go)
{
	const char *const kinds[] = {"cuda:0", "hip:1"};

	if (cast_has(kinds[_i]))
		cast_play(&(struct cast){.device = {kinds[_i], kinds[_i]},
					 .run = alone,
					 .arg = _i ? "aborts" : "leaves"},
			  2);
}
END_TEST

/* The dead hold nothing. */
static void bereaved(struct job_rank *me, struct gadget *g)
{
	const uint8_t *stages = me->comm->dev->exported;
	struct accel_owner owner;

	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE, .count = 1000}, me,
		   g);
	job_barrier();
	if (me->rank == 1)
		raise(SIGKILL);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	JOB_CHECK(!g->accel->work->owner(stages, &owner),
		  "what rank 1 mapped is still there");
	JOB_CHECK(!gadget_early(g), "it was freed too early");
	job_exit();
}

START_TEST(memory_does_not_stay_for_the_dead)
{
	if (cast_has("cuda:0"))
		cast_play(&(struct cast){.device = {"cuda:0", "cuda:0"},
					 .run = bereaved,
					 .may_die = 1 << 1},
			  2);
}
END_TEST

/* In one process nobody reads stages, and one thread ends both: it does not
 * wait for itself. */
static void in_one_process(struct job_rank *me)
{
	const char *const names[] = {me->arg, me->arg};
	dicomm_comm_t comms[2];
	struct gadget g;
	double begin;
	uint8_t *stages[2];
	struct accel_owner owner;

	gadget_open(&g, me->arg);
	JOB_TRY(dicomm_comm_init_all(comms, 2, names));
	begin = job_seconds();
	for (int i = 0; i < 2; i++) {
		stages[i] = comms[i]->dev->exported;
		JOB_TRY(dicomm_comm_destroy(comms[i]));
		JOB_CHECK(!g.accel->work->owner(stages[i], &owner),
			  "what nobody reads is still there");
	}
	JOB_CHECK(job_seconds() - begin < 1.9 + starved_s(),
		  "it waited for itself");
	gadget_close(&g);
	JOB_CHECK(!gadget_live(&g), "%d things of the driver were not freed",
		  gadget_live(&g));
}

START_TEST(memory_does_not_stay_for_ranks_of_the_same_process)
{
	if (cast_has("cuda:0"))
		job_run(&(struct job){.run = in_one_process,
				      .arg = "cuda:0",
				      .ranks = 1,
				      .bare = true});
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
	const int ranks[] = {1, CAST_DEVICES, 10};
	struct cast cast = {.run = folds, .deterministic = 1};

	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, ranks[_i]);
}
END_TEST

/* ---- devices without kernels ---- */

/* Mocks that take no image, with compilers that do not compile */
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
	cast_play(&cast, CAST_DEVICES);
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
	const char *const kinds[KINDS] = {"cuda", "hip", "ze"};
	char names[2][8];

	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "%s:%d", kinds[_i], i);
	if (gpu_is_wanted(names[0])) {
		printf("%s: has kernels\n", names[0]);
		return;
	}
	take_kernels();
	cast_play(&(struct cast){.device = {names[0], names[1]},
				 .run = refuses,
				 .staging = "never"},
		  2);
}
END_TEST

/* What one rank reduces by itself does not need the kernels of another. */
static void refuses_alone(struct job_rank *me, struct gadget *g)
{
	uint8_t *at;

	if (!g->accel->work) {
		cast_trial((struct trial){.kind = TRIAL_REDUCE_LOCAL,
					  .type = DICOMM_FLOAT32,
					  .count = 1000},
			   me, g);
		return;
	}
	at = gadget_alloc(g, 40);
	JOB_REFUSED(dicomm_reduce_local(at, at + 20, 5, DICOMM_FLOAT32,
					DICOMM_SUM, me->comm, g->native),
		    DICOMM_ERR_UNSUPPORTED,
		    "rank 1 (cuda:0) has no kernels for type float32");
	gadget_free(g, at);
}

START_TEST(each_rank_reduces_alone_what_it_can)
{
	if (gpu_is_wanted("cuda:0")) {
		printf("cuda:0: has kernels\n");
		return;
	}
	take_kernels();
	cast_play(&(struct cast){.device = {"host", "cuda:0"},
				 .run = refuses_alone,
				 .staging = "never"},
		  2);
}
END_TEST

/* ---- drivers that offer less ---- */

/* Those between have an older form of waits for memory, or no dma-bufs; the old
 * ones hold streams by host functions, of HIP by callbacks. */
static const struct lesser {
	const char *drivers;
	bool waits;
} lessers[] = {{"between", true}, {"old", false}};

static void hold_streams(struct job_rank *me, struct gadget *g)
{
	const struct lesser *l = me->arg;
	bool gpu = !strncmp(g->name, "cuda", 4) || !strncmp(g->name, "hip", 3);
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};
	int before = gadget_waits(g), waits;

	gadget_delay(g, 100);
	for (int k = 0; k < TRIAL_KINDS; k++)
		for (t.count = 300; t.count < 50000; t.count *= 70) {
			t.kind = (enum trial_kind)k;
			t.seed++;
			placement(t, me, g, (int)(t.seed % 3));
		}
	waits = gadget_waits(g) - before;
	JOB_CHECK(!gpu || (waits > 0) == l->waits,
		  "%s: %d waits for memory with %s drivers", g->name, waits,
		  l->drivers);
}

START_TEST(unlike_devices_of_drivers_that_offer_less)
{
	struct cast cast = {.run = hold_streams, .arg = &lessers[_i]};

	/* The old mocks have no compiler. */
	if (!image_find("ptx_i32") || !image_find("gfx90a")) {
		printf("this build has no kernels for the mocks\n");
		return;
	}
	setenv("MOCK_DRIVERS", lessers[_i].drivers, 1);
	memcpy(cast.device, cast_unlike, sizeof(cast_unlike));
	cast_play(&cast, CAST_DEVICES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *tcase = tcase_create("devices");

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, what_passes_through_host_memory_is_counted,
			    0, COUPLES);
	tcase_add_loop_test(tcase,
			    a_host_shares_its_memory_with_devices_of_one_kind,
			    0, KINDS);
	tcase_add_loop_test(tcase, what_a_host_takes_in_is_told_and_not_staged,
			    0, (int)(sizeof(takings) / sizeof(*takings)));
	tcase_add_test(tcase, a_host_has_to_share_where_nothing_is_staged);
	tcase_add_test(tcase,
		       memory_that_comes_late_is_read_in_place_the_next_time);
	tcase_add_test(tcase, small_messages_between_unlike_devices);
	tcase_add_test(tcase, large_messages_between_unlike_devices);
	tcase_add_test(tcase, parts_of_unlike_devices);
	tcase_add_loop_test(tcase, devices_of_one_kind_need_no_staging, 0,
			    KINDS);
	tcase_add_loop_test(tcase, memory_stays_until_neighbours_have_let_go, 0,
			    2);
	tcase_add_test(tcase, memory_does_not_stay_for_the_dead);
	tcase_add_test(tcase,
		       memory_does_not_stay_for_ranks_of_the_same_process);
	tcase_add_loop_test(tcase, slices_between_devices_are_long, 0, 2);
	tcase_add_loop_test(tcase, devices_fold_in_rank_order, 0, 3);
	tcase_add_test(tcase, the_host_reduces_for_devices_without_kernels);
	tcase_add_test(tcase, the_host_folds_for_devices_without_kernels);
	tcase_add_loop_test(tcase, never_staged_such_devices_refuse_reductions,
			    0, KINDS);
	tcase_add_test(tcase, each_rank_reduces_alone_what_it_can);
	tcase_add_loop_test(tcase, unlike_devices_of_drivers_that_offer_less, 0,
			    (int)(sizeof(lessers) / sizeof(*lessers)));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
