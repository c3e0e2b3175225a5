# SPDX-License-Identifier: BSD-3-Clause
# Of ze_api.h and ze_ddi.h, zet_ddi.h and zes_ddi.h of Level Zero, the C that
# ze_driver.c includes: what fills in each table of functions that a loader asks
# a driver for, those for tools (zet, zes) with none, and what puts a function
# behind each callback of a tracer.
/^typedef struct _ze_[a-z_]*_dditable_t/ {
	kind = "table"
	n = 0
}

/^typedef struct _ze_[a-z_]*_callbacks_t/ {
	kind = $3
	sub(/^_/, "", kind)
	n = 0
}

/^typedef struct _ze_callbacks_t/ { kind = "all" }

/^ +ze_pfn[A-Za-z0-9]+_t +pfn[A-Za-z0-9]+;/ && kind == "table" {
	symbol[n] = $1
	gsub(/^ze_pfn|_t$/, "", symbol[n])
	member[n++] = substr($2, 1, length($2) - 1)
}

/^ +ze_pfn[A-Za-z0-9]+Cb_t +pfn[A-Za-z0-9]+;/ && kind ~ /callbacks_t$/ {
	of[kind] = of[kind] " " $1 " " substr($2, 1, length($2) - 1)
}

kind == "all" && /^ +ze_[a-z_]+_callbacks_t +[A-Za-z]+;/ {
	holder = substr($2, 1, length($2) - 1)
	fields = split(of[$1], field, " ")
	for (i = 1; i < fields; i += 2) {
		name = field[i]
		gsub(/^ze_pfn|Cb_t$/, "", name)
		print "SEEN(ze" name ")"
		sets = sets "\tSET(all->" holder "." field[i + 1] \
			", seen_ze" name ");\n"
	}
}

/^}/ { kind = "" }

/^ze[st]?Get[A-Za-z]+ProcAddrTable\(/ {
	name = substr($1, 1, length($1) - 1)
	getline # the version
	getline
	print "EXPORT ze_result_t " name "(ze_api_version_t version, " $1 " table)"
	print "{\n\t(void)version;\n\t(void)table;"
	for (i = 0; i < n; i++)
		print "\tSET(table->" member[i] ", find(\"ze" symbol[i] "\"));"
	print "\treturn ZE_RESULT_SUCCESS;\n}"
	n = 0
}

END { print "static void set_all(ze_callbacks_t *all)\n{\n" sets "}" }
