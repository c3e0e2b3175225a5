/* SPDX-License-Identifier: BSD-3-Clause */
/* The control plane of one rank after it has joined: the functions of
 * control.h. */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/texts.h"
#include "src/boot/control/control.h"
#include "src/boot/control/delta.h"
#include "src/boot/control/gather.h"
#include "src/boot/control/job_port.h"
#include "src/boot/control/join.h"
#include "src/boot/control/mail.h"
#include "src/boot/control/relay.h"
#include "src/boot/net/inquiry.h"

#define MS_NS UINT64_C(1000000)
/* a waiting thread notices a cancellation within this time */
#define SLICE_NS (20 * MS_NS)
/* How often a rank that is at work says so, and how much longer each time the
 * others wait for it. */
#define BEAT_NS (500 * MS_NS)
#define LONGER_MS 2000
/* A parent that sends nothing for so long passes on nothing any more. */
#define RELAY_NS (2000 * MS_NS)

/* A control_query() that waits for its answer. Lives on the stack of the
 * caller. */
struct question {
	uint64_t tag;
	int rank;
	bool answered, known;
	dicomm_result_t status;
	uint32_t signature;
	char text[FRAME_TEXT];
	struct question *next;
};

/* The control_allgather() that is under way; there is at most one. */
struct gathering {
	bool active, done;
	dicomm_result_t status; /* valid once done */
	uint64_t number;
	struct delta_reader all; /* into the caller's buffer */
	char text[FRAME_TEXT];   /* why it failed */
	char missing[FRAME_TEXT];
	bool busy; /* all that are missing are at work; see control_busy() */
	bool late; /* complete, but not here in time */
};

/* Tells rank 0 that this rank is at work. The control thread frees it. */
struct beat {
	struct loop_source source;
	struct control *control;
	char text[64];
	bool said;
};

/* The lock of the loop guards all members, except where noted. */
struct control {
	int rank, ranks; /* constant */
	/* constant; differs from getpid() in a child of fork() */
	pid_t pid;
	struct control_events events;  /* constant */
	const _Atomic bool *cancelled; /* constant */
	/* Host and pid of each; constant once all are known. NULL: no memory */
	struct texts *where;
	/* The same until then, and without `where`; else NULL */
	char (*names)[RANK_INFO_WHERE];
	_Atomic bool *gone; /* atomic; any thread may read it */
	struct hub *hub;    /* owned; NULL except on rank 0 */
	/* NULL if there is no connection to rank 0 */
	struct client *client;
	/* signalled when gathering, questions, mail or calls change */
	struct loop_cond cond;
	bool closing;
	int calls; /* number of calls posted to the loop that have not run */

	/* Allocated in advance, so that the first failure can be reported
	 * without memory. */
	struct notice *spare;

	/* The first reason why no all-gather can succeed any more; failed: a
	 * rank has died or failed, so that nothing else can, either. */
	bool failed;
	dicomm_result_t status;
	char text[FRAME_TEXT];

	struct gathering gathering;
	/* Who passes on results to this rank, and to whom it does. */
	struct relay relay;
	struct relay_place place; /* constant */
	bool relay_told;          /* relay_address is known */
	char relay_address[SOCK_TEXT];
	/* The last result that is on its way from the parent, and until when to
	 * wait for it. */
	uint64_t coming, coming_ns;
	struct beat *beat; /* NULL: not at work */
	struct question *questions;
	uint64_t last_tag;
	struct mail mail;
};

enum notice_kind { NOTICE_FAILED, NOTICE_LEFT, NOTICE_QUERY };

/* An event for one of the caller's functions. The control thread calls these
 * functions without the lock, in the order of the events. */
struct notice {
	struct loop_call call;
	struct control *control;
	enum notice_kind kind;
	dicomm_result_t status;
	bool gone; /* the culprit has died or left */
	int rank;  /* the culprit, the rank that left, or the rank that asks */
	uint32_t class;
	uint64_t number, tag;
	char text[FRAME_TEXT];
};

static const char *where(const struct control *c, int rank)
{
	return c->where ? texts_get(c->where, (uint32_t)rank) : c->names[rank];
}

/* Sends a frame to rank 0, unless that is gone. */
static void tell_hub(struct control *c, const struct frame_writer *out)
{
	if (c->client)
		conn_send(&c->client->conn, out);
}

