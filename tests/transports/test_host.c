/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that neighbours can map, and how devices are named. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/host/memory.h"
#include "tests/support/capture.h"
#include "tests/support/runner.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const struct accel *host;

static void setup(void)
{
	host = accels[0];
	capture_nothing();
}

static uint8_t *allocate(size_t bytes)
{
	void *ptr = NULL;

	ck_assert_int_eq(host->alloc(0, bytes, &ptr), DICOMM_SUCCESS);
	ck_assert_ptr_nonnull(ptr);
	return ptr;
}

static int count_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

START_TEST(host_is_the_first_kind_and_is_one_device)
{
	char why[160] = "";
	dicomm_device_info_t info;

	ck_assert_str_eq(host->name, "host");
	ck_assert_int_eq(host->count(why, sizeof(why)), 1);
	ck_assert_int_eq(host->describe(0, &info), DICOMM_SUCCESS);
	ck_assert_str_eq(info.name, "host");
	ck_assert_uint_gt(strlen(info.vendor), 2);
	ck_assert_uint_gt(strlen(info.description), 2);
	ck_assert_str_eq(info.pci, "");
	ck_assert_int_eq(host->describe(1, &info), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->describe(-1, &info),
			 DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_device_is_found_by_name)
{
	const char *bad[] = {"",
			     "cuda:0",
			     "hos",
			     "hostess",
			     "host:",
			     "host:x",
			     "host: 0",
			     "host:-1",
			     "host:+0",
			     "host:1",
			     ":0",
			     "host:0:0",
			     "host:99999999999999999999"};
	char why[160];
	int index = -1;

	ck_assert_ptr_eq(accel_find("host", &index, why, sizeof(why)), host);
	ck_assert_int_eq(index, 0);
	index = -1;
	ck_assert_ptr_eq(accel_find("host:0", &index, why, sizeof(why)), host);
	ck_assert_int_eq(index, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		index = 7;
		why[0] = '\0';
		ck_assert_msg(!accel_find(bad[i], &index, why, sizeof(why)),
			      "\"%s\"", bad[i]);
		ck_assert_int_eq(index, 7);
		ck_assert_msg(strlen(why) > 10, "\"%s\": no reason", bad[i]);
	}
	accel_find("abacus:0", &index, why, sizeof(why));
	ck_assert_ptr_nonnull(strstr(why, "abacus"));
	ck_assert_ptr_nonnull(strstr(why, "host")); /* what there is */
	accel_find("a kind with a very long name indeed, longer than why is",
		   &index, why, 8);
	ck_assert_uint_eq(strlen(why), 7);
}
END_TEST

START_TEST(memory_is_zero_writable_and_whole_pages)
{
	const size_t sizes[] = {1, 4095, 4096, 4097, 1 << 21, (5 << 20) + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);
		size_t whole = (sizes[i] + page - 1) / page * page;
		uint8_t *p = allocate(sizes[i]);
		struct accel_export e;
		size_t offset;

		ck_assert_uint_eq((uintptr_t)p % page, 0);
		for (size_t k = 0; k < whole; k += 97) {
			ck_assert_uint_eq(p[k], 0);
			p[k] = 1;
		}
		ck_assert(host_memory_find(p, whole, &e, &offset));
		ck_assert_uint_eq(e.bytes, whole);
		ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
	}
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
	void *p = NULL;

	ck_assert_int_eq(host->alloc(0, 0, &p), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->alloc(0, SIZE_MAX, &p),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->alloc(0, (size_t)1 << 62, &p),
			 DICOMM_ERR_INVALID_ARGUMENT);
	/* The kernel's to refuse: more than there are addresses. */
	ck_assert_int_eq(host->alloc(0, (size_t)1 << 47, &p),
			 DICOMM_ERR_NO_MEMORY);
	ck_assert_int_eq(host->alloc(1, 4096, &p), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_null(p);
}
END_TEST

START_TEST(find_knows_what_lies_in_one_allocation)
{
	uint8_t *a = allocate(8192), *b = allocate((6u << 20) + 4096);
	struct accel_export e, f;
	size_t offset;
	uint8_t local;

	ck_assert(host_memory_find(a, 8192, &e, &offset));
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(e.pid, getpid());
	ck_assert(host_memory_find(a + 8191, 1, &f, &offset));
	ck_assert_uint_eq(offset, 8191);
	ck_assert_uint_eq(f.id, e.id);
	ck_assert(host_memory_find(b + (5u << 20), 1u << 20, &f, &offset));
	ck_assert_uint_eq(offset, 5u << 20);
	ck_assert_uint_eq(f.bytes, (6u << 20) + 4096);
	ck_assert_uint_ne(f.id, e.id);
	ck_assert_int_ne(f.fd, e.fd);

	ck_assert(!host_memory_find(a, 8193, &f, &offset));
	ck_assert(!host_memory_find(a + 8192, 1, &f, &offset));
	ck_assert(!host_memory_find(a - 1, 2, &f, &offset));
	ck_assert(!host_memory_find(a + 1, SIZE_MAX, &f, &offset));
	ck_assert(!host_memory_find(b + (6u << 20), 4097, &f, &offset));
	ck_assert(!host_memory_find(&local, 1, &f, &offset));
	ck_assert(!host_memory_find(NULL, 0, &f, &offset));
	ck_assert(!host_memory_find((void *)UINTPTR_MAX, 1, &f, &offset));
	ck_assert(!host_memory_find(
		(void *)find_knows_what_lies_in_one_allocation, 1, &f,
		&offset));

	ck_assert_int_eq(host->free(a), DICOMM_SUCCESS);
	ck_assert(!host_memory_find(a, 1, &f, &offset));
	ck_assert(host_memory_find(b, 1, &f, &offset));
	ck_assert_int_eq(host->free(b), DICOMM_SUCCESS);
	ck_assert(!host_memory_find(b + (5u << 20), 1, &f, &offset));
}
END_TEST

START_TEST(only_what_alloc_gave_can_be_freed)
{
	uint8_t *p = allocate(1u << 22);
	int local;

	ck_assert_int_eq(host->free(NULL), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->free(&local), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->free(p + 4096), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->free(p + (1u << 21)),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(host->free((void *)UINTPTR_MAX),
			 DICOMM_ERR_INVALID_ARGUMENT);
	p[4096] = 1; /* still there */
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
	ck_assert_int_eq(host->free(p), DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(freed_allocations_are_listed)
{
	uint64_t id, before = host_memory_freed(0, &id), n;
	uint64_t ids[600];

	for (int i = 0; i < 600; i++) {
		uint8_t *p = allocate(1);
		struct accel_export e;
		size_t offset;

		ck_assert(host_memory_find(p, 1, &e, &offset));
		ck_assert_uint_ne(e.id, 0);
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(e.id, ids[k]);
		ids[i] = e.id;
		ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
		ck_assert_uint_eq(host_memory_freed(before + (uint64_t)i, &id),
				  before + (uint64_t)i + 1);
		ck_assert_uint_eq(id, e.id);
	}
	n = host_memory_freed(before + 599, &id);
	ck_assert_uint_eq(n, before + 600);
	ck_assert_uint_eq(id, ids[599]);
	host_memory_freed(before + 500, &id);
	ck_assert_uint_eq(id, ids[500]);
	host_memory_freed(before, &id); /* has left the list */
	ck_assert_uint_eq(id, 0);
	host_memory_freed(n, &id); /* has not happened */
	ck_assert_uint_eq(id, 0);
}
END_TEST

/* A kernel that is slow at making huge pages. */
static struct {
	int ms, calls;
	size_t longest;
} collapses;

int __real_madvise(void *addr, size_t len, int advice);
int __wrap_madvise(void *addr, size_t len, int advice);
int __wrap_madvise(void *addr, size_t len, int advice)
{
	if (advice != MADV_COLLAPSE || !collapses.ms)
		return __real_madvise(addr, len, advice);
	collapses.calls++;
	if (len > collapses.longest)
		collapses.longest = len;
	usleep((unsigned)collapses.ms * 1000);
	return 0;
}

START_TEST(huge_pages_are_not_waited_for_long)
{
	const size_t bytes = 64 << 20;
	uint8_t *p;

	collapses.ms = 30;
	p = allocate(bytes);
	ck_assert_int_ge(collapses.calls, 1);
	ck_assert_int_le(collapses.calls, 3);
	ck_assert_uint_le(collapses.longest, 8 << 20);
	for (size_t i = 0; i < bytes; i += 4096)
		ck_assert_uint_eq(p[i], 0);
	memset(p, 1, bytes);
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
}
END_TEST

START_TEST(nothing_leaks)
{
	int files, maps;

	ck_assert_int_eq(host->free(allocate(1)), DICOMM_SUCCESS);
	files = count_files();
	maps = capture_lines("/proc/self/maps", "dicomm-memory");
	for (int i = 0; i < 1000; i++) {
		uint8_t *p = allocate((size_t)(i % 7 + 1) << 20);

		p[12345] = 1;
		ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
	}
	ck_assert_int_eq(count_files(), files);
	ck_assert_int_eq(capture_lines("/proc/self/maps", "dicomm-memory"),
			 maps);
}
END_TEST

/* Runs fn in a process of its own; its exit status, or 256 + a signal. */
static int in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(fn(arg));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

struct shared {
	struct accel_export e;
	const uint8_t *expected;
	dicomm_result_t wanted;
};

static int import_and_compare(void *arg)
{
	struct shared *s = arg;
	void *base = NULL;

	if (host_memory_import(&s->e, &base) != s->wanted)
		return 1;
	if (s->wanted != DICOMM_SUCCESS)
		return base ? 2 : 0;
	/* The child has the parent's mapping too, at another address. */
	if (base == s->expected || memcmp(base, s->expected, s->e.bytes) != 0)
		return 3;
	host_memory_unimport(&s->e, base);
	return capture_lines("/proc/self/maps", "dicomm-memory") == 1 ? 0 : 4;
}

static int import_and_write(void *arg)
{
	struct shared *s = arg;
	void *base;

	if (host_memory_import(&s->e, &base) != DICOMM_SUCCESS)
		return 1;
	signal(SIGSEGV, SIG_DFL);
	*(volatile uint8_t *)base = 1;
	return 0;
}

START_TEST(a_neighbour_maps_it_and_only_reads)
{
	struct shared s = {.wanted = DICOMM_SUCCESS};
	uint8_t *p = allocate(3u << 20);
	size_t offset;

	for (size_t i = 0; i < 3u << 20; i++)
		p[i] = (uint8_t)(i * 7 + i / 251);
	ck_assert(host_memory_find(p, 1, &s.e, &offset));
	s.expected = p;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	ck_assert_int_eq(in_child(import_and_write, &s), 256 + SIGSEGV);
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
}
END_TEST

START_TEST(a_stale_or_false_export_is_refused)
{
	struct shared s = {.wanted = DICOMM_ERR_REMOTE};
	uint8_t *p = allocate(8192), *q;
	struct accel_export e, e2;
	size_t offset;
	void *base = NULL;

	ck_assert(host_memory_find(p, 1, &e, &offset));
	s.e = e;
	s.e.id++;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e = e;
	s.e.bytes = 4096;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e = e;
	s.e.fd = 1; /* what else a descriptor may be */
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e.fd = 999;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	/* Freed, and the number of its descriptor taken by the next one. */
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
	q = allocate(8192);
	ck_assert(host_memory_find(q, 1, &e2, &offset));
	ck_assert_int_eq(e2.fd, e.fd);
	s.e = e;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);

	s.wanted = DICOMM_ERR_INVALID_ARGUMENT;
	s.e = e2;
	s.e.bytes = 8191;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e = e2;
	s.e.bytes = 0;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e = e2;
	s.e.pid = 0;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	s.e = e2;
	s.e.fd = -1;
	ck_assert_int_eq(in_child(import_and_compare, &s), 0);
	/* One's own has a pointer already. */
	ck_assert_int_eq(host_memory_import(&e2, &base),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_null(base);
	ck_assert_int_eq(host->free(q), DICOMM_SUCCESS);
}
END_TEST

static int allocate_too_much(void *arg)
{
	struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
	void *ptr = NULL;

	(void)arg;
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return 1;
	if (host->alloc(0, 2 << 20, &ptr) != DICOMM_ERR_NO_MEMORY || ptr)
		return 2;
	return host->alloc(0, 1 << 20, &ptr) == DICOMM_SUCCESS ? 0 : 3;
}

/* By itself the kernel ends the program. */
START_TEST(the_limit_on_files_is_one_on_memory)
{
	ck_assert_int_eq(in_child(allocate_too_much, NULL), 0);
}
END_TEST

static int import_soon(void *arg)
{
	signal(SIGALRM, SIG_DFL);
	alarm(5);
	return import_and_compare(arg);
}

/* Who opens a FIFO that nobody writes to waits for a writer. */
START_TEST(a_number_that_became_a_fifos_is_not_waited_for)
{
	char folder[] = "/tmp/dicomm-host-XXXXXX", path[64];
	struct shared s = {.wanted = DICOMM_ERR_REMOTE};
	uint8_t *p = allocate(4096);
	size_t offset;

	ck_assert(host_memory_find(p, 1, &s.e, &offset));
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/fifo", folder);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	s.e.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	unlink(path);
	rmdir(folder);
	ck_assert_int_ge(s.e.fd, 0);
	ck_assert_int_eq(in_child(import_soon, &s), 0);
	close(s.e.fd);
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
}
END_TEST

static int child_of_owner(void *arg)
{
	uint8_t *p = arg, *mine;
	struct accel_export e;
	size_t offset;
	uint64_t id;

	if (host->free(p) != DICOMM_ERR_INVALID_ARGUMENT)
		return 1;
	if (host_memory_find(p, 1, &e, &offset))
		return 2;
	if (p[100] != 77) /* the memory itself stays */
		return 3;
	/* No descriptor that would keep it when the parent frees it. */
	for (int fd = 0; fd < 64; fd++) {
		char path[32], name[96] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 &&
		    strstr(name, "dicomm-memory"))
			return 6;
	}
	mine = allocate(4096);
	if (!host_memory_find(mine, 4096, &e, &offset) || e.pid != getpid())
		return 4;
	if (host->free(mine) != DICOMM_SUCCESS ||
	    host_memory_freed(0, &id) != 1)
		return 5;
	return 0;
}

START_TEST(a_forked_child_does_not_own_its_parents_memory)
{
	uint8_t *p = allocate(4096), *other = allocate(1u << 22);
	struct accel_export e;
	size_t offset;

	p[100] = 77;
	ck_assert_int_eq(in_child(child_of_owner, p), 0);
	/* And the parent still does. */
	ck_assert(host_memory_find(p, 1, &e, &offset));
	ck_assert_uint_eq(p[100], 77);
	ck_assert_int_eq(host->free(p), DICOMM_SUCCESS);
	ck_assert_int_eq(host->free(other), DICOMM_SUCCESS);
}
END_TEST

struct stress {
	_Atomic bool stop;
	uint8_t *stable;
	uint64_t id;
	_Atomic int wrong;
};

static void *look_up(void *arg)
{
	struct stress *s = arg;
	uint8_t other[64];

	while (!atomic_load(&s->stop)) {
		struct accel_export e = {0};
		size_t offset = 0;

		if (!host_memory_find(s->stable + 5000, 100, &e, &offset) ||
		    e.id != s->id || offset != 5000)
			atomic_fetch_add(&s->wrong, 1);
		if (host_memory_find(other, sizeof(other), &e, &offset))
			atomic_fetch_add(&s->wrong, 1);
	}
	return NULL;
}

static void *churn(void *arg)
{
	(void)arg;
	for (int i = 0; i < 300; i++) {
		void *p;

		if (host->alloc(0, (size_t)(i % 5 + 1) << 20, &p) !=
		    DICOMM_SUCCESS)
			return "alloc";
		if (host->free(p) != DICOMM_SUCCESS)
			return "free";
	}
	return NULL;
}

START_TEST(find_needs_no_lock_while_others_allocate)
{
	struct stress s = {.stable = allocate(8192)};
	pthread_t reader, writer[2];
	struct accel_export e;
	size_t offset;
	void *failed;

	ck_assert(host_memory_find(s.stable, 1, &e, &offset));
	s.id = e.id;
	ck_assert_int_eq(pthread_create(&reader, NULL, look_up, &s), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&writer[i], NULL, churn, NULL),
				 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(writer[i], &failed);
		ck_assert_ptr_null(failed);
	}
	atomic_store(&s.stop, true);
	pthread_join(reader, NULL);
	ck_assert_int_eq(atomic_load(&s.wrong), 0);
	ck_assert_int_eq(host->free(s.stable), DICOMM_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("host");
	TCase *tcase = tcase_create("host");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, host_is_the_first_kind_and_is_one_device);
	tcase_add_test(tcase, a_device_is_found_by_name);
	tcase_add_test(tcase, memory_is_zero_writable_and_whole_pages);
	tcase_add_test(tcase, impossible_sizes_are_refused);
	tcase_add_test(tcase, find_knows_what_lies_in_one_allocation);
	tcase_add_test(tcase, only_what_alloc_gave_can_be_freed);
	tcase_add_test(tcase, freed_allocations_are_listed);
	tcase_add_test(tcase, huge_pages_are_not_waited_for_long);
	tcase_add_test(tcase, nothing_leaks);
	tcase_add_test(tcase, a_neighbour_maps_it_and_only_reads);
	tcase_add_test(tcase, the_limit_on_files_is_one_on_memory);
	tcase_add_test(tcase, a_stale_or_false_export_is_refused);
	tcase_add_test(tcase, a_number_that_became_a_fifos_is_not_waited_for);
	tcase_add_test(tcase, a_forked_child_does_not_own_its_parents_memory);
	tcase_add_test(tcase, find_needs_no_lock_while_others_allocate);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
