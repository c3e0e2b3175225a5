/* SPDX-License-Identifier: BSD-3-Clause */
/* The way to one rank: its endpoint, and what leaves by it. */
#include "transports/ucx/ucx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

/* One active message; what arrives at once goes straight to its place. */
#define PIECE_BYTES UINT64_C(262144)

static void fail(struct ucx_route *route, ucs_status_t cause)
{
	if (atomic_load_explicit(&route->status, memory_order_relaxed))
		return;
	route->cause = cause;
	atomic_store_explicit(&route->status, DICOMM_ERR_REMOTE,
			      memory_order_release);
}

dicomm_result_t ucx_route_status(struct ucx_route *route)
{
	int status = atomic_load_explicit(&route->status, memory_order_acquire);
	char text[160];

	if (!status && !route->left)
		return DICOMM_SUCCESS;
	snprintf(text, sizeof(text), "ucx: rank %" PRIu32 ": %s", route->rank,
		 route->left ? "it has closed its side"
			     : ucx.ucs_status_string(route->cause));
	if (route->told) {
		log_set_last_error(text);
		return DICOMM_ERR_REMOTE;
	}
	route->told = true;
	return FAIL(DICOMM_ERR_REMOTE, "%s", text);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_route *route = arg;

	(void)ep;
	route->dead = true;
	fail(route, status);
}

dicomm_result_t ucx_route_open(struct ucx_route *route,
			       const struct ucx_address *a)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)a->worker,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = on_error, .arg = route},
	};
	ucs_status_t status;

	if (route->ep)
		return DICOMM_SUCCESS;
	route->token = a->token;
	status = ucx.ucp_ep_create(route->dev->worker, &params, &route->ep);
	if (status == UCS_OK)
		return DICOMM_SUCCESS;
	route->ep = NULL;
	return FAIL(status == UCS_ERR_NO_MEMORY ? DICOMM_ERR_NO_MEMORY
						: DICOMM_ERR_NO_PATH,
		    "ucx: connect from %s to rank %" PRIu32 " at its %s: %s",
		    route->dev->interface.name, route->rank, a->interface,
		    ucx.ucs_status_string(status));
}

static void put_back(struct ucx_stage *stage)
{
	stage->next = *stage->spare;
	*stage->spare = stage;
}

void *ucx_stages_make(struct ucx_stage **spare, unsigned count, size_t bytes)
{
	size_t each = (sizeof(struct ucx_stage) + bytes + 63) & ~(size_t)63;
	uint8_t *memory = aligned_alloc(64, count * each);

	for (unsigned i = 0; memory && i < count; i++) {
		struct ucx_stage *s =
			(struct ucx_stage *)(void *)(memory + i * each);

		s->spare = spare;
		put_back(s);
	}
	return memory;
}

static void on_staged(void *request, ucs_status_t status, void *arg)
{
	struct ucx_stage *stage = arg;
	struct ucx_route *route = stage->route;

	if (status != UCS_OK)
		fail(route, status);
	else
		route->connected = true;
	route->queued--;
	put_back(stage);
	ucx.ucp_request_free(request);
}

/* UCP keeps pointers to what it has not sent yet, so that is copied first. */
static dicomm_result_t send_later(struct ucx_route *route, enum ucx_what what,
				  const struct ucx_head *head, const void *body,
				  uint64_t len)
{
	struct ucx_stage *stage =
		what == UCX_MESSAGE ? route->stages : route->dev->notes;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
				UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = on_staged,
		.user_data = stage,
	};
	ucs_status_ptr_t request;

	if (!stage)
		return DICOMM_AGAIN;
	*stage->spare = stage->next;
	stage->route = route;
	stage->head = *head;
	if (len)
		memcpy(stage->body, body, len);
	request = ucx.ucp_am_send_nbx(route->ep, what, &stage->head,
				      sizeof(stage->head), stage->body, len,
				      &param);
	if (UCS_PTR_IS_PTR(request)) {
		route->queued++;
		return DICOMM_SUCCESS;
	}
	put_back(stage);
	if (request) {
		fail(route, UCS_PTR_STATUS(request));
		return DICOMM_ERR_REMOTE;
	}
	route->connected = true;
	return DICOMM_SUCCESS;
}

