/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a test: started, watched, and put an end to. */
#include "tests/support/job.h"

#include <check.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/starved.h"

#ifdef COUNT_LINES
void __gcov_dump(void);
#endif

#define DEFAULT_TIMEOUT_S 20
/* Failures kept: the first tells most, the others follow from it. */
#define FAILURES 4
#define TEXT_BYTES 700
#define DOERS 64 /* ranks that can tell what they are doing */
#define DOING_BYTES 200
#define RANKS 64 /* whose pids are known */
#define BARRIER_YIELDS 100

/* What all processes of a job see. */
struct board {
	_Atomic int failures;
	struct {
		int rank;
		char text[TEXT_BYTES];
	} failure[FAILURES];
	char doing[DOERS][DOING_BYTES];
	_Atomic int arrived, round; /* of the barrier */
	_Atomic int pids[RANKS];
	dicomm_unique_id_t id;
	_Alignas(64) uint8_t user[JOB_BOARD_BYTES];
};

static struct board *board;
static const struct job *current;
static int jobs; /* that this process has run */
static _Thread_local int my_rank = -1;

/* ---- in a rank ---- */

/* Not there unless the program is built with the sanitizer. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
void __tsan_init(void) __attribute__((weak));
void __asan_init(void) __attribute__((weak));

bool job_is_sanitized(void)
{
	return __asan_init || __tsan_init;
}

bool job_has_thread_sanitizer(void)
{
	return __tsan_init;
}

static void note(int rank, const char *text)
{
	int i = atomic_fetch_add(&board->failures, 1);

	if (i >= FAILURES)
		return;
	board->failure[i].rank = rank;
	snprintf(board->failure[i].text, TEXT_BYTES, "%s", text);
}

void job_fail(const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	note(my_rank, text);
	_exit(1);
}

void job_doing(const char *format, ...)
{
	va_list args;

	if (my_rank < 0 || my_rank >= DOERS)
		return;
	va_start(args, format);
	vsnprintf(board->doing[my_rank], DOING_BYTES, format, args);
	va_end(args);
}

void job_exit(void)
{
	/* Not exit(): what the test registered is not this process' to run. */
	if (__lsan_do_recoverable_leak_check &&
	    __lsan_do_recoverable_leak_check())
		job_fail("memory was leaked, see the log");
	fflush(NULL);
#ifdef COUNT_LINES
	__gcov_dump(); /* which only exit() calls */
#endif
	_exit(0);
}

#define SUMS 1000 /* elements */

/* First whether each is as the one before it: under the thread sanitizer, a
 * look at one after the other takes seconds. */
void job_check_bytes(const uint8_t *at, size_t len, uint8_t byte,
		     const char *what)
{
	if (!len || (at[0] == byte && !memcmp(at, at + 1, len - 1)))
		return;
	for (size_t i = 0; i < len; i++)
		JOB_CHECK(at[i] == byte, "%s: byte %zu is %#x", what, i, at[i]);
}

void job_check_sums(dicomm_comm_t comm, int n, int place)
{
	static _Thread_local double in[SUMS], out[SUMS];
	int ranks, rank;

	JOB_TRY(dicomm_comm_count(comm, &ranks));
	JOB_TRY(dicomm_comm_user_rank(comm, &rank));
	JOB_CHECK(ranks == n && rank == place, "rank %d of %d, not %d of %d",
		  rank, ranks, place, n);
	for (int i = 0; i < SUMS; i++)
		in[i] = (place + 1) * 1000 + i;
	JOB_TRY(dicomm_allreduce(in, out, SUMS, DICOMM_FLOAT64, DICOMM_SUM,
				 comm, NULL));
	for (int i = 0; i < SUMS; i++) {
		double want = n * (n + 1) / 2 * 1000.0 + (double)i * n;

		JOB_CHECK(out[i] == want, "element %d is %g, not %g", i, out[i],
			  want);
	}
}

void job_expect(dicomm_result_t got, dicomm_result_t want, const char *call)
{
	if (got == want)
		return;
	job_fail("%s: %d (%s) instead of %d: %s", call, (int)got,
		 dicomm_get_error_string(got), (int)want,
		 dicomm_get_last_error(NULL));
}

void job_refused(dicomm_result_t got, dicomm_result_t want, const char *call,
		 const char *words)
{
	const char *text;

	job_expect(got, want, call);
	text = dicomm_get_last_error(NULL);
	if (!strstr(text, words))
		job_fail("%s: the text \"%s\" does not say \"%s\"", call, text,
			 words);
}

