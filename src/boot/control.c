/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's end of the control plane, at work: the calls of control.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/gather.h"
#include "src/boot/join.h"
#include "src/boot/roster.h"

#define MS_NS UINT64_C(1000000)
#define SLICE_NS (20 * MS_NS) /* how late a cancellation may be seen */

/* A control_query() that waits. On its caller's stack. */
struct question {
	uint64_t tag;
	int rank;
	bool answered, known;
	dicomm_result_t status;
	uint32_t signature;
	char text[WIRE_TEXT];
	struct question *next;
};

/* The one control_allgather() that waits. */
struct gathering {
	bool active, done;
	dicomm_result_t status; /* once done */
	uint64_t number;
	uint8_t *to; /* the caller's */
	size_t want, got;
	char text[WIRE_TEXT]; /* why it failed */
	char missing[WIRE_TEXT];
};

/* All of it, but what says otherwise, with the lock of the loop held. */
struct control {
	int rank, ranks;               /* constant */
	pid_t pid;                     /* constant; a child has none of this */
	struct control_events events;  /* constant */
	const _Atomic bool *cancelled; /* constant */
	char (*where)[HELLO_WHERE];    /* constant */
	_Atomic bool *gone;            /* any thread */
	struct hub *hub;               /* of rank 0 */
	struct client *client;         /* NULL: no way to rank 0 any more */
	pthread_cond_t cond;           /* gathering, questions or calls */
	bool closing;
	int calls; /* posted to the loop and not through yet */

	/* For the news of the first failure, which must not need memory. */
	struct notice *spare;

	/* The first reason why no gather can succeed any more. */
	dicomm_result_t status;
	char text[WIRE_TEXT];

	struct gathering gathering;
	struct question *questions;
	uint64_t last_tag;
};

enum notice_kind { NOTICE_FAILED, NOTICE_LEFT, NOTICE_QUERY };

/* An event on its way to the caller's function, which runs unlocked; they run
 * in the order in which they came. */
struct notice {
	struct loop_call call;
	struct control *control;
	enum notice_kind kind;
	dicomm_result_t status;
	bool gone; /* the culprit has died */
	int rank;  /* culprit, who has left, or who asks */
	uint32_t class;
	uint64_t number, tag;
	char text[WIRE_TEXT];
};

static void answer(struct notice *n, bool known, uint32_t signature)
{
	struct control *c = n->control;
	struct wire_out out;

	if (!c->client || c->closing)
		return;
	wire_begin(&out, WIRE_ANSWER);
	wire_put_u64(&out, n->tag);
	wire_put_u32(&out, (uint32_t)n->rank);
	wire_put_u32(&out, DICOMM_SUCCESS);
	wire_put_u32(&out, known);
	wire_put_u32(&out, known ? signature : 0);
	wire_put_text(&out, known ? n->text : "");
	wire_end(&out);
	conn_send(&c->client->conn, &out);
}

static void run_notice(struct loop_call *call)
{
	struct notice *n = (struct notice *)call;
	struct control *c = n->control;
	const struct control_events *e = &c->events;
	uint32_t signature = 0;
	bool known = false;

	if (!c->closing) {
		loop_unlock();
		if (n->kind == NOTICE_FAILED && e->failed)
			e->failed(e->ctx, n->status, n->rank, n->text);
		if (n->kind == NOTICE_QUERY && e->query)
			known = e->query(e->ctx, n->rank, n->class, n->number,
					 &signature, n->text, sizeof(n->text));
		loop_lock();
		if (n->kind == NOTICE_QUERY)
			answer(n, known, signature);
	}
	/* Whoever finds a rank gone has heard why before. */
	if (n->gone)
		atomic_store(&c->gone[n->rank], true);
	c->calls--;
	pthread_cond_broadcast(&c->cond);
	free(n);
}

static struct notice *post(struct control *c, enum notice_kind kind, int rank,
			   bool gone)
{
	struct notice *n = c->closing ? NULL : calloc(1, sizeof(*n));

	if (!n && !c->closing && kind == NOTICE_FAILED) {
		n = c->spare;
		c->spare = NULL;
	}
	if (!n) {
		if (gone)
			atomic_store(&c->gone[rank], true);
		return NULL;
	}
	n->call.run = run_notice;
	n->control = c;
	n->kind = kind;
	n->rank = rank;
	n->gone = gone;
	c->calls++;
	loop_post(&n->call);
	return n;
}

static void finish_gathering(struct control *c, dicomm_result_t status,
			     const char *text)
{
	struct gathering *g = &c->gathering;

	if (!g->active || g->done)
		return;
	g->done = true;
	g->status = status;
	g->to = NULL;
	snprintf(g->text, sizeof(g->text), "%s", text);
	pthread_cond_broadcast(&c->cond);
}

