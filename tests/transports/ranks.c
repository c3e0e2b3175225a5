/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/transports/ranks.h"

#include <errno.h>
#include <dirent.h>
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/net/sock.h"
#include "tests/support/leaks.h"

#define WAIT_NS 10000000000u
#define SPINS 200 /* then yield: ranks outnumber cores */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rank_end(struct rank *r)
{
	if (r->kind == RANKS_PROCESSES)
		_exit(1);
	pthread_exit(NULL);
}

void ranks_fail(struct rank *r, const char *file, int line, const char *what,
		const char *format, ...)
{
	struct ranks_area *area = r->area;
	bool first = false;
	va_list args;
	int n;

	if (atomic_compare_exchange_strong(&area->failed, &first, true)) {
		n = snprintf(area->failure, sizeof(area->failure),
			     "%s, %s, rank %d: %s:%d: %.150s: ", r->t->name,
			     r->kind == RANKS_THREADS ? "threads" : "processes",
			     r->rank, file, line, what);
		va_start(args, format);
		vsnprintf(area->failure + n, sizeof(area->failure) - (size_t)n,
			  format, args);
		va_end(args);
	}
	rank_end(r);
	__builtin_unreachable();
}

void ranks_wait_turn(struct rank *r, struct ranks_wait *w, const char *file,
		     int line, const char *what)
{
	if (atomic_load_explicit(&r->area->failed, memory_order_relaxed))
		rank_end(r);
	if (!w->deadline_ns)
		w->deadline_ns = now_ns() + WAIT_NS;
	r->t->poll(r->dev);
	if (++w->spins < SPINS)
		return;
	sched_yield();
	if (now_ns() > w->deadline_ns)
		ranks_fail(r, file, line, what, "waited too long for that");
}

void ranks_barrier(struct rank *r)
{
	int wanted = ++r->barriers * r->ranks;

	atomic_fetch_add(&r->area->arrived, 1);
	RANKS_WAIT(r, atomic_load(&r->area->arrived) >= wanted);
}

bool ranks_is_dead(const struct rank *r, int rank)
{
	char path[64], state = 'X';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", r->area->pid[rank]);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 'X';
		fclose(f);
	}
	return state == 'Z' || state == 'X';
}

void ranks_connect_out(struct rank *r, int peer, enum tp_class c)
{
	dicomm_result_t status;

	RANKS_WAIT(r, (status = r->t->connect_out(r->peer[peer], c,
						  &r->out[peer][c])) !=
			      DICOMM_AGAIN);
	EXPECT_OK(r, status);
	if (!r->body[peer][c])
		r->body[peer][c] =
			calloc(2 * r->config.slots, r->config.slot_bytes);
	EXPECT(r, r->body[peer][c], "out of memory");
}

void ranks_connect_in(struct rank *r, int peer, enum tp_class c)
{
	dicomm_result_t status;

	RANKS_WAIT(r, (status = r->t->connect_in(r->peer[peer], c,
						 &r->in[peer][c])) !=
			      DICOMM_AGAIN);
	EXPECT_OK(r, status);
}

/* In turns, since a transport may need both for either. */
void ranks_connect(struct rank *r, int peer, enum tp_class c)
{
	dicomm_result_t out, in = DICOMM_AGAIN;

	RANKS_WAIT(
		r,
		((out = r->t->connect_out(r->peer[peer], c, &r->out[peer][c])),
		 (in = r->t->connect_in(r->peer[peer], c, &r->in[peer][c])),
		 out != DICOMM_AGAIN && in != DICOMM_AGAIN));
	EXPECT_OK(r, out);
	EXPECT_OK(r, in);
	ranks_connect_out(r, peer, c);
}

static bool stands(const char *path)
{
	char text[256] = "";
	FILE *f = fopen(path, "r");
	const char *state;

	if (!f)
		return true; /* the thread has ended */
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	state = strrchr(text, ')');
	return state && state[1] == ' ' && state[2] == 'T';
}

