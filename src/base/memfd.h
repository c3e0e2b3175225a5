/* SPDX-License-Identifier: BSD-3-Clause */
/* Anonymous files in memory. */
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

/* Enlarges the file, as ftruncate(). The limit on the size of files (ulimit -f)
 * applies here too; without this check, the kernel would send SIGXFSZ, which
 * ends the program. */
static inline int memfd_grow(int fd, uint64_t len)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && len > limit.rlim_cur) {
		errno = EFBIG;
		return -1;
	}
	return ftruncate(fd, (off_t)len);
}

/* As memfd_create(). */
static inline int memfd_make(const char *name, unsigned flags)
{
	return descriptors_high(memfd_create(name, flags | MFD_CLOEXEC));
}

/* Opens such a file of another process, with access O_RDONLY or O_RDWR. `path`
 * becomes a name for messages. The open never waits, even if the number refers
 * to another kind of file by now. */
#define MEMFD_PATH 64

static inline int memfd_open(int pid, int fd, int access, char path[MEMFD_PATH])
{
	snprintf(path, MEMFD_PATH, "/proc/%d/fd/%d", pid, fd);
	return descriptors_high(
		open(path, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

#endif
