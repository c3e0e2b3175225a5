/* SPDX-License-Identifier: BSD-3-Clause */
/* Results do not depend on where buffers lie: memory that neighbours map, that
 * they read by a system call, or that they cannot reach. */
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define NOBODY 65534

/* Which ranks have memory from dicomm_mem_alloc(). */
enum who { NONE, ALL, FIRST, LAST, ODD, WHO };

static bool has(enum who who, const struct job_rank *me)
{
	switch (who) {
	case ALL:
		return true;
	case FIRST:
		return me->rank == 0;
	case LAST:
		return me->rank == me->ranks - 1;
	case ODD:
		return me->rank % 2;
	default:
		return false;
	}
}

/* ---- every operation, every mixture, every way to reach memory ---- */

static const struct {
	const char *name;
	const char *env[3];
} ways[] = {
	{"default", {NULL}},
	{"copied", {"DICOMM_SHM_CMA=off"}},
	{"read", {"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA_THRESHOLD=1"}},
	{"read in large slices",
	 {"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA_THRESHOLD=1",
	  "DICOMM_SHM_SLOT_BYTES=2M"}},
	{"mapped", {"DICOMM_SHM_MAP_THRESHOLD=1", "DICOMM_SHM_CMA=off"}},
	{"both", {"DICOMM_SHM_MAP_THRESHOLD=256", "DICOMM_SHM_CMA=on"}},
	{"small slots", {"DICOMM_SHM_SLOTS=4", "DICOMM_SHM_SLOT_BYTES=4096"}},
	{"large slots", {"DICOMM_SHM_SLOTS=4", "DICOMM_SHM_SLOT_BYTES=2M"}},
};

/* The second ends in a slice that is too short for a reference. */
static const size_t counts[] = {2000, 24601, 70003};

static void mixtures(struct job_rank *me)
{
	struct trial t = {.type = DICOMM_FLOAT32, .op = DICOMM_SUM};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (int w = 0; w < WHO; w++) {
				if (job_is_short() && (k + w) % 5 != (int)c)
					continue;
				t.kind = (enum trial_kind)k;
				t.count = counts[c];
				t.seed++;
				t.root = (int)t.seed % me->ranks;
				t.shared = has((enum who)w, me);
				t.in_place = (t.seed >> me->rank) % 2;
				/* Blocks that begin on no line, on no page. */
				t.skew = t.seed % 3 ? 0 : 4;
				t.op = t.seed % 4 ? DICOMM_SUM : DICOMM_AVG;
				trial_run(t, me);
			}
}

START_TEST(any_mixture_of_memory_gives_the_same_result)
{
	struct job job = {.run = mixtures};

	memcpy(job.env, ways[_i].env, sizeof(ways[_i].env));
	for (job.ranks = 2; job.ranks <= 4; job.ranks++) {
		job.threads = job.ranks == 4;
		job_run(&job);
	}
}
END_TEST

/* The second time the call is prepared, and may need no engine. */
static void run_twice(struct trial *t, struct job_rank *me)
{
	trial_fill(t, me);
	JOB_TRY(trial_call(t, NULL));
	trial_check(t);
	trial_refill(t, ++t->seed);
	JOB_TRY(trial_call(t, NULL));
	trial_check(t);
	trial_free(t);
}

/* So many that some plans are too long to run slice by slice: of an all-reduce,
 * those of all but two ranks. */
static void seventeen(struct job_rank *me)
{
	struct trial t = {.type = DICOMM_FLOAT32, .op = DICOMM_SUM};

	for (int k = 0; k < 2; k++)
		for (int w = 0; w < WHO; w++) {
			t.kind = k ? TRIAL_ALLGATHER : TRIAL_ALLREDUCE;
			t.count = 50003;
			t.shared = has((enum who)w, me);
			t.in_place = k && me->rank % 3 == 0;
			run_twice(&t, me);
		}
}