static bool all_stand(pid_t pid)
{
	char path[300];
	struct dirent *d;
	bool all = true;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return false;
	while (all && (d = readdir(tasks))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.32s/stat",
			 (int)pid, d->d_name);
		all = stands(path);
	}
	closedir(tasks);
	return all;
}

void ranks_stop(struct rank *r, int peer)
{
	pid_t pid = r->area->pid[peer];

	EXPECT(r, !kill(pid, SIGSTOP), "kill: %s", strerror(errno));
	RANKS_WAIT(r, all_stand(pid));
}

dicomm_result_t ranks_try_put(struct rank *r, int peer, enum tp_class c,
			      uint64_t seq, const void *body, uint64_t len)
{
	/* With twice as many copies as slots, the one before in this place is
	 * done: the put of seq - slots had the credits that say so. */
	uint8_t *copy = r->body[peer][c] +
			(seq % (2 * r->config.slots)) * r->config.slot_bytes;
	dicomm_result_t status;

	if (len)
		memcpy(copy, body, len);
	status = r->t->put(r->peer[peer], c, seq, (uint32_t)seq ^ 0x5a5a,
			   TP_DATA, copy, len);
	return status == DICOMM_IN_PROGRESS ? DICOMM_SUCCESS : status;
}

void ranks_put(struct rank *r, int peer, enum tp_class c, uint64_t seq,
	       const void *body, uint64_t len)
{
	dicomm_result_t status;

	RANKS_WAIT(r, (status = ranks_try_put(r, peer, c, seq, body, len)) !=
			      DICOMM_AGAIN);
	EXPECT_OK(r, status);
}

const struct tp_line *ranks_get(struct rank *r, int peer, enum tp_class c,
				uint64_t seq, const uint8_t **body)
{
	const struct tp_inbox *in = &r->in[peer][c];
	uint64_t slot = seq % r->config.slots;
	struct tp_line *line = tp_line(in, slot);

	RANKS_WAIT(r, atomic_load_explicit(&line->seq, memory_order_acquire) >=
			      seq);
	EXPECT(r, atomic_load(&line->seq) == seq, "message %llu after %llu",
	       (unsigned long long)atomic_load(&line->seq),
	       (unsigned long long)seq);
	if (line->kind == TP_REF) {
		*body = line->room;
		return line;
	}
	EXPECT(r, line->signature == ((uint32_t)seq ^ 0x5a5a), "%#x",
	       line->signature);
	*body = tp_payload(in, seq, line);
	EXPECT(r, *body, "kind %u, %llu bytes", line->kind,
	       (unsigned long long)line->len);
	return line;
}

void ranks_read(struct rank *r, int peer, enum tp_class c, uint64_t seq,
		const struct tp_ref *ref, uint64_t offset, void *dst,
		uint64_t len)
{
	struct tp_mem *hold;
	dicomm_result_t status;

	EXPECT_OK(r, r->t->mem_reg(r->dev, dst, len, true, &hold));
	RANKS_WAIT(r, (status = r->t->read(r->peer[peer], c, seq, ref, offset,
					   dst, len)) != DICOMM_AGAIN);
	if (status == DICOMM_IN_PROGRESS)
		RANKS_WAIT(r, (status = r->t->read_status(r->peer[peer], c,
							  seq)) !=
				      DICOMM_IN_PROGRESS);
	EXPECT_OK(r, status);
	r->t->mem_dereg(r->dev, hold);
}

static uint8_t pattern(uint64_t i, uint64_t seed)
{
	uint64_t x = (i / 8 + 1) * 0x9e3779b97f4a7c15u ^ seed * 0xff51afd7ed;

	return (uint8_t)(x >> (8 * (i % 8)));
}

void ranks_fill(uint8_t *bytes, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = pattern(i, seed);
}

uint64_t ranks_check(const uint8_t *bytes, uint64_t len, uint64_t seed)
{
	uint64_t i = 0;

	while (i < len && bytes[i] == pattern(i, seed))
		i++;
	return i;
}

