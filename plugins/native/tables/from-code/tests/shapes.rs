//! Shapes of functions, assembled by gas: what is claimed at each label, and where nothing may be claimed.

use object::{Object, ObjectSymbol};
use std::path::PathBuf;
use std::process::Command;
use uunwind_core::regs::{RBP, RSP};
use uunwind_core::rule::{Rule, RuleKind, SAME};
use uunwind_from_code::{analyse, Budget, Code, Fault, Found};

const BUDGET: Budget = Budget { steps: 100_000 };

/// A shared object of some assembly.
struct Built {
    bytes: Vec<u8>,
}

fn build(name: &str, assembly: &str) -> Built {
    let folder = std::env::temp_dir().join(format!("uu-from-code-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (source, out): (PathBuf, PathBuf) = (folder.join(format!("{name}.s")), folder.join(name));
    std::fs::write(&source, format!(".text\n{assembly}\n")).expect("a source file");
    let done = Command::new("gcc").args(["-shared", "-nostdlib", "-o"]).arg(&out).arg(&source).output();
    let done = done.expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Built { bytes: std::fs::read(&out).expect("the object") }
}

impl Built {
    fn address(&self, label: &str) -> u64 {
        let file = object::File::parse(&*self.bytes).expect("an ELF file");
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(label));
        symbol.unwrap_or_else(|| panic!("no {label}")).address()
    }

    fn found(&self) -> Found {
        analyse(&Code::of_file(&self.bytes, &[]), BUDGET)
    }

    /// What is claimed at a label.
    fn rule(&self, found: &Found, label: &str) -> Option<Rule> {
        let at = self.address(label);
        found.rows().iter().find(|row| row.span.contains(at)).and_then(|row| row.rule)
    }
}

/// A function's symbol, with type and size: it begins there for certain.
fn function(name: &str, body: &str) -> String {
    format!(".globl {name}\n.type {name},@function\n{name}:\n{body}\n.size {name},.-{name}\n.p2align 4\n")
}

/// The same, called directly instead of through the procedure linkage table.
fn hidden(name: &str, body: &str) -> String {
    format!(".hidden {name}\n{}", function(name, body))
}

/// A rule by a register, with where rbx, rbp and r12 to r15 are saved.
fn frame(register: u8, cfa: i32, slots: [i16; 6]) -> Option<Rule> {
    let mut rule = Rule::simple(register, cfa);
    rule.slots.iter_mut().zip(slots).for_each(|(place, slot)| *place = slot);
    Some(rule)
}

/// What is claimed at each of these labels of one function, `f`.
fn claimed<const N: usize>(name: &str, body: &str, labels: [&str; N]) -> [Option<Rule>; N] {
    let built = build(name, &function("f", body));
    let found = built.found();
    labels.map(|label| built.rule(&found, label))
}

/// CFA by register and offset.
fn cfas<const N: usize>(rules: [Option<Rule>; N]) -> [Option<(u8, i32)>; N] {
    rules.map(|rule| rule.map(|rule| (rule.cfa_register, rule.cfa_offset)))
}

#[test]
fn prologues_and_epilogues_are_followed() {
    let body = "push %rbp\na1: mov %rsp,%rbp\npush %rbx\nsub $40,%rsp\na2: mov %r12,-24(%rbp)\nxor %ebx,%ebx\n
        xor %r12d,%r12d\na3: call *%rax\nmov -24(%rbp),%r12\nmov -8(%rbp),%rbx\na4: leave\na5: ret";
    let [entry, a1, a2, a3, a4, a5] = claimed("frame", body, ["f", "a1", "a2", "a3", "a4", "a5"]);
    assert_eq!(entry, Some(Rule::simple(RSP, 8)));
    assert_eq!(a1, frame(RSP, 16, [SAME, -2, SAME, SAME, SAME, SAME]));
    assert_eq!(a2, frame(RBP, 16, [-3, -2, SAME, SAME, SAME, SAME]));
    assert_eq!(a3, frame(RBP, 16, [-3, -2, -5, SAME, SAME, SAME]));
    assert_eq!(a4, a3);
    assert_eq!(a5, Some(Rule::simple(RSP, 8)), "all registers are the caller's again");
}

#[test]
fn enter_is_a_push_a_copy_and_a_subtraction() {
    let rules = claimed("enter", "enter $32,$0\na1: mov %eax,(%rsp)\nleave\na2: ret", ["a1", "a2"]);
    assert_eq!(cfas(rules), [Some((RBP, 16)), Some((RSP, 8))]);
}

#[test]
fn a_frame_pointer_bridges_a_stack_pointer_that_is_not_known() {
    let body = "push %rbp\nmov %rsp,%rbp\nsub %rdi,%rsp\na1: lea 15(%rsp),%rax\nand $-16,%rsp\na2: call *%rsi\n
        leave\na3: ret";
    assert_eq!(cfas(claimed("alloca", body, ["a1", "a2", "a3"])), [Some((RBP, 16)), Some((RBP, 16)), Some((RSP, 8))]);
    // Without one, what follows is unknown, and the return shows that nothing of the function is understood.
    assert_eq!(claimed("lost", "sub %rdi,%rsp\na1: nop\nret", ["f", "a1"]), [None, None]);
}

#[test]
fn code_that_is_left_by_jumps_alone_may_have_no_return_address() {
    // As GHC's code, whose stack is in rbp: what lies at rsp is whatever C has left there.
    let jumps = |name: &str| function(name, "mov %rbx,8(%rbp)\njmp *(%rbp)");
    let all = jumps("f") + &jumps("g") + &function("h", "ret");
    let found = build("jumps", &all).found();
    assert_eq!(found.functions.iter().filter(|f| f.fault == Some(Fault::Jumps)).count(), 2);
    assert_eq!(found.claims.len(), 1, "h alone");
    // Beside enough functions that return, such a one is another way to call.
    let tail = |name: &str| function(name, "mov (%rdi),%rax\njmp *%rax");
    let built = build("tails", &(tail("f") + &function("g", "ret") + &function("h", "call *%rdi\nret")));
    let found = built.found();
    assert_eq!(built.rule(&found, "f"), Some(Rule::simple(RSP, 8)));
}

#[test]
fn a_breakpoint_is_gone_on_behind_if_that_ends_properly() {
    let [a1, a2] = claimed("breakpoint", "push %rbx\nint3\na1: pop %rbx\na2: ret", ["a1", "a2"]);
    assert_eq!(cfas([a1, a2]), [Some((RSP, 16)), Some((RSP, 8))]);
    let [a1] = claimed("trap", "push %rbx\ncall *%rdi\nint3\na1: nop\nret", ["a1"]);
    assert_eq!(a1, None, "what follows does not end as this function would");
}

#[test]
fn any_register_may_hold_the_frame() {
    // As OpenBLAS aligns its buffers.
    let body = "push %rbx\nmov %rsp,%rbx\nsub $4096,%rsp\nand $-4096,%rsp\na1: call *%rsi\nmov %rbx,%rsp\n
        a2: pop %rbx\nret";
    let [a1, a2] = claimed("by-rbx", body, ["a1", "a2"]);
    assert_eq!(a1, frame(3, 16, [-2, SAME, SAME, SAME, SAME, SAME]));
    assert_eq!(a2, frame(RSP, 16, [-2, SAME, SAME, SAME, SAME, SAME]));
}

#[test]
fn an_aligned_frame_is_left_by_the_word_that_holds_the_cfa() {
    // As GCC aligns a stack: CFA in r10, then in the frame. r10 still has it at the first call, which may change it.
    let body = "lea 8(%rsp),%r10\nand $-32,%rsp\na0: push -8(%r10)\npush %rbp\nmov %rsp,%rbp\npush %r10\n
        push %rbx\nsub $64,%rsp\nxor %ebx,%ebx\na1: call *%rsi\nadd $64,%rsp\npop %rbx\npop %r10\npop %rbp\n
        lea -8(%r10),%rsp\na2: ret";
    let [a0, a1, a2] = claimed("aligned", body, ["a0", "a1", "a2"]);
    assert_eq!(cfas([a0]), [Some((10, 0))]);
    let a1 = a1.expect("a rule");
    assert_eq!((a1.kind, a1.cfa_register, a1.cfa_offset, a1.cfa_addend), (RuleKind::Deref, RBP, -8, 0));
    // rbx and rbp count from rbp.
    assert_eq!((a1.from_fp, &a1.slots[..3]), (0b11, &[-2, 0, SAME][..]));
    assert_eq!(cfas([a2]), [Some((RSP, 8))]);
}

#[test]
fn ways_that_disagree_leave_nothing() {
    let body = "push %rbp\nmov %rsp,%rbp\ntest %edi,%edi\njne 1f\npush %rbx\n1: a1: nop\na2: leave\nret";
    assert_eq!(cfas(claimed("disagree", body, ["a1"])), [Some((RBP, 16))], "the stack pointer is not known");
    let body = "test %edi,%edi\njne 1f\npush %rax\n1: a1: nop\nadd $8,%rsp\nret";
    assert_eq!(claimed("no-frame", body, ["f", "a1"]), [None, None]);
    // A register that only one way has saved is lost, but not the frame.
    let body = "sub $8,%rsp\ntest %edi,%edi\njne 1f\nmov %rbx,(%rsp)\n1: xor %edi,%edi\na1: nop\nadd $8,%rsp\nret";
    assert_eq!(claimed("one-way", body, ["a1"]), [Some(Rule::simple(RSP, 16))]);
}

#[test]
fn a_stack_pointer_from_memory_is_not_followed() {
    let body = "push %rbp\nmov %rsp,%rbp\na0: mov %rsp,(%rdi)\nmov (%rsi),%rsp\na1: nop\nleave\nret";
    let [a1] = claimed("switch", body, ["a1"]);
    assert_eq!(a1, None);
    // Nor is a return address that is written.
    let body = "sub $8,%rsp\nmov %rax,8(%rsp)\na1: nop\nadd $8,%rsp\nret";
    assert_eq!(claimed("written", body, ["a1"]), [None]);
}

#[test]
fn tables_of_jumps_are_followed_where_their_size_is_proved() {
    let switch = |bound: &str| {
        format!(
            "push %rbx\n{bound}\nlea 9f(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax\nnotrack jmp *%rax\n
            2: a1: xor %eax,%eax\npop %rbx\nret\n3: a2: push %rdi\na3: call *%rsi\npop %rdi\n4: pop %rbx\nret\n
            .section .rodata\n9: .long 2b-9b\n.long 3b-9b\n.text"
        )
    };
    let labels = ["f", "a1", "a2", "a3"];
    let known = cfas(claimed("table", &switch("cmp $1,%edi\nja 4f"), labels));
    assert_eq!(known, [Some((RSP, 8)), Some((RSP, 16)), Some((RSP, 16)), Some((RSP, 24))]);
    // With a bound that the table is too short for.
    assert_eq!(claimed("short", &switch("cmp $4095,%edi\nja 4f"), labels), [None; 4]);
    // Without one, and where a number's type is the only one: the table is as long as it leads into the function.
    for (name, bound) in [("no-bound", "test %edi,%edi"), ("mask", "and $1,%edi"), ("byte", "movzbl %dil,%edi")] {
        assert_eq!(cfas(claimed(name, &switch(bound), labels)), known, "{name}");
    }
    // A bound that was found before is the same of the lower part.
    assert_eq!(cfas(claimed("widened", &switch("cmp $1,%dil\nja 4f\nmovzbl %dil,%edi"), labels)), known);
}

/// Rust's tables have no bound: the compiler knows which values there are. Each ends where the next thing begins that
/// some instruction has the address of.
#[test]
fn a_table_without_a_bound_ends_where_the_next_thing_begins() {
    let switch = |name: &str, frame: u32, table: &str| {
        let body = format!(
            "sub ${frame},%rsp\nlea {table}(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax\njmp *%rax\n
            {name}1: add ${frame},%rsp\nret\n{name}2: xor %eax,%eax\nadd ${frame},%rsp\nret"
        );
        function(name, &body)
    };
    let tables = |between: &str| {
        format!(
            ".section .rodata\nft: .long f1-ft\n.long f2-ft\n{between}\ngt: .long g1-gt\n.long g2-gt\n.long -1\n.text\n"
        )
    };
    let at = |name: &str, between: &str| {
        let built = build(name, &[switch("f", 24, "ft"), switch("g", 40, "gt"), tables(between)].concat());
        let found = built.found();
        cfas(["f1", "f2", "g1", "g2"].map(|label| built.rule(&found, label)))
    };
    let (f, g) = (Some((RSP, 32)), Some((RSP, 48)));
    assert_eq!(at("two-tables", ""), [f, f, g, g]);
    // What nothing has the address of may be more of the first table, and leads into another function.
    assert_eq!(at("more-entries", ".long g1-ft"), [None, None, g, g]);
    // What is no place in the code is none of its entries.
    assert_eq!(at("other-data", ".long 0x12345678"), [f, f, g, g]);
}

/// The address of this one is in data only.
fn in_data(name: &str, body: &str) -> String {
    format!(".p2align 4\n{name}:\n{body}\n.p2align 4\n.section .data\n.quad {name}\n.text\n")
}

#[test]
fn what_looks_like_a_function_and_never_returns_is_one() {
    let never = hidden("never", "sub $8,%rsp\n1: call *%rax\njmp 1b");
    let thrower = in_data("thrower", "sub $8,%rsp\nt1: call never");
    // It would call with a stack pointer that is not aligned: it is the middle of something.
    let middle = in_data("middle", "mov %edi,%eax\nsub $16,%rsp\nm1: call never");
    let built = build("throwers", &[thrower, middle, never].concat());
    let found = built.found();
    assert_eq!(cfas(["t1", "m1"].map(|at| built.rule(&found, at))), [Some((RSP, 16)), None]);
}

#[test]
fn a_place_that_may_be_anything_casts_no_doubt_on_functions() {
    // Neither has a symbol. The first one follows a return at once: it leads into the second one, and ends there with
    // another frame.
    let first = function("f", "ret").replace(".p2align 4\n", "") + "test %edi,%edi\njne 5f\nud2\n";
    let second = ".p2align 4\npush %rbx\ntest %edi,%edi\nje 5f\npop %rbx\nret\n5: xor %eax,%eax\npop %rbx\nret\n";
    let built = build("doubts", &[&first, second, ".p2align 4\n", &function("next", "ret")].concat());
    let (found, second) = (built.found(), built.address("next") - 16);
    assert!(found.functions.iter().any(|f| f.entry == second && f.fault.is_none()), "{:x?}", found.functions);
}

#[test]
fn a_large_function_whose_address_is_in_data_is_analysed_as_a_whole() {
    let built = build("large", &in_data("f", "push %rbx\n.rept 25000\nmov %edi,%eax\n.endr\na1: pop %rbx\nret"));
    assert_eq!(cfas([built.rule(&built.found(), "a1")]), [Some((RSP, 16))]);
}

#[test]
fn a_jump_to_a_function_before_this_one_ends_it() {
    let low = ".p2align 4\nlow: push %rbp\ncall x\nl1: call y\npop %rbp\nret\n.p2align 4\n";
    let high = hidden("high", "push %rbx\nxor %ebx,%ebx\npop %rbx\njmp low");
    let calls = function("calls", "sub $24,%rsp\ncall high\nc1: nop\n1: call *%rax\njmp 1b");
    let built = build("before", &[low, &high, &calls, &hidden("x", "ret"), &hidden("y", "ret")].concat());
    let found = built.found();
    // It returns, for the other one does.
    assert_eq!(cfas(["l1", "c1"].map(|at| built.rule(&found, at))), [Some((RSP, 16)), Some((RSP, 32))]);
    // A register that is stored in the frame of the function that this is the middle of is none that was saved.
    let middle = "m: mov %rbp,176(%rsp)\nm1: jmp low\n.p2align 4\n";
    let low = ".p2align 4\nlow: mov %edi,%eax\nud2\n.p2align 4\n";
    let built = build("stored", &[low, &function("f", "ret").replace(".p2align 4\n", ""), middle].concat());
    assert_eq!(built.rule(&built.found(), "m1"), None);
}

#[test]
fn functions_that_call_each_other_return() {
    // Each returns, by a way that begins where an exception is caught.
    let one = hidden("one", "push %rbx\no1: call two\npop %rbx\nret");
    let two = hidden("two", "push %rbx\ncall one\npop %rbx\nret");
    let calls = function("calls", "sub $24,%rsp\ncall one\nc1: add $24,%rsp\nret");
    let built = build("circle", &[one, two, calls].concat());
    let found = built.found();
    assert_eq!(cfas(["o1", "c1"].map(|at| built.rule(&found, at))), [Some((RSP, 16)), Some((RSP, 32))]);
}

#[test]
fn a_function_follows_a_call_that_never_returns() {
    // Nothing but its place, after the space that follows the call, shows that it is one.
    let never = hidden("never", "sub $8,%rsp\n1: call *%rax\njmp 1b");
    let ends = function("ends", "test %edi,%edi\nje 1f\nret\n1: sub $8,%rsp\ncall never");
    let rest = "nop\nxor %eax,%eax\ncall never\n.p2align 4\npush %r12\npop %r12\nret\n.p2align 4\n";
    let built = build("after-never", &[&never, &ends, rest, &function("next", "ret")].concat());
    let (found, last) = (built.found(), built.address("next") - 16);
    assert!(found.functions.iter().any(|f| f.entry == last && f.fault.is_none()), "{:x?}", found.functions);
}

/// For values that cannot be, LLVM lets tables and jumps lead to the end of the function. Another one begins there,
/// whose address is in data only, or which is called.
#[test]
fn jumps_to_the_end_of_a_function_do_not_lead_into_the_next_one() {
    let table = |end: &str, next: &str| {
        format!(
            ".p2align 4\nf: push %rbx\ncmp $1,%edi\nja 4f\nlea 9f(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax
            notrack jmp *%rax\n2: a1: call b\n4: pop %rbx\nret\n5: {end}\n.p2align 4
            {next}: b1: mov %edi,%eax\nb2: jmp *%rax
            .section .rodata\n9: .long 2b-9b\n.long 5b-9b\n.text\n
            .globl f\n.type f,@function\n.size f,5b-f"
        )
    };
    // The function after it, `b`, is left by a jump that may lead anywhere, so that it is not understood by itself.
    let built = build("end", &table("nop", "b"));
    let found = built.found();
    assert_eq!(cfas(["f", "a1"].map(|at| built.rule(&found, at))), [Some((RSP, 8)), Some((RSP, 16))]);
    for at in ["b1", "b2"] {
        assert_ne!(built.rule(&found, at).map(|rule| rule.cfa_offset), Some(16), "{at}");
    }
}

/// A call at the end of a function does not return into a part of another one that follows it without space.
#[test]
fn a_function_ends_where_a_part_of_another_one_begins() {
    let before = "push %rbp\nmov %rsp,%rbp\ntest %edi,%edi\nje 1f\npop %rbp\nret\n1: call *%rax";
    // Its r15 is another one there. It is not understood, for it is left by a jump that may lead anywhere.
    let other =
        function("g", "push %rbp\nmov %rsp,%rbp\npush %r15\nxor %r15d,%r15d\ntest %edi,%edi\nje g.cold\njmp *%rax");
    let first = format!(".globl f\n.type f,@function\nf: {before}\n.size f,.-f\n");
    let part = "g.cold: b1: mov %edi,%eax\nleave\nret\n.type g.cold,@function\n.size g.cold,.-g.cold\n.p2align 4\n";
    let built = build("part", &[first, part.to_owned(), other].concat());
    assert_eq!(built.rule(&built.found(), "b1"), None);
}

#[test]
fn what_follows_a_call_that_never_returns_is_not_run_after_it() {
    let never = function("never", "sub $8,%rsp\n1: call *%rax\njmp 1b");
    let calls = function("calls", "push %rbx\ntest %edi,%edi\nje 1f\npop %rbx\nret\n1: sub $32,%rsp\ncall never");
    // Where it "falls into", the frame is another one.
    let next = function("next", "b1: mov %edi,%eax\nb2: ret");
    let built = build("never", &[calls, next, never].concat());
    let found = built.found();
    for name in ["calls", "next", "never"].map(|name| built.address(name)) {
        assert!(found.functions.iter().any(|f| f.entry == name && f.fault.is_none()), "{:x?}", found.functions);
    }
    assert_eq!(cfas(["calls", "b1", "b2"].map(|at| built.rule(&found, at))), [Some((RSP, 8)); 3]);
}

#[test]
fn what_follows_a_call_of_an_unknown_function_must_lead_to_a_proper_end() {
    // `far` may return or not. After the first call it must, for the frame is left properly; after the second one,
    // another function's code may follow.
    let body =
        "sub $24,%rsp\ntest %edi,%edi\nje 1f\ncall far@plt\na1: add $24,%rsp\nret\n1: call far@plt\na2: nop\nhlt";
    let [a1, a2] = claimed("unknown", body, ["a1", "a2"]);
    assert_eq!(cfas([a1, a2]), [Some((RSP, 32)), None]);
}

#[test]
fn tail_calls_and_shared_ends_are_followed() {
    let one = function("one", "push %rbx\nsub $16,%rsp\nxor %ebx,%ebx\nc1: add $16,%rsp\npop %rbx\nc2: jmp two");
    let two = function("two", "push %rbp\nd1: call *%rax\nd2: pop %rbp\nret");
    // It enters the middle of another function, with that one's frame.
    let three = function("three", "push %rbp\nxor %ebp,%ebp\njmp d2");
    // And this one with another frame: neither is claimed where they meet.
    let four = function("four", "push %rbp\npush %rax\nxor %ebp,%ebp\nadd $8,%rsp\njmp d2");
    let built = build("tails", &[one, two, three, four].concat());
    let found = built.found();
    let at = cfas(["c1", "c2", "d1", "d2", "three", "four"].map(|at| built.rule(&found, at)));
    let frame = |n| Some((RSP, n));
    assert_eq!(at, [frame(32), frame(8), frame(16), frame(16), frame(8), frame(8)]);
}

#[test]
fn a_function_that_returns_with_other_registers_is_not_claimed() {
    assert_eq!(claimed("clobbers", "push %rbx\nxor %ebx,%ebx\nadd $8,%rsp\na1: ret", ["f", "a1"]), [None, None]);
    let built = build("faults", &function("f", "pop %rdx\njmp *%rdx"));
    assert_eq!(built.found().functions.first().and_then(|f| f.fault), Some(Fault::IndirectJump));
}

#[test]
fn functions_without_symbols_are_found_by_what_surrounds_them() {
    let text = function("f", "ret") + ".globl g\ng: push %rbx\nsub $16,%rsp\nadd $16,%rsp\npop %rbx\nret\n";
    let built = build("gaps", &(text + ".p2align 4\nh: push %r12\nh1: pop %r12\nret\n"));
    let found = built.found();
    assert_eq!(cfas(["g", "h1"].map(|at| built.rule(&found, at))), [Some((RSP, 8)), Some((RSP, 16))]);
    // The middle of a function: it ends with another stack pointer than it begins with.
    let built = build("middle", &(function("f", "ret") + "m: mov %edi,%eax\nadd $24,%rsp\nret\n"));
    assert_eq!(built.rule(&built.found(), "m"), None);
}

#[test]
fn what_others_describe_is_left_to_them() {
    let built =
        build("described", &(function("f", "push %rbx\npop %rbx\nret") + &function("g", "push %rbx\npop %rbx\nret")));
    let (f, g) = (built.address("f"), built.address("g"));
    let described = [uunwind_core::span::Span::new(f, f + 3)];
    let found = analyse(&Code::of_file(&built.bytes, &described), BUDGET);
    assert!(found.rows().iter().all(|row| row.span.start >= g), "{:x?}", found.rows());
    assert!(built.rule(&found, "g").is_some());
}

#[test]
fn work_is_limited() {
    let many: String = (0..200).map(|n| function(&format!("f{n}"), "push %rbx\npop %rbx\nret")).collect();
    let built = build("many", &many);
    let found = analyse(&Code::of_file(&built.bytes, &[]), Budget { steps: 100 });
    assert!(found.exhausted);
    assert!(!found.rows().is_empty() && found.rows().len() < 200);
    // A bad function costs no other one.
    let built = build("bad", &(function("bad", "jmp *%rax\n.byte 6") + &function("good", "push %rbx\npop %rbx\nret")));
    assert!(built.rule(&built.found(), "good").is_some());
    // Truncated anywhere, it gives rows or none.
    for len in (0..built.bytes.len()).step_by(97) {
        analyse(&Code::of_file(&built.bytes[..len], &[]), BUDGET).rows();
    }
}

#[test]
fn functions_of_libraries_that_never_return_are_known_by_name() {
    let names = ["_ZSt20__throw_length_errorPKc", "_ZSt21__glibcxx_assert_failPKciS0_S0_", "abort"];
    assert!(names.into_iter().all(uunwind_from_code::noreturn::is_one));
    assert!(!uunwind_from_code::noreturn::is_one("_ZNSt7__cxx1112basic_stringIcE9_M_createERmm"));
}
