/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of no use: named with their place, and nothing crashes or hangs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/check.h"
#include "planner/search/search.h"
#include "tests/planner/desk.h"
#include "tests/support/runner.h"

/* ---- a good file of each sort ---- */

static const char good_cluster[] =
	"{\"nodes\": [{\"count\": 2, \"ranks\": 2, \"gbit_per_s\": 100, "
	"\"inside_gbit_per_s\": 400, \"latency_us\": 10, \"device\": "
	"\"a\", \"island\": \"i\"}, {\"ranks\": 1, \"up_gbit_per_s\": "
	"25, \"down_gbit_per_s\": 20, \"device\": \"b\", \"island\": "
	"\"k\"}], \"islands\": [{\"name\": \"i\", \"gbit_per_s\": 10}, "
	"{\"name\": \"k\"}], \"devices\": {\"a\": {\"tflops\": 100, "
	"\"memory_gib\": 8, \"efficiency\": 0.5, \"price\": 1.5}, \"b\": "
	"{\"tflops\": 50, \"memory_gib\": 12, \"reserved_gib\": 0.5}}}";
static const char good_model[] =
	"{\"model_type\": \"llama\", \"name\": \"m\", "
	"\"num_hidden_layers\": 4, \"hidden_size\": 256, "
	"\"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
	"\"head_dim\": 32, \"intermediate_size\": 512, \"vocab_size\": "
	"1000, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
	"\"torch_dtype\": \"bfloat16\", \"optimizer_bytes\": 12}";
static const char good_profile[] =
	"{\"sequence\": 128, \"devices\": {\"a\": {\"1\": {\"1\": "
	"{\"0-5\": [0.001, 0.002, 0.0001]}, \"2\": {\"0\": [0, 0.001, 0], "
	"\"1-5\": [0.0006, 0.0011, 0.0001]}}}, \"b\": {\"1\": {\"1\": "
	"{\"0-5\": [0.002, 0.004, 0.0001]}}}}, \"layers\": {\"1\": "
	"{\"0-5\": {\"params_floats\": 500000, \"act_mem_bytes\": 1000000, "
	"\"act_input_bytes\": 65536}}}}";
static const char good_plan[] =
	"{\"version\": 1, \"model\": \"m\", \"sequence\": 128, "
	"\"global_batch\": 8, \"schedule\": \"1f1b\", \"overlap\": "
	"\"p2p\", \"zero\": 0, \"collectives\": \"auto\", \"ahead\": 1, "
	"\"pipelines\": [{\"micro_batch\": 1, \"micro_batches\": 5, "
	"\"stages\": [{\"ranks\": [0, 1], \"tp\": 2, \"layers\": [0, 2], "
	"\"recompute\": true}, {\"ranks\": [4], \"layers\": [3, 5]}]}, "
	"{\"micro_batch\": 1, \"micro_batches\": 3, \"weight\": 0.375, "
	"\"stages\": [{\"ranks\": [2], \"layers\": [0, 5]}]}]}";

enum sort { CLUSTER, MODEL, PROFILE, PLAN, SORTS };

static const char *const names[SORTS] = {"cluster.json", "model.json",
					 "profile.json", "plan.json"};
static const char *const goods[SORTS] = {good_cluster, good_model, good_profile,
					 good_plan};

/* ---- all that reads them ---- */

struct reading {
	char file[SORTS][DESK_PATH];
	int search_rounds; /* 0: no search */
	bool good;
};

static void tell(const char *text, void *ctx)
{
	(void)ctx;
	fprintf(stderr, "%s\n", text);
}

static bool read_plan(struct job *j, const char *file)
{
	struct plan p;
	struct cost c;
	bool good = plan_open(&p, file);

	if (!good)
		return false;
	good = !check_plan(j, &p, tell, NULL) && cost_of(j, &p, NULL, NULL, &c);
	if (good)
		cost_free(&c);
	plan_close(&p);
	return good;
}

