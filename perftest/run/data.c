/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills and checks the buffers of a rank, on the host or on its device. */
#include "perftest/run/data.h"

#include <stdio.h>
#include <string.h>

#include "perftest/base/failure.h"

#define GUARD_BYTE 0xa5
/* How much of the device's memory the host reads itself. */
#define FEW_BYTES 4096

size_t data_bytes(const struct call *c)
{
	return operation_larger(&c->geometry) * c->type->bytes;
}

/* Returns the offset in bytes of the end of what a rank may write in its
 * receive buffer. */
static size_t guard_of(const struct call *c, bool in_place)
{
	return in_place ? data_bytes(c) : c->geometry.recv * c->type->bytes;
}

/* ---- one piece ---- */

static void pattern_of(struct verify_pattern *p, const struct call *c,
		       const struct piece *piece)
{
	if (piece->kind == PIECE_INPUT)
		verify_input(p, c->type, c->reduction, piece->seed, c->rank,
			     c->ranks);
	else if (piece->kind == PIECE_OUTPUT)
		verify_output(p, c->type, c->reduction, piece->seed, c->ranks);
	else
		verify_data(p, c->type, piece->seed);
}

/* Returns false if elements may differ from the pattern by rounding. */
static bool fill_piece(struct verify_pattern *p, const struct call *c,
		       char *buffer, const struct piece *piece)
{
	char *at = buffer + piece->at * c->type->bytes;

	if (piece->kind == PIECE_ZERO) {
		memset(at, 0, piece->count * c->type->bytes);
		return true;
	}
	pattern_of(p, c, piece);
	verify_fill(p, at, piece->base, piece->count);
	return p->exact;
}

static size_t wrong_in_piece(struct verify_pattern *p, const struct call *c,
			     const char *buffer, const struct piece *piece)
{
	const char *at = buffer + piece->at * c->type->bytes;
	size_t wrong = 0;

	if (piece->kind != PIECE_ZERO) {
		pattern_of(p, c, piece);
		return verify_wrong(p, at, piece->base, piece->count);
	}
	for (size_t i = 0; i < piece->count; i++)
		wrong += type_load(c->type, at, i) != 0;
	return wrong;
}

/* ---- all pieces ---- */

void data_fill(struct verify_pattern *p, struct session_rank *r,
	       const struct call *c, bool in_place, uint64_t seed)
{
	size_t own = (size_t)c->rank * c->geometry.send_shift;
	char *send = r->send_seen;
	struct piece piece;

	memset(r->recv_seen, 0, data_bytes(c));
	memset(r->recv_seen + guard_of(c, in_place), GUARD_BYTE, SESSION_GUARD);
	if (in_place)
		send = r->recv_seen + own * c->type->bytes;
	for (int k = 0; operation_sent(c, seed, k, &piece); k++)
		fill_piece(p, c, send, &piece);
	session_rank_push(r, data_bytes(c) + SESSION_GUARD);
}

/* Called for each piece that must be in one of the buffers. piece->at counts
 * from the start of that buffer. */
typedef void expect_fn(void *ctx, bool received, const struct piece *piece);

/* Reports that what was sent must be unchanged; in place, except for the part
 * that is received into. */
static void each_sent(const struct call *c, bool in_place, uint64_t seed,
		      expect_fn *expect, void *ctx)
{
	size_t part = c->geometry.recv_shift;
	struct piece piece;

	for (int k = 0; operation_sent(c, seed, k, &piece); k++) {
		if (piece.kind == PIECE_ZERO || (in_place && part == 0))
			continue;
		if (!in_place) {
			expect(ctx, false, &piece);
			continue;
		}
		piece.count = (size_t)c->rank * part;
		expect(ctx, true, &piece);
		piece.at = piece.base = piece.count + part;
		piece.count = c->geometry.send - piece.at;
		expect(ctx, true, &piece);
	}
}

static void each_expected(const struct call *c, bool in_place, uint64_t seed,
			  expect_fn *expect, void *ctx)
{
	struct piece piece;

	for (int k = 0; operation_received(c, seed, in_place, k, &piece); k++) {
		if (in_place)
			piece.at += (size_t)c->rank * c->geometry.recv_shift;
		expect(ctx, true, &piece);
	}
	each_sent(c, in_place, seed, expect, ctx);
}

/* The check of one rank. */
struct check {
	struct verify_pattern *pattern;
	struct session_rank *r;
	const struct call *call;
	size_t wrong;
	/* On a device: which buffer is being checked, and whether its contents
	 * are known exactly. */
	bool received, exact;
};