START_TEST(ranks_with_long_plans_hold_up_nobody)
{
	job_run(&(struct job){
		.run = seventeen,
		.ranks = 17,
		.threads = true,
		.env = {"DICOMM_ALGO=allreduce:direct;"
			"allgather:direct",
			"DICOMM_TRANSPORTS=shm", "DICOMM_SHM_CMA=off",
			"DICOMM_SHM_SLOTS=4", "DICOMM_SHM_SLOT_BYTES=4096"}});
}
END_TEST

static void fill(void *at, size_t bytes, int rank, int i)
{
	memset(at, 1 + (rank * 7 + i) % 250, bytes);
}

static void check_filled(const uint8_t *at, size_t bytes, int rank, int i)
{
	uint8_t want = (uint8_t)(1 + (rank * 7 + i) % 250);

	for (size_t b = 0; b < bytes; b++)
		JOB_CHECK(at[b] == want,
			  "round %d: byte %zu of rank %d: %d instead of %d", i,
			  b, rank, at[b], want);
}

/* ---- ways that work at init and fail when they are used ---- */

/* Other processes of this user may not read this one any more, nor open what it
 * has open. */
static void close_to_others(bool closed)
{
	JOB_CHECK(!prctl(PR_SET_DUMPABLE, !closed, 0, 0, 0), "dumpable: %s",
		  strerror(errno));
}

static void give_up_privileges(struct job_rank *by)
{
	struct job_rank mine = *by, *me = &mine;
	bool used_before = me->arg != NULL;
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	/* Whoever may read any process would notice nothing. */
	if (!geteuid())
		JOB_CHECK(!setresuid(NOBODY, NOBODY, NOBODY), "setresuid: %s",
			  strerror(errno));
	close_to_others(false);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	if (used_before)
		trial_run((struct trial){.kind = TRIAL_ALLTOALL,
					 .type = DICOMM_INT32,
					 .count = 70003},
			  me);
	job_barrier();
	close_to_others(true);
	job_barrier();
	for (int i = 0; i < 3 * TRIAL_KINDS; i++) {
		t.kind = (enum trial_kind)(i % TRIAL_KINDS);
		t.count = counts[i % 3];
		t.shared = i % 2;
		t.seed++;
		t.root = i % me->ranks;
		trial_run(t, me);
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
}

START_TEST(who_gives_up_privileges_stays_in_reach)
{
	struct job job = {
		.run = give_up_privileges,
		.arg = _i % 2 ? "" : NULL,
		.ranks = 2 + _i / 2,
		.bare = true,
		.env = {"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA_THRESHOLD=1",
			"DICOMM_SHM_MAP_THRESHOLD=1", "DICOMM_TRANSPORTS=shm"}};

	job_run(&job);
}
END_TEST

/* The kernel shows it to no other process. */
static void *secret_memory(size_t bytes)
{
	const struct rlimit locked = {RLIM_INFINITY, RLIM_INFINITY};
	void *memory = NULL;
#ifdef SYS_memfd_secret
	int fd = (int)syscall(SYS_memfd_secret, 0);

	setrlimit(RLIMIT_MEMLOCK, &locked);
	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			      fd, 0);
	if (fd >= 0)
		close(fd);
#endif
	(void)locked;
	return memory == MAP_FAILED ? NULL : memory;
}

static void secrets(struct job_rank *me)
{
	const size_t n = 300000, bytes = n * sizeof(int32_t);
	int next = (me->rank + 1) % me->ranks;
	int prev = (me->rank + me->ranks - 1) % me->ranks;
	int32_t *in = secret_memory(bytes), *out = secret_memory(bytes);
	int32_t got = in && out, all;

	JOB_TRY(dicomm_allreduce(&got, &all, 1, DICOMM_INT32, DICOMM_MIN,
				 me->comm, NULL));
	if (!all)
		return;
	for (size_t i = 0; i < n; i++)
		in[i] = (int32_t)i * (me->rank + 1);
	JOB_TRY(dicomm_allreduce(in, out, n, DICOMM_INT32, DICOMM_SUM, me->comm,
				 NULL));
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(out[i] ==
				  (int32_t)i * me->ranks * (me->ranks + 1) / 2,
			  "element %zu is %d", i, out[i]);
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_send(in, n, DICOMM_INT32, next, me->comm, NULL));
	JOB_TRY(dicomm_recv(out, n, DICOMM_INT32, prev, me->comm, NULL));
	JOB_TRY(dicomm_group_end());
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(out[i] == (int32_t)i * (prev + 1),
			  "element %zu of rank %d is %d", i, prev, out[i]);
}

