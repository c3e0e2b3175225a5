/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <string.h>

#include "src/base/type.h"
#include "tests/support/runner.h"

/* The public numbers, which are NCCL's below 16 and must never change. */
static const struct {
	int number;
	dicomm_datatype_t type;
	const char *name;
	size_t bytes;
	bool is_float, narrow;
} expected[] = {
	{0, DICOMM_INT8, "int8", 1, false, false},
	{0, DICOMM_CHAR, "int8", 1, false, false},
	{1, DICOMM_UINT8, "uint8", 1, false, false},
	{2, DICOMM_INT32, "int32", 4, false, false},
	{2, DICOMM_INT, "int32", 4, false, false},
	{3, DICOMM_UINT32, "uint32", 4, false, false},
	{4, DICOMM_INT64, "int64", 8, false, false},
	{5, DICOMM_UINT64, "uint64", 8, false, false},
	{6, DICOMM_FLOAT16, "float16", 2, true, true},
	{6, DICOMM_HALF, "float16", 2, true, true},
	{7, DICOMM_FLOAT32, "float32", 4, true, false},
	{7, DICOMM_FLOAT, "float32", 4, true, false},
	{8, DICOMM_FLOAT64, "float64", 8, true, false},
	{8, DICOMM_DOUBLE, "float64", 8, true, false},
	{9, DICOMM_BFLOAT16, "bfloat16", 2, true, true},
	{10, DICOMM_FLOAT8E4M3, "float8e4m3", 1, true, true},
	{11, DICOMM_FLOAT8E5M2, "float8e5m2", 1, true, true},
	{16, DICOMM_INT16, "int16", 2, false, false},
	{17, DICOMM_UINT16, "uint16", 2, false, false},
	{18, DICOMM_FLOAT8E4M3FNUZ, "float8e4m3fnuz", 1, true, true},
	{19, DICOMM_FLOAT8E5M2FNUZ, "float8e5m2fnuz", 1, true, true},
	{20, DICOMM_BOOL, "bool", 1, false, false},
	{21, DICOMM_COMPLEX64, "complex64", 8, true, false},
	{22, DICOMM_COMPLEX128, "complex128", 16, true, false},
	{23, DICOMM_BYTES2, "bytes2", 2, false, false},
	{24, DICOMM_BYTES4, "bytes4", 4, false, false},
	{25, DICOMM_BYTES8, "bytes8", 8, false, false},
	{26, DICOMM_BYTES16, "bytes16", 16, false, false},
};

START_TEST(each_type_has_its_number_name_and_size)
{
	dicomm_datatype_t type = expected[_i].type;

	ck_assert_int_eq((int)type, expected[_i].number);
	ck_assert(type_valid(type));
	ck_assert_str_eq(type_name(type), expected[_i].name);
	ck_assert_uint_eq(type_bytes(type), expected[_i].bytes);
	ck_assert(type_is_float(type) == expected[_i].is_float);
	ck_assert(type_is_narrow_float(type) == expected[_i].narrow);
}
END_TEST

START_TEST(what_is_no_type_is_invalid_and_has_no_size)
{
	static const int bad[] = {-1, 12, 13, 14, 15, 27, 1000, -2147483647};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		dicomm_datatype_t type = (dicomm_datatype_t)bad[i];

		ck_assert(!type_valid(type));
		ck_assert_uint_eq(type_bytes(type), 0);
		ck_assert_str_eq(type_name(type), "invalid type");
		ck_assert(!type_is_float(type));
		ck_assert(!type_is_narrow_float(type));
	}
}
END_TEST

START_TEST(each_operator_has_its_number_and_name)
{
	static const struct {
		int number;
		dicomm_redop_t op;
		const char *name;
	} ops[] = {
		{0, DICOMM_SUM, "sum"},  {1, DICOMM_PROD, "prod"},
		{2, DICOMM_MAX, "max"},  {3, DICOMM_MIN, "min"},
		{4, DICOMM_AVG, "avg"},  {16, DICOMM_BAND, "band"},
		{17, DICOMM_BOR, "bor"}, {18, DICOMM_BXOR, "bxor"},
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		ck_assert_int_eq((int)ops[i].op, ops[i].number);
		ck_assert(op_valid(ops[i].op));
		ck_assert_str_eq(op_name(ops[i].op), ops[i].name);
	}
}
END_TEST

/* A letter for each built-in operator that a type has, in the order of their
 * numbers. */
START_TEST(each_type_has_its_operators)
{
	static const struct {
		dicomm_datatype_t type;
		const char *ops;
	} has[] = {
		{DICOMM_INT8, "+*><a&|^"}, {DICOMM_UINT64, "+*><a&|^"},
		{DICOMM_FLOAT16, "+*><a"}, {DICOMM_FLOAT8E5M2FNUZ, "+*><a"},
		{DICOMM_FLOAT64, "+*><a"}, {DICOMM_BOOL, "><&|^"},
		{DICOMM_COMPLEX64, "+a"},  {DICOMM_COMPLEX128, "+a"},
		{DICOMM_BYTES2, ""},       {DICOMM_BYTES16, ""},
	};
	static const char letters[] = "+*><a...........&|^";

	for (size_t i = 0; i < sizeof(has) / sizeof(*has); i++) {
		for (int op = 0; op < (int)sizeof(letters) - 1; op++)
			ck_assert_msg(
				op_fits((dicomm_redop_t)op, has[i].type) ==
					(letters[op] != '.' &&
					 strchr(has[i].ops, letters[op])),
				"%s: %d", type_name(has[i].type), op);
		ck_assert(type_reduces(has[i].type) == (has[i].ops[0] != 0));
	}
}
END_TEST

START_TEST(a_created_operator_has_a_name_but_is_not_built_in)
{
	ck_assert(!op_valid((dicomm_redop_t)0x100));
	ck_assert_str_eq(op_name((dicomm_redop_t)0x100), "premulsum");
	ck_assert(!op_valid((dicomm_redop_t)5));
	ck_assert_str_eq(op_name((dicomm_redop_t)5), "invalid operator");
	ck_assert(!op_valid((dicomm_redop_t)19));
	ck_assert(!op_valid((dicomm_redop_t)-1));
}
END_TEST

START_TEST(every_type_has_a_place_below_the_limit)
{
	int types = 0;

	for (int i = 0; i < TYPE_LIMIT; i++)
		types += type_valid((dicomm_datatype_t)i);
	ck_assert_int_eq(types, 23);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("type");
	TCase *tcase = tcase_create("type");

	tcase_add_loop_test(tcase, each_type_has_its_number_name_and_size, 0,
			    (int)(sizeof(expected) / sizeof(*expected)));
	tcase_add_test(tcase, what_is_no_type_is_invalid_and_has_no_size);
	tcase_add_test(tcase, each_operator_has_its_number_and_name);
	tcase_add_test(tcase, each_type_has_its_operators);
	tcase_add_test(tcase,
		       a_created_operator_has_a_name_but_is_not_built_in);
	tcase_add_test(tcase, every_type_has_a_place_below_the_limit);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
