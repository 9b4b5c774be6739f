//! Processes that run Python, as the plugin's own tests write them, and location tables of real code objects.

#[path = "../../../../python-unwinder/tests/world/mod.rs"]
mod world;

use crate::{output, seed};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use uunwind_built_in::python::Python;
use uunwind_core::plugin::guest::Plain;
use uunwind_elf::{maps, Image};
use uunwind_language::{Finding, Half, Memory};
use world::python::{
    Process, ALL, BIAS, COROUTINE_TYPE, EVAL, EVAL_END, GENERATOR, STACK, THREAD, THREAD_POINTER, TSD_OFFSET,
};

/// Native frames of the loop, one after the other.
const NATIVES: u64 = 4;
const FRAME: u64 = 0x400;
const LOWEST: u64 = STACK - 0x3000;

pub fn processes() {
    for version in ALL {
        let mut process = Process::new(version);
        let [a, b, c] = ["a", "b\u{e9}", "c\u{3bb}"].map(|name| process.code(name, "/x.py", 3, 64));
        let cfa = |n: u64| LOWEST + (n + 1) * FRAME;
        for n in (0..NATIVES).rev() {
            process.activate(cfa(n));
            if n == 0 && version.facts.asyncio.kind != 0 {
                run_task(&mut process, a);
            } else {
                process.call(a, 8, THREAD);
            }
            process.call(b, 12, if n % 2 == 0 { GENERATOR } else { THREAD });
            process.call(c, 14, THREAD);
            process.memory.put64(cfa(n) - 8, BIAS + EVAL + 0x2000);
        }
        let mut out = version.facts.as_bytes().to_vec();
        for word in [THREAD_POINTER, TSD_OFFSET, BIAS, BIAS + EVAL + 0x1000, LOWEST] {
            out.extend(word.to_le_bytes());
        }
        let pages: Vec<(u64, Vec<u8>)> = process.memory.pages().map(|(at, bytes)| (at, bytes.clone())).collect();
        let used: Vec<_> = pages.iter().filter(|(_, bytes)| bytes.iter().any(|b| *b != 0)).collect();
        out.extend([NATIVES as u8, used.len() as u8]);
        out.extend(512u16.to_le_bytes());
        for _ in 0..NATIVES {
            out.extend((FRAME as u32).to_le_bytes());
            out.extend(1u32.to_le_bytes());
            out.extend((BIAS + EVAL).to_le_bytes());
            out.extend((BIAS + EVAL_END).to_le_bytes());
        }
        for (at, _) in &used {
            out.extend(at.to_le_bytes());
            out.extend(1u16.to_le_bytes());
        }
        for (at, bytes) in &used {
            for (index, word) in bytes.chunks(8).enumerate().filter(|(_, word)| word.iter().any(|b| *b != 0)) {
                out.extend((at + 8 * index as u64).to_le_bytes());
                out.push(8);
                out.extend(word);
            }
        }
        seed("python_overlay", &version.name(), &out);
    }
}

/// A task's coroutine runs; two tasks await it, one after the other.
fn run_task(process: &mut Process, code: u64) {
    let facts = process.version.facts.asyncio;
    let coroutine = process.call(code, 8, GENERATOR) - u64::from(facts.frame);
    process.memory.put64(coroutine + 8, BIAS + COROUTINE_TYPE);
    let future = process.task(0);
    let inner = process.suspended(COROUTINE_TYPE + 0x1000, code, 10, 0);
    let outer = process.suspended(COROUTINE_TYPE, code, 12, inner);
    let last = process.suspended(COROUTINE_TYPE, code, 12, future);
    let [task, waits, root] = [coroutine, outer, last].map(|coroutine| process.task(coroutine));
    let set = process.set(1, &[[0, 0], [waits, 5]]);
    process.awaited_by(task, set, true);
    process.awaited_by(waits, root, false);
    process.run_task(task);
}

/// Prints first line and table of functions of the standard library, in hexadecimal.
const TABLES: &str = "
import argparse, textwrap, re, sys
def f(a):
    return [
        x
        for x in a
        if x] or (lambda:
            a)()
