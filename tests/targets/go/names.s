# Two functions, and the table in which Go's runtime finds their names, as Go 1.20 writes it.

.text
f: .skip 32, 0x90
g: .skip 16, 0x90

.section .gopclntab, "a", @progbits
.balign 32
table:
.long 0xfffffff1
.byte 0, 0, 1, 8
.quad 2, 0, f, names - table, 0, 0, 0, functions - table
names:
.asciz "main.f"
.asciz "main.main"
.balign 8
functions:
.long 0, first - functions, 32, second - functions, 48
first:
.long 0, 0
second:
.long 32, 7