static void break_gathers(struct control *c, dicomm_result_t status,
			  const char *text)
{
	if (c->status == DICOMM_SUCCESS) {
		c->status = status;
		snprintf(c->text, sizeof(c->text), "%s", text);
	}
	finish_gathering(c, c->status, c->text);
}

static void tell_failed(struct control *c, dicomm_result_t status, int culprit,
			bool gone, const char *text)
{
	struct notice *n = post(c, NOTICE_FAILED, culprit, gone);

	if (n) {
		n->status = status;
		snprintf(n->text, sizeof(n->text), "%s", text);
	}
	break_gathers(c, status, text);
}

/* Those to a rank, or with -1 all, have no answer any more. */
static void lose_questions(struct control *c, int rank, const char *text)
{
	for (struct question *q = c->questions; q; q = q->next) {
		if (q->answered || (rank >= 0 && q->rank != rank))
			continue;
		q->answered = true;
		q->status = DICOMM_ERR_REMOTE;
		snprintf(q->text, sizeof(q->text), "%s", text);
	}
	pthread_cond_broadcast(&c->cond);
}

static bool take_failed(struct control *c, struct wire_in *in)
{
	dicomm_result_t status = roster_status(wire_u32(in));
	uint32_t culprit = wire_u32(in);
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in) || culprit >= (uint32_t)c->ranks)
		return false;
	tell_failed(c, status, (int)culprit, false, text);
	return true;
}

static bool take_died(struct control *c, struct wire_in *in)
{
	uint32_t rank = wire_u32(in);
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in) || rank >= (uint32_t)c->ranks)
		return false;
	tell_failed(c, DICOMM_ERR_REMOTE, (int)rank, true, text);
	lose_questions(c, (int)rank, text);
	return true;
}

static void left(struct control *c, int rank)
{
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) has left", rank,
		 c->where[rank]);
	post(c, NOTICE_LEFT, rank, true);
	break_gathers(c, DICOMM_ERR_REMOTE, text);
	lose_questions(c, rank, text);
}

static bool take_left(struct control *c, struct wire_in *in)
{
	uint32_t rank = wire_u32(in);

	if (!wire_done(in) || rank >= (uint32_t)c->ranks)
		return false;
	left(c, (int)rank);
	return true;
}

static void drop_client(struct control *c)
{
	conn_drop(&c->client->conn);
	c->client = NULL;
}

static bool take_bye(struct control *c)
{
	left(c, 0);
	lose_questions(c, -1, "rank 0 has left");
	drop_client(c);
	return true;
}

static bool take_gathered(struct control *c, struct wire_in *in)
{
	struct gathering *g = &c->gathering;
	uint64_t number = wire_u64(in);
	size_t n;
	const uint8_t *data = wire_rest(in, &n);

	if (!wire_done(in))
		return false;
	if (!g->active || g->done || number != g->number)
		return true; /* its caller has given up */
	if (n > g->want - g->got)
		return false;
	if (n)
		memcpy(g->to + g->got, data, n);
	g->got += n;
	if (g->got == g->want)
		finish_gathering(c, DICOMM_SUCCESS, "");
	return true;
}

static bool take_gather_failed(struct control *c, struct wire_in *in)
{
	uint64_t number = wire_u64(in);
	dicomm_result_t status = roster_status(wire_u32(in));
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in))
		return false;
	if (number == c->gathering.number)
		finish_gathering(c, status, text);
	return true;
}

static bool take_missing(struct control *c, struct wire_in *in)
{
	struct gathering *g = &c->gathering;
	uint64_t number = wire_u64(in);
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in))
		return false;
	if (g->active && number == g->number)
		memcpy(g->missing, text, sizeof(text));
	return true;
}

static bool take_query(struct control *c, struct wire_in *in)
{
	uint64_t tag = wire_u64(in), number;
	uint32_t from = wire_u32(in), to = wire_u32(in), class = wire_u32(in);
	struct notice *n;

	number = wire_u64(in);
	if (!wire_done(in) || to != (uint32_t)c->rank ||
	    from >= (uint32_t)c->ranks)
		return false;
	n = post(c, NOTICE_QUERY, (int)from, false);
	if (!n)
		return true;
	n->class = class;
	n->number = number;
	n->tag = tag;
	return true;
}