static void answer(struct notice *n, bool known, uint32_t signature)
{
	struct control *c = n->control;
	struct frame_writer out;

	if (c->closing)
		return;
	frame_begin(&out, FRAME_ANSWER);
	frame_put_u64(&out, n->tag);
	frame_put_u32(&out, (uint32_t)n->rank);
	frame_put_u32(&out, DICOMM_SUCCESS);
	frame_put_u32(&out, known);
	frame_put_u32(&out, known ? signature : 0);
	frame_put_text(&out, known ? n->text : "");
	tell_hub(c, &out);
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
		if (n->kind == NOTICE_FAILED && n->gone && e->died)
			e->died(e->ctx, n->rank, n->text);
		else if (n->kind == NOTICE_FAILED && e->failed)
			e->failed(e->ctx, n->status, n->rank, n->text);
		if (n->kind == NOTICE_QUERY && e->query)
			known = e->query(e->ctx, n->rank, n->class, n->number,
					 &signature, n->text, sizeof(n->text));
		loop_lock();
		if (n->kind == NOTICE_QUERY)
			answer(n, known, signature);
	}
	/* Do this only after the callback: a thread that sees that a rank is
	 * gone must also find the reason. */
	if (n->gone)
		atomic_store(&c->gone[n->rank], true);
	c->calls--;
	loop_cond_broadcast(&c->cond);
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
	g->all.to = NULL;
	snprintf(g->text, sizeof(g->text), "%s", text);
	loop_cond_broadcast(&c->cond);
}

static void keep_reason(struct control *c, dicomm_result_t status,
			const char *text)
{
	if (c->status != DICOMM_SUCCESS)
		return;
	c->status = status;
	snprintf(c->text, sizeof(c->text), "%s", text);
}

static void break_gathers(struct control *c, dicomm_result_t status,
			  const char *text)
{
	keep_reason(c, status, text);
	finish_gathering(c, c->status, c->text);
}

static void send_number(struct control *c, enum frame_type type,
			uint64_t number, bool wide)
{
	struct frame_writer out;

	frame_begin(&out, type);
	if (wide)
		frame_put_u64(&out, number);
	else
		frame_put_u32(&out, (uint32_t)number);
	tell_hub(c, &out);
}

static bool is_coming(const struct control *c)
{
	const struct gathering *g = &c->gathering;

	return g->active && !g->done && c->coming == g->number;
}

/* From now on results come from the hub. What has come of a part of one is
 * dropped. The children get what was passed on, and find another way for the
 * rest, too. */
static void leave_parent(struct control *c)
{
	struct delta_reader *all = &c->gathering.all;

	if (!c->relay.parent)
		return;
	relay_drop_parent(&c->relay);
	relay_leave_children(&c->relay);
	*all = (struct delta_reader){
		.to = all->to, .part = all->part, .want = all->want};
	send_number(c, FRAME_CHILD, 0, false);
	if (is_coming(c) && c->client)
		send_number(c, FRAME_RESEND, c->coming, true);
	else if (is_coming(c))
		break_gathers(c, DICOMM_ERR_REMOTE, "rank 0 is gone");
}

/* The all-gather that was complete before still succeeds, as it does on the
 * other ranks. */
static void break_later_gathers(struct control *c, dicomm_result_t status,
				const char *text)
{
	keep_reason(c, status, text);
	/* The hub sends it, or the parent, for which look_at_parent() waits. */
	if (!is_coming(c) || (!c->client && !c->relay.parent))
		break_gathers(c, status, text);
}

static void notify_failed(struct control *c, dicomm_result_t status,
			  int culprit, bool gone, const char *text)
{
	struct notice *n = post(c, NOTICE_FAILED, culprit, gone);

	if (n) {
		n->status = status;
		snprintf(n->text, sizeof(n->text), "%s", text);
	}
	c->failed = true;
	break_later_gathers(c, status, text);
	loop_cond_broadcast(&c->cond);
}

/* Ends the questions to that rank (-1: to all ranks) without an answer. */
static void lose_questions(struct control *c, int rank, const char *text)
{
	for (struct question *q = c->questions; q; q = q->next) {
		if (q->answered || (rank >= 0 && q->rank != rank))
			continue;
		q->answered = true;
		q->status = DICOMM_ERR_REMOTE;
		snprintf(q->text, sizeof(q->text), "%s", text);
	}
	loop_cond_broadcast(&c->cond);
}

static bool take_failed(struct control *c, struct frame_reader *in)
{
	dicomm_result_t status = frame_status(frame_get_u32(in));
	uint32_t culprit = frame_get_u32(in);
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in) || culprit >= (uint32_t)c->ranks)
		return false;
	notify_failed(c, status, (int)culprit, false, text);
	return true;
}

