/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the launcher that started this process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/boot/store/launcher.h"

/* With srun -> torchrun -> this process, Slurm's variables describe the
 * torchrun process. So under torchrun ignore the other launchers. */
static bool is_inherited(const struct store *s)
{
	return strcmp(s->name, "DICOMM_RANK") && strcmp(s->name, "torchrun") &&
	       getenv("TORCHELASTIC_RUN_ID") && getenv("RANK");
}

static dicomm_result_t fail_none(void)
{
	char text[1024];
	size_t n = 0;

	for (int i = 0; stores[i] && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
				      i ? "; " : "", stores[i]->needs);
	/* If a launcher is present that this build cannot use, say so first. */
	if (getenv("PMIX_RANK"))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "started by a PMIx launcher, but this library was "
			    "built without PMIx or finds no libpmix.so.2; "
			    "usable are: %s",
			    text);
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "no launcher found that says which rank this is; looked "
		    "for: %s",
		    text);
}

dicomm_result_t launcher_find(struct launcher_info *info)
{
	struct launcher_info found = {0};

	for (int i = 0; stores[i]; i++) {
		if (is_inherited(stores[i]) || !stores[i]->present())
			continue;
		TRY(stores[i]->get(&found));
		found.name = stores[i]->name;
		log_info("rank %d of %d, started by %s", found.rank,
			 found.ranks, found.name);
		*info = found;
		return DICOMM_SUCCESS;
	}
	return fail_none();
}

int launcher_patience_s(void)
{
	int s = (int)config_int(CONFIG_BOOTSTRAP_TIMEOUT);
	bool launched = getenv("PMIX_RANK");

	if (!config_is_default(CONFIG_BOOTSTRAP_TIMEOUT))
		return s;
	for (int i = 0; stores[i] && !launched; i++)
		launched = stores[i] != &store_own && stores[i]->present();
	return launched ? 10 * s : s;
}
