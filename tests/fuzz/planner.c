/* SPDX-License-Identifier: BSD-3-Clause */
/* What dicomm-plan reads: a fleet, a model, a plan, a profile, as the first
 * byte says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "planner/cost/check.h"
#include "tests/fuzz/fuzz.h"

static const char fleet_text[] =
	"{\"nodes\": [{\"count\": 2, \"ranks\": 4, \"device\": \"a\", "
	"\"gbit_per_s\": 10, \"inside_gbit_per_s\": 100}], \"devices\": "
	"{\"a\": {\"tflops\": 100, \"memory_gib\": 40}}}";
static const char model_text[] =
	"{\"model_type\": \"llama\", \"num_hidden_layers\": 4, "
	"\"hidden_size\": 256, \"num_attention_heads\": 8, "
	"\"intermediate_size\": 512, \"vocab_size\": 1000, "
	"\"tie_word_embeddings\": true}";
static const char plan_text[] =
	"{\"version\": 1, \"model\": \"m\", \"sequence\": 128, "
	"\"global_batch\": 8, \"schedule\": \"1f1b\", \"pipelines\": "
	"[{\"micro_batch\": 1, \"micro_batches\": 8, \"weight\": 1, "
	"\"stages\": [{\"ranks\": [0, 1], \"layers\": [0, 2]}, {\"ranks\": "
	"[4], \"layers\": [3, 5]}]}]}";
static const char profile_text[] =
	"{\"sequence\": 128, \"devices\": {\"a\": {\"1\": {\"1\": {\"0-5\": "
	"[0.001, 0.002, 0.0001]}}}}, \"layers\": {\"1\": {\"0-5\": "
	"{\"params_floats\": 9, \"act_mem_bytes\": 9, \"act_input_bytes\": "
	"9}}}}";

static void seed(char reader, const char *text)
{
	char *all = NULL;

	if (asprintf(&all, "%c%s", reader, text) < 0)
		abort();
	fuzz_seed_text(all);
	free(all);
}

void fuzz_seeds(void)
{
	seed('0', fleet_text);
	seed('1', model_text);
	seed('2', plan_text);
	seed('3', profile_text);
}

/* A file without a name; close it. */
static int file_of(const void *data, size_t len, char path[40])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		abort();
	snprintf(path, 40, "/proc/self/fd/%d", fd);
	return fd;
}

/* What plans and profiles are read for; made once. */
static struct job *good_job(void)
{
	static struct job job;
	char fleet[40], model[40];
	int a, b;

	if (job.fleet.ranks)
		return &job;
	a = file_of(fleet_text, strlen(fleet_text), fleet);
	b = file_of(model_text, strlen(model_text), model);
	if (!job_open(&job, fleet, model, NULL, 128, 8))
		abort();
	close(a);
	close(b);
	return &job;
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

static void ignore(const char *text, void *ctx)
{
	(void)text;
	(void)ctx;
}

static void read_plan(const char *file)
{
	struct plan p;
	json_t *json;

	if (!plan_open(&p, file))
		return;
	json = plan_json(&p);
	json_decref(json);
	/* Much work for few bytes is no fault. */
	if (p.global_batch <= 4096)
		check_plan(good_job(), &p, ignore, NULL);
	plan_close(&p);
}

static void read_profile(const char *file)
{
	const struct job *j = good_job();
	struct profile p;

	if (profile_open(&p, file, &j->fleet, &j->model, j->seq))
		profile_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const readers[])(const char *) = {
		read_fleet, read_model, read_plan, read_profile};
	char path[40];
	int fd;

	if (!len)
		return 0;
	fd = file_of(data + 1, len - 1, path);
	readers[data[0] % 4](path);
	close(fd);
	return 0;
}
