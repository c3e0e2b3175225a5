/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the ranks of an id meet. The process that made the id listens; when
 * all ranks have come it tells them where rank 0's hub is, and watches over
 * them until they have got there.
 */
#ifndef DICOMM_BOOT_MEETING_H
#define DICOMM_BOOT_MEETING_H

#include "src/boot/auth.h"

/* Take the listening socket fd, also on failure. Takes the lock. */
dicomm_result_t meeting_open(int fd, const uint8_t key[AUTH_KEY],
			     const char *address);
/* End those of this process at this address that have failed. Takes the
 * lock. */
void meeting_end_failed(const char *address);
/* The same, failed or not. */
void meeting_end(const char *address);

#endif
