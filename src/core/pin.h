/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory of a neighbour that this rank's device reads.
 *
 * What the neighbour has allocated is listed on its board; here it is mapped
 * and made known to the device. That may wait for streams, so it is done when
 * none is held: before operations that need it. What was missed is mapped for
 * the host when it is sent, and for the device the next time.
 *
 * Threads: pin_refresh() by callers, pin_find() by the data path; a lock is
 * between them.
 */
#ifndef DICOMM_CORE_PIN_H
#define DICOMM_CORE_PIN_H

#include "src/accel/accel.h"

struct pins;

/* The board is mapped, and that the device reads such memory is tried. */
dicomm_result_t pin_open(const struct accel_work *work, int index,
			 const struct accel_export *board, struct pins **out);
void pin_close(struct pins *pins);
/* Follow the board. What cannot be had is left out. */
void pin_refresh(struct pins *pins);
/* Part of an allocation: where the device sees it, then *seen; else where the
 * host does. */
dicomm_result_t pin_find(struct pins *pins, const struct accel_export *where,
			 uint64_t offset, uint64_t bytes, const void **at,
			 bool *seen);

#endif
