/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of a communicator, as NCCL's programs give them. */
#ifndef DICOMM_COMPAT_NCCL_CONFIG_H
#define DICOMM_COMPAT_NCCL_CONFIG_H

#include "compat/nccl/say.h"

/* What of it means something here; a copy. */
struct nccl_options {
	bool given;
	bool blocking;
	char name[128]; /* "": none */
};

/* config may be NULL. */
ncclResult_t nccl_config_read(const char *f, const void *config,
			      struct nccl_options *options);
/* Of one collective; NULL is none. */
ncclResult_t nccl_config_check_call(const char *f, const void *config);

#endif
