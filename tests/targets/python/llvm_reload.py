"""Modules that LLVM compiles, one after the other, and drops again: each is called once, and calls back where an
explicit sample is taken. argv[1]: the shared object of cap.c. argv[2]: the recording that is being made of this
program. Prints "epoch_1 0x<address>" and so on. Of its samples, the third and then each third one is taken in a module.
"""
import ctypes
import os
import sys
import time

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
cap = ctypes.CDLL(sys.argv[1]).cap
here = ctypes.cast(cap, ctypes.c_void_p).value
machine = llvm.Target.from_default_triple().create_target_machine()
engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def until_seen():
    """Takes a sample, and waits until the recorder has written it: in the same pass over this process's records, it
    read what LLVM reports."""
    before = os.stat(sys.argv[2]).st_size
    cap(0)
    while os.stat(sys.argv[2]).st_size == before:
        time.sleep(0.01)


# The recorder reads LLVM's list once a sample has LLVM's library on its stack: half a second of CPU time is spent
# there.
text = "".join(f"define i32 @f{i}(i32 %x) {{ %y = add i32 %x, {i} ret i32 %y }}\n" for i in range(2000))
begun = time.process_time()
while time.process_time() - begun < 0.5:
    llvm.parse_assembly(text)
until_seen()
for epoch in (1, 2, 3):
    name = f"epoch_{epoch}"
    # A call that is no tail call, so that the function has a frame.
    module = llvm.parse_assembly(
        f"define i32 @{name}(ptr %f) {{ %a = call i32 %f(i32 {epoch}) %b = add i32 %a, {epoch} ret i32 %b }}"
    )
    engine.add_module(module)
    engine.finalize_object()
    address = engine.get_function_address(name)
    print(name, hex(address), flush=True)
    until_seen()
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(here)
    # The whole list is read every 100 ms. Between two such reads, two modules at one address could not be
    # distinguished.
    time.sleep(0.15)
    until_seen()
    engine.remove_module(module)