static void rank_open(struct rank *r)
{
	struct ranks_area *area = r->area;

	log_set_rank(r->rank);
	if (!strcmp(r->t->name, "ucx"))
		leaks_ignore();
	EXPECT_OK(r, r->t->open(&r->config, &r->dev));
	r->t->address(r->dev, &area->address[r->rank]);
	area->pid[r->rank] = getpid();
	ranks_barrier(r);
	for (int p = 0; p < r->ranks; p++) {
		char why[256] = "";

		EXPECT(r,
		       r->t->reaches(r->dev, &area->address[p], why,
				     sizeof(why)),
		       "rank %d: %s", p, why);
		EXPECT_OK(r, r->t->peer_open(r->dev, p, &area->address[p],
					     &r->peer[p]));
	}
	ranks_barrier(r);
}

static void rank_close(struct rank *r)
{
	/* Every other peer by hand, what is left by close(). */
	for (int p = 0; p < r->ranks; p += 2)
		if (r->peer[p])
			r->t->peer_close(r->peer[p]);
	r->t->close(r->dev);
	for (int p = 0; p < r->ranks; p++)
		for (int c = 0; c < TP_CLASSES; c++)
			free(r->body[p][c]);
}

struct start {
	const struct ranks_job *job;
	struct ranks_area *area;
	int rank;
};

static void *rank_main(void *arg)
{
	const struct start *s = arg;
	const struct ranks_job *job = s->job;
	struct rank r = {
		.t = job->t,
		.kind = job->kind,
		.area = s->area,
		.rank = s->rank,
		.ranks = job->ranks,
		.config = {.rank = s->rank,
			   .ranks = job->ranks,
			   .slots = job->slots ? job->slots : 8,
			   .slot_bytes =
				   job->slot_bytes ? job->slot_bytes : 4096,
			   .listen = sock_listen},
	};

	rank_open(&r);
	job->run(&r);
	if (!job->killed)
		ranks_barrier(&r);
	rank_close(&r);
	return NULL;
}

static void run_threads(const struct ranks_job *job, struct ranks_area *area)
{
	struct start start[RANKS_MAX];
	pthread_t thread[RANKS_MAX];

	for (int i = 0; i < job->ranks; i++) {
		start[i] = (struct start){job, area, i};
		ck_assert_int_eq(
			pthread_create(&thread[i], NULL, rank_main, &start[i]),
			0);
	}
	for (int i = 0; i < job->ranks; i++)
		pthread_join(thread[i], NULL);
}

static void run_processes(const struct ranks_job *job, struct ranks_area *area)
{
	pid_t pid[RANKS_MAX];

	for (int i = 0; i < job->ranks; i++) {
		struct start start = {job, area, i};

		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (!pid[i]) {
			rank_main(&start);
			/* Not _exit: a leak checker may want to speak. */
			exit(0);
		}
	}
	for (int i = 0; i < job->ranks; i++) {
		int status = 0;
		bool clean;

		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		clean = job->killed == i + 1
				? WIFSIGNALED(status) &&
					  WTERMSIG(status) == SIGKILL
				: WIFEXITED(status) && !WEXITSTATUS(status);
		if (!clean && !atomic_exchange(&area->failed, true))
			snprintf(area->failure, sizeof(area->failure),
				 "%s, rank %d: ended with status %#x",
				 job->t->name, i, status);
	}
}

void ranks_run(const struct ranks_job *job)
{
	struct ranks_area *area;
	char failure[512];
	bool failed;

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(area, MAP_FAILED);
	if (job->kind == RANKS_THREADS)
		run_threads(job, area);
	else
		run_processes(job, area);
	failed = atomic_load(&area->failed);
	memcpy(failure, area->failure, sizeof(failure));
	munmap(area, sizeof(*area));
	if (failed)
		ck_abort_msg("%s", failure);
}
