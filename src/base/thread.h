/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of the library. They get no signals of the program.
 *
 * Threads: any.
 */
#ifndef DICOMM_BASE_THREAD_H
#define DICOMM_BASE_THREAD_H

#include <pthread.h>

/* The name, of 15 characters at most, is what debuggers and top(1) show. Who
 * gives no place for the thread does not join it. 0, or the error's number. */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
		 void *arg);

#endif