dicomm_result_t job_settled(dicomm_result_t status, dicomm_comm_t comm,
			    double seconds)
{
	double end = job_seconds() + seconds;

	while (status == DICOMM_IN_PROGRESS && job_seconds() < end) {
		usleep(100);
		JOB_TRY(dicomm_comm_get_async_error(comm, &status));
	}
	return status;
}

void job_barrier(void)
{
	int round = atomic_load(&board->round);

	if (atomic_fetch_add(&board->arrived, 1) + 1 == current->ranks) {
		atomic_store(&board->arrived, 0);
		atomic_fetch_add(&board->round, 1);
		syscall(SYS_futex, &board->round, FUTEX_WAKE, INT_MAX, NULL,
			NULL, 0);
		return;
	}
	/* Those that come late need the cores. */
	for (int i = 0; atomic_load(&board->round) == round; i++) {
		struct timespec t = {0, 50000000};

		/* Who failed does not come; the job is lost anyway. */
		if (atomic_load(&board->failures))
			_exit(1);
		if (i < BARRIER_YIELDS)
			sched_yield();
		else
			syscall(SYS_futex, &board->round, FUTEX_WAIT, round, &t,
				NULL, 0);
	}
}

dicomm_unique_id_t job_id(void)
{
	dicomm_unique_id_t id;

	if (my_rank == 0)
		JOB_TRY(dicomm_get_unique_id(&board->id));
	job_barrier();
	id = board->id;
	job_barrier();
	return id;
}

void *job_board(void)
{
	return board->user;
}

dicomm_result_t job_gather(const void *mine, void *all, size_t len, void *ctx)
{
	const struct job_rank *me = ctx;
	char *at = (char *)job_board() + JOB_GATHER_AT;

	JOB_CHECK(len * (size_t)me->ranks + JOB_GATHER_AT <= JOB_BOARD_BYTES,
		  "%zu bytes", len);
	memcpy(at + (size_t)me->rank * len, mine, len);
	job_barrier();
	memcpy(all, at, len * (size_t)me->ranks);
	job_barrier();
	return DICOMM_SUCCESS;
}

int job_pid(int rank)
{
	int pid;

	while (!(pid = atomic_load(&board->pids[rank])))
		sched_yield();
	return pid;
}

static bool is_set(const char *name)
{
	const char *text = getenv(name);

	return text && *text && strcmp(text, "0");
}

bool job_is_long(void)
{
	return is_set("DICOMM_TEST_LONG");
}

bool job_is_short(void)
{
	return is_set("DICOMM_TEST_SHORT");
}

int job_number(void)
{
	return jobs;
}

bool job_is_costly(void)
{
	return job_is_sanitized() || is_set("DICOMM_TEST_TIMES");
}

bool job_uses(const char *transport)
{
	const char *list = getenv("DICOMM_TRANSPORTS");

	return list && *list != '^' && strstr(list, transport);
}

double job_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void job_sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

void job_await(const _Atomic bool *flag, const char *what)
{
	double end = job_seconds() + 20;

	while (!atomic_load(flag)) {
		JOB_CHECK(job_seconds() < end, "%s never came", what);
		usleep(200);
	}
}

static void *rank_main(void *arg)
{
	struct job_rank *me = arg;

	my_rank = me->rank;
	if (!current->bare)
		JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
					      me->rank));
	current->run(me);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	return NULL;
}

static _Noreturn void threads_main(void)
{
	int n = current->ranks;
	pthread_t *threads = calloc((size_t)n, sizeof(*threads));
	struct job_rank *ranks = calloc((size_t)n, sizeof(*ranks));

	if (!threads || !ranks)
		job_fail("out of memory");
	for (int r = 0; r < n; r++) {
		ranks[r] = (struct job_rank){
			.rank = r, .ranks = n, .arg = current->arg};
		if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
			job_fail("no thread for rank %d: %m", r);
	}
	for (int r = 0; r < n; r++)
		pthread_join(threads[r], NULL);
	free(threads);
	free(ranks);
	job_exit();
}

static _Noreturn void process_main(int rank)
{
	struct job_rank me = {
		.rank = rank, .ranks = current->ranks, .arg = current->arg};

	for (int i = 0; current->env[i]; i++)
		putenv((char *)(uintptr_t)current->env[i]);
	if (rank < RANKS)
		atomic_store(&board->pids[rank], getpid());
	if (current->threads)
		threads_main();
	rank_main(&me);
	job_exit();
}

static _Noreturn void disturber_main(void)
{
	current->disturb(current->arg);
	job_exit();
}

