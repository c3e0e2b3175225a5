/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that meet, for tests of the control plane. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/support/meet.h"

/* In the parent's memory only. */
static pthread_t threads[MEET_MAX];

uint64_t meet_now_ms(void)
{
	return clock_ms();
}

void meet_sleep_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

static int count_descriptors(bool sockets_only)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char target[64];
	ssize_t len;
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		len = readlinkat(dirfd(dir), e->d_name, target, sizeof(target));
		if (len < 0 || atoi(e->d_name) == dirfd(dir))
			continue;
		if (!sockets_only || !strncmp(target, "socket:", 7))
			n++;
	}
	closedir(dir);
	return n;
}

int meet_descriptors(void)
{
	return count_descriptors(false);
}

int meet_sockets(void)
{
	return count_descriptors(true);
}

struct meet *meet_create(enum meet_kind kind, int ranks)
{
	struct meet *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(m, MAP_FAILED);
	ck_assert_int_le(ranks, MEET_MAX);
	m->kind = kind;
	m->ranks = ranks;
	for (int i = 0; i < MEET_MAX; i++) {
		m->rank[i].meet = m;
		m->rank[i].rank = i;
	}
	return m;
}

static void on_failed(void *ctx, dicomm_result_t status, int culprit,
		      const char *text)
{
	struct meet_rank *r = ctx;

	if (!atomic_load(&r->failures)) {
		r->status = status;
		r->culprit = culprit;
		snprintf(r->text, sizeof(r->text), "%s", text);
		atomic_store(&r->failed_ns, clock_ns());
	}
	atomic_fetch_add(&r->failures, 1);
}

static void run_rank(struct meet_rank *r)
{
	struct meet *m = r->meet;
	struct control_config config = {
		.rank = r->rank,
		.ranks = m->ranks,
		.id = &m->id,
		.timeout_ms = m->timeout_ms ? m->timeout_ms : 20000,
		.cancelled = &r->cancelled,
		.events = {.failed = on_failed, .ctx = r},
	};
	uint64_t begin = clock_ms();

	if (m->adjust)
		m->adjust(r, &config);
	r->opened = control_open(&config, &r->control);
	r->open_ms = clock_ms() - begin;
	if (r->opened != DICOMM_SUCCESS)
		snprintf(r->error, sizeof(r->error), "%s", log_last_error());
	atomic_store(&r->returned, true);
	if (r->opened != DICOMM_SUCCESS)
		return;
	if (m->run)
		m->run(r);
	control_close(r->control);
}

static void *thread_main(void *arg)
{
	run_rank(arg);
	return NULL;
}

void meet_start(struct meet *m)
{
	pid_t pid;

	if (!m->id.text[0])
		ck_assert_int_eq(id_create(&m->id), DICOMM_SUCCESS);
	for (int i = 0; i < m->ranks; i++) {
		if (m->absent[i])
			continue;
		if (m->kind == MEET_THREADS) {
			ck_assert_int_eq(pthread_create(&threads[i], NULL,
							thread_main,
							&m->rank[i]),
					 0);
			continue;
		}
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			run_rank(&m->rank[i]);
			_exit(0);
		}
		m->rank[i].pid = pid;
	}
}

static void wait_for(pid_t pid, int *status)
{
	pid_t ended;

	do
		ended = waitpid(pid, status, 0);
	while (ended < 0 && errno == EINTR);
	ck_assert_msg(ended == pid, "waitpid %d: %s", (int)pid,
		      strerror(errno));
}

void meet_wait(struct meet *m)
{
	int status;

	for (int i = 0; i < m->ranks; i++) {
		if (m->absent[i])
			continue;
		if (m->kind == MEET_THREADS) {
			pthread_join(threads[i], NULL);
			continue;
		}
		wait_for(m->rank[i].pid, &status);
		if (m->killed[i])
			ck_assert(WIFSIGNALED(status));
		else
			ck_assert_msg(status == 0, "rank %d ended with %#x", i,
				      (unsigned)status);
	}
}

void meet_run(struct meet *m)
{
	meet_start(m);
	meet_wait(m);
}

void meet_barrier(struct meet_rank *r, int n)
{
	struct meet *m = r->meet;
	int turn = atomic_fetch_add(&m->arrived, 1) / n;

	MEET_UNTIL(atomic_load(&m->arrived) >= (turn + 1) * n);
}
