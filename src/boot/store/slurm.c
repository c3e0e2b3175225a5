/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srun without PMI (--mpi=none): the variables SLURM_*. Task 0 runs on the
 * first node of the step. It listens on a port that is computed from the
 * numbers of the job and the step.
 */
#include "src/boot/store/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/store/store.h"

#define PORT_FIRST 20000
#define PORTS 12000 /* below the ephemeral ports, which begin at 32768 */

/* Appends n characters to a text that ends at *at. */
static bool append(char *host, size_t len, size_t *at, const char *from,
		   size_t n)
{
	if (n >= len - *at)
		return false;
	memcpy(host + *at, from, n);
	*at += n;
	host[*at] = '\0';
	return true;
}

bool slurm_first_host(const char *list, char *host, size_t len)
{
	size_t at = 0, n;

	host[0] = '\0';
	while (*list && *list != ',') {
		n = strcspn(list, "[,");
		if (!append(host, len, &at, list, n))
			return false;
		list += n;
		if (*list != '[')
			continue;
		/* In "[07-12,20]", take the first number with its zeros. */
		list++;
		n = strcspn(list, "-,]");
		if (!n || !append(host, len, &at, list, n))
			return false;
		list = strchr(list, ']');
		if (!list)
			return false;
		list++;
	}
	return at > 0;
}

static const char *ranks_variable(void)
{
	return getenv("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS"
					      : "SLURM_NTASKS";
}

/* A batch script has SLURM_PROCID too, but no step number. */
static bool slurm_present(void)
{
	return getenv("SLURM_PROCID") && getenv("SLURM_JOB_ID") &&
	       store_number_or_none("SLURM_STEP_ID") >= 0 &&
	       getenv(ranks_variable());
}

static dicomm_result_t slurm_get(struct launcher_info *info)
{
	const char *job = getenv("SLURM_JOB_ID");
	const char *step = getenv("SLURM_STEP_ID");
	const char *nodes = getenv("SLURM_STEP_NODELIST");
	char host[256], known[80];
	unsigned long number;

	info->ranks_from = ranks_variable();
	TRY(store_number(info->ranks_from, 1, 1 << 20, &info->ranks));
	TRY(store_number("SLURM_PROCID", 0, info->ranks - 1, &info->rank));
	if (!nodes)
		nodes = getenv("SLURM_JOB_NODELIST");
	if (!nodes || !slurm_first_host(nodes, host, sizeof(host)))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "SLURM_STEP_NODELIST is \"%.300s\": it does not "
			    "begin with a node of at most 255 characters",
			    nodes ? nodes : "");
	number = strtoul(job, NULL, 10) * 31 + strtoul(step, NULL, 10);
	snprintf(known, sizeof(known), "slurm %.30s %.30s", job, step);
	return store_fixed_id(info, host, PORT_FIRST + (int)(number % PORTS),
			      known);
}

const struct store store_slurm = {
	.name = "slurm",
	.needs = "SLURM_PROCID, SLURM_NTASKS and SLURM_STEP_ID (srun)",
	.present = slurm_present,
	.get = slurm_get,
};
