/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of one communicator: how its ranks find each other, and
 * what they tell each other apart from data (who died, who called what).
 *
 * Every rank keeps one authenticated TCP connection to rank 0 (the hub) for the
 * life of the communicator. One control thread per process serves the
 * connections of all its communicators. It answers queries and passes
 * news to config.events, and never touches the data path.
 */
#ifndef DICOMM_BOOT_CONTROL_H
#define DICOMM_BOOT_CONTROL_H

#include "src/boot/control/config.h"

struct control;

/*
 * Join all ranks. Bounded by timeout_ms. ERR_TIMEOUT names the ranks that did
 * not come. A wrong secret, an unlike version, byte order or pointer size, and
 * a rank number taken twice are refused, and the error names them.
 */
dicomm_result_t control_open(const struct control_config *config,
			     struct control **out);

/* This rank failed before it could call control_open(), with this status and
 * log_last_error(). Tell the others by the id, so that they fail at once with
 * ERR_REMOTE and that text instead of waiting for it. Bounded by 5 s, logs
 * nothing, and changes no last error. */
void control_cannot_open(const dicomm_unique_id_t *id, int rank, int ranks);

/* Gather len bytes of each rank, in rank order. All ranks call it in the same
 * order and with the same len; otherwise all get ERR_INVALID_USAGE. Bounded by
 * timeout_ms (0: no bound). ERR_REMOTE at once if a rank dies or has left.
 * After a time-out, a death or a reported failure all later calls fail too,
 * because the ranks no longer know which all-gather the others are at. */
dicomm_result_t control_allgather(struct control *c, const void *mine,
				  void *all, size_t len, int timeout_ms);

/* Ask a rank what it called (see control_events.query) and wait at most
 * timeout_ms. ERR_TIMEOUT: no answer. *known is false if it has not called it
 * yet. Must not be called from the control thread. */
dicomm_result_t control_query(struct control *c, int rank, uint32_t class,
			      uint64_t number, int timeout_ms, bool *known,
			      uint32_t *signature, char *text, size_t len);

/* Tell all other ranks of a failure, and end this rank's own
 * control_allgather(). Local, never blocks for long. */
void control_report(struct control *c, dicomm_result_t status, int culprit,
		    const char *text);

/* Has the rank left (said goodbye) or died? */
bool control_gone(struct control *c, int rank);
/* Host and pid of a rank, for messages: "host3 pid 4711". */
const char *control_where(struct control *c, int rank);

/* Say goodbye, so that leaving is not taken for dying, and free c. No event is
 * delivered afterwards. If this is rank 0, the connections of the others end
 * too; they treat a hub that said goodbye as gone, not dead.
 *
 * In a child of fork() this does nothing, and every other call fails with
 * ERR_INVALID_USAGE: the connections belong to the parent. */
void control_close(struct control *c);

#endif
