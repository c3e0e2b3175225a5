/* SPDX-License-Identifier: BSD-3-Clause */
/* Interleaved plans: their times beside those of another simulation, their
 * memory, files and complaints. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/check.h"
#include "planner/search/replan.h"
#include "planner/search/search.h"
#include "tests/planner/desk.h"
#include "tests/support/runner.h"

enum { TEAMS = 4, CHUNKS = 4, BATCHES = 12, STAGES = TEAMS * CHUNKS };

/* ---- another simulation: the longest way through a graph of passes ---- */

struct pass {
	int stage, micro_batch;
	bool back;
};

static int row_of(struct pass *out, int at, int p, int v, int m, bool back)
{
	int n = 0;

	for (int row = 0; row < m; row += p)
		for (int c = 0; c < v; c++)
			for (int k = 0; k < p; k++)
				out[n++] = (struct pass){
					(back ? v - 1 - c : c) * p + at,
					row + k, back};
	return n;
}

/* The passes of team `at`: arXiv 2104.04473, figure 4, written down as it is
 * drawn there. */
static void list_passes(struct pass *out, int at, int p, int v, int m)
{
	struct pass there[CHUNKS * BATCHES], back[CHUNKS * BATCHES];
	int n = row_of(there, at, p, v, m, false);
	int warm = m == p ? n : (p - at - 1) * 2 + (v - 1) * p;

	row_of(back, at, p, v, m, true);
	if (warm > n)
		warm = n;
	for (int k = 0; k < n; k++)
		out[k < warm ? k : warm + 2 * (k - warm)] = there[k];
	for (int k = 0; k < n; k++)
		out[k < n - warm ? warm + 2 * k + 1 : n + k] = back[k];
}

static double end_of(const struct schedule_stage *st, int p, int v, int m,
		     bool held)
{
	struct pass list[TEAMS][2 * CHUNKS * BATCHES];
	double came[2][STAGES + 1][BATCHES] = {0}; /* the input of a pass */
	double last = 0, now = 0;
	bool moved = true;

	for (int at = 0; at < p; at++)
		list_passes(list[at], at, p, v, m);
	/* Until nothing comes later than it did. */
	while (moved) {
		moved = false;
		last = 0;
		for (int k = 0; k < 2 * v * m * p; k++) {
			struct pass x = list[k / (2 * v * m)][k % (2 * v * m)];
			int s = x.stage, to = x.back ? s - 1 : s + 1;
			bool goes = to >= 0 && to < p * v;
			bool turns = to == p * v; /* the loss */
			double way = !goes    ? 0
				     : x.back ? st[to].back
					      : st[s].send;
			double *next;

			if (k % (2 * v * m) == 0)
				now = 0;
			now = fmax(now, came[x.back][s][x.micro_batch]) +
			      (x.back ? st[s].backward : st[s].forward);
			next = turns ? &came[1][s][x.micro_batch]
				     : &came[x.back][goes ? to : STAGES]
					    [x.micro_batch];
			moved |= *next < now + way;
			*next = now + way;
			now += held ? way : 0;
			last = fmax(last, now);
		}
	}
	return last;
}

static double draw(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) / (double)(1 << 24);
}

START_TEST(times_are_those_of_another_simulation)
{
	for (int k = 0; k < 3 * 3 * 3 * 4; k++) {
		int p = 2 + k % 3, v = 2 + k / 3 % 3;
		int m = p * (1 + k / 9 % 3);
		bool held = k / 27 % 2, messages = k / 54;
		struct schedule_stage st[STAGES] = {0};
		struct schedule_pipeline l = {.stage = st,
					      .stages = p * v,
					      .micro_batches = m,
					      .interleave = v};
		unsigned seed = (unsigned)k + 1;
		double end, other;

		for (int s = 0; s < p * v; s++) {
			st[s].forward = 0.5 + draw(&seed);
			st[s].backward = 1 + 2 * draw(&seed);
			st[s].send = messages ? draw(&seed) : 0;
			st[s].back = messages ? draw(&seed) : 0;
		}
		other = end_of(st, p, v, m, held);
		end = schedule_run(&l, 1, 1, PLAN_INTERLEAVED,
				   held ? PLAN_EAGER : PLAN_OVERLAP_P2P, NULL,
				   NULL);
		ck_assert_double_eq_tol(end, other, 1e-9);
	}
}
END_TEST

