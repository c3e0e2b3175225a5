/* SPDX-License-Identifier: BSD-3-Clause */
/* What only shared memory does; the rest is in test_conformance.c. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/runner.h"
#include "tests/transports/ranks.h"
#include "transports/shm/address.h"
#include "transports/shm/cma.h"
#include "transports/shm/measure.h"
#include "transports/shm/segment.h"
#include "tests/support/starved.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define LARGE (1u << 20)
/* poll() looks at what neighbours have freed once in so many calls. */
#define POLLS 2048

static const struct transport *shm;

/* The settings are read once per process, so a test that needs others sets
 * them first; in one process with other tests that may be too late. */
static void setup(void)
{
	char why[160] = "";

	shm = transport_find("shm");
	ck_assert_ptr_nonnull(shm);
	ck_assert_msg(shm->usable(why, sizeof(why)), "%s", why);
	ck_assert_int_gt((int)strlen(why), 5);
}

static int count_files(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct tp_device *open_device(int rank, int ranks, uint32_t slots,
				     uint32_t slot_bytes)
{
	struct tp_config config = {.rank = rank,
				   .ranks = ranks,
				   .slots = slots,
				   .slot_bytes = slot_bytes};
	struct tp_device *dev = NULL;

	ck_assert_int_eq(shm->open(&config, &dev), DICOMM_SUCCESS);
	return dev;
}

static struct tp_peer *open_peer(struct tp_device *dev, int rank,
				 struct tp_device *of)
{
	struct tp_peer *peer = NULL;
	struct tp_blob address;

	shm->address(of, &address);
	ck_assert_int_eq(shm->peer_open(dev, rank, &address, &peer),
			 DICOMM_SUCCESS);
	return peer;
}

/* Two ranks of one process, and messages both ways. */
static void exchange_once(void)
{
	struct tp_device *dev[2];
	struct tp_peer *peer[2];
	struct tp_outbox out;
	struct tp_inbox in;

	for (int i = 0; i < 2; i++)
		dev[i] = open_device(i, 2, 8, 32768);
	for (int i = 0; i < 2; i++) {
		peer[i] = open_peer(dev[i], !i, dev[!i]);
		ck_assert_int_eq(shm->connect_out(peer[i], TP_COLLECTIVE, &out),
				 DICOMM_SUCCESS);
		ck_assert_int_eq(shm->put(peer[i], TP_COLLECTIVE, 1, 0, TP_DATA,
					  "hello", 6),
				 DICOMM_SUCCESS);
	}
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(shm->connect_in(peer[i], TP_COLLECTIVE, &in),
				 DICOMM_SUCCESS);
		ck_assert_uint_eq(atomic_load(&in.lines[1].seq), 1);
		ck_assert_str_eq((const char *)in.lines[1].room, "hello");
		ck_assert_int_eq(shm->release(peer[i], TP_COLLECTIVE, 1),
				 DICOMM_SUCCESS);
	}
	for (int i = 0; i < 2; i++)
		shm->close(dev[i]);
}

static void cycles(void)
{
	int files, maps;
	uint64_t bytes;

	for (int i = 0; i < 20; i++)
		exchange_once();
	files = count_files("/proc/self/fd");
	maps = capture_lines("/proc/self/maps", "dicomm");
	bytes = resident_bytes();
	for (int i = 0; i < 1000; i++)
		exchange_once();
	ck_assert_int_eq(count_files("/proc/self/fd"), files);
	ck_assert_int_eq(capture_lines("/proc/self/maps", "dicomm"), maps);
	ck_assert_int_eq(maps, 0);
	/* A sanitizer keeps what was freed for a while. */
	if (!SANITIZED)
		ck_assert_uint_lt(resident_bytes(), bytes + (2u << 20));
}

START_TEST(a_thousand_cycles_leak_nothing)
{
	cycles();
}
END_TEST

/* Both ranks as far as it goes; the first error. */
static dicomm_result_t exchange_if_possible(void)
{
	struct tp_device *dev[2] = {NULL, NULL};
	dicomm_result_t status = DICOMM_SUCCESS;
	struct tp_peer *peer[2];
	struct tp_blob address;
	struct tp_outbox out;
	struct tp_inbox in;

	for (int i = 0; !status && i < 2; i++) {
		struct tp_config config = {
			.rank = i, .ranks = 2, .slots = 8, .slot_bytes = 32768};

		status = shm->open(&config, &dev[i]);
	}
	for (int i = 0; !status && i < 2; i++) {
		shm->address(dev[!i], &address);
		status = shm->peer_open(dev[i], !i, &address, &peer[i]);
		if (!status)
			status = shm->connect_out(peer[i], TP_COLLECTIVE, &out);
	}
	for (int i = 0; !status && i < 2; i++)
		status = shm->connect_in(peer[i], TP_COLLECTIVE, &in);
	for (int i = 0; i < 2; i++)
		shm->close(dev[i]);
	return status;
}

