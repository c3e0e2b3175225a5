/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that starts without descriptors 0, 1 and 2 works as any other: the
 * library takes none of them, and what others take gets no messages.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dicomm.h"
#include "src/base/descriptors.h"
#include "src/base/memfd.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"

START_TEST(low_numbers_are_replaced)
{
	int fd;

	ck_assert_int_eq(descriptors_high(77), 77);
	errno = EDOM;
	ck_assert_int_eq(descriptors_high(-1), -1);
	ck_assert_int_eq(errno, EDOM);
	close(0);
	fd = descriptors_high(open("/dev/null", O_RDONLY));
	ck_assert_int_gt(fd, 2);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(0, F_GETFD), -1);
	close(fd);
}
END_TEST

START_TEST(files_folders_and_memory_get_high_numbers)
{
	FILE *f;
	DIR *dir;
	int fd;

	close(0);
	f = descriptors_fopen("/proc/self/status");
	dir = descriptors_opendir("/");
	fd = memfd_make("test", 0);
	ck_assert(f && dir);
	ck_assert_int_gt(fileno(f), 2);
	ck_assert_int_gt(dirfd(dir), 2);
	ck_assert_int_gt(fd, 2);
	fclose(f);
	closedir(dir);
	close(fd);
	ck_assert_ptr_null(descriptors_fopen("/no such file"));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_ptr_null(descriptors_opendir("/proc/self/status"));
	ck_assert_int_eq(errno, ENOTDIR);
}
END_TEST

START_TEST(what_is_closed_is_filled_and_what_is_open_stays)
{
	char path[64] = "";
	int file = open("/proc/self/status", O_RDONLY);

	ck_assert_int_eq(dup2(file, 1), 1);
	close(0);
	descriptors_fill_standard();
	ck_assert_int_gt(readlink("/proc/self/fd/0", path, sizeof(path) - 1),
			 0);
	ck_assert_str_eq(path, "/dev/null");
	ck_assert_int_eq(fcntl(1, F_GETFL) & O_ACCMODE, O_RDONLY);
	close(file);
}
END_TEST

#ifndef HAVE_UCX
#define HAVE_UCX 0
#endif

/* ---- two ranks without any of the three ---- */

static const struct {
	const char *debug, *transports;
} kinds[] = {{NULL, NULL},
	     {"info", NULL},
	     {"trace", NULL},
	     {"info", "tcp"},
	     {"info", "ucx"}};
#define KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))

/* Closed, or the file that fills it */
static bool is_free(int fd)
{
	char link[32], path[128];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return errno == ENOENT;
	path[n] = '\0';
	return !strcmp(path, "/dev/null");
}

/* 0, or where it went wrong */
static int communicate(int ranks)
{
	dicomm_comm_t c = NULL, d = NULL;
	int x = 1, y = 0;

	if (dicomm_comm_init_env(&c))
		return 10;
	for (int i = 0; i < 20; i++)
		if (dicomm_allreduce(&x, &y, 1, DICOMM_INT32, DICOMM_SUM, c,
				     NULL) ||
		    y != ranks)
			return 11;
	/* It says why, to a stderr that is not there. */
	if (dicomm_allreduce(NULL, &y, 1, DICOMM_INT32, DICOMM_SUM, c, NULL) !=
	    DICOMM_ERR_INVALID_ARGUMENT)
		return 12;
	if (dicomm_comm_split(c, 0, 0, &d, NULL) || dicomm_barrier(d, NULL))
		return 13;
	for (int fd = 0; fd <= 2; fd++)
		if (!is_free(fd))
			return 20 + fd;
	if (dicomm_comm_destroy(d) || dicomm_comm_destroy(c))
		return 14;
	return 0;
}

static pid_t start(int rank, int ranks, const char *id, int kind)
{
	pid_t pid = fork();
	char text[16];

	if (pid)
		return pid;
	snprintf(text, sizeof(text), "%d", rank);
	setenv("DICOMM_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", ranks);
	setenv("DICOMM_SIZE", text, 1);
	setenv("DICOMM_COMM_ID", id, 1);
	setenv("DICOMM_COMM_KEY", "of this test only", 1);
	unsetenv("DICOMM_DEBUG");
	if (kinds[kind].debug)
		setenv("DICOMM_DEBUG", kinds[kind].debug, 1);
	if (kinds[kind].transports)
		setenv("DICOMM_TRANSPORTS", kinds[kind].transports, 1);
	close(0);
	close(1);
	close(2);
	alarm(60);
	_exit(communicate(ranks));
}

START_TEST(ranks_without_stdio_communicate)
{
	enum { RANKS = 2 };
	char id[32];
	pid_t pids[RANKS];

	/* The thread sanitizer does not see its locks, and the hook of UCX on
	 * madvise() takes a lock at the end of each thread, when that of gcc 12
	 * has forgotten the thread. */
	if (kinds[_i].transports && !strcmp(kinds[_i].transports, "ucx") &&
	    (!HAVE_UCX || job_has_thread_sanitizer()))
		return;
	snprintf(id, sizeof(id), "127.0.0.1:%d",
		 20000 + (int)(getpid() * 7 + _i) % 12000);
	for (int r = 0; r < RANKS; r++)
		pids[r] = start(r, RANKS, id, _i);
	for (int r = 0; r < RANKS; r++) {
		int status = -1;

		ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
		ck_assert_msg(status == 0, "kind %d: rank %d: status %#x", _i,
			      r, (unsigned)status);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("descriptors");
	TCase *t = tcase_create("descriptors");

	tcase_set_timeout(t, 90);
	tcase_add_test(t, low_numbers_are_replaced);
	tcase_add_test(t, files_folders_and_memory_get_high_numbers);
	tcase_add_test(t, what_is_closed_is_filled_and_what_is_open_stays);
	tcase_add_loop_test(t, ranks_without_stdio_communicate, 0, KINDS);
	suite_add_tcase(s, t);
	return runner_main(s);
}
