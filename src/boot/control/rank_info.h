/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank sends about itself in its join request: its number, its process,
 * and all properties that the ranks of one communicator must share.
 */
#ifndef DICOMM_BOOT_RANK_INFO_H
#define DICOMM_BOOT_RANK_INFO_H

#include "src/boot/net/frame.h"

#define RANK_INFO_HOST 64
#define RANK_INFO_WHERE 96 /* "host pid 4711" */

struct rank_info {
	uint32_t rank, ranks;
	uint64_t node; /* equal for ranks of one host */
	uint32_t abi, version, byte_order, pointer_bytes;
	char features[128]; /* versions of the formats that ranks exchange */
	uint64_t config_hash;
	char config[FRAME_TEXT];
	uint32_t pid;
	char host[RANK_INFO_HOST];
};

void rank_info_self(struct rank_info *info, int rank, int ranks);
/* Tests set this, while no other thread runs, to change what a rank sends. */
extern void (*rank_info_test_hook)(struct rank_info *info);

void rank_info_put(struct frame_writer *out, const struct rank_info *info);
/* Sets in->bad if the frame does not contain a rank info. */
void rank_info_get(struct frame_reader *in, struct rank_info *info);
void rank_info_where(const struct rank_info *info, char text[RANK_INFO_WHERE]);
/* Ends a text that another rank has sent, and replaces what is not text. */
void rank_info_make_printable(char text[RANK_INFO_WHERE]);
/* Returns true if these two ranks can work together. Otherwise `why` names both
 * ranks and their values. */
bool rank_info_agrees(const struct rank_info *a, const struct rank_info *b,
		      char *why, size_t len);

#endif
