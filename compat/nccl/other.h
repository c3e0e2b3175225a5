/* SPDX-License-Identifier: BSD-3-Clause */
/* Another library of this interface in the process, such as NCCL itself. */
#ifndef DICOMM_COMPAT_NCCL_OTHER_H
#define DICOMM_COMPAT_NCCL_OTHER_H

#include <stddef.h>

/* Once, with nccl_environment(): warns of another library of this name in the
 * process. */
void nccl_look_around(void);
/* Appends where it is, if there is one: "; NCCL is loaded, too, from PATH". */
void nccl_tell_other(char *text, size_t room);

#endif
