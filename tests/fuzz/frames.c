/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane: frames of a stream, and what each type holds (hello,
 * proofs, joins, probes, failures). The first byte says as whom to read: an
 * unknown sender's frames are short, a known one's are sealed.
 */
#include <stdlib.h>
#include <string.h>

#include "src/boot/control/delta.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/net/handshake.h"
#include "tests/fuzz/fuzz.h"

enum { STRANGER, KNOWN, SEALED, READERS };

static const uint8_t key[AUTH_KEY] = "key";
static const struct seal_keys keys = {.send = "s", .receive = "s"};

static void seed(uint8_t reader, const struct frame_writer *w)
{
	uint8_t bytes[sizeof(w->data) + 1];

	bytes[0] = reader;
	memcpy(bytes + 1, w->data, w->len);
	fuzz_seed(bytes, w->len + 1);
}

static void seed_sealed(const struct frame_writer *w)
{
	static uint8_t bytes[1 + 2 * (SEAL_START + SEAL_FRAME_MAX)];
	struct seal *s = seal_create(&keys);
	size_t len = 1;

	bytes[0] = SEALED;
	len += seal_frame(s, w->data, w->len, bytes + len);
	len += seal_frame(s, w->data, w->len, bytes + len);
	seal_destroy(s);
	fuzz_seed(bytes, len);
}

void fuzz_seeds(void)
{
	static struct frame_writer w;
	static const uint8_t nonce[AUTH_NONCE] = "nonce";
	struct rank_info info;

	rank_info_self(&info, 1, 4);
	frame_begin(&w, FRAME_JOIN);
	rank_info_put(&w, &info);
	frame_put_text(&w, "127.0.0.1:5000");
	frame_put_bytes(&w, nonce, sizeof(nonce));
	seed(KNOWN, &w);
	seed_sealed(&w);
	frame_begin(&w, FRAME_PROBE);
	frame_put_bytes(&w, nonce, sizeof(nonce));
	seed(STRANGER, &w);
	frame_begin(&w, FRAME_FAILED);
	frame_put_u32(&w, DICOMM_ERR_REMOTE);
	frame_put_u32(&w, 3);
	frame_put_text(&w, "rank 3 is on fire");
	seed(KNOWN, &w);
	frame_begin(&w, FRAME_TOLD);
	frame_put_u64(&w, 4711);
	frame_put_u32(&w, 1);
	frame_put_bytes(&w, "{\"format\":1}", 12);
	seed(KNOWN, &w);
	frame_begin(&w, FRAME_GATHERED);
	frame_put_u64(&w, 10);
	frame_put_bytes(&w, "\x03\x02xy\x11\x01z\x05", 8);
	seed(KNOWN, &w);
}

static void read_proof(struct frame_reader *in, enum handshake_role role)
{
	struct handshake h = {.listener_nonce = "l", .listener_public = "p"};
	struct auth_pair pair = {.public = "p", .secret = "s"};
	struct seal_keys agreed;
	uint8_t proof[AUTH_PROOF];

	frame_get_bytes(in, h.client_nonce, sizeof(h.client_nonce));
	frame_get_bytes(in, h.client_public, sizeof(h.client_public));
	frame_get_bytes(in, proof, sizeof(proof));
	if (!frame_done(in))
		return;
	handshake_check(&h, key, role, proof);
	handshake_keys(&h, key, HANDSHAKE_LISTENER, &pair, &agreed);
}

static void read_probe(struct frame_reader *in)
{
	static struct frame_writer out;
	struct handshake_alive alive = {.rank = 1, .state = 2};
	uint32_t state;

	memcpy(alive.key, key, sizeof(key));
	if (!handshake_answer(&alive, in, &out))
		return;
	/* Its answer must satisfy who asked. */
	*in = (struct frame_reader){out.data + FRAME_HEADER,
				    out.len - FRAME_HEADER, 0, false};
	(void)handshake_is_alive(key, 1, in->data, in, &state);
}

static void read_join(struct frame_reader *in)
{
	struct rank_info info, self;
	char text[FRAME_TEXT], why[512], where[RANK_INFO_WHERE];
	uint8_t nonce[AUTH_NONCE];

	rank_info_get(in, &info);
	frame_get_text(in, text, sizeof(text));
	frame_get_bytes(in, nonce, sizeof(nonce));
	if (!frame_done(in))
		return;
	rank_info_self(&self, 0, 4);
	rank_info_where(&info, where);
	if (!rank_info_agrees(&self, &info, why, sizeof(why)) &&
	    !memchr(why, '\0', sizeof(why)))
		abort();
}

/* Numbers, a text, and what is left */
static void read_any(struct frame_reader *in)
{
	char text[FRAME_TEXT];
	size_t left;

	frame_status(frame_get_u32(in));
	(void)frame_get_u64(in);
	frame_get_text(in, text, sizeof(text));
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			abort(); /* not printable */
	(void)frame_get_rest(in, &left);
}

static void read_gathered(struct frame_reader *in)
{
	static uint8_t to[4096];
	struct delta_reader r = {.to = to};
	uint64_t number = frame_get_u64(in);
	size_t n;
	const uint8_t *data = frame_get_rest(in, &n);

	r.part = number % 100 + 1;
	r.want = r.part * (number / 100 % 40 + 1);
	delta_take(&r, data, n);
	if (r.got > r.want)
		abort();
}

static void read_frame(enum frame_type type, struct frame_reader *in)
{
	if (!frame_type_name(type))
		abort();
	if (type == FRAME_PROOF)
		read_proof(in, HANDSHAKE_CLIENT);
	else if (type == FRAME_ASKER)
		read_proof(in, HANDSHAKE_ASKER);
	else if (type == FRAME_PROBE)
		read_probe(in);
	else if (type == FRAME_JOIN)
		read_join(in);
	else if (type == FRAME_GATHERED)
		read_gathered(in);
	else
		read_any(in);
}

static void read_plain(const uint8_t *data, size_t len, size_t limit)
{
	enum frame_type type;
	struct frame_reader in;
	size_t want;

	while (frame_parse(data, len, limit, &type, &in, &want) ==
	       FRAME_COMPLETE) {
		size_t used = (size_t)(in.data - data) + in.len;

		read_frame(type, &in);
		data += used;
		len -= used;
	}
}

static void read_sealed(const uint8_t *data, size_t len)
{
	struct seal *s = seal_create(&keys);
	enum frame_found found;
	enum frame_type type;
	struct frame_reader in;
	size_t used;

	do {
		found = seal_open(s, data, len, FRAME_MAX, &used, &type, &in);
		if (used > len)
			abort();
		data += used;
		len -= used;
		if (found == FRAME_COMPLETE)
			read_frame(type, &in);
	} while (found == FRAME_COMPLETE);
	seal_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (!len)
		return 0;
	if (data[0] % READERS == SEALED)
		read_sealed(data + 1, len - 1);
	else
		read_plain(data + 1, len - 1,
			   data[0] % READERS == STRANGER ? HANDSHAKE_LIMIT
							 : FRAME_MAX);
	return 0;
}
