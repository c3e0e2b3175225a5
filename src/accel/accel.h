/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kind of device: what a rank computes on and where its buffers live.
 *
 * Every operation is set; one that a kind lacks returns
 * DICOMM_ERR_UNSUPPORTED (or false). Adding a kind: a file of its own, its
 * line in registry.c, its line in Makefile.am.
 */
#ifndef DICOMM_ACCEL_ACCEL_H
#define DICOMM_ACCEL_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* An allocation that neighbours can import: what they need to know. */
struct accel_export {
	uint64_t id;    /* unique in the exporting process, never reused */
	uint64_t bytes; /* size of the whole allocation */
	int32_t pid, fd;
};

struct accel {
	const char *name; /* "host"; "cuda" of "cuda:0" */

	/* Devices of this kind; 0 with the reason in why when it has none. */
	int (*count)(char *why, size_t len);
	dicomm_result_t (*describe)(int index, dicomm_device_info_t *info);

	/* Memory that neighbour processes can map. Any thread. */
	dicomm_result_t (*alloc)(int index, size_t bytes, void **ptr);
	/* DICOMM_ERR_INVALID_ARGUMENT if ptr is not from alloc. */
	dicomm_result_t (*free)(void *ptr);

	/* Does [addr, addr + len) lie in one allocation of alloc()? Then also
	 * its export and the offset in it. Any thread, no lock, no system
	 * call: it is asked for each large message. */
	bool (*find)(const void *addr, size_t len, struct accel_export *where,
		     size_t *offset);
	/* Map a neighbour's allocation (never one of this process). */
	dicomm_result_t (*import)(const struct accel_export *e, void **base);
	void (*unimport)(const struct accel_export *e, void *base);
	/* Allocations freed so far by this process are listed for neighbours:
	 * the count, and id number i (0 for one that has left the list). */
	uint64_t (*freed)(uint64_t i, uint64_t *id);
};

/* All kinds of this build, NULL ends the list; host is first. */
extern const struct accel *const accels[];
/* The kind and index of a device name ("host", "cuda:1"); NULL if there is no
 * such kind or device, with the reason in why. */
const struct accel *accel_find(const char *device, int *index, char *why,
			       size_t len);

#endif
