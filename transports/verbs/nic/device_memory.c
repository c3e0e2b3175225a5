/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers memory of a device with a NIC. First as a dma-buf, which the kernel
 * describes to the NIC. Otherwise by its address, if a kernel module of the
 * vendor resolves that ("peer memory"). What a driver claims is not always what
 * NIC and kernel can do together, so each way is tried. */
#include "transports/verbs/nic/device_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/transport.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

static struct ibv_mr *by_dmabuf(const struct verbs_nic *nic,
				const struct tp_region *r, unsigned access,
				char *why, size_t len)
{
	const struct accel_work *work = r->accel->work;
	struct ibv_mr *mr;
	uint64_t offset;
	int fd;

	if (!(work->caps(r->index) & ACCEL_DMABUF)) {
		snprintf(why, len, "its driver makes none");
		return NULL;
	}
	if (work->dmabuf(r->addr, r->len, &fd, &offset) != DICOMM_SUCCESS) {
		snprintf(why, len, "%s", log_last_error());
		return NULL;
	}
	mr = ibv_reg_dmabuf_mr(nic->pd, offset, r->len, (uintptr_t)r->addr, fd,
			       (int)access);
	if (!mr)
		snprintf(why, len, "%s: %s", nic->name, strerror(errno));
	/* The registration keeps the dma-buf, and so the memory, even if the
	 * owner frees it meanwhile. */
	close(fd);
	return mr;
}

static struct ibv_mr *by_address(const struct verbs_nic *nic,
				 const struct tp_region *r, unsigned access,
				 char *why, size_t len)
{
	struct ibv_mr *mr =
		ibv_reg_mr(nic->pd, (void *)(uintptr_t)r->addr, r->len, access);

	if (!mr)
		snprintf(why, len, "%s: %s", nic->name, strerror(errno));
	return mr;
}

/* Returns true also if only other devices need the flush: data may be passed on
 * to them. */
static bool asks_for_flush(const struct tp_region *r)
{
	return r->accel->work->caps(r->index) &
	       (ACCEL_FLUSH | ACCEL_FLUSH_OTHERS);
}

bool verbs_needs_flush(const struct tp_region *r)
{
	const char *wish = config_string(CONFIG_IB_FLUSH);

	return strcmp(wish, "auto") ? !strcmp(wish, "always")
				    : asks_for_flush(r);
}

static const char *flush_text(const struct tp_region *r, bool flushed)
{
	if (flushed)
		return ", flushed by a read";
	return asks_for_flush(r) ? ", not flushed (DICOMM_IB_FLUSH is never)"
				 : "";
}

struct ibv_mr *verbs_reg_device_memory(const struct verbs_nic *nic,
				       const struct tp_region *r,
				       unsigned access, char *how, size_t len)
{
	bool flushed = verbs_needs_flush(r);
	char no_dmabuf[160], no_peer[160];
	struct ibv_mr *mr;

	/* Over iWARP only librdmacm connects queue pairs, and never to the same
	 * NIC. So there is no loopback queue pair. */
	if (flushed && nic->fabric == VERBS_IWARP) {
		snprintf(how, len,
			 "%s: over iWARP what it writes to a device cannot be "
			 "flushed",
			 nic->name);
		return NULL;
	}
	mr = by_dmabuf(nic, r, access, no_dmabuf, sizeof(no_dmabuf));
	if (mr) {
		snprintf(how, len, "dma-buf%s", flush_text(r, flushed));
		return mr;
	}
	mr = by_address(nic, r, access, no_peer, sizeof(no_peer));
	if (mr)
		snprintf(how, len, "peer memory (no dma-buf: %s)%s", no_dmabuf,
			 flush_text(r, flushed));
	else
		snprintf(how, len, "no dma-buf: %s; no peer memory: %s",
			 no_dmabuf, no_peer);
	return mr;
}
