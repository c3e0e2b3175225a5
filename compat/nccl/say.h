/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong, as NCCL's results and as text. */
#ifndef DICOMM_COMPAT_NCCL_SAY_H
#define DICOMM_COMPAT_NCCL_SAY_H

#include "compat/nccl/abi.h"
#include "dicomm.h"

/* A refusal of this layer: written to stderr, kept for ncclGetLastError(). */
ncclResult_t nccl_refuse(ncclResult_t result, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));
/* Something the user should know, but no error. */
void nccl_warn(const char *format, ...)
	__attribute__((format(printf, 1, 2), cold));
/* The library has refused, or failed, and has said why. */
ncclResult_t nccl_failed(dicomm_result_t status) __attribute__((cold));
/* The same, said by another thread: with the text that it left. */
ncclResult_t nccl_failed_elsewhere(dicomm_result_t status, const char *text)
	__attribute__((cold));

/* What NCCL calls it; nothing is kept. */
ncclResult_t nccl_result(dicomm_result_t status);

static inline ncclResult_t nccl_from(dicomm_result_t status)
{
	return __builtin_expect(status == DICOMM_SUCCESS, 1)
		       ? ncclSuccess
		       : nccl_failed(status);
}

/* The last text of this thread, or, if it has none, of the process. */
const char *nccl_last_text(void);

/* Of NCCL, as programs are told: DICOMM_NCCL_VERSION, else 2.30.7. */
int nccl_version(void);

/* Is there memory at this address of the process? */
bool nccl_is_mapped(const void *p);

/* By NCCL_DEBUG: the line "NCCL version 2.30.7". */
void nccl_say_version(void);

#endif
