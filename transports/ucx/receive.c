/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of active messages. UCX calls them while it makes progress, with the
 * lock of the device held. */
#include "transports/ucx/receive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/ucx/address.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/load.h"
#include "transports/ucx/memory.h"

/* Copy the header, which may be misaligned, and check it. NULL: the token is
 * not this rank's, there is no such rank or channel, or the rank has sent what
 * it must not. */
static struct ucx_endpoint *endpoint_of(struct tp_device *dev,
					const void *header, size_t len,
					struct ucx_head *head)
{
	if (len == sizeof(*head)) {
		memcpy(head, header, sizeof(*head));
		if (head->token == dev->base.token &&
		    head->rank < (uint32_t)dev->base.config.ranks &&
		    head->channel_class < TP_CLASSES &&
		    !dev->endpoints[head->rank].closed &&
		    !dev->endpoints[head->rank].rejected)
			return &dev->endpoints[head->rank];
	}
	log_debug("ucx: a message with a wrong token is ignored");
	return NULL;
}

static void reject(struct ucx_endpoint *endpoint, const char *what)
{
	log_warn("ucx: rank %" PRIu32 " sent %s: its messages are ignored",
		 endpoint->base.rank, what);
	endpoint->rejected = true;
	framed_link_fail(&endpoint->base, DICOMM_ERR_REMOTE, "it sent %s",
			 what);
}

static ucs_status_t on_hello(void *arg, const void *header, size_t header_len,
			     void *data, size_t len,
			     const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	struct tp_blob blob = {.len = (uint32_t)len};
	struct ucx_address a;
	char why[160] = "its address is of another rank";

	if (!endpoint || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ||
	    len > sizeof(blob.data))
		return UCS_OK;
	memcpy(blob.data, data, len);
	if (!ucx_address_parse(dev, &blob, &a, why, sizeof(why)) ||
	    a.base.terms.rank != head.rank) {
		log_warn("ucx: a hello from rank %" PRIu32 " is ignored: %s",
			 head.rank, why);
		return UCS_OK;
	}
	if (!framed_in_of(&dev->base, head.rank, head.channel_class) &&
	    !framed_inbox_make(&dev->base, head.rank, head.channel_class)) {
		reject(endpoint, "a hello, but there is no memory for it");
		return UCS_OK;
	}
	if (!endpoint->ep && !endpoint->hello) {
		endpoint->hello = malloc(sizeof(a));
		if (!endpoint->hello) {
			reject(endpoint,
			       "a hello, but there is no memory for it");
			return UCS_OK;
		}
		*endpoint->hello = a;
		dev->base.deferred = true;
	}
	return UCS_OK;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_len,
			       void *data, size_t len,
			       const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	struct framed_in *in = endpoint ? framed_in_of(&dev->base, head.rank,
						       head.channel_class)
					: NULL;
	bool whole;

	if (!in)
		return UCS_OK;
	whole = head.kind == TP_REF
			? len == sizeof(struct ucx_ref)
			: head.kind == TP_DATA && len == head.len &&
				  len <= dev->base.config.slot_bytes;
	if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || !whole ||
	    !framed_inbox_expects(in, head.seq)) {
		reject(endpoint, "an invalid message");
		return UCS_OK;
	}
	if (len)
		memcpy(framed_inbox_place(in, head.seq, len), data, len);
	framed_inbox_deliver(in, head.seq, head.signature, head.kind, head.len);
	return UCS_OK;
}

static ucs_status_t on_credit(void *arg, const void *header, size_t header_len,
			      void *data, size_t len,
			      const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);

	(void)data;
	(void)len;
	(void)param;
	if (endpoint && !framed_credits_receive(&dev->base, head.rank,
						head.channel_class, head.seq))
		reject(endpoint, "a credit beyond all numbers");
	return UCS_OK;
}

static ucs_status_t on_read(void *arg, const void *header, size_t header_len,
			    void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	ucs_memory_type_t type;
	struct ucx_read_request request;

	if (!endpoint || !endpoint->ep || atomic_load(&dev->base.aborted) ||
	    len != sizeof(request) ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK;
	memcpy(&request, data, sizeof(request));
	head.status = DICOMM_SUCCESS;
	type = ucx_memory_type(dev, request.ref.addr, request.ref.len);
	if (type != UCS_MEMORY_TYPE_HOST)
		head.kind = UCX_READ_RENDEZVOUS;
	/* Memory of a device that is not registered any more may be gone. */
	if (request.ref.seal != ucx_ref_seal(dev, &request.ref) ||
	    request.ref.type != type || request.offset > request.ref.len ||
	    request.len > request.ref.len - request.offset) {
		head.status = DICOMM_ERR_REMOTE;
		head.kind = UCX_READ_ANYHOW;
		type = UCS_MEMORY_TYPE_HOST;
		/* No byte of it, but an address all the same. */
		request.ref.addr = (uintptr_t)dev;
		request.offset = request.len = 0;
	}
	ucx_endpoint_reply(
		endpoint, &head,
		(const void *)(uintptr_t)(request.ref.addr + request.offset),
		request.len, type);
	return UCS_OK;
}

static void on_received(void *request, ucs_status_t status, size_t len,
			void *arg)
{
	struct framed_read *read = arg;
	struct framed_in *in = read->in;
	struct tp_device *dev = framed_device(in->framed);

	if (status == UCS_OK)
		framed_read_advance(read, len);
	else
		framed_read_fail(read);
	ucx.ucp_request_free(request);
	dev->receiving--;
	in->receiving--;
	if (in->closed)
		framed_inbox_free(in);
}

/* A piece by rendezvous: let UCX write it to where it belongs. */
static ucs_status_t receive_piece(struct tp_device *dev,
				  struct framed_read *read, uint8_t *to,
				  void *data, size_t len)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.recv_am = on_received,
		.user_data = read,
		.memory_type = (ucs_memory_type_t)read->memory_type,
	};
	ucs_status_ptr_t request =
		ucx.ucp_am_recv_data_nbx(dev->worker, data, to, len, &param);

	if (UCS_PTR_IS_PTR(request)) {
		dev->receiving++;
		read->in->receiving++;
		return UCS_INPROGRESS;
	}
	if (!request)
		framed_read_advance(read, len);
	else
		framed_read_fail(read);
	return UCS_OK;
}