/* ---- in the test ---- */

struct child {
	pid_t pid;
	bool ended;
};

/* Those of the ranks, and after them the one that disturbs them, if any. */
static int processes(const struct job *job)
{
	return (job->threads ? 1 : job->ranks) + (job->disturb != NULL);
}

static void start_children(struct child *children, int n)
{
	pid_t parent = getpid();
	sigset_t chld, old;

	/* Kept for sigtimedwait(), whether ignored or not. */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	fflush(NULL);
	for (int i = 0; i < n; i++) {
		children[i].pid = fork();
		if (children[i].pid < 0) {
			note(i, "fork failed");
			children[i].ended = true;
		}
		if (children[i].pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (getppid() != parent)
			_exit(1);
		if (current->disturb && i == n - 1)
			disturber_main();
		process_main(i);
	}
}

/* A failure that the child itself could not note. */
static void note_end(int rank, int status)
{
	char text[80];

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && rank < 32 &&
	    current->may_die >> rank & 1)
		return;
	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "ended by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (!atomic_load(&board->failures))
		snprintf(text, sizeof(text), "ended with status %d",
			 WEXITSTATUS(status));
	else
		return;
	note(rank, text);
}

/* Returns how many still run. */
static int reap(struct child *children, int n)
{
	int running = 0, status;

	for (int i = 0; i < n; i++) {
		if (children[i].ended)
			continue;
		if (waitpid(children[i].pid, &status, WNOHANG) == 0) {
			running++;
			continue;
		}
		children[i].ended = true;
		if (status)
			note_end(i, status);
	}
	return running;
}

static void kill_rest(struct child *children, int n, int seconds)
{
	char text[DOING_BYTES + 80];

	for (int i = 0; i < n; i++) {
		if (children[i].ended)
			continue;
		/* Of threads, the first one speaks for all. */
		snprintf(text, sizeof(text), "did not end within %d s: %s",
			 seconds, i < DOERS ? board->doing[i] : "");
		note(i, text);
		kill(children[i].pid, SIGKILL);
		waitpid(children[i].pid, NULL, 0);
	}
}

/* Have the ranks waited for cores in a tenth of these seconds, or more? */
static bool are_starved(const struct child *children, int n, double seconds,
			double *before)
{
	double sum = 0, gained;

	for (int i = 0; i < n; i++)
		if (!children[i].ended)
			sum += starved_process_s(children[i].pid);
	gained = sum - *before;
	*before = sum;
	return gained > seconds / 10;
}

/* The bound is for the time in which the ranks have cores. */
static void watch(struct child *children, int n)
{
	const char *times = getenv("DICOMM_TEST_TIMES");
	int seconds =
		current->timeout_s ? current->timeout_s : DEFAULT_TIMEOUT_S;
	double end, starved = 0;
	int extended = 0;
	sigset_t chld;

	if (job_is_sanitized())
		seconds *= 3;
	if (times && atoi(times) > 1)
		seconds *= atoi(times);
	end = job_seconds() + seconds;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	while (reap(children, n)) {
		struct timespec t = {0, 100000000};

		if (job_seconds() > end) {
			if (++extended == STARVED_TIMES ||
			    !are_starved(children, n, seconds, &starved)) {
				kill_rest(children, n, seconds * extended);
				break;
			}
			end += seconds;
		}
		sigtimedwait(&chld, NULL, &t);
	}
}

static void tell(char *text, size_t len)
{
	int n = atomic_load(&board->failures);
	size_t at = 0;

	for (int i = 0; i < n && i < FAILURES && at < len; i++)
		at += (size_t)snprintf(text + at, len - at, "%srank %d: %s",
				       i ? "; " : "", board->failure[i].rank,
				       board->failure[i].text);
}

bool job_try(const struct job *job, char *text, size_t len)
{
	int n = processes(job);
	struct child *children;
	bool failed;

	children = calloc((size_t)n, sizeof(*children));
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* An assertion that holds would want to be in a test of Check. */
	if (!children || board == MAP_FAILED)
		ck_abort_msg("out of memory");
	current = job;
	jobs++;
	start_children(children, n);
	watch(children, n);
	free(children);
	failed = atomic_load(&board->failures) != 0;
	tell(text, len);
	munmap(board, sizeof(*board));
	return !failed;
}

void job_run(const struct job *job)
{
	char text[FAILURES * TEXT_BYTES] = "";

	ck_assert_msg(job_try(job, text, sizeof(text)), "%d ranks: %s",
		      job->ranks, text);
}