START_TEST(the_bubble_of_equal_stages_is_divided_by_the_chunks)
{
	for (int k = 0; k < 3 * 4 * 3; k++) {
		int p = 2 + k % 3, v = 1 + k / 3 % 4, m = p * (1 + k / 12);
		struct schedule_stage st[STAGES];
		struct schedule_pipeline l = {.stage = st,
					      .stages = p * v,
					      .micro_batches = m,
					      .interleave = v};
		double end, busy = m * 1.0;

		for (int s = 0; s < p * v; s++)
			st[s] = (struct schedule_stage){.forward = 0.3 / v,
							.backward = 0.7 / v};
		end = schedule_run(&l, 1, 1, PLAN_INTERLEAVED, PLAN_OVERLAP_P2P,
				   NULL, NULL);
		ck_assert_double_eq_tol((end - busy) / busy,
					(p - 1.0) / (v * m), 1e-9);
	}
}
END_TEST

/* From the last team to the first, too, messages queue for the way of a node.
 */
START_TEST(messages_from_round_to_round_take_time)
{
	struct schedule_stage st[4];
	struct schedule_pipeline l = {st, 4, 2, 0, 2};
	double free, slow;

	for (int s = 0; s < 4; s++)
		st[s] = (struct schedule_stage){
			.forward = 1, .backward = 2, .node = (uint32_t)s % 2};
	free = schedule_run(&l, 1, 2, PLAN_INTERLEAVED, PLAN_OVERLAP_P2P, NULL,
			    NULL);
	ck_assert_double_eq_tol(free, 2 * 2 * 3 + 3, 1e-9);
	/* Of stage 1, which is not the last one of its team: 5 s each. */
	st[1].send = st[1].send_way = 5;
	slow = schedule_run(&l, 1, 2, PLAN_INTERLEAVED, PLAN_OVERLAP_P2P, NULL,
			    NULL);
	/* 1 + 1 + 5 + 5 until the second one is there; two passes forward, two
	 * times four back. */
	ck_assert_double_eq_tol(slow, 12 + 1 + 1 + 2 * 5, 1e-9);
}
END_TEST

/* ---- plans ---- */

static const char cluster[] =
	"{\"nodes\": [{\"count\": 2, \"ranks\": 4, \"gbit_per_s\": 100,"
	" \"inside_gbit_per_s\": 2400, \"device\": \"x\"}],"
	" \"devices\": {\"x\": {\"tflops\": 100, \"memory_gib\": 40,"
	" \"price\": 2}}}";
static const char model[] =
	"{\"num_hidden_layers\": 8, \"hidden_size\": 512,"
	" \"num_attention_heads\": 8, \"intermediate_size\": 2048,"
	" \"vocab_size\": 1000, \"gated\": false}";

/* Two teams of two ranks; with chunks, each team has as many of the stages. */
static void plan_teams_of_two(struct plan *p, int chunks)
{
	struct plan_pipeline *l;
	int each = 8 / (2 * chunks);

	*p = (struct plan){.seq = 128,
			   .global_batch = 8,
			   .schedule =
				   chunks > 1 ? PLAN_INTERLEAVED : PLAN_1F1B,
			   .overlap = PLAN_OVERLAP_P2P};
	l = plan_add_pipeline(p);
	l->interleave = chunks;
	l->micro_batch = 1;
	l->micro_batches = 8;
	for (int s = 0; s < 2 * chunks; s++)
		desk_stage(l, s % 2 ? 4 : 0, 2, s ? s * each + 1 : 0,
			   s == 2 * chunks - 1 ? 9 : (s + 1) * each);
}

static void note(const char *text, void *ctx)
{
	snprintf(ctx, 512, "%s", text);
}

