/* SPDX-License-Identifier: BSD-3-Clause */
/* What NCCL's users have set, by variables and by files. */
#ifndef DICOMM_COMPAT_NCCL_ENVIRONMENT_H
#define DICOMM_COMPAT_NCCL_ENVIRONMENT_H

/* Once, before the library is asked for what depends on its variables. */
void nccl_environment(void);

#endif
