/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to the user, and the two macros for errors.
 *
 * Writing a message never blocks and never raises a signal. A line that cannot
 * be written is dropped, and a later message says how many were.
 *
 * An error is logged once, by the function that detects it (FAIL); its callers
 * pass the status on (TRY). The text is also kept for the calling thread, and
 * the API returns it as dicomm_get_last_error().
 */
#ifndef DICOMM_BASE_LOG_H
#define DICOMM_BASE_LOG_H

#include <stdbool.h>

#include "dicomm.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* The level if DICOMM_DEBUG is not set. */
#define LOG_DEFAULT "warn"

/* Internal status for back-pressure: nothing happened; make progress, then
 * retry. */
#define DICOMM_AGAIN ((dicomm_result_t)-1)

/* Sends messages of the calling thread to a function, too, in addition to
 * stderr (or the file that DICOMM_DEBUG_FILE names). The function gets all
 * errors and warnings, and other levels if DICOMM_DEBUG includes them.
 * `message` has neither a head nor a newline. NULL removes the function. */
void log_set_sink(void (*fn)(int level, const char *message, void *ctx),
		  void *ctx);
/* Sets the rank in the head of the calling thread's messages; -1 for none. */
void log_set_rank(int rank);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *file, int line,
	       const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Sends the last error to the calling thread's sink once more, because the sink
 * may have been set only after the error. */
void log_repeat(void);
/* Returns the text of the calling thread's last error; "" if there is none. */
const char *log_last_error(void);
void log_set_last_error(const char *text);
/* While it is on, errors of this thread are not logged; they only become the
 * last error. For a caller that tries something else then, or reports the error
 * itself. Not nested. */
void log_catch(bool on);
/* While it is on, errors of this thread are logged at level info and do not
 * become the last error. For attempts that the user has not asked for. Not
 * nested. */
void log_demote(bool on);
/* log_hold() keeps the messages of this thread back while it holds a lock that
 * a sink could take. log_release() then writes the first few, or drops all of
 * them. If there are too many, an error replaces the last one that was kept.
 * Calls cannot be nested. */
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

/* Logs the reason of an error where it is detected. Its value is the status. */
#define FAIL(status, ...) (log_error(__VA_ARGS__), (status))

/* Returns from the calling function if expr fails. Logs nothing. Use it only
 * while the function owns nothing that must be released. */
#define TRY(expr)                                    \
	do {                                         \
		dicomm_result_t try_status = (expr); \
		if (try_status != DICOMM_SUCCESS)    \
			return try_status;           \
	} while (0)

#endif
