# SPDX-License-Identifier: BSD-3-Clause
# Of what nvdisasm prints, a line for each kernel: its name, how many loads and
# stores of 16 bytes it has, and how many of these loads are under way at once:
# they follow each other with no branch between them, before any instruction
# needs what one of them brings. A thread waits there.
function ends()
{
	if (under_way > most)
		most = under_way
	under_way = 0
	split("", awaited)
}

function report()
{
	ends()
	if (kernel)
		print kernel, loads, stores, most
}

/^\.text\./ {
	report()
	kernel = $1
	gsub(/^\.text\.|:$/, "", kernel)
	loads = stores = most = 0
	next
}

/^\.L/ { ends() } # somebody branches here

!/^ *\/\*[0-9a-f]+\*\// { next }

/LDG\.E\.[.A-Z]*128[. ]/ {
	loads++
	under_way++
	match($0, / R[0-9]+,/)
	first = substr($0, RSTART + 2, RLENGTH - 3)
	for (i = 0; i < 4; i++)
		awaited[first + i] = 1
	next
}

/STG\.E\.[.A-Z]*128[. ]/ { stores++ }

/ (BRA|EXIT|BSYNC)/ { ends() }

under_way {
	text = $0
	while (match(text, /[^U]R[0-9]+/)) { # UR are registers of the whole warp
		if (substr(text, RSTART + 2, RLENGTH - 2) in awaited)
			ends()
		text = substr(text, RSTART + RLENGTH)
	}
}

END { report() }
