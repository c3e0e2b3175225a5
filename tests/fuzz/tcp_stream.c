/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connected rank sends over tcp: heads, messages, credits, reads; and
 * what its messages say to those who read them. The first two bytes say whether
 * there are readers, or which slots are free, and how many bytes arrive at
 * once.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/readers.h"
#include "transports/tcp/tcp.h"

#define SLOTS READERS_SLOTS
#define SLOT_BYTES READERS_SLOT_BYTES
/* Of the first byte */
#define FREES 1
#define READS 2
#define MAPS 4
#define INPUT_MOST 65536

static struct tp_device dev;
static struct tcp_link links[2];
static struct framed_in *_Atomic ins[2 * TP_CLASSES];
static struct framed_out *_Atomic outs[2 * TP_CLASSES];
static struct framed_out out;
static uint8_t memory[3 * SLOT_BYTES]; /* that the peer may ask for */

static void put(uint8_t *bytes, size_t *len, const void *from, size_t n)
{
	memcpy(bytes + *len, from, n);
	*len += n;
}

static void seed_messages(void)
{
	struct tcp_head head = {.what = TCP_FRAME_CHANNEL};
	uint8_t bytes[512] = {0, 255};
	size_t len = 2;

	put(bytes, &len, &head, sizeof(head));
	for (unsigned i = 1; i <= 3; i++) {
		head = (struct tcp_head){
			.what = TCP_FRAME_MESSAGE, .seq = i, .len = 40 * i};
		put(bytes, &len, &head, sizeof(head));
		len += head.len;
	}
	head = (struct tcp_head){.what = TCP_FRAME_CREDIT, .consumed = 2};
	put(bytes, &len, &head, sizeof(head));
	head.what = TCP_FRAME_CLOSE;
	put(bytes, &len, &head, sizeof(head));
	fuzz_seed(bytes, len);
}

/* Only this rank can seal what it offers; else it is refused. */
static void seed_read(bool offered)
{
	struct tcp_head head = {.what = TCP_FRAME_READ, .signature = 1};
	struct tcp_read_request request = {.len = 5000};
	uint8_t bytes[256] = {0, 255};
	size_t len = 2;

	if (offered) {
		request.ref.addr = (uintptr_t)memory;
		request.ref.len = sizeof(memory);
		request.ref.seal = tcp_ref_seal(&dev, &request.ref);
	}
	put(bytes, &len, &head, sizeof(head));
	put(bytes, &len, &request, sizeof(request));
	fuzz_seed(bytes, len);
}

/* A message for each reader, and the data of a read. */
static void seed_readers(uint8_t how)
{
	uint8_t bytes[8192] = {how, 255};
	uint64_t seq[TP_CLASSES] = {0};
	struct tcp_head head;
	size_t len = 2;

	for (int i = 0; i < READERS_SEEDS; i++) {
		const struct readers_seed *s = &readers_seeds[i];

		head = (struct tcp_head){.what = TCP_FRAME_MESSAGE,
					 .channel_class = (uint8_t)s->class,
					 .signature = s->signature,
					 .seq = ++seq[s->class],
					 .len = s->len};
		put(bytes, &len, &head, sizeof(head));
		memcpy(bytes + len, s->word, sizeof(s->word));
		len += s->len;
	}
	head = (struct tcp_head){.what = TCP_FRAME_MESSAGE,
				 .channel_class = TP_POINT_TO_POINT,
				 .kind = TP_REF,
				 .signature = readers_seeds[5].signature,
				 .seq = 2,
				 .len = 2048};
	put(bytes, &len, &head, sizeof(head));
	len += sizeof(struct tcp_ref);
	head = (struct tcp_head){.what = TCP_FRAME_DATA,
				 .channel_class = TP_POINT_TO_POINT,
				 .signature = 1,
				 .seq = 2,
				 .len = 2048};
	put(bytes, &len, &head, sizeof(head));
	fuzz_seed(bytes, len + 2048);
}

/* A reference where a head belongs, in the slot of an earlier message whose
 * bytes look like one. */
static void seed_stale(void)
{
	uint8_t bytes[8192] = {READS, 254};
	const struct readers_seed *s = readers_seeds;
	uint64_t word[4] = {s->word[0], 0, 4000, s->word[3]};
	struct tcp_head head = {.what = TCP_FRAME_MESSAGE,
				.channel_class = TP_WINDOW};
	size_t len = 2;

	for (head.seq = 1; head.seq <= SLOTS + 2; head.seq++) {
		bool body = head.seq == 2, last = head.seq == SLOTS + 2;

		head.signature = s[body ? 2 : 0].signature;
		head.kind = last ? TP_REF : TP_DATA;
		head.len = last ? 40000 : body ? 4000 : sizeof(word);
		put(bytes, &len, &head, sizeof(head));
		memcpy(bytes + len, word, sizeof(word));
		len += last ? sizeof(struct tcp_ref) : head.len;
		word[2] = head.seq == 1 ? 40000 - sizeof(word) : 0;
	}
	fuzz_seed(bytes, len);
}

