/* SPDX-License-Identifier: BSD-3-Clause */
/* The meeting of an id, served by the control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/boot/meeting.h"
#include "src/boot/roster.h"

#define SECOND_NS 1000000000ull
#define FAILED_NS                                                  \
	(10 * SECOND_NS) /* how long late-comers can still ask why \
			  */

struct meeting {
	struct loop_source source; /* its deadline, and its life */
	struct gate *gate;         /* NULL once all have come */
	struct roster roster;
	int guests; /* connected now */
	char address[SOCK_TEXT];
	char hub[SOCK_TEXT];
	uint8_t nonce[AUTH_NONCE];
	struct meeting *next, **link;
};

static struct meeting *meetings; /* of this process */

static void end(struct meeting *m)
{
	if (m->source.dead)
		return;
	for (int i = 0; i < m->roster.ranks; i++)
		if (m->roster.seats[i].guest)
			conn_linger(&m->roster.seats[i].guest->conn);
	gate_close(m->gate);
	m->gate = NULL;
	*m->link = m->next;
	if (m->next)
		m->next->link = m->link;
	loop_drop(&m->source);
}

static void prolong(struct meeting *m)
{
	uint64_t s = (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT);

	loop_deadline(&m->source,
		      clock_ns() +
			      (m->roster.failed ? FAILED_NS : s * SECOND_NS));
}

static void fail(struct meeting *m, dicomm_result_t status, int culprit,
		 const char *text)
{
	roster_fail(&m->roster, status, culprit, text);
	prolong(m);
}

static void expired(struct loop_source *s)
{
	struct meeting *m = (struct meeting *)s;

	/* Those who wait have a time-out of their own, and may be patient. */
	if (m->guests && !m->roster.failed) {
		prolong(m);
		return;
	}
	log_debug("meeting at %s: over", m->address);
	end(m);
}

static void released(struct loop_source *s)
{
	struct meeting *m = (struct meeting *)s;

	roster_fini(&m->roster);
	free(m);
}

static void unseat(struct meeting *m, struct guest *guest)
{
	m->roster.seats[guest->rank].guest = NULL;
	m->guests--;
	conn_linger(&guest->conn);
	if (!m->gate && !m->guests)
		end(m);
}

static void give_up(struct meeting *m, struct guest *guest, struct wire_in *in)
{
	dicomm_result_t status = roster_status(wire_u32(in));
	char text[WIRE_TEXT], said[WIRE_TEXT];

	wire_text(in, said, sizeof(said));
	/* What another rank found is as true here; that it was aborted there
	 * is not. */
	if (status == DICOMM_ERR_ABORTED)
		status = DICOMM_ERR_REMOTE;
	if (status == DICOMM_ERR_REMOTE)
		snprintf(text, sizeof(text), "rank %d (%s) gave up: %.800s",
			 guest->rank, m->roster.seats[guest->rank].where, said);
	else
		snprintf(text, sizeof(text), "%s", said);
	fail(m, status, guest->rank, text);
	unseat(m, guest);
}

static void frame(struct conn *c, enum wire_type type, struct wire_in *in)
{
	struct guest *guest = (struct guest *)c;
	struct meeting *m = guest->owner;

	if (type == WIRE_WHO)
		roster_tell_awaited(&m->roster, guest, 0);
	else if (type == WIRE_BYE)
		unseat(m, guest);
	else if (type == WIRE_GAVE_UP)
		give_up(m, guest, in);
	else
		log_warn("meeting: rank %d (%s) sent an unexpected frame (%s)",
			 guest->rank, m->roster.seats[guest->rank].where,
			 wire_type_name(type));
}

static void lost(struct conn *c, const char *why)
{
	struct guest *guest = (struct guest *)c;
	struct meeting *m = guest->owner;
	char text[WIRE_TEXT];

	snprintf(text, sizeof(text),
		 "rank %d (%s) died while the ranks met: %s", guest->rank,
		 m->roster.seats[guest->rank].where, why);
	m->roster.seats[guest->rank].guest = NULL;
	m->guests--;
	conn_drop(c);
	fail(m, DICOMM_ERR_REMOTE, guest->rank, text);
	if (!m->gate && !m->guests)
		end(m);
}

