/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NH, the universal hash of UMAC and Adiantum. It hashes each 4 KiB to 16
 * bytes, at the speed of memory. Two different blocks have the same hash for at
 * most 2^-64 of all keys (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC,
 * CRYPTO 1999, theorem 4.2.2; two passes, the key moved on by a pair of words).
 * The hash reveals block and key, so it must not be sent: only an authenticator
 * of it may be.
 */
#ifndef DICOMM_TRANSPORTS_TCP_NH_H
#define DICOMM_TRANSPORTS_TCP_NH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define NH_BLOCK 4096 /* bytes of data for each hash */
#define NH_STEP 64    /* lengths are padded to a multiple of it */
#define NH_PASSES 2
#define NH_KEY (NH_BLOCK + 8 * (NH_PASSES - 1))
#define NH_HASH (8 * NH_PASSES)

static inline uint64_t nh_pair(uint64_t data, uint64_t key)
{
	uint32_t low = (uint32_t)data + (uint32_t)key;
	uint32_t high = (uint32_t)(data >> 32) + (uint32_t)(key >> 32);

	return (uint64_t)low * high;
}

static inline void nh_plain(const uint8_t *key, const uint8_t *data, size_t len,
			    uint64_t sum[NH_PASSES])
{
	uint64_t word, k[NH_PASSES];

	for (size_t i = 0; i < len; i += sizeof(word)) {
		memcpy(&word, data + i, sizeof(word));
		memcpy(k, key + i, sizeof(k));
		sum[0] += nh_pair(word, k[0]);
		sum[1] += nh_pair(word, k[1]);
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline void
nh_avx2(const uint8_t *key, const uint8_t *data, size_t len,
	uint64_t sum[NH_PASSES])
{
	__m256i a = _mm256_setzero_si256(), b = a, word, x, y;
	uint64_t lanes[4];

	for (size_t i = 0; i < len; i += sizeof(word)) {
		word = _mm256_loadu_si256((const void *)(data + i));
		x = _mm256_loadu_si256((const void *)(key + i));
		y = _mm256_loadu_si256((const void *)(key + 8 + i));
		x = _mm256_add_epi32(word, x);
		y = _mm256_add_epi32(word, y);
		x = _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32));
		y = _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32));
		a = _mm256_add_epi64(a, x);
		b = _mm256_add_epi64(b, y);
	}
	memcpy(lanes, &a, sizeof(lanes));
	sum[0] += lanes[0] + lanes[1] + lanes[2] + lanes[3];
	memcpy(lanes, &b, sizeof(lanes));
	sum[1] += lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

__attribute__((target("avx512f"))) static inline void
nh_avx512(const uint8_t *key, const uint8_t *data, size_t len,
	  uint64_t sum[NH_PASSES])
{
	__m512i a = _mm512_setzero_si512(), b = a, word, x, y;
	uint64_t lanes[16];

	for (size_t i = 0; i < len; i += sizeof(word)) {
		word = _mm512_loadu_si512((const void *)(data + i));
		x = _mm512_loadu_si512((const void *)(key + i));
		y = _mm512_loadu_si512((const void *)(key + 8 + i));
		x = _mm512_add_epi32(word, x);
		y = _mm512_add_epi32(word, y);
		x = _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32));
		y = _mm512_mul_epu32(y, _mm512_srli_epi64(y, 32));
		a = _mm512_add_epi64(a, x);
		b = _mm512_add_epi64(b, y);
	}
	memcpy(lanes, &a, sizeof(a));
	memcpy(lanes + 8, &b, sizeof(b));
	for (int i = 0; i < 8; i++) {
		sum[0] += lanes[i];
		sum[1] += lanes[8 + i];
	}
}
#endif

typedef void (*nh_fn)(const uint8_t *key, const uint8_t *data, size_t len,
		      uint64_t sum[NH_PASSES]);

/* Returns number i of the implementations that this processor can run, fastest
 * first, or NULL. */
static inline nh_fn nh_usable(int i)
{
	nh_fn usable[4] = {NULL};
	int n = 0;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		usable[n++] = nh_avx512;
	if (__builtin_cpu_supports("avx2"))
		usable[n++] = nh_avx2;
#endif
	usable[n++] = nh_plain;
	return i < n ? usable[i] : NULL;
}

/* Hashes up to NH_BLOCK bytes, padded with zeros to a multiple of NH_STEP.
 * Blocks that differ only in such zeros have the same hash, so the length has
 * to be authenticated as well. */
static inline void nh_hash(nh_fn hash, const uint8_t key[NH_KEY],
			   const uint8_t *data, size_t len,
			   uint8_t out[NH_HASH])
{
	uint8_t last[NH_STEP] = {0};
	uint64_t sum[NH_PASSES] = {0};
	size_t whole = len / NH_STEP * NH_STEP;

	hash(key, data, whole, sum);
	if (whole < len) {
		memcpy(last, data + whole, len - whole);
		hash(key + whole, last, sizeof(last), sum);
	}
	memcpy(out, sum, NH_HASH);
}

#endif
