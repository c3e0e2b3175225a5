/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects queue pairs by librdmacm: all those of iWARP, since there is no
 * other way, and others if DICOMM_IB_CONNECT says so.
 *
 * Request and reply are exchanged first, as always (exchange.c). They prove who
 * both ranks are, and the reply tells where the receiver's NIC listens. A
 * connection of librdmacm then names its channel by the challenge of the
 * request, which nobody else knows, and its queue pair by index.
 *
 * channel/qp.c creates the queue pairs. librdmacm is told their numbers.
 */
#include "transports/verbs/connection/rdma_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#include "src/base/descriptors.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/connection/conn.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

#define RESOLVE_MS 5000
#define BACKLOG 128
#define TRIES 16 /* attempts to find a free port */

/* Guarded by verbs_lock(). */
static struct rdma_event_channel *event_channel;

/* The queue pair is connected. After the last one the channel is ready. */
static void connected(struct verbs_qp *qp)
{
	struct verbs_channel *channel = qp->channel;

	if (!channel->conn || channel->conn->stage != CONN_AWAITING_RDMA_CM)
		return;
	qp->rdma_cm_done = true;
	for (uint32_t i = 0; i < channel->qps; i++)
		if (!channel->qp[i].rdma_cm_done)
			return;
	channel->conn->stage = CONN_OPEN;
	channel->conn->deadline_ms = 0;
	atomic_store_explicit(&channel->state, CHANNEL_READY,
			      memory_order_release);
}

static void fail_channel(struct verbs_qp *qp, const char *what, const char *why)
{
	struct verbs_channel *channel = qp->channel;
	char text[256];

	if (atomic_load(&channel->state) != CHANNEL_CONNECTING)
		return;
	if (channel->conn)
		channel->conn->deadline_ms = 0;
	snprintf(text, sizeof(text), "verbs %.40s: rank %d (%s): %.40s: %.60s",
		 qp->rail->nic->name, channel->rank, channel->remote, what,
		 why);
	verbs_channel_failed(channel, DICOMM_ERR_REMOTE, text);
}

dicomm_result_t verbs_rdma_cm_start(int *fd)
{
	if (!event_channel) {
		descriptors_fill_standard();
		event_channel = rdma_create_event_channel();
	}
	if (!event_channel || fcntl(event_channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: librdmacm: %m");
	*fd = event_channel->fd;
	return DICOMM_SUCCESS;
}

void verbs_rdma_cm_stop(void)
{
	if (event_channel)
		rdma_destroy_event_channel(event_channel);
	event_channel = NULL;
}

void verbs_rdma_cm_reset(void)
{
	event_channel = NULL;
}

dicomm_result_t verbs_rdma_cm_listen(struct verbs_rail *rail)
{
	struct verbs_nic *nic = rail->nic;
	int error = 0;

	/* The kernel may choose a port that its TCP uses. Then try again. */
	for (int i = 0; i < TRIES; i++) {
		if (!rdma_create_id(event_channel, &rail->cm, rail,
				    RDMA_PS_TCP) &&
		    !rdma_bind_addr(rail->cm,
				    (struct sockaddr *)&nic->address) &&
		    !rdma_listen(rail->cm, BACKLOG))
			return DICOMM_SUCCESS;
		error = errno;
		verbs_rdma_cm_close(rail->cm);
		rail->cm = NULL;
		if (error != EADDRINUSE)
			break;
	}
	errno = error;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: listen: %m", nic->name);
}

void verbs_rdma_cm_close(struct rdma_cm_id *id)
{
	if (id)
		rdma_destroy_id(id);
}

/* Fill in the reply: gid[0] is the address of the NIC as an IPv4-mapped GID,
 * lid is the port. */
void verbs_rdma_cm_address(const struct verbs_rail *rail,
			   struct verbs_qp_address *end)
{
	memset(end->gid[0], 0, 10);
	memset(end->gid[0] + 10, 0xff, 2);
	memcpy(end->gid[0] + 12, &rail->nic->address.sin_addr, 4);
	end->lid = ntohs(rdma_get_src_port(rail->cm));
}

static bool begin(struct verbs_qp *qp)
{
	struct verbs_nic *nic = qp->rail->nic;
	uint8_t tos = (uint8_t)config_int(CONFIG_IB_TC);

	return !rdma_create_id(event_channel, &qp->cm, qp, RDMA_PS_TCP) &&
	       !rdma_set_option(qp->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
				&tos, sizeof(tos)) &&
	       !rdma_resolve_addr(qp->cm, (struct sockaddr *)&nic->address,
				  (struct sockaddr *)&qp->cm_to, RESOLVE_MS);
}

dicomm_result_t verbs_rdma_cm_connect(struct verbs_qp *qp,
				      const struct verbs_qp_address *end)
{
	qp->cm_to.sin_family = AF_INET;
	qp->cm_to.sin_port = htons((uint16_t)end->lid);
	memcpy(&qp->cm_to.sin_addr, end->gid[0] + 12,
	       sizeof(qp->cm_to.sin_addr));
	if (begin(qp))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s: rank %d (%s): begin to connect: %m",
		    qp->rail->nic->name, qp->channel->rank,
		    qp->channel->remote);
}

/* Handle a failed attempt. The local port that the kernel chose may be in use
 * by TCP; then try another. Returns true if the caller has to destroy the old
 * identifier, after its event is acknowledged. */
static bool connect_failed(struct verbs_qp *qp, const char *what, int error)
{
	const struct rdma_cm_id *id = qp->cm;

	if (error == EADDRINUSE &&
	    atomic_load(&qp->channel->state) < CHANNEL_READY &&
	    qp->cm_tries++ < TRIES) {
		if (begin(qp))
			return true;
		what = "begin to connect again";
		error = errno;
	}
	fail_channel(qp, what, error ? strerror(error) : "");
	return qp->cm != id;
}

/* The private data of a connection. */
struct greeting {
	uint8_t challenge[VERBS_NONCE];
	uint8_t qp;
};

static struct rdma_conn_param parameters(const struct verbs_qp *qp,
					 struct greeting *greeting)
{
	const struct ibv_device_attr *nic = &qp->rail->nic->attr;
	const struct verbs_channel *channel = qp->channel;

	memcpy(greeting->challenge, channel->challenge, VERBS_NONCE);
	greeting->qp = (uint8_t)(qp - channel->qp);
	return (struct rdma_conn_param){
		.private_data = greeting,
		.private_data_len = sizeof(*greeting),
		.responder_resources = verbs_reads(nic->max_qp_rd_atom),
		.initiator_depth = verbs_reads(nic->max_qp_init_rd_atom),
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qp_num = qp->qpn,
		.srq = qp->rail->srq != NULL,
	};
}

/* Bring the queue pair to RTS with the parameters that both sides have agreed
 * on. For iWARP the kernel does that. */
static bool ready(struct verbs_qp *qp)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_RTR, IBV_QPS_RTS};

	if (qp->rail->nic->fabric == VERBS_IWARP)
		return true;
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
		struct ibv_qp_attr attr = {.qp_state = states[i]};
		int mask;

		if (rdma_init_qp_attr(qp->cm, &attr, &mask))
			return false;
		if (mask & IBV_QP_TIMEOUT)
			attr.timeout = (uint8_t)config_int(CONFIG_IB_TIMEOUT);
		if (mask & IBV_QP_RETRY_CNT)
			attr.retry_cnt =
				(uint8_t)config_int(CONFIG_IB_RETRY_CNT);
		errno = ibv_modify_qp(qp->ibv, &attr, mask);
		if (errno)
			return false;
	}
	return true;
}