static uint64_t set_limit(int what, uint64_t value)
{
	struct rlimit limit;
	uint64_t before;

	ck_assert_int_eq(getrlimit((__rlimit_resource_t)what, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = value;
	ck_assert_int_eq(setrlimit((__rlimit_resource_t)what, &limit), 0);
	return before;
}

/* Let one more page of address space through each time, until it is enough:
 * each step on the way fails once, is reported, and leaves nothing. */
START_TEST(every_lack_of_memory_is_an_error)
{
	const uint64_t page = 4096;
	int files, maps, failures = 0;
	dicomm_result_t status;
	uint64_t pages = 0;

	if (SANITIZED)
		return; /* its own allocations would fail */
	capture_nothing();
	ck_assert_int_eq(exchange_if_possible(), DICOMM_SUCCESS);
	files = count_files("/proc/self/fd");
	maps = capture_lines("/proc/self/maps", "dicomm");
	do {
		FILE *f = fopen("/proc/self/statm", "r");
		unsigned long used = 0;
		uint64_t before;

		ck_assert_int_eq(fscanf(f, "%lu", &used), 1);
		fclose(f);
		before = set_limit(RLIMIT_AS, (used + pages) * page);
		status = exchange_if_possible();
		set_limit(RLIMIT_AS, before);
		ck_assert_msg(status == DICOMM_SUCCESS ||
				      status == DICOMM_ERR_NO_MEMORY,
			      "%lu pages: status %d", (unsigned long)pages,
			      (int)status);
		failures += status != DICOMM_SUCCESS;
		ck_assert_int_eq(count_files("/proc/self/fd"), files);
		ck_assert_int_eq(capture_lines("/proc/self/maps", "dicomm"),
				 maps);
		pages++;
	} while (status != DICOMM_SUCCESS && pages < 4096);
	ck_assert_int_eq(status, DICOMM_SUCCESS);
	ck_assert_int_ge(failures, 4); /* two segments, two rings */
}
END_TEST

START_TEST(every_lack_of_descriptors_is_an_error)
{
	int files = count_files("/proc/self/fd"), next[2];

	capture_nothing();
	ck_assert_int_eq(exchange_if_possible(), DICOMM_SUCCESS);
	for (int n = 0; n < 2; n++)
		next[n] = dup(1);
	for (int n = 0; n < 2; n++)
		close(next[n]);
	for (int n = 0; n < 2; n++) {
		uint64_t before = set_limit(RLIMIT_NOFILE, (uint64_t)next[n]);
		dicomm_result_t status = exchange_if_possible();

		set_limit(RLIMIT_NOFILE, before);
		ck_assert_int_eq(status, DICOMM_ERR_SYSTEM);
		ck_assert_ptr_nonnull(strstr(log_last_error(), "open files"));
		ck_assert_int_eq(count_files("/proc/self/fd"), files);
	}
	ck_assert_int_eq(exchange_if_possible(), DICOMM_SUCCESS);
}
END_TEST

/* It counts for segments, and by itself the kernel ends the program. Check
 * writes to a file, too, and so may the log. */
START_TEST(a_limit_on_files_is_an_error)
{
	int errors = dup(2), nowhere = open("/dev/null", O_WRONLY);
	int files = count_files("/proc/self/fd"), failures = 0;
	dicomm_result_t status = DICOMM_ERR_NO_MEMORY;
	struct rlimit before, less;

	capture_nothing();
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	less = before;
	for (rlim_t kib = 0; status && kib < 1024; kib += 128) {
		less.rlim_cur = kib << 10;
		dup2(nowhere, 2);
		setrlimit(RLIMIT_FSIZE, &less);
		status = exchange_if_possible();
		setrlimit(RLIMIT_FSIZE, &before);
		dup2(errors, 2);
		failures += status != DICOMM_SUCCESS;
		ck_assert(!status || status == DICOMM_ERR_NO_MEMORY);
		ck_assert_int_eq(count_files("/proc/self/fd"), files);
	}
	ck_assert_int_eq(status, DICOMM_SUCCESS);
	close(errors);
	close(nowhere);
	ck_assert_int_ge(failures, 2); /* a segment, a ring */
}
END_TEST

/* As many cycles with the peer in another process: imports of its segment, its
 * rings and its memory. */
static void run_cycles(struct rank *r)
{
	uint8_t *memory = NULL;
	int files = 0, maps = 0;

	if (r->rank == 0)
		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&memory));
	for (int i = 0; i < 200; i++) {
		const uint8_t *body;
		const void *mapped;
		struct tp_ref ref;

		ranks_connect(r, !r->rank, TP_COLLECTIVE);
		if (r->rank == 0) {
			memory[i] = (uint8_t)i;
			EXPECT(r,
			       shm->offer(r->peer[1], memory, LARGE,
					  TP_WANT_COPY, &ref),
			       "refused");
			EXPECT_OK(r, shm->put(r->peer[1], TP_COLLECTIVE, 1, 0,
					      TP_REF, &ref, LARGE));
		} else {
			ranks_get(r, 0, TP_COLLECTIVE, 1, &body);
			memcpy(&ref, body, sizeof(ref));
			EXPECT_OK(r,
				  shm->map(r->peer[0], &ref, LARGE, &mapped));
			EXPECT(r, ((const uint8_t *)mapped)[i] == (uint8_t)i,
			       "cycle %d", i);
		}
		ranks_barrier(r);
		shm->close(r->dev);
		EXPECT_OK(r, shm->open(&r->config, &r->dev));
		shm->address(r->dev, &r->area->address[r->rank]);
		ranks_barrier(r);
		for (int p = 0; p < r->ranks; p++)
			EXPECT_OK(r, shm->peer_open(r->dev, p,
						    &r->area->address[p],
						    &r->peer[p]));
		if (i == 10) {
			files = count_files("/proc/self/fd");
			maps = capture_lines("/proc/self/maps", "dicomm");
		}
		ranks_barrier(r);
	}
	EXPECT(r, count_files("/proc/self/fd") == files, "%d files, were %d",
	       count_files("/proc/self/fd"), files);
	EXPECT(r, capture_lines("/proc/self/maps", "dicomm") == maps, "maps");
	if (memory)
		EXPECT_OK(r, accels[0]->free(memory));
}

START_TEST(cycles_of_two_processes_leak_nothing)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_cycles};

	ranks_run(&job);
}
END_TEST

/* What is 1 MiB of ordinary and of mappable memory offered as? */
static void run_offers(struct rank *r)
{
	uint8_t *plain = malloc(LARGE), *memory;
	struct tp_ref ref;
	bool pulls_all = r->kind == RANKS_THREADS;

	if (r->rank == 0) {
		struct tp_peer *peer = r->peer[1];

		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&memory));
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		ranks_barrier(r); /* the reader has connected */
		EXPECT(r, shm->offer(peer, memory, LARGE, TP_WANT_COPY, &ref),
		       "whole");
		EXPECT(r,
		       shm->offer(peer, memory + LARGE - 8192, 8192,
				  TP_WANT_COPY, &ref),
		       "tail");
		EXPECT(r,
		       shm->offer(peer, plain, LARGE, TP_WANT_COPY, &ref) ==
			       pulls_all,
		       "malloc");
		EXPECT(r,
		       shm->offer(peer, memory + 4096, LARGE, TP_WANT_COPY,
				  &ref) == pulls_all,
		       "beyond the end");
		EXPECT(r,
		       shm->offer(peer, memory, 8, TP_WANT_COPY, &ref) ==
			       pulls_all,
		       "below the threshold");
		EXPECT_OK(r, accels[0]->free(memory));
		EXPECT(r,
		       shm->offer(peer, memory, LARGE, TP_WANT_COPY, &ref) ==
			       pulls_all,
		       "freed");
	} else {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		ranks_barrier(r);
	}
	free(plain);
}

START_TEST(ordinary_memory_is_not_offered_to_another_process)
{
	struct ranks_job job = {.t = shm, .ranks = 2, .run = run_offers};

	setenv("DICOMM_SHM_CMA", "off", 1);
	if (strcmp(config_string(CONFIG_SHM_CMA), "off") != 0)
		return;
	job.kind = (enum ranks_kind)_i;
	ranks_run(&job);
}
END_TEST

