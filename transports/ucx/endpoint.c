/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoint of one rank: what is sent by it. */
#include "transports/ucx/endpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/ucx/address.h"
#include "transports/ucx/device.h"
#include "transports/ucx/load.h"
#include "transports/ucx/sockets.h"

/* Bytes of one active message of a reply. Pieces that arrive one at a time are
 * copied from cache to where they belong. */
#define PIECE_BYTES UINT64_C(262144)

static void fail(struct ucx_endpoint *endpoint, ucs_status_t cause)
{
	framed_link_fail(&endpoint->base, DICOMM_ERR_REMOTE, "%s",
			 ucx.ucs_status_string(cause));
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_endpoint *endpoint = arg;

	(void)ep;
	endpoint->failed = true;
	fail(endpoint, status);
}

dicomm_result_t ucx_endpoint_open(struct ucx_endpoint *endpoint,
				  const struct ucx_address *a)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)a->worker,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = on_error, .arg = endpoint},
	};
	ucs_status_t status;
	char cause[256];

	if (endpoint->ep)
		return DICOMM_SUCCESS;
	endpoint->token = a->base.token;
	status = ucx.ucp_ep_create(endpoint->base.dev->worker, &params,
				   &endpoint->ep);
	if (status == UCS_OK)
		return DICOMM_SUCCESS;
	endpoint->ep = NULL;
	return FAIL(status == UCS_ERR_NO_MEMORY ? DICOMM_ERR_NO_MEMORY
						: DICOMM_ERR_NO_PATH,
		    "ucx: connect from %s to rank %" PRIu32 " at its %s: %s%s",
		    endpoint->base.dev->interface.name, endpoint->base.rank,
		    a->interface, ucx.ucs_status_string(status),
		    ucx_find_cause(cause, sizeof(cause)));
}

static void give_back(struct ucx_bounce *bounce)
{
	bounce->next = *bounce->spare;
	*bounce->spare = bounce;
}

void *ucx_bounces_make(struct ucx_bounce **spare, unsigned count, size_t bytes)
{
	size_t each = (sizeof(struct ucx_bounce) + bytes + 63) & ~(size_t)63;
	uint8_t *memory = aligned_alloc(64, count * each);

	for (unsigned i = 0; memory && i < count; i++) {
		struct ucx_bounce *s =
			(struct ucx_bounce *)(void *)(memory + i * each);

		s->spare = spare;
		give_back(s);
	}
	return memory;
}

static void on_sent_later(void *request, ucs_status_t status, void *arg)
{
	struct ucx_bounce *bounce = arg;
	struct ucx_endpoint *endpoint = bounce->endpoint;

	if (status != UCS_OK)
		fail(endpoint, status);
	else
		endpoint->connected = true;
	endpoint->queued--;
	give_back(bounce);
	ucx.ucp_request_free(request);
}

/* UCP keeps pointers to a message that it has not sent yet, so send a copy. */
static dicomm_result_t send_later(struct ucx_endpoint *endpoint,
				  enum ucx_what what,
				  const struct ucx_head *head, const void *body,
				  uint64_t len)
{
	struct ucx_bounce *bounce = what == UCX_MESSAGE
					    ? endpoint->bounces
					    : endpoint->base.dev->control;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
				UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = on_sent_later,
		.user_data = bounce,
	};
	ucs_status_ptr_t request;

	if (!bounce)
		return DICOMM_AGAIN;
	*bounce->spare = bounce->next;
	bounce->endpoint = endpoint;
	bounce->head = *head;
	if (len)
		memcpy(bounce->body, body, len);
	request = ucx.ucp_am_send_nbx(endpoint->ep, what, &bounce->head,
				      sizeof(bounce->head), bounce->body, len,
				      &param);
	if (UCS_PTR_IS_PTR(request)) {
		endpoint->queued++;
		return DICOMM_SUCCESS;
	}
	give_back(bounce);
	if (request) {
		fail(endpoint, UCS_PTR_STATUS(request));
		return DICOMM_ERR_REMOTE;
	}
	endpoint->connected = true;
	return DICOMM_SUCCESS;
}

dicomm_result_t ucx_endpoint_send(struct ucx_endpoint *endpoint,
				  enum ucx_what what, struct ucx_head *head,
				  const void *body, uint64_t len)
{
	static const ucp_request_param_t at_once = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
				UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
		.flags = UCP_AM_SEND_FLAG_EAGER,
	};
	ucs_status_ptr_t request;

	head->token = endpoint->token;
	head->rank = (uint32_t)endpoint->base.dev->base.config.rank;
	if (atomic_load_explicit(&endpoint->base.status, memory_order_relaxed))
		return DICOMM_ERR_REMOTE;
	/* A message must not overtake those in the queue. */
	if (!endpoint->queued) {
		request =
			ucx.ucp_am_send_nbx(endpoint->ep, what, head,
					    sizeof(*head), body, len, &at_once);
		if (!request) {
			endpoint->connected = true;
			return DICOMM_SUCCESS;
		}
		if (UCS_PTR_STATUS(request) != UCS_ERR_NO_RESOURCE) {
			fail(endpoint, UCS_PTR_STATUS(request));
			return DICOMM_ERR_REMOTE;
		}
	}
	/* UCX 1.13 would add more about the endpoint to this message, and it
	 * ends the program if the connection fails before the message is
	 * sent. */
	if (!endpoint->connected && endpoint->base.dev->tcp)
		return DICOMM_AGAIN;
	return send_later(endpoint, what, head, body, len);
}