dicomm_result_t ucx_route_send(struct ucx_route *route, enum ucx_what what,
			       struct ucx_head *head, const void *body,
			       uint64_t len)
{
	static const ucp_request_param_t at_once = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
				UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
		.flags = UCP_AM_SEND_FLAG_EAGER,
	};
	ucs_status_ptr_t request;

	head->token = route->token;
	head->rank = (uint32_t)route->dev->config.rank;
	if (atomic_load_explicit(&route->status, memory_order_relaxed))
		return DICOMM_ERR_REMOTE;
	/* Nothing overtakes what waits. */
	if (!route->queued) {
		request =
			ucx.ucp_am_send_nbx(route->ep, what, head,
					    sizeof(*head), body, len, &at_once);
		if (!request) {
			route->connected = true;
			return DICOMM_SUCCESS;
		}
		if (UCS_PTR_STATUS(request) != UCS_ERR_NO_RESOURCE) {
			fail(route, UCS_PTR_STATUS(request));
			return DICOMM_ERR_REMOTE;
		}
	}
	/* UCX 1.13 would have to tell the other side more about the endpoint,
	 * and ends the program if the connection fails before that is out. */
	if (!route->connected && route->dev->tcp)
		return DICOMM_AGAIN;
	return send_later(route, what, head, body, len);
}

static void on_served(void *request, ucs_status_t status, void *arg)
{
	struct ucx_serve *serve = arg;
	struct ucx_route *route = serve->route;

	if (status != UCS_OK)
		fail(route, status);
	route->dev->serving--;
	serve->next = route->dev->serves;
	route->dev->serves = serve;
	ucx.ucp_request_free(request);
}

static struct ucx_serve *get_serve(struct tp_device *dev)
{
	struct ucx_serve *serve = dev->serves;

	if (serve) {
		dev->serves = serve->next;
		return serve;
	}
	serve = malloc(sizeof(*serve));
	if (serve) {
		serve->more = dev->all_serves;
		dev->all_serves = serve;
	}
	return serve;
}

static void serve_piece(struct ucx_route *route, const struct ucx_head *head,
			const uint8_t *body, uint64_t len,
			ucs_memory_type_t type)
{
	struct tp_device *dev = route->dev;
	struct ucx_serve *serve = get_serve(dev);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = on_served,
		.memory_type = type,
	};
	ucs_status_ptr_t request;

	if (!serve) {
		fail(route, UCS_ERR_NO_MEMORY);
		return;
	}
	serve->route = route;
	serve->head = *head;
	param.user_data = serve;
	if (head->kind == UCX_BY_RENDEZVOUS) {
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
		param.flags = UCP_AM_SEND_FLAG_RNDV;
	}
	request = ucx.ucp_am_send_nbx(route->ep, UCX_DATA, &serve->head,
				      sizeof(serve->head), body, len, &param);
	if (UCS_PTR_IS_PTR(request)) {
		dev->serving++;
		return;
	}
	if (request)
		fail(route, UCS_PTR_STATUS(request));
	serve->next = dev->serves;
	dev->serves = serve;
}

void ucx_route_serve(struct ucx_route *route, const struct ucx_head *to,
		     const void *body, uint64_t len, ucs_memory_type_t type)
{
	struct ucx_head head = *to;
	uint64_t at = 0;

	head.token = route->token;
	head.rank = (uint32_t)route->dev->config.rank;
	do {
		uint64_t n = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;

		head.len = at;
		serve_piece(route, &head, (const uint8_t *)body + at, n, type);
		at += n;
	} while (at < len);
}

bool ucx_route_is_quiet(const struct ucx_route *route)
{
	return !route->ep || !route->dev->worker ||
	       atomic_load(&route->status) || route->left || route->heard;
}

void ucx_route_bye(struct ucx_route *route)
{
	struct ucx_head head = {.kind = 0};

	if (!ucx_route_is_quiet(route) && !route->bye)
		route->bye = ucx_route_send(route, UCX_BYE, &head, NULL, 0) ==
			     DICOMM_SUCCESS;
}

bool ucx_route_is_sound(const struct ucx_route *route)
{
	return !route->dead && !atomic_load(&route->status) &&
	       (!route->ep || route->connected);
}

void ucx_route_close(struct ucx_route *route, bool force)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};
	ucs_status_ptr_t request;

	if (!route->ep || (!route->connected && !route->dead))
		return;
	if (force || atomic_load(&route->status) || !ucx_route_is_quiet(route))
		param.flags = UCP_EP_CLOSE_FLAG_FORCE;
	request = ucx.ucp_ep_close_nbx(route->ep, &param);
	route->ep = NULL;
	if (UCS_PTR_IS_PTR(request))
		route->closing = request;
}

bool ucx_route_is_closed(struct ucx_route *route)
{
	if (route->closing &&
	    ucx.ucp_request_check_status(route->closing) != UCS_INPROGRESS) {
		ucx.ucp_request_free(route->closing);
		route->closing = NULL;
	}
	return !route->closing;
}