static bool take_died(struct control *c, struct frame_reader *in)
{
	uint32_t rank = frame_get_u32(in);
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in) || rank >= (uint32_t)c->ranks)
		return false;
	notify_failed(c, DICOMM_ERR_REMOTE, (int)rank, true, text);
	lose_questions(c, (int)rank, text);
	return true;
}

static void left(struct control *c, int rank)
{
	char text[FRAME_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) has left", rank,
		 where(c, rank));
	post(c, NOTICE_LEFT, rank, true);
	break_later_gathers(c, DICOMM_ERR_REMOTE, text);
	lose_questions(c, rank, text);
}

static bool take_left(struct control *c, struct frame_reader *in)
{
	uint32_t rank = frame_get_u32(in);

	if (!frame_done(in) || rank >= (uint32_t)c->ranks)
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
	drop_client(c);
	left(c, 0);
	lose_questions(c, -1, "rank 0 has left");
	return true;
}

static bool take_gathered(struct control *c, struct frame_reader *in)
{
	struct gathering *g = &c->gathering;
	uint64_t number = frame_get_u64(in);
	size_t n;
	const uint8_t *data = frame_get_rest(in, &n);

	if (!frame_done(in))
		return false;
	if (!g->active || g->done || number != g->number)
		return true; /* the caller has given up */
	if (!delta_take(&g->all, data, n))
		return false;
	if (g->all.got == g->all.want)
		finish_gathering(c, DICOMM_SUCCESS, "");
	return true;
}

static bool take_relay(struct control *c, struct frame_reader *in)
{
	frame_get_text(in, c->relay_address, sizeof(c->relay_address));
	c->relay_told = true;
	loop_cond_broadcast(&c->cond);
	return frame_done(in);
}

static bool take_coming(struct control *c, struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);

	if (!frame_done(in))
		return false;
	c->coming = number;
	c->coming_ns = clock_ns() + RELAY_NS;
	if (is_coming(c) && !c->relay.parent)
		send_number(c, FRAME_RESEND, number, true);
	loop_cond_broadcast(&c->cond);
	return true;
}

static bool take_gather_failed(struct control *c, struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);
	dicomm_result_t status = frame_status(frame_get_u32(in));
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in))
		return false;
	if (number == c->gathering.number)
		finish_gathering(c, status, text);
	return true;
}

static bool take_missing(struct control *c, struct frame_reader *in)
{
	struct gathering *g = &c->gathering;
	uint64_t number = frame_get_u64(in);
	char text[FRAME_TEXT];
	bool busy;

	frame_get_text(in, text, sizeof(text));
	busy = frame_get_u32(in);
	if (!frame_done(in))
		return false;
	if (g->active && number == g->number) {
		memcpy(g->missing, text, sizeof(text));
		g->busy = busy;
	}
	return true;
}

static bool take_query(struct control *c, struct frame_reader *in)
{
	uint64_t tag = frame_get_u64(in), number;
	uint32_t from = frame_get_u32(in), to = frame_get_u32(in),
		 class = frame_get_u32(in);
	struct notice *n;

	number = frame_get_u64(in);
	if (!frame_done(in) || to != (uint32_t)c->rank ||
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

static bool take_answer(struct control *c, struct frame_reader *in)
{
	uint64_t tag = frame_get_u64(in);
	uint32_t to = frame_get_u32(in), status = frame_get_u32(in);
	uint32_t known = frame_get_u32(in), signature = frame_get_u32(in);
	struct question *q = c->questions;
	char text[FRAME_TEXT];

	frame_get_text(in, text, sizeof(text));
	if (!frame_done(in) || to != (uint32_t)c->rank)
		return false;
	while (q && q->tag != tag)
		q = q->next;
	if (!q || q->answered)
		return true; /* the caller has given up */
	q->answered = true;
	q->status = status ? frame_status(status) : DICOMM_SUCCESS;
	q->known = known;
	q->signature = signature;
	memcpy(q->text, text, sizeof(text));
	loop_cond_broadcast(&c->cond);
	return true;
}

static bool take_letter(struct control *c, struct frame_reader *in)
{
	uint32_t from = frame_get_u32(in), to = frame_get_u32(in);
	uint64_t key = frame_get_u64(in);
	size_t n;
	const uint8_t *data = frame_get_rest(in, &n);

	if (!frame_done(in) || to != (uint32_t)c->rank ||
	    from >= (uint32_t)c->ranks || n > CONTROL_LETTER_MAX)
		return false;
	if (!mail_put(&c->mail, (int)from, key, data, n))
		log_warn("rank %d: no memory for a letter of rank %d: lost",
			 c->rank, (int)from);
	loop_cond_broadcast(&c->cond);
	return true;
}

static void send_told(struct control *c, uint64_t number, enum told kind,
		      const void *bytes, size_t len)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_TOLD);
	frame_put_u64(&out, number);
	frame_put_u32(&out, kind);
	frame_put_bytes(&out, bytes, len);
	conn_send(&c->client->conn, &out);
}