static void on_replied(void *request, ucs_status_t status, void *arg)
{
	struct ucx_reply *reply = arg;
	struct ucx_endpoint *endpoint = reply->endpoint;

	if (status != UCS_OK)
		fail(endpoint, status);
	endpoint->base.dev->replying--;
	reply->next = endpoint->base.dev->replies;
	endpoint->base.dev->replies = reply;
	ucx.ucp_request_free(request);
}

static struct ucx_reply *get_reply(struct tp_device *dev)
{
	struct ucx_reply *reply = dev->replies;

	if (reply) {
		dev->replies = reply->next;
		return reply;
	}
	reply = malloc(sizeof(*reply));
	if (reply) {
		reply->more = dev->all_replies;
		dev->all_replies = reply;
	}
	return reply;
}

static void reply_piece(struct ucx_endpoint *endpoint,
			const struct ucx_head *head, const uint8_t *body,
			uint64_t len, ucs_memory_type_t type)
{
	struct tp_device *dev = endpoint->base.dev;
	struct ucx_reply *reply = get_reply(dev);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = on_replied,
		.memory_type = type,
	};
	ucs_status_ptr_t request;

	if (!reply) {
		fail(endpoint, UCS_ERR_NO_MEMORY);
		return;
	}
	reply->endpoint = endpoint;
	reply->head = *head;
	param.user_data = reply;
	if (head->kind == UCX_READ_RENDEZVOUS) {
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
		param.flags = UCP_AM_SEND_FLAG_RNDV;
	}
	request = ucx.ucp_am_send_nbx(endpoint->ep, UCX_DATA, &reply->head,
				      sizeof(reply->head), body, len, &param);
	if (UCS_PTR_IS_PTR(request)) {
		dev->replying++;
		return;
	}
	if (request)
		fail(endpoint, UCS_PTR_STATUS(request));
	reply->next = dev->replies;
	dev->replies = reply;
}

void ucx_endpoint_reply(struct ucx_endpoint *endpoint,
			const struct ucx_head *to, const void *body,
			uint64_t len, ucs_memory_type_t type)
{
	struct ucx_head head = *to;
	uint64_t at = 0;

	head.token = endpoint->token;
	head.rank = (uint32_t)endpoint->base.dev->base.config.rank;
	do {
		uint64_t n = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;

		head.len = at;
		reply_piece(endpoint, &head, (const uint8_t *)body + at, n,
			    type);
		at += n;
	} while (at < len);
}

bool ucx_endpoint_is_quiet(const struct ucx_endpoint *endpoint)
{
	return !endpoint->ep || !endpoint->base.dev->worker ||
	       atomic_load(&endpoint->base.status) ||
	       endpoint->base.peer_closed || endpoint->close_acked;
}

void ucx_endpoint_say_close(struct ucx_endpoint *endpoint)
{
	struct ucx_head head = {.kind = 0};

	if (!ucx_endpoint_is_quiet(endpoint) && !endpoint->close_sent)
		endpoint->close_sent =
			ucx_endpoint_send(endpoint, UCX_CLOSE, &head, NULL,
					  0) == DICOMM_SUCCESS;
}

bool ucx_endpoint_is_sound(const struct ucx_endpoint *endpoint)
{
	return !endpoint->failed && !atomic_load(&endpoint->base.status) &&
	       (!endpoint->ep || endpoint->connected);
}

void ucx_endpoint_close(struct ucx_endpoint *endpoint, bool force)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};
	ucs_status_ptr_t request;

	if (!endpoint->ep || (!endpoint->connected && !endpoint->failed))
		return;
	if (force || atomic_load(&endpoint->base.status) ||
	    !ucx_endpoint_is_quiet(endpoint))
		param.flags = UCP_EP_CLOSE_FLAG_FORCE;
	request = ucx.ucp_ep_close_nbx(endpoint->ep, &param);
	endpoint->ep = NULL;
	if (UCS_PTR_IS_PTR(request))
		endpoint->closing = request;
}

bool ucx_endpoint_is_closed(struct ucx_endpoint *endpoint)
{
	if (endpoint->closing &&
	    ucx.ucp_request_check_status(endpoint->closing) != UCS_INPROGRESS) {
		ucx.ucp_request_free(endpoint->closing);
		endpoint->closing = NULL;
	}
	return !endpoint->closing;
}
