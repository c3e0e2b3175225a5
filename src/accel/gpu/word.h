/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of pinned host memory, with one address for host and devices. They are
 * reused and never freed: a stream may still read one after what used it was
 * destroyed. */
#ifndef DICOMM_ACCEL_GPU_WORD_H
#define DICOMM_ACCEL_GPU_WORD_H

#include "src/accel/gpu/driver.h"

struct gpu_word {
	_Atomic uint64_t *value;
	_Atomic uint64_t queued; /* stream_wait.c: waits so far */
	struct gpu_word *next;
};

/* The caller holds the lock and has entered the device. */
dicomm_result_t gpu_word_get(struct gpu_driver *gpu, int index,
			     struct gpu_word **out);
/* The caller holds the lock. */
void gpu_word_put(struct gpu_driver *gpu, struct gpu_word *w);

/* For host functions: sleep while the lower half of the word is that of this
 * value, for a second at most; wake who sleeps. */
void gpu_word_sleep(const struct gpu_word *w, uint64_t value);
void gpu_word_wake(const struct gpu_word *w);

#endif