static void read_all(void *ctx)
{
	struct reading *r = ctx;
	struct search s = {.overlap = PLAN_OVERLAP_P2P,
			   .space = SEARCH_AUTO,
			   .rounds = r->search_rounds,
			   .seed = 1,
			   .jobs = 1};
	struct search_found f;
	struct job j;

	r->good = job_open(&j, r->file[CLUSTER], r->file[MODEL],
			   r->file[PROFILE], 128, 8);
	if (!r->good)
		return;
	s.job = &j;
	r->good = read_plan(&j, r->file[PLAN]);
	if (r->good && s.rounds > 0 && search_run(&s, &f))
		search_free(&f);
	job_close(&j);
}

/* With one file replaced; what is said goes to text. True: all is good. */
static bool read_with(enum sort sort, const char *other, char *text, size_t len)
{
	struct reading r = {.search_rounds = 1};

	for (int i = 0; i < SORTS; i++)
		desk_write(r.file[i], names[i],
			   i == (int)sort ? other : goods[i]);
	desk_hear(read_all, &r, text, len);
	return r.good;
}

/* Replace `old` in a good file; what is said names the file, and more. */
static void refuse(enum sort sort, const char *old, const char *new,
		   const char *wanted)
{
	const char *good = goods[sort], *at = strstr(good, old);
	char other[2048], said[2048];

	ck_assert_msg(at, "%s is not in %s", old, names[sort]);
	snprintf(other, sizeof(other), "%.*s%s%s", (int)(at - good), good, new,
		 at + strlen(old));
	ck_assert_msg(!read_with(sort, other, said, sizeof(said)),
		      "%s: accepted in %s", new, names[sort]);
	ck_assert_msg(strstr(said, names[sort]) && strstr(said, wanted),
		      "%s: wanted %s", said, wanted);
}

START_TEST(good_files_are_good)
{
	char said[2048];

	ck_assert_msg(read_with(SORTS, "", said, sizeof(said)), "%s", said);
	ck_assert_str_eq(said, "");
}
END_TEST

/* A device that is done at once would be given layers for ever. */
START_TEST(passes_take_time)
{
	refuse(PROFILE, "[0.002, 0.004, 0.0001]", "[0, 0, 0.0001]",
	       "devices.b.1.1: {\"0-5\":[0,0,0.0001]}: wanted passes that");
	refuse(PROFILE, "[0.002, 0.004, 0.0001]", "[1e-300, 0, 0.0001]",
	       "devices.b.1.1");
	refuse(PROFILE, "[0.002, 0.004, 0.0001]", "[1, 1e308, 0.0001]",
	       "devices.b.1.1.0-5: [1,1e308,0.0001]: wanted seconds");
}
END_TEST

/* A pipeline counts by its part of the batch, whatever its weight says; and a
 * plan that makes no sense is named as one of no form is. */
START_TEST(a_weight_is_the_part_of_the_batch)
{
	refuse(PLAN, "0.375", "0.1",
	       "plan.json: pipelines[1].weight: 0.1: wanted 0.375, its part");
	refuse(PLAN, "0.375", "-1",
	       "plan.json: pipelines[1].weight: -1: wanted a number from 0");
	refuse(PLAN, "0.375", "1e308", "plan.json: pipelines[1].weight: ");
	refuse(PLAN, "[3, 5]", "[3, 4]",
	       "plan.json: pipelines[0].stages: layers sum up to 5");
	/* The profile has b with degree 1 and micro-batch 1 only. */
	refuse(PLAN, "\"micro_batch\": 1, \"micro_batches\": 5",
	       "\"micro_batch\": 5, \"micro_batches\": 1",
	       "plan.json: pipelines[0].stages[0]: a, tensor-parallel 2: "
	       "measured up to micro-batch 1; 5 would be a guess");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner: input");
	TCase *t = tcase_create("input");

	tcase_set_timeout(t, 300);
	tcase_add_test(t, good_files_are_good);
	tcase_add_test(t, passes_take_time);
	tcase_add_test(t, a_weight_is_the_part_of_the_batch);
	suite_add_tcase(s, t);
	return runner_main(s);
}