for c in (f, textwrap.dedent, argparse.ArgumentParser.parse_known_args, re.compile):
    c = c.__code__
    print(c.co_name, c.co_firstlineno, c.co_linetable.hex())
";

pub fn line_tables() {
    let printed = String::from_utf8(output("python3", &["-c", TABLES])).expect("text");
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let first: u32 = words[1].parse().expect("a line");
        let digits = |at| u8::from_str_radix(&words[2][at..at + 2], 16).expect("hexadecimal");
        let table = (0..words[2].len()).step_by(2).map(digits);
        seed("python_lines", words[0], &first.to_le_bytes().into_iter().chain(table).collect::<Vec<_>>());
    }
}

/// Names of symbols and lines of generated source, as the three compilers make them.
const COMPILED: [(&str, &str); 10] = [
    ("cython-wrapper", "__pyx_pw_4demo_3Cls_1meth"),
    ("cython-code", "__pyx_pf_4demo_4load_x"),
    ("cython-fused", "__pyx_fuse_0__pyx_f_4demo_func"),
    ("cython-module", "__pyx_pymod_exec_demo"),
    ("mypyc-wrapper", "CPyPy_pkg___demo___a___3_b"),
    ("mypyc-module", "CPyDef_demo_____top_level__"),
    ("nuitka-inner", "impl_pkg$demo$$$function__2_outer$$$function__1_inner"),
    ("nuitka-module", "modulecode_demo"),
    (
        "cython-source",
        "/* Generated by Cython 3 */\n/* \"demo.pyx\":12\n */\nint f() {\n  /* \"demo.pyx\":13\n  /* function exit code */\n}\n",
    ),
    (
        "mypyc-source",
        "r1 = g();\nCPy_DECREF(r0);\nif (r1) {\nCPy_AddTraceback(\"demo.py\", \"f\", 12, x);\nCPy_AddTraceback(\"d\", \"g\", 4, x);\n",
    ),
];

pub fn compiled_names() {
    let object = b"demo.cpython-313-x86_64-linux-gnu.so";
    for (name, text) in COMPILED {
        // All partners exist.
        let head = [0xff, object.len() as u8];
        seed("compiled_names", name, &[&head[..], object, text.as_bytes()].concat());
    }
}

/// All that is read of a process of Python with two threads.
pub fn thread_names() {
    let program = "import sys, threading\nt = threading.Thread(target=sys.stdin.read, name='n\u{e9}\u{4e00}')\n\
                   t.start()\nprint(1, flush=True)\nt.join()";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-S", "-E", "-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("a Python");
    let mut said = [0; 2];
    python.stdout.as_mut().expect("its output").read_exact(&mut said).expect("a line");
    let pid = python.id();
    let image = Image::open(Path::new(&format!("/proc/{pid}/exe"))).expect("an object");
    let Finding::Facts(facts) = Python.analyse(&image) else { panic!("it is in the executable") };
    let start = maps::of(pid).expect("its mappings").next().expect("a mapping").start;
    // An executable that is not position-independent has no bias.
    for bias in [0, start] {
        let memory =
            Noted { memory: File::open(format!("/proc/{pid}/mem")).expect("memory"), read: RefCell::default() };
        if Python.thread_names(&facts, bias, &memory, &mut Vec::new()).is_empty() {
            continue;
        }
        let mut out = [&facts[..], &bias.to_le_bytes()].concat();
        for (at, bytes) in memory.read.into_inner() {
            out.extend(at.to_le_bytes());
            out.extend((bytes.len() as u16).to_le_bytes());
            out.extend(bytes);
        }
        seed("python_thread_names", "two", &out);
        seed("python_thread_names", "refused-cut", &out[..out.len() / 2]);
    }
    drop(python.stdin.take());
    python.wait().expect("its end");
}

/// Memory of a process, and what was read of it.
struct Noted {
    memory: File,
    read: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Memory for Noted {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let is_read = self.memory.read_exact_at(into, address).is_ok();
        let mut read = self.read.borrow_mut();
        if is_read && read.get(&address).is_none_or(|before| before.len() < into.len()) {
            read.insert(address, into.to_vec());
        }
        is_read
    }
}