/* Ranks that are threads are asked one after the other: the first one tells for
 * their process. */
static bool has_told(uint64_t number)
{
	static uint64_t told[16];
	static unsigned next;

	for (unsigned i = 0; i < 16; i++)
		if (told[i] == number)
			return true;
	told[next++ % 16] = number;
	return false;
}

static bool take_inquire(struct control *c, struct frame_reader *in)
{
	uint64_t number = frame_get_u64(in);
	const char *text;
	size_t len = 0, n;

	if (!frame_done(in))
		return false;
	if (!c->client)
		return true;
	if (has_told(number)) {
		send_told(c, number, TOLD_ALREADY, NULL, 0);
		return true;
	}
	text = inquiry_text(&len);
	if (!text)
		send_told(c, number, TOLD_NOTHING, NULL, 0);
	for (size_t at = 0; text && at < len; at += n) {
		n = len - at < JOB_PORT_PART ? len - at : JOB_PORT_PART;
		send_told(c, number, at + n < len ? TOLD_PART : TOLD_LAST,
			  text + at, n);
	}
	return true;
}

/* Returns false if the frame is invalid or unexpected. */
static bool take(struct control *c, enum frame_type type,
		 struct frame_reader *in)
{
	switch (type) {
	case FRAME_FAILED:
		return take_failed(c, in);
	case FRAME_DIED:
		return take_died(c, in);
	case FRAME_LEFT:
		return take_left(c, in);
	case FRAME_BYE:
		return take_bye(c);
	case FRAME_GATHERED:
		relay_pass(&c->relay, type, in->data, in->len);
		return take_gathered(c, in);
	case FRAME_RELAY:
		return take_relay(c, in);
	case FRAME_COMING:
		return take_coming(c, in);
	case FRAME_GATHER_FAILED:
		return take_gather_failed(c, in);
	case FRAME_MISSING:
		return take_missing(c, in);
	case FRAME_QUERY:
		return take_query(c, in);
	case FRAME_ANSWER:
		return take_answer(c, in);
	case FRAME_LETTER:
		return take_letter(c, in);
	case FRAME_INQUIRE:
		return take_inquire(c, in);
	default:
		return false;
	}
}

static void frame(struct conn *conn, enum frame_type type,
		  struct frame_reader *in)
{
	struct control *c = ((struct client *)conn)->owner;

	if (!take(c, type, in))
		log_warn("rank %d: dropped an unexpected frame (%s) of rank 0",
			 c->rank, frame_type_name(type));
}

static void frame_of_parent(struct conn *conn, enum frame_type type,
			    struct frame_reader *in)
{
	struct control *c = ((struct client *)conn)->owner;

	if (type == FRAME_GATHERED) {
		c->coming_ns = clock_ns() + RELAY_NS;
		take(c, type, in);
	} else {
		log_warn("rank %d: dropped an unexpected frame (%s) of rank %d",
			 c->rank, frame_type_name(type), c->place.parent);
	}
}

static void lost_parent(struct conn *conn, const char *why)
{
	struct control *c = ((struct client *)conn)->owner;

	log_debug("rank %d: rank %d passes on nothing any more: %s", c->rank,
		  c->place.parent, why);
	leave_parent(c);
}

static void send_failed(struct control *c, dicomm_result_t status, int culprit,
			const char *text)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_FAILED);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_u32(&out, (uint32_t)culprit);
	frame_put_text(&out, text);
	conn_send(&c->client->conn, &out);
}

static void lost(struct conn *conn, const char *why)
{
	struct control *c = ((struct client *)conn)->owner;
	char text[FRAME_TEXT];

	if (why == conn_forged) {
		snprintf(text, sizeof(text),
			 "the connection of rank %d (%s) to rank 0 was cut "
			 "off: %s",
			 c->rank, where(c, c->rank), why);
		send_failed(c, DICOMM_ERR_REMOTE, c->rank, text);
		conn_linger(conn);
		c->client = NULL;
	} else {
		snprintf(text, sizeof(text), "rank 0 (%s) died: %s",
			 where(c, 0), why);
		drop_client(c);
	}
	notify_failed(c, DICOMM_ERR_REMOTE, 0, true, text);
	lose_questions(c, -1, text);
}

