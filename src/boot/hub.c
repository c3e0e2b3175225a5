/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0's side of the star: joining, goodbyes, deaths, failures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/gather.h"
#include "src/boot/hub.h"
#include "src/boot/roster.h"

#define AFTER_FAILURE_NS 5000000000ull /* late-comers can still ask why */
#define QUEUED_MAX (1 << 20) /* bytes unread by a rank before queries drop */

struct hub {
	struct loop_source source; /* its life, and a deadline at its end */
	struct gate *gate;         /* NULL once all have come */
	struct roster roster;
	struct gather gather;
	bool started;
};

static void expired(struct loop_source *s)
{
	struct hub *hub = (struct hub *)s;

	gate_close(hub->gate);
	hub->gate = NULL;
	loop_drop(s);
}

static void released(struct loop_source *s)
{
	struct hub *hub = (struct hub *)s;

	gather_fini(&hub->gather);
	roster_fini(&hub->roster);
	free(hub);
}

static const char *where(const struct hub *hub, int rank)
{
	return hub->roster.seats[rank].where;
}

static void broadcast_text(struct hub *hub, enum wire_type type, int rank,
			   const char *text)
{
	struct wire_out out;

	wire_begin(&out, type);
	wire_put_u32(&out, (uint32_t)rank);
	if (text)
		wire_put_text(&out, text);
	wire_end(&out);
	roster_broadcast(&hub->roster, &out, NULL);
}

static void lost(struct conn *c, const char *why)
{
	struct guest *guest = (struct guest *)c;
	struct hub *hub = guest->owner;
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) died: %s", guest->rank,
		 where(hub, guest->rank), why);
	hub->roster.seats[guest->rank].guest = NULL;
	conn_drop(c);
	if (hub->started)
		broadcast_text(hub, WIRE_DIED, guest->rank, text);
	else
		roster_fail(&hub->roster, DICOMM_ERR_REMOTE, guest->rank, text);
}

static void leave(struct hub *hub, struct guest *guest)
{
	hub->roster.seats[guest->rank].guest = NULL;
	conn_linger(&guest->conn);
	if (hub->started)
		broadcast_text(hub, WIRE_LEFT, guest->rank, NULL);
	else
		roster_fail(&hub->roster, DICOMM_ERR_REMOTE, guest->rank,
			    "a rank left before all had come");
}

static void give_up(struct hub *hub, struct guest *guest, struct wire_in *in)
{
	dicomm_result_t status = roster_status(wire_u32(in));
	char text[WIRE_TEXT], said[WIRE_TEXT];

	wire_text(in, said, sizeof(said));
	snprintf(text, sizeof(text), "rank %d (%s) gave up: %.800s",
		 guest->rank, where(hub, guest->rank), said);
	if (!hub->started)
		roster_fail(&hub->roster,
			    status == DICOMM_ERR_ABORTED ? DICOMM_ERR_REMOTE
							 : status,
			    guest->rank, text);
	leave(hub, guest);
}

/* All ranks, then "start", as one run of bytes that every connection shares. */
static struct conn_shared *make_roster(const struct hub *hub)
{
	const int per_frame = WIRE_MAX / (HELLO_WHERE + 2) - 1;
	int ranks = hub->roster.ranks, frames = ranks / per_frame + 2;
	struct conn_shared *shared;
	struct wire_out out;
	uint8_t *data;
	size_t len = (size_t)ranks * (HELLO_WHERE + 2) + (size_t)frames * 32;

	data = malloc(len);
	if (!data)
		return NULL;
	len = 0;
	for (int first = 0; first < ranks; first += per_frame) {
		int n = ranks - first < per_frame ? ranks - first : per_frame;

		wire_begin(&out, WIRE_ROSTER);
		wire_put_u32(&out, (uint32_t)first);
		wire_put_u32(&out, (uint32_t)n);
		for (int i = 0; i < n; i++)
			wire_put_text(&out, where(hub, first + i));
		wire_end(&out);
		memcpy(data + len, out.data, out.len);
		len += out.len;
	}
	wire_begin(&out, WIRE_START);
	wire_end(&out);
	memcpy(data + len, out.data, out.len);
	shared = conn_shared_take(data, len + out.len);
	return shared;
}

