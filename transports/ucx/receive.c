/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of active messages. UCX calls them while it makes progress, with the
 * lock of the device held. */
#include "transports/ucx/receive.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/ucx/address.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/load.h"
#include "transports/ucx/memory.h"

/* No message has a higher number, so slots can be added to each. */
#define SEQ_MOST (UINT64_MAX / 2)

struct ucx_in *ucx_inbox_make(struct ucx_endpoint *endpoint, uint16_t class)
{
	struct tp_device *dev = endpoint->dev;
	size_t lines = (size_t)dev->config.slots * sizeof(struct tp_line);
	size_t bytes =
		lines + (size_t)dev->config.slots * dev->config.slot_bytes;
	struct ucx_in *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->slots = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (!in->slots) {
		free(in);
		return NULL;
	}
	memset(in->slots, 0, lines);
	in->data = in->slots + lines;
	in->endpoint = endpoint;
	in->channel_class = class;
	for (int i = 0; i < UCX_READS; i++)
		in->reads[i].in = in;
	atomic_store_explicit(&dev->in[endpoint->rank * TP_CLASSES + class], in,
			      memory_order_release);
	return in;
}

void ucx_inbox_free(struct ucx_in *in)
{
	in->closed = true;
	if (in->receiving)
		return;
	free(in->slots);
	free(in);
}

static struct tp_line *line_of(const struct ucx_in *in, uint64_t seq)
{
	return (struct tp_line *)(void *)in->slots +
	       (seq & (in->endpoint->dev->config.slots - 1));
}

void ucx_inbox_deliver(struct ucx_in *in, const struct ucx_head *head,
		       const void *body, size_t bytes)
{
	const struct tp_config *config = &in->endpoint->dev->config;
	struct tp_line *line = line_of(in, head->seq);
	size_t slot = head->seq & (config->slots - 1);

	if (bytes)
		memcpy(bytes <= TP_LINE_ROOM
			       ? line->room
			       : in->data + slot * config->slot_bytes,
		       body, bytes);
	line->signature = head->signature;
	line->kind = head->kind;
	line->len = head->len;
	atomic_store_explicit(&line->seq, head->seq, memory_order_release);
}

/* Copy the header, which may be misaligned, and check it. NULL: the token is
 * not this rank's, there is no such rank or channel, or the rank has sent what
 * it must not. */
static struct ucx_endpoint *endpoint_of(struct tp_device *dev,
					const void *header, size_t len,
					struct ucx_head *head)
{
	if (len == sizeof(*head)) {
		memcpy(head, header, sizeof(*head));
		if (head->token == dev->token &&
		    head->rank < (uint32_t)dev->config.ranks &&
		    head->channel_class < TP_CLASSES &&
		    !dev->endpoints[head->rank].closed &&
		    !dev->endpoints[head->rank].sent)
			return &dev->endpoints[head->rank];
	}
	log_debug("ucx: a message with a wrong token is ignored");
	return NULL;
}

static void reject(struct ucx_endpoint *endpoint, const char *what)
{
	log_warn("ucx: rank %" PRIu32 " sent %s: its messages are ignored",
		 endpoint->rank, what);
	endpoint->sent = what;
	endpoint->cause = UCS_ERR_REJECTED;
	atomic_store(&endpoint->status, DICOMM_ERR_REMOTE);
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
	    a.rank != head.rank) {
		log_warn("ucx: a hello from rank %" PRIu32 " is ignored: %s",
			 head.rank, why);
		return UCS_OK;
	}
	if (!ucx_in_of(dev, head.rank, head.channel_class) &&
	    !ucx_inbox_make(endpoint, head.channel_class)) {
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
		dev->deferred = true;
	}
	return UCS_OK;
}

/* Messages come in any order, each once, and only into slots that were
 * released. */
static bool is_expected(const struct ucx_in *in, uint64_t seq)
{
	uint64_t slots = in->endpoint->dev->config.slots;

	return seq > in->consumed && seq - in->consumed <= slots &&
	       seq > atomic_load_explicit(&line_of(in, seq)->seq,
					  memory_order_relaxed);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_len,
			       void *data, size_t len,
			       const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	struct ucx_in *in =
		endpoint ? ucx_in_of(dev, head.rank, head.channel_class) : NULL;
	bool whole;

	if (!in)
		return UCS_OK;
	whole = head.kind == TP_REF ? len == sizeof(struct ucx_ref)
				    : head.kind == TP_DATA && len == head.len &&
					      len <= dev->config.slot_bytes;
	if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || !whole ||
	    !is_expected(in, head.seq))
		reject(endpoint, "an invalid message");
	else
		ucx_inbox_deliver(in, &head, data, len);
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
	struct ucx_out *out =
		endpoint ? ucx_out_of(dev, head.rank, head.channel_class)
			 : NULL;

	(void)data;
	(void)len;
	(void)param;
	if (endpoint && head.seq > SEQ_MOST) {
		reject(endpoint, "a credit beyond all numbers");
		return UCS_OK;
	}
	if (out && head.seq > atomic_load_explicit(&out->released,
						   memory_order_relaxed))
		atomic_store_explicit(&out->released, head.seq,
				      memory_order_release);
	return UCS_OK;
}

