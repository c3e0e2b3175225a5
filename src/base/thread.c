/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the threads of the library. */
#include "src/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
		 void *arg)
{
	sigset_t all, old;
	pthread_t started;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&started, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return error;
	pthread_setname_np(started, name);
	if (thread)
		*thread = started;
	else
		pthread_detach(started);
	return 0;
}
