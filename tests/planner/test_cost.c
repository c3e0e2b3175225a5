/* SPDX-License-Identifier: BSD-3-Clause */
/* Times and memory of plans, beside closed forms and beside measured runs. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/check.h"
#include "tests/planner/desk.h"
#include "tests/support/runner.h"

/* ---- bubbles ---- */

static double ideal(int n, int m, enum plan_schedule schedule,
		    enum plan_overlap overlap, double f, double b)
{
	struct schedule_stage *stage = calloc((size_t)n, sizeof(*stage));
	struct schedule_pipeline l = {stage, n, m, 0, 0};
	double end;

	for (int s = 0; s < n; s++)
		stage[s] = (struct schedule_stage){.forward = f, .backward = b};
	end = schedule_run(&l, 1, 1, schedule, overlap, NULL, NULL);
	free(stage);
	return end;
}

START_TEST(the_bubble_of_equal_stages_is_exact)
{
	for (int n = 1; n <= 16; n++) {
		for (int m = 1; m <= 40; m += 3) {
			for (int k = 0; k < 8; k++) {
				double end = ideal(
					n, m, (enum plan_schedule)(k & 1),
					(enum plan_overlap)(k / 2), 0.3, 0.7);
				double bubble = 1 - m / end;

				ck_assert_double_eq_tol(
					bubble, (n - 1.0) / (m + n - 1), 1e-9);
			}
		}
	}
}
END_TEST

/* Two stages, blocking: the second one is held by each message, twice a
 * micro-batch. */
START_TEST(blocking_messages_hold_both_stages)
{
	struct schedule_stage stage[2] = {
		{.forward = 1, .backward = 1, .send = 0.5, .back = 0.5},
		{.forward = 2, .backward = 4},
	};
	struct schedule_pipeline l = {stage, 2, 10, 0, 0};
	double end =
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_BLOCKING, NULL, NULL);

	/* First forward and last backward pass of stage 0 are not hidden. */
	ck_assert_double_eq_tol(end, 1 + 10 * (6 + 1) + 1, 1e-9);
	ck_assert_double_eq_tol(stage[1].busy, 60, 1e-9);
	end = schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL);
	ck_assert_double_eq_tol(end, 1 + 0.5 + 10 * 6 + 0.5 + 1, 1e-9);
	/* Eager: no better here, as stage 0 gives an activation only after it
	 * has taken the gradient before, which a slow stage sends late. A slow
	 * first stage finds its gradients there, and pays for what it gives. */
	end = schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_EAGER, NULL, NULL);
	ck_assert_double_eq_tol(end, 1 + 10 * (6 + 1) + 1, 1e-9);
	stage[0].forward = 2;
	stage[0].backward = 4;
	stage[1].forward = stage[1].backward = 1;
	end = schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_BLOCKING, NULL, NULL);
	ck_assert_double_eq_tol(end, 10 * (6 + 1), 1e-9);
	end = schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_EAGER, NULL, NULL);
	/* It waits once: for the first gradient. */
	ck_assert_double_eq_tol(end, 10 * (6 + 0.5) + 0.5, 1e-9);
}
END_TEST

/* Two stages, eager, the first one slow: it is held by what its buffer has no
 * room for, and each message costs both sides. */
START_TEST(a_buffer_frees_who_sends_and_each_message_costs_both)
{
	struct schedule_stage stage[2] = {
		{.forward = 2, .backward = 4, .send = 0.5, .back = 0.5},
		{.forward = 1, .backward = 1},
	};
	struct schedule_pipeline l = {stage, 2, 10, 0, 0};

	stage[0].send_room = stage[0].back_room = 0.5;
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_EAGER, NULL, NULL),
		10 * (6 + 0.25) + 0.5 + 0.25, 1e-9);
	ck_assert_double_eq_tol(stage[0].moving, 10 * 0.25, 1e-9);
	stage[0].send_room = stage[0].back_room = 1;
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_EAGER, NULL, NULL),
		10 * 6 + 1, 1e-9);
	stage[0].side = stage[1].side = 0.125;
	/* Twice a micro-batch; and the first gradient, which is waited for,
	 * comes three of them later, to who has lost one. */
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_EAGER, NULL, NULL),
		10 * (6 + 0.25) + 1 + 2 * 0.125, 1e-9);
	/* Beside passes they cost nobody anything. */
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL),
		10 * 6 + 1, 1e-9);
}
END_TEST

/* Two pipelines whose activations leave by one way: the second one waits. */
START_TEST(messages_queue_for_a_shared_way)
{
	struct schedule_stage a[2] = {
		{.forward = 1,
		 .backward = 1,
		 .send = 3,
		 .send_way = 3,
		 .node = 0},
		{.forward = 1, .backward = 1, .node = 1},
	};
	struct schedule_stage b[2] = {a[0], a[1]};
	struct schedule_pipeline l[2] = {{a, 2, 1, 0, 0}, {b, 2, 1, 0, 0}};

	b[1].node = 2;
	ck_assert_double_eq_tol(
		schedule_run(l, 2, 3, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL),
		1 + 3 + 3 + 2 + 1, 1e-9);
	ck_assert_double_eq_tol(a[0].end, 1 + 3 + 2 + 1, 1e-9);
}
END_TEST

/* From two nodes of one island to two of another: its way lets one pass at a
 * time, or two if it is twice as fast as theirs. */
