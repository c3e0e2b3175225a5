/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames, their bounds, proofs and ids: all that parses bytes from outside. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/delta.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/control/id.h"
#include "src/boot/net/handshake.h"
#include "src/boot/net/seal.h"
#include "tests/support/disturb.h"
#include "tests/support/runner.h"

/* --- frames --------------------------------------------------------------- */

static void make_frame(struct frame_writer *out)
{
	frame_begin(out, FRAME_FAILED);
	frame_put_u32(out, 0x89abcdefu);
	frame_put_u64(out, 0x0123456789abcdefull);
	frame_put_text(out, "rank 3 is on fire");
	frame_put_bytes(out, "tail", 4);
}

START_TEST(a_frame_reads_as_it_was_written)
{
	static const uint8_t head[] = {0xc0, 0xd1, FRAME_FAILED, 0};
	enum frame_type type;
	struct frame_writer out;
	struct frame_reader in;
	char text[64], tail[4];
	size_t want;

	make_frame(&out);
	ck_assert_uint_eq(out.len, FRAME_HEADER + 4 + 8 + 2 + 17 + 4);
	ck_assert_mem_eq(out.data, head, sizeof(head));
	ck_assert_uint_eq(out.data[8], 0xef); /* little-endian on every host */
	ck_assert_int_eq(
		frame_parse(out.data, out.len, FRAME_MAX, &type, &in, &want),
		FRAME_COMPLETE);
	ck_assert_int_eq(type, FRAME_FAILED);
	ck_assert_uint_eq(frame_get_u32(&in), 0x89abcdefu);
	ck_assert_uint_eq(frame_get_u64(&in), 0x0123456789abcdefull);
	frame_get_text(&in, text, sizeof(text));
	ck_assert_str_eq(text, "rank 3 is on fire");
	ck_assert(!frame_done(&in));
	frame_get_bytes(&in, tail, sizeof(tail));
	ck_assert_mem_eq(tail, "tail", 4);
	ck_assert(frame_done(&in));
}
END_TEST

START_TEST(a_part_of_a_frame_is_no_frame_yet)
{
	enum frame_type type;
	struct frame_writer out;
	struct frame_reader in;
	size_t want;

	make_frame(&out);
	for (size_t len = 0; len < out.len; len++) {
		ck_assert_int_eq(frame_parse(out.data, len, FRAME_MAX, &type,
					     &in, &want),
				 FRAME_MORE);
		ck_assert_uint_gt(want, len);
		ck_assert_uint_le(want, out.len);
	}
}
END_TEST

START_TEST(a_frame_beyond_the_limit_is_garbage)
{
	enum frame_type type;
	struct frame_writer out;
	struct frame_reader in;
	size_t want, len;

	make_frame(&out);
	len = out.len - FRAME_HEADER;
	/* Known from the header alone: nothing is reserved for it. */
	ck_assert_int_eq(
		frame_parse(out.data, FRAME_HEADER, len - 1, &type, &in, &want),
		FRAME_GARBAGE);
	ck_assert_int_eq(frame_parse(out.data, out.len, len, &type, &in, &want),
			 FRAME_COMPLETE);
	memset(out.data + 4, 0xff, 4);
	ck_assert_int_eq(frame_parse(out.data, FRAME_HEADER, FRAME_MAX, &type,
				     &in, &want),
			 FRAME_GARBAGE);
}
END_TEST

START_TEST(garbage_is_known_by_its_first_bytes)
{
	enum frame_type type;
	struct frame_reader in;
	size_t want;

	ck_assert_int_eq(frame_parse((const uint8_t *)"GE", 2, FRAME_MAX, &type,
				     &in, &want),
			 FRAME_GARBAGE);
}
END_TEST