START_TEST(a_team_keeps_all_its_chunks)
{
	struct plan plain, split;
	struct cost a, b;
	char said[512] = "";
	struct job j;

	desk_job(&j, cluster, model, 128, 8);
	plan_teams_of_two(&plain, 1);
	for (int v = 2; v <= 4; v += 2) {
		int warm = 2 + (v - 1) * 2;

		plan_teams_of_two(&split, v);
		ck_assert_msg(!check_plan(&j, &split, note, said), "%s", said);
		ck_assert(cost_of(&j, &plain, NULL, NULL, &a));
		ck_assert(cost_of(&j, &split, NULL, NULL, &b));
		for (int s = 0; s < 2 * v; s++) {
			const struct cost_stage *x =
				&a.pipeline[0].stage[s % 2];
			const struct cost_stage *y = &b.pipeline[0].stage[s];
			struct memory m = y->memory;

			ck_assert_double_eq_tol(m.weights, x->memory.weights,
						1);
			ck_assert_double_eq_tol(m.optimizer,
						x->memory.optimizer, 1);
			ck_assert_double_eq_tol(y->busy, x->busy, 1e-9);
			ck_assert_double_eq_tol(
				m.total,
				m.weights + m.gradients + m.optimizer +
					m.activations + m.work + m.reserved,
				1);
			/* Of the first team, whose chunks have as many blocks,
			 * as many passes as there are before the first back. */
			if (s % 2 == 0)
				ck_assert_double_eq_tol(m.activations,
							x->memory.activations /
								2 * (warm + 1) /
								v,
							1);
		}
		ck_assert_double_eq_tol(a.update, b.update, 1e-12);
		/* Less waiting; and each device counts once. */
		ck_assert_double_lt(b.pipeline[0].bubble, a.pipeline[0].bubble);
		ck_assert_double_eq_tol(b.mfu * b.step, a.mfu * a.step, 1e-9);
		cost_free(&a);
		cost_free(&b);
		plan_close(&split);
	}
	plan_close(&plain);
	job_close(&j);
}
END_TEST

/* Gradients of both chunks meet, one after the other, over the ways that those
 * of one stage with all these layers have. */
START_TEST(gradients_of_chunks_meet_one_after_the_other)
{
	struct plan plan[2];
	struct cost c[2];
	struct job j;

	desk_job(&j, cluster, model, 128, 16);
	for (int k = 0; k < 2; k++) {
		struct plan *p = &plan[k];
		struct plan_pipeline *l;

		plan_teams_of_two(p, 1 + k);
		p->global_batch = 16;
		l = plan_add_pipeline(p);
		l->interleave = 1 + k;
		l->micro_batch = 1;
		l->micro_batches = 8;
		for (int s = 0; s < p->pipeline[0].stages; s++)
			desk_stage(l, s % 2 ? 6 : 2, 2,
				   p->pipeline[0].stage[s].first,
				   p->pipeline[0].stage[s].last);
		ck_assert(cost_of(&j, p, NULL, NULL, &c[k]));
	}
	/* Two messages have two latencies. */
	ck_assert_double_ge(c[1].sync, c[0].sync);
	ck_assert_double_le(c[1].sync, c[0].sync * 1.2);
	cost_free(&c[1]);
	plan[1].overlap = PLAN_OVERLAP_FULL;
	ck_assert(cost_of(&j, &plan[1], NULL, NULL, &c[1]));
	ck_assert_double_lt(c[1].sync, c[0].sync);
	for (int k = 0; k < 2; k++) {
		cost_free(&c[k]);
		plan_close(&plan[k]);
	}
	job_close(&j);
}
END_TEST

static void refuse(struct job *j, struct plan *p, const char *wanted)
{
	char said[2][512] = {"", ""};

	/* The last one; nothing is wrong but that. */
	ck_assert_int_eq(check_plan(j, p, note, said[0]), 1);
	ck_assert_msg(strstr(said[0], wanted), "%s\nwanted %s", said[0],
		      wanted);
}

