/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs that librdmacm connects: those of iWARP, for which there is no
 * other way, and where DICOMM_IB_CONNECT asks for it. The cards come first,
 * as everywhere (connect.c), and prove who both are; they tell where the
 * receiver's NIC listens. A connection there names its lane by the challenge of
 * the call, which nobody else can have before, and its strand.
 *
 * Queue pairs are made by lane.c; librdmacm is told their numbers.
 */
#include "transports/verbs/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "transports/verbs/address.h"
#include "transports/verbs/call.h"
#include "transports/verbs/connect.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/rail.h"

#define RESOLVE_MS 5000
#define BACKLOG 128
#define TRIES 16 /* for a port that is free */

/* With the lock of connect.c. */
static struct rdma_event_channel *channel;

bool verbs_cm_is_used(enum verbs_fabric fabric)
{
	return fabric == VERBS_IWARP ||
	       !strcmp(config_string(CONFIG_IB_CONNECT), "rdmacm");
}

/* Is that the address of one of the port's interfaces? */
static bool is_address_of(const char *name, uint8_t port, struct sockaddr *a)
{
	struct rdma_cm_id *id;
	bool is;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return false;
	is = !rdma_bind_addr(id, a) && id->verbs &&
	     !strcmp(ibv_get_device_name(id->verbs->device), name) &&
	     id->port_num == port;
	rdma_destroy_id(id);
	return is;
}

bool verbs_cm_find_address(const char *name, uint8_t port,
			   struct sockaddr_in *out)
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
		    !is_address_of(name, port, i->ifa_addr))
			continue;
		memcpy(out, i->ifa_addr, sizeof(*out));
		out->sin_port = 0;
		found = true;
	}
	freeifaddrs(all);
	return found;
}

dicomm_result_t verbs_cm_start(int *fd)
{
	if (!channel)
		descriptors_fill_standard();
	if (!channel)
		channel = rdma_create_event_channel();
	if (!channel || fcntl(channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: librdmacm: %m");
	*fd = channel->fd;
	return DICOMM_SUCCESS;
}

void verbs_cm_stop(void)
{
	if (channel)
		rdma_destroy_event_channel(channel);
	channel = NULL;
}

void verbs_cm_forget(void)
{
	channel = NULL;
}

dicomm_result_t verbs_cm_listen(struct verbs_rail *rail)
{
	struct verbs_nic *nic = rail->nic;
	int error = 0;

	/* The kernel chooses a port without a look at those of its own TCP. */
	for (int i = 0; i < TRIES; i++) {
		if (!rdma_create_id(channel, &rail->cm, rail, RDMA_PS_TCP) &&
		    !rdma_bind_addr(rail->cm,
				    (struct sockaddr *)&nic->address) &&
		    !rdma_listen(rail->cm, BACKLOG))
			return DICOMM_SUCCESS;
		error = errno;
		verbs_cm_close(rail->cm);
		rail->cm = NULL;
		if (error != EADDRINUSE)
			break;
	}
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: listen: %m", nic->name);
}

void verbs_cm_close(struct rdma_cm_id *id)
{
	if (id)
		rdma_destroy_id(id);
}

/* Where the NIC listens, as a GID; the port, where others have a LID. */
void verbs_cm_end(const struct verbs_rail *rail, struct verbs_end *end)
{
	memset(end->gid[0], 0, 10);
	memset(end->gid[0] + 10, 0xff, 2);
	memcpy(end->gid[0] + 12, &rail->nic->address.sin_addr, 4);
	end->lid = ntohs(rdma_get_src_port(rail->cm));
}

static bool begin(struct verbs_strand *s)
{
	struct verbs_nic *nic = s->rail->nic;
	uint8_t tos = (uint8_t)config_int(CONFIG_IB_TC);

	return !rdma_create_id(channel, &s->cm, s, RDMA_PS_TCP) &&
	       !rdma_set_option(s->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos,
				sizeof(tos)) &&
	       !rdma_resolve_addr(s->cm, (struct sockaddr *)&nic->address,
				  (struct sockaddr *)&s->cm_to, RESOLVE_MS);
}

dicomm_result_t verbs_cm_call(struct verbs_strand *s,
			      const struct verbs_end *end)
{
	s->cm_to.sin_family = AF_INET;
	s->cm_to.sin_port = htons((uint16_t)end->lid);
	memcpy(&s->cm_to.sin_addr, end->gid[0] + 12, sizeof(s->cm_to.sin_addr));
	if (begin(s))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s: rank %d (%s): begin to connect: %m",
		    s->rail->nic->name, s->lane->rank, s->lane->remote);
}

/* Here, too, the port that was chosen may be one of TCP's: try another. The old
 * identifier cannot go before its event; true: then it shall. */
static bool connect_failed(struct verbs_strand *s, const char *what, int error)
{
	const struct rdma_cm_id *id = s->cm;

	if (error == EADDRINUSE && atomic_load(&s->lane->state) < LANE_READY &&
	    s->cm_tries++ < TRIES) {
		if (begin(s))
			return true;
		what = "begin to connect again";
		error = errno;
	}
	verbs_call_failed(s, what, error ? strerror(error) : "");
	return s->cm != id;
}

/* What a connection says first. */
struct greeting {
	uint8_t challenge[VERBS_NONCE];
	uint8_t strand;
};

static struct rdma_conn_param parameters(const struct verbs_strand *s,
					 struct greeting *greeting)
{
	const struct ibv_device_attr *nic = &s->rail->nic->attr;
	const struct verbs_lane *lane = s->lane;

	memcpy(greeting->challenge, lane->challenge, VERBS_NONCE);
	greeting->strand = (uint8_t)(s - lane->strand);
	return (struct rdma_conn_param){
		.private_data = greeting,
		.private_data_len = sizeof(*greeting),
		.responder_resources = verbs_reads(nic->max_qp_rd_atom),
		.initiator_depth = verbs_reads(nic->max_qp_init_rd_atom),
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qp_num = s->qpn,
		.srq = s->rail->srq != NULL,
	};
}

/* What the kernel does for iWARP: the queue pair takes part, with what the two
 * sides have agreed on. */
static bool ready(struct verbs_strand *s)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_RTR, IBV_QPS_RTS};

	if (s->rail->nic->fabric == VERBS_IWARP)
		return true;
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		struct ibv_qp_attr attr = {.qp_state = states[i]};
		int mask;

		if (rdma_init_qp_attr(s->cm, &attr, &mask))
			return false;
		if (mask & IBV_QP_TIMEOUT)
			attr.timeout = (uint8_t)config_int(CONFIG_IB_TIMEOUT);
		if (mask & IBV_QP_RETRY_CNT)
			attr.retry_cnt =
				(uint8_t)config_int(CONFIG_IB_RETRY_CNT);
		errno = ibv_modify_qp(s->qp, &attr, mask);
		if (errno)
			return false;
	}
	return true;
}

