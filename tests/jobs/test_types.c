/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements that have few operators or none: complex, bool, opaque bytes. */
#include <check.h>
#include <string.h>

#include "tests/support/cast.h"
#include "tests/support/runner.h"

#define BAD DICOMM_ERR_INVALID_ARGUMENT

static const size_t counts[] = {1, 17, 500, 40001};

static void run_trial(struct trial t, const struct job_rank *me,
		      struct gadget *g)
{
	if (g)
		cast_trial(t, me, g);
	else
		trial_run(t, me);
}

static void all_operators(struct trial t, const struct job_rank *me,
			  struct gadget *g)
{
	bool reduces = trial_reduces(t.kind);

	for (int o = 0; o < (reduces ? element_nops : 1); o++)
		for (int p = 0; p < trial_placements(t.kind); p++) {
			t.op = element_ops[o];
			t.seed++;
			if (reduces && !element_op_fits(t.op, t.type))
				continue;
			/* It would become a sum. */
			if (t.kind == TRIAL_REDUCE_LOCAL && t.op == DICOMM_AVG)
				continue;
			trial_place(&t, me, (enum trial_placement)p);
			run_trial(t, me, g);
		}
}

static void all_types(struct job_rank *me, struct gadget *g)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE};

	for (int k = 0; k < TRIAL_KINDS; k++)
		for (int i = 0; i < element_nmore_types; i++)
			for (int c = 0; c < 4; c++) {
				if ((k + i + c) % 4 && (g || job_is_short()))
					continue;
				t.kind = (enum trial_kind)k;
				t.type = element_more_types[i];
				t.count = counts[c];
				t.seed += 100;
				all_operators(t, me, g);
			}
}

static void on_hosts(struct job_rank *me)
{
	all_types(me, NULL);
}

static const char *const environments[] = {"DICOMM_TRANSPORTS=shm",
					   "DICOMM_TRANSPORTS=tcp",
					   "DICOMM_DETERMINISTIC=1"};

START_TEST(few_operators_give_what_they_say)
{
	job_run(&(struct job){
		.run = on_hosts, .ranks = 3, .env = {environments[_i]}});
}
END_TEST

START_TEST(devices_give_the_same)
{
	struct cast cast = {.run = all_types};

	memcpy(cast.device, cast_unlike, sizeof(cast.device));
	cast_play(&cast, CAST_DEVICES);
}
END_TEST

/* ---- what a type does not have ---- */

static void refusals(struct job_rank *me)
{
	static const struct {
		dicomm_datatype_t type;
		dicomm_redop_t op;
		const char *text;
	} bad[] = {
		{DICOMM_BOOL, DICOMM_SUM, "op sum: not defined for type bool"},
		{DICOMM_BOOL, DICOMM_AVG, "op avg: not defined for type bool"},
		{DICOMM_COMPLEX64, DICOMM_PROD,
		 "op prod: not defined for type complex64"},
		{DICOMM_COMPLEX128, DICOMM_MAX,
		 "op max: not defined for type complex128"},
		{DICOMM_COMPLEX64, DICOMM_BAND,
		 "op band: not defined for type complex64"},
		{DICOMM_BYTES2, DICOMM_SUM,
		 "op sum: not defined for type bytes2"},
		{DICOMM_BYTES16, DICOMM_BXOR,
		 "op bxor: not defined for type bytes16"},
	};
	static const dicomm_datatype_t unscaled[] = {
		DICOMM_BOOL, DICOMM_COMPLEX64, DICOMM_COMPLEX128,
		DICOMM_BYTES8};
	static uint8_t a[64], b[64];
	double scalar[2] = {2, 0};
	dicomm_redop_t op;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		JOB_REFUSED(dicomm_allreduce(a, b, 2, bad[i].type, bad[i].op,
					     me->comm, NULL),
			    BAD, bad[i].text);
		if (bad[i].op == DICOMM_AVG)
			continue; /* it has no average of any type */
		JOB_REFUSED(dicomm_reduce_local(a, b, 2, bad[i].type, bad[i].op,
						me->comm, NULL),
			    BAD, bad[i].text);
	}
	for (size_t i = 0; i < sizeof(unscaled) / sizeof(*unscaled); i++)
		JOB_REFUSED(dicomm_redop_create_premulsum(
				    &op, scalar, unscaled[i],
				    DICOMM_SCALAR_HOST_IMMEDIATE, me->comm),
			    BAD, "not scaled");
	JOB_REFUSED(dicomm_allgather(a, b, 2, (dicomm_datatype_t)27, me->comm,
				     NULL),
		    BAD, "type 27: no such datatype");
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

START_TEST(other_operators_are_refused_by_name)
{
	job_run(&(struct job){.run = refusals, .ranks = 2});
}
END_TEST

/* As many bytes, but of another type: an error that names both calls. */
static void mismatch(struct job_rank *me)
{
	static uint8_t a[64], b[64];
	dicomm_result_t status;

	status = dicomm_broadcast(a, b, me->rank ? 2 : 4,
				  me->rank ? DICOMM_BYTES16 : DICOMM_BYTES8, 0,
				  me->comm, NULL);
	if (status == DICOMM_SUCCESS)
		status = dicomm_barrier(me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE, "status %d", (int)status);
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm),
			 "broadcast count 4 bytes8") &&
			  strstr(dicomm_get_last_error(me->comm),
				 "broadcast count 2 bytes16"),
		  "%s", dicomm_get_last_error(me->comm));
	JOB_TRY(dicomm_comm_abort(me->comm));
}

START_TEST(ranks_compare_type_and_count_of_opaque_elements)
{
	job_run(&(struct job){.run = mismatch, .ranks = 2});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("types");
	TCase *tcase = tcase_create("types");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, few_operators_give_what_they_say, 0, 3);
	tcase_add_test(tcase, devices_give_the_same);
	tcase_add_test(tcase, other_operators_are_refused_by_name);
	tcase_add_test(tcase, ranks_compare_type_and_count_of_opaque_elements);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
