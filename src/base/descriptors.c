/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t count_of(rlim_t limit)
{
	return limit == RLIM_INFINITY ? UINT64_MAX : limit;
}

uint64_t descriptors_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) ? UINT64_MAX
						: count_of(limit.rlim_cur);
}

uint64_t descriptors_raise(uint64_t wanted)
{
	struct rlimit limit, more;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return UINT64_MAX;
	more = limit;
	more.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
	if (limit.rlim_cur >= more.rlim_cur || setrlimit(RLIMIT_NOFILE, &more))
		return count_of(limit.rlim_cur);
	return count_of(more.rlim_cur);
}

int descriptors_high(int fd)
{
	int high, saved;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	saved = errno;
	close(fd);
	errno = saved;
	return high;
}

FILE *descriptors_fopen(const char *path)
{
	int fd = descriptors_high(open(path, O_RDONLY | O_CLOEXEC));
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (fd >= 0 && !f)
		close(fd);
	return f;
}

DIR *descriptors_opendir(const char *path)
{
	int fd = descriptors_high(
		open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

void descriptors_fill_standard(void)
{
	int fd = 0;

	/* open() returns the lowest free number. */
	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd > STDERR_FILENO)
		close(fd);
}
