/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to the user, and the two macros that carry an error.
 *
 * A message never blocks and never raises a signal. What cannot be written is
 * dropped, and a later message says how many were.
 *
 * An error is printed once, by the function that decides it (FAIL); callers
 * pass the status on (TRY). The text is also kept for the calling thread, from
 * where the API hands it out as dicomm_get_last_error().
 */
#ifndef DICOMM_BASE_LOG_H
#define DICOMM_BASE_LOG_H

#include <stdbool.h>

#include "dicomm.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* What DICOMM_DEBUG is when nobody sets it. */
#define LOG_DEFAULT "warn"

/* Internal: back-pressure. Nothing happened; make progress, then retry. */
#define DICOMM_AGAIN ((dicomm_result_t)-1)

/* Where messages of the calling thread go, beside stderr (or the file that
 * DICOMM_DEBUG_FILE names); NULL restores. Errors and warnings always go there,
 * the rest as DICOMM_DEBUG says; message has neither head nor newline. */
void log_set_sink(void (*fn)(int level, const char *message, void *ctx),
		  void *ctx);
/* Rank shown at the head of the calling thread's messages; -1 for none. */
void log_set_rank(int rank);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *file, int line,
	       const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Give the last error to the sink of the calling thread once more: the sink may
 * be set only after the error. */
void log_repeat(void);
/* Last error text of the calling thread; "" if none. */
const char *log_last_error(void);
void log_set_last_error(const char *text);
/* Keep back the messages of this thread while it holds a lock that a sink could
 * take. Then write the first few, or drop them all. An error takes the place of
 * the last one if there are too many. Not nested. */
void log_hold(void);
void log_release(bool write);

#define log_at(level, ...)                                           \
	(log_enabled(level)                                          \
		 ? log_write(level, __FILE__, __LINE__, __VA_ARGS__) \
		 : (void)0)
#define log_error(...) log_write(LOG_ERROR, __FILE__, __LINE__, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

/* Log why, once, where the error is decided; evaluates to the status. */
#define FAIL(status, ...) (log_error(__VA_ARGS__), (status))

/* Pass an error on, unlogged. Only in functions that own nothing yet. */
#define TRY(expr)                                    \
	do {                                         \
		dicomm_result_t try_status = (expr); \
		if (try_status != DICOMM_SUCCESS)    \
			return try_status;           \
	} while (0)

#endif
