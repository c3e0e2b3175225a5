/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all, with one count or one for each rank. */
#ifndef DICOMM_ISLAND_EXCHANGE_H
#define DICOMM_ISLAND_EXCHANGE_H

#include "src/island/job.h"

/* Does the call of the job, whose arrays of counts are copied. */
dicomm_result_t island_exchange(const struct job *j, const struct call *call);

#endif