START_TEST(check_names_what_cannot_be_interleaved)
{
	struct plan_pipeline *l;
	struct plan p;
	struct job j;

	desk_job(&j, cluster, model, 128, 8);
	plan_teams_of_two(&p, 2);
	l = &p.pipeline[0];
	l->interleave = 3;
	refuse(&j, &p,
	       "pipelines[0].interleave: 3: wanted 1, or a divisor of "
	       "the 4 stages");
	l->interleave = 4;
	refuse(&j, &p, "pipelines[0].interleave: 4: wanted 1");
	l->interleave = 2;
	p.schedule = PLAN_GPIPE;
	refuse(&j, &p,
	       "pipelines[0].interleave: 2: wanted 1 with the schedule "
	       "gpipe");
	p.schedule = PLAN_1F1B;
	refuse(&j, &p, "interleave: 2: wanted 1 with the schedule 1f1b");
	p.schedule = PLAN_INTERLEAVED;
	p.overlap = PLAN_BLOCKING;
	refuse(&j, &p,
	       "overlap: none: wanted send, p2p or full with the "
	       "schedule interleaved");
	p.overlap = PLAN_EAGER;
	p.ahead = 1;
	refuse(&j, &p, "ahead: 1: wanted 0 with the schedule interleaved");
	p.ahead = 0;
	l->stage[2].rank[1] = 3;
	refuse(&j, &p,
	       "pipelines[0].stages[2].ranks[1]: 3: wanted 1, that of "
	       "stages[0]");
	l->stage[2].rank[1] = 1;
	l->stage[3].tp = 1;
	refuse(&j, &p,
	       "pipelines[0].stages[3].tp: 1: wanted 2, that of "
	       "stages[1]");
	l->stage[3].tp = 2;
	l->micro_batches = 7;
	p.global_batch = 7;
	refuse(&j, &p,
	       "pipelines[0].micro_batches: 7: wanted a multiple of 2, "
	       "the stages (4) by interleave (2)");
	plan_close(&p);
	plan_teams_of_two(&p, 1);
	p.schedule = PLAN_INTERLEAVED;
	refuse(&j, &p, "schedule: interleaved: wanted 1f1b or gpipe");
	plan_close(&p);
	job_close(&j);
}
END_TEST

START_TEST(a_plan_is_read_as_it_was_written)
{
	char file[DESK_PATH];
	struct plan p, again;
	json_t *j;
	char *text;

	plan_teams_of_two(&p, 4);
	j = plan_json(&p);
	text = json_dumps(j, 0);
	desk_write(file, "plan.json", text);
	ck_assert(plan_open(&again, file));
	ck_assert_int_eq(again.pipeline[0].interleave, 4);
	ck_assert_int_eq(again.schedule, PLAN_INTERLEAVED);
	ck_assert_int_eq(plan_teams(&again.pipeline[0]), 2);
	free(text);
	json_decref(j);
	plan_close(&again);
	plan_close(&p);
	plan_teams_of_two(&p, 1);
	j = plan_json(&p);
	text = json_dumps(j, 0);
	ck_assert_ptr_null(strstr(text, "interleave"));
	free(text);
	json_decref(j);
	plan_close(&p);
}
END_TEST

/* ---- searches ---- */

/* 7B on four hosts: no two hold it together, and their links are too slow for
 * tensor parallelism, so that 16 micro-batches go through four stages. */
static const char four[] =
	"{\"nodes\": [{\"count\": 4, \"ranks\": 1, \"gbit_per_s\": 100,"
	" \"inside_gbit_per_s\": 2400, \"device\": \"x\"}],"
	" \"devices\": {\"x\": {\"tflops\": 100, \"memory_gib\": 40}}}";
static const char seven[] =
	"{\"num_hidden_layers\": 32, \"hidden_size\": 4096,"
	" \"num_attention_heads\": 32, \"intermediate_size\": 11008,"
	" \"vocab_size\": 32000}";

static double find(struct job *j, const struct search *s, struct plan *out)
{
	struct search_found f;
	char said[512] = "";
	double step;

	ck_assert(search_run(s, &f));
	ck_assert_msg(!check_plan(j, &f.plan, note, said), "%s", said);
	step = f.cost.step;
	if (out) {
		*out = f.plan;
		f.plan = (struct plan){0};
	}
	search_free(&f);
	return step;
}