static void count_wrong(void *ctx, bool received, const struct piece *piece)
{
	struct check *k = ctx;

	k->wrong += wrong_in_piece(k->pattern, k->call,
				   received ? k->r->recv_seen : k->r->send_seen,
				   piece);
}

static size_t wrong_on_host(struct check *k, bool in_place, uint64_t seed)
{
	const char *guard = k->r->recv_seen + guard_of(k->call, in_place);

	session_rank_pull(k->r, data_bytes(k->call) + SESSION_GUARD);
	each_expected(k->call, in_place, seed, count_wrong, k);
	for (int i = 0; i < SESSION_GUARD; i++)
		k->wrong += (unsigned char)guard[i] != GUARD_BYTE;
	return k->wrong;
}

/* ---- on a device ---- */

/* Leaves in the device's buffer `check` the bits that are wrong. */
static void differ(struct check *k, size_t at, size_t bytes)
{
	const char *there = k->received ? k->r->recv : k->r->send;
	struct session_rank *r = k->r;

	CHECK_DICOMM(*r->comm,
		     dicomm_reduce_local(there + at, r->check + at, bytes,
					 DICOMM_UINT8, DICOMM_BXOR, *r->comm,
					 r->stream));
}

static void differ_piece(void *ctx, bool received, const struct piece *piece)
{
	struct check *k = ctx;
	size_t size = k->call->type->bytes;

	if (received == k->received)
		differ(k, piece->at * size, piece->count * size);
}

static void expect_piece(void *ctx, bool received, const struct piece *piece)
{
	struct check *k = ctx;
	char *image = received ? k->r->recv_seen : k->r->send_seen;

	if (received == k->received)
		k->exact &= fill_piece(k->pattern, k->call, image, piece);
}

/* Returns true if the buffer `check` is zero. Combines its halves until few
 * bytes are left. */
static bool is_zero(struct session_rank *r, size_t bytes)
{
	unsigned char few[FEW_BYTES];

	while (bytes > sizeof(few)) {
		size_t half = ((bytes + 1) / 2 + 63) & ~(size_t)63;

		CHECK_DICOMM(*r->comm,
			     dicomm_reduce_local(r->check + half, r->check,
						 bytes - half, DICOMM_UINT8,
						 DICOMM_BOR, *r->comm,
						 r->stream));
		bytes = half;
	}
	CHECK_DICOMM(*r->comm, dicomm_comm_memcpy(*r->comm, few, r->check,
						  bytes, r->stream));
	for (size_t i = 0; i < bytes; i++)
		if (few[i])
			return false;
	return true;
}

/* Returns true if one of the two buffers is right. The host builds the expected
 * contents in its copy of the buffer, with zeros where any value is allowed. */
static bool device_agrees(struct check *k, bool in_place, uint64_t seed)
{
	struct session_rank *r = k->r;
	size_t bytes = data_bytes(k->call) + SESSION_GUARD;
	size_t guard = guard_of(k->call, in_place);
	char *image = k->received ? r->recv_seen : r->send_seen;

	k->exact = true;
	memset(image, 0, bytes);
	each_expected(k->call, in_place, seed, expect_piece, k);
	if (!k->exact)
		return false;
	if (k->received)
		memset(image + guard, GUARD_BYTE, SESSION_GUARD);
	CHECK_DICOMM(*r->comm, dicomm_comm_memcpy(*r->comm, r->check, image,
						  bytes, r->stream));
	each_expected(k->call, in_place, seed, differ_piece, k);
	if (k->received)
		differ(k, guard, SESSION_GUARD);
	return is_zero(r, bytes);
}

size_t data_wrong(struct verify_pattern *p, struct session_rank *r,
		  const struct call *c, bool in_place, uint64_t seed)
{
	struct check k = {.pattern = p, .r = r, .call = c};
	bool agrees;

	if (!r->check)
		return wrong_on_host(&k, in_place, seed);
	/* In place, everything is in the receive buffer. */
	agrees = in_place || device_agrees(&k, in_place, seed);
	k.received = true;
	if (agrees && device_agrees(&k, in_place, seed))
		return 0;
	/* The host finds out which elements are wrong, and which are only
	 * rounded. */
	if (wrong_on_host(&k, in_place, seed) == 0 && k.exact) {
		fprintf(stderr,
			"rank %d: its device sees other data than the host\n",
			r->rank);
		return 1;
	}
	return k.wrong;
}
