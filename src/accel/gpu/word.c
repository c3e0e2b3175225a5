/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/word.h"

dicomm_result_t gpu_word_get(struct gpu_driver *gpu, int index,
			     struct gpu_word **out)
{
	struct gpu_word *w = gpu->spare_words;
	void *at = NULL;
	int error;

	if (w) {
		gpu->spare_words = w->next;
		*out = w;
		return DICOMM_SUCCESS;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return gpu_device_no_memory(gpu, index);
	error = gpu->word_alloc(&at);
	if (error) {
		free(w);
		return gpu_device_failed(gpu, error, index, "pinned memory");
	}
	w->value = at;
	atomic_store(w->value, 0);
	*out = w;
	return DICOMM_SUCCESS;
}

void gpu_word_put(struct gpu_driver *gpu, struct gpu_word *w)
{
	w->next = gpu->spare_words;
	gpu->spare_words = w;
}

/* A futex has 32 bits. Each change of a word changes its lower half, so threads
 * sleep on that half (on a little-endian host). */
void gpu_word_sleep(const struct gpu_word *w, uint64_t value)
{
	const struct timespec second = {.tv_sec = 1};

	syscall(SYS_futex, (uint32_t *)w->value, FUTEX_WAIT_PRIVATE,
		(uint32_t)value, &second, NULL, 0);
}

void gpu_word_wake(const struct gpu_word *w)
{
	syscall(SYS_futex, (uint32_t *)w->value, FUTEX_WAKE_PRIVATE, INT32_MAX,
		NULL, NULL, 0);
}
