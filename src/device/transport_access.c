/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out which transports reach the memory of which ranks' devices. */
#include "src/device/transport_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/device/device.h"
#include "src/core/memory.h"

/* What each rank tells all others. */
struct access_report {
	char how[TRANSPORT_ACCESS_TEXT];
	/* [rank]. Bit i: transport i leads to that rank and accepts the memory
	 * of the reporting rank. */
	uint8_t transports[];
};

struct transport_access {
	struct mem_handles handles; /* of this rank's staging buffers */
	size_t stride;              /* bytes from one report to the next */
	uint8_t *reports;           /* [rank] */
};

static const struct access_report *report_of(const struct transport_access *d,
					     int rank)
{
	return (const struct access_report *)(d->reports +
					      (size_t)rank * d->stride);
}

/* Append "name: more", as far as there is room. */
static void append(char *text, const char *name, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, TRANSPORT_ACCESS_TEXT - n, "%s%s: %s", n ? "; " : "",
		 name, more);
}

/* Append why transports are not open that might have reached the memory. */
static void tell_unopened(struct dicomm_comm *comm, char *no)
{
	char why[TRANSPORT_ACCESS_TEXT / 2];

	for (size_t i = 0; transports[i]; i++) {
		const struct transport *t = transports[i];

		if (!t->device_memory || comm->transports[i].device)
			continue;
		if (!comm_lists(comm, t->name))
			snprintf(why, sizeof(why),
				 "DICOMM_TRANSPORTS leaves it out");
		else if (t->usable(why, sizeof(why)))
			snprintf(why, sizeof(why), "no rank asked for it");
		append(no, t->name, why);
	}
}

dicomm_result_t transport_access_register(struct dicomm_comm *comm,
					  const struct tp_region *region,
					  struct mem_handles *handles,
					  char how[TRANSPORT_ACCESS_TEXT])
{
	char one[TRANSPORT_ACCESS_TEXT - 40], yes[TRANSPORT_ACCESS_TEXT] = "",
					      no[TRANSPORT_ACCESS_TEXT] = "";

	comm_each_transport (w, comm) {
		size_t i = (size_t)(w - comm->transports);
		dicomm_result_t status;

		status = w->transport->mem_reg_device(
			w->device, region, &handles->on[i], one, sizeof(one));
		if (status == DICOMM_SUCCESS)
			handles->transports |= 1u << i;
		else if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		if (one[0])
			append(status == DICOMM_SUCCESS ? yes : no,
			       w->transport->name, one);
	}
	tell_unopened(comm, no);
	memcpy(how, handles->transports ? yes : no, TRANSPORT_ACCESS_TEXT);
	return DICOMM_SUCCESS;
}

static dicomm_result_t register_stages(struct dicomm_comm *comm,
				       struct mem_handles *handles,
				       char how[TRANSPORT_ACCESS_TEXT])
{
	const struct device *dev = comm->dev;
	const struct tp_region region = {.accel = comm->accel,
					 .index = dev->index,
					 .addr = dev->exported,
					 .len = device_exported_bytes(dev)};

	TRY(transport_access_register(comm, &region, handles, how));
	log_info("%s rank %d: %s transport reaches the memory of %s%s%s",
		 comm->name, comm->rank, handles->transports ? "a" : "no",
		 comm->device, how[0] ? ": " : "", how);
	return DICOMM_SUCCESS;
}

/* Returns true if there is a rank whose memory this rank's device does not
 * fully reach. */
static bool is_wanted(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (!comm->peers[r].neighbour || comm->peers[r].neighbour->maps)
			return true;
	return false;
}

static dicomm_result_t tell(struct dicomm_comm *comm,
			    struct access_report *mine)
{
	struct transport_access *d = comm->transport_access;
	unsigned takes = (1u << TP_TRANSPORTS) - 1;

	if (device_has_memory(comm->dev)) {
		if (is_wanted(comm))
			TRY(register_stages(comm, &d->handles, mine->how));
		takes = d->handles.transports;
	}
	for (int r = 0; r < comm->ranks; r++)
		mine->transports[r] = (uint8_t)(comm->ways[r] & takes);
	return control_allgather(comm->control, mine, d->reports,
				 (unsigned)d->stride, comm->join_ms);
}

dicomm_result_t transport_access_agree(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	struct transport_access *d;
	struct access_report *mine;
	dicomm_result_t status;

	d = calloc(1, sizeof(*d));
	comm->transport_access = d;
	if (d) {
		d->stride = sizeof(*mine) + n;
		d->reports = calloc(n, d->stride);
	}
	mine = calloc(1, sizeof(*mine) + n);
	if (!d || !d->reports || !mine) {
		free(mine);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %zu ranks", n);
	}
	status = tell(comm, mine);
	free(mine);
	return status;
}

void transport_access_free(struct dicomm_comm *comm)
{
	struct transport_access *d = comm->transport_access;

	if (!d)
		return;
	comm_mem_deregister(comm, &d->handles);
	free(d->reports);
	free(d);
	comm->transport_access = NULL;
}

uint8_t transport_access_mask(const struct dicomm_comm *comm, int a, int b)
{
	const struct transport_access *d = comm->transport_access;

	return report_of(d, a)->transports[b] & report_of(d, b)->transports[a];
}

const char *transport_access_how(const struct dicomm_comm *comm, int rank)
{
	return report_of(comm->transport_access, rank)->how;
}
