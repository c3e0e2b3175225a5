/* SPDX-License-Identifier: BSD-3-Clause */
/* What the SPIR-V of the kernels asks its device for, when the processor is the
 * device: which thread it is. Part of tests/kernels/libspirv.so. */
#include <stdint.h>

static __thread uint64_t thread;

void spirv_thread(uint64_t number);
void spirv_thread(uint64_t number)
{
	thread = number;
}

/* get_global_id(), as OpenCL's compilers call it */
uint64_t _Z13get_global_idj(uint32_t dimension);
uint64_t _Z13get_global_idj(uint32_t dimension)
{
	return dimension ? 0 : thread;
}