/* The warning is for the first time only. */
START_TEST(memory_that_the_kernel_hides_is_sent_all_the_same)
{
	job_run(&(struct job){.run = secrets,
			      .ranks = 2 + _i,
			      .env = {"DICOMM_SHM_CMA=on",
				      "DICOMM_SHM_CMA_THRESHOLD=1",
				      "DICOMM_TRANSPORTS=shm"}});
}
END_TEST

/* ---- repeated calls, which need no engine ---- */

/* The same call again and again, with buffers of another mixture each time: who
 * takes the short way meets who does not. */
static void repeats(struct job_rank *me)
{
	struct trial t = {.type = DICOMM_FLOAT32, .op = DICOMM_SUM};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int w = 0; w <= FIRST; w++) {
			t.kind = (enum trial_kind)k;
			/* The former: longer than what is taken at a time. */
			t.count = k == TRIAL_ALLREDUCE ? 270007 : 24601;
			t.shared = has((enum who)w, me);
			run_twice(&t, me);
		}
}

START_TEST(any_mixture_of_memory_is_used_again)
{
	struct job job = {.run = repeats,
			  .ranks = 2 + _i % 2,
			  .threads = _i == 3,
			  .env = {"DICOMM_ALGO=allreduce:direct;"
				  "reduce_scatter:direct;broadcast:direct"}};

	memcpy(job.env + 1, ways[_i].env, sizeof(ways[_i].env));
	job_run(&job);
}
END_TEST

static dicomm_stats_t stats_of(dicomm_comm_t comm)
{
	dicomm_stats_t s = {.size = sizeof(s)};

	JOB_TRY(dicomm_comm_stats(comm, &s));
	return s;
}

/* Rank 0 sends, rank 1 receives. What is mapped is one message, however long;
 * of what is not, the length decides. */
static void transfer(struct job_rank *me, uint8_t *at, size_t bytes,
		     bool mapped)
{
	for (int i = 0; i < 3; i++) {
		dicomm_stats_t before = stats_of(me->comm), after;

		fill(at, bytes, me->rank, i);
		if (me->rank == 0)
			JOB_TRY(dicomm_send(at, bytes, DICOMM_UINT8, 1,
					    me->comm, NULL));
		else
			JOB_TRY(dicomm_recv(at, bytes, DICOMM_UINT8, 0,
					    me->comm, NULL));
		check_filled(at, bytes, 0, i);
		after = stats_of(me->comm);
		JOB_CHECK(after.bytes_sent - before.bytes_sent +
					  after.bytes_received -
					  before.bytes_received ==
				  bytes,
			  "%zu bytes: %d sent, %d received", bytes,
			  (int)(after.bytes_sent - before.bytes_sent),
			  (int)(after.bytes_received - before.bytes_received));
		if (!mapped || !i || !me->rank)
			continue;
		JOB_CHECK(after.messages_received ==
					  before.messages_received + 1 &&
				  after.bytes_mapped ==
					  before.bytes_mapped + bytes,
			  "%zu bytes: %d messages, %d bytes mapped", bytes,
			  (int)(after.messages_received -
				before.messages_received),
			  (int)(after.bytes_mapped - before.bytes_mapped));
	}
}

static void transfers(struct job_rank *me)
{
	const size_t sizes[] = {4096, 16384, 65541, 1200007};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		void *own = malloc(sizes[i]), *mapped;

		JOB_CHECK(own, "out of memory");
		JOB_TRY(dicomm_mem_alloc(&mapped, sizes[i]));
		transfer(me, mapped, sizes[i], true);
		transfer(me, own, sizes[i], false);
		transfer(me, me->rank ? own : mapped, sizes[i], true);
		transfer(me, me->rank ? mapped : own, sizes[i], false);
		JOB_TRY(dicomm_mem_free(mapped));
		free(own);
	}
}