START_TEST(messages_queue_for_the_way_of_an_island)
{
	for (int rate = 1; rate <= 2; rate++) {
		struct schedule_stage a[2] = {
			{.forward = 1,
			 .backward = 1,
			 .send = 4,
			 .send_way = 4,
			 .send_out = 4.0 / rate,
			 .node = 0},
			{.forward = 1, .backward = 1, .node = 2, .island = 1},
		};
		struct schedule_stage b[2] = {a[0], a[1]};
		struct schedule_pipeline l[2] = {{a, 2, 1, 0, 0},
						 {b, 2, 1, 0, 0}};

		b[0].node = 1;
		b[1].node = 3;
		ck_assert_double_eq_tol(schedule_run(l, 2, 4, PLAN_1F1B,
						     PLAN_OVERLAP_P2P, NULL,
						     NULL),
					1 + 4.0 / rate + 4 + 2 + 1, 1e-9);
		ck_assert_double_eq_tol(a[0].end, 1 + 4 + 2 + 1, 1e-9);
	}
}
END_TEST

/* Plain 1F1B waits for each activation and its gradient, once they take longer
 * than what a stage has to do meanwhile; with one micro-batch more it does not,
 * and messages cost what they cost the first and the last one. */
START_TEST(a_micro_batch_ahead_hides_messages)
{
	struct schedule_stage stage[2] = {
		{.forward = 1, .backward = 2, .send = 1, .back = 1},
		{.forward = 1, .backward = 2},
	};
	struct schedule_pipeline l = {stage, 2, 10, 0, 0};

	/* Each pair of micro-batches after the first waits for what goes there
	 * and back. */
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL),
		1 + 1 + 10 * 3 + 4 * 2 + 1 + 2, 1e-9);
	l.ahead = 1;
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL),
		1 + 1 + 10 * 3 + 1 + 2, 1e-9);
	/* As deep as there are micro-batches; and where it does not count. */
	l.ahead = 100;
	ck_assert_double_eq_tol(
		schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL, NULL),
		1 + 1 + 10 * 3 + 1 + 2, 1e-9);
	for (int k = 1; k < 16; k++) {
		double gpipe, most;

		l.micro_batches = k;
		most = schedule_run(&l, 1, 1, PLAN_1F1B, PLAN_OVERLAP_P2P, NULL,
				    NULL);
		gpipe = schedule_run(&l, 1, 1, PLAN_GPIPE, PLAN_OVERLAP_P2P,
				     NULL, NULL);
		ck_assert_double_le(most, gpipe + 1e-9);
	}
}
END_TEST

/* ---- memory ---- */

static const char cluster[] =
	"{\"nodes\": [{\"count\": 4, \"ranks\": 4, \"gbit_per_s\": 100,"
	" \"inside_gbit_per_s\": 2400, \"device\": \"x\"}],"
	" \"devices\": {\"x\": {\"tflops\": 100, \"memory_gib\": 40,"
	" \"reserved_gib\": 2}}}";
/* No biases, no positions: all of a block but its two norms is split. */
static const char model[] =
	"{\"num_hidden_layers\": 6, \"hidden_size\": 512,"
	" \"num_attention_heads\": 8, \"intermediate_size\": 2048,"
	" \"vocab_size\": 1000, \"gated\": false}";

START_TEST(memory_is_what_the_closed_form_says)
{
	const double h = 512, v = 1000, s = 128, b = 3;
	struct job j;

	desk_job(&j, cluster, model, (int)s, 48);
	for (int k = 0; k < 4 * 3 * 4 * 2 * 2 * 2; k++) {
		int zero = k % 4, tp = 1 << (k / 4 % 3), at = k / 12 % 4;
		enum plan_schedule schedule = (enum plan_schedule)(k / 48 % 2);
		bool recompute = k / 96 % 2;
		int ahead = k / 192, deep = 1 + (3 - at) * (1 + ahead);
		const int first[] = {0, 2, 4, 6}, last[] = {1, 3, 5, 7};
		int blocks = at == 0 || at == 3 ? 1 : 2, replicas = 4, m = 3;
		int flying = schedule == PLAN_GPIPE || deep > m ? m : deep;
		double params = blocks * (12 * h * h / tp + 2 * h) +
				(at == 0) * (v * h / tp) +
				(at == 3) * (v * h / tp + h);
		double block = s * b * (10 * h + 24 * h / tp);
		double head = s * b * (8 * v / tp + 4 * h);
		double edge = s * b * h * 2;
		double active = blocks * block + (at == 3) * head;
		double kept = (blocks + (at == 3)) * edge;
		/* Gradients of a block's, and of logits in 32 bits. */
		double logits = at == 3 ? s * b * 4 * v / tp : 0;
		double most = fmax(2 * block, at == 3 ? head + logits : 0);
		struct plan p = {.schedule = schedule,
				 .overlap = PLAN_OVERLAP_P2P,
				 .ahead = ahead,
				 .zero = zero,
				 .pipelines = replicas};
		struct memory x;

		memory_of(&j, table_of(&j, 0, tp, (int)b, 1), first[at],
			  last[at], recompute, at, 4, m, &p, &x);
		ck_assert_int_eq(x.in_flight, flying);
		ck_assert_double_eq_tol(x.weights,
					2 * params / (zero == 3 ? 4 : 1), 1e-3);
		ck_assert_double_eq_tol(x.gradients,
					2 * params / (zero >= 2 ? 4 : 1), 1e-3);
		ck_assert_double_eq_tol(
			x.optimizer, 12 * params / (zero >= 1 ? 4 : 1), 1e-3);
		ck_assert_double_eq_tol(x.activations,
					flying * (recompute ? kept : active),
					1e-3);
		ck_assert_double_eq_tol(
			x.work, recompute ? most : fmax(block, logits), 1e-3);
		ck_assert_double_eq_tol(x.reserved, 2 * 0x1p30, 1);
		ck_assert_double_eq_tol(x.total,
					x.weights + x.gradients + x.optimizer +
						x.activations + x.work +
						x.reserved,
					1e-3);
		/* A bucket is filled when activations are gone, or beside them;
		 * there is no more to fill it with than all gradients. */
		p.bucket = 1e6;
		most = x.total;
		memory_of(&j, table_of(&j, 0, tp, (int)b, 1), first[at],
			  last[at], recompute, at, 4, m, &p, &x);
		ck_assert_double_eq_tol(x.bucket, fmin(1e6, 2 * params), 1e-3);
		ck_assert_double_eq_tol(x.total, most, 1e-3);
		p.overlap = PLAN_OVERLAP_FULL;
		memory_of(&j, table_of(&j, 0, tp, (int)b, 1), first[at],
			  last[at], recompute, at, 4, m, &p, &x);
		ck_assert_double_eq_tol(x.total, most + x.bucket, 1e-3);
	}
	job_close(&j);
}
END_TEST

