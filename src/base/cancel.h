/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If pthread_cancel() ended a thread within a call, its locks would stay held
 * and its message half written, and other threads would wait for ever. So a
 * call holds cancellation off wherever it reaches a cancellation point: where
 * the data path begins to wait or makes system calls (data_path_hold_cancel()),
 * on all slower paths, and while a log line is written.
 */
#ifndef DICOMM_BASE_CANCEL_H
#define DICOMM_BASE_CANCEL_H

/* Calls come in pairs, which may be nested. */
void cancel_hold(void);
void cancel_release(void);

static inline void cancel_release_scope(const char *unused)
{
	(void)unused;
	cancel_release();
}

/* A declaration: from here to the end of the block this thread cannot be
 * cancelled. */
#define CANCEL_HELD()                                                    \
	char cancel_held                                                 \
		__attribute__((cleanup(cancel_release_scope), unused)) = \
			(cancel_hold(), 0)

#endif
