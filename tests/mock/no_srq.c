/* SPDX-License-Identifier: BSD-3-Clause */
/* NICs without shared receive queues, whatever they have. */
#include <errno.h>
#include <infiniband/verbs.h>

#include "tests/mock/real_verbs.h"

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	static __typeof__(ibv_query_device) *real;
	int error;

	if (!real)
		*(void **)&real = real_verbs("ibv_query_device");
	error = real(context, attr);
	attr->max_srq = attr->max_srq_wr = attr->max_srq_sge = 0;
	return error;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	(void)pd;
	(void)attr;
	errno = EOPNOTSUPP;
	return NULL;
}
