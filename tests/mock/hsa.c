/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mock of ROCm's HSA runtime for a HIP that is not linked to it: what the
 * mock of that has.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define ERROR 0x1000

EXPORT int hsa_amd_portable_export_dmabuf(const void *p, size_t bytes, int *fd,
					  uint64_t *offset);
EXPORT int hsa_amd_portable_export_dmabuf(const void *p, size_t bytes, int *fd,
					  uint64_t *offset)
{
	void *hip =
		dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	int (*export)(const void *, size_t, int *, uint64_t *);

	*(void **)&export = hip ? dlsym(hip, "mock_hsa_export") : NULL;
	return export ? export(p, bytes, fd, offset) : ERROR;
}
