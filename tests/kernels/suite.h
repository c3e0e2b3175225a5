/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every executor of the device kernels must do: give the bits that the
 * reducers of the CPU give, for all types, operators, counts and alignments,
 * and write nothing else.
 */
#ifndef DICOMM_TESTS_KERNELS_SUITE_H
#define DICOMM_TESTS_KERNELS_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "src/accel/launch/launch.h"
#include "tests/kernels/ptx.h"

/* Each call returns when the result is there; false if it could not run. */
struct executor {
	/* Memory that both sides can touch, aligned to 64 bytes at least */
	void *(*alloc)(size_t bytes);
	void (*free)(void *p);
	bool (*reduce)(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		       const void *a, const void *b, size_t n);
	bool (*fold)(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		     const void *const *src, int nsrc, size_t n);
	bool (*scale)(dicomm_datatype_t type, void *dst, const void *a,
		      const void *scalar_at, uint64_t scalar, size_t n);
	bool (*divide)(dicomm_datatype_t type, void *dst, const void *a,
		       uint64_t divisor, size_t n);
	bool (*has)(dicomm_datatype_t type); /* NULL: all */
	size_t rows; /* of 65536 operands that the large samples have */
};

/* An executor that runs launches on plain memory */
struct executor suite_launcher(bool (*run)(const struct launch *l,
					   uint32_t blocks),
			       size_t rows);

/* One that interprets these modules (LAUNCH_MODULES) on memory of the host */
struct executor suite_interpreter(struct ptx *const *modules);

void suite_add(Suite *s, const struct executor *e);

#endif