static void run_cma(struct rank *r)
{
	uint8_t *buffer = malloc(3 * LARGE);
	const uint8_t *body;
	const void *mapped;
	struct tp_ref ref;

	if (r->rank == 0) {
		ranks_fill(buffer, 3 * LARGE, 5);
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		EXPECT(r,
		       !shm->offer(r->peer[1], buffer, LARGE, TP_WANT_COPY,
				   &ref),
		       "before the reader said that it can");
		ranks_barrier(r);
		ranks_barrier(r);
		EXPECT(r,
		       !shm->offer(r->peer[1], buffer, 100, TP_WANT_COPY, &ref),
		       "small");
		EXPECT(r,
		       shm->offer(r->peer[1], buffer + 3, 2 * LARGE + 5,
				  TP_WANT_COPY, &ref),
		       "refused");
		EXPECT_OK(r, shm->put(r->peer[1], TP_COLLECTIVE, 1, 0, TP_REF,
				      &ref, 2 * LARGE + 5));
		RANKS_WAIT(r,
			   atomic_load(r->out[1][TP_COLLECTIVE].released) == 1);
		/* Only read, never written. */
		EXPECT(r, ranks_check(buffer, 3 * LARGE, 5) == 3 * LARGE,
		       "changed");
		EXPECT(r,
		       shm->offer(r->peer[1], (void *)8, LARGE, TP_WANT_COPY,
				  &ref),
		       "2");
		EXPECT_OK(r, shm->put(r->peer[1], TP_COLLECTIVE, 2, 0, TP_REF,
				      &ref, LARGE));
	} else {
		uint8_t *whole = malloc(3 * LARGE);

		ranks_fill(whole, 3 * LARGE, 5);
		ranks_barrier(r);
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		ranks_barrier(r);
		ranks_get(r, 0, TP_COLLECTIVE, 1, &body);
		memcpy(&ref, body, sizeof(ref));
		EXPECT(r,
		       shm->map(r->peer[0], &ref, 2 * LARGE + 5, &mapped) ==
			       DICOMM_ERR_UNSUPPORTED,
		       "mapped");
		EXPECT_OK(r, shm->read(r->peer[0], TP_COLLECTIVE, 1, &ref, 0,
				       buffer, 2 * LARGE + 5));
		EXPECT(r, !memcmp(buffer, whole + 3, 2 * LARGE + 5), "read");
		EXPECT_OK(r, shm->read(r->peer[0], TP_COLLECTIVE, 1, &ref,
				       70001, buffer, 999));
		EXPECT(r, !memcmp(buffer, whole + 3 + 70001, 999), "part");
		EXPECT_OK(r, shm->release(r->peer[0], TP_COLLECTIVE, 1));
		/* An address that is none, an aborted device. */
		capture_nothing();
		ranks_get(r, 0, TP_COLLECTIVE, 2, &body);
		memcpy(&ref, body, sizeof(ref));
		EXPECT(r,
		       shm->read(r->peer[0], TP_COLLECTIVE, 1, &ref, 0, buffer,
				 4096) == DICOMM_IN_PROGRESS,
		       "the kernel read nothing, and the sender was not asked");
		shm->abort(r->dev);
		EXPECT(r,
		       shm->read(r->peer[0], TP_COLLECTIVE, 1, &ref, 0, buffer,
				 4096) == DICOMM_ERR_ABORTED,
		       "read after abort");
		free(whole);
	}
	free(buffer);
}

START_TEST(cma_reads_ordinary_memory)
{
	struct ranks_job job = {
		.t = shm, .kind = RANKS_PROCESSES, .ranks = 2, .run = run_cma};

	setenv("DICOMM_SHM_CMA", "on", 1);
	if (strcmp(config_string(CONFIG_SHM_CMA), "on") != 0)
		return;
	ranks_run(&job);
}
END_TEST

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What one rank offers to the other, that one begins to load. */
static struct tp_ref begin_reading(struct tp_peer *to, struct tp_peer *from,
				   const char *body, size_t len)
{
	struct tp_outbox out;
	struct tp_inbox in;
	const void *mapped;
	struct tp_ref ref;

	ck_assert_int_eq(shm->connect_out(to, TP_COLLECTIVE, &out),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(shm->connect_in(from, TP_COLLECTIVE, &in),
			 DICOMM_SUCCESS);
	ck_assert(shm->offer(to, body, len, TP_WANT_COPY, &ref));
	ck_assert_int_eq(shm->map(from, &ref, len, &mapped), DICOMM_SUCCESS);
	return ref;
}

static void count_hangs(int level, const char *message, void *ctx)
{
	int *hangs = ctx;

	(void)level;
	*hangs += strstr(message, "still reads") != NULL;
}

/* Does it give up waiting for a reader? */
static bool abort_waits(struct tp_device *dev)
{
	int hangs = 0;

	log_set_sink(count_hangs, &hangs);
	shm->abort(dev);
	capture_nothing();
	return hangs;
}

/* A reader that never lets go must not hold abort() for ever. */
START_TEST(abort_is_bounded_with_a_reader_that_hangs)
{
	struct tp_device *a = open_device(0, 2, 8, 4096);
	struct tp_device *b = open_device(1, 2, 8, 4096);
	struct tp_peer *to = open_peer(a, 1, b), *from = open_peer(b, 0, a);
	char body[64];
	double begin;

	capture_nothing();
	begin_reading(to, from, body, sizeof(body));
	if (_i) /* it does let go: then there is nothing to wait for */
		shm->release(from, TP_COLLECTIVE, 1);
	begin = seconds();
	ck_assert_int_eq(abort_waits(a), !_i);
	if (!_i)
		ck_assert_double_gt(seconds() - begin, 0.1);
	ck_assert_double_lt(seconds() - begin, 5 + starved_s());
	/* It is the reader's own abort() that does not wait for itself. */
	ck_assert(!abort_waits(b));
	/* Closing lets go. */
	shm->peer_close(from);
	ck_assert(!abort_waits(a));
	shm->close(a);
	shm->close(b);
}
END_TEST

static void *abort_it(void *dev)
{
	return abort_waits(dev) ? dev : NULL;
}

/* What is not intact is not released, either. */
START_TEST(abort_does_not_wait_for_who_has_noticed_it)
{
	struct tp_device *a = open_device(0, 2, 8, 4096);
	struct tp_device *b = open_device(1, 2, 8, 4096);
	struct tp_peer *to = open_peer(a, 1, b), *from = open_peer(b, 0, a);
	const void *mapped;
	struct tp_ref ref;
	pthread_t thread;
	char body[64];
	void *waited;

	capture_nothing();
	ref = begin_reading(to, from, body, sizeof(body));
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_it, a), 0);
	while (shm->intact(from) == DICOMM_SUCCESS)
		sched_yield();
	pthread_join(thread, &waited);
	ck_assert_ptr_null(waited);
	ck_assert_int_eq(shm->map(from, &ref, sizeof(body), &mapped),
			 DICOMM_ERR_REMOTE);
	shm->close(a);
	shm->close(b);
}
END_TEST

/* The sender's process goes away while references to its memory are here:
 * mapped memory stays, CMA says so. */