START_TEST(a_search_interleaves_where_that_is_faster)
{
	struct job j;
	struct search s = {.job = &j,
			   .space = SEARCH_AUTO,
			   .overlap = PLAN_OVERLAP_P2P,
			   .rounds = 8,
			   .seed = 1,
			   .jobs = 1};
	double plain, two, any;
	struct plan p;

	desk_job(&j, four, seven, 2048, 16);
	plain = find(&j, &s, &p);
	ck_assert_int_eq(p.schedule, PLAN_1F1B);
	ck_assert_int_eq(p.pipeline[0].stages, 4);
	plan_close(&p);
	s.interleave = 1;
	ck_assert_double_eq(find(&j, &s, NULL), plain);
	s.interleave = 2;
	two = find(&j, &s, &p);
	ck_assert_int_eq(p.schedule, PLAN_INTERLEAVED);
	ck_assert_int_eq(p.pipeline[0].interleave, 2);
	plan_close(&p);
	s.interleave = -1;
	any = find(&j, &s, &p);
	/* Of 3 / 16 more than the passes, a half and an eighth are left. */
	ck_assert_double_lt(two, plain * (16 + 3 / 2.0) / (16 + 3));
	ck_assert_double_lt(any, plain * (16 + 3 / 4.0) / (16 + 3));
	plan_close(&p);
	job_close(&j);
}
END_TEST

START_TEST(threads_do_not_change_an_interleaved_plan)
{
	char *text[2];
	struct job j;

	desk_job(&j, four, seven, 2048, 24);
	for (int k = 0; k < 2; k++) {
		struct search s = {.job = &j,
				   .space = SEARCH_AUTO,
				   .overlap = PLAN_OVERLAP_P2P,
				   .interleave = -1,
				   .rounds = 8,
				   .seed = 1,
				   .jobs = 1 + 2 * k};
		struct plan p;
		json_t *root;

		find(&j, &s, &p);
		root = plan_json(&p);
		text[k] = json_dumps(root, 0);
		json_decref(root);
		plan_close(&p);
	}
	ck_assert_str_eq(text[0], text[1]);
	free(text[0]);
	free(text[1]);
	job_close(&j);
}
END_TEST

/* Unlike devices, scarce memory, batches that few numbers divide: what comes of
 * it can be run, and is no slower than without chunks. */
START_TEST(chunks_make_no_search_worse)
{
	static const char mixture[] =
		"{\"num_hidden_layers\": 12, \"hidden_size\": 1024,"
		" \"num_attention_heads\": 16, \"intermediate_size\": 4096,"
		" \"vocab_size\": 32000, \"num_experts\": 8,"
		" \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 1024}";
	static const char dense[] =
		"{\"num_hidden_layers\": 14, \"hidden_size\": 4096,"
		" \"num_attention_heads\": 32, \"vocab_size\": 32000,"
		" \"tie_word_embeddings\": true}";
	int chunked = 0;

	for (unsigned k = 0; k < 10; k++) {
		unsigned seed = k + 1;
		char text[1024];
		struct job j;
		struct search s = {.job = &j,
				   .space = SEARCH_AUTO,
				   .overlap = k % 2 ? PLAN_OVERLAP_FULL
						    : PLAN_EAGER,
				   .zero = k % 4 == 3 ? 1 : 0,
				   .rounds = 4,
				   .seed = (int)k,
				   .jobs = 1};
		double plain;
		struct plan p;

		snprintf(text, sizeof(text),
			 "{\"nodes\": [{\"count\": %d, \"ranks\": 1,"
			 " \"gbit_per_s\": %.0f, \"inside_gbit_per_s\": 100,"
			 " \"device\": \"a\"}, {\"count\": %d, \"ranks\": 1,"
			 " \"gbit_per_s\": 50, \"inside_gbit_per_s\": 200,"
			 " \"device\": \"b\"}], \"devices\": {\"a\": "
			 "{\"tflops\": 300, \"memory_gib\": %.0f}, \"b\": "
			 "{\"tflops\": %.0f, \"memory_gib\": 30}}}",
			 2 + (int)(k % 2), 10 + 90 * draw(&seed),
			 1 + (int)(k / 2 % 3), 20 + 30 * draw(&seed),
			 50 + 250 * draw(&seed));
		desk_job(&j, text, k % 5 == 4 ? mixture : dense, 1024,
			 k % 3 ? 24 : 12 + (int)(20 * draw(&seed)));
		plain = find(&j, &s, NULL);
		s.interleave = -1;
		ck_assert_double_le(find(&j, &s, &p), plain * (1 + 1e-12));
		chunked += p.schedule == PLAN_INTERLEAVED;
		plan_close(&p);
		job_close(&j);
	}
	ck_assert_int_ge(chunked, 4);
}
END_TEST