/* ---- what check finds ---- */

static void note(const char *text, void *ctx)
{
	snprintf(ctx, 512, "%s", text);
}

static void refuse(struct job *j, struct plan *p, const char *wanted)
{
	char said[512] = "";

	ck_assert_int_gt(check_plan(j, p, note, said), 0);
	ck_assert_msg(strstr(said, wanted), "%s\nwanted %s", said, wanted);
}

START_TEST(check_names_the_place_and_the_value)
{
	struct plan p = {.seq = 128, .global_batch = 8};
	struct plan_pipeline *l = plan_add_pipeline(&p);
	char said[512] = "";
	struct job j;

	desk_job(&j, cluster, model, 128, 8);
	desk_stage(l, 0, 2, 0, 3);
	desk_stage(l, 4, 4, 4, 7);
	l->micro_batch = 2;
	l->micro_batches = 4;
	ck_assert_int_eq(check_plan(&j, &p, note, said), 0);
	l->stage[1].first = 5;
	refuse(&j, &p, "pipelines[0].stages[1].layers: [5, 7]: wanted 4");
	l->stage[1].first = 4;
	l->stage[1].last = 6;
	refuse(&j, &p, "layers sum up to 7: wanted 8");
	l->stage[1].last = 7;
	l->stage[1].rank[2] = 1;
	refuse(&j, &p, "stages[1].ranks[2]: 1: wanted a rank that is not used");
	l->stage[1].rank[2] = 16;
	refuse(&j, &p, "stages[1].ranks[2]: 16: wanted below 16");
	l->stage[1].rank[2] = 6;
	l->micro_batches = 3;
	refuse(&j, &p, "sum up to 6: wanted 8");
	l->micro_batches = 4;
	p.ahead = 1;
	refuse(&j, &p, "ahead: 1: wanted 0 with the overlap none");
	p.overlap = PLAN_OVERLAP_FULL;
	ck_assert_int_eq(check_plan(&j, &p, note, said), 0);
	p.schedule = PLAN_GPIPE;
	refuse(&j, &p, "ahead: 1: wanted 0 with the schedule gpipe");
	p.ahead = 0;
	p.schedule = PLAN_1F1B;
	l->stage[1].tp = 3;
	refuse(&j, &p, "stages[1].tp: 3: wanted a divisor of the 8 heads");
	l->stage[1].tp = 4;
	j.fleet.type[0].memory = 2.15e9;
	refuse(&j, &p, "GiB on each device");
	plan_close(&p);
	job_close(&j);
}
END_TEST

/* ---- embedding and head that share a matrix ---- */

static struct cost cost_stages(struct job *j, int pipelines, int stages)
{
	struct plan p = {.seq = 128, .global_batch = 8};
	int units = model_units(&j->model);
	struct cost c;

	for (int i = 0; i < pipelines; i++) {
		struct plan_pipeline *l = plan_add_pipeline(&p);

		for (int s = 0; s < stages; s++)
			desk_stage(l, (uint32_t)(i * stages + s) * 2, 2,
				   units * s / stages,
				   units * (s + 1) / stages - 1);
		l->micro_batch = 1;
		l->micro_batches = 8 / pipelines;
	}
	ck_assert(cost_of(j, &p, NULL, NULL, &c));
	plan_close(&p);
	return c;
}

/* Who holds both holds it once. Of others first and last stage hold a copy
 * each, with all of its state, and sum its gradients beside all else. */
