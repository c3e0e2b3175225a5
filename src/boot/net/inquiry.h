/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A socket by which dicomm-info --job, run by this user or by root, reads what
 * this process does. A process that connects is sent the answer at once, and
 * the connection is closed: the control thread reads nothing and waits for
 * nothing.
 *
 * The name of the socket is abstract, so nothing of it is left when the process
 * ends, however it does. docs/wire.md has the name, and the answer.
 */
#ifndef DICOMM_BOOT_INQUIRY_H
#define DICOMM_BOOT_INQUIRY_H

#include <stddef.h>

#define INQUIRY_BYTES (128u << 10) /* most bytes of an answer */

/* Writes the answer, and returns its length. The control thread calls it with
 * the lock of the loop; it must not wait. */
typedef size_t inquiry_answer(char *text, size_t room);

/* Opens the socket, once in a process, unless DICOMM_JOB_INFO is off, and
 * starts the control thread for it. Nothing depends on it: a failure is logged
 * at level info. Takes the lock of the loop. */
void inquiry_open(inquiry_answer *answer);

/* Returns the same answer, for who asks by another way, and its length. Returns
 * NULL if the socket is not open. The caller holds the lock; the text is valid
 * until it releases it. */
const char *inquiry_text(size_t *len);

#endif
