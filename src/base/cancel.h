/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that pthread_cancel() ended within a call would leave locks held and
 * half a message behind, and other threads would wait for it for ever. So calls
 * hold cancellation off before they do what it could end: where the data path
 * begins to wait or makes system calls (comm_hold() in src/core/comm.h), in
 * whatever takes a slower path, and while a message is written.
 */
#ifndef DICOMM_BASE_CANCEL_H
#define DICOMM_BASE_CANCEL_H

/* In pairs, which may contain each other. */
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
