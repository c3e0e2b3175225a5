/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of ranks that the id server or the hub waits for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/delta.h"
#include "src/boot/control/members.h"

void members_fini(struct members *m)
{
	free(m->list);
	m->list = NULL;
}

dicomm_result_t members_init(struct members *m, const struct rank_info *info,
			     unsigned connected, char *why, size_t len)
{
	if (m->list)
		return DICOMM_SUCCESS;
	m->list = calloc(info->ranks, sizeof(*m->list));
	if (!m->list) {
		snprintf(why, len, "out of memory for %" PRIu32 " ranks",
			 info->ranks);
		return DICOMM_ERR_NO_MEMORY;
	}
	m->ranks = (int)info->ranks;
	m->first = *info;
	for (int i = 0; i < m->ranks; i++)
		m->list[i] = (struct member){.awaited = true, .parent = -1};
	/* Ranks of this process have both ends of their connections here. */
	if (sock_make_room(2 * info->ranks, connected, why, len) ||
	    sock_make_room(info->ranks, connected, why, len))
		return DICOMM_SUCCESS;
	return DICOMM_ERR_SYSTEM;
}

/* Returns DICOMM_SUCCESS if the rank can be admitted. Otherwise returns the
 * status to refuse it with, and writes the reason to `why`. */
static dicomm_result_t examine(struct members *m, const struct rank_info *info,
			       unsigned pending, const char *where, char *why,
			       size_t len)
{
	if (!info->ranks || info->ranks > CONTROL_RANKS_MAX ||
	    info->rank >= info->ranks) {
		snprintf(why, len,
			 "rank %" PRIu32 " (%s) of %" PRIu32
			 " ranks: no such rank (at most %d ranks)",
			 info->rank, where, info->ranks, CONTROL_RANKS_MAX);
		return DICOMM_ERR_INVALID_USAGE;
	}
	/* This one is connected, too. */
	TRY(members_init(m, info, pending + 1, why, len));
	if (!rank_info_agrees(&m->first, info, why, len))
		return DICOMM_ERR_INVALID_USAGE;
	if (m->list[info->rank].came) {
		snprintf(why, len, "rank %" PRIu32 " came twice: %s and %s",
			 info->rank, m->list[info->rank].where, where);
		return DICOMM_ERR_INVALID_USAGE;
	}
	return DICOMM_SUCCESS;
}

bool members_admit(struct members *m, struct peer_conn *peer, unsigned pending,
		   const struct rank_info *info)
{
	char where[RANK_INFO_WHERE] = "", why[FRAME_TEXT];
	dicomm_result_t status;
	struct member *member;

	rank_info_where(info, where);
	if (!m->failed) {
		status = examine(m, info, pending, where, why, sizeof(why));
		if (status != DICOMM_SUCCESS)
			members_fail(m, status, (int)info->rank, why);
	}
	if (m->failed) {
		m->refused++;
		listener_refuse(peer, m->status, m->text);
		return false;
	}
	member = &m->list[info->rank];
	member->peer = peer;
	member->came = true;
	member->awaited = false;
	member->node = info->node;
	memcpy(member->where, where, sizeof(where));
	peer->rank = (int)info->rank;
	m->came++;
	return true;
}

void members_broadcast(struct members *m, const struct frame_writer *out,
		       const struct peer_conn *except)
{
	for (int i = 0; i < m->ranks; i++)
		if (m->list[i].peer && m->list[i].peer != except)
			conn_send(&m->list[i].peer->conn, out);
}

void members_put_names(const struct members *m, struct frame_writer *out)
{
	size_t room = sizeof(out->data) - out->len;
	struct delta_writer w = {.data = NULL};

	for (int i = 0; i < m->ranks; i++)
		delta_add(&w, i ? (const uint8_t *)m->list[i - 1].where : NULL,
			  (const uint8_t *)m->list[i].where,
			  sizeof(m->list[i].where));
	if (delta_end(&w) && w.len <= room)
		frame_put_bytes(out, w.data, w.len);
	free(w.data);
}

void members_fail(struct members *m, dicomm_result_t status, int culprit,
		  const char *text)
{
	struct frame_writer out;

	if (m->failed)
		return;
	m->failed = true;
	m->status = status;
	snprintf(m->text, sizeof(m->text), "%s", text);
	log_info("the ranks cannot join: %s", text);
	frame_begin(&out, FRAME_FAILED);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_u32(&out, (uint32_t)culprit);
	frame_put_text(&out, text);
	members_broadcast(m, &out, NULL);
}

/* Writes the missing ranks: "rank 3", "ranks 1, 4-7"; "" if none is missing. If
 * all of them are busy, returns true, and adds what the first one does. */
static bool write_missing(const struct members *m, char *text, size_t len)
{
	uint64_t now = clock_ns();
	size_t n = 0;
	int last, count = 0, busy = 0, first = -1;

	text[0] = '\0';
	for (int i = m->ranks; i-- > 0;) {
		if (!m->list[i].awaited || m->list[i].busy_ns < now)
			continue;
		busy++;
		first = i;
	}
	for (int i = 0; i < m->ranks; i = last + 1) {
		last = i;
		if (!m->list[i].awaited)
			continue;
		while (last + 1 < m->ranks && m->list[last + 1].awaited)
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
	n = strlen(text);
	if (busy)
		snprintf(text + n, len - n, " (rank %d is at work on %s)",
			 first, m->list[first].doing);
	return busy && busy == count;
}

void members_send_missing(const struct members *m, struct peer_conn *peer,
			  uint64_t gather)
{
	struct frame_writer out;
	char text[640] = "";
	bool busy = m && write_missing(m, text, sizeof(text));

	frame_begin(&out, FRAME_MISSING);
	frame_put_u64(&out, gather);
	frame_put_text(&out, text);
	frame_put_u32(&out, busy);
	conn_send(&peer->conn, &out);
}
