/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events: the operations of accel.h with these names.
 *
 * Where the driver can, recording an event makes the stream write the next
 * number to a word of pinned host memory. Then a query is a load, without a
 * call of the driver or one of its locks, and another stream waits for the word
 * by itself. Otherwise the event is one of the driver.
 *
 * At most one write to a word is pending. Two streams write in no order, so a
 * late write could set the word back. If an event is recorded again while its
 * word is still to be written, that record uses the driver's event. A word is
 * used for another event only after all writes to it are done, and is never
 * freed: a stream may write or read it after its event was destroyed.
 */
#ifndef DICOMM_ACCEL_GPU_EVENT_H
#define DICOMM_ACCEL_GPU_EVENT_H

#include "src/accel/gpu/stream.h"

/* As writes_probe() of a driver. Words are used only if streams can also wait
 * for one: another stream has to be able to follow the event. */
dicomm_result_t gpu_event_probe(struct gpu_driver *gpu, int index, bool waits,
				bool *writes);

dicomm_result_t gpu_event_create(struct gpu_driver *gpu, int index,
				 struct accel_event **out);
void gpu_event_destroy(struct accel_event *e);
dicomm_result_t gpu_event_record(struct accel_event *e, struct accel_stream *s);
dicomm_result_t gpu_event_query(const struct accel_event *e);
dicomm_result_t gpu_event_wait(struct accel_stream *s,
			       const struct accel_event *e);

#endif
