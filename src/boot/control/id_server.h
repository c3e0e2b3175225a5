/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of one id. It runs in the process that made the id. Every rank
 * connects to it. When all ranks are connected and rank 0 is in this process,
 * its hub takes over their connections. Otherwise the server tells them where
 * rank 0's hub listens, and keeps watching them until they are connected there.
 */
#ifndef DICOMM_BOOT_ID_SERVER_H
#define DICOMM_BOOT_ID_SERVER_H

#include <stdbool.h>

#include "src/base/auth.h"
#include "src/boot/net/sock.h"

struct handshake_alive;
struct hub;
struct rank_info;

/* Stands in the place of a hub's address: the reason why this rank does not
 * join follows, and the other ranks must not start before it. */
#define ID_SERVER_GIVES_UP "-"

/* Starts to serve. Takes ownership of the listening socket fd, also on failure.
 * `alive` is the answer to probes at this socket; NULL: they are not
 * answered. Takes the lock of the loop. */
dicomm_result_t id_server_open(int fd, const uint8_t key[AUTH_KEY],
			       const char *address,
			       const struct handshake_alive *alive);
/* If this process serves that address, who knows this other key may ask there
 * what the job does (job_port.h). Takes the lock of the loop. */
void id_server_let_ask(const char *address, const uint8_t asker_key[AUTH_KEY]);
/* Returns true if this process serves that address and ranks are still missing.
 * The caller holds the lock of the loop. */
bool id_server_is_open(const char *address);
/* Writes the address by which ranks of this process reach the server of that
 * address. If this process is the server, it is an address of this host,
 * because the given one may lead here only from other hosts. Takes the lock of
 * the loop. */
void id_server_reach(const char *address, char reach[SOCK_NAME]);
/* To be called by rank 0, with its join request. If this process serves that
 * address, hub_adopt() will be called for that hub of hub_open_idle() when all
 * ranks are connected; rank 0 joins without an address then. *given becomes
 * false if this process does not serve it, or no longer. Fails if the ranks
 * cannot join, for example for lack of descriptors here; then the other ranks
 * are refused. Takes the lock. */
dicomm_result_t id_server_give_hub(const char *address,
				   const struct rank_info *info,
				   struct hub *hub, bool *given);
/* Takes that back, before the hub is closed. Does nothing if the hub has its
 * ranks. Takes the lock. */
void id_server_take_hub(const char *address, const struct hub *hub);
/* If this process serves that address, refuses the ranks that are connected,
 * and those that connect in the next seconds, with the reason. Does not wait.
 * Takes the lock of the loop. */
void id_server_refuse(const char *address, dicomm_result_t status,
		      const char *text);
/* To be called when a rank of this process has failed to join and the process
 * may end soon. If this process serves that address, waits until the server has
 * sent the reason to all connected ranks, and until `come` ranks have
 * connected. Waits at most until until_ns. Takes the lock of the loop. */
#define ID_SERVER_ALL (-1) /* as `come` */
void id_server_flush(const char *address, int come, uint64_t until_ns);
/* Stops serving that address if joining has failed there. Takes the lock. */
void id_server_close_failed(const char *address);
/* Stops serving that address in any case. Takes the lock. */
void id_server_close(const char *address);

#endif
