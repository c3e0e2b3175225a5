/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of one communicator: how its ranks find each other, and
 * what they exchange that is not data (deaths, aborts, queries about calls).
 *
 * Every rank keeps one authenticated TCP connection to rank 0 (the hub) for the
 * life of the communicator. One control thread per process serves the
 * connections of all its communicators. It answers queries and calls
 * config.events, and never touches the data path.
 */
#ifndef DICOMM_BOOT_CONTROL_H
#define DICOMM_BOOT_CONTROL_H

#include "src/boot/control/config.h"

struct control;

/*
 * Joins all ranks, within timeout_ms. On DICOMM_ERR_TIMEOUT the log names the
 * ranks that are missing. Ranks with a wrong secret, another version, byte
 * order or pointer size, and ranks whose number is taken already, are refused;
 * the error names them.
 */
dicomm_result_t control_open(const struct control_config *config,
			     struct control **out);

/* To be called by a rank that fails before it can call control_open(), with the
 * reason in log_last_error(). Sends that text to the other ranks by the id, so
 * that they fail at once with DICOMM_ERR_REMOTE instead of waiting. Takes at
 * most 5 s, logs nothing, and does not change the last error. */
void control_cannot_open(const dicomm_unique_id_t *id, int rank, int ranks);

/* Gathers len bytes of each rank, in rank order. All ranks must call it in the
 * same order and with the same len; otherwise all get DICOMM_ERR_INVALID_USAGE.
 * Waits at most timeout_ms (0: no bound); control_busy() makes that longer.
 * Returns DICOMM_ERR_REMOTE at once if a rank dies or has left. After a
 * time-out, a death or a reported failure all later calls fail too, because
 * ranks no longer know which all-gather the others are in. */
dicomm_result_t control_allgather(struct control *c, const void *mine,
				  void *all, size_t len, int timeout_ms);

/* Announces that this rank does something that may take longer than the
 * time-out of the next control_allgather(), such as compiling kernels. The
 * other ranks wait longer, at most CONTROL_BUSY_MS, while the control thread of
 * this rank still answers. `doing` is a text of up to 60 bytes; NULL: it is
 * done. */
#define CONTROL_BUSY_MS 600000
void control_busy(struct control *c, const char *text);

/* Sends a query to a rank (see control_events.query) and waits at most
 * timeout_ms for the answer. Sets *known to false if the rank has not called it
 * yet. Returns DICOMM_ERR_TIMEOUT if there is no answer. The control thread
 * must not call it. */
dicomm_result_t control_query(struct control *c, int rank, uint32_t class,
			      uint64_t number, int timeout_ms, bool *known,
			      uint32_t *signature, char *text, size_t len);

/* Sends another rank a letter (mail.h); an empty one withdraws an earlier one.
 * Does not wait. Delivery is not confirmed, and a rank that does not read its
 * letters loses some. */
#define CONTROL_LETTER_MAX 1024
dicomm_result_t control_post(struct control *c, int to, uint64_t key,
			     const void *data, size_t len);
/* Waits until clock_ns() is until_ns for a letter with that key and len bytes
 * of rank *from, or of any rank if *from is -1. Sets *from to its sender.
 * *age_ms becomes the time since it arrived. Returns DICOMM_ERR_TIMEOUT,
 * without a message, if none has arrived, and DICOMM_ERR_REMOTE if that rank or
 * rank 0 has left, or the status of a failure that was reported. It is not a
 * failure if other ranks have left. */
dicomm_result_t control_fetch(struct control *c, int *from, uint64_t key,
			      void *data, size_t len, uint64_t *age_ms,
			      uint64_t until_ns);

/* Tells all other ranks about a failure and ends this rank's own
 * control_allgather(). Does not wait for other ranks. */
void control_report(struct control *c, dicomm_result_t status, int culprit,
		    const char *text);

/* Returns true if the rank has left or died. */
bool control_gone(struct control *c, int rank);
/* Returns where a rank runs, for messages: "host3 pid 4711". */
const char *control_where(struct control *c, int rank);

/*
 * Announces that this rank leaves, so that other ranks do not take that for its
 * death, and frees c. Delivers no event afterwards. On rank 0 this ends the
 * connections of the other ranks too; these consider rank 0 gone, not dead.
 *
 * In a child of fork() this does nothing, and every other call fails with
 * DICOMM_ERR_INVALID_USAGE: the connections belong to the parent.
 */
void control_close(struct control *c);

#endif