START_TEST(a_shared_matrix_is_held_once_and_summed)
{
	static const char text[] =
		"{\"num_hidden_layers\": 6, \"hidden_size\": 512, "
		"\"num_attention_heads\": 8, \"vocab_size\": 32000, "
		"\"tie_word_embeddings\": %s}";
	const double matrix = 512.0 * 32000;
	char model_text[2][256];
	struct job j[2];

	for (int tied = 0; tied < 2; tied++) {
		snprintf(model_text[tied], sizeof(model_text[tied]), text,
			 tied ? "true" : "false");
		desk_job(&j[tied], cluster, model_text[tied], 128, 8);
	}
	for (int pipelines = 1; pipelines <= 2; pipelines++) {
		for (int stages = 1; stages <= 3; stages++) {
			struct cost a = cost_stages(&j[0], pipelines, stages);
			struct cost b = cost_stages(&j[1], pipelines, stages);
			struct cost_stage *x = a.pipeline[0].stage;
			struct cost_stage *y = b.pipeline[0].stage;
			int last = stages - 1;
			double less = stages == 1 ? matrix : 0;

			/* 2 + 2 + 12 bytes, split by two. */
			ck_assert_double_eq_tol(
				x->memory.total - y->memory.total, less * 8, 1);
			ck_assert_double_eq(x[last].memory.total -
						    y[last].memory.total,
					    x->memory.total - y->memory.total);
			if (stages == 1) {
				ck_assert_double_eq_tol(
					x->sync_bytes - y->sync_bytes,
					pipelines > 1 ? 2 * matrix : 0, 1);
			} else {
				ck_assert_double_eq_tol(y->sync_bytes -
								x->sync_bytes,
							2 * matrix, 1);
				ck_assert_double_gt(y->sync, x->sync);
				ck_assert_double_gt(y[last].sync, x[last].sync);
				ck_assert_double_gt(b.step, a.step);
			}
			if (stages == 3)
				ck_assert_double_eq(y[1].sync, x[1].sync);
			cost_free(&a);
			cost_free(&b);
		}
	}
	job_close(&j[0]);
	job_close(&j[1]);
}
END_TEST

/* Megatron keeps and sums gradients in 32 bits beside weights of 16: 18 bytes a
 * parameter with Adam, of which ZeRO gathers the weights alone. */
START_TEST(gradients_may_be_wider_than_weights)
{
	static const char text[] =
		"{\"num_hidden_layers\": 6, \"hidden_size\": 512, "
		"\"num_attention_heads\": 8, \"vocab_size\": 1000%s}";
	static const char *const wide[2] = {"", ", \"gradient_bytes\": 4"};
	const uint32_t rank[2] = {0, 4};
	struct cost_stage x[2][2];
	double params = 0, sum;
	struct job j[2];

	for (int w = 0; w < 2; w++) {
		char model_text[256];

		snprintf(model_text, sizeof(model_text), text, wide[w]);
		desk_job(&j[w], cluster, model_text, 128, 8);
		for (int zero = 0; zero < 2; zero++) {
			struct plan p = {
				.seq = 128, .global_batch = 8, .zero = zero};
			struct cost c;

			for (int i = 0; i < 2; i++) {
				struct plan_pipeline *l = plan_add_pipeline(&p);

				desk_stage(l, rank[i], 1, 0, 7);
				l->micro_batch = 1;
				l->micro_batches = 4;
			}
			ck_assert(cost_of(&j[w], &p, NULL, NULL, &c));
			x[w][zero] = c.pipeline[0].stage[0];
			cost_free(&c);
			plan_close(&p);
		}
	}
	for (int u = 0; u < 8; u++)
		params += model_params(&j[0].model, u);
	ck_assert_double_eq_tol(x[1][0].memory.total - x[0][0].memory.total,
				2 * params, 1);
	ck_assert_double_eq_tol(x[1][0].sync_bytes, 4 * params, 1);
	ck_assert_double_eq_tol(x[0][0].sync_bytes, 2 * params, 1);
	sum = wire_collective(&j[1].wire, WIRE_REDUCE_SCATTER, rank, NULL, NULL,
			      2, 4 * params) +
	      wire_collective(&j[1].wire, WIRE_ALLGATHER, rank, NULL, NULL, 2,
			      2 * params);
	ck_assert_double_eq_tol(x[1][1].sync, sum, 1e-12);
	job_close(&j[0]);
	job_close(&j[1]);
}
END_TEST

/* Sums of a bucket each, and of what is left; with the overlap full all but the
 * last one begin in the backward pass. */
START_TEST(gradients_are_summed_by_buckets)
{
	const uint32_t rank[2] = {0, 4};
	const int width[2] = {2, 2};
	const double bucket = 5e6;
	double bytes = 0, sum, part;
	struct job j;

	desk_job(&j, cluster, model, 128, 8);
	for (int u = 0; u < 8; u++)
		bytes += 2 * model_params(&j.model, u);
	/* Each of the two devices of a team sums its half. */
	ck_assert_double_gt(bytes, 6 * bucket);
	ck_assert_double_lt(bytes, 8 * bucket);
	part = bytes - 6 * bucket;
	sum = 3 * wire_collective(&j.wire, WIRE_ALLREDUCE, rank, width, NULL, 2,
				  2 * bucket) +
	      wire_collective(&j.wire, WIRE_ALLREDUCE, rank, width, NULL, 2,
			      part);
	for (int full = 0; full < 2; full++) {
		struct plan p = {.seq = 128,
				 .global_batch = 8,
				 .overlap = full ? PLAN_OVERLAP_FULL
						 : PLAN_OVERLAP_P2P,
				 .bucket = bucket};
		const struct cost_stage *x;
		struct cost c;
		double left;

		for (int i = 0; i < 2; i++) {
			struct plan_pipeline *l = plan_add_pipeline(&p);

			desk_stage(l, rank[i], 2, 0, 7);
			l->micro_batch = 1;
			l->micro_batches = 4;
		}
		ck_assert(cost_of(&j, &p, NULL, NULL, &c));
		x = &c.pipeline[0].stage[0];
		ck_assert_double_eq_tol(x->sync_bytes, bytes, 1e-3);
		ck_assert_double_eq_tol(x->sync, sum, 1e-12);
		left = 2 * bucket / bytes;
		ck_assert_double_eq_tol(
			c.sync,
			full ? fmax(sum - x->backward * (1 - left), sum * left)
			     : sum,
			1e-12);
		cost_free(&c);
		plan_close(&p);
	}
	job_close(&j);
}
END_TEST

