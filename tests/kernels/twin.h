/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of devices, compiled by the C compiler: the oracle of what other
 * compilers make of the same source, and what a mock device runs.
 */
#ifndef DICOMM_TESTS_KERNELS_TWIN_H
#define DICOMM_TESTS_KERNELS_TWIN_H

#include <stdbool.h>
#include <stdint.h>

/* Run a kernel with all its threads, one after the other; the last argument
 * says how many. False if there is none of that name. */
bool twin_run(const char *kernel, const uint64_t *args, int nargs);

/* Conversions of narrow floats: which, and the bits of one element. NULL ends
 * the list. */
struct twin_codec {
	const char *name;
	float (*decode)(uint32_t x);
	uint32_t (*encode)(float f);
};
extern const struct twin_codec twin_codecs[];

#endif
