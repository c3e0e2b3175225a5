/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of one id. It runs in the process that made the id. Every rank
 * connects to it; when all have come, it tells them where rank 0's hub listens,
 * and watches over them until they are connected there.
 */
#ifndef DICOMM_BOOT_ID_SERVER_H
#define DICOMM_BOOT_ID_SERVER_H

#include <stdbool.h>

#include "src/boot/net/auth.h"

struct handshake_alive;

/* Start to serve. Takes the listening socket fd, also on failure. alive says
 * how it answers probes at this socket; NULL: not at all. Takes the lock. */
dicomm_result_t id_server_open(int fd, const uint8_t key[AUTH_KEY],
			       const char *address,
			       const struct handshake_alive *alive);
/* Does this process serve that address, and are ranks still to come? With the
 * lock held. */
bool id_server_is_open(const char *address);
/* A rank of this process has failed to join, and the process may end at once.
 * If it serves that address, wait until all ranks that have come are told why;
 * with all, also until the ranks on their way have come and been told. At most
 * until until_ns. Takes the lock. */
void id_server_flush(const char *address, bool all, uint64_t until_ns);
/* Stop serving that address where joining has failed. Takes the lock. */
void id_server_close_failed(const char *address);
/* Stop serving that address, failed or not. Takes the lock. */
void id_server_close(const char *address);

#endif