/* A profile may say that a layer has no parameters: its update is what was
 * measured, however many share it. */
START_TEST(nothing_is_spread_where_there_is_nothing)
{
	static const char profile[] =
		"{\"sequence\": 128, \"devices\": {\"x\": {\"1\": {\"1\": "
		"{\"0-7\": [0.001, 0.002, 0.5]}}}}, \"layers\": {\"1\": "
		"{\"0-7\": {\"params_floats\": 0, \"act_mem_bytes\": 1000, "
		"\"act_input_bytes\": 100}}}}";
	char file[3][DESK_PATH];
	struct plan p = {.seq = 128, .global_batch = 8, .zero = 1};
	struct cost c;
	struct job j;

	desk_write(file[0], "cluster.json", cluster);
	desk_write(file[1], "model.json", model);
	desk_write(file[2], "profile.json", profile);
	ck_assert(job_open(&j, file[0], file[1], file[2], 128, 8));
	for (uint32_t i = 0; i < 2; i++) {
		struct plan_pipeline *l = plan_add_pipeline(&p);

		desk_stage(l, i, 1, 0, 7);
		l->micro_batch = 1;
		l->micro_batches = 4;
	}
	ck_assert(cost_of(&j, &p, NULL, NULL, &c));
	ck_assert_double_eq_tol(c.update, 8 * 0.5, 1e-9);
	cost_free(&c);
	plan_close(&p);
	job_close(&j);
}
END_TEST

/* ---- experts ---- */

/* Two nodes of four, all pipelines of one stage, or of two. */
static const char expert_cluster[] =
	"{\"nodes\": [{\"count\": 2, \"ranks\": 4, \"gbit_per_s\": 100,"
	" \"inside_gbit_per_s\": 1000, \"latency_us\": 5, \"device\": \"a\"}],"
	" \"devices\": {\"a\": {\"tflops\": 300, \"memory_gib\": 80}}}";
static const char expert_model[] =
	"{\"num_hidden_layers\": 4, \"hidden_size\": 512,"
	" \"num_attention_heads\": 8, \"intermediate_size\": 2048,"
	" \"vocab_size\": 1000, \"num_experts\": 8,"
	" \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 1024,"
	" \"shared_expert_intermediate_size\": 256,"
	" \"first_k_dense_replace\": 1}";

enum { SEQ = 256, EXPERT_PARAMS = 3 * 512 * 1024 };

static void plan_mixture(struct plan *p, int pipelines, int tp, int experts,
			 int zero)
{
	*p = (struct plan){.seq = SEQ,
			   .global_batch = 8,
			   .zero = zero,
			   .experts = experts};
	for (int i = 0; i < pipelines; i++) {
		struct plan_pipeline *l = plan_add_pipeline(p);

		desk_stage(l, (uint32_t)(i * tp), tp, 0, 5);
		l->micro_batch = 1;
		l->micro_batches = 8 / pipelines;
	}
}

static struct cost_stage cost_mixture(struct job *j, int pipelines, int tp,
				      int experts, int zero)
{
	struct cost_stage stage;
	struct plan p;
	struct cost c;

	plan_mixture(&p, pipelines, tp, experts, zero);
	ck_assert(cost_of(j, &p, NULL, NULL, &c));
	stage = c.pipeline[pipelines - 1].stage[0];
	cost_free(&c);
	plan_close(&p);
	return stage;
}

/* Three blocks have eight experts each. Each device has its part of them, and
 * of their state what those that have the same ones leave it. */
START_TEST(experts_are_held_once_in_a_group)
{
	const double experts = 3.0 * 8 * EXPERT_PARAMS;
	const double state[3] = {2, 2, 12};
	struct job j;

	desk_job(&j, expert_cluster, expert_model, SEQ, 8);
	for (int n = 1; n <= 8; n *= 2) {
		for (int e = 1; e <= n; e *= 2) {
			for (int zero = 0; zero <= 3; zero++) {
				struct cost_stage x =
					cost_mixture(&j, n, 8 / n, e, zero);
				struct cost_stage y =
					cost_mixture(&j, n, 8 / n, 1, zero);
				double less = 0;

				/* Of replicas there are n / e. */
				for (int k = 0; k < 3; k++)
					less += state[k] *
						(zero >= 3 - k
							 ? 0
							 : experts *
								   (1 -
								    1.0 / e)) /
						(8.0 / n);
				ck_assert_double_eq_tol(y.memory.total -
								x.memory.total,
							less, 1);
			}
		}
	}
	job_close(&j);
}
END_TEST

