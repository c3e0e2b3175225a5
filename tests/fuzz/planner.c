/* SPDX-License-Identifier: BSD-3-Clause */
/* What dicomm-plan reads: a fleet, a model, a plan, as the first byte says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "planner/input/fleet.h"
#include "planner/input/model.h"
#include "planner/input/plan.h"
#include "tests/fuzz/fuzz.h"

/* "0": a fleet, and so on. */
void fuzz_seeds(void)
{
	fuzz_seed_text("0{\"nodes\": [{\"count\": 2, \"ranks\": 4, \"type\": "
		       "\"a\", \"gbit_per_s\": 10}], \"types\": {\"a\": "
		       "{\"tflops\": 100, \"memory_gib\": 40}}}");
	fuzz_seed_text("1{\"name\": \"m\", \"layers\": 4, \"hidden\": 1024, "
		       "\"heads\": 16, \"ffn\": 4096, \"vocab\": 50000}");
	fuzz_seed_text(
		"2{\"version\": 1, \"model\": \"m\", \"sequence\": 128, "
		"\"global_batch\": 8, \"schedule\": \"1f1b\", \"pipelines\": "
		"[{\"micro_batch\": 1, \"micro_batches\": 8, \"stages\": "
		"[{\"ranks\": [0, 1], \"units\": [0, 5]}]}]}");
}

static void read_fleet(const char *file)
{
	struct fleet f;

	if (fleet_open(&f, file))
		fleet_close(&f);
}

static void read_model(const char *file)
{
	struct model m;

	if (!model_open(&m, file))
		return;
	for (int u = 0; u < model_units(&m); u++)
		if (model_split_params(&m, u) > model_params(&m, u))
			abort();
}

static void read_plan(const char *file)
{
	struct plan p;
	json_t *json;

	if (!plan_open(&p, file))
		return;
	json = plan_json(&p);
	json_decref(json);
	plan_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char path[40];
	int fd;

	if (!len)
		return 0;
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data + 1, len - 1) != (ssize_t)len - 1)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (data[0] % 3 == 0)
		read_fleet(path);
	else if (data[0] % 3 == 1)
		read_model(path);
	else
		read_plan(path);
	close(fd);
	return 0;
}
