/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of ranks that a meeting or a hub waits for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/roster.h"

void roster_fini(struct roster *r)
{
	free(r->seats);
	r->seats = NULL;
}

bool roster_begin(struct roster *r, const struct hello *h)
{
	if (r->seats)
		return true;
	r->seats = calloc(h->ranks, sizeof(*r->seats));
	if (!r->seats)
		return false;
	/* Each has two for a moment, one to the meeting and one to the hub,
	 * mostly in one process. */
	sock_make_room(2 * h->ranks);
	r->ranks = (int)h->ranks;
	r->first = *h;
	for (int i = 0; i < r->ranks; i++)
		r->seats[i].awaited = true;
	return true;
}

/* Why it cannot sit down; DICOMM_SUCCESS if it can. */
static dicomm_result_t examine(struct roster *r, const struct hello *h,
			       const char *where, char *why, size_t len)
{
	if (!h->ranks || h->ranks > ROSTER_RANKS_MAX || h->rank >= h->ranks) {
		snprintf(why, len,
			 "rank %" PRIu32 " (%s) of %" PRIu32
			 " ranks: no such rank (at most %d ranks)",
			 h->rank, where, h->ranks, ROSTER_RANKS_MAX);
		return DICOMM_ERR_INVALID_USAGE;
	}
	if (!roster_begin(r, h)) {
		snprintf(why, len, "out of memory for %" PRIu32 " ranks",
			 h->ranks);
		return DICOMM_ERR_NO_MEMORY;
	}
	if (!hello_agrees(&r->first, h, why, len))
		return DICOMM_ERR_INVALID_USAGE;
	if (r->seats[h->rank].came) {
		snprintf(why, len, "rank %" PRIu32 " came twice: %s and %s",
			 h->rank, r->seats[h->rank].where, where);
		return DICOMM_ERR_INVALID_USAGE;
	}
	return DICOMM_SUCCESS;
}

bool roster_sit(struct roster *r, struct guest *guest, const struct hello *h)
{
	char where[HELLO_WHERE], why[WIRE_TEXT];
	dicomm_result_t status;
	struct roster_seat *seat;

	hello_where(h, where);
	if (!r->failed) {
		status = examine(r, h, where, why, sizeof(why));
		if (status != DICOMM_SUCCESS)
			roster_fail(r, status, (int)h->rank, why);
	}
	if (r->failed) {
		r->refused++;
		gate_refuse(guest, r->status, r->text);
		return false;
	}
	seat = &r->seats[h->rank];
	seat->guest = guest;
	seat->came = true;
	seat->awaited = false;
	memcpy(seat->where, where, sizeof(where));
	guest->rank = (int)h->rank;
	r->came++;
	return true;
}

void roster_broadcast(struct roster *r, const struct wire_out *out,
		      const struct guest *except)
{
	for (int i = 0; i < r->ranks; i++)
		if (r->seats[i].guest && r->seats[i].guest != except)
			conn_send(&r->seats[i].guest->conn, out);
}

void roster_fail(struct roster *r, dicomm_result_t status, int culprit,
		 const char *text)
{
	struct wire_out out;

	if (r->failed)
		return;
	r->failed = true;
	r->status = status;
	snprintf(r->text, sizeof(r->text), "%s", text);
	log_info("the ranks do not meet: %s", text);
	wire_begin(&out, WIRE_FAILED);
	wire_put_u32(&out, (uint32_t)status);
	wire_put_u32(&out, (uint32_t)culprit);
	wire_put_text(&out, text);
	wire_end(&out);
	roster_broadcast(r, &out, NULL);
}

void roster_awaited(const struct roster *r, char *text, size_t len)
{
	size_t n = 0;
	int last, count = 0;

	text[0] = '\0';
	for (int i = 0; i < r->ranks; i = last + 1) {
		last = i;
		if (!r->seats[i].awaited)
			continue;
		while (last + 1 < r->ranks && r->seats[last + 1].awaited)
			last++;
		count += last - i + 1;
		if (n + 64 > len)
			continue;
		n += (size_t)snprintf(text + n, len - n, "%s%d", n ? ", " : "",
				      i);
		if (last > i)
			n += (size_t)snprintf(text + n, len - n, "-%d", last);
	}
	if (n + 64 > len)
		n += (size_t)snprintf(text + n, len - n, ", ...");
	if (count) {
		memmove(text + 6, text, n + 1);
		memcpy(text, count > 1 ? "ranks " : " rank ", 6);
		if (count == 1)
			memmove(text, text + 1, n + 6);
	}
}

void roster_tell_awaited(const struct roster *r, struct guest *guest,
			 uint64_t gather)
{
	struct wire_out out;
	char text[512];

	roster_awaited(r, text, sizeof(text));
	wire_begin(&out, WIRE_MISSING);
	wire_put_u64(&out, gather);
	wire_put_text(&out, text);
	wire_end(&out);
	conn_send(&guest->conn, &out);
}

dicomm_result_t roster_status(uint32_t status)
{
	switch (status) {
	case DICOMM_ERR_DEVICE:
	case DICOMM_ERR_SYSTEM:
	case DICOMM_ERR_INTERNAL:
	case DICOMM_ERR_INVALID_ARGUMENT:
	case DICOMM_ERR_INVALID_USAGE:
	case DICOMM_ERR_TIMEOUT:
	case DICOMM_ERR_NO_MEMORY:
	case DICOMM_ERR_UNSUPPORTED:
	case DICOMM_ERR_NO_PATH:
	case DICOMM_ERR_ABORTED:
		return (dicomm_result_t)status;
	default:
		return DICOMM_ERR_REMOTE;
	}
}
