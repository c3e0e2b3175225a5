/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/control/job_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/json_writer.h"
#include "src/base/log.h"
#include "src/boot/control/config.h"
#include "src/boot/control/job_port.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/net/client.h"
#include "src/boot/net/inquiry.h"

#define SECOND_NS UINT64_C(1000000000)
#define REACH_NS (5 * SECOND_NS)
#define ANSWER_NS (20 * SECOND_NS)

/* What a rank has told so far */
struct text {
	char *bytes;
	size_t len;
};

struct asking {
	struct client *client;
	struct text *texts; /* one for each rank up to the last one */
	size_t ranks;
	void (*take)(const char *json, void *ctx);
	void *ctx;
};

static bool make_room(struct asking *a, uint64_t rank)
{
	struct text *more;

	if (rank < a->ranks)
		return true;
	more = realloc(a->texts, (rank + 1) * sizeof(*more));
	if (!more)
		return false;
	memset(more + a->ranks, 0, (rank + 1 - a->ranks) * sizeof(*more));
	a->texts = more;
	a->ranks = rank + 1;
	return true;
}

static dicomm_result_t add_part(struct asking *a, uint64_t rank,
				const uint8_t *bytes, size_t len)
{
	struct text *t;
	char *more;

	if (!make_room(a, rank))
		return FAIL(DICOMM_ERR_NO_MEMORY, "job: no memory");
	t = &a->texts[rank];
	if (t->len + len > INQUIRY_BYTES)
		return FAIL(DICOMM_ERR_REMOTE,
			    "job at %s: the answer of rank %" PRIu64
			    " is longer than %u bytes",
			    a->client->conn.remote, rank, INQUIRY_BYTES);
	more = realloc(t->bytes, t->len + len + 1);
	if (!more)
		return FAIL(DICOMM_ERR_NO_MEMORY, "job: no memory");
	memcpy(more + t->len, bytes, len);
	t->bytes = more;
	t->len += len;
	more[t->len] = '\0';
	return DICOMM_SUCCESS;
}

static void take_whole(struct asking *a, uint64_t rank)
{
	struct text *t = &a->texts[rank];

	a->take(t->bytes, a->ctx);
	free(t->bytes);
	*t = (struct text){.len = 0};
}

static void take_silent(struct asking *a, uint64_t rank, const char *why,
			const uint8_t *bytes, size_t len)
{
	char text[512], where[RANK_INFO_WHERE];
	struct json_writer j = {.text = text, .room = sizeof(text) - 1};

	snprintf(where, sizeof(where), "%.*s", (int)len, (const char *)bytes);
	json_put(&j, "{\"rank\":%" PRIu64 ",", rank);
	json_put_string(&j, "where", where);
	json_put_char(&j, ',');
	json_put_string(&j, "silent", why);
	json_put_char(&j, '}');
	text[j.n] = '\0';
	a->take(text, a->ctx);
}

static dicomm_result_t fail_frame(const struct asking *a)
{
	return FAIL(DICOMM_ERR_REMOTE, "job at %s: it sent what does not parse",
		    a->client->conn.remote);
}

/* Sets *ended with the last one. */
static dicomm_result_t take_told(struct asking *a, struct frame_reader *in,
				 bool *ended)
{
	uint64_t rank = frame_get_u64(in);
	uint32_t kind = frame_get_u32(in);
	size_t len;
	const uint8_t *bytes = frame_get_rest(in, &len);

	if (!frame_done(in) || rank >= CONTROL_RANKS_MAX)
		return fail_frame(a);
	switch (kind) {
	case TOLD_PART:
		return add_part(a, rank, bytes, len);
	case TOLD_LAST:
		TRY(add_part(a, rank, bytes, len));
		take_whole(a, rank);
		return DICOMM_SUCCESS;
	case TOLD_NOTHING:
		take_silent(a, rank,
			    "it does not tell (DICOMM_JOB_INFO=off, or it has "
			    "no socket for it)",
			    bytes, len);
		return DICOMM_SUCCESS;
	case TOLD_LATE:
		take_silent(a, rank, "no answer in 3 s", bytes, len);
		return DICOMM_SUCCESS;
	case TOLD_UNASKED:
		take_silent(a, rank,
			    "not asked: the connection is too slow, or too "
			    "many ranks do not answer",
			    bytes, len);
		return DICOMM_SUCCESS;
	case TOLD_GONE:
		take_silent(a, rank, "it has left or died", bytes, len);
		return DICOMM_SUCCESS;
	case TOLD_END:
		*ended = true;
		return DICOMM_SUCCESS;
	default:
		return fail_frame(a);
	}
}

static dicomm_result_t take_frame(struct asking *a, enum frame_type type,
				  struct frame_reader *in, bool *ended)
{
	dicomm_result_t status;
	char text[FRAME_TEXT];

	if (type == FRAME_TOLD)
		return take_told(a, in, ended);
	if (type != FRAME_REFUSED)
		return fail_frame(a);
	status = frame_status(frame_get_u32(in));
	frame_get_text(in, text, sizeof(text));
	return FAIL(status, "job at %s: %s", a->client->conn.remote, text);
}

static dicomm_result_t hear(struct asking *a)
{
	uint64_t until_ns = clock_ns() + ANSWER_NS;
	char why[FRAME_TEXT];
	bool ended = false;
	struct frame_reader in;
	enum frame_type type;
	struct client *from;
	dicomm_result_t status;

	while (!ended) {
		status = client_next(a->client, NULL, until_ns, NULL, &from,
				     &type, &in, why);
		if (status != DICOMM_SUCCESS)
			return FAIL(status, "job at %s: %s",
				    a->client->conn.remote, why);
		TRY(take_frame(a, type, &in, &ended));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t reach(const char *host_port, struct client **out)
{
	struct client_patience p = {.asks = true, .until_it_listens = true};
	char why[FRAME_TEXT] = "";
	uint8_t key[AUTH_KEY];
	dicomm_result_t status;

	TRY(job_port_key(host_port, config_string(CONFIG_COMM_KEY), key));
	p.until_ns = clock_ns() + REACH_NS;
	status = client_open(host_port, key, &p, out, why);
	auth_forget(key, sizeof(key));
	if (status == DICOMM_SUCCESS || status == DICOMM_ERR_INVALID_USAGE)
		return status == DICOMM_SUCCESS
			       ? status
			       : FAIL(status, "job at %s: %.900s", host_port,
				      why);
	return FAIL(status,
		    "job at %s: %.700s (is this the port where its ranks met, "
		    "and rank 0 there? It answers if the job has a "
		    "DICOMM_COMM_KEY, and not with DICOMM_JOB_PORT=off)",
		    host_port, why);
}

dicomm_result_t job_ask(const char *host_port,
			void (*take)(const char *json, void *ctx), void *ctx)
{
	struct asking a = {.take = take, .ctx = ctx};
	dicomm_result_t status;

	TRY(sock_check(host_port));
	if (!*config_string(CONFIG_COMM_KEY))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "job at %s: DICOMM_COMM_KEY is not set: a job "
			    "tells only who has its secret",
			    host_port);
	TRY(auth_init());
	/* It frees the connection. */
	TRY(loop_start());
	TRY(reach(host_port, &a.client));
	status = hear(&a);
	client_close(a.client);
	for (size_t i = 0; i < a.ranks; i++)
		free(a.texts[i].bytes);
	free(a.texts);
	return status;
}