static dicomm_result_t check(const struct control_config *config)
{
	if (config->ranks < 1 || config->ranks > CONTROL_RANKS_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%d ranks: not between 1 and %d", config->ranks,
			    CONTROL_RANKS_MAX);
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
	mail_fini(&c->mail);
	auth_forget(c->place.key, sizeof(c->place.key));
	free(c->gone);
	free(c->where);
	free(c->names);
	free(c->spare);
	free(c);
}

/* Before other ranks rely on this one. Names come later (pack_names()). */
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
	c->relay.frame = frame_of_parent;
	c->relay.lost = lost_parent;
	c->relay.owner = c;
	*out = c;
	return DICOMM_SUCCESS;
}

static bool is_cancelled(const struct control *c)
{
	return c->cancelled && atomic_load(c->cancelled);
}

/* Waits until something changes, at most until until_ns. Returns earlier to let
 * the caller check for a cancellation. */
static void wait_some(struct control *c, uint64_t until_ns)
{
	uint64_t slice = clock_ns() + SLICE_NS;

	loop_cond_wait(&c->cond,
		       c->cancelled && slice < until_ns ? slice : until_ns);
}

/* ---- the tree ---- */

/* Tells the children where this rank listens, or that it does not. */
static void await_children(struct control *c)
{
	char address[SOCK_TEXT] = "";
	struct frame_writer out;

	log_catch(true);
	loop_lock();
	if (!relay_listen(&c->relay, &c->place, c->rank, address))
		address[0] = '\0';
	frame_begin(&out, FRAME_RELAY);
	frame_put_text(&out, address);
	tell_hub(c, &out);
	loop_unlock();
	log_catch(false);
}

/* How long to wait for the parent's address, and again for the parent. The
 * other ranks wait meanwhile, within their own time-outs. */
static uint64_t parent_ns(int timeout_ms)
{
	uint64_t share_ns = (uint64_t)timeout_ms / 4 * MS_NS;

	return timeout_ms > 0 && share_ns < RELAY_NS ? share_ns : RELAY_NS;
}

static void find_parent(struct control *c, uint64_t patience_ns)
{
	uint64_t until_ns = clock_ns() + patience_ns;
	char address[SOCK_TEXT];
	struct client *parent;

	if (c->place.children)
		await_children(c);
	if (c->place.parent < 0)
		return;
	loop_lock();
	while (c->client && !c->relay_told && !c->failed && !is_cancelled(c) &&
	       clock_ns() < until_ns)
		wait_some(c, until_ns);
	memcpy(address, c->relay_address, sizeof(address));
	loop_unlock();
	if (!address[0])
		return;
	parent = relay_connect(&c->place, c->rank, address,
			       clock_ns() + patience_ns, c->cancelled);
	if (!parent)
		return;
	loop_lock();
	if (relay_serve(&c->relay, parent))
		send_number(c, FRAME_CHILD, 1, false);
	loop_unlock();
}

/* Without memory for it, the names are used as they are: others rely on this
 * rank already. */
static void pack_names(struct control *c)
{
	struct texts *all = texts_pack(c->names[0], sizeof(c->names[0]),
				       sizeof(c->names[0]), (uint32_t)c->ranks);

	loop_lock();
	free(c->where);
	c->where = all;
	loop_unlock();
}

/* Gathers host and pid of all ranks, for messages. Some may still look for
 * their parents. */
static dicomm_result_t exchange_names(struct control *c, int timeout_ms)
{
	int more_ms = (int)(2 * parent_ns(timeout_ms) / MS_NS);
	char mine[RANK_INFO_WHERE] = "";

	if (timeout_ms > 0 && timeout_ms < INT32_MAX - more_ms)
		timeout_ms += more_ms;
	snprintf(mine, sizeof(mine), "%s", c->names[c->rank]);
	TRY(control_allgather(c, mine, c->names, sizeof(mine), timeout_ms));
	for (int r = 0; r < c->ranks; r++)
		rank_info_make_printable(c->names[r]);
	pack_names(c);
	return DICOMM_SUCCESS;
}

/* The others wait for this rank's name, and would hear only that it has left.
 * Any failure but these is told to all. */