START_TEST(transfers_are_one_message_where_memory_is_mapped)
{
	struct job job = {.run = transfers,
			  .ranks = 2,
			  .threads = _i == 3,
			  .env = {"DICOMM_TRANSPORTS=shm"}};

	if (_i < 3)
		memcpy(job.env + 1, ways[_i].env, sizeof(ways[_i].env));
	job_run(&job);
}
END_TEST

/* ---- what neighbours remember of memory that is gone ---- */

#define BYTES ((size_t)256 << 10)

static void gather_and_check(struct job_rank *me, const void *mine,
			     uint8_t *all, size_t bytes, int i)
{
	JOB_TRY(dicomm_allgather(mine, all, bytes, DICOMM_UINT8, me->comm,
				 NULL));
	for (int r = 0; r < me->ranks; r++)
		check_filled(all + (size_t)r * bytes, bytes, r, i);
}

/* Where `before` was, if the system can be talked into it. */
static void *allocate_at(void *before, size_t bytes)
{
	void *tries[16], *at = NULL;
	int n = 0;

	while (n < 16 && !at) {
		JOB_TRY(dicomm_mem_alloc(&tries[n], bytes));
		if (tries[n] == before || !before)
			at = tries[n];
		n++;
	}
	if (!at)
		at = tries[n - 1];
	for (int i = 0; i < n - 1; i++)
		JOB_TRY(dicomm_mem_free(tries[i]));
	return at;
}

/* The same address, with other pages, another length, or no pages at all that
 * a neighbour could map. */
static void reallocated(struct job_rank *me)
{
	uint8_t *all = malloc(BYTES * (size_t)me->ranks);
	void *at, *before = NULL;
	int same = 0;

	JOB_CHECK(all, "out of memory");
	for (int i = 0; i < 120; i++) {
		size_t bytes = i % 3 ? BYTES : BYTES / 2;

		at = allocate_at(before, bytes);
		same += at == before;
		before = at;
		fill(at, bytes, me->rank, i);
		gather_and_check(me, at, all, bytes, i);
		JOB_TRY(dicomm_mem_free(at));
		if (i % 4)
			continue;
		at = mmap(before, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			  0);
		JOB_CHECK(at == before, "the address of freed memory is taken");
		fill(at, bytes, me->rank, i + 100);
		gather_and_check(me, at, all, bytes, i + 100);
		munmap(at, bytes);
	}
	/* Else this proves nothing. */
	JOB_CHECK(same > 10 || job_is_sanitized(),
		  "only %d of 120 allocations lay where one before had", same);
	free(all);
}

START_TEST(freed_memory_is_never_read)
{
	struct job job = {.run = reallocated, .ranks = 2 + _i % 2};

	memcpy(job.env, ways[_i / 2].env, sizeof(ways[_i / 2].env));
	job_run(&job);
}
END_TEST

static int lines_of_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int lines = 0, c;

	JOB_CHECK(f, "/proc/self/maps: %m");
	while ((c = getc(f)) != EOF)
		lines += c == '\n';
	fclose(f);
	return lines;
}

/* Neighbours let go of what has been freed, if not all of it at once: 500
 * buffers, each mapped by two of them, would show. */
static void mappings(struct job_rank *me)
{
	uint8_t *all = malloc(BYTES * (size_t)me->ranks);
	void *at;
	int before = 0, now;

	JOB_CHECK(all, "out of memory");
	for (int i = 0; i < 600; i++) {
		if (i == 100)
			before = lines_of_maps();
		JOB_TRY(dicomm_mem_alloc(&at, BYTES));
		fill(at, BYTES, me->rank, i);
		if (i % 2)
			gather_and_check(me, at, all, BYTES, i);
		JOB_TRY(dicomm_mem_free(at));
	}
	now = lines_of_maps();
	JOB_CHECK(now <= before + 150,
		  "%d mappings after 100 rounds, %d after "
		  "600",
		  before, now);
	free(all);
}

START_TEST(mappings_do_not_pile_up)
{
	job_run(&(struct job){.run = mappings, .ranks = 3});
}
END_TEST

