/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank sends over UCX: active messages of all kinds, and what they say
 * to those who read them. An input is a byte that says whether references are
 * mapped, and records: kind, flags, two bytes for the length of the body, the
 * header, the body.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/readers.h"
#include "transports/ucx/device.h"
#include "transports/ucx/load.h"
#include "transports/ucx/receive.h"

#define MAPS 1
/* Flags of a record */
#define STRANGER 1   /* the header is as it comes: the token may be wrong */
#define RENDEZVOUS 2 /* the body is not there yet */
#define LOOK 4       /* the readers look afterwards */
#define RECORD 4

static struct tp_device dev;
static struct ucx_endpoint endpoints[2];
static struct framed_in *_Atomic ins[2 * TP_CLASSES];
static struct framed_out *_Atomic outs[2 * TP_CLASSES];
static ucp_am_recv_callback_t handlers[UCX_WHATS];
static uint8_t memory[READERS_OFFER];

/* ---- of UCX ---- */

static ucs_status_t set_handler(ucp_worker_h worker,
				const ucp_am_handler_param_t *param)
{
	(void)worker;
	handlers[param->id] = param->cb;
	return UCS_OK;
}

/* Whatever leaves is read, so that the sanitizer sees from where. */
static ucs_status_ptr_t send_am(ucp_ep_h ep, unsigned id, const void *header,
				size_t header_len, const void *body, size_t len,
				const ucp_request_param_t *param)
{
	void *copy = malloc(len + 1);

	(void)ep;
	(void)id;
	(void)header;
	(void)header_len;
	(void)param;
	if (!copy)
		abort();
	if (len)
		memcpy(copy, body, len);
	free(copy);
	return NULL;
}

/* Some come at once, others fail. */
static ucs_status_ptr_t receive_am(ucp_worker_h worker, void *desc, void *to,
				   size_t len, const ucp_request_param_t *param)
{
	(void)worker;
	(void)desc;
	(void)param;
	if (len % 2)
		return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
	memset(to, 1, len);
	return NULL;
}

static const char *status_string(ucs_status_t status)
{
	(void)status;
	return "failed";
}

/* ---- what readers ask of the transport ---- */

static bool inbox(enum tp_class c, struct tp_inbox *out)
{
	struct framed_in *in = framed_in_of(&dev.base, 1, c);

	if (in)
		*out = (struct tp_inbox){
			.lines = (struct tp_line *)(void *)in->slots,
			.data = in->data,
			.line_stride = sizeof(struct tp_line),
			.data_stride = READERS_SLOT_BYTES,
			.slot_mask = READERS_SLOTS - 1};
	return in;
}

static void release(enum tp_class c, uint64_t seq)
{
	framed_in_of(&dev.base, 1, c)->consumed = seq;
}

static struct framed_read *read_of(enum tp_class c, uint64_t seq)
{
	return &framed_in_of(&dev.base, 1, c)->reads[seq % FRAMED_READS];
}