static void send_all_to_hub(struct meeting *m)
{
	struct wire_out out;

	wire_begin(&out, WIRE_GO);
	wire_put_text(&out, m->hub);
	wire_put_bytes(&out, m->nonce, sizeof(m->nonce));
	wire_end(&out);
	roster_broadcast(&m->roster, &out, NULL);
	gate_close(m->gate);
	m->gate = NULL;
}

static void admit(void *owner, struct guest *guest, struct wire_in *in)
{
	struct meeting *m = owner;
	char hub[SOCK_TEXT];
	uint8_t nonce[AUTH_NONCE];
	struct hello h;

	hello_get(in, &h);
	wire_text(in, hub, sizeof(hub));
	wire_bytes(in, nonce, sizeof(nonce));
	if (!wire_done(in)) {
		log_warn("meeting: refused %s: its hello does not parse",
			 guest->conn.peer);
		gate_refuse(guest, DICOMM_ERR_INVALID_USAGE,
			    "this hello does not parse here");
		return;
	}
	guest->owner = m;
	guest->conn.frame = frame;
	guest->conn.lost = lost;
	if (!roster_sit(&m->roster, guest, &h)) {
		prolong(m);
		return;
	}
	m->guests++;
	if (h.rank == 0) {
		memcpy(m->hub, hub, sizeof(hub));
		memcpy(m->nonce, nonce, sizeof(nonce));
	}
	prolong(m);
	/* Without a hub rank 0 says why, next. */
	if (m->roster.came == m->roster.ranks && *m->hub)
		send_all_to_hub(m);
}

dicomm_result_t meeting_open(int fd, const uint8_t key[AUTH_KEY],
			     const char *address)
{
	struct meeting *m = calloc(1, sizeof(*m));
	dicomm_result_t status;

	if (!m) {
		close(fd);
		return FAIL(DICOMM_ERR_NO_MEMORY, "meeting: out of memory");
	}
	m->source.fd = -1;
	m->source.expired = expired;
	m->source.released = released;
	snprintf(m->address, sizeof(m->address), "%s", address);
	loop_lock();
	status = gate_open(fd, key, "meeting", &m->gate);
	if (status != DICOMM_SUCCESS) {
		free(m);
		goto unlock;
	}
	m->gate->admit = admit;
	m->gate->owner = m;
	loop_add(&m->source);
	m->next = meetings;
	m->link = &meetings;
	if (m->next)
		m->next->link = &m->next;
	meetings = m;
	prolong(m);
unlock:
	loop_unlock();
	return status;
}

/* Have all been told? What the kernel has taken arrives, even if this process
 * ends then. */
static bool is_settled(struct meeting *m, bool all)
{
	struct roster *r = &m->roster;

	if (!r->failed || (all && r->came + r->refused < r->ranks))
		return false;
	for (int i = 0; i < r->ranks; i++)
		if (r->seats[i].guest &&
		    conn_flush(&r->seats[i].guest->conn) == EAGAIN)
			return false;
	return true;
}

static struct meeting *find(const char *address)
{
	struct meeting *m = meetings;

	while (m && (m->source.dead || strcmp(m->address, address) != 0))
		m = m->next;
	return m;
}

bool meeting_is_open(const char *address)
{
	const struct meeting *m = find(address);

	return m && m->gate;
}

void meeting_settle(const char *address, bool all, uint64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct meeting *m;
	bool settled;

	for (;;) {
		loop_lock();
		m = find(address);
		settled = !m || is_settled(m, all);
		loop_unlock();
		if (settled || clock_ns() >= until_ns)
			return;
		nanosleep(&pause, NULL);
	}
}

static void end_those(const char *address, bool failed)
{
	struct meeting *m, *next;

	loop_lock();
	for (m = meetings; m; m = next) {
		next = m->next;
		if ((m->roster.failed || !failed) &&
		    !strcmp(m->address, address))
			end(m);
	}
	loop_unlock();
}

void meeting_end_failed(const char *address)
{
	end_those(address, true);
}

void meeting_end(const char *address)
{
	end_those(address, false);
}