/* Every cut of the payload is noticed, and nothing after it is touched. */
START_TEST(a_short_payload_is_bad)
{
	struct frame_writer out;
	uint8_t *copy;
	char text[64], tail[4];

	make_frame(&out);
	for (size_t len = 0; len < out.len - FRAME_HEADER; len++) {
		struct frame_reader in = {0};

		/* Of exactly this size, for the address sanitizer. */
		copy = malloc(len + !len);
		memcpy(copy, out.data + FRAME_HEADER, len);
		in.data = copy;
		in.len = len;
		frame_get_u32(&in);
		frame_get_u64(&in);
		frame_get_text(&in, text, sizeof(text));
		frame_get_bytes(&in, tail, sizeof(tail));
		ck_assert(in.bad && !frame_done(&in));
		ck_assert_uint_eq(frame_get_u32(&in), 0);
		free(copy);
	}
}
END_TEST

START_TEST(a_text_is_printable_and_fits)
{
	static const uint8_t evil[] = {9,   0,   'a', '\n', 0x1b,
				       '[', '0', 'm', 0x9b, 0};
	struct frame_reader in = {.data = evil, .len = 11};
	char text[16], small[9];
	uint8_t room[11];

	memcpy(room, evil, 10);
	room[10] = 'z';
	in.data = room;
	frame_get_text(&in, text, sizeof(text));
	ck_assert(frame_done(&in));
	ck_assert_str_eq(text, "a??[0m??z");
	in = (struct frame_reader){.data = room, .len = 11};
	frame_get_text(&in, small,
		       sizeof(small)); /* one too small for the NUL */
	ck_assert(in.bad);
	ck_assert_str_eq(small, "");
}
END_TEST

START_TEST(writing_stops_at_the_end)
{
	static uint8_t block[FRAME_MAX];
	struct frame_writer out;
	char text[2 * FRAME_TEXT];

	frame_begin(&out, FRAME_GATHER);
	frame_put_bytes(&out, block, sizeof(block));
	ck_assert(!out.bad);
	frame_put_u32(&out, 1);
	ck_assert(out.bad);
	ck_assert_uint_eq(out.len, FRAME_HEADER + FRAME_MAX);

	/* A long text is cut, and what follows it is in its place. */
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	frame_begin(&out, FRAME_GATHER);
	frame_put_text(&out, text);
	ck_assert(!out.bad);
	ck_assert_uint_eq(out.len, FRAME_HEADER + 2 + FRAME_TEXT - 1);
}
END_TEST

/* A generator of our own: the same bytes in every run. */
static uint32_t state;

static uint8_t draw(void)
{
	state = state * 1664525u + 1013904223u;
	return (uint8_t)(state >> 17);
}

static void read_anything(struct frame_reader *in)
{
	uint8_t bytes[32];
	struct rank_info h;
	char text[40];
	size_t n;

	for (int i = 0; i < 8; i++) {
		switch (draw() % 6) {
		case 0:
			frame_get_u32(in);
			break;
		case 1:
			frame_get_u64(in);
			break;
		case 2:
			frame_get_bytes(in, bytes, draw() % sizeof(bytes));
			break;
		case 3:
			frame_get_text(in, text, 1 + draw() % sizeof(text));
			ck_assert_uint_lt(strlen(text), sizeof(text));
			break;
		case 4:
			rank_info_get(in, &h);
			ck_assert_uint_lt(strlen(h.host), sizeof(h.host));
			break;
		case 5:
			frame_get_rest(in, &n);
			ck_assert_uint_le(n, in->len);
			break;
		}
		ck_assert(in->pos <= in->len);
	}
}

/* Frames damaged in a few places, and cut anywhere. */
START_TEST(no_bytes_lead_the_reader_astray)
{
	enum frame_type type;
	struct frame_reader in;
	struct frame_writer out;
	struct rank_info h;
	uint8_t *copy;
	size_t len, want;

	state = (uint32_t)_i;
	rank_info_self(&h, 1, 2);
	for (int i = 0; i < 20000; i++) {
		frame_begin(&out, (enum frame_type)(draw() % FRAME_TYPES));
		if (i & 1)
			rank_info_put(&out, &h);
		for (int k = draw() % 64; k > 0; k--)
			frame_put_u32(&out, draw() & 3 ? draw() : 0);
		for (int k = draw() % 4; k > 0; k--)
			out.data[(draw() * 256u + draw()) % out.len] = draw();
		len = draw() & 1 ? out.len : (draw() * 256u + draw()) % out.len;
		copy = malloc(len + !len);
		memcpy(copy, out.data, len);
		switch (frame_parse(copy, len, FRAME_MAX, &type, &in, &want)) {
		case FRAME_COMPLETE:
			ck_assert(in.data + in.len <= copy + len);
			ck_assert(type > 0 && type < FRAME_TYPES);
			read_anything(&in);
			break;
		case FRAME_MORE:
			ck_assert(want > len &&
				  want <= FRAME_HEADER + FRAME_MAX);
			break;
		case FRAME_GARBAGE:
		case FRAME_FORGED:
			break;
		}
		free(copy);
	}
}
END_TEST