static ucs_status_t on_data(void *arg, const void *header, size_t header_len,
			    void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	bool eager = !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
	struct framed_read *read =
		endpoint ? framed_read_find(&dev->base, head.rank,
					    head.channel_class, head.seq,
					    head.signature)
			 : NULL;
	uint8_t *to = NULL;

	if (!read || framed_is_aborted(&dev->base))
		return UCS_OK;
	/* Once a read has failed, its memory is the user's again. So a peer
	 * that is amid it cannot refuse it any more. */
	if (head.status != DICOMM_SUCCESS && read->unclaimed == read->len) {
		framed_read_fail(read);
		return UCS_OK;
	}
	if (head.status == DICOMM_SUCCESS &&
	    (!eager || read->memory_type == UCS_MEMORY_TYPE_HOST))
		to = framed_read_claim(read, head.len, len);
	if (!to) {
		reject(endpoint, "other data than it was asked for");
		return UCS_OK;
	}
	if (!eager)
		return receive_piece(dev, read, to, data, len);
	memcpy(to, data, len);
	framed_read_advance(read, len);
	return UCS_OK;
}

static ucs_status_t on_close(void *arg, const void *header, size_t header_len,
			     void *data, size_t len,
			     const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);

	(void)data;
	(void)len;
	(void)param;
	if (endpoint)
		endpoint->base.peer_closed = endpoint->ack_due =
			dev->base.deferred = true;
	return UCS_OK;
}

static ucs_status_t on_close_ack(void *arg, const void *header,
				 size_t header_len, void *data, size_t len,
				 const ucp_am_recv_param_t *param)
{
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(arg, header, header_len, &head);

	(void)data;
	(void)len;
	(void)param;
	if (endpoint)
		endpoint->close_acked = true;
	return UCS_OK;
}

static const ucp_am_recv_callback_t handlers[UCX_WHATS] = {
	[UCX_HELLO] = on_hello,         [UCX_MESSAGE] = on_message,
	[UCX_CREDIT] = on_credit,       [UCX_READ] = on_read,
	[UCX_DATA] = on_data,           [UCX_CLOSE] = on_close,
	[UCX_CLOSE_ACK] = on_close_ack,
};

ucs_status_t ucx_receive_register(struct tp_device *dev)
{
	ucs_status_t status = UCS_OK;

	for (unsigned i = 0; status == UCS_OK && i < UCX_WHATS; i++) {
		const ucp_am_handler_param_t param = {
			.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
				      UCP_AM_HANDLER_PARAM_FIELD_CB |
				      UCP_AM_HANDLER_PARAM_FIELD_ARG,
			.id = i,
			.cb = handlers[i],
			.arg = dev,
		};

		status =
			ucx.ucp_worker_set_am_recv_handler(dev->worker, &param);
	}
	return status;
}

/* True: there is more to do. */
static bool run_deferred(struct ucx_endpoint *endpoint)
{
	struct ucx_head head = {.kind = 0};

	if (endpoint->hello &&
	    ucx_endpoint_open(endpoint, endpoint->hello) != DICOMM_SUCCESS)
		reject(endpoint, "an address that cannot be used");
	free(endpoint->hello);
	endpoint->hello = NULL;
	if (!endpoint->ep || atomic_load(&endpoint->base.status))
		return false;
	/* A credit of 0, to make UCX connect. */
	if (!endpoint->connected &&
	    ucx_endpoint_send(endpoint, UCX_CREDIT, &head, NULL, 0) ==
		    DICOMM_AGAIN)
		return true;
	/* A rank that closes has sent UCX_CLOSE itself, which says as much. */
	if (endpoint->ack_due && !endpoint->close_sent &&
	    ucx_endpoint_send(endpoint, UCX_CLOSE_ACK, &head, NULL, 0) ==
		    DICOMM_AGAIN)
		return true;
	endpoint->ack_due = false;
	return false;
}

void ucx_receive_deferred(struct tp_device *dev)
{
	dev->base.deferred = false;
	for (int r = 0; r < dev->base.config.ranks; r++)
		dev->base.deferred |= run_deferred(&dev->endpoints[r]);
}
