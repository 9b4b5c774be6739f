"""Modules that LLVM compiles, one after the other, and drops again: each is called once, and calls back where an explicit sample
is taken. argv[1]: the shared object of cap.c. argv[2]: the recording that is being made of this program. Prints
"epoch_1 0x<address>" and so on. Of its samples, the third and then each third one is taken in a module.
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
    """Takes a sample, and waits until the recorder has written it: in the same pass over what this process has told, it looked
    at what LLVM tells."""
    before = os.stat(sys.argv[2]).st_size
    cap(0)
    while os.stat(sys.argv[2]).st_size == before:
        time.sleep(0.01)


# The libraries are made known.
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
    # The whole list is looked at every 100 ms. Between two such looks, two modules at one place could not be told apart.
    time.sleep(0.15)
    until_seen()
    engine.remove_module(module)