static dicomm_result_t read_some(enum tp_class c, uint64_t seq, void *dst,
				 uint64_t len)
{
	struct framed_read *read = read_of(c, seq);

	if (atomic_load(&read->status) == DICOMM_IN_PROGRESS)
		return DICOMM_AGAIN;
	read->number = ++dev.base.reads;
	read->dst = dst;
	read->memory_type = UCS_MEMORY_TYPE_HOST;
	read->len = read->unclaimed = read->missing = len;
	atomic_store(&read->status, DICOMM_IN_PROGRESS);
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t read_status(enum tp_class c, uint64_t seq)
{
	return (dicomm_result_t)atomic_load(&read_of(c, seq)->status);
}

static const struct readers_wire wire = {inbox, release, read_some,
					 read_status};

/* ---- seeds ---- */

static void add(uint8_t *bytes, size_t *len, enum ucx_what what,
		const struct ucx_head *head, const void *body, size_t n)
{
	uint8_t record[RECORD] = {what, LOOK, (uint8_t)n, (uint8_t)(n >> 8)};

	memcpy(bytes + *len, record, RECORD);
	memcpy(bytes + *len + RECORD, head, sizeof(*head));
	memcpy(bytes + *len + RECORD + sizeof(*head), body, n);
	*len += RECORD + sizeof(*head) + n;
}

static void make_device(void);

void fuzz_seeds(void)
{
	static uint8_t bytes[16384], body[READERS_SLOT_BYTES];
	uint64_t seq[TP_CLASSES] = {0};
	struct ucx_read_request request = {.len = 1000};
	struct ucx_head head;
	size_t len = 1;

	make_device();
	for (int i = 0; i < READERS_SEEDS; i++) {
		const struct readers_seed *s = &readers_seeds[i];

		memcpy(body, s->word, sizeof(s->word));
		head = (struct ucx_head){.channel_class = (uint16_t)s->class,
					 .signature = s->signature,
					 .seq = ++seq[s->class],
					 .len = s->len};
		add(bytes, &len, UCX_MESSAGE, &head, body, s->len);
	}
	head = (struct ucx_head){.channel_class = TP_POINT_TO_POINT,
				 .kind = TP_REF,
				 .signature = readers_seeds[5].signature,
				 .seq = 2,
				 .len = 2048};
	add(bytes, &len, UCX_MESSAGE, &head, body, sizeof(struct ucx_ref));
	head = (struct ucx_head){
		.channel_class = TP_POINT_TO_POINT, .signature = 1, .seq = 2};
	add(bytes, &len, UCX_DATA, &head, body, 2048);
	request.ref = (struct ucx_ref){.addr = (uintptr_t)memory,
				       .len = sizeof(memory)};
	request.ref.seal = ucx_ref_seal(&dev, &request.ref);
	add(bytes, &len, UCX_READ, &head, &request, sizeof(request));
	add(bytes, &len, UCX_CREDIT, &head, body, 0);
	add(bytes, &len, UCX_CLOSE, &head, body, 0);
	fuzz_seed(bytes, len);
	bytes[0] = MAPS;
	fuzz_seed(bytes, len);
}

/* ---- a rank ---- */

static void make_device(void)
{
	static char some; /* that is not to be looked into */

	dev.base.config.ranks = 2;
	dev.base.config.slots = READERS_SLOTS;
	dev.base.config.slot_bytes = READERS_SLOT_BYTES;
	dev.base.token = 7;
	dev.worker = (ucp_worker_h)(void *)&some;
	dev.endpoints = endpoints;
	dev.base.ops = &ucx_ops;
	dev.base.links = &endpoints[0].base;
	dev.base.in = ins;
	dev.base.out = outs;
	ucx.ucp_worker_set_am_recv_handler = set_handler;
	ucx.ucp_am_send_nbx = send_am;
	ucx.ucp_am_recv_data_nbx = receive_am;
	ucx.ucs_status_string = status_string;
	if (ucx_receive_register(&dev) != UCS_OK)
		abort();
}

static void begin(void)
{
	for (uint32_t r = 0; r < 2; r++)
		endpoints[r] =
			(struct ucx_endpoint){.base = {.dev = &dev, .rank = r}};
	endpoints[1].ep = (ucp_ep_h)(void *)dev.worker;
	endpoints[1].connected = true;
	dev.base.reads = 0;
	for (uint16_t c = 0; c < TP_CLASSES; c++)
		if (!framed_inbox_make(&dev.base, 1, c))
			abort();
}

static void end(void)
{
	struct ucx_reply *reply;

	for (int i = 0; i < 2 * TP_CLASSES; i++) {
		struct framed_in *in = atomic_exchange(&ins[i], NULL);

		if (in)
			framed_inbox_free(in);
	}
	free(endpoints[1].hello);
	while ((reply = dev.all_replies)) {
		dev.all_replies = reply->more;
		free(reply);
	}
	dev.replies = NULL;
	dev.base.deferred = false;
}

/* One record; returns its bytes, 0: there is no more. */
static size_t take(const uint8_t *data, size_t len)
{
	ucp_am_recv_param_t param = {.recv_attr = 0};
	struct ucx_head head;
	size_t n;
	void *body;

	if (len < RECORD + sizeof(head))
		return 0;
	n = data[2] | (size_t)data[3] << 8;
	if (n > len - RECORD - sizeof(head))
		n = len - RECORD - sizeof(head);
	memcpy(&head, data + RECORD, sizeof(head));
	if (!(data[1] & STRANGER)) {
		head.token = dev.base.token;
		head.rank = 1;
	}
	if (data[1] & RENDEZVOUS)
		param.recv_attr = UCP_AM_RECV_ATTR_FLAG_RNDV;
	body = malloc(n + !n);
	if (!body)
		abort();
	memcpy(body, data + RECORD + sizeof(head), n);
	handlers[data[0] % UCX_WHATS](&dev, &head, sizeof(head), body, n,
				      &param);
	free(body);
	return RECORD + sizeof(head) + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t at = 1, n = 1;
	bool good = true;

	if (!len)
		return 0;
	if (!dev.endpoints)
		make_device();
	begin();
	readers_begin(&wire, data[0] & MAPS);
	while (good && n) {
		n = take(data + at, len - at);
		if (n && data[at + 1] & LOOK)
			good = readers_look();
		at += n;
	}
	end();
	readers_end();
	return 0;
}