static void run_owner_dies(struct rank *r)
{
	uint8_t *memory, *plain = malloc(LARGE);
	struct tp_ref ref[2];
	const uint8_t *body;
	const void *mapped;

	if (r->rank == 1) {
		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&memory));
		ranks_fill(memory, LARGE, 1);
		ranks_connect_out(r, 0, TP_COLLECTIVE);
		ranks_barrier(r);
		EXPECT(r,
		       shm->offer(r->peer[0], memory, LARGE, TP_WANT_COPY,
				  &ref[0]),
		       "m");
		EXPECT(r,
		       shm->offer(r->peer[0], plain, LARGE, TP_WANT_COPY,
				  &ref[1]),
		       "p");
		for (uint64_t i = 0; i < 2; i++)
			EXPECT_OK(r, shm->put(r->peer[0], TP_COLLECTIVE, i + 1,
					      0, TP_REF, &ref[i], LARGE));
		ranks_barrier(r);
		ranks_barrier(r);
		kill(getpid(), SIGKILL);
	}
	ranks_connect_in(r, 1, TP_COLLECTIVE);
	ranks_barrier(r);
	ranks_barrier(r);
	for (uint64_t i = 0; i < 2; i++) {
		ranks_get(r, 1, TP_COLLECTIVE, i + 1, &body);
		memcpy(&ref[i], body, sizeof(ref[i]));
	}
	EXPECT_OK(r, shm->map(r->peer[1], &ref[0], LARGE, &mapped));
	ranks_barrier(r);
	RANKS_WAIT(r, ranks_is_dead(r, 1));
	capture_nothing();
	EXPECT(r, ranks_check(mapped, LARGE, 1) == LARGE, "mapped");
	EXPECT(r,
	       shm->read(r->peer[1], TP_COLLECTIVE, 1, &ref[1], 0, plain,
			 LARGE) == DICOMM_ERR_REMOTE,
	       "read the dead");
	EXPECT(r,
	       shm->connect_in(r->peer[1], TP_POINT_TO_POINT,
			       &r->in[1][TP_POINT_TO_POINT]) == DICOMM_AGAIN,
	       "a ring that was never made");
	free(plain);
}

START_TEST(references_to_a_dead_process_fail_or_stay)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_owner_dies,
				.killed = 2};

	setenv("DICOMM_SHM_CMA", "on", 1);
	if (strcmp(config_string(CONFIG_SHM_CMA), "on") != 0)
		return;
	ranks_run(&job);
}
END_TEST

/* A ring that was made, by a process that died before the peer mapped it. */
static void run_dead_before_connect(struct rank *r)
{
	uint8_t sent[4096];
	const uint8_t *body;

	ranks_fill(sent, sizeof(sent), 1);
	if (r->rank == 1) {
		ranks_connect_out(r, 0, TP_COLLECTIVE);
		ranks_put(r, 0, TP_COLLECTIVE, 1, sent, sizeof(sent));
		kill(getpid(), SIGKILL);
	}
	RANKS_WAIT(r, ranks_is_dead(r, 1));
	ranks_connect_in(r, 1, TP_COLLECTIVE);
	ranks_get(r, 1, TP_COLLECTIVE, 1, &body);
	EXPECT(r, ranks_check(body, sizeof(sent), 1) == sizeof(sent),
	       "what the dead had sent");
}

/* By a rank that ended well. shm->close() closes the peers, too. */
static void run_closed_before_connect(struct rank *r)
{
	const uint8_t *body;

	if (r->rank == 1) {
		ranks_connect_out(r, 0, TP_COLLECTIVE);
		ranks_put(r, 0, TP_COLLECTIVE, 1, "last", 5);
		shm->close(r->dev);
		r->peer[0] = r->peer[1] = NULL;
		r->dev = open_device(1, 2, 8, 4096);
		ranks_barrier(r);
		return;
	}
	ranks_barrier(r);
	ranks_connect_in(r, 1, TP_COLLECTIVE);
	ranks_get(r, 1, TP_COLLECTIVE, 1, &body);
	EXPECT(r, !strcmp((const char *)body, "last"), "%.5s",
	       (const char *)body);
}

START_TEST(what_a_closed_rank_had_sent_is_received)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_closed_before_connect};

	ranks_run(&job);
}
END_TEST

START_TEST(what_a_dead_process_had_sent_is_received)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_dead_before_connect,
				.killed = 2};

	ranks_run(&job);
}
END_TEST

static void run_imports(struct rank *r)
{
	enum { OWNER, READER };
	const char *named = "dicomm-memory";
	uint8_t *a, *b;
	const uint8_t *body;
	const void *mapped[2];
	struct tp_ref ref;

	if (r->rank == OWNER) {
		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&a));
		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&b));
		ranks_connect_out(r, READER, TP_COLLECTIVE);
		for (uint64_t q = 1; q <= 4; q++) {
			/* Parts of a, and one of b: each mapped once. */
			uint8_t *at = q == 3 ? b : a + q * 4096;

			EXPECT(r,
			       shm->offer(r->peer[READER], at, 8192,
					  TP_WANT_COPY, &ref),
			       "%d", (int)q);
			EXPECT_OK(r, shm->put(r->peer[READER], TP_COLLECTIVE, q,
					      0, TP_REF, &ref, 8192));
		}
		ranks_barrier(r); /* 1: mapped */
		EXPECT_OK(r, accels[0]->free(a));
		for (int i = 0; i < POLLS; i++)
			shm->poll(r->dev);
		ranks_barrier(r); /* 2: freed and published */
		ranks_barrier(r); /* 3: still in use there */
		ranks_barrier(r); /* 4: dropped there */
		EXPECT_OK(r, accels[0]->free(b));
		/* Far more than the list of freed ones holds. */
		for (int i = 0; i < 700; i++) {
			EXPECT_OK(r, accels[0]->alloc(0, 4096, (void **)&a));
			EXPECT_OK(r, accels[0]->free(a));
		}
		for (int i = 0; i < POLLS; i++)
			shm->poll(r->dev);
		ranks_barrier(r); /* 5 */
		return;
	}
	ranks_connect_in(r, OWNER, TP_COLLECTIVE);
	for (uint64_t q = 1; q <= 4; q++) {
		ranks_get(r, OWNER, TP_COLLECTIVE, q, &body);
		memcpy(&ref, body, sizeof(ref));
		EXPECT_OK(r, shm->map(r->peer[OWNER], &ref, 8192,
				      &mapped[q == 3]));
		EXPECT(r, !*(const uint8_t *)mapped[q == 3], "not zero");
	}
	EXPECT(r, capture_lines("/proc/self/maps", named) == 2, "%d maps",
	       capture_lines("/proc/self/maps", named));
	ranks_barrier(r); /* 1 */
	ranks_barrier(r); /* 2 */
	for (int i = 0; i < POLLS; i++)
		shm->poll(r->dev);
	/* The owner should have waited; it is not punished with a fault. */
	EXPECT(r, !*(const volatile uint8_t *)mapped[0], "not zero");
	EXPECT(r, capture_lines("/proc/self/maps", named) == 2,
	       "dropped early");
	ranks_barrier(r); /* 3 */
	EXPECT_OK(r, shm->release(r->peer[OWNER], TP_COLLECTIVE, 4));
	for (int i = 0; i < POLLS; i++)
		shm->poll(r->dev);
	EXPECT(r, capture_lines("/proc/self/maps", named) == 1, "%d maps",
	       capture_lines("/proc/self/maps", named));
	EXPECT(r, !*(const volatile uint8_t *)mapped[1], "b is still there");
	ranks_barrier(r); /* 4 */
	ranks_barrier(r); /* 5 */
	for (int i = 0; i < POLLS; i++)
		shm->poll(r->dev);
	EXPECT(r, capture_lines("/proc/self/maps", named) == 0, "%d maps",
	       capture_lines("/proc/self/maps", named));
}