/* There and back, forward and backward, by the library's all-to-all; the
 * busiest device has more, but no more than its capacity. */
START_TEST(tokens_travel_to_experts_and_back)
{
	static const struct {
		double imbalance, capacity, load;
	} cases[] = {{1, 0, 1}, {1.5, 0, 1.5}, {3, 1.25, 1.25}, {1, 2, 1}};
	const double bytes = SEQ * 512 * 2 * 2.0;
	uint32_t rank[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct job j;

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		double load = cases[k].load, more = load - 1;

		desk_job(&j, expert_cluster, expert_model, SEQ, 8);
		j.imbalance = cases[k].imbalance;
		j.capacity = cases[k].capacity;
		for (int e = 2; e <= 8; e *= 2) {
			struct cost_stage x = cost_mixture(&j, 8, 1, e, 0);
			struct cost_stage y = cost_mixture(&j, 8, 1, 1, 0);
			double all =
				wire_collective(&j.wire, WIRE_ALLTOALL, rank,
						NULL, NULL, e, bytes * load);
			double work = 3 * 2.0 * SEQ * 2 * EXPERT_PARAMS * more /
				      (300e12 * 0.45);

			ck_assert_double_gt(all, 0);
			ck_assert_double_eq_tol(x.route, 6 * all, 1e-12);
			ck_assert_double_eq_tol(x.forward - y.forward,
						6 * all + work, 1e-12);
			ck_assert_double_eq_tol(x.backward - y.backward,
						6 * all + 2 * work, 1e-12);
		}
		/* Teams that split the matrices travel with their parts. */
		ck_assert_double_gt(cost_mixture(&j, 4, 2, 4, 0).route, 0);
		job_close(&j);
	}
}
END_TEST

/* All pipelines sum what all have; experts only those that have the same. */
START_TEST(gradients_of_experts_meet_where_they_are)
{
	const uint32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7}, far[2] = {0, 4};
	const int four[2] = {4, 4};
	double dense = 0, sum;
	struct cost_stage x;
	struct job j;

	desk_job(&j, expert_cluster, expert_model, SEQ, 8);
	for (int u = 0; u < 6; u++)
		dense += 2 * (model_params(&j.model, u) -
			      model_expert_params(&j.model, u));
	sum = wire_collective(&j.wire, WIRE_ALLREDUCE, all, NULL, NULL, 8,
			      dense);
	x = cost_mixture(&j, 8, 1, 8, 0);
	ck_assert_double_eq_tol(x.sync, sum, 1e-12);
	ck_assert_double_eq_tol(x.sync_bytes, dense, 1e-3);
	/* Four sums at once between the two nodes. */
	x = cost_mixture(&j, 8, 1, 4, 0);
	ck_assert_double_eq_tol(
		x.sync,
		sum + wire_collective(&j.wire, WIRE_ALLREDUCE, far, NULL, four,
				      2, 2 * 3.0 * 2 * EXPERT_PARAMS),
		1e-12);
	ck_assert_double_eq_tol(x.sync_bytes,
				dense + 2 * 3.0 * 2 * EXPERT_PARAMS, 1e-3);
	job_close(&j);
}
END_TEST

/* Pipelines 0 and 2 sum experts 0 to 3, pipelines 1 and 3 the others. Both sums
 * leave both nodes, also where the groups have them the other way round. A sum
 * that stays on its node is in nobody's way. */
START_TEST(sums_of_experts_of_all_groups_share_the_way_of_a_node)
{
	static const struct {
		uint32_t rank[4];
		int sums;
	} cases[] = {{{0, 1, 4, 5}, 2},
		     {{0, 4, 5, 1}, 2},
		     {{0, 4, 1, 5}, 1},
		     {{0, 1, 2, 5}, 1}};
	const double experts = 2 * 3.0 * 4 * EXPERT_PARAMS;
	double dense = 0;
	struct job j;

	desk_job(&j, expert_cluster, expert_model, SEQ, 8);
	for (int u = 0; u < 6; u++)
		dense += 2 * (model_params(&j.model, u) -
			      model_expert_params(&j.model, u));
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		const uint32_t *r = cases[k].rank;
		const int sums[2] = {cases[k].sums, cases[k].sums};
		double all = wire_collective(&j.wire, WIRE_ALLREDUCE, r, NULL,
					     NULL, 4, dense);
		double of[2];
		struct plan p;
		struct cost c;

		plan_mixture(&p, 4, 1, 2, 0);
		for (int i = 0; i < 4; i++)
			p.pipeline[i].stage[0].rank[0] = r[i];
		for (int e = 0; e < 2; e++)
			of[e] = wire_collective(&j.wire, WIRE_ALLREDUCE,
						(uint32_t[]){r[e], r[e + 2]},
						NULL, sums, 2, experts);
		ck_assert(cost_of(&j, &p, NULL, NULL, &c));
		ck_assert_double_eq_tol(c.pipeline[0].stage[0].sync,
					all + fmax(of[0], of[1]), 1e-12);
		cost_free(&c);
		plan_close(&p);
	}
	job_close(&j);
}
END_TEST