/* More buffers alive than anybody keeps mappings of, used in turn. */
#define MANY 300
static void many(struct job_rank *me)
{
	size_t bytes = 16384;
	uint8_t *all = malloc(bytes * (size_t)me->ranks);
	void *at[MANY];

	JOB_CHECK(all, "out of memory");
	for (int i = 0; i < MANY; i++)
		JOB_TRY(dicomm_mem_alloc(&at[i], bytes));
	for (int i = 0; i < 3 * MANY; i++) {
		void *now = at[i * 7 % MANY];

		fill(now, bytes, me->rank, i);
		gather_and_check(me, now, all, bytes, i);
	}
	for (int i = 0; i < MANY; i++)
		JOB_TRY(dicomm_mem_free(at[i]));
	free(all);
}

START_TEST(many_buffers_are_used_in_turn)
{
	job_run(&(struct job){.run = many, .ranks = 2});
}
END_TEST

/* One allocation, many buffers: each operation takes another part of it. */
static void parts(struct job_rank *me)
{
	size_t room = (size_t)4 << 20, n = (size_t)me->ranks;
	uint8_t *at;
	void *memory;

	JOB_TRY(dicomm_mem_alloc(&memory, room));
	at = memory;
	for (size_t b = 0; b < room; b++)
		JOB_CHECK(!at[b], "byte %zu of new memory is %d", b, at[b]);
	for (int i = 0; i < 60; i++) {
		size_t bytes = 1 + (size_t)i * 5003;
		size_t from = (size_t)i * 977;
		uint8_t *all = at + room - n * bytes - (size_t)i * 13;

		fill(at + from, bytes, me->rank, i);
		gather_and_check(me, at + from, all, bytes, i);
	}
	JOB_TRY(dicomm_mem_free(memory));
}

START_TEST(parts_of_an_allocation_are_buffers)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = parts, .ranks = n});
}
END_TEST

/* ---- calls ---- */

static void registered(struct job_rank *me)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT64,
			  .op = DICOMM_SUM,
			  .count = 50000};
	void *whole, *part, *other;

	for (int i = 0; i < 10; i++) {
		t.shared = i % 3 == me->rank;
		trial_fill(&t, me);
		JOB_TRY(dicomm_comm_register(me->comm, t.send.memory,
					     t.send.bytes, &whole));
		JOB_TRY(dicomm_comm_register(me->comm, t.send.at, 4096, &part));
		JOB_TRY(trial_call(&t, NULL));
		trial_check(&t);
		JOB_TRY(dicomm_comm_deregister(me->comm, part));
		JOB_TRY(dicomm_comm_register(me->comm, t.send.at, 1, &other));
		trial_refill(&t, (unsigned)i + 100);
		JOB_TRY(trial_call(&t, NULL));
		trial_check(&t);
		JOB_TRY(dicomm_comm_deregister(me->comm, whole));
		JOB_TRY(dicomm_comm_deregister(me->comm, other));
		trial_free(&t);
	}
}

START_TEST(registered_buffers_work_like_others)
{
	job_run(&(struct job){.run = registered, .ranks = 3});
}
END_TEST