static void start(struct hub *hub)
{
	struct conn_shared *shared = make_roster(hub);

	if (!shared || !gather_init(&hub->gather, &hub->roster)) {
		conn_shared_release(shared);
		roster_fail(&hub->roster, DICOMM_ERR_NO_MEMORY, 0,
			    "rank 0: out of memory for the control plane");
		return;
	}
	for (int i = 0; i < hub->roster.ranks; i++)
		conn_send_shared(&hub->roster.seats[i].guest->conn, shared);
	conn_shared_release(shared);
	hub->started = true;
	gate_close(hub->gate);
	hub->gate = NULL;
}

static void answer_gone(struct hub *hub, struct guest *asker, uint64_t tag,
			int rank)
{
	struct wire_out out;
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text), "rank %d (%s) is gone", rank,
		 where(hub, rank));
	wire_begin(&out, WIRE_ANSWER);
	wire_put_u64(&out, tag);
	wire_put_u32(&out, (uint32_t)asker->rank);
	wire_put_u32(&out, DICOMM_ERR_REMOTE);
	wire_put_u32(&out, 0);
	wire_put_u32(&out, 0);
	wire_put_text(&out, text);
	wire_end(&out);
	conn_send(&asker->conn, &out);
}

static void pass_on(struct guest *to, const struct wire_out *out)
{
	/* A stopped process must not make us hoard; the asker's wait ends by
	 * itself. */
	if (to->conn.out_len < QUEUED_MAX)
		conn_send(&to->conn, out);
}

static bool query(struct hub *hub, struct guest *guest, struct wire_in *in)
{
	uint64_t tag = wire_u64(in), number;
	uint32_t to, class;
	struct wire_out out;

	wire_u32(in); /* who asks is known from the connection */
	to = wire_u32(in);
	class = wire_u32(in);
	number = wire_u64(in);
	if (!wire_done(in) || to >= (uint32_t)hub->roster.ranks)
		return false;
	if (!hub->roster.seats[to].guest) {
		answer_gone(hub, guest, tag, (int)to);
		return true;
	}
	wire_begin(&out, WIRE_QUERY);
	wire_put_u64(&out, tag);
	wire_put_u32(&out, (uint32_t)guest->rank);
	wire_put_u32(&out, to);
	wire_put_u32(&out, class);
	wire_put_u64(&out, number);
	wire_end(&out);
	pass_on(hub->roster.seats[to].guest, &out);
	return true;
}

static bool answer(struct hub *hub, struct wire_in *in)
{
	uint64_t tag = wire_u64(in);
	uint32_t to = wire_u32(in), status = wire_u32(in);
	uint32_t known = wire_u32(in), signature = wire_u32(in);
	struct wire_out out;
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in) || to >= (uint32_t)hub->roster.ranks)
		return false;
	if (!hub->roster.seats[to].guest)
		return true;
	wire_begin(&out, WIRE_ANSWER);
	wire_put_u64(&out, tag);
	wire_put_u32(&out, to);
	wire_put_u32(&out, status);
	wire_put_u32(&out, known);
	wire_put_u32(&out, signature);
	wire_put_text(&out, text);
	wire_end(&out);
	pass_on(hub->roster.seats[to].guest, &out);
	return true;
}

static void tell_failed(struct hub *hub, const struct guest *except,
			uint32_t status, uint32_t culprit, const char *text)
{
	struct wire_out out;

	wire_begin(&out, WIRE_FAILED);
	wire_put_u32(&out, status);
	wire_put_u32(&out, culprit);
	wire_put_text(&out, text);
	wire_end(&out);
	roster_broadcast(&hub->roster, &out, except);
}

static bool flood(struct hub *hub, struct guest *guest, struct wire_in *in)
{
	uint32_t status = wire_u32(in), culprit = wire_u32(in);
	char text[WIRE_TEXT];

	wire_text(in, text, sizeof(text));
	if (!wire_done(in) || culprit >= (uint32_t)hub->roster.ranks)
		return false;
	tell_failed(hub, guest, status, culprit, text);
	return true;
}

