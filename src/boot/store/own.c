/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own variables: DICOMM_RANK, DICOMM_SIZE, and DICOMM_COMM_ID.
 * The last is an id, or the host:port where rank 0 listens (with
 * DICOMM_COMM_KEY).
 */
#include <stdio.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/boot/net/sock.h"
#include "src/boot/store/store.h"

/* One of the two variables is enough: setting only one is a mistake that
 * own_get() reports, and no other launcher is asked. */
static bool own_present(void)
{
	return !config_is_default(CONFIG_RANK) ||
	       !config_is_default(CONFIG_SIZE);
}

static dicomm_result_t own_complete(void)
{
	static const char rule[] =
		"is not set, or not to a valid number: who sets one of them "
		"has to set both";

	if (config_is_default(CONFIG_SIZE))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_RANK is %d, and DICOMM_SIZE %s",
			    (int)config_int(CONFIG_RANK), rule);
	if (config_is_default(CONFIG_RANK))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_SIZE is %d, and DICOMM_RANK %s",
			    (int)config_int(CONFIG_SIZE), rule);
	return DICOMM_SUCCESS;
}

static dicomm_result_t own_get(struct launcher_info *info)
{
	const char *id = config_string(CONFIG_COMM_ID);

	TRY(own_complete());
	info->rank = (int)config_int(CONFIG_RANK);
	info->ranks = (int)config_int(CONFIG_SIZE);
	info->ranks_from = "DICOMM_SIZE";
	if (info->rank >= info->ranks)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_RANK is %d: not one of DICOMM_SIZE %d",
			    info->rank, info->ranks);
	if (!*id && info->ranks == 1)
		return id_create_job(&info->id);
	if (!*id)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_RANK and DICOMM_SIZE are set, "
			    "DICOMM_COMM_ID is not: it is the address at "
			    "which the ranks meet");
	if (strncmp(id, "dicomm1:", 8)) {
		/* Do not print all of it: a damaged id still contains its
		 * secret. */
		if (!sock_is_host_port(id))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "DICOMM_COMM_ID \"%.300s\": neither "
				    "host:port nor [address]:port nor an id",
				    config_shown(CONFIG_COMM_ID));
		return id_derive(id, "", config_string(CONFIG_COMM_KEY),
				 info->rank, &info->id);
	}
	if (strlen(id) >= sizeof(info->id.text))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_COMM_ID is too long for an id");
	memset(&info->id, 0, sizeof(info->id));
	snprintf(info->id.text, sizeof(info->id.text), "%s", id);
	return DICOMM_SUCCESS;
}

const struct store store_own = {
	.name = "DICOMM_RANK",
	.needs = "DICOMM_RANK, DICOMM_SIZE and DICOMM_COMM_ID",
	.present = own_present,
	.get = own_get,
};
