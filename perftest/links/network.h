/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What was measured between hosts, and what it says of the network: the rate
 * of each host's way, and which hosts sit behind a way that they share.
 */
#ifndef DICOMM_PERFTEST_LINKS_NETWORK_H
#define DICOMM_PERFTEST_LINKS_NETWORK_H

#include <stdbool.h>
#include <stdio.h>

/* Bytes per second, and seconds. */
struct network {
	int hosts;
	/* [from * hosts + to] */
	double *latency;
	double *alone;    /* nothing else is under way */
	double *together; /* every host sends to another one, and receives */
	/* [host] */
	double *up, *down; /* to, from all others at once */
	double *inside;    /* between two of its ranks; 0: has one */
	int *ranks;
	int *island;
	const char **name; /* borrowed */
	int islands;       /* 0: nobody looked for any */
	/* [island]: out of it, into it; 0: no narrower than its hosts' ways */
	double *island_up, *island_down;
};

/* All zero. false: no memory. */
bool network_create(struct network *n, int hosts);
void network_destroy(struct network *n);

/* From what is measured but for the rates of islands: who shares one. Two
 * hosts do unless their way is narrower than what each of them has, or becomes
 * so when others are busy. */
void network_find_islands(struct network *n);
/* Do the ways of hosts explain what flows out of an island, or into it, took?
 */
bool network_is_wide(double seconds, double ways_seconds);
/* Where no island's way limits anything, there are none. */
void network_drop_islands(struct network *n);

/* The matrices, hosts and islands as tables. */
void network_print(const struct network *n);
/* As DICOMM_TOPO_FILE reads it; without names, where two hosts have one. -1
 * with errno. */
int network_save(const struct network *n, const char *path);
/* A heat map of the rates, as a program for gnuplot. */
void network_script(const struct network *n, FILE *out, const char *path);

#endif
