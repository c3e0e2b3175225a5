/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An interpreter of PTX, of as much of it as our kernels need: so that what is
 * shipped for NVIDIA devices is executed where there is none. What it does not
 * know it refuses, and never guesses. Threads run one after the other: there
 * is no shared memory and no barrier. A kernel reads and writes the memory of
 * this process; an address that is not aligned to what is accessed fails, as it
 * does on a device.
 */
#ifndef DICOMM_TESTS_KERNELS_PTX_H
#define DICOMM_TESTS_KERNELS_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx;

/* Parse a module; NULL, with the reason in why, if anything in it is not
 * understood. */
struct ptx *ptx_load(const char *text, char *why, size_t len);
void ptx_free(struct ptx *p);

/* The ".version" and ".target" of the module */
const char *ptx_version(const struct ptx *p);
const char *ptx_target(const struct ptx *p);

/* Kernels of the module; name of kernel i, NULL behind the last. */
const char *ptx_kernel(const struct ptx *p, int i);

/* Translates an address of `bytes` that a kernel accesses to one of this
 * process, for devices whose memory is elsewhere; NULL: not the kernel's. */
typedef void *(*ptx_translate_fn)(uint64_t at, size_t bytes);

/* Run a kernel whose parameters all have 64 bits. translate may be NULL. False,
 * with the reason in why: no such kernel, wrong parameters, a bad address. */
bool ptx_run(const struct ptx *p, const char *kernel, const uint64_t *args,
	     int nargs, uint32_t blocks, uint32_t block,
	     ptx_translate_fn translate, char *why, size_t len);

#endif