/* A rank has what it had in any of its chunks. */
START_TEST(what_a_rank_had_in_another_chunk_does_not_move)
{
	struct plan plain, chunks;
	double state[3], blocks = 0;
	struct job j;

	desk_job(&j, cluster, model, 128, 8);
	table_state_bytes(&j, state);
	plan_teams_of_two(&plain, 1);
	plan_teams_of_two(&chunks, 2);
	ck_assert_double_eq(replan_moves(&j, &chunks, &chunks), 0);
	/* 0 to 4 of 0 to 2 and 5 and 6; 5 to 9 of 3, 4 and 7 to 9. */
	for (int u = 3; u <= 6; u++)
		blocks += model_params(&j.model, u) * (state[0] + state[2]);
	ck_assert_double_eq_tol(replan_moves(&j, &chunks, &plain), blocks, 1);
	ck_assert_double_eq_tol(replan_moves(&j, &plain, &chunks), blocks, 1);
	plan_close(&plain);
	plan_close(&chunks);
	job_close(&j);
}
END_TEST

/* Of two interleaved pipelines one loses a rank: what is left can be run, and
 * the other one may stay as it is. */
START_TEST(an_interleaved_plan_is_planned_anew)
{
	struct job j;
	struct search s = {.job = &j,
			   .space = SEARCH_AUTO,
			   .overlap = PLAN_OVERLAP_P2P,
			   .interleave = -1,
			   .experts = 1,
			   .rounds = 4,
			   .seed = 1,
			   .jobs = 1};
	char lost[2] = "5", said[512] = "";
	struct plan_pipeline *l;
	struct search_found f;
	struct replan r = {0};
	struct plan p;

	desk_job(&j, cluster, model, 128, 16);
	plan_teams_of_two(&p, 2);
	p.global_batch = 16;
	l = plan_add_pipeline(&p);
	l->interleave = 2;
	l->micro_batch = 1;
	l->micro_batches = 8;
	for (int k = 0; k < 4; k++)
		desk_stage(l, k % 2 ? 6 : 2, 2, p.pipeline[0].stage[k].first,
			   p.pipeline[0].stage[k].last);
	ck_assert_msg(!check_plan(&j, &p, note, said), "%s", said);
	ck_assert(replan_lose(&j, lost));
	ck_assert(replan_run(&s, &p, &f, &r));
	ck_assert_msg(!check_plan(&j, &f.plan, note, said), "%s", said);
	ck_assert_double_eq_tol(r.moved, replan_moves(&j, &p, &f.plan), 1);
	search_free(&f);
	plan_close(&p);
	job_close(&j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner: interleave");
	TCase *t = tcase_create("interleave");

	tcase_add_test(t, times_are_those_of_another_simulation);
	tcase_add_test(t, the_bubble_of_equal_stages_is_divided_by_the_chunks);
	tcase_add_test(t, messages_from_round_to_round_take_time);
	tcase_add_test(t, a_team_keeps_all_its_chunks);
	tcase_add_test(t, gradients_of_chunks_meet_one_after_the_other);
	tcase_add_test(t, check_names_what_cannot_be_interleaved);
	tcase_add_test(t, a_plan_is_read_as_it_was_written);
	tcase_add_test(t, a_search_interleaves_where_that_is_faster);
	tcase_add_test(t, threads_do_not_change_an_interleaved_plan);
	tcase_add_test(t, chunks_make_no_search_worse);
	tcase_add_test(t, what_a_rank_had_in_another_chunk_does_not_move);
	tcase_add_test(t, an_interleaved_plan_is_planned_anew);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return runner_main(s);
}
