/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library. They block all signals. Any thread may call this. */
#ifndef DICOMM_BASE_THREAD_H
#define DICOMM_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread. Debuggers and top(1) show its name, which has at most 15
 * characters. If `thread` is NULL, nobody joins the thread. Returns 0 or an
 * error number. */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
		 void *arg);

#endif