static void refused(struct job_rank *me)
{
	dicomm_comm_t other;
	void *later;
	void *memory, *handle;
	char local[64];

	JOB_REFUSED(dicomm_mem_alloc(NULL, 1), DICOMM_ERR_INVALID_ARGUMENT,
		    "ptr is NULL");
	JOB_REFUSED(dicomm_mem_alloc(&memory, SIZE_MAX),
		    DICOMM_ERR_INVALID_ARGUMENT, "18446744073709551615");
	JOB_TRY(dicomm_mem_alloc(&memory, 0));
	JOB_CHECK(!memory, "0 bytes gave %p", memory);
	JOB_TRY(dicomm_mem_free(NULL));
	JOB_REFUSED(dicomm_mem_free(local), DICOMM_ERR_INVALID_ARGUMENT,
		    "not from mem_alloc");
	JOB_TRY(dicomm_mem_alloc(&memory, 10000));
	JOB_REFUSED(dicomm_mem_free((char *)memory + 8192),
		    DICOMM_ERR_INVALID_ARGUMENT, "");
	JOB_TRY(dicomm_mem_free(memory));
	JOB_REFUSED(dicomm_mem_free(memory), DICOMM_ERR_INVALID_ARGUMENT,
		    "not from mem_alloc");

	JOB_REFUSED(dicomm_comm_register(me->comm, NULL, 1, &handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "buff is NULL");
	JOB_REFUSED(dicomm_comm_register(me->comm, local, 0, &handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "size is 0");
	JOB_REFUSED(dicomm_comm_register(me->comm, local, 1, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "handle is NULL");
	JOB_REFUSED(dicomm_comm_register(NULL, local, 1, &handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "comm is NULL");
	JOB_REFUSED(dicomm_comm_deregister(me->comm, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "handle");
	JOB_REFUSED(dicomm_comm_deregister(NULL, local),
		    DICOMM_ERR_INVALID_ARGUMENT, "comm");
	JOB_REFUSED(dicomm_comm_register(me->comm, local, SIZE_MAX, &handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "18446744073709551615");
	/* No handle, a stale one, and one of another communicator */
	JOB_REFUSED(dicomm_comm_deregister(me->comm, (void *)0x1234),
		    DICOMM_ERR_INVALID_ARGUMENT, "handle 0x1234");
	JOB_TRY(dicomm_comm_register(me->comm, local, 1, &handle));
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	JOB_TRY(dicomm_comm_register(me->comm, local, 1, &later));
	JOB_REFUSED(dicomm_comm_deregister(me->comm, handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "was deregistered");
	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
	JOB_REFUSED(dicomm_comm_deregister(other, later),
		    DICOMM_ERR_INVALID_ARGUMENT, "not of this communicator");
	/* The end of a communicator takes back what is registered. */
	JOB_TRY(dicomm_comm_register(other, local, 1, &handle));
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_REFUSED(dicomm_comm_deregister(other, handle),
		    DICOMM_ERR_INVALID_ARGUMENT, "not a communicator");
	JOB_TRY(dicomm_comm_deregister(me->comm, later));
	trial_run((struct trial){.kind = TRIAL_ALLREDUCE, .count = 10}, me);
}

START_TEST(bad_memory_is_refused)
{
	job_run(&(struct job){.run = refused, .ranks = 2});
}
END_TEST

int main(void)
{
	/* They are ways of shared memory. */
	int nways = job_is_short() ? 1 : sizeof(ways) / sizeof(*ways);
	Suite *suite = suite_create("memory");
	TCase *tcase = tcase_create("memory");
	TCase *repeated = tcase_create("repeated");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, any_mixture_of_memory_gives_the_same_result,
			    0, nways);
	if (!job_is_short())
		tcase_add_test(tcase, ranks_with_long_plans_hold_up_nobody);
	tcase_add_loop_test(tcase, who_gives_up_privileges_stays_in_reach, 0,
			    4);
	tcase_add_loop_test(
		tcase, memory_that_the_kernel_hides_is_sent_all_the_same, 0, 2);
	tcase_add_loop_test(tcase, freed_memory_is_never_read, 0, 2 * nways);
	if (!job_is_short())
		tcase_add_test(tcase, mappings_do_not_pile_up);
	tcase_add_test(tcase, many_buffers_are_used_in_turn);
	tcase_add_test(tcase, parts_of_an_allocation_are_buffers);
	tcase_add_test(tcase, registered_buffers_work_like_others);
	tcase_add_test(tcase, bad_memory_is_refused);
	suite_add_tcase(suite, tcase);

	tcase_set_timeout(repeated, 100);
	tcase_add_loop_test(repeated, any_mixture_of_memory_is_used_again, 0,
			    nways < 4 ? nways : 4);
	if (!job_is_short())
		tcase_add_loop_test(
			repeated,
			transfers_are_one_message_where_memory_is_mapped, 0, 4);
	suite_add_tcase(suite, repeated);
	return runner_main(suite);
}
