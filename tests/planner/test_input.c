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
	static struct reading r = {.search_rounds = 1};

	for (int i = 0; i < SORTS; i++)
		if (i == (int)sort || !*r.file[i])
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
	refuse(PROFILE, "{\"1\": {\"0-5\": [0.002, 0.004, 0.0001]}}", "null",
	       "devices.b.1: null: wanted an object");
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

/* ---- all values of all files, replaced by what is hardly right ---- */

static const char *const odd[] = {
	"null",          "true", "-1",           "0",
	"0.5",           "7",    "1e308",        "1e-300",
	"1099511627776", "\"\"", "\"%s%n\"",     "[]",
	"[0]",           "{}",   "{\"\": [[]]}",
};
#define ODD (sizeof(odd) / sizeof(odd[0]))

/* Value number `at` of the tree under v, in depth first order, replaced by a
 * copy of `by`, or left out. */
static bool replace(json_t *v, json_t *by, int *at)
{
	json_t *child;
	const char *k;
	void *next;
	size_t i;

	json_object_foreach_safe(v, next, k, child)
	{
		bool here = (*at)-- == 0;

		if (here && by)
			json_object_set_new(v, k, json_deep_copy(by));
		else if (here)
			json_object_del(v, k);
		if (here || replace(child, by, at))
			return true;
	}
	json_array_foreach(v, i, child)
	{
		bool here = (*at)-- == 0;

		if (here && by)
			json_array_set_new(v, i, json_deep_copy(by));
		else if (here)
			json_array_remove(v, i);
		if (here || replace(child, by, at))
			return true;
	}
	return false;
}

/* What is refused names a file, its own or one that it does not go with, and in
 * it a place and what was wanted there, or a line. Nothing crashes, or takes
 * longer than the test may. */
static void try_other(enum sort sort, const char *other)
{
	char said[4096];
	bool named = read_with(sort, other, said, sizeof(said));

	for (int i = 0; !named && i < SORTS; i++) {
		const char *at = strstr(said, names[i]);

		named = at &&
			(strstr(at, ": wanted ") || strstr(at, ": line ") ||
			 strstr(at, "measured") || strstr(at, "must "));
	}
	ck_assert_msg(named, "%s: %s: said: %s", names[sort], other, said);
}

START_TEST(no_odd_value_crashes_or_hangs)
{
	enum sort sort = (enum sort)_i;
	int tried = 0;

	for (size_t k = 0; k < ODD; k++) {
		for (int n = 0, more = 1; more; n++) {
			json_t *root = json_loads(goods[sort], 0, NULL);
			json_t *by = json_loads(odd[k], JSON_DECODE_ANY, NULL);
			char *text;
			int at = n;

			ck_assert_ptr_nonnull(root);
			ck_assert_ptr_nonnull(by);
			more = replace(root, by, &at);
			text = json_dumps(root, JSON_COMPACT);
			if (more)
				try_other(sort, text);
			tried += more;
			free(text);
			json_decref(by);
			json_decref(root);
		}
	}
	ck_assert_int_ge(tried, 100);
}
END_TEST

START_TEST(nothing_that_is_left_out_crashes)
{
	enum sort sort = (enum sort)_i;

	for (int n = 0, more = 1; more; n++) {
		json_t *root = json_loads(goods[sort], 0, NULL);
		char *text;
		int at = n;

		more = replace(root, NULL, &at);
		text = json_dumps(root, JSON_COMPACT);
		if (more)
			try_other(sort, text);
		free(text);
		json_decref(root);
	}
}
END_TEST

/* No JSON at all: cut off, and with bytes that do not belong there. */
START_TEST(no_broken_text_crashes)
{
	enum sort sort = (enum sort)_i;
	size_t len = strlen(goods[sort]);

	for (size_t n = 0; n < len; n += 7) {
		static const char bytes[] = "]}\"\\\x01\xff,:0-";
		char other[2048];

		snprintf(other, sizeof(other), "%s", goods[sort]);
		other[n] = bytes[n % (sizeof(bytes) - 1)];
		try_other(sort, other);
		other[n] = '\0';
		try_other(sort, other);
	}
}
END_TEST

/* ---- families of models (tests/planner/models.json) ---- */

struct counting {
	const char *file;
	double params; /* below 0: refused */
};

static void count(void *ctx)
{
	struct counting *c = ctx;
	struct model m;

	c->params = -1;
	if (!model_open(&m, c->file))
		return;
	c->params = -model_shared_params(&m);
	for (int u = 0; u < model_units(&m); u++)
		c->params += model_params(&m, u);
}

static void count_model(const json_t *model, json_t *config)
{
	const char *name = json_string_value(json_object_get(model, "name"));
	const char *refused =
		json_string_value(json_object_get(model, "refused"));
	double wanted = json_number_value(json_object_get(model, "parameters"));
	const json_t *rounded = json_object_get(model, "within");
	double within = rounded ? json_number_value(rounded) : 1e-4;
	char path[DESK_PATH], said[2048];
	char *text = json_dumps(config, 0);
	struct counting c = {.file = path};

	desk_write(path, "model.json", text);
	desk_hear(count, &c, said, sizeof(said));
	if (refused)
		ck_assert_msg(c.params < 0 && strstr(said, refused) &&
				      strstr(said, "model.json: "),
			      "%s: %.0f parameters, %s", name, c.params, said);
	else
		ck_assert_msg(c.params > wanted * (1 - within) &&
				      c.params < wanted * (1 + within),
			      "%s: %.0f parameters, wanted %.0f %s", name,
			      c.params, wanted, said);
	free(text);
}

