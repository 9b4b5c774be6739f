"""Modules that LLVM compiles, one after the other, and drops again: each is called once, and calls back where an explicit sample
is taken. argv[1]: the shared object of cap.c. Prints "epoch_1 0x<address>" and so on.
"""
import ctypes
import sys
import time

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
cap = ctypes.CDLL(sys.argv[1]).cap
here = ctypes.cast(cap, ctypes.c_void_p).value
machine = llvm.Target.from_default_triple().create_target_machine()
engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
# The recorder learns of the libraries by a first sample, and needs a moment to look at what they hold.
cap(0)
time.sleep(3)
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
    # The recorder looks at what LLVM tells every 10 ms, when it gets to run.
    time.sleep(1)
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(here)
    time.sleep(1)
    engine.remove_module(module)
