/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/control/relay.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/host.h"
#include "src/base/log.h"

/* ---- the plan ---- */

static int parent_of(const uint32_t *of, const uint32_t *first, uint32_t rank)
{
	uint32_t host = of[rank], above;

	if (!host)
		return -1;
	if (first[host] != rank)
		return (int)first[host];
	above = (host - 1) / RELAY_HOSTS;
	return above ? (int)first[above] : -1;
}

bool relay_plan(const uint64_t *host, int ranks, int *parent, int *children)
{
	uint32_t n = (uint32_t)ranks;
	uint32_t *of = calloc(n, sizeof(*of));
	uint32_t *first = calloc(n, sizeof(*first));
	bool any = false;

	if (of && first)
		host_number_all(host, sizeof(*host), n, of, first);
	memset(children, 0, n * sizeof(*children));
	for (uint32_t r = 0; r < n; r++) {
		parent[r] = of && first ? parent_of(of, first, r) : -1;
		if (parent[r] >= 0)
			children[parent[r]]++;
		any |= parent[r] >= 0;
	}
	free(of);
	free(first);
	return any;
}

/* ---- children ---- */

static void ignore_frame(struct conn *c, enum frame_type type,
			 struct frame_reader *in)
{
	(void)in;
	log_warn("%s: sent an unexpected frame (%s)", c->remote,
		 frame_type_name(type));
}

static void forget_child(struct relay *r, const struct peer_conn *peer)
{
	for (int i = 0; i < r->came; i++)
		if (r->child[i] == peer)
			r->child[i] = NULL;
}

static void lost_child(struct conn *c, const char *why)
{
	struct peer_conn *peer = (struct peer_conn *)c;

	log_debug("%s: gets no results from here any more: %s", c->remote, why);
	forget_child(peer->owner, peer);
	conn_drop(c);
}

static void admit(void *owner, struct peer_conn *peer, struct frame_reader *in)
{
	struct frame_writer out;
	struct relay *r = owner;
	uint32_t parent;

	peer->rank = (int)frame_get_u32(in);
	parent = frame_get_u32(in);
	peer->owner = r;
	peer->conn.frame = ignore_frame;
	peer->conn.lost = lost_child;
	/* Hosts may have the same address, each in a network of its own. */
	if (!frame_done(in) || parent != (uint32_t)r->rank ||
	    r->came == r->children) {
		conn_drop(&peer->conn);
		return;
	}
	r->child[r->came++] = peer;
	frame_begin(&out, FRAME_START);
	conn_send(&peer->conn, &out);
}

bool relay_listen(struct relay *r, const struct relay_place *place, int rank,
		  char address[SOCK_TEXT])
{
	char why[FRAME_TEXT];
	dicomm_result_t status;
	int fd;

	if (!sock_make_room((uint32_t)place->children + 1, 0, why, sizeof(why)))
		return false;
	r->child = calloc((size_t)place->children, sizeof(*r->child));
	if (!r->child)
		return false;
	r->rank = rank;
	r->children = place->children;
	status = sock_listen_locked(&fd, address);
	if (status == DICOMM_SUCCESS)
		status = listener_open(fd, place->key, "relay", &r->listener);
	if (status != DICOMM_SUCCESS)
		return false;
	r->listener->admit = admit;
	r->listener->owner = r;
	return true;
}

void relay_pass(struct relay *r, enum frame_type type, const uint8_t *data,
		size_t len)
{
	struct frame_writer out;

	if (!r->came)
		return;
	frame_begin(&out, type);
	frame_put_bytes(&out, data, len);
	for (int i = 0; i < r->came; i++)
		if (r->child[i])
			conn_send(&r->child[i]->conn, &out);
}

void relay_stop_listening(struct relay *r)
{
	listener_close(r->listener);
	r->listener = NULL;
}

void relay_leave_children(struct relay *r)
{
	relay_stop_listening(r);
	for (int i = 0; i < r->came; i++)
		if (r->child[i])
			conn_linger(&r->child[i]->conn);
	free(r->child);
	r->child = NULL;
	r->came = r->children = 0;
}

/* ---- the parent ---- */

static bool is_welcome(struct client *c, const struct relay_place *place,
		       int rank, const struct client_patience *p, char *why)
{
	struct frame_writer out;
	struct frame_reader in;
	enum frame_type type;
	struct client *from;

	frame_begin(&out, FRAME_JOIN);
	frame_put_u32(&out, (uint32_t)rank);
	frame_put_u32(&out, (uint32_t)place->parent);
	client_send(c, &out);
	return client_next(c, NULL, p->until_ns, p->cancelled, &from, &type,
			   &in, why) == DICOMM_SUCCESS &&
	       type == FRAME_START;
}

struct client *relay_connect(const struct relay_place *place, int rank,
			     const char *address, uint64_t until_ns,
			     const _Atomic bool *cancelled)
{
	struct client_patience p = {.until_ns = until_ns,
				    .cancelled = cancelled};
	char why[FRAME_TEXT] = "it refuses";
	struct client *c = NULL;

	if (client_open(address, place->key, &p, &c, why) == DICOMM_SUCCESS &&
	    is_welcome(c, place, rank, &p, why))
		return c;
	log_info("rank %d: rank %d at %s cannot pass on what rank 0 sends: %s",
		 rank, place->parent, address, why);
	client_close(c);
	return NULL;
}

bool relay_serve(struct relay *r, struct client *parent)
{
	parent->owner = r->owner;
	parent->conn.frame = r->frame;
	parent->conn.lost = r->lost;
	r->parent = parent;
	if (conn_serve(&parent->conn) != DICOMM_SUCCESS)
		relay_drop_parent(r);
	return r->parent != NULL;
}

void relay_drop_parent(struct relay *r)
{
	if (r->parent)
		conn_drop(&r->parent->conn);
	r->parent = NULL;
}

void relay_close(struct relay *r)
{
	relay_drop_parent(r);
	relay_leave_children(r);
}
