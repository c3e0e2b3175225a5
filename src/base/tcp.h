/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of TCP connections that last as long as a rank. */
#ifndef DICOMM_BASE_TCP_H
#define DICOMM_BASE_TCP_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/config.h"

/* Returns how many milliseconds a host may be silent; 0: for ever. */
static inline unsigned tcp_silent_ms(void)
{
	return (unsigned)config_int(CONFIG_TCP_SILENT_MS);
}

/* Sends small messages at once. Notices that a host has been silent for too
 * long, if there is no data for it. A host that answers but accepts no data is
 * not such a case: TCP_USER_TIMEOUT would end the connection to a stopped
 * rank. */
static inline void tcp_tune_data(int fd)
{
	int silent_s = (int)tcp_silent_ms() / 1000, on = 1, count = 4;
	int every_s = silent_s < 6 ? 1 : silent_s / 6;
	int idle_s = silent_s > 4 ? silent_s - count * every_s : 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!silent_s)
		return;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* As tcp_tune_data(), for a connection with few and short messages, which the
 * other end always accepts. So a silent host is noticed even if there is data
 * for it. */
static inline void tcp_tune(int fd)
{
	unsigned silent_ms = tcp_silent_ms();

	tcp_tune_data(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms,
		   sizeof(silent_ms));
}

/* Writes why a connection has ended with this errno. The kernel's own text does
 * not say which parameter sets the bound for a silent host; this one does. */
static inline void tcp_reason(int error, char *text, size_t len)
{
	if (error == ETIMEDOUT && tcp_silent_ms())
		snprintf(text, len,
			 "its host has not answered for %u s "
			 "(DICOMM_TCP_SILENT_MS)",
			 tcp_silent_ms() / 1000);
	else
		snprintf(text, len, "%s", strerror(error));
}

/* Returns true if this errno of accept() means that descriptors or memory are
 * short. The listener stays readable in that case, so an immediate retry would
 * only burn CPU time. */
static inline bool tcp_is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS;
}

#endif