static bool take_answer(struct control *c, struct wire_in *in)
{
	uint64_t tag = wire_u64(in);
	uint32_t to = wire_u32(in), status = wire_u32(in);
	uint32_t known = wire_u32(in), signature = wire_u32(in);
	struct question *q = c->questions;
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in) || to != (uint32_t)c->rank)
		return false;
	while (q && q->tag != tag)
		q = q->next;
	if (!q || q->answered)
		return true; /* its caller has given up */
	q->answered = true;
	q->status = status ? roster_status(status) : DICOMM_SUCCESS;
	q->known = known;
	q->signature = signature;
	memcpy(q->text, text, sizeof(text));
	pthread_cond_broadcast(&c->cond);
	return true;
}

/* False: a frame that makes no sense. */
static bool take(struct control *c, enum wire_type type, struct wire_in *in)
{
	switch (type) {
	case WIRE_FAILED:
		return take_failed(c, in);
	case WIRE_DIED:
		return take_died(c, in);
	case WIRE_LEFT:
		return take_left(c, in);
	case WIRE_BYE:
		return take_bye(c);
	case WIRE_GATHERED:
		return take_gathered(c, in);
	case WIRE_GATHER_FAILED:
		return take_gather_failed(c, in);
	case WIRE_MISSING:
		return take_missing(c, in);
	case WIRE_QUERY:
		return take_query(c, in);
	case WIRE_ANSWER:
		return take_answer(c, in);
	default:
		return false;
	}
}

static void frame(struct conn *conn, enum wire_type type, struct wire_in *in)
{
	struct control *c = ((struct client *)conn)->owner;

	if (!take(c, type, in))
		log_warn("rank %d: dropped a frame (%s) of rank 0", c->rank,
			 wire_type_name(type));
}

static void lost(struct conn *conn, const char *why)
{
	struct control *c = ((struct client *)conn)->owner;
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text), "rank 0 (%s) died: %s", c->where[0], why);
	drop_client(c);
	tell_failed(c, DICOMM_ERR_REMOTE, 0, true, text);
	lose_questions(c, -1, text);
}

static dicomm_result_t check(const struct control_config *config)
{
	if (config->ranks < 1 || config->ranks > ROSTER_RANKS_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%d ranks: not between 1 and %d", config->ranks,
			    ROSTER_RANKS_MAX);
	if (config->rank < 0 || config->rank >= config->ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "rank %d: not one of %d ranks", config->rank,
			    config->ranks);
	if (!config->id == !config->allgather)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "rank %d: needs either an id or an all-gather",
			    config->rank);
	return DICOMM_SUCCESS;
}

static void free_control(struct control *c)
{
	if (!c)
		return;
	free(c->gone);
	free(c->where);
	free(c->spare);
	free(c);
}

/* Everything that can fail for want of memory, before others rely on us. */
static dicomm_result_t create(const struct control_config *config,
			      struct control **out)
{
	struct control *c = calloc(1, sizeof(*c));

	if (c)
		c->gone = calloc((size_t)config->ranks, sizeof(*c->gone));
	if (c)
		c->spare = calloc(1, sizeof(*c->spare));
	if (!c || !c->gone || !c->spare) {
		free_control(c);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "rank %d: out of memory for %d ranks", config->rank,
			    config->ranks);
	}
	c->rank = config->rank;
	c->ranks = config->ranks;
	c->pid = getpid();
	c->events = config->events;
	c->cancelled = config->cancelled;
	*out = c;
	return DICOMM_SUCCESS;
}

dicomm_result_t control_open(const struct control_config *config,
			     struct control **out)
{
	struct join_result joined;
	dicomm_result_t status;
	struct control *c;

	TRY(check(config));
	TRY(auth_init());
	TRY(loop_start());
	TRY(create(config, &c));
	status = join_all(config, &joined);
	if (status != DICOMM_SUCCESS) {
		free_control(c);
		return status;
	}
	c->client = joined.client;
	c->hub = joined.hub;
	c->where = joined.where;
	c->client->owner = c;
	c->client->conn.frame = frame;
	c->client->conn.lost = lost;
	loop_cond_init(&c->cond);
	*out = c;
	loop_lock();
	status = conn_serve(&c->client->conn);
	loop_unlock();
	if (status != DICOMM_SUCCESS) {
		*out = NULL;
		control_close(c);
	}
	return status;
}

/* The connections belong to the parent of a fork. */
static bool is_ours(const struct control *c)
{
	return c->pid == getpid();
}

static dicomm_result_t fail_child(const struct control *c)
{
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "rank %d belongs to process %d, of which this is a fork",
		    c->rank, (int)c->pid);
}

static uint64_t deadline(int timeout_ms)
{
	if (timeout_ms <= 0)
		return 1ull << 62;
	return clock_ns() + (uint64_t)timeout_ms * MS_NS;
}