static void report_end_of_open(struct control *c, dicomm_result_t status)
{
	char text[FRAME_TEXT];
	bool told;

	snprintf(text, sizeof(text), "%s", log_last_error());
	loop_lock();
	told = c->failed;
	loop_unlock();
	if (!told && status == DICOMM_ERR_TIMEOUT)
		control_report(c, status, c->rank, text);
	if (!told && status == DICOMM_ERR_ABORTED)
		control_report(c, DICOMM_ERR_REMOTE, c->rank, text);
}

dicomm_result_t control_open(const struct control_config *config,
			     struct control **out)
{
	struct join_result joined;
	char why[FRAME_TEXT];
	dicomm_result_t status;
	struct control *c;

	TRY(check(config));
	TRY(auth_init());
	status = loop_start();
	if (status != DICOMM_SUCCESS) {
		snprintf(why, sizeof(why), "%s", log_last_error());
		if (config->id)
			control_cannot_open(config->id, config->rank,
					    config->ranks);
		log_set_last_error(why);
		return status;
	}
	TRY(create(config, &c));
	status = join_all(config, &joined);
	if (status != DICOMM_SUCCESS) {
		free_control(c);
		return status;
	}
	c->client = joined.client;
	c->hub = joined.hub;
	c->names = joined.where;
	c->place = joined.place;
	auth_forget(joined.place.key, sizeof(joined.place.key));
	c->client->owner = c;
	c->client->conn.frame = frame;
	c->client->conn.lost = lost;
	loop_cond_init(&c->cond);
	*out = c;
	pack_names(c);
	loop_lock();
	status = conn_serve(&c->client->conn);
	loop_unlock();
	if (status != DICOMM_SUCCESS) {
		*out = NULL;
		control_close(c);
		return status;
	}
	find_parent(c, parent_ns(config->timeout_ms));
	if (!joined.named)
		status = exchange_names(c, config->timeout_ms);
	if (c->where) {
		free(c->names);
		c->names = NULL;
	}
	if (status != DICOMM_SUCCESS) {
		report_end_of_open(c, status);
		*out = NULL;
		control_close(c);
		return status;
	}
	/* All have told their names, and looked for their parents before. */
	loop_lock();
	relay_stop_listening(&c->relay);
	loop_unlock();
	return status;
}

void control_cannot_open(const dicomm_unique_id_t *id, int rank, int ranks)
{
	if (ranks < 2 || ranks > CONTROL_RANKS_MAX || rank < 0 || rank >= ranks)
		return;
	/* This needs no control thread: there may be none to be had. */
	if (auth_init() == DICOMM_SUCCESS)
		join_tell_failure(id, rank, ranks);
}

/* Returns false in a child of fork(): the connections belong to the parent. */
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

static void send_part(struct control *c, const uint8_t *data, size_t len)
{
	struct frame_writer out;
	size_t at = 0, n;

	do {
		n = len - at < GATHER_CHUNK ? len - at : GATHER_CHUNK;
		frame_begin(&out, FRAME_GATHER);
		frame_put_u64(&out, c->gathering.number);
		frame_put_u64(&out, len);
		frame_put_bytes(&out, data + at, n);
		conn_send(&c->client->conn, &out);
		at += n;
	} while (at < len);
}

static void call_waiting(const struct control *c)
{
	if (!c->events.waiting)
		return;
	loop_unlock();
	c->events.waiting(c->events.ctx);
	loop_lock();
}

