/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. torch's own store
 * listens on MASTER_PORT, so rank 0 listens on the next port (1024 after
 * 65535). If that port is taken, the user can set DICOMM_RANK, DICOMM_SIZE and
 * DICOMM_COMM_ID instead.
 */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/boot/store/store.h"

static bool torchrun_present(void)
{
	return getenv("RANK") && getenv("WORLD_SIZE") &&
	       getenv("MASTER_ADDR") && getenv("MASTER_PORT");
}

static dicomm_result_t torchrun_get(struct launcher_info *info)
{
	const char *run = getenv("TORCHELASTIC_RUN_ID");
	const char *restart = getenv("TORCHELASTIC_RESTART_COUNT");
	const char *host = getenv("MASTER_ADDR");
	char known[160];
	int port;

	info->ranks_from = "WORLD_SIZE";
	TRY(store_number(info->ranks_from, 1, 1 << 20, &info->ranks));
	TRY(store_number("RANK", 0, info->ranks - 1, &info->rank));
	TRY(store_number("MASTER_PORT", 1, 65535, &port));
	/* A rank of the last attempt that has not ended yet must not join this
	 * one. */
	snprintf(known, sizeof(known), "torchrun %.100s %.20s", run ? run : "",
		 restart ? restart : "");
	return store_fixed_id(info, host, port < 65535 ? port + 1 : 1024,
			      known);
}

const struct store store_torchrun = {
	.name = "torchrun",
	.needs = "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun)",
	.present = torchrun_present,
	.get = torchrun_get,
};