/* Whoever computes again needs the tokens again, of all. */
START_TEST(all_of_a_group_send_again_if_one_does)
{
	struct plan p;
	struct cost c;
	struct job j;

	desk_job(&j, expert_cluster, expert_model, SEQ, 8);
	plan_mixture(&p, 8, 1, 4, 0);
	p.pipeline[1].stage[0].recompute = true;
	ck_assert(cost_of(&j, &p, NULL, NULL, &c));
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(c.pipeline[i].stage[0].routes, i < 4 ? 3 : 2);
	cost_free(&c);
	plan_close(&p);
	job_close(&j);
}
END_TEST

START_TEST(check_names_pipelines_that_share_no_experts)
{
	struct plan p;
	struct job j;

	desk_job(&j, expert_cluster, expert_model, SEQ, 8);
	plan_mixture(&p, 8, 1, 3, 0);
	refuse(&j, &p,
	       "expert_parallel: 3: wanted a divisor of the 8 experts "
	       "and of the 8 pipelines");
	p.experts = 2;
	p.pipeline[1].micro_batches = 2;
	p.pipeline[0].micro_batches = 0;
	refuse(&j, &p,
	       "pipelines[1]: 2 micro-batches of 1: wanted 0 of 1, "
	       "those of pipelines[0], with which it shares experts");
	plan_close(&p);
	job_close(&j);
	desk_job(&j, cluster, model, SEQ, 8);
	plan_mixture(&p, 2, 1, 2, 0);
	refuse(&j, &p, "expert_parallel: 2: wanted 1: ");
	plan_close(&p);
	job_close(&j);
}
END_TEST

/* ---- links that are shared ---- */

static double all_reduce(struct job *j, const uint32_t *rank, const int *width,
			 const int *others, int n)
{
	return wire_collective(&j->wire, WIRE_ALLREDUCE, rank, width, others, n,
			       1e9);
}

/* What else a node does at the same time halves its way once, not once for each
 * of its ranks; and a rank that stands for two has the links of both, whoever
 * else is on its node. */
START_TEST(a_node_is_shared_once_and_each_team_is_wide)
{
	static const char text[] =
		"{\"nodes\": [{\"count\": 2, \"ranks\": 8, \"latency_us\": 5,"
		" \"gbit_per_s\": %d, \"inside_gbit_per_s\": %d,"
		" \"device\": \"a\"}],"
		" \"devices\": {\"a\": {\"tflops\": 300, \"memory_gib\": 80}}}";
	const uint32_t rank[8] = {0, 2, 4, 6, 8, 10, 12, 14};
	const int two[8] = {2, 2, 2, 2, 2, 2, 2, 2};
	char cluster_text[3][512];
	struct job plain, half, wide;

	snprintf(cluster_text[0], sizeof(cluster_text[0]), text, 100, 1000);
	snprintf(cluster_text[1], sizeof(cluster_text[1]), text, 50, 1000);
	snprintf(cluster_text[2], sizeof(cluster_text[2]), text, 100, 2000);
	desk_job(&plain, cluster_text[0], model, 128, 8);
	desk_job(&half, cluster_text[1], model, 128, 8);
	desk_job(&wide, cluster_text[2], model, 128, 8);
	ck_assert_double_eq(all_reduce(&plain, rank, NULL, two, 8),
			    all_reduce(&half, rank, NULL, NULL, 8));
	ck_assert_double_eq(all_reduce(&plain, rank, two, NULL, 8),
			    all_reduce(&wide, rank, NULL, NULL, 8));
	/* All on one node. */
	ck_assert_double_eq(all_reduce(&plain, rank, two, NULL, 4),
			    all_reduce(&wide, rank, NULL, NULL, 4));
	job_close(&plain);
	job_close(&half);
	job_close(&wide);
}
END_TEST

/* ---- measured runs (tests/planner/sailor) ---- */

static double measured(const char *file, const char *key)
{
	json_t *root = json_load_file(file, 0, NULL);
	double x = json_number_value(
		json_object_get(json_object_get(root, "measured"), key));

	json_decref(root);
	return x;
}

/*
 * All that is assumed where nothing was measured is chosen by the documentation
 * of what runs there and by rows of `chosen`: one Ethernet of 1 Gbit/s (n4_d1),
 * PROFILE_SIDE_S (n16_d8), reserved_gib. The others had no part in any choice.
 */
static const struct row {
	const char *where, *name;
	bool chosen;
} rows[] = {{"mit", "n2_d1", true},         {"mit", "n4_d1", true},
	    {"mit", "n4_d2", true},         {"mit", "n6_d2", true},
	    {"clariden", "n2_d2", true},    {"clariden", "n16_d8", true},
	    {"clariden", "n16_d16", true},  {"mit", "n2_d2", false},
	    {"mit", "n4_d4", false},        {"mit", "n6_d3", false},
	    {"mit", "n6_d6", false},        {"clariden", "n2_d1", false},
	    {"clariden", "n8_d2", false},   {"clariden", "n32_d16", false},
	    {"clariden", "n32_d32", false}, {"clariden", "n4_d4", false},
	    {"clariden", "n8_d4", false},   {"clariden", "n16_d4", false},
	    {"clariden", "n32_d8", false}};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Relative errors. */
struct found {
	double time, memory, gradients, band;
};

static struct found run(const char *where, const char *name)
{
	char cluster_file[DESK_PATH], model_file[DESK_PATH], at[DESK_PATH];
	char profile_file[DESK_PATH], text[64];
	double most = 0, sync = 0;
	struct found out;
	struct plan p;
	struct cost c;
	struct job j;