void fuzz_seeds(void)
{
	seed_stale();
	seed_messages();
	seed_readers(READS);
	seed_readers(READS | MAPS);
	seed_read(true);
	seed_read(false);
}

static void make_device(void)
{
	dev.base.config.ranks = 2;
	dev.base.config.slots = SLOTS;
	dev.base.config.slot_bytes = SLOT_BYTES;
	dev.connections = 1;
	dev.listener = -1;
	dev.epoll = epoll_create1(EPOLL_CLOEXEC);
	dev.links = links;
	dev.base.ops = &tcp_ops;
	dev.base.links = &links[0].base;
	dev.base.in = ins;
	dev.base.out = outs;
	if (dev.epoll < 0)
		abort();
}

static struct tcp_conn *connect_peer(int *peer)
{
	struct tcp_conn *c;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
		abort();
	*peer = fds[1];
	links[1] = (struct tcp_link){.base = {.dev = &dev, .rank = 1},
				     .count = 1,
				     .open = 1,
				     .ready = true};
	c = tcp_socket_add(&dev, fds[0], TCP_OPEN, EPOLLIN);
	if (!c || tcp_send_open(c, tcp_link_lost) != DICOMM_SUCCESS)
		abort();
	c->link = &links[1];
	c->head.what = TCP_FRAME_TYPES;
	links[1].conn[0] = c;
	dev.open = 1;
	atomic_store(&out.released, 0);
	atomic_store(&outs[TP_CLASSES], &out);
	return c;
}

static void disconnect(int peer)
{
	tcp_link_drop(&links[1]);
	tcp_socket_free_closed(&dev);
	close(peer);
	for (int i = 0; i < 2 * TP_CLASSES; i++) {
		struct framed_in *in = atomic_exchange(&ins[i], NULL);

		if (in)
			framed_inbox_free(in);
	}
	dev.base.credits_due = NULL;
	dev.base.deferred = dev.base.credits_blocked = false;
	dev.open = dev.base.reads = 0;
}

/* ---- what readers ask of the transport ---- */

static bool inbox(enum tp_class c, struct tp_inbox *to)
{
	struct framed_in *in = framed_in_of(&dev.base, 1, c);

	if (in)
		*to = (struct tp_inbox){
			.lines = (struct tp_line *)(void *)in->slots,
			.data = in->data,
			.line_stride = sizeof(struct tp_line),
			.data_stride = SLOT_BYTES,
			.slot_mask = SLOTS - 1};
	return in;
}

static void release(enum tp_class c, uint64_t seq)
{
	framed_in_of(&dev.base, 1, c)->consumed = seq;
}

static dicomm_result_t read_some(enum tp_class c, uint64_t seq, void *dst,
				 uint64_t len)
{
	struct framed_read *read =
		&framed_in_of(&dev.base, 1, c)->reads[seq % FRAMED_READS];

	if (atomic_load(&read->status) == DICOMM_IN_PROGRESS)
		return DICOMM_AGAIN;
	read->number = ++dev.base.reads;
	read->dst = dst;
	read->len = read->unclaimed = read->missing = len;
	atomic_store(&read->status, DICOMM_IN_PROGRESS);
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t read_status(enum tp_class c, uint64_t seq)
{
	return (dicomm_result_t)atomic_load(&framed_in_of(&dev.base, 1, c)
						     ->reads[seq % FRAMED_READS]
						     .status);
}

static const struct readers_wire wire = {inbox, release, read_some,
					 read_status};

/* What the peer hears does not matter, but its socket must not fill up. */
static void drain(int peer)
{
	char bytes[4096];

	while (recv(peer, bytes, sizeof(bytes), 0) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tcp_conn *c;
	size_t piece;
	int peer;

	if (len < 2 || len > INPUT_MOST)
		return 0;
	if (!dev.links)
		make_device();
	c = connect_peer(&peer);
	if (data[0] & READS)
		readers_begin(&wire, data[0] & MAPS);
	piece = data[1] == 255 ? len : data[1] + 1u;
	for (size_t at = 2; at < len && links[1].conn[0] == c; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		if (send(peer, data + at, n, MSG_NOSIGNAL) != (ssize_t)n)
			break;
		while (tcp_receive(c) && links[1].conn[0] == c)
			;
		if (data[0] & READS && !readers_look())
			break;
		if (!(data[0] & READS) && data[0] & FREES &&
		    atomic_load(&ins[TP_CLASSES]))
			atomic_load(&ins[TP_CLASSES])->consumed++;
		if (links[1].conn[0] == c)
			tcp_send_more(c);
		drain(peer);
	}
	disconnect(peer);
	if (data[0] & READS)
		readers_end();
	return 0;
}
