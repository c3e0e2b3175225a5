/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping until a NIC has something. */
#ifndef DICOMM_TRANSPORTS_VERBS_REST_H
#define DICOMM_TRANSPORTS_VERBS_REST_H

#include "dicomm.h"

struct tp_device;
struct verbs_rail;

/* Before its completion queue, and after it; the end is just before that is
 * destroyed, which waits until all events are acknowledged. */
dicomm_result_t verbs_rest_open(struct verbs_rail *rail);
void verbs_rest_end(struct verbs_rail *rail);
void verbs_rest_close(struct verbs_rail *rail);
/* As in struct transport. */
void verbs_rest(struct tp_device *dev, unsigned us);

#endif
