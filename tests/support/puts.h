/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets between windows of ranks on whatever devices. */
#ifndef DICOMM_TESTS_SUPPORT_PUTS_H
#define DICOMM_TESTS_SUPPORT_PUTS_H

#include "tests/support/cast.h"

/* The longest put */
#define PUTS_MOST (((size_t)1 << 20) + 4096)

/* Run of a cast: puts of all lengths to the next rank, and gets of what was
 * put. With that arg nothing may be staged, and nothing copied where buffers
 * are registered; else what comes to a device with memory of its own is staged.
 */
void puts_run(struct job_rank *me, struct gadget *g);
extern const char puts_directly[];

/* Memory of the device, which may be the host. */
void *puts_alloc(struct gadget *g, size_t bytes);
void puts_free(struct gadget *g, void *at);
/* Memory of the host; copies from there to the device's, and back */
uint8_t *puts_host(struct gadget *g, size_t bytes);
void puts_host_free(struct gadget *g, uint8_t *host);
void puts_store(struct gadget *g, uint8_t *at, const uint8_t *host,
		size_t bytes);
void puts_fetch(struct gadget *g, uint8_t *host, const uint8_t *at,
		size_t bytes);

#endif