void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text)
{
	tell_failed(hub, hub->roster.seats[0].guest, (uint32_t)status,
		    (uint32_t)culprit, text);
}

static bool who(struct hub *hub, struct guest *guest, struct wire_in *in)
{
	uint64_t number = wire_u64(in);

	if (!wire_done(in))
		return false;
	roster_tell_awaited(&hub->roster, guest, number);
	return true;
}

/* False: a frame that makes no sense now. */
static bool take(struct hub *hub, struct guest *guest, enum wire_type type,
		 struct wire_in *in)
{
	switch (type) {
	case WIRE_WHO:
		return who(hub, guest, in);
	case WIRE_GAVE_UP:
		give_up(hub, guest, in);
		return true;
	case WIRE_BYE:
		leave(hub, guest);
		return true;
	case WIRE_GATHER:
		return hub->started &&
		       gather_take(&hub->gather, guest->rank, in);
	case WIRE_QUERY:
		return hub->started && query(hub, guest, in);
	case WIRE_ANSWER:
		return hub->started && answer(hub, in);
	case WIRE_FAILED:
		return hub->started && flood(hub, guest, in);
	default:
		return false;
	}
}

static void frame(struct conn *c, enum wire_type type, struct wire_in *in)
{
	struct guest *guest = (struct guest *)c;
	struct hub *hub = guest->owner;

	if (!take(hub, guest, type, in))
		log_warn("rank 0: dropped a frame (%s) of rank %d (%s)",
			 wire_type_name(type), guest->rank,
			 where(hub, guest->rank));
}

static void admit(void *owner, struct guest *guest, struct wire_in *in)
{
	struct hub *hub = owner;
	struct hello h;

	hello_get(in, &h);
	if (!wire_done(in)) {
		log_warn("rank 0: refused %s: its hello does not parse",
			 guest->conn.peer);
		gate_refuse(guest, DICOMM_ERR_INVALID_USAGE,
			    "this hello does not parse here");
		return;
	}
	guest->owner = hub;
	guest->conn.frame = frame;
	guest->conn.lost = lost;
	if (roster_sit(&hub->roster, guest, &h) &&
	    hub->roster.came == hub->roster.ranks)
		start(hub);
}

dicomm_result_t hub_open(const struct hello *self, const uint8_t key[AUTH_KEY],
			 char address[SOCK_TEXT], struct hub **out)
{
	struct hub *hub;
	dicomm_result_t status;
	int fd;

	TRY(sock_listen(&fd, address));
	hub = calloc(1, sizeof(*hub));
	if (!hub || !roster_begin(&hub->roster, self)) {
		close(fd);
		free(hub);
		return FAIL(DICOMM_ERR_NO_MEMORY, "out of memory for %u ranks",
			    self->ranks);
	}
	hub->source.fd = -1;
	hub->source.expired = expired;
	hub->source.released = released;
	loop_lock();
	status = gate_open(fd, key, "rank 0", &hub->gate);
	if (status == DICOMM_SUCCESS) {
		hub->gate->admit = admit;
		hub->gate->owner = hub;
		loop_add(&hub->source);
		*out = hub;
	} else {
		roster_fini(&hub->roster);
		free(hub);
	}
	loop_unlock();
	return status;
}

static void say_goodbye(struct hub *hub)
{
	struct wire_out out;

	wire_begin(&out, WIRE_BYE);
	wire_end(&out);
	roster_broadcast(&hub->roster, &out, NULL);
}

void hub_close(struct hub *hub, dicomm_result_t status, const char *why)
{
	if (!hub)
		return;
	loop_lock();
	if (hub->started)
		say_goodbye(hub);
	else
		roster_fail(&hub->roster, status, 0, why);
	for (int i = 0; i < hub->roster.ranks; i++) {
		if (hub->roster.seats[i].guest)
			conn_linger(&hub->roster.seats[i].guest->conn);
		hub->roster.seats[i].guest = NULL;
	}
	if (hub->gate)
		loop_deadline(&hub->source, clock_ns() + AFTER_FAILURE_NS);
	else
		loop_drop(&hub->source);
	loop_unlock();
}
