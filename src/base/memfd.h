/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is a file without a name. */
#ifndef DICOMM_BASE_MEMFD_H
#define DICOMM_BASE_MEMFD_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/descriptors.h"

/* Make it longer; as ftruncate(). The limit on the size of files (ulimit -f)
 * counts here, too, and beyond it the kernel would end the program. */
static inline int memfd_grow(int fd, uint64_t len)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && len > limit.rlim_cur) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(fd, (off_t)len);
}

/* As memfd_create() */
static inline int memfd_make(const char *name, unsigned flags)
{
	return descriptors_high(memfd_create(name, flags | MFD_CLOEXEC));
}

/* Open that of another process, O_RDONLY or O_RDWR; *path is what for messages.
 * Whatever else its number may lead to by now is not waited for. */
#define MEMFD_PATH 64

static inline int memfd_open(int pid, int fd, int access, char path[MEMFD_PATH])
{
	snprintf(path, MEMFD_PATH, "/proc/%d/fd/%d", pid, fd);
	return descriptors_high(
		open(path, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

#endif