START_TEST(published_parameters_are_counted)
{
	char path[DESK_PATH];
	json_t *root, *model;
	size_t i;

	desk_source(path, "models.json");
	root = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(root);
	json_array_foreach(json_object_get(root, "models"), i, model)
		count_model(model, json_object_get(model, "config"));
	ck_assert_uint_ge(i, 62);
	/* An inner object is the model, where nothing else is. */
	model = json_array_get(json_object_get(root, "models"), 2);
	json_object_set_new(model, "config",
			    json_pack("{s:s, s:O}", "model_type", "pair",
				      "text_config",
				      json_object_get(model, "config")));
	count_model(model, json_object_get(model, "config"));
	json_decref(root);
}
END_TEST

/* Of a small model with these keys; what is said of it holds `says`, and it is
 * refused unless that is "". */
static void try_keys(const char *keys, const char *says)
{
	char path[DESK_PATH], text[512], said[2048];
	struct counting c = {.file = path};

	snprintf(text, sizeof(text),
		 "{\"num_hidden_layers\": 4, \"hidden_size\": 64, "
		 "\"num_attention_heads\": 4, \"vocab_size\": 100, %s}",
		 keys);
	desk_write(path, "model.json", text);
	desk_hear(count, &c, said, sizeof(said));
	ck_assert_msg(strstr(said, says) && (c.params > 0) == !*says, "%s: %s",
		      keys, said);
}

/* No number of experts that cannot be read is taken for none. */
START_TEST(experts_are_counted_or_refused)
{
	static const struct {
		const char *keys, *says;
	} cases[] = {
		{"\"num_experts\": 1", ""},
		{"\"num_experts\": null", ""},
		{"\"num_experts\": [1, 0]", ""},
		{"\"num_experts\": 8.0",
		 "num_experts: 8.0: wanted a whole number"},
		{"\"num_local_experts\": \"8\"",
		 "num_local_experts: \"8\": wanted a whole number"},
		{"\"n_routed_experts\": -8",
		 "n_routed_experts: -8: wanted a whole number"},
		{"\"num_experts\": []", "num_experts: []: wanted"},
		{"\"num_experts\": [8, 2.5]", "num_experts: [8,2.5]: wanted"},
		{"\"num_experts\": [1, 8]",
		 "num_experts: [1,8]: wanted the same for all blocks"},
		{"\"model_type\": \"llama\", \"num_experts\": \"8\"",
		 "num_experts: \"8\": wanted a whole number"},
		{"\"model_type\": \"llama\", \"num_experts\": [1, 8]",
		 "model_type: \"llama\": wanted a mixture of experts"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		try_keys(cases[i].keys, cases[i].says);
}
END_TEST

/* What a mixture lacks is named. */
START_TEST(a_mixture_says_what_it_lacks)
{
	static const struct {
		const char *keys, *says;
	} cases[] = {
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64",
		 ""},
		{"\"moe_intermediate_size\": 64",
		 "num_experts_per_tok: missing"},
		{"\"num_experts_per_tok\": 9, \"moe_intermediate_size\": 64",
		 "num_experts_per_tok: 9: wanted from 1 to the 8 experts"},
		{"\"num_experts_per_tok\": 2",
		 "moe_intermediate_size: missing"},
		{"\"num_experts_per_tok\": [2, 1], "
		 "\"moe_intermediate_size\": 64",
		 "num_experts_per_tok: [2,1]: wanted the same for all blocks"},
		{"\"num_experts_per_tok\": [], \"moe_intermediate_size\": 64",
		 "num_experts_per_tok: []: wanted a whole number"},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"mlp_only_layers\": [1]",
		 "mlp_only_layers: [1]: wanted none"},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"mlp_only_layers\": 3",
		 "mlp_only_layers: 3: wanted none"},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"mlp_only_layers\": \"x\"",
		 "mlp_only_layers: \"x\": wanted none"},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"mlp_only_layers\": [], \"moe_layer_freq\": 1",
		 ""},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"moe_layer_freq\": 2",
		 "moe_layer_freq: 2: wanted 1"},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"interleave_moe_layer_step\": 2, \"moe_layers\": [1, 3]",
		 ""},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"interleave_moe_layer_step\": 2, \"moe_layers\": [0, 2]",
		 "moe_layers: [0,2]: wanted the 2 blocks from 1 on that "},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"moe_layers\": \"x\"",
		 "moe_layers: \"x\": wanted the 4 blocks from 0 on that "},
		{"\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
		 "\"decoder_sparse_step\": 0",
		 "decoder_sparse_step: 0: wanted a whole number from 1"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char keys[256];

		snprintf(keys, sizeof(keys), "\"num_experts\": 8, %s",
			 cases[i].keys);
		try_keys(keys, cases[i].says);
	}
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
	tcase_add_loop_test(t, no_odd_value_crashes_or_hangs, 0, SORTS);
	tcase_add_loop_test(t, nothing_that_is_left_out_crashes, 0, SORTS);
	tcase_add_loop_test(t, no_broken_text_crashes, 0, SORTS);
	tcase_add_test(t, published_parameters_are_counted);
	tcase_add_test(t, experts_are_counted_or_refused);
	tcase_add_test(t, a_mixture_says_what_it_lacks);
	suite_add_tcase(s, t);
	return runner_main(s);
}