	snprintf(text, sizeof(text), "sailor/%s_cluster.json", where);
	desk_source(cluster_file, text);
	snprintf(text, sizeof(text), "sailor/%s_profile.json", where);
	desk_source(profile_file, text);
	snprintf(text, sizeof(text), "sailor/%s_%s.json", where, name);
	desk_source(at, text);
	desk_source(model_file, "sailor/opt_350m.json");
	ck_assert(plan_open(&p, at));
	ck_assert(job_open(&j, cluster_file, model_file, profile_file, p.seq,
			   p.global_batch));
	ck_assert(cost_of(&j, &p, NULL, NULL, &c));
	for (int i = 0; i < c.pipelines; i++) {
		for (int s = 0; s < p.pipeline[i].stages; s++) {
			const struct cost_stage *x = &c.pipeline[i].stage[s];

			most = fmax(most, x->memory.total);
			sync = fmax(sync, x->sync);
		}
	}
	out.time = c.step / measured(at, "seconds") - 1;
	out.memory = most / measured(at, "max_memory_bytes") - 1;
	out.gradients = sync / measured(at, "gradients_s") - 1;
	out.band = c.error;
	cost_free(&c);
	job_close(&j);
	plan_close(&p);
	return out;
}

/* One stage, and fewer than eight sequences at once on Grace Hopper: slower
 * than the sum of their passes. */
static bool is_small(const struct row *r)
{
	return !strcmp(r->where, "clariden") &&
	       (!strcmp(r->name, "n2_d2") || !strcmp(r->name, "n4_d4"));
}

START_TEST(measured_times_are_predicted)
{
	double sum[2] = {0}, most[2] = {0};
	int n[2] = {0}, within = 0;

	for (int i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		struct found f = run(r->where, r->name);

		n[r->chosen]++;
		sum[r->chosen] += fabs(f.time);
		within += fabs(f.time) <= f.band;
		if (!is_small(r))
			most[r->chosen] = fmax(most[r->chosen], fabs(f.time));
	}
	ck_assert_double_le((sum[0] + sum[1]) / ROWS, 0.036);
	ck_assert_double_le(sum[0] / n[0], 0.036);
	ck_assert_double_le(most[0], 0.06);
	ck_assert_double_le(most[1], 0.05);
	/* The band holds nine of ten. */
	ck_assert_int_ge(10 * within, 9 * ROWS);
}
END_TEST

/* The source has one time for one pipeline of three stages and for two of them.
 * Its gradients took what two need, and one has none to sum. */
START_TEST(one_row_is_of_two_pipelines)
{
	struct found f = run("mit", "n6_d2");

	ck_assert_double_le(fabs(f.gradients), 0.01);
	ck_assert_double_le(fabs(f.time), 0.05);
	ck_assert_double_le(run("mit", "n3_d1").time, -0.1);
}
END_TEST

/* Not those of degree 2, of which there is no more than their weights,
 * gradients and optimizer. Two plans of one stage of degree 8 have less than
 * they take. */
START_TEST(measured_memory_is_predicted)
{
	double sum = 0;
	int n = 0, low = 0;

	for (int i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		bool two = !strcmp(r->where, "mit") &&
			   (!strcmp(r->name, "n2_d1") ||
			    !strcmp(r->name, "n2_d2"));
		double error = run(r->where, r->name).memory;

		if (two)
			continue;
		n++;
		sum += fabs(error);
		low += error < -0.03;
	}
	ck_assert_double_le(sum / n, 0.032);
	ck_assert_int_le(low, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner: cost");
	TCase *t = tcase_create("cost");

	tcase_add_test(t, the_bubble_of_equal_stages_is_exact);
	tcase_add_test(t, blocking_messages_hold_both_stages);
	tcase_add_test(t, a_buffer_frees_who_sends_and_each_message_costs_both);
	tcase_add_test(t, messages_queue_for_a_shared_way);
	tcase_add_test(t, messages_queue_for_the_way_of_an_island);
	tcase_add_test(t, a_micro_batch_ahead_hides_messages);
	tcase_add_test(t, memory_is_what_the_closed_form_says);
	tcase_add_test(t, check_names_the_place_and_the_value);
	tcase_add_test(t, a_shared_matrix_is_held_once_and_summed);
	tcase_add_test(t, gradients_may_be_wider_than_weights);
	tcase_add_test(t, gradients_are_summed_by_buckets);
	tcase_add_test(t, nothing_is_spread_where_there_is_nothing);
	tcase_add_test(t, experts_are_held_once_in_a_group);
	tcase_add_test(t, tokens_travel_to_experts_and_back);
	tcase_add_test(t, gradients_of_experts_meet_where_they_are);
	tcase_add_test(t,
		       sums_of_experts_of_all_groups_share_the_way_of_a_node);
	tcase_add_test(t, all_of_a_group_send_again_if_one_does);
	tcase_add_test(t, check_names_pipelines_that_share_no_experts);
	tcase_add_test(t, a_node_is_shared_once_and_each_team_is_wide);
	tcase_add_test(t, measured_times_are_predicted);
	tcase_add_test(t, one_row_is_of_two_pipelines);
	tcase_add_test(t, measured_memory_is_predicted);
	suite_add_tcase(s, t);
	return runner_main(s);
}
