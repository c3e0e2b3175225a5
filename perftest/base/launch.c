/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as local processes: fork and exec; if one fails, all end; none is left
 * over. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perftest/base/clock.h"
#include "perftest/base/failure.h"
#include "perftest/base/launch.h"

#define MARK "--launched-rank="

/* When a rank fails, the library tells the others within a second. A rank that
 * has not ended GRACE_S after a failure gets SIGTERM, and after TERM_S more
 * SIGKILL. */
#define GRACE_S 3
#define TERM_S 1

struct job {
	pid_t *pids; /* 0: it has ended */
	int ranks, running;
	int status; /* of the rank that failed first */
	/* A signal killed that rank, and this process did not send it. */
	bool killed;
	bool ending;
};

/* Returns a port that is free now. Rank 0 takes it within milliseconds. */
static int free_port(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int port = -1;

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&addr, &len) == 0)
		port = ntohs(addr.sin_port);
	close(fd);
	return port;
}

static int set_meeting_point(int ranks)
{
	unsigned char secret[32];
	char text[2 * sizeof(secret) + 1];
	int port = free_port();

	if (port < 0 ||
	    getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
		return -1;
	snprintf(text, sizeof(text), "127.0.0.1:%d", port);
	setenv("DICOMM_COMM_ID", text, 1);
	for (size_t i = 0; i < sizeof(secret); i++)
		snprintf(text + 2 * i, 3, "%02x", secret[i]);
	setenv("DICOMM_COMM_KEY", text, 1);
	snprintf(text, sizeof(text), "%d", ranks);
	setenv("DICOMM_SIZE", text, 1);
	/* All ranks are on this machine, so further communicators use the
	 * loopback interface, too. */
	if (!getenv("NCCL_SOCKET_IFNAME"))
		setenv("DICOMM_SOCKET_IFNAME", "lo", 0);
	return 0;
}

/* Runs in the child. Does not return. */
static void become_rank(int rank, char **argv, pid_t parent,
			const sigset_t *signals)
{
	char text[16], mark[32];
	char **args;
	int n = 0;

	/* The parent may have ended before this took effect. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(FAILURE_INTERNAL);
	sigprocmask(SIG_SETMASK, signals, NULL);
	snprintf(text, sizeof(text), "%d", rank);
	setenv("DICOMM_RANK", text, 1);
	snprintf(mark, sizeof(mark), MARK "%d", rank);
	while (argv[n])
		n++;
	args = calloc((size_t)n + 2, sizeof(*args));
	if (!args)
		_exit(FAILURE_INTERNAL);
	args[0] = argv[0];
	args[1] = mark;
	memcpy(args + 2, argv + 1, (size_t)n * sizeof(*args));
	execv("/proc/self/exe", args);
	fprintf(stderr, "dicomm-perf: rank %d: cannot start: %s\n", rank,
		strerror(errno));
	_exit(FAILURE_INTERNAL);
}

static void signal_all(const struct job *job, int sig)
{
	for (int r = 0; r < job->ranks; r++)
		if (job->pids[r] > 0)
			kill(job->pids[r], sig);
}

static void note_end(struct job *job, int rank, int wait_status)
{
	pid_t pid = job->pids[rank];
	int status = WEXITSTATUS(wait_status);
	bool cause = false;

	job->pids[rank] = 0;
	job->running--;
	if (WIFSIGNALED(wait_status)) {
		int sig = WTERMSIG(wait_status);

		status = 128 + sig;
		cause = !job->ending && !job->killed;
		job->killed |= cause;
		if (!job->ending)
			fprintf(stderr,
				"dicomm-perf: rank %d (pid %d) was killed by "
				"signal %d (%s)\n",
				rank, (int)pid, sig, strsignal(sig));
	}
	/* All ranks may end within a moment, and are found in any order. Other
	 * ranks fail because one was killed, or ended with another status than
	 * that of a library error; never the other way round. */
	cause |= status != 0 && !job->ending && !job->killed &&
		 job->status == FAILURE_LIBRARY;
	if (cause || (status != 0 && job->status == 0))
		job->status = status;
}

static void reap(struct job *job)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
		for (int r = 0; r < job->ranks; r++)
			if (job->pids[r] == pid)
				note_end(job, r, wait_status);
}

/* Waits for all ranks. The signals are blocked. If one asks this process to
 * end, the ranks are asked, too. */
static void supervise(struct job *job, const sigset_t *signals)
{
	const struct timespec tick = {.tv_nsec = 50 * 1000 * 1000};
	double deadline = 0;
	int next = SIGTERM;

	while (job->running > 0) {
		int sig = sigtimedwait(signals, NULL, &tick);

		reap(job);
		if (sig > 0 && sig != SIGCHLD) {
			job->status = 128 + sig;
			job->ending = true;
			signal_all(job, SIGTERM);
			next = SIGKILL;
			deadline = clock_s() + TERM_S;
		}
		if (job->status != 0 && deadline == 0)
			deadline = clock_s() + GRACE_S;
		if (deadline == 0 || clock_s() < deadline)
			continue;
		job->ending = true;
		signal_all(job, next);
		next = SIGKILL;
		deadline = clock_s() + TERM_S;
	}
}

int launch_processes(int ranks, char **argv)
{
	struct job job = {.ranks = ranks};
	sigset_t signals, before;
	pid_t self = getpid();

	job.pids = calloc((size_t)ranks, sizeof(*job.pids));
	if (!job.pids || set_meeting_point(ranks) < 0) {
		fprintf(stderr, "dicomm-perf: cannot start %d processes: %s\n",
			ranks, strerror(errno));
		free(job.pids);
		return FAILURE_INTERNAL;
	}
	/* Signals that say that a rank has ended, or that ask this process to
	 * end. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	failure_add_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, &before);
	for (int r = 0; r < ranks && job.status == 0; r++) {
		pid_t pid = fork();

		if (pid == 0)
			become_rank(r, argv, self, &before);
		if (pid < 0) {
			fprintf(stderr, "dicomm-perf: rank %d: fork: %s\n", r,
				strerror(errno));
			job.status = FAILURE_INTERNAL;
			signal_all(&job, SIGKILL);
			break;
		}
		job.pids[r] = pid;
		job.running++;
	}
	supervise(&job, &signals);
	sigprocmask(SIG_SETMASK, &before, NULL);
	free(job.pids);
	return job.status;
}

int launch_child(int *argc, char **argv)
{
	int rank;

	if (*argc < 2 || strncmp(argv[1], MARK, strlen(MARK)) != 0)
		return -1;
	rank = atoi(argv[1] + strlen(MARK));
	memmove(argv + 1, argv + 2, (size_t)(*argc - 1) * sizeof(*argv));
	(*argc)--;
	return rank;
}

int launch_bind(int first, int n)
{
	cpu_set_t allowed, mine;
	int cores, seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return -1;
	cores = CPU_COUNT(&allowed);
	CPU_ZERO(&mine);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		for (int i = first; i < first + n; i++)
			if (i % cores == seen)
				CPU_SET(cpu, &mine);
		seen++;
	}
	return sched_setaffinity(0, sizeof(mine), &mine);
}