/* --- join requests ------------------------------------------------------- */

START_TEST(a_join_request_arrives_whole)
{
	struct rank_info h, got;
	struct frame_writer out;
	struct frame_reader in;

	rank_info_self(&h, 3, 7);
	ck_assert_uint_eq(h.rank, 3);
	ck_assert_uint_eq(h.ranks, 7);
	frame_begin(&out, FRAME_JOIN);
	rank_info_put(&out, &h);
	in = (struct frame_reader){.data = out.data + FRAME_HEADER,
				   .len = out.len - FRAME_HEADER};
	memset(&got, 0, sizeof(got));
	rank_info_get(&in, &got);
	ck_assert(frame_done(&in));
	ck_assert_mem_eq(&got, &h, sizeof(h));
}
END_TEST

START_TEST(settings_that_differ_are_named_alone)
{
	struct rank_info a, b;
	char why[512];

	rank_info_self(&a, 0, 2);
	rank_info_self(&b, 1, 2);
	ck_assert(rank_info_agrees(&a, &b, why, sizeof(why)));
	b.config_hash++;
	snprintf(a.config, sizeof(a.config), "A=1 B=2 C=3");
	snprintf(b.config, sizeof(b.config), "A=1 B=22 C=3 D=4");
	ck_assert(!rank_info_agrees(&a, &b, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "has B=2, rank 1"));
	ck_assert_ptr_nonnull(strstr(why, "has B=22 D=4"));
	ck_assert_ptr_null(strstr(why, "C=3"));
}
END_TEST

/* --- proofs --------------------------------------------------------------- */

