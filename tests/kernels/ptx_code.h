/* SPDX-License-Identifier: BSD-3-Clause */
/* A module of PTX after it was read: what ptx.c makes and ptx_run.c runs. */
#ifndef DICOMM_TESTS_KERNELS_PTX_CODE_H
#define DICOMM_TESTS_KERNELS_PTX_CODE_H

#include <stdbool.h>
#include <stdint.h>

enum ptx_kind { PTX_BITS, PTX_UNSIGNED, PTX_SIGNED, PTX_FLOAT, PTX_PREDICATE };

struct ptx_type {
	enum ptx_kind kind;
	int bits;
};

enum ptx_op {
	PTX_MOV,
	PTX_PACK,
	PTX_UNPACK,
	PTX_ADD,
	PTX_SUB,
	PTX_MUL,
	PTX_MUL_WIDE,
	PTX_MAD,
	PTX_DIV,
	PTX_FADD,
	PTX_FMUL,
	PTX_AND,
	PTX_OR,
	PTX_XOR,
	PTX_NOT,
	PTX_NEG,
	PTX_SHL,
	PTX_SHR,
	PTX_BFE,
	PTX_BFI,
	PTX_PRMT,
	PTX_MIN,
	PTX_MAX,
	PTX_SELP,
	PTX_EQ,
	PTX_NE,
	PTX_LT,
	PTX_LE,
	PTX_GT,
	PTX_GE,
	PTX_CVT,
	PTX_LD_PARAM,
	PTX_LD,
	PTX_ST,
	PTX_BRA,
	PTX_RET
};

/* Operands are indices of words, but that of PTX_LD_PARAM, which is the number
 * of a parameter. Of PTX_ST the first one is the address. */
struct ptx_insn {
	enum ptx_op op;
	struct ptx_type type, from;
	int guard; /* a predicate; -1: none */
	bool guard_negated;
	int out[4], in[5], nout, nin;
	int64_t offset; /* of an address */
	int target;     /* of a branch */
};

struct ptx_kernel {
	char name[64];
	int nparams;
	uint32_t block; /* threads that a block must have; 0: any */
	struct ptx_insn *insns;
	int ninsns;
	uint64_t *words; /* registers, all 0, and constants */
	int nwords;
	int tid, ctaid, ntid, nctaid; /* words */
};

struct ptx {
	char version[16], target[16];
	struct ptx_kernel *kernels;
	int nkernels;
};

#endif
