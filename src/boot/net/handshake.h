/* SPDX-License-Identifier: BSD-3-Clause */
/* What both ends of the handshake (listener.c, client.c) need to know. */
#ifndef DICOMM_BOOT_HANDSHAKE_H
#define DICOMM_BOOT_HANDSHAKE_H

#define HANDSHAKE_MAGIC 0x01006d6d6f636964ull /* "dicomm", 0, 1 */
#define HANDSHAKE_PROTOCOL 2u
#define HANDSHAKE_LIMIT 256 /* bytes of a frame from an unknown sender */

#endif
