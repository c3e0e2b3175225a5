/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks a job at its port (job_port.h) what its ranks do. */
#ifndef DICOMM_BOOT_JOB_ASK_H
#define DICOMM_BOOT_JOB_ASK_H

#include "dicomm.h"

/* Calls take() with what each process tells, a JSON object; and with an object
 * {"rank", "where", "silent"} for each rank that tells nothing. Ends within
 * 15 s. The secret is DICOMM_COMM_KEY. */
dicomm_result_t job_ask(const char *host_port,
			void (*take)(const char *json, void *ctx), void *ctx);

#endif