static bool is_cancelled(const struct control *c)
{
	return c->cancelled && atomic_load(c->cancelled);
}

/* Until something changed, or a moment has passed. */
static void wait_some(struct control *c, uint64_t until_ns)
{
	uint64_t slice = clock_ns() + SLICE_NS;

	loop_cond_wait(&c->cond,
		       c->cancelled && slice < until_ns ? slice : until_ns);
}

static void send_part(struct control *c, const uint8_t *data, size_t len)
{
	struct wire_out out;
	size_t at = 0, n;

	do {
		n = len - at < GATHER_CHUNK ? len - at : GATHER_CHUNK;
		wire_begin(&out, WIRE_GATHER);
		wire_put_u64(&out, c->gathering.number);
		wire_put_u64(&out, len);
		wire_put_bytes(&out, data + at, n);
		wire_end(&out);
		conn_send(&c->client->conn, &out);
		at += n;
	} while (at < len);
	conn_flush(&c->client->conn);
}

static void ask_who(struct control *c)
{
	struct wire_out out;

	if (!c->client)
		return;
	wire_begin(&out, WIRE_WHO);
	wire_put_u64(&out, c->gathering.number);
	wire_end(&out);
	conn_send(&c->client->conn, &out);
}

static void say_that_it_waits(const struct control *c)
{
	if (!c->events.waiting)
		return;
	loop_unlock();
	c->events.waiting(c->events.ctx);
	loop_lock();
}

static dicomm_result_t wait_gathered(struct control *c, int timeout_ms)
{
	uint64_t until_ns = deadline(timeout_ms);
	uint64_t ask_ns = client_next_ask(until_ns), now;
	struct gathering *g = &c->gathering;

	while (!g->done) {
		now = clock_ns();
		if (is_cancelled(c))
			return DICOMM_ERR_ABORTED;
		if (now >= until_ns)
			return DICOMM_ERR_TIMEOUT;
		if (now >= ask_ns) {
			ask_who(c);
			ask_ns = client_next_ask(until_ns);
		}
		wait_some(c, ask_ns);
		say_that_it_waits(c);
	}
	return g->status;
}

/* Who gave up cannot say any more which gather the others are at. */
static void give_up(struct control *c, dicomm_result_t status, int timeout_ms)
{
	struct gathering *g = &c->gathering;

	if (status == DICOMM_ERR_ABORTED)
		snprintf(g->text, sizeof(g->text), "aborted by this rank");
	else if (g->missing[0])
		snprintf(g->text, sizeof(g->text),
			 "%.900s did not come within %d ms", g->missing,
			 timeout_ms);
	else
		snprintf(g->text, sizeof(g->text),
			 "no answer of rank 0 (%s) within %d ms", c->where[0],
			 timeout_ms);
	break_gathers(c, status, g->text);
}

static dicomm_result_t gather(struct control *c, const void *mine, void *all,
			      size_t len, int timeout_ms)
{
	struct gathering *g = &c->gathering;
	dicomm_result_t status;

	if (c->status != DICOMM_SUCCESS) {
		memcpy(g->text, c->text, sizeof(g->text));
		return c->status;
	}
	g->number++;
	g->active = true;
	g->done = false;
	g->to = all;
	g->want = len * (size_t)c->ranks;
	g->got = 0;
	g->missing[0] = '\0';
	send_part(c, mine, len);
	status = wait_gathered(c, timeout_ms);
	if (!g->done)
		give_up(c, status, timeout_ms);
	g->active = false;
	return status;
}

dicomm_result_t control_allgather(struct control *c, const void *mine,
				  void *all, size_t len, int timeout_ms)
{
	char text[WIRE_TEXT];
	dicomm_result_t status;
	bool busy;

	if (!is_ours(c))
		return fail_child(c);
	if (len > HUB_GATHER_MAX || len * (uint64_t)c->ranks > HUB_GATHER_TOTAL)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "rank %d: all-gather of %zu bytes of %d ranks: too "
			    "much for the control plane",
			    c->rank, len, c->ranks);
	loop_lock();
	busy = c->gathering.active;
	status = busy ? DICOMM_ERR_INVALID_USAGE
		      : gather(c, mine, all, len, timeout_ms);
	snprintf(text, sizeof(text), "%s",
		 busy ? "another thread is in one" : c->gathering.text);
	loop_unlock();
	if (status != DICOMM_SUCCESS)
		return FAIL(status, "rank %d: all-gather: %s", c->rank, text);
	return status;
}

