/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver's side of a channel: a ring of slots that frames are copied
 * into. */
#include <stdlib.h>
#include <string.h>

#include "transports/framed/framed.h"

struct framed_in *framed_inbox_make(struct framed *f, uint32_t rank, uint32_t c)
{
	size_t lines = (size_t)f->config.slots * sizeof(struct tp_line);
	size_t bytes = lines + (size_t)f->config.slots * f->config.slot_bytes;
	struct framed_in *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->slots = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	in->begun = calloc(f->config.slots, sizeof(*in->begun));
	if (!in->slots || !in->begun) {
		framed_inbox_free(in);
		return NULL;
	}
	memset(in->slots, 0, lines);
	in->data = in->slots + lines;
	in->framed = f;
	in->rank = rank;
	in->channel_class = (uint8_t)c;
	for (int i = 0; i < FRAMED_READS; i++)
		in->reads[i].in = in;
	atomic_store_explicit(&f->in[rank * TP_CLASSES + c], in,
			      memory_order_release);
	return in;
}

void framed_inbox_free(struct framed_in *in)
{
	in->closed = true;
	if (in->receiving)
		return;
	free(in->slots);
	free(in->begun);
	free(in);
}

bool framed_inbox_expects(struct framed_in *in, uint64_t seq)
{
	uint64_t slots = in->framed->config.slots;
	uint64_t *begun = &in->begun[seq & (slots - 1)];

	/* Two connections may begin frames before either ends its own, so the
	 * number in the line is not enough. */
	if (seq <= in->consumed || seq - in->consumed > slots || seq <= *begun)
		return false;
	*begun = seq;
	return true;
}

static struct tp_line *line_of(const struct framed_in *in, uint64_t seq)
{
	return (struct tp_line *)(void *)in->slots +
	       (seq & (in->framed->config.slots - 1));
}

uint8_t *framed_inbox_place(const struct framed_in *in, uint64_t seq,
			    uint64_t bytes)
{
	const struct tp_config *config = &in->framed->config;

	return bytes <= TP_LINE_ROOM ? line_of(in, seq)->room
				     : in->data + (seq & (config->slots - 1)) *
							  config->slot_bytes;
}

void framed_inbox_deliver(struct framed_in *in, uint64_t seq,
			  uint32_t signature, uint32_t kind, uint64_t len)
{
	struct tp_line *line = line_of(in, seq);

	line->signature = signature;
	line->kind = kind;
	line->len = len;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
}