/* Returns when to look again. */
static uint64_t look_at_parent(struct control *c, uint64_t now)
{
	if (!c->relay.parent || !is_coming(c))
		return UINT64_MAX;
	if (now < c->coming_ns)
		return c->coming_ns;
	log_info("rank %d: rank %d (%s) does not pass on what rank 0 sends",
		 c->rank, c->place.parent, where(c, c->place.parent));
	leave_parent(c);
	return UINT64_MAX;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Is a rank whose time is over to wait for longer? */
static bool waits_longer(struct control *c, uint64_t now, uint64_t last_ns)
{
	struct gathering *g = &c->gathering;

	/* Nobody is missing; the parent may be in trouble. */
	if (is_coming(c) && !g->late) {
		g->late = true;
		g->missing[0] = '\0';
		leave_parent(c);
		return true;
	}
	if (!g->busy || now >= last_ns)
		return false;
	log_info("rank %d: still waiting for %s", c->rank, g->missing);
	g->busy = false;
	return true;
}

static dicomm_result_t wait_gathered(struct control *c, int *timeout_ms)
{
	uint64_t until_ns = deadline(*timeout_ms);
	uint64_t last_ns = until_ns + CONTROL_BUSY_MS * MS_NS;
	uint64_t ask_ns = client_next_ask(until_ns), look_ns, now;
	struct gathering *g = &c->gathering;

	while (!g->done) {
		now = clock_ns();
		if (is_cancelled(c))
			return DICOMM_ERR_ABORTED;
		if (now >= until_ns) {
			if (!waits_longer(c, now, last_ns))
				return DICOMM_ERR_TIMEOUT;
			until_ns = deadline(LONGER_MS);
			*timeout_ms += LONGER_MS;
			ask_ns = client_next_ask(until_ns);
			continue;
		}
		if (now >= ask_ns) {
			send_number(c, FRAME_ASK_MISSING, g->number, true);
			ask_ns = client_next_ask(until_ns);
		}
		look_ns = look_at_parent(c, now);
		/* Nothing would wake this thread. */
		if (g->done)
			break;
		wait_some(c, sooner(ask_ns, look_ns));
		call_waiting(c);
	}
	return g->status;
}

/* After a rank has given up, it no longer knows which all-gather the others are
 * in. So all later ones fail too. */
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
			 "no answer of rank 0 (%s) within %d ms", where(c, 0),
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
	g->all = (struct delta_reader){
		.to = all, .part = len, .want = len * (size_t)c->ranks};
	g->missing[0] = '\0';
	g->busy = g->late = false;
	send_part(c, mine, len);
	status = wait_gathered(c, &timeout_ms);
	if (!g->done)
		give_up(c, status, timeout_ms);
	g->active = false;
	return status;
}

dicomm_result_t control_allgather(struct control *c, const void *mine,
				  void *all, size_t len, int timeout_ms)
{
	char text[FRAME_TEXT];
	dicomm_result_t status;
	bool busy;

	if (!is_ours(c))
		return fail_child(c);
	if (len > GATHER_MAX || len * (uint64_t)c->ranks > GATHER_TOTAL)
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

/* ---- at work ---- */

static void say_busy(struct control *c, const char *text)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_BUSY);
	frame_put_text(&out, text);
	tell_hub(c, &out);
}

static void beat(struct loop_source *s)
{
	struct beat *b = (struct beat *)s;

	say_busy(b->control, b->text);
	b->said = true;
	loop_deadline(s, clock_ns() + BEAT_NS);
}

static void free_beat(struct loop_source *s)
{
	free(s);
}

static void stop_beat(struct control *c)
{
	if (!c->beat)
		return;
	if (c->beat->said)
		say_busy(c, "");
	loop_drop(&c->beat->source);
	c->beat = NULL;
}

void control_busy(struct control *c, const char *text)
{
	struct beat *b = text && c->ranks > 1 ? calloc(1, sizeof(*b)) : NULL;

	if (!is_ours(c)) {
		free(b);
		return;
	}
	loop_lock();
	stop_beat(c);
	/* Without memory for it the others wait as long as for anything. */
	if (b) {
		b->source.fd = -1;
		b->source.expired = beat;
		b->source.released = free_beat;
		b->control = c;
		snprintf(b->text, sizeof(b->text), "%.60s", text);
		loop_add(&b->source);
		loop_deadline(&b->source, clock_ns() + BEAT_NS);
		c->beat = b;
	}
	loop_unlock();
}

static void ask(struct control *c, struct question *q, int rank, uint32_t class,
		uint64_t number)
{
	struct frame_writer out;

	q->tag = ++c->last_tag;
	q->rank = rank;
	q->next = c->questions;
	c->questions = q;
	frame_begin(&out, FRAME_QUERY);
	frame_put_u64(&out, q->tag);
	frame_put_u32(&out, (uint32_t)c->rank);
	frame_put_u32(&out, (uint32_t)rank);
	frame_put_u32(&out, class);
	frame_put_u64(&out, number);
	conn_send(&c->client->conn, &out);
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
	/* If a failure is the reason why there is no answer, deliver that
	 * failure before returning. */
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
			 where(c, 0));
	}
	loop_unlock();
	/* Queries serve error messages, so the caller decides what to log. */
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

static dicomm_result_t check_peer(const struct control *c, int rank)
{
	if (!is_ours(c))
		return fail_child(c);
	if (rank < 0 || rank >= c->ranks || rank == c->rank)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "letter: rank %d is not another one of %d ranks",
			    rank, c->ranks);
	return DICOMM_SUCCESS;
}

