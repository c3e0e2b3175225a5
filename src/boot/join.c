/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one rank joins: say hello at the meeting, wait there until all have
 * come, go on to rank 0's hub, wait there until all have come, leave the
 * meeting. It stays in touch with the meeting until then, because who dies on
 * the way from one to the other is missed by nobody else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/id.h"
#include "src/boot/join.h"
#include "src/boot/meeting.h"
#include "src/boot/refuge.h"
#include "src/boot/roster.h"

#define MS_NS UINT64_C(1000000)
#define FOREVER_NS (1ull << 62)
/* For the meeting to say what went wrong: the failure itself has to be known
 * within a second. */
#define WHY_NS (800 * MS_NS)
#define FLUSH_NS (100 * MS_NS) /* for what it says to be on its way */
#define REASON_TEXT 256        /* of a rank 0 without a hub, with its NUL */

struct join {
	const struct control_config *config;
	uint64_t until_ns;
	struct hello hello;
	char meeting_address[SOCK_TEXT]; /* "": they do not meet by an id */
	char hub_address[SOCK_TEXT];
	uint8_t hub_key[AUTH_KEY];
	struct client *meeting, *client;
	struct hub *hub;
	char (*where)[HELLO_WHERE];
	char missing[WIRE_TEXT];
};

/* What rank 0 gives to the others through the caller's all-gather. */
struct invitation {
	char magic[8];
	char address[SOCK_TEXT]; /* "": there is none, for this reason: */
	char reason[REASON_TEXT];
	uint32_t status;
	uint8_t key[AUTH_KEY];
	dicomm_unique_id_t secret;
};

static const char invitation_magic[8] = "dicomm2";

static struct client_patience patience(const struct join *j, bool until_listens)
{
	return (struct client_patience){j->until_ns, j->config->cancelled,
					until_listens};
}

static void ask_who(struct client *c)
{
	struct wire_out out;

	wire_begin(&out, WIRE_WHO);
	wire_put_u64(&out, 0);
	wire_end(&out);
	client_send(c, &out);
}

static dicomm_result_t fail_timeout(const struct join *j)
{
	const struct control_config *c = j->config;

	if (j->missing[0])
		return FAIL(DICOMM_ERR_TIMEOUT,
			    "rank %d: %s of %d did not come within %d ms",
			    c->rank, j->missing, c->ranks, c->timeout_ms);
	return FAIL(DICOMM_ERR_TIMEOUT,
		    "rank %d: the %d ranks did not meet within %d ms, and %s "
		    "does not say who is missing",
		    c->rank, c->ranks, c->timeout_ms,
		    j->client ? j->client->conn.peer : j->meeting->conn.peer);
}

/* Ended by the other side: with its reason, if it could give one. */
static dicomm_result_t fail_said(const struct join *j, enum wire_type type,
				 struct wire_in *in)
{
	dicomm_result_t status = roster_status(wire_u32(in));
	char text[WIRE_TEXT];

	if (type == WIRE_FAILED)
		wire_u32(in);
	wire_text(in, text, sizeof(text));
	return FAIL(status, "rank %d: %s", j->config->rank, text);
}

static dicomm_result_t fail_lost(const struct join *j, struct client *from,
				 const char *why)
{
	if (from == j->meeting)
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d: lost the process that made the id, at "
			    "%s: %s",
			    j->config->rank, from->conn.peer, why);
	return FAIL(DICOMM_ERR_REMOTE,
		    "rank %d: lost rank 0, at %s, before all had come: %s",
		    j->config->rank, from->conn.peer, why);
}

/* Rank 0 is gone, maybe because another rank is: it then left in a hurry, but
 * the meeting is still there to say who was the first. */
static bool meeting_knows(struct join *j, enum wire_type *type,
			  struct wire_in *in)
{
	uint64_t until_ns = clock_ns() + WHY_NS;
	struct client *from;
	char why[WIRE_TEXT];

	if (until_ns > j->until_ns)
		until_ns = j->until_ns;
	while (j->meeting &&
	       client_next(j->meeting, NULL, until_ns, j->config->cancelled,
			   &from, type, in, why) == DICOMM_SUCCESS)
		if (*type == WIRE_FAILED)
			return true;
	return false;
}

/* The next frame of c, once it has come. */
static dicomm_result_t expect(struct join *j, struct client *c,
			      enum wire_type *type, struct wire_in *in)
{
	uint64_t ask_ns = client_next_ask(j->until_ns);
	struct client *from;
	dicomm_result_t status;
	char why[WIRE_TEXT];

