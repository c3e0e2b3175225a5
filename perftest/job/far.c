/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/job/far.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dicomm.h"
#include "perftest/job/ask.h"

struct answer {
	json_t *answers, *silent;
};

static void take(const char *text, void *ctx)
{
	struct answer *a = ctx;
	char *copy = strdup(text);
	json_t *said = copy ? ask_read(copy, strlen(copy)) : NULL, *why;

	free(copy);
	why = json_object_get(said, "silent");
	if (!said)
		fprintf(stderr, "dicomm-info: --job: an answer is not JSON\n");
	else if (why)
		json_array_append_new(
			a->silent,
			json_pack("{s:O, s:O, s:O}", "rank",
				  json_object_get(said, "rank"), "where",
				  json_object_get(said, "where"), "why", why));
	else
		json_array_append(a->answers, said);
	json_decref(said);
}

bool far_ask(const char *host_port, json_t *answers, json_t *silent)
{
	struct answer a = {answers, silent};

	if (dicomm_job_info(host_port, take, &a) == DICOMM_SUCCESS)
		return true;
	fprintf(stderr, "dicomm-info: --job %s: %s\n", host_port,
		dicomm_get_last_error(NULL));
	return false;
}