START_TEST(imports_go_when_their_owner_frees)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_imports};

	ranks_run(&job);
}
END_TEST

/* Rank 1's process holds a second rank, 2, whose device lives in the same
 * address space: both get one and the same mapping. */
static void run_shared_import(struct rank *r)
{
	struct tp_device *second = NULL;
	struct tp_config config = r->config;
	struct tp_peer *peer;
	uint8_t *memory;
	const uint8_t *body;
	const void *mapped[2];
	struct tp_inbox in;
	struct tp_ref ref;

	config.rank = 2;
	if (r->rank == 1) {
		EXPECT_OK(r, shm->open(&config, &second));
		shm->address(second, &r->area->address[2]);
	}
	ranks_barrier(r);
	if (r->rank == 0) {
		struct tp_outbox out;

		EXPECT_OK(r, accels[0]->alloc(0, LARGE, (void **)&memory));
		EXPECT_OK(r, shm->peer_open(r->dev, 2, &r->area->address[2],
					    &peer));
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		EXPECT_OK(r, shm->connect_out(peer, TP_COLLECTIVE, &out));
		EXPECT(r, shm->offer(peer, memory, LARGE, TP_WANT_COPY, &ref),
		       "offer");
		EXPECT_OK(r, shm->put(peer, TP_COLLECTIVE, 1, 0, TP_REF, &ref,
				      LARGE));
		EXPECT_OK(r, shm->put(r->peer[1], TP_COLLECTIVE, 1, 0, TP_REF,
				      &ref, LARGE));
		ranks_barrier(r);
		return;
	}
	if (r->rank == 2) { /* stands aside: its number is taken */
		ranks_barrier(r);
		return;
	}
	EXPECT_OK(r, shm->peer_open(second, 0, &r->area->address[0], &peer));
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	ranks_get(r, 0, TP_COLLECTIVE, 1, &body);
	memcpy(&ref, body, sizeof(ref));
	EXPECT_OK(r, shm->map(r->peer[0], &ref, LARGE, &mapped[0]));
	RANKS_WAIT(r,
		   shm->connect_in(peer, TP_COLLECTIVE, &in) == DICOMM_SUCCESS);
	EXPECT_OK(r, shm->map(peer, &ref, LARGE, &mapped[1]));
	EXPECT(r, mapped[0] == mapped[1], "mapped twice");
	EXPECT(r, capture_lines("/proc/self/maps", "dicomm-memory") == 1,
	       "more than one");
	shm->close(second);
	EXPECT(r, !*(const volatile uint8_t *)mapped[0], "gone too early");
	shm->peer_close(r->peer[0]);
	r->peer[0] = NULL;
	EXPECT(r, capture_lines("/proc/self/maps", "dicomm-memory") == 0,
	       "left over");
	ranks_barrier(r);
}

START_TEST(ranks_of_a_process_share_an_import)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 3,
				.run = run_shared_import};

	ranks_run(&job);
}
END_TEST

/* Whatever bytes come as a reference: an error, never a fault. */
static void run_bad_reference(struct rank *r)
{
	uint8_t *memory, into[64];
	const void *mapped;
	struct tp_ref good, bad;
	const uint8_t *body;

	if (r->rank == 0) {
		EXPECT_OK(r, accels[0]->alloc(0, 8192, (void **)&memory));
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		EXPECT(r,
		       shm->offer(r->peer[1], memory, 8192, TP_WANT_COPY,
				  &good),
		       "offer");
		EXPECT_OK(r, shm->put(r->peer[1], TP_COLLECTIVE, 1, 0, TP_REF,
				      &good, 8192));
		ranks_barrier(r);
		return;
	}
	capture_nothing();
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	ranks_get(r, 0, TP_COLLECTIVE, 1, &body);
	memcpy(&good, body, sizeof(good));
	EXPECT_OK(r, shm->map(r->peer[0], &good, 8192, &mapped));
	EXPECT(r,
	       shm->map(r->peer[0], &good, 8193, &mapped) == DICOMM_ERR_REMOTE,
	       "beyond the end");
	EXPECT(r,
	       shm->read(r->peer[0], TP_COLLECTIVE, 1, &good, 8190, into, 3) ==
		       DICOMM_ERR_REMOTE,
	       "beyond the end");
	EXPECT(r,
	       shm->read(r->peer[0], TP_COLLECTIVE, 1, &good, UINT64_MAX - 1,
			 into, 4) == DICOMM_ERR_REMOTE,
	       "round the end");
	/* The first 8 bytes say how, and of which process. */
	for (int i = 0; i < 8; i++) {
		bad = good;
		bad.bytes[i] ^= 0x80;
		EXPECT(r,
		       shm->map(r->peer[0], &bad, 64, &mapped) !=
			       DICOMM_SUCCESS,
		       "byte %d", i);
	}
	memset(&bad, 0, sizeof(bad));
	EXPECT(r, shm->map(r->peer[0], &bad, 64, &mapped) == DICOMM_ERR_REMOTE,
	       "zero");
	bad = good;
	bad.bytes[0] = 1; /* a pointer, from another process */
	EXPECT(r, shm->map(r->peer[0], &bad, 64, &mapped) == DICOMM_ERR_REMOTE,
	       "a pointer");
	for (int i = 16; i < 24; i++) { /* which allocation */
		bad = good;
		bad.bytes[i] ^= 1;
		EXPECT(r,
		       shm->map(r->peer[0], &bad, 64, &mapped) ==
			       DICOMM_ERR_REMOTE,
		       "byte %d", i);
	}
	ranks_barrier(r);
}

START_TEST(a_bad_reference_is_an_error)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_bad_reference};

	ranks_run(&job);
}
END_TEST

START_TEST(unlike_slots_are_refused)
{
	struct tp_device *a = open_device(0, 2, 8, 4096);
	struct tp_device *b = open_device(1, 2, 16, 4096);
	struct tp_peer *peer = NULL;
	struct tp_blob address;

	capture_nothing();
	shm->address(b, &address);
	ck_assert_int_eq(shm->peer_open(a, 1, &address, &peer),
			 DICOMM_ERR_INVALID_USAGE);
	ck_assert_ptr_null(peer);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "16"));
	shm->close(a);
	shm->close(b);
}
END_TEST