	for (;;) {
		status = client_next(c, j->meeting == c ? NULL : j->meeting,
				     ask_ns, j->config->cancelled, &from, type,
				     in, why);
		if (status == DICOMM_ERR_TIMEOUT && clock_ns() < j->until_ns) {
			ask_who(c);
			ask_ns = client_next_ask(j->until_ns);
		} else if (status == DICOMM_ERR_TIMEOUT) {
			return fail_timeout(j);
		} else if (status == DICOMM_ERR_ABORTED) {
			return FAIL(status,
				    "rank %d: aborted while the ranks "
				    "met",
				    j->config->rank);
		} else if (status != DICOMM_SUCCESS && from == c) {
			if (c == j->client && meeting_knows(j, type, in))
				return fail_said(j, *type, in);
			return fail_lost(j, from, why);
		} else if (status != DICOMM_SUCCESS) {
			/* Its process has ended early: it is allowed to. */
			client_close(j->meeting);
			j->meeting = NULL;
		} else if (*type == WIRE_FAILED || *type == WIRE_REFUSED) {
			return fail_said(j, *type, in);
		} else if (*type == WIRE_MISSING) {
			wire_u64(in);
			wire_text(in, j->missing, sizeof(j->missing));
		} else if (from == c) {
			return DICOMM_SUCCESS;
		}
	}
}

static dicomm_result_t fail_connect(const struct join *j, const char *to,
				    const char *address, dicomm_result_t status,
				    const char *why)
{
	if (status == DICOMM_ERR_TIMEOUT)
		return FAIL(status,
			    "rank %d: cannot reach %s at %s within %d ms: %s",
			    j->config->rank, to, address, j->config->timeout_ms,
			    why);
	return FAIL(status, "rank %d: %s at %s: %s", j->config->rank, to,
		    address, why);
}

static void say_hello(struct join *j, struct client *c, const uint8_t *nonce)
{
	struct wire_out out;

	wire_begin(&out, WIRE_HELLO);
	hello_put(&out, &j->hello);
	if (nonce) {
		wire_put_text(&out, j->hub_address);
		wire_put_bytes(&out, nonce, AUTH_NONCE);
	}
	wire_end(&out);
	client_send(c, &out);
}

/* Of rank 0. */
static dicomm_result_t make_hub(struct join *j)
{
	dicomm_result_t status =
		hub_open(&j->hello, j->hub_key, j->hub_address, &j->hub);
	char why[WIRE_TEXT];

	if (status == DICOMM_SUCCESS)
		return status;
	j->hub_address[0] = '\0';
	snprintf(why, sizeof(why), "%s", log_last_error());
	return FAIL(status, "rank 0 cannot host the others: %.800s", why);
}

/* A rank 0 without a hub goes there, too, to say so. */
static dicomm_result_t meet(struct join *j)
{
	struct client_patience p = patience(j, true);
	uint8_t key[AUTH_KEY], nonce[AUTH_NONCE];
	char *address = j->meeting_address, why[WIRE_TEXT] = "";
	dicomm_result_t made = DICOMM_SUCCESS, status;
	enum wire_type type;
	struct wire_in in;

	TRY(id_parse(j->config->id, address, key));
	auth_random(nonce, sizeof(nonce));
	if (j->config->rank == 0) {
		auth_key_derive(key, nonce, j->hub_key);
		made = make_hub(j);
	}
	status = client_open(address, key, &p, &j->meeting, why);
	if (status != DICOMM_SUCCESS)
		return fail_connect(j, "the meeting", address, status, why);
	say_hello(j, j->meeting, nonce);
	TRY(made);
	TRY(expect(j, j->meeting, &type, &in));
	wire_text(&in, j->hub_address, sizeof(j->hub_address));
	wire_bytes(&in, nonce, sizeof(nonce));
	if (type != WIRE_GO || !wire_done(&in))
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d: the meeting at %s sent what does not "
			    "parse",
			    j->config->rank, address);
	auth_key_derive(key, nonce, j->hub_key);
	auth_forget(key, sizeof(key));
	return DICOMM_SUCCESS;
}

static void invite(const struct join *j, dicomm_result_t made,
		   struct invitation *mine)
{
	memcpy(mine->magic, invitation_magic, sizeof(mine->magic));
	if (made != DICOMM_SUCCESS) {
		mine->status = (uint32_t)made;
		snprintf(mine->reason, sizeof(mine->reason), "%s",
			 log_last_error());
		return;
	}
	memcpy(mine->address, j->hub_address, sizeof(mine->address));
	memcpy(mine->key, j->hub_key, sizeof(mine->key));
	refuge_secret(mine->secret.text, sizeof(mine->secret.text));
}

static dicomm_result_t accept_invitation(struct join *j,
					 const struct invitation *from)
{
	const struct control_config *c = j->config;

	if (memcmp(from->magic, invitation_magic, sizeof(from->magic)) ||
	    !memchr(from->address, '\0', sizeof(from->address)) ||
	    !memchr(from->reason, '\0', sizeof(from->reason)) ||
	    !memchr(from->secret.text, '\0', sizeof(from->secret.text)))
		return FAIL(DICOMM_ERR_REMOTE,
			    "rank %d: the caller's all-gather brought no "
			    "address of rank 0",
			    c->rank);
	if (!from->address[0])
		return FAIL(roster_status(from->status), "rank %d: %s", c->rank,
			    from->reason);
	memcpy(j->hub_address, from->address, sizeof(j->hub_address));
	memcpy(j->hub_key, from->key, sizeof(j->hub_key));
	if (c->secret)
		*c->secret = from->secret;
	return DICOMM_SUCCESS;
}