START_TEST(a_proof_holds_for_its_key_role_and_handshake_only)
{
	uint8_t key[AUTH_KEY], other[AUTH_KEY], proof[AUTH_PROOF];
	struct handshake h;
	uint8_t *bytes = (uint8_t *)&h;

	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	auth_random(key, sizeof(key));
	auth_random(other, sizeof(other));
	auth_random(bytes, sizeof(h));
	handshake_prove(&h, key, HANDSHAKE_CLIENT, proof);
	ck_assert(handshake_check(&h, key, HANDSHAKE_CLIENT, proof));
	ck_assert(!handshake_check(&h, other, HANDSHAKE_CLIENT, proof));
	/* Sent back to its sender it proves nothing. */
	ck_assert(!handshake_check(&h, key, HANDSHAKE_LISTENER, proof));
	/* Nor with another nonce or public key. */
	for (size_t i = 0; i < sizeof(h); i++) {
		bytes[i] ^= 1;
		ck_assert(!handshake_check(&h, key, HANDSHAKE_CLIENT, proof));
		bytes[i] ^= 1;
	}
	for (int i = 0; i < AUTH_PROOF * 8; i++) {
		proof[i / 8] ^= (uint8_t)(1 << i % 8);
		ck_assert(!handshake_check(&h, key, HANDSHAKE_CLIENT, proof));
		proof[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}
END_TEST

/* --- sealed frames -------------------------------------------------------- */

static struct seal *ends[2]; /* listener, client */

static void seal_ends(void)
{
	uint8_t key[AUTH_KEY];
	struct auth_pair pairs[2];
	struct seal_keys keys[2];
	struct handshake h;

	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	auth_random(key, sizeof(key));
	auth_random((uint8_t *)&h, sizeof(h));
	for (int i = 0; i < 2; i++)
		auth_make_pair(&pairs[i]);
	memcpy(h.listener_public, pairs[0].public, AUTH_PUBLIC);
	memcpy(h.client_public, pairs[1].public, AUTH_PUBLIC);
	for (int i = 0; i < 2; i++) {
		ck_assert(handshake_keys(&h, key, (enum handshake_role)i,
					 &pairs[i], &keys[i]));
		ends[i] = seal_create(&keys[i]);
	}
	ck_assert_mem_eq(keys[0].send, keys[1].receive, SEAL_KEY);
	ck_assert_mem_eq(keys[1].send, keys[0].receive, SEAL_KEY);
	ck_assert_mem_ne(keys[0].send, keys[0].receive, SEAL_KEY);
}

static void free_ends(void)
{
	seal_destroy(ends[0]);
	seal_destroy(ends[1]);
}

#define SEALED_FRAMES 4

/* Several frames, one without a payload; where each ends in the stream. */
static size_t seal_frames(uint8_t *stream, size_t at[SEALED_FRAMES + 1])
{
	struct frame_writer out;
	size_t n = 0;

	at[0] = SEAL_START;
	for (uint32_t i = 0; i < SEALED_FRAMES; i++) {
		frame_begin(&out, i == 1 ? FRAME_BYE : FRAME_ASK_MISSING);
		if (i != 1)
			frame_put_u64(&out, 0x7000 + i);
		n += seal_frame(ends[0], out.data, out.len, stream + n);
		at[i + 1] = n;
	}
	return n;
}

/* Feed the stream in pieces; how many frames opened right before the end. */
static uint32_t open_frames(const uint8_t *stream, size_t len, size_t piece,
			    enum frame_found *end)
{
	size_t pos = 0, have = 0, used;
	struct frame_reader in;
	enum frame_type type;
	uint32_t n = 0;

	for (;;) {
		*end = seal_open(ends[1], stream + pos, have - pos, FRAME_MAX,
				 &used, &type, &in);
		pos += used;
		if (*end == FRAME_COMPLETE) {
			if (n == 1)
				ck_assert_int_eq(type, FRAME_BYE);
			else
				ck_assert_uint_eq(frame_get_u64(&in),
						  0x7000 + n);
			ck_assert(frame_done(&in));
			n++;
		} else if (*end != FRAME_MORE || have == len) {
			return n;
		} else {
			ck_assert_uint_lt(have - pos, seal_wants(ends[1]));
			have += piece < len - have ? piece : len - have;
		}
	}
}

START_TEST(sealed_frames_arrive_whole)
{
	uint8_t stream[1024];
	size_t at[SEALED_FRAMES + 1], len;
	enum frame_found end;

	seal_ends();
	len = seal_frames(stream, at);
	ck_assert_uint_eq(open_frames(stream, len, (size_t)_i, &end),
			  SEALED_FRAMES);
	ck_assert_int_eq(end, FRAME_MORE);
	/* In clear, nothing of it is there. */
	ck_assert_ptr_null(memmem(stream, len, "\x02\x70\0\0\0\0\0\0", 8));
	free_ends();
}
END_TEST

/* Whichever bit is changed: the frames before open, and nothing after. */
START_TEST(a_changed_byte_is_noticed)
{
	uint8_t stream[1024];
	size_t at[SEALED_FRAMES + 1], len = SIZE_MAX;
	enum frame_found end;
	uint32_t n, whole;

	for (size_t i = 0; i < len; i++) {
		seal_ends();
		len = seal_frames(stream, at);
		stream[i] ^= (uint8_t)(1 << draw() % 8);
		for (whole = 0; at[whole + 1] <= i;)
			whole++;
		n = open_frames(stream, len, len, &end);
		ck_assert_msg(end == FRAME_FORGED && n == whole,
			      "byte %zu: %u frames, not %u, then %d", i, n,
			      whole, end);
		free_ends();
	}
}
END_TEST

/* Without one frame, with one twice, two in another order, one of our own. */
START_TEST(a_stream_of_other_frames_is_noticed)
{
	uint8_t stream[1024], other[2048];
	size_t at[SEALED_FRAMES + 1], len, n;
	struct frame_writer clear;
	enum frame_found end;

	for (size_t i = 0; i + 1 < SEALED_FRAMES; i++) {
		size_t one, two;

		seal_ends();
		len = seal_frames(stream, at);
		one = at[i + 1] - at[i];
		two = at[i + 2] - at[i + 1];
		memcpy(other, stream, at[i]);
		n = at[i];
		switch (_i) {
		case 0: /* left out */
			break;
		case 1: /* repeated */
			memcpy(other + n, stream + at[i], one);
			memcpy(other + n + one, stream + at[i], one);
			n += 2 * one;
			break;
		case 2: /* moved */
			memcpy(other + n, stream + at[i + 1], two);
			memcpy(other + n + two, stream + at[i], one);
			n += one + two;
			break;
		default: /* injected, in clear */
			make_frame(&clear);
			memcpy(other + n, clear.data, clear.len);
			n += clear.len;
			break;
		}
		len -= _i == 2 ? at[i + 2] : at[i + 1];
		memcpy(other + n, stream + (_i == 2 ? at[i + 2] : at[i + 1]),
		       len);
		n = open_frames(other, n + len, 1, &end);
		ck_assert_int_eq(end, FRAME_FORGED);
		ck_assert_uint_eq(n, _i == 1 ? i + 1 : i);
		free_ends();
	}
}
END_TEST

/* Whatever a man in the middle does: the frames before it open, and none
 * after. */
START_TEST(a_right_beginning_is_all_that_a_disturbed_stream_gives)
{
	uint8_t stream[1024], other[4096], script[3 * DISTURB_STEP];
	size_t at[SEALED_FRAMES + 1], len, right, used;
	enum frame_found end;
	struct frame_reader in;
	enum frame_type type;

	for (int i = 0; i < 1500; i++) {
		seal_ends();
		seal_frames(stream, at);
		at[0] = 0;
		for (size_t k = 0; k < sizeof(script); k++)
			script[k] = draw();
		len = disturb(stream, at, SEALED_FRAMES, script,
			      DISTURB_STEP * (1 + draw() % 3u), other,
			      sizeof(other));
		right = disturb_right(stream, at, SEALED_FRAMES, other, len);
		ck_assert_uint_eq(open_frames(other, len, 1 + draw(), &end),
				  right);
		/* Where more has come than any frame has, it was seen. */
		ck_assert(end == FRAME_FORGED || len < at[right] + 80);
		if (end == FRAME_FORGED)
			ck_assert_int_eq(seal_open(ends[1], stream + at[1],
						   at[2] - at[1], FRAME_MAX,
						   &used, &type, &in),
					 FRAME_FORGED);
		free_ends();
	}
}
END_TEST

/* --- secrets that people chose -------------------------------------------- */

START_TEST(a_chosen_secret_is_stretched)
{
	static const char digits[] = "00112233445566778899aabbccddeeff001122334"
				     "45566778899AABBCCDDEEFF";
	uint8_t a[AUTH_KEY], b[AUTH_KEY];
	uint64_t begin, stretched, hashed;

	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	begin = clock_ns();
	ck_assert_int_eq(auth_key_from_secret("h:1", "sesame", a),
			 DICOMM_SUCCESS);
	stretched = clock_ns() - begin;
	ck_assert_int_eq(auth_key_from_secret("h:1", "sesame", b),
			 DICOMM_SUCCESS);
	ck_assert_mem_eq(a, b, AUTH_KEY);
	ck_assert_int_eq(auth_key_from_secret("h:2", "sesame", b),
			 DICOMM_SUCCESS);
	ck_assert_mem_ne(a, b, AUTH_KEY);
	ck_assert_int_eq(auth_key_from_secret("h:1", "sesamf", b),
			 DICOMM_SUCCESS);
	ck_assert_mem_ne(a, b, AUTH_KEY);
	begin = clock_ns();
	ck_assert_int_eq(auth_key_from_secret("h:1", digits, b),
			 DICOMM_SUCCESS);
	hashed = clock_ns() - begin;
	ck_assert_int_eq(auth_key_from_secret("h:1", digits, a),
			 DICOMM_SUCCESS);
	ck_assert_mem_eq(a, b, AUTH_KEY);
	/* Measured: about 30 ms and 10 us. */
	ck_assert_msg(stretched > 100 * hashed,
		      "%" PRIu64 " ns against %" PRIu64 " ns", stretched,
		      hashed);
}
END_TEST

static const struct {
	const char *secret;
	bool random;
} secrets[] = {
	{"00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF",
	 true},
	/* openssl rand -hex 32; -base64 32 */
	{"b4ae8bc0b1a5eb7ebcd34c9a5f24aa2e4b0b3c2dd6f09a3d1ce8e0a1f0d7c596",
	 true},
	{"vYkQ2mXWj3V0cX8bqv3nJkQ7o1sT9H4mLr5eYpZ2uAE=", true},
	{"_YkQ2mXWj3V0cX8bqv3n-kQ7o1sT9H4mLr5eYpZ2uAE=", true},
	/* Bits that no byte has; both alphabets; no "=". */
	{"vYkQ2mXWj3V0cX8bqv3nJkQ7o1sT9H4mLr5eYpZ2uAF=", false},
	{"_YkQ2mXWj3V0cX8bqv3n+kQ7o1sT9H4mLr5eYpZ2uAE=", false},
	{"vYkQ2mXWj3V0cX8bqv3nJkQ7o1sT9H4mLr5eYpZ2uAEE", false},
	{"vYkQ2mXWj3V0cX8bqv3nJkQ7o1sT9H4mLr5eYpZ2uAE", false},
	/* What people type. */
	{"", false},
	{"sesame", false},
	{"0000000000000000000000000000000000000000000000000000000000000000",
	 false},
	{"0123456701234567012345670123456701234567012345670123456701234567",
	 false},
	{"Password1Password1Password1Password1Passwor=", false},
	{"thisisaverylongpassphraseofmanylettersonlyA=", false},
	{"This is a very long passphrase 0f letters A=", false},
	{"b4ae8bc0b1a5eb7ebcd34c9a5f24aa2e4b0b3c2dd6f09a3d1ce8e0a1f0d7c59",
	 false},
	{"b4ae8bc0b1a5eb7ebcd34c9a5f24aa2e4b0b3c2dd6f09a3d1ce8e0a1f0d7c59g",
	 false},
};

/* Only what cannot be guessed is not stretched. */
START_TEST(what_a_program_made_is_told_from_what_people_choose)
{
	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(*secrets); i++)
		ck_assert_msg(auth_is_random(secrets[i].secret) ==
				      secrets[i].random,
			      "%s", secrets[i].secret);
}
END_TEST

/* One of 1500 in base64 has no digit. */
START_TEST(random_secrets_are_taken_for_random)
{
	uint8_t bytes[AUTH_KEY];
	char hex[2 * AUTH_KEY + 1], text[64];
	int missed = 0;

	ck_assert_int_eq(auth_init(), DICOMM_SUCCESS);
	for (int i = 0; i < 10000; i++) {
		auth_random(bytes, sizeof(bytes));
		sodium_bin2hex(hex, sizeof(hex), bytes, sizeof(bytes));
		sodium_bin2base64(text, sizeof(text), bytes, sizeof(bytes),
				  sodium_base64_VARIANT_ORIGINAL);
		ck_assert_msg(auth_is_random(hex), "%s", hex);
		missed += !auth_is_random(text);
	}
	ck_assert_int_lt(missed, 100);
}
END_TEST

START_TEST(keys_are_the_same_everywhere)
{
	/* printf "p\\0text" | b2sum -l 256 */
	static const uint8_t wanted[] = {0xa6, 0x91, 0x2f, 0x34};
	uint8_t a[AUTH_KEY], b[AUTH_KEY], nonce[AUTH_NONCE] = {0};

	auth_key_from_text("p", "text", a);
	ck_assert_mem_eq(a, wanted, sizeof(wanted));
	auth_key_from_text("pt", "ext", b);
	ck_assert_mem_ne(a, b, sizeof(a));
	auth_key_derive(a, nonce, b);
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

/* --- ids ------------------------------------------------------------------ */

static const char *const addresses[] = {
	"127.0.0.1:1", "[::1]:65535", "node-7.cluster.example:29501",
	"[2001:db8:1111:2222:3333:4444:5555:6666]:12345"};

START_TEST(an_id_reads_as_it_was_written)
{
	uint8_t key[AUTH_KEY], got[AUTH_KEY];
	char address[SOCK_NAME];
	dicomm_unique_id_t id;

	auth_random(key, sizeof(key));
	ck_assert_int_eq(id_format(addresses[_i], key, &id), DICOMM_SUCCESS);
	ck_assert_int_eq(id_parse(&id, address, got), DICOMM_SUCCESS);
	ck_assert_str_eq(address, addresses[_i]);
	ck_assert_mem_eq(key, got, sizeof(key));
}
END_TEST

static const char *const bad_ids[] = {
	"",
	"dicomm1:",
	"dicomm2:1.2.3.4:5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:1.2.3.4:5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:1.2.3.4:5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA*",
	"dicomm1:1.2.3.4:5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:1.2.3.4:70000:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:1.2.3.4:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1::AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:::5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:~0123456789abcdef:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:~:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	"dicomm1:a:b:5:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
};

START_TEST(a_bad_id_is_refused_and_not_printed)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_NAME];
	dicomm_unique_id_t id = {0};

	snprintf(id.text, sizeof(id.text), "%s", bad_ids[_i]);
	ck_assert_int_eq(id_parse(&id, address, key),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_null(strstr(log_last_error(), "AAAA"));
	/* Without an end, too. */
	memset(id.text, 'd', sizeof(id.text));
	ck_assert_int_eq(id_parse(&id, address, key),
			 DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

/* A pod of Kubernetes has such names; an id has room for 70 characters. */
START_TEST(a_name_of_any_legal_length_reads_as_it_was_written)
{
	uint8_t key[AUTH_KEY] = {7}, got[AUTH_KEY];
	char address[SOCK_NAME], again[SOCK_NAME];
	dicomm_unique_id_t id, same;

	memset(address, 'a', sizeof(address));
	memcpy(address + 63 + 3 * _i, ":65535", 7);
	ck_assert(sock_is_host_port(address));
	ck_assert_int_eq(id_format(address, key, &id), DICOMM_SUCCESS);
	ck_assert_int_eq(id_format(address, key, &same), DICOMM_SUCCESS);
	ck_assert_str_eq(id.text, same.text);
	ck_assert_int_eq(id_parse(&id, again, got), DICOMM_SUCCESS);
	ck_assert_str_eq(address, again);
	ck_assert_mem_eq(key, got, sizeof(key));
}
END_TEST

/* --- parts of an all-gather ---------------------------------------------- */

#define PARTS 40
#define PART_MOST 700

/* What is read after the writing, in pieces of that many bytes. */
static void check_parts(uint8_t (*parts)[PART_MOST], size_t len, size_t piece,
			size_t most)
{
	static uint8_t all[PARTS * PART_MOST + 1];
	struct delta_writer w = {.data = NULL};
	struct delta_reader r = {.to = all, .part = len, .want = PARTS * len};

	for (int i = 0; i < PARTS; i++)
		delta_add(&w, i ? parts[i - 1] : NULL, parts[i], len);
	ck_assert(delta_end(&w));
	ck_assert_uint_le(w.len, most);
	memset(all, 0xa5, sizeof(all));
	for (size_t at = 0; at < w.len; at += piece)
		ck_assert(delta_take(&r, w.data + at,
				     w.len - at < piece ? w.len - at : piece));
	ck_assert_uint_eq(r.got, r.want);
	for (size_t i = 0; i < PARTS; i++)
		ck_assert(!memcmp(all + i * len, parts[i], len));
	ck_assert_uint_eq(all[PARTS * len], 0xa5);
	/* Nothing may follow. */
	ck_assert(!delta_take(&r, (const uint8_t[]){1}, 1));
	free(w.data);
}

START_TEST(parts_arrive_as_differences)
{
	static const size_t lens[] = {1, 3, 8, 127, 128, 129, 700};
	static uint8_t parts[PARTS][PART_MOST];
	const size_t len = lens[_i];

	for (size_t piece = 1; piece < 300; piece += 1 + piece / 3) {
		/* alike, and empty */
		memset(parts, 0, sizeof(parts));
		check_parts(parts, len, piece, 4);
		/* alike, but the first one is not empty */
		memset(parts, 7, sizeof(parts));
		check_parts(parts, len, piece, len + 8);
		/* a few bytes differ */
		for (int i = 0; i < PARTS; i++)
			parts[i][(size_t)i * 31 % len] ^= 0x11;
		check_parts(parts, len, piece, len + 8 + 10 * PARTS);
		/* nothing is alike, but what is by chance */
		for (int i = 0; i < PARTS; i++)
			randombytes_buf(parts[i], len);
		check_parts(parts, len, piece, PARTS * len + 8 + PARTS * 4);
	}
}
END_TEST

/* Random bytes, large and small ones. */
START_TEST(no_differences_lead_the_reader_astray)
{
	static uint8_t to[1000 + 1], bytes[64];

	for (int i = 0; i < 100000; i++) {
		struct delta_reader r = {.to = to,
					 .part = 1 + randombytes_uniform(200)};

		r.want = r.part * (1 + randombytes_uniform(5));
		memset(to, 0xa5, sizeof(to));
		randombytes_buf(bytes, sizeof(bytes));
		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] &= i % 2 ? 0x0f : 0xff;
		for (size_t k = 0; k < sizeof(bytes); k += 8)
			if (!delta_take(&r, bytes + k, 8))
				break;
		ck_assert_uint_le(r.got, r.want);
		ck_assert_uint_eq(to[r.want], 0xa5);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("frame");
	TCase *frames = tcase_create("frames");
	TCase *sealed = tcase_create("sealed");
	TCase *others = tcase_create("others");

	setenv("DICOMM_DEBUG", "none", 1);
	tcase_add_test(frames, a_frame_reads_as_it_was_written);
	tcase_add_test(frames, a_part_of_a_frame_is_no_frame_yet);
	tcase_add_test(frames, a_frame_beyond_the_limit_is_garbage);
	tcase_add_test(frames, garbage_is_known_by_its_first_bytes);
	tcase_add_test(frames, a_short_payload_is_bad);
	tcase_add_test(frames, a_text_is_printable_and_fits);
	tcase_add_test(frames, writing_stops_at_the_end);
	tcase_add_loop_test(frames, no_bytes_lead_the_reader_astray, 0, 4);
	tcase_add_loop_test(frames, parts_arrive_as_differences, 0, 7);
	tcase_add_test(frames, no_differences_lead_the_reader_astray);
	tcase_add_test(others, a_join_request_arrives_whole);
	tcase_add_test(others, settings_that_differ_are_named_alone);
	tcase_add_test(others,
		       a_proof_holds_for_its_key_role_and_handshake_only);
	tcase_add_test(others, keys_are_the_same_everywhere);
	tcase_add_loop_test(sealed, sealed_frames_arrive_whole, 1, 60);
	tcase_add_test(sealed, a_changed_byte_is_noticed);
	tcase_add_loop_test(sealed, a_stream_of_other_frames_is_noticed, 0, 4);
	tcase_add_test(sealed,
		       a_right_beginning_is_all_that_a_disturbed_stream_gives);
	tcase_add_test(others, a_chosen_secret_is_stretched);
	tcase_add_test(others,
		       what_a_program_made_is_told_from_what_people_choose);
	tcase_add_test(others, random_secrets_are_taken_for_random);
	tcase_add_loop_test(others, an_id_reads_as_it_was_written, 0, 4);
	tcase_add_loop_test(others, a_bad_id_is_refused_and_not_printed, 0,
			    (int)(sizeof(bad_ids) / sizeof(*bad_ids)));
	tcase_add_loop_test(others,
			    a_name_of_any_legal_length_reads_as_it_was_written,
			    0, 65);
	suite_add_tcase(suite, frames);
	suite_add_tcase(suite, sealed);
	suite_add_tcase(suite, others);
	return runner_main(suite);
}
