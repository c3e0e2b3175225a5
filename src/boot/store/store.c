/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the stores: numbers from the environment, and ids. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/boot/net/sock.h"
#include "src/boot/store/store.h"

static bool parse(const char *text, long min, long max, int *out)
{
	char *end;
	long n;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || *end || n < min || n > max)
		return false;
	*out = (int)n;
	return true;
}

dicomm_result_t store_number(const char *variable, long min, long max, int *out)
{
	const char *text = getenv(variable);

	if (parse(text, min, max, out))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "%s is \"%.40s\": wanted a number from %ld to %ld",
		    variable, text ? text : "", min, max);
}

int store_number_or_none(const char *variable)
{
	int n;

	return parse(getenv(variable), 0, 1 << 20, &n) ? n : -1;
}

dicomm_result_t store_make_id(struct launcher_info *info)
{
	memset(&info->id, 0, sizeof(info->id));
	if (info->rank)
		return DICOMM_SUCCESS;
	return id_create_job(&info->id);
}

dicomm_result_t store_fixed_id(struct launcher_info *info, const char *host,
			       int port, const char *known)
{
	const char *colon = strchr(host, ':');
	char place[SOCK_NAME];

	if (snprintf(place, sizeof(place), colon ? "[%s]:%d" : "%s:%d", host,
		     port) >= (int)sizeof(place))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "the name of a host has %zu characters, and begins "
			    "with \"%.40s\": a name has at most 255",
			    strlen(host), host);
	return id_derive(place, known, config_string(CONFIG_COMM_KEY),
			 info->rank, &info->id);
}