/* All ranks call the caller's all-gather, also a rank 0 without a hub: else
 * the others would wait in it. And they call it once: who fails later could not
 * end it. */
static dicomm_result_t meet_by_callback(struct join *j)
{
	const struct control_config *c = j->config;
	struct invitation mine = {0}, *all;
	dicomm_result_t made = DICOMM_SUCCESS, status;

	if (c->rank == 0) {
		auth_random(j->hub_key, sizeof(j->hub_key));
		made = make_hub(j);
		invite(j, made, &mine);
	}
	all = calloc((size_t)c->ranks, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "rank %d: out of memory to meet %d ranks", c->rank,
			    c->ranks);
	status = c->allgather(&mine, all, sizeof(mine), c->allgather_ctx);
	if (status != DICOMM_SUCCESS)
		status = FAIL(status, "rank %d: the caller's all-gather failed",
			      c->rank);
	else if (made == DICOMM_SUCCESS)
		status = accept_invitation(j, all);
	else
		status = made;
	auth_forget(&mine, sizeof(mine));
	auth_forget(all, (size_t)c->ranks * sizeof(*all));
	free(all);
	return status;
}

static bool take_roster(struct join *j, struct wire_in *in)
{
	uint32_t first = wire_u32(in), n = wire_u32(in);
	uint32_t ranks = (uint32_t)j->config->ranks;

	if (first > ranks || n > ranks - first)
		return false;
	for (uint32_t i = first; i < first + n && !in->bad; i++)
		wire_text(in, j->where[i], sizeof(j->where[i]));
	return wire_done(in);
}

/* Rank 0 listened before anybody could know where, so who finds nobody there
 * need not try again. */
static dicomm_result_t find_hub(struct join *j)
{
	struct client_patience p = patience(j, false);
	char why[WIRE_TEXT] = "";
	dicomm_result_t status;
	enum wire_type type;
	struct wire_in in;

	status = client_open(j->hub_address, j->hub_key, &p, &j->client, why);
	if (status == DICOMM_SUCCESS)
		return status;
	if (status == DICOMM_ERR_REMOTE && meeting_knows(j, &type, &in))
		return fail_said(j, type, &in);
	return fail_connect(j, "rank 0", j->hub_address, status, why);
}

static dicomm_result_t enter_hub(struct join *j)
{
	enum wire_type type;
	struct wire_in in;

	TRY(find_hub(j));
	say_hello(j, j->client, NULL);
	for (;;) {
		TRY(expect(j, j->client, &type, &in));
		if (type == WIRE_START)
			return DICOMM_SUCCESS;
		if (type != WIRE_ROSTER || !take_roster(j, &in))
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank %d: rank 0 at %s sent what does not "
				    "parse",
				    j->config->rank, j->hub_address);
	}
}

static void say_bye(struct client *c)
{
	struct wire_out out;

	if (!c)
		return;
	wire_begin(&out, WIRE_BYE);
	wire_end(&out);
	client_send(c, &out);
	client_linger(c);
}

static void say_gave_up(struct client *c, dicomm_result_t status)
{
	struct wire_out out;

	if (!c)
		return;
	wire_begin(&out, WIRE_GAVE_UP);
	wire_put_u32(&out, (uint32_t)status);
	wire_put_text(&out, log_last_error());
	wire_end(&out);
	client_send(c, &out);
	client_linger(c);
}

/* A program that cannot join ends as a rule, and with it the meeting, if it was
 * here. Who was late, or aborted, waits for nobody else any more. */
static void settle(const struct join *j, dicomm_result_t status)
{
	bool all = status != DICOMM_ERR_TIMEOUT && status != DICOMM_ERR_ABORTED;

	if (j->meeting_address[0])
		meeting_settle(j->meeting_address, all,
			       clock_ns() + (all ? WHY_NS : FLUSH_NS));
}

static dicomm_result_t join(struct join *j)
{
	j->where = calloc((size_t)j->config->ranks, sizeof(*j->where));
	if (!j->where)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "rank %d: out of memory to meet %d ranks",
			    j->config->rank, j->config->ranks);
	TRY(j->config->id ? meet(j) : meet_by_callback(j));
	return enter_hub(j);
}

dicomm_result_t join_all(const struct control_config *config,
			 struct join_result *out)
{
	struct join j = {.config = config, .until_ns = FOREVER_NS};
	dicomm_result_t status;

	if (config->timeout_ms > 0)
		j.until_ns = clock_ns() + (uint64_t)config->timeout_ms * MS_NS;
	hello_self(&j.hello, config->rank, config->ranks);
	status = join(&j);
	auth_forget(j.hub_key, sizeof(j.hub_key));
	if (status == DICOMM_SUCCESS) {
		say_bye(j.meeting);
		*out = (struct join_result){j.client, j.hub, j.where};
		return status;
	}
	say_gave_up(j.meeting, status);
	say_gave_up(j.client, status);
	settle(&j, status);
	hub_close(j.hub, status, log_last_error());
	free(j.where);
	return status;
}