uint64_t ucx_ref_seal(const struct tp_device *dev, const struct ucx_ref *ref)
{
	uint64_t hash;

	_Static_assert(crypto_shorthash_BYTES == sizeof(hash) &&
			       crypto_shorthash_KEYBYTES ==
				       sizeof(dev->seal_key),
		       "sizes");
	crypto_shorthash((uint8_t *)&hash, (const uint8_t *)ref,
			 offsetof(struct ucx_ref, seal), dev->seal_key);
	return hash;
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

	if (!endpoint || !endpoint->ep || atomic_load(&dev->aborted) ||
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

static void read_advance(struct ucx_read *read, uint64_t len)
{
	read->missing -= len;
	if (!read->missing)
		atomic_store_explicit(&read->status, DICOMM_SUCCESS,
				      memory_order_release);
}

static void on_received(void *request, ucs_status_t status, size_t len,
			void *arg)
{
	struct ucx_read *read = arg;
	struct ucx_in *in = read->in;

	if (status == UCS_OK)
		read_advance(read, len);
	else
		atomic_store_explicit(&read->status, DICOMM_ERR_REMOTE,
				      memory_order_release);
	ucx.ucp_request_free(request);
	in->endpoint->dev->receiving--;
	in->receiving--;
	if (in->closed)
		ucx_inbox_free(in);
}

static ucs_status_t on_data(void *arg, const void *header, size_t header_len,
			    void *data, size_t len,
			    const ucp_am_recv_param_t *param)
{
	struct tp_device *dev = arg;
	struct ucx_head head;
	struct ucx_endpoint *endpoint =
		endpoint_of(dev, header, header_len, &head);
	struct ucx_in *in =
		endpoint ? ucx_in_of(dev, head.rank, head.channel_class) : NULL;
	ucp_request_param_t receive = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.recv_am = on_received,
	};
	bool eager = !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
	struct ucx_read *read;
	ucs_status_ptr_t request;

	if (!in || atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return UCS_OK;
	read = &in->reads[head.seq % UCX_READS];
	if (read->number != head.signature ||
	    atomic_load_explicit(&read->status, memory_order_relaxed) !=
		    DICOMM_IN_PROGRESS)
		return UCS_OK;
	/* Once a read has failed, its memory is the user's again. So a peer
	 * that is amid it cannot refuse it any more. */
	if (head.status != DICOMM_SUCCESS && read->unclaimed == read->len) {
		atomic_store_explicit(&read->status, DICOMM_ERR_REMOTE,
				      memory_order_release);
		return UCS_OK;
	}
	if (head.status != DICOMM_SUCCESS || head.len > read->len ||
	    len > read->len - head.len || len > read->unclaimed ||
	    (eager && read->type != UCS_MEMORY_TYPE_HOST)) {
		reject(endpoint, "other data than it was asked for");
		return UCS_OK;
	}
	read->unclaimed -= len;
	if (eager) {
		memcpy(read->dst + head.len, data, len);
		read_advance(read, len);
		return UCS_OK;
	}
	receive.user_data = read;
	receive.memory_type = read->type;
	request = ucx.ucp_am_recv_data_nbx(dev->worker, data,
					   read->dst + head.len, len, &receive);
	if (UCS_PTR_IS_PTR(request)) {
		dev->receiving++;
		in->receiving++;
		return UCS_INPROGRESS;
	}
	if (!request)
		read_advance(read, len);
	else
		atomic_store_explicit(&read->status, DICOMM_ERR_REMOTE,
				      memory_order_release);
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
		endpoint->peer_closed = endpoint->ack_due = dev->deferred =
			true;
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
	if (!endpoint->ep || atomic_load(&endpoint->status))
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
	dev->deferred = false;
	for (int r = 0; r < dev->config.ranks; r++)
		dev->deferred |= run_deferred(&dev->endpoints[r]);
}
