# Rows as Go writes them: a CIE that counts in words of 4 bytes, and for each function an FDE with a row at its start,
# after its first instruction and before its last. Go writes offsets as DW_CFA_def_cfa_offset_sf.

.macro function name
.type \name, @function
\name:
.endm
.macro rows name, first, depth, last
.section .debug_frame, "", @progbits
.long 2f - 1f
1: .long 0
.quad \name, \name\()_end - \name
.byte 0x13, 0x7e
.byte 0x40 + \first, 0x13
.sleb128 -\depth / 4
.byte 0x40 + \last, 0x13, 0x7e
.balign 8
2:
.text
.endm

.section .debug_frame, "", @progbits
.long 2f - 1f
1: .long 0xffffffff
.byte 3, 0, 1, 0x7c, 16, 0x0c, 7, 8, 5, 16, 2
.balign 8
2:
.text

function plain
sub $24, %rsp
call plain
add $24, %rsp
ret
plain_end:
rows plain, 4, 32, 9

function panics
push %rbp
call plain
nop
ret
panics_end:
rows panics, 1, 16, 6

# Switches to another stack and back, which the rows do not describe.
function switches
push %rbp
mov %rsp, %rbp
mov %rdi, %rsp
mov %rbp, %rsp
pop %rbp
ret
switches_end:
rows switches, 1, 16, 10

# Changes the stack pointer by an instruction that the rows do not describe.
function reserves
nop
sub $64, %rsp
add $64, %rsp
ret
reserves_end:
rows reserves, 1, 8, 8

function runtime.goexit.abi0
nop
call plain
nop
runtime.goexit.abi0_end:
rows runtime.goexit.abi0, 1, 8, 5

# Aligns its stack, and never returns.
function runtime.rt0_go.abi0
sub $40, %rsp
and $-16, %rsp
call plain
int3
runtime.rt0_go.abi0_end:
rows runtime.rt0_go.abi0, 4, 48, 13
