/* SPDX-License-Identifier: BSD-3-Clause */
/* FlashFlex's cost model, beside numbers that were worked out by themselves. */
#include <check.h>
#include <math.h>

#include "planner/cost/flashflex.h"
#include "tests/planner/desk.h"
#include "tests/support/runner.h"

static const char cluster[] =
	"{\"nodes\": [{\"count\": 2, \"ranks\": 4, \"gbit_per_s\": 80,"
	" \"inside_gbit_per_s\": 800, \"device\": \"a\"}, {\"count\": 2,"
	" \"ranks\": 4, \"gbit_per_s\": 32, \"inside_gbit_per_s\": 128,"
	" \"device\": \"b\"}], \"devices\": {\"a\": {\"tflops\": 300,"
	" \"memory_gib\": 80}, \"b\": {\"tflops\": 120, \"memory_gib\": 24}}}";
static const char model[] =
	"{\"num_hidden_layers\": 8, \"hidden_size\": 1024,"
	" \"num_attention_heads\": 16, \"vocab_size\": 32000}";

static int integer(const json_t *list, size_t i)
{
	return (int)json_integer_value(json_array_get(list, i));
}

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static void near(const json_t *c, const char *key, double x)
{
	double wanted = number(c, key);

	ck_assert_msg(fabs(x - wanted) <= 1e-9 * fabs(wanted),
		      "%s: %.12g, wanted %.12g", key, x, wanted);
}

static void run(struct job *j, const json_t *c)
{
	struct plan p = {.seq = 512, .zero = (int)number(c, "zero")};
	const json_t *lines = json_object_get(c, "stages");
	struct flashflex found;

	for (size_t i = 0; i < json_array_size(lines); i++) {
		const json_t *stages = json_array_get(lines, i);
		struct plan_pipeline *l = plan_add_pipeline(&p);

		l->micro_batch = (int)number(c, "micro_batch");
		l->micro_batches =
			integer(json_object_get(c, "micro_batches"), i);
		p.global_batch += l->micro_batch * l->micro_batches;
		for (size_t s = 0; s < json_array_size(stages); s++) {
			const json_t *x = json_array_get(stages, s);

			desk_stage(l, (uint32_t)integer(x, 0), integer(x, 1),
				   integer(x, 2), integer(x, 3));
			l->stage[s].recompute =
				json_is_true(json_object_get(c, "recompute"));
		}
	}
	flashflex_cost(j, &p, &found);
	near(c, "seconds", found.seconds);
	near(c, "pipe", found.pipe);
	near(c, "sync", found.sync);
	near(c, "memory", found.most_memory);
	plan_close(&p);
}

START_TEST(twenty_plans_cost_what_its_formulas_say)
{
	char path[DESK_PATH];
	json_t *root, *cases;
	struct job j;

	desk_source(path, "flashflex.json");
	root = json_load_file(path, 0, NULL);
	cases = json_object_get(root, "cases");
	ck_assert_uint_eq(json_array_size(cases), 20);
	desk_job(&j, cluster, model, 512, 8);
	for (size_t i = 0; i < 20; i++)
		run(&j, json_array_get(cases, i));
	job_close(&j);
	json_decref(root);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner: flashflex");
	TCase *t = tcase_create("flashflex");

	tcase_add_test(t, twenty_plans_cost_what_its_formulas_say);
	suite_add_tcase(s, t);
	return runner_main(s);
}
