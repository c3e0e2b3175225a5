/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/storm.h"

#include <string.h>

#include "tests/support/trial.h"

#define TOGETHER 3

enum mode { BLOCKING, STREAM, GROUP, GROUP_ON_STREAMS, MODES };

static const dicomm_datatype_t types[] = {DICOMM_FLOAT32, DICOMM_INT64,
					  DICOMM_BFLOAT16, DICOMM_UINT8};
static const size_t counts[] = {1, 17, 1000, 9000, 60000, 200000};

unsigned storm_random(unsigned *state, unsigned below)
{
	uint64_t x = *state += 0x9e3779b9u;

	x = (x ^ x >> 16) * UINT64_C(0x7feb352d) & UINT32_MAX;
	x = (x ^ x >> 15) * UINT64_C(0x846ca68b) & UINT32_MAX;
	return (unsigned)(x ^ x >> 16) % below;
}

/* `own` differs between ranks, `all` does not. */
static struct trial draw(unsigned *all, unsigned *own, int ranks)
{
	struct trial t = {.kind = storm_random(all, TRIAL_KINDS)};

	t.type = types[storm_random(all, sizeof(types) / sizeof(*types))];
	t.op = storm_random(all, 2) ? DICOMM_SUM : DICOMM_MAX;
	t.count = counts[storm_random(all, sizeof(counts) / sizeof(*counts))];
	t.root = (int)storm_random(all, (unsigned)ranks);
	t.seed = storm_random(all, 1000);
	t.in_place = storm_random(own, 2) && trial_can_be_in_place(t.kind);
	t.shared = storm_random(own, 2);
	t.skew = storm_random(own, 2) ? storm_random(own, 64) : 0;
	return t;
}

static void keep(dicomm_result_t *first, dicomm_result_t status)
{
	if (*first == DICOMM_SUCCESS)
		*first = status;
}

static dicomm_result_t call_all(struct storm *s, struct trial *t, int n,
				enum mode mode)
{
	dicomm_result_t first = DICOMM_SUCCESS;
	bool grouped = mode == GROUP || mode == GROUP_ON_STREAMS;

	if (grouped)
		JOB_TRY(dicomm_group_start());
	for (int i = 0; i < n; i++)
		keep(&first,
		     trial_call(&t[i], mode == STREAM ? s->streams[0]
				       : mode == GROUP_ON_STREAMS
					       ? s->streams[i % STORM_STREAMS]
					       : NULL));
	if (grouped)
		keep(&first, dicomm_group_end());
	if (mode == STREAM || mode == GROUP_ON_STREAMS)
		for (int i = 0; i < STORM_STREAMS; i++)
			keep(&first,
			     dicomm_host_stream_synchronize(s->streams[i]));
	return first;
}

dicomm_result_t storm_next(struct storm *s)
{
	unsigned all = s->seed + s->number++ * 7919u;
	unsigned own = all + 104729u * (unsigned)(s->me.rank + 1);
	enum mode mode = storm_random(&all, MODES);
	int n = mode == BLOCKING ? 1 : TOGETHER;
	struct trial t[TOGETHER];
	dicomm_result_t status;
	char text[512];

	for (int i = 0; i < n; i++) {
		t[i] = draw(&all, &own, s->me.ranks);
		if (s->most && t[i].count > s->most)
			t[i].count = s->most;
		trial_fill(&t[i], &s->me);
	}
	status = call_all(s, t, n, mode);
	/* The clean-up below must not replace it. */
	strncpy(text, dicomm_get_last_error(NULL), sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 0; i < n; i++) {
		if (status == DICOMM_SUCCESS)
			trial_check(&t[i]);
		trial_free(&t[i]);
	}
	if (status != DICOMM_SUCCESS)
		JOB_CHECK(!strcmp(text, dicomm_get_last_error(NULL)),
			  "mem_free replaced the last error");
	return status;
}

void storm_begin(struct storm *s, const struct job_rank *me, unsigned seed)
{
	*s = (struct storm){.me = *me, .seed = seed};
	for (int i = 0; i < STORM_STREAMS; i++)
		JOB_TRY(dicomm_host_stream_create(&s->streams[i]));
}

void storm_end(struct storm *s)
{
	for (int i = 0; i < STORM_STREAMS; i++)
		dicomm_host_stream_destroy(s->streams[i]);
}

void storm_warm_up(const struct job_rank *me, struct residue *before)
{
	struct job_rank first = *me;
	struct storm s;

	JOB_TRY(dicomm_comm_init_rank(&first.comm, me->ranks, job_id(),
				      me->rank));
	storm_begin(&s, &first, 0);
	JOB_TRY(dicomm_barrier(first.comm, s.streams[0]));
	for (int i = 0; i < 3; i++)
		JOB_TRY(storm_next(&s));
	storm_end(&s);
	JOB_TRY(dicomm_comm_destroy(first.comm));
	/* Connections linger for a moment. */
	job_sleep_ms(100);
	job_barrier();
	residue_count(before);
	job_barrier();
}