/* Somebody connects; false: nobody waits for that one. */
static bool on_request(struct rdma_cm_event *e, struct rdma_cm_id *id)
{
	const struct rdma_conn_param *p = &e->param.conn;
	const struct greeting *theirs = p->private_data;
	struct rdma_conn_param mine;
	struct greeting greeting;
	struct verbs_strand *s = NULL;

	/* What comes has no length of its own. */
	if (theirs && p->private_data_len >= sizeof(*theirs))
		s = verbs_connect_awaited(theirs->challenge, theirs->strand);
	if (!s) {
		log_warn("verbs: a connection that nobody asked for");
		rdma_reject(id, NULL, 0);
		return false;
	}
	s->cm = id;
	id->context = s;
	mine = parameters(s, &greeting);
	if (!ready(s) || rdma_accept(id, &mine))
		verbs_call_failed(s, "accept", strerror(errno));
	return true;
}

/* Not of a lane that has been closed; see verbs_close(). */
static bool is_connecting(const struct verbs_strand *s)
{
	return atomic_load(&s->lane->state) == LANE_CONNECTING;
}

/* True: the identifier is of no use any more. */
static bool on_event(struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct verbs_strand *s = id->context;
	struct greeting greeting;
	struct rdma_conn_param p;
	const char *text = rdma_event_str(e->event);

	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (is_connecting(s) && rdma_resolve_route(id, RESOLVE_MS))
			return connect_failed(s, "route", errno);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (!is_connecting(s))
			break;
		p = parameters(s, &greeting);
		if (rdma_connect(id, &p))
			return connect_failed(s, "connect", errno);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (!is_connecting(s))
			break;
		if (!ready(s) || rdma_establish(id))
			return connect_failed(s, "establish", errno);
		verbs_call_joined(s);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		verbs_call_joined(s);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		return connect_failed(s, text, e->status < 0 ? -e->status : 0);
	default:
		log_debug("verbs: %s", text);
		break;
	}
	return false;
}

void verbs_cm_events(void)
{
	struct rdma_cm_event *e;

	while (channel && !rdma_get_cm_event(channel, &e)) {
		struct rdma_cm_id *stray = NULL;

		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST
			    ? !on_request(e, e->id)
			    : on_event(e))
			stray = e->id;
		rdma_ack_cm_event(e);
		verbs_cm_close(stray);
	}
}
