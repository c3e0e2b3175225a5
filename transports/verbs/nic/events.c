/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events of a NIC. */
#include "transports/verbs/nic/events.h"

#include <errno.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/nic/nic.h"

static void on_link(struct verbs_nic *nic, unsigned port, bool up)
{
	if (port != nic->port)
		return;
	if (!up && !atomic_load(&nic->link_down_ms)) {
		atomic_store(&nic->link_down_ms, clock_ms());
		log_warn("verbs %s port %u: the link is down", nic->name,
			 nic->port);
	} else if (up && atomic_load(&nic->link_down_ms)) {
		atomic_store(&nic->link_down_ms, 0);
		log_warn("verbs %s port %u: the link is up again", nic->name,
			 nic->port);
	}
}

static void on_gone(struct verbs_nic *nic, const char *text)
{
	atomic_store(&nic->fatal, text);
	atomic_store(&nic->removed, true);
}

static void on_event(struct verbs_nic *nic, const struct ibv_async_event *e)
{
	const char *text = ibv_event_type_str(e->event_type);
	struct verbs_qp_events *qp;

	switch (e->event_type) {
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		on_link(nic, (unsigned)e->element.port_num,
			e->event_type == IBV_EVENT_PORT_ACTIVE);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		atomic_store(&nic->changed, true);
		log_debug("verbs %s: %s", nic->name, text);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = e->element.qp->qp_context;
		atomic_store(&qp->failed, text);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		qp = e->element.qp->qp_context;
		qp->last_wqe = true;
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		atomic_store(&nic->fatal, text);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		on_gone(nic, text);
		break;
	default:
		log_debug("verbs %s: %s", nic->name, text);
		break;
	}
}

bool verbs_nic_events(struct verbs_nic *nic)
{
	struct ibv_async_event e;

	/* ibv_destroy_qp() waits until all events of the queue pair
	 * are acknowledged. */
	while (!ibv_get_async_event(nic->context, &e)) {
		on_event(nic, &e);
		ibv_ack_async_event(&e);
	}
	if (errno != EIO)
		return true;
	/* The kernel has removed the device. Usually it has sent an
	 * event before. */
	if (!atomic_load(&nic->removed))
		on_gone(nic, "it has gone");
	return false;
}