/* A peer connects. Returns false if no queue pair waits for it. */
static bool on_request(struct rdma_cm_event *e, struct rdma_cm_id *id)
{
	const struct rdma_conn_param *p = &e->param.conn;
	const struct greeting *theirs = p->private_data;
	struct rdma_conn_param mine;
	struct greeting greeting;
	struct verbs_qp *qp = NULL;

	/* The reported length may be more than the peer has sent. */
	if (theirs && p->private_data_len >= sizeof(*theirs))
		qp = verbs_conn_awaiting(theirs->challenge, theirs->qp);
	if (!qp) {
		log_warn("verbs: librdmacm: a connection without a request is "
			 "rejected");
		rdma_reject(id, NULL, 0);
		return false;
	}
	qp->cm = id;
	id->context = qp;
	mine = parameters(qp, &greeting);
	if (!ready(qp) || rdma_accept(id, &mine))
		fail_channel(qp, "accept", strerror(errno));
	return true;
}

/* Returns false if the channel was closed meanwhile; see close_channel()
 * in verbs.c. */
static bool is_connecting(const struct verbs_qp *qp)
{
	return atomic_load(&qp->channel->state) == CHANNEL_CONNECTING;
}

/* Returns true if the identifier has to be destroyed. */
static bool on_event(struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct verbs_qp *qp = id->context;
	struct greeting greeting;
	struct rdma_conn_param p;
	const char *text = rdma_event_str(e->event);

	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (is_connecting(qp) && rdma_resolve_route(id, RESOLVE_MS))
			return connect_failed(qp, "route", errno);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (!is_connecting(qp))
			break;
		p = parameters(qp, &greeting);
		if (rdma_connect(id, &p))
			return connect_failed(qp, "connect", errno);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (!is_connecting(qp))
			break;
		if (!ready(qp) || rdma_establish(id))
			return connect_failed(qp, "establish", errno);
		connected(qp);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		connected(qp);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		return connect_failed(qp, text, e->status < 0 ? -e->status : 0);
	default:
		log_debug("verbs: %s", text);
		break;
	}
	return false;
}

void verbs_rdma_cm_events(void)
{
	struct rdma_cm_event *e;

	while (event_channel && !rdma_get_cm_event(event_channel, &e)) {
		struct rdma_cm_id *stray = NULL;

		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST
			    ? !on_request(e, e->id)
			    : on_event(e))
			stray = e->id;
		rdma_ack_cm_event(e);
		verbs_rdma_cm_close(stray);
	}
}
