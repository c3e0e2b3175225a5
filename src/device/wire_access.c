/* SPDX-License-Identifier: BSD-3-Clause */
/* Which wires reach the memory of which ranks' devices. */
#include "src/device/wire_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/member.h"
#include "src/device/device.h"

/* What each rank tells all others. */
struct told {
	char how[WIRE_ACCESS_TEXT];
	/* Of each rank, bit i: wire i leads there, and takes the memory of the
	 * rank that tells. */
	uint8_t wires[];
};

struct wire_access {
	struct mem_handles held; /* the stages of this rank */
	size_t stride;           /* of told[] */
	uint8_t *told;           /* by all ranks */
};

static const struct told *told_by(const struct wire_access *d, int rank)
{
	return (const struct told *)(d->told + (size_t)rank * d->stride);
}

/* As much as there is room for. */
static void append(char *text, const char *name, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, WIRE_ACCESS_TEXT - n, "%s%s: %s", n ? "; " : "",
		 name, more);
}

/* Of those that might have reached it */
static void tell_unopened(struct dicomm_comm *comm, char *no)
{
	char why[WIRE_ACCESS_TEXT / 2];

	for (size_t i = 0; transports[i] && i < COMM_WIRES; i++) {
		const struct transport *t = transports[i];

		if (!t->device_memory || comm->wires[i].device)
			continue;
		if (!comm_lists(comm, t->name))
			snprintf(why, sizeof(why),
				 "DICOMM_TRANSPORTS leaves it out");
		else if (t->usable(why, sizeof(why)))
			snprintf(why, sizeof(why), "no rank asked for it");
		append(no, t->name, why);
	}
}

dicomm_result_t wire_access_hold(struct dicomm_comm *comm,
				 const struct tp_region *region,
				 struct mem_handles *held,
				 char how[WIRE_ACCESS_TEXT])
{
	char one[WIRE_ACCESS_TEXT - 40], yes[WIRE_ACCESS_TEXT] = "",
					 no[WIRE_ACCESS_TEXT] = "";

	for (size_t i = 0; i < COMM_WIRES; i++) {
		const struct wire *w = &comm->wires[i];
		dicomm_result_t status;

		if (!w->device)
			continue;
		status = w->transport->mem_reg_device(
			w->device, region, &held->on[i], one, sizeof(one));
		if (status == DICOMM_SUCCESS)
			held->wires |= 1u << i;
		else if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		if (one[0])
			append(status == DICOMM_SUCCESS ? yes : no,
			       w->transport->name, one);
	}
	tell_unopened(comm, no);
	memcpy(how, held->wires ? yes : no, WIRE_ACCESS_TEXT);
	return DICOMM_SUCCESS;
}

static dicomm_result_t hold_stages(struct dicomm_comm *comm,
				   struct mem_handles *held,
				   char how[WIRE_ACCESS_TEXT])
{
	const struct device *dev = comm->dev;
	const struct tp_region region = {.accel = comm->accel,
					 .index = dev->index,
					 .addr = dev->near,
					 .len = device_near_bytes(dev)};

	TRY(wire_access_hold(comm, &region, held, how));
	log_info("%s rank %d: %s wire reaches the memory of %s%s%s", comm->name,
		 comm->rank, held->wires ? "a" : "no", comm->device,
		 how[0] ? ": " : "", how);
	return DICOMM_SUCCESS;
}

/* Is there a rank whose memory this one's device does not reach, or not all? */
static bool is_wanted(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (!comm->peers[r].neighbour || comm->peers[r].neighbour->pins)
			return true;
	return false;
}

static dicomm_result_t tell(struct dicomm_comm *comm, struct told *mine)
{
	struct wire_access *d = comm->wire_access;
	unsigned takes = (1u << COMM_WIRES) - 1;

	if (device_has_memory(comm->dev)) {
		if (is_wanted(comm))
			TRY(hold_stages(comm, &d->held, mine->how));
		takes = d->held.wires;
	}
	for (int r = 0; r < comm->ranks; r++)
		mine->wires[r] = (uint8_t)(comm->peers[r].wires & takes);
	return control_allgather(comm->control, mine, d->told,
				 (unsigned)d->stride, comm->meet_ms);
}

dicomm_result_t wire_access_agree(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	struct wire_access *d;
	struct told *mine;
	dicomm_result_t status;

	d = calloc(1, sizeof(*d));
	comm->wire_access = d;
	if (d) {
		d->stride = sizeof(*mine) + n;
		d->told = calloc(n, d->stride);
	}
	mine = calloc(1, sizeof(*mine) + n);
	if (!d || !d->told || !mine) {
		free(mine);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %zu ranks", n);
	}
	status = tell(comm, mine);
	free(mine);
	return status;
}

void wire_access_free(struct dicomm_comm *comm)
{
	struct wire_access *d = comm->wire_access;

	if (!d)
		return;
	comm_mem_deregister(comm, &d->held);
	free(d->told);
	free(d);
	comm->wire_access = NULL;
}

uint8_t wire_access_wires(const struct dicomm_comm *comm, int a, int b)
{
	const struct wire_access *d = comm->wire_access;

	return told_by(d, a)->wires[b] & told_by(d, b)->wires[a];
}

const char *wire_access_how(const struct dicomm_comm *comm, int rank)
{
	return told_by(comm->wire_access, rank)->how;
}
