/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the ranks of an id meet. The process that made the id listens; when
 * all ranks have come it tells them where rank 0's hub is, and watches over
 * them until they have got there.
 */
#ifndef DICOMM_BOOT_MEETING_H
#define DICOMM_BOOT_MEETING_H

#include <stdbool.h>

#include "src/boot/auth.h"

/* Take the listening socket fd, also on failure. Takes the lock. */
dicomm_result_t meeting_open(int fd, const uint8_t key[AUTH_KEY],
			     const char *address);
/* Is one open at that address in this process, to which not all have come? With
 * the lock held. */
bool meeting_is_open(const char *address);
/* A rank of this process has failed to join, and its process may end at once:
 * if the meeting at that address is served here, see to it that all who have
 * come hear why; with all, also those who are on their way. Until until_ns at
 * most. Takes the lock. */
void meeting_settle(const char *address, bool all, uint64_t until_ns);
/* End those of this process at this address that have failed. Takes the
 * lock. */
void meeting_end_failed(const char *address);
/* The same, failed or not. */
void meeting_end(const char *address);

#endif
