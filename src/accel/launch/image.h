/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device kernels in the library: images for each target that the build had
 * a compiler for, and the source for runtimes that compile.
 */
#ifndef DICOMM_ACCEL_LAUNCH_IMAGE_H
#define DICOMM_ACCEL_LAUNCH_IMAGE_H

/* A NUL follows the bytes, which begin at a multiple of 64. */
struct image {
	/* "source"; "ptx_f16": PTX of one launch_module; "spirv_f16": SPIR-V of
	 * one; "gfx90a": one AMDGPU code object with all modules */
	const char *name;
	const unsigned char *data, *end;
};

/* Returns NULL if this build has no image of that name. */
const struct image *image_find(const char *name);
/* Returns image number i of this build, or NULL if i is too large. */
const struct image *image_at(int i);

#endif