dicomm_result_t control_post(struct control *c, int to, uint64_t key,
			     const void *data, size_t len)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct frame_writer out;

	TRY(check_peer(c, to));
	if (len > CONTROL_LETTER_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "letter of %zu bytes: more than %d", len,
			    CONTROL_LETTER_MAX);
	frame_begin(&out, FRAME_LETTER);
	frame_put_u32(&out, (uint32_t)c->rank);
	frame_put_u32(&out, (uint32_t)to);
	frame_put_u64(&out, key);
	frame_put_bytes(&out, data, len);
	loop_lock();
	if (c->client)
		conn_send(&c->client->conn, &out);
	else
		status = DICOMM_ERR_REMOTE;
	loop_unlock();
	if (status != DICOMM_SUCCESS)
		return FAIL(status, "rank 0 (%s) is gone", where(c, 0));
	return status;
}

/* Sets *text if nothing can come any more. */
static dicomm_result_t fetch(struct control *c, int from, uint64_t key,
			     uint64_t until_ns, struct letter **out, char *text,
			     size_t len)
{
	bool is_gone;

	for (;;) {
		*out = mail_take(&c->mail, from, key);
		if (*out)
			return DICOMM_SUCCESS;
		if (is_cancelled(c)) {
			snprintf(text, len, "aborted by this rank");
			return DICOMM_ERR_ABORTED;
		}
		/* As in wait_answer(), the failure is delivered first. */
		if (c->failed && (!c->calls || clock_ns() >= until_ns)) {
			snprintf(text, len, "%s", c->text);
			return c->status;
		}
		is_gone = from >= 0 && control_gone(c, from);
		if (!c->failed && (is_gone || !c->client)) {
			int rank = is_gone ? from : 0;

			snprintf(text, len, "rank %d (%s) has left", rank,
				 where(c, rank));
			return DICOMM_ERR_REMOTE;
		}
		if (clock_ns() >= until_ns)
			return DICOMM_ERR_TIMEOUT;
		wait_some(c, until_ns);
		call_waiting(c);
	}
}

dicomm_result_t control_fetch(struct control *c, int *from, uint64_t key,
			      void *data, size_t len, uint64_t *age_ms,
			      uint64_t until_ns)
{
	char text[FRAME_TEXT] = "";
	dicomm_result_t status;
	struct letter *l;

	if (*from >= 0 || !is_ours(c))
		TRY(check_peer(c, *from));
	loop_lock();
	status = fetch(c, *from, key, until_ns, &l, text, sizeof(text));
	loop_unlock();
	if (status == DICOMM_SUCCESS && l->len != len) {
		snprintf(text, sizeof(text),
			 "rank %d (%s) sent a letter of %zu bytes instead of "
			 "%zu",
			 l->from, where(c, l->from), l->len, len);
		status = DICOMM_ERR_REMOTE;
	} else if (status == DICOMM_SUCCESS) {
		memcpy(data, l->data, len);
		*from = l->from;
		*age_ms = (clock_ns() - l->arrived_ns) / MS_NS;
	}
	free(l);
	if (status != DICOMM_SUCCESS && status != DICOMM_ERR_TIMEOUT)
		return FAIL(status, "%s", text);
	return status;
}

void control_report(struct control *c, dicomm_result_t status, int culprit,
		    const char *text)
{
	if (!is_ours(c))
		return;
	if (culprit < 0 || culprit >= c->ranks)
		culprit = c->rank;
	loop_lock();
	c->failed = true;
	/* This also ends this rank's own all-gather. */
	break_gathers(c, status, text);
	loop_cond_broadcast(&c->cond);
	if (c->hub)
		hub_report(c->hub, status, culprit, text);
	else if (c->client)
		send_failed(c, status, culprit, text);
	loop_unlock();
}

bool control_gone(struct control *c, int rank)
{
	return atomic_load(&c->gone[rank]);
}

const char *control_where(struct control *c, int rank)
{
	return where(c, rank);
}

static void say_bye(struct control *c)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_BYE);
	conn_send(&c->client->conn, &out);
	conn_linger(&c->client->conn);
	c->client = NULL;
}

void control_close(struct control *c)
{
	struct hub *hub;

	/* A child of fork() has a copy of the memory but no connections. */
	if (!c || !is_ours(c))
		return;
	assert(!loop_is_current_thread());
	hub = c->hub;
	loop_lock();
	c->closing = true;
	relay_close(&c->relay);
	stop_beat(c);
	if (c->client)
		say_bye(c);
	loop_unlock();
	hub_close(hub, DICOMM_SUCCESS, "");
	loop_lock();
	while (c->calls)
		loop_cond_wait(&c->cond, clock_ns() + SLICE_NS);
	loop_unlock();
	loop_cond_destroy(&c->cond);
	free_control(c);
}
