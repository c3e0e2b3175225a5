/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends the process with a reason, whatever its other threads are doing. */
#include <errno.h>
#include <popt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perftest/base/failure.h"

static void (*_Atomic hook)(const char *reason);
static const dicomm_comm_t *watched;
static int watched_n;
static int timeout_s;
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

void failure_hook(void (*fn)(const char *reason))
{
	atomic_store(&hook, fn);
}

void failure_watch(const dicomm_comm_t *comms, int n)
{
	watched = comms;
	watched_n = n;
}

void failure_timeout(int seconds)
{
	timeout_s = seconds;
}

static void call_hook(const char *reason)
{
	void (*fn)(const char *) = atomic_load(&hook);

	if (fn)
		fn(reason);
}

/* Does not unlock: another thread that fails waits here for the end. */
static void end(enum failure_status status, const char *reason)
	__attribute__((noreturn));
static void end(enum failure_status status, const char *reason)
{
	fflush(stdout);
	call_hook(reason);
	/* Not exit(): other threads may be inside the library. */
	_exit((int)status);
}

/*
 * Runs in a thread, because a signal handler must not do what the hook does. A
 * second signal of the same kind ends the process at once. A signal of another
 * kind does not: the process that starts ranks passes on SIGTERM for a key of
 * the terminal, whose signal the ranks have received themselves.
 */
static void *wait_for_signal(void *signals)
{
	char reason[128];
	sigset_t again;
	int sig;

	if (sigwait(signals, &sig) != 0)
		return NULL;
	sigemptyset(&again);
	sigaddset(&again, sig);
	pthread_sigmask(SIG_UNBLOCK, &again, NULL);
	snprintf(reason, sizeof(reason), "ended by signal %d (%s)", sig,
		 strsignal(sig));
	pthread_mutex_lock(&once);
	call_hook(reason);
	kill(getpid(), sig);
	return NULL;
}

void failure_add_signals(sigset_t *signals)
{
	static const int to_end[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action;

	for (size_t i = 0; i < sizeof(to_end) / sizeof(to_end[0]); i++)
		if (sigaction(to_end[i], NULL, &action) == 0 &&
		    action.sa_handler != SIG_IGN)
			sigaddset(signals, to_end[i]);
}

void failure_hook_signals(void)
{
	static sigset_t signals;
	pthread_t thread;

	sigemptyset(&signals);
	failure_add_signals(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&thread, NULL, wait_for_signal, &signals) != 0)
		failure_end(FAILURE_INTERNAL, "cannot start a thread");
	pthread_detach(thread);
}

void failure_library(dicomm_result_t status, dicomm_comm_t comm,
		     const char *file, int line)
{
	char host[256] = "?";
	char text[1200];
	enum failure_status code = FAILURE_LIBRARY;

	pthread_mutex_lock(&once);
	/* The compiler may have been given a long path to this file. */
	if (strstr(file, "perftest/"))
		file = strstr(file, "perftest/");
	gethostname(host, sizeof(host) - 1);
	if (status == DICOMM_ERR_TIMEOUT && timeout_s > 0) {
		code = FAILURE_TIMEOUT;
		snprintf(text, sizeof(text), "%s: Test timeout (%ds) %s:%d",
			 host, timeout_s, file, line);
	} else {
		snprintf(text, sizeof(text),
			 "%s: Test NCCL failure %s:%d '%s / %s'", host, file,
			 line, dicomm_get_error_string(status),
			 dicomm_get_last_error(comm));
	}
	for (int i = 0; i < watched_n; i++)
		if (watched[i])
			dicomm_comm_abort(watched[i]);
	printf("%s\n", text);
	end(code, text);
}

void failure_end(enum failure_status status, const char *format, ...)
{
	char text[1200];
	va_list args;

	pthread_mutex_lock(&once);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "dicomm-perf: %s\n", text);
	end(status, text);
}

/* The stream only remembers that a line was lost, not why. */
bool failure_in_output(void)
{
	bool lost = ferror(stdout);

	errno = 0;
	if (fclose(stdout) == 0 && !lost)
		return false;
	fprintf(stderr, "dicomm-perf: standard output: %s\n",
		errno ? strerror(errno) : "not all of it could be written");
	return true;
}

void *failure_alloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		failure_end(FAILURE_INTERNAL, "out of memory");
	return p;
}

int failure_refuse(const char *mode, const char *what, const char *value,
		   const char *why)
{
	fprintf(stderr, "dicomm-perf: %s: %s %s: %s\n", mode, what, value, why);
	return FAILURE_USAGE;
}

int failure_refuse_rest(const char *mode, poptContext context, int option)
{
	const char *extra = poptGetArg(context);

	if (option < -1)
		return failure_refuse(mode, "option", poptBadOption(context, 0),
				      poptStrerror(option));
	return extra ? failure_refuse(mode, "argument", extra, "one too many")
		     : FAILURE_NONE;
}
