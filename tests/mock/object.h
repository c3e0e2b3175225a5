/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the mock compilers make: an ELF file with the names of kernels and no
 * code, for the mock drivers, which run the twins of these. For both kinds of
 * GPU.
 */
#ifndef DICOMM_TESTS_MOCK_OBJECT_H
#define DICOMM_TESTS_MOCK_OBJECT_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_ARGS 16
#define OBJECT_CUDA 190
#define OBJECT_AMDGPU 224
#define OBJECT_GFX90A 0x3f

static inline size_t object_bytes(const Elf64_Ehdr *head)
{
	return head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
}

/* Is that in an object, real or not, of `bytes`? */
bool object_has(const void *object, size_t bytes, const char *kernel);
/* Arguments of a kernel, by its name: all have 64 bits. */
int object_arguments(const char *kernel);
/* Run the twin of a kernel on memory of devices; the error of the device. */
int object_run(const char *kernel, uint64_t args[OBJECT_ARGS]);

#endif
