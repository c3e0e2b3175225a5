/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device kernels as they lie in the library: compiled for what the build
 * had a compiler for, and as source for runtimes that compile.
 */
#ifndef DICOMM_ACCEL_LAUNCH_IMAGE_H
#define DICOMM_ACCEL_LAUNCH_IMAGE_H

/* A NUL follows the bytes, which begin at a multiple of 64. */
struct image {
	/* "source"; "ptx_f16": PTX of one launch_module; "spirv_f16": SPIR-V
	 * of one; "gfx90a": an AMDGPU code object of all */
	const char *name;
	const unsigned char *data, *end;
};

/* NULL if this build has none of that name. */
const struct image *image_find(const char *name);
/* Image i; NULL behind the last. */
const struct image *image_at(int i);

#endif
