/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/descriptors.h"

#include <sys/resource.h>

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