START_TEST(a_put_before_connect_is_an_error)
{
	struct tp_device *a = open_device(0, 1, 8, 4096);
	struct tp_peer *peer = open_peer(a, 0, a);
	struct tp_outbox out;
	struct tp_ref ref = {{0}};
	const void *mapped;
	uint8_t body[5000] = {0};

	capture_nothing();
	ck_assert_int_eq(shm->put(peer, TP_COLLECTIVE, 1, 0, TP_DATA, body, 8),
			 DICOMM_ERR_INTERNAL);
	ck_assert_int_eq(shm->map(peer, &ref, 8, &mapped), DICOMM_ERR_INTERNAL);
	ck_assert_int_eq(shm->read(peer, TP_COLLECTIVE, 1, &ref, 0, body, 8),
			 DICOMM_ERR_INTERNAL);
	ck_assert_int_eq(shm->connect_out(peer, TP_COLLECTIVE, &out),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(
		shm->put(peer, TP_COLLECTIVE, 1, 0, TP_DATA, body, 5000),
		DICOMM_ERR_INTERNAL); /* larger than a slot */
	shm->close(a);
}
END_TEST

/* 512 ranks in one process, each connected to a few: what has no messages has
 * no memory. */
START_TEST(many_ranks_need_little_memory)
{
	enum { RANKS = 512, NEIGHBOURS = 4 };
	struct tp_device *dev[RANKS];
	uint64_t before = resident_bytes(), held = 0;

	for (int i = 0; i < RANKS; i++)
		dev[i] = open_device(i, RANKS, 16, 32768);
	for (int i = 0; i < RANKS; i++)
		for (int k = 1; k <= NEIGHBOURS; k++) {
			int j = (i + k) % RANKS;
			struct tp_peer *peer = open_peer(dev[i], j, dev[j]);
			struct tp_outbox out;

			ck_assert_int_eq(
				shm->connect_out(peer, TP_COLLECTIVE, &out),
				DICOMM_SUCCESS);
			ck_assert_int_eq(shm->put(peer, TP_COLLECTIVE, 1, 0,
						  TP_DATA, "hi", 3),
					 DICOMM_SUCCESS);
		}
	for (int i = 0; i < RANKS; i++)
		held += shm->memory(dev[i]);
	ck_assert_uint_lt(held, RANKS * (NEIGHBOURS + 4) * UINT64_C(5000));
	/* A sanitizer's shadow of these bytes is resident too. */
	if (!SANITIZED)
		ck_assert_uint_lt(resident_bytes() - before, UINT64_C(100)
								     << 20);
	for (int i = 0; i < RANKS; i++)
		shm->close(dev[i]);
}
END_TEST

START_TEST(a_rank_of_4096_opens)
{
	struct tp_device *dev[2];
	struct tp_peer *peer;
	struct tp_outbox out;
	struct tp_inbox in;

	dev[0] = open_device(0, 4096, 64, 65536);
	dev[1] = open_device(4095, 4096, 64, 65536);
	peer = open_peer(dev[0], 4095, dev[1]);
	ck_assert_int_eq(shm->connect_out(peer, TP_POINT_TO_POINT, &out),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(
		shm->put(peer, TP_POINT_TO_POINT, 1, 0, TP_DATA, "hi", 3),
		DICOMM_SUCCESS);
	peer = open_peer(dev[1], 0, dev[0]);
	ck_assert_int_eq(shm->connect_in(peer, TP_POINT_TO_POINT, &in),
			 DICOMM_SUCCESS);
	ck_assert_str_eq((const char *)in.lines[1].room, "hi");
	ck_assert_uint_lt(shm->memory(dev[0]), 65536);
	shm->close(dev[0]);
	shm->close(dev[1]);
}
END_TEST

static void run_touch(struct rank *r)
{
	uint8_t body[4096];

	ranks_connect(r, !r->rank, TP_COLLECTIVE);
	memset(body, 1, sizeof(body));
	ranks_put(r, !r->rank, TP_COLLECTIVE, 1, body, sizeof(body));
	ranks_barrier(r);
	if (r->rank == 1)
		kill(getpid(), SIGKILL);
	RANKS_WAIT(r, ranks_is_dead(r, 1));
}

START_TEST(a_killed_process_leaves_no_file)
{
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_touch,
				.killed = 2};
	int before = count_files("/dev/shm");

	ranks_run(&job);
	/* Others may use /dev/shm too, but not under our name. */
	ck_assert_int_le(count_files("/dev/shm"), before + 8);
	if (count_files("/dev/shm") != before) {
		struct dirent *entry;
		DIR *d = opendir("/dev/shm");

		while ((entry = readdir(d)))
			ck_assert_ptr_null(strstr(entry->d_name, "dicomm"));
		closedir(d);
	}
}
END_TEST

/* A child of fork() that goes on as if it owned the parent's ranks does not
 * disturb the parent, and can be a rank itself. */
START_TEST(a_forked_child_does_not_disturb_its_parent)
{
	struct tp_device *a = open_device(0, 1, 8, 4096);
	struct tp_peer *peer = open_peer(a, 0, a);
	struct tp_outbox out;
	struct tp_inbox in;
	int status;
	pid_t pid;

	ck_assert_int_eq(shm->connect_out(peer, TP_COLLECTIVE, &out),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(shm->connect_in(peer, TP_COLLECTIVE, &in),
			 DICOMM_SUCCESS);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		struct tp_device *mine = open_device(0, 1, 8, 4096);
		struct tp_blob address;
		char why[160];

		/* The parent's rank is one of another process for it. */
		shm->address(a, &address);
		if (!shm->reaches(mine, &address, why, sizeof(why)))
			_exit(1);
		peer = open_peer(mine, 0, a);
		if (shm->connect_in(peer, TP_COLLECTIVE, &in) != DICOMM_SUCCESS)
			_exit(2);
		if (capture_lines("/proc/self/maps", "dicomm-shm") < 4)
			_exit(3); /* it uses mappings of its own */
		shm->close(mine);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(shm->put(peer, TP_COLLECTIVE, 1, 0, TP_DATA, "hi", 3),
			 DICOMM_SUCCESS);
	ck_assert_str_eq((const char *)in.lines[1].room, "hi");
	shm->close(a);
}
END_TEST

static bool move_elsewhere(void)
{
	return (unshare(CLONE_NEWUTS) == 0 ||
		unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0) &&
	       sethostname("elsewhere", 9) == 0;
}

static bool can_move(void)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		_exit(!move_elsewhere());
	return waitpid(pid, &status, 0) == pid && status == 0;
}

/* As in a container of another name. */
START_TEST(another_host_name_is_another_host)
{
	struct tp_device *dev = open_device(0, 1, 8, 4096);
	struct tp_blob blob;
	struct shm_address a;
	struct shm_host host;
	char why[160] = "";
	int status;
	pid_t pid;

	shm->address(dev, &blob);
	ck_assert(shm_address_parse(&blob, &a, why, sizeof(why)));
	pid = fork();
	if (pid == 0)
		_exit(!move_elsewhere() || (shm_host_find(&host), false) ||
		      shm_address_is_local(&a, &host, why, sizeof(why)) ||
		      !strstr(why, "host name"));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	shm->close(dev);
}
END_TEST

START_TEST(an_address_from_elsewhere_says_so)
{
	struct tp_device *dev = open_device(0, 1, 8, 4096);
	struct tp_blob blob;
	struct shm_address a;
	struct shm_host host;
	char why[160] = "";

	shm->address(dev, &blob);
	shm_host_find(&host);
	ck_assert(shm_address_parse(&blob, &a, why, sizeof(why)));
	ck_assert(shm_address_is_local(&a, &host, why, sizeof(why)));
	a.host_id++;
	ck_assert(!shm_address_is_local(&a, &host, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "DICOMM_HOSTID"));
	a.host_id--;
	a.pid_namespace++;
	ck_assert(!shm_address_is_local(&a, &host, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "pid namespace"));
	a.boot_id[3]++;
	ck_assert(!shm_address_is_local(&a, &host, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "machine"));
	shm->close(dev);
}
END_TEST

/* The process of the address has ended, or its number belongs to another one:
 * found out before anything is mapped. */
START_TEST(a_recycled_process_is_not_reached)
{
	struct tp_device *a = open_device(0, 1, 8, 4096);
	struct tp_device *b = open_device(0, 1, 8, 4096);
	struct tp_blob of_a, of_b;
	struct shm_address x, y;
	char why[160] = "";

	shm->address(a, &of_a);
	shm->address(b, &of_b);
	ck_assert(shm_address_parse(&of_a, &x, why, sizeof(why)));
	ck_assert(shm_address_parse(&of_b, &y, why, sizeof(why)));
	x.nonce[1] ^= 1; /* as of a process that was here before */
	ck_assert(!shm_segment_is_own(&x));
	ck_assert(!shm_segment_reachable(&x, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "not its segment"));
	y.nonce[1] ^= 1;
	y.fd = 0;
	ck_assert(!shm_segment_reachable(&y, why, sizeof(why)));
	y.fd = 999;
	ck_assert(!shm_segment_reachable(&y, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
	shm->close(a);
	shm->close(b);
}
END_TEST

/* A ring that its sender has closed is not found; the next one is. */
static void run_come_back(struct rank *r)
{
	const enum tp_class c = TP_COLLECTIVE;
	const uint8_t *body;

	if (r->rank == 0) {
		ranks_connect_out(r, 1, c);
		ranks_put(r, 1, c, 1, "old", 4);
		shm->peer_close(r->peer[1]);
		ranks_barrier(r);
		ranks_barrier(r);
		EXPECT_OK(r, shm->peer_open(r->dev, 1, &r->area->address[1],
					    &r->peer[1]));
		ranks_connect_out(r, 1, c);
		ranks_put(r, 1, c, 1, "new", 4);
		return;
	}
	ranks_barrier(r);
	EXPECT(r, shm->connect_in(r->peer[0], c, &r->in[0][c]) == DICOMM_AGAIN,
	       "the old ring");
	ranks_barrier(r);
	ranks_connect_in(r, 0, c);
	ranks_get(r, 0, c, 1, &body);
	EXPECT(r, !strcmp((const char *)body, "new"), "%.4s",
	       (const char *)body);
}

START_TEST(a_sender_can_come_back)
{
	struct ranks_job job = {.t = shm,
				.kind = (enum ranks_kind)_i,
				.ranks = 2,
				.run = run_come_back};

	ranks_run(&job);
}
END_TEST

/* The kernel would read whatever process has that number now. */
START_TEST(cma_notices_a_recycled_process)
{
	struct tp_device *dev = open_device(0, 1, 8, 4096);
	const _Atomic bool aborted = false;
	struct shm_segment *seg = NULL;
	struct shm_segment stale;
	struct tp_blob address;
	struct shm_address a;
	uint64_t word = 7, copy = 0, got;
	char why[160];

	capture_nothing();
	shm->address(dev, &address);
	ck_assert(shm_address_parse(&address, &a, why, sizeof(why)));
	ck_assert_int_eq(shm_segment_attach(&a, &seg), DICOMM_SUCCESS);
	stale = *seg;
	if (shm_cma_works(seg)) { /* the kernel lets us */
		ck_assert_int_eq(shm_cma_read(seg, (uintptr_t)&word, &copy, 8,
					      &aborted, &got),
				 DICOMM_SUCCESS);
		ck_assert_uint_eq(got, 8);
		ck_assert_uint_eq(copy, 7);
	}
	stale.nonce[0]++;
	ck_assert(!shm_cma_works(&stale));
	ck_assert_int_eq(shm_cma_read(&stale, (uintptr_t)&word, &copy, 8,
				      &aborted, &got),
			 DICOMM_ERR_REMOTE);
	shm_segment_put(seg);
	shm->close(dev);
}
END_TEST

START_TEST(a_measurement_is_short_and_sane)
{
	struct shm_rates first, again;

	shm_measure(NULL, &first);
	shm_measure(NULL, &again);
	ck_assert_mem_eq(&first, &again, sizeof(first));
	/* On a busy machine it may have come to nothing. */
	shm_rates_get(&first);
	ck_assert(!again.line_ps || again.line_ps == first.line_ps);
	ck_assert_uint_ge(first.line_ps, 1000);
	ck_assert_uint_le(first.line_ps, UINT64_C(1000000000));
	ck_assert_uint_ge(first.load_bytes_per_s, UINT64_C(10000000));
}
END_TEST

#define MB_S UINT64_C(1000000)

/* Two machines on which each way was timed, of 16 and of 64 KiB, and three that
 * are at the ends. */
static const struct cma_case {
	struct shm_rates rates;
	enum shm_traffic traffic;
	uint64_t first_most, last; /* first_most 0: it never pays */
} cma_cases[] = {
	/* One copy as fast as one of the two of a ring: the first slice, in
	 * which the two take turns, is what it saves. */
	{{150000, 18400 * MB_S, 13000 * MB_S, 13500 * MB_S, 700000,
	  18400 * MB_S},
	 SHM_ONE_WAY,
	 16384,
	 1 << 20},
	{{160000, 17500 * MB_S, 13700 * MB_S, 13200 * MB_S, 700000,
	  17500 * MB_S},
	 SHM_ONE_WAY,
	 16384,
	 1 << 20},
	{{150000, 18400 * MB_S, 13000 * MB_S, 13500 * MB_S, 700000,
	  18400 * MB_S},
	 SHM_BOTH_WAYS,
	 16384,
	 1 << 20},
	/* Pages are looked up slowly. */
	{{40000, 65000 * MB_S, 65000 * MB_S, 13400 * MB_S, 1140000,
	  65000 * MB_S},
	 SHM_ONE_WAY,
	 0,
	 0},
	{{40000, 65000 * MB_S, 65000 * MB_S, 13400 * MB_S, 1140000,
	  65000 * MB_S},
	 SHM_BOTH_WAYS,
	 0,
	 0},
	/* It is forbidden. */
	{{150000, 18400 * MB_S, 13000 * MB_S, 0, 0, 18400 * MB_S},
	 SHM_BOTH_WAYS,
	 0,
	 0},
	/* It costs nothing. */
	{{150000, 10000 * MB_S, 10000 * MB_S, 40000 * MB_S, 1, 10000 * MB_S},
	 SHM_ONE_WAY,
	 1024,
	 1 << 20},
	/* Slower than a ring of which the sender has the lines */
	{{150000, 6000 * MB_S, 13000 * MB_S, 9000 * MB_S, 700000, 40000 * MB_S},
	 SHM_IN_TURN,
	 0,
	 0},
	{{150000, 6000 * MB_S, 13000 * MB_S, 9000 * MB_S, 700000, 40000 * MB_S},
	 SHM_ONE_WAY,
	 32768,
	 1 << 20},
	/* A little slower than the ring: short ones only. */
	{{100000, 20000 * MB_S, 20000 * MB_S, 15000 * MB_S, 500000,
	  20000 * MB_S},
	 SHM_ONE_WAY,
	 24576,
	 60000},
};

START_TEST(one_copy_pays_where_it_saves_time)
{
	const struct cma_case *c = &cma_cases[_i];
	uint64_t first, last;

	shm_cma_pays(&c->rates, c->traffic, 1 << 20, &first, &last);
	if (!c->first_most) {
		ck_assert_uint_eq(first, UINT64_MAX);
		return;
	}
	ck_assert_uint_le(first, c->first_most);
	ck_assert_uint_ge(first, 1024);
	if (c->last == 1 << 20)
		ck_assert_uint_eq(last, c->last);
	else
		ck_assert_uint_le(last, c->last);
}
END_TEST

/* Somebody else measures, until what is returned is closed. */
static int measure_nothing(void)
{
	const struct sockaddr_un name = {.sun_family = AF_UNIX,
					 .sun_path = "\0dicomm measures"};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct shm_rates r;

	ck_assert_int_ge(fd, 0);
	/* Who measures is done soon. */
	while (bind(fd, (const struct sockaddr *)&name, sizeof(name)))
		ck_assert_int_eq(errno, EADDRINUSE);
	shm_measure(NULL, &r);
	ck_assert_uint_eq(r.line_ps, 0);
	return fd;
}

/* Ranks of one communicator would all measure the same, one after the other. */
START_TEST(of_the_ranks_of_a_communicator_the_first_measures)
{
	uint8_t key[SHM_MEASURE_KEY] = {0};
	struct shm_rates r;
	int pipes[2], status;
	char byte = 0;
	pid_t other;

	memcpy(key, &(pid_t){getpid()}, sizeof(pid_t));
	ck_assert_int_eq(pipe(pipes), 0);
	other = fork();
	if (!other) {
		shm_measure(key, &r);
		/* It holds the name until it is killed. */
		(void)!write(pipes[1], &byte, 1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	shm_measure(key, &r);
	kill(other, SIGKILL);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert_uint_eq(r.line_ps, 0);
	close(pipes[0]);
	close(pipes[1]);
}
END_TEST

/* One process at a time; the others learn from their neighbours. */
START_TEST(a_process_that_cannot_measure_uses_its_peers_rates)
{
	const struct shm_rates half = {.line_ps = 5000};
	const struct shm_rates one = {7000, 8, 9, 10, 11, 12},
			       other = {70, 80, 90, 0, 0, 80};
	const struct shm_rates none = {0};
	struct shm_rates r;
	int fd = measure_nothing();

	shm_rates_tell(&none);
	shm_rates_tell(&half);
	shm_rates_get(&r);
	ck_assert_uint_eq(r.line_ps, 100000);
	shm_rates_tell(&one);
	shm_rates_tell(&other);
	shm_rates_get(&r);
	ck_assert_mem_eq(&r, &one, sizeof(r));
	close(fd);
}
END_TEST

static bool cores_are_shared;

static void run_sharing_cores(struct rank *r)
{
	uint8_t *buffer = malloc(LARGE / 4);
	struct tp_ref ref;
	bool offered;

	if (cores_are_shared)
		shm->share_cores(r->dev);
	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		ranks_barrier(r);
		offered = shm->offer(r->peer[1], buffer, LARGE / 4,
				     TP_WANT_EXCHANGE, &ref);
		EXPECT(r, offered != cores_are_shared, "exchanged");
		offered = shm->offer(r->peer[1], buffer, LARGE / 4,
				     TP_WANT_COPY, &ref);
		EXPECT(r, offered != cores_are_shared, "copied");
	} else {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		ranks_barrier(r);
	}
	free(buffer);
}

/* However quick it was measured to be. */
START_TEST(cma_is_for_ranks_with_a_core_each)
{
	const struct shm_rates quick = {
		150000, 10000 * MB_S, 10000 * MB_S, 40000 * MB_S,
		1,      10000 * MB_S};
	struct ranks_job job = {.t = shm,
				.kind = RANKS_PROCESSES,
				.ranks = 2,
				.run = run_sharing_cores};

	close(measure_nothing());
	shm_rates_tell(&quick);
	cores_are_shared = _i;
	ranks_run(&job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm");
	TCase *tcase = tcase_create("shm");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_thousand_cycles_leak_nothing);
	tcase_add_test(tcase, every_lack_of_memory_is_an_error);
	tcase_add_test(tcase, every_lack_of_descriptors_is_an_error);
	tcase_add_test(tcase, a_limit_on_files_is_an_error);
	tcase_add_test(tcase, cycles_of_two_processes_leak_nothing);
	tcase_add_loop_test(tcase,
			    ordinary_memory_is_not_offered_to_another_process,
			    0, RANKS_KINDS);
	tcase_add_test(tcase, cma_reads_ordinary_memory);
	tcase_add_loop_test(tcase, abort_is_bounded_with_a_reader_that_hangs, 0,
			    2);
	tcase_add_test(tcase, abort_does_not_wait_for_who_has_noticed_it);
	tcase_add_test(tcase, references_to_a_dead_process_fail_or_stay);
	tcase_add_test(tcase, what_a_dead_process_had_sent_is_received);
	tcase_add_test(tcase, imports_go_when_their_owner_frees);
	tcase_add_test(tcase, ranks_of_a_process_share_an_import);
	tcase_add_test(tcase, a_bad_reference_is_an_error);
	tcase_add_test(tcase, unlike_slots_are_refused);
	tcase_add_test(tcase, a_put_before_connect_is_an_error);
	tcase_add_test(tcase, many_ranks_need_little_memory);
	tcase_add_test(tcase, a_rank_of_4096_opens);
	tcase_add_test(tcase, a_killed_process_leaves_no_file);
	tcase_add_test(tcase, a_forked_child_does_not_disturb_its_parent);
	if (can_move())
		tcase_add_test(tcase, another_host_name_is_another_host);
	else
		printf("skipped: no right to another host name\n");
	tcase_add_test(tcase, an_address_from_elsewhere_says_so);
	tcase_add_test(tcase, a_recycled_process_is_not_reached);
	tcase_add_loop_test(tcase, a_sender_can_come_back, 0, RANKS_KINDS);
	tcase_add_test(tcase, what_a_closed_rank_had_sent_is_received);
	tcase_add_test(tcase, cma_notices_a_recycled_process);
	tcase_add_test(tcase, a_measurement_is_short_and_sane);
	tcase_add_loop_test(tcase, one_copy_pays_where_it_saves_time, 0,
			    sizeof(cma_cases) / sizeof(*cma_cases));
	tcase_add_test(tcase,
		       of_the_ranks_of_a_communicator_the_first_measures);
	tcase_add_test(tcase,
		       a_process_that_cannot_measure_uses_its_peers_rates);
	tcase_add_loop_test(tcase, cma_is_for_ranks_with_a_core_each, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