static void ask(struct control *c, struct question *q, int rank, uint32_t class,
		uint64_t number)
{
	struct wire_out out;

	q->tag = ++c->last_tag;
	q->rank = rank;
	q->next = c->questions;
	c->questions = q;
	wire_begin(&out, WIRE_QUERY);
	wire_put_u64(&out, q->tag);
	wire_put_u32(&out, (uint32_t)c->rank);
	wire_put_u32(&out, (uint32_t)rank);
	wire_put_u32(&out, class);
	wire_put_u64(&out, number);
	wire_end(&out);
	conn_send(&c->client->conn, &out);
	conn_flush(&c->client->conn);
}

static dicomm_result_t wait_answer(struct control *c, struct question *q,
				   int timeout_ms)
{
	uint64_t until_ns = deadline(timeout_ms);
	struct question **link = &c->questions;
	dicomm_result_t status = DICOMM_SUCCESS;

	while (!q->answered && status == DICOMM_SUCCESS) {
		if (is_cancelled(c))
			status = DICOMM_ERR_ABORTED;
		else if (clock_ns() >= until_ns)
			status = DICOMM_ERR_TIMEOUT;
		else
			wait_some(c, until_ns);
	}
	while (*link != q)
		link = &(*link)->next;
	*link = q->next;
	/* Why there is no answer may have come before and be on its way. */
	while (q->answered && q->status != DICOMM_SUCCESS && c->calls &&
	       !is_cancelled(c) && clock_ns() < until_ns)
		wait_some(c, until_ns);
	return q->answered ? q->status : status;
}

dicomm_result_t control_query(struct control *c, int rank, uint32_t class,
			      uint64_t number, int timeout_ms, bool *known,
			      uint32_t *signature, char *text, size_t len)
{
	struct question q = {.text = "no answer"};
	dicomm_result_t status = DICOMM_ERR_REMOTE;

	assert(!loop_is_current_thread());
	if (!is_ours(c))
		return fail_child(c);
	if (rank < 0 || rank >= c->ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "query of rank %d: not one of %d ranks", rank,
			    c->ranks);
	loop_lock();
	if (c->client) {
		ask(c, &q, rank, class, number);
		status = wait_answer(c, &q, timeout_ms);
	} else {
		snprintf(q.text, sizeof(q.text), "rank 0 (%s) is gone",
			 c->where[0]);
	}
	loop_unlock();
	/* Asking is a service to messages, not an operation of the user's:
	 * what becomes of it is for the caller to say. */
	if (status != DICOMM_SUCCESS) {
		log_debug("rank %d: query of rank %d: %s", c->rank, rank,
			  q.text);
		return status;
	}
	*known = q.known;
	*signature = q.signature;
	if (len)
		snprintf(text, len, "%s", q.text);
	return status;
}

void control_report(struct control *c, dicomm_result_t status, int culprit,
		    const char *text)
{
	struct wire_out out;

	if (!is_ours(c))
		return;
	if (culprit < 0 || culprit >= c->ranks)
		culprit = c->rank;
	loop_lock();
	/* This rank's own gather must not outlast what it just declared
	 * broken. */
	break_gathers(c, status, text);
	if (c->hub) {
		hub_report(c->hub, status, culprit, text);
	} else if (c->client) {
		wire_begin(&out, WIRE_FAILED);
		wire_put_u32(&out, (uint32_t)status);
		wire_put_u32(&out, (uint32_t)culprit);
		wire_put_text(&out, text);
		wire_end(&out);
		conn_send(&c->client->conn, &out);
		conn_flush(&c->client->conn);
	}
	loop_unlock();
}

bool control_gone(struct control *c, int rank)
{
	return atomic_load(&c->gone[rank]);
}

const char *control_where(struct control *c, int rank)
{
	return c->where[rank];
}

static void say_bye(struct control *c)
{
	struct wire_out out;

	wire_begin(&out, WIRE_BYE);
	wire_end(&out);
	conn_send(&c->client->conn, &out);
	conn_linger(&c->client->conn);
	c->client = NULL;
}

void control_close(struct control *c)
{
	struct hub *hub;

	/* What a child inherited is its copy of memory and nothing else. */
	if (!c || !is_ours(c))
		return;
	assert(!loop_is_current_thread());
	hub = c->hub;
	loop_lock();
	c->closing = true;
	if (c->client)
		say_bye(c);
	loop_unlock();
	hub_close(hub, DICOMM_SUCCESS, "");
	loop_lock();
	while (c->calls)
		loop_cond_wait(&c->cond, clock_ns() + SLICE_NS);
	loop_unlock();
	pthread_cond_destroy(&c->cond);
	free_control(c);
}
