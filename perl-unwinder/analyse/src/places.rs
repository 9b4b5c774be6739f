//! Places in the machine code: the run loop, who calls it, where contexts are made and removed, and where functions in
//! C are called. Most of these functions are static, so they have no symbols: they are recognised by what they call, or
//! by who calls them.

use crate::layout::XSUB;
use crate::stubs::Stubs;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};
use uunwind_elf::{Elf, Span};
use uunwind_language::machine_code::{self, dwarf, instructions, is_callee_saved};
use uunwind_perl::facts::{self, Extent, Facts, Site, Xsub, PUSHING, RANGES, SITES, XSUBS};

/// Limit of instructions between two that belong together.
const NEAR: usize = 12;
/// Limit of instructions from where a context is made to where it is filled in.
const FILLING: usize = 64;
/// Limit of calls between `Perl_regexec_flags` and the function that runs code in regular expressions.
const DEPTH: usize = 4;

/// Functions that never return, of those that ops call.
const DYING: [&str; 6] =
    ["Perl_die", "Perl_croak", "Perl_croak_nocontext", "Perl_croak_memory_wrap", "Perl_croak_no_modify", "Perl_vcroak"];

/// A function: its range, and its instructions.
struct Code {
    span: Span,
    instructions: Vec<Instruction>,
}

/// The file's functions that are asked for.
struct Functions<'e> {
    elf: &'e dyn Elf,
    stubs: &'e Stubs<'e>,
}

impl Functions<'_> {
    fn named(&self, name: &str) -> Option<Code> {
        self.at(self.elf.symbol(name)?.address)
    }

    fn at(&self, start: u64) -> Option<Code> {
        let span = machine_code::function(self.elf, start)?;
        Some(Code { span, instructions: instructions(self.elf, span) })
    }

    /// Does a call never return: of one of these functions, or of a function that leads straight to such a call?
    fn dies(&self, call: &Instruction, dying: &BTreeSet<u64>) -> bool {
        let target = |call: &Instruction| self.stubs.resolve(self.elf, call.near_branch_target());
        let is_dying = |call: &Instruction| dying.contains(&target(call));
        let leads = || {
            let code = self.at(target(call))?.instructions;
            let first = code.into_iter().find(|i| i.flow_control() != FlowControl::Next)?;
            (first.flow_control() == FlowControl::Call).then(|| is_dying(&first))
        };
        is_dying(call) || leads() == Some(true)
    }

    fn extent(&self, name: &str) -> Option<Extent> {
        self.named(name).map(|code| extent(code.span))
    }

    /// Where a function calls or jumps to, outside of itself.
    fn targets(&self, code: &Code) -> BTreeSet<u64> {
        let leads = |i: &&Instruction| {
            matches!(
                i.flow_control(),
                FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            )
        };
        let all = code.instructions.iter().filter(leads).map(Instruction::near_branch_target);
        let outside = all.filter(|target| !(code.span.start..code.span.end).contains(target));
        outside.map(|target| self.stubs.resolve(self.elf, target)).collect()
    }
}

fn extent(span: Span) -> Extent {
    Extent { start: span.start, end: span.end }
}

/// Fills in all places. `runops`: the run loop's field of the interpreter. The error: what was not found.
pub fn find(elf: &dyn Elf, stubs: &Stubs<'_>, runops: u32, facts: &mut Facts) -> Result<(), &'static str> {
    let functions = Functions { elf, stubs };
    let run = functions.named("Perl_runops_standard").ok_or("run loop")?;
    (facts.runops_entered, facts.runops_called, facts.interpreter_register) = run_loop(&run).ok_or("run loop")?;
    facts.runops = extent(run.span);

    let mut holders = BTreeMap::new();
    let mut pushing = Vec::new();
    let entersub = functions.named("Perl_pp_entersub").ok_or("pp_entersub")?;
    for function in elf.functions() {
        let code = instructions(elf, function.span);
        let sites: Vec<u64> = code.iter().filter(|i| calls_run_loop(i, runops)).map(Instruction::next_ip).collect();
        if !sites.is_empty() {
            holders.insert(function.span.start, sites);
        }
        if function.span != entersub.span {
            pushing.extend(fillings(&code));
        }
    }
    let dying = DYING.iter().filter_map(|name| elf.symbol(name)).map(|s| s.address).collect();
    let (shared, alone) = entering(&functions, &entersub, &dying).ok_or("making of a sub's context")?;
    pushing.extend(alone);
    fill(&mut facts.pushing, &pushing).filter(|_| pushing.len() <= PUSHING).ok_or("makers of contexts")?;
    fill(&mut facts.returning, &shared).ok_or("end of pp_entersub")?;

    let sort = functions.named("Perl_pp_sort").ok_or("pp_sort")?;
    let comparators = addresses(&sort);
    let classes = classes(&functions, &holders, &comparators)?;
    let mut sites: Vec<Site> = Vec::new();
    let mut comparing = Vec::new();
    for (start, after) in &holders {
        let class = classes.get(start).copied().ok_or("callers of run loops")?;
        sites.extend(after.iter().map(|after| Site { after: *after, class, unused: 0 }));
        let function = functions.at(*start).ok_or("callers of run loops")?;
        match class {
            facts::SORT => comparing.push(extent(function.span)),
            facts::REGEX => facts.regex = extent(function.span),
            _ => {}
        }
    }
    let needed = [facts::MAIN, facts::SUB, facts::EVAL, facts::NESTED, facts::SORT, facts::REGEX];
    let is_whole = needed.iter().all(|class| sites.iter().any(|site| site.class == *class));
    if !is_whole || sites.len() > SITES {
        return Err("callers of run loops");
    }
    facts.sites.iter_mut().zip(sites).for_each(|(to, from)| *to = from);

    let goto = functions.named("Perl_pp_goto").ok_or("pp_goto")?;
    let calls: Vec<Xsub> = [&entersub, &goto].into_iter().flat_map(calls_in_c).collect();
    if calls.len() < 2 || calls.len() > XSUBS {
        return Err("calls of functions in C");
    }
    facts.xsubs.iter_mut().zip(calls).for_each(|(to, from)| *to = from);
    fill(&mut facts.comparing, &comparing).ok_or("comparators")?;
    facts.sort = extent(sort.span);
    let removing = ["Perl_pp_leavesub", "Perl_pp_leavesublv"].map(|name| functions.extent(name));
    let removing: Option<Vec<Extent>> = removing.into_iter().collect();
    fill(&mut facts.popping, &removing.ok_or("pp_leavesub")?).ok_or("pp_leavesub")?;
    let unsure = ["Perl_dounwind", "Perl_pp_goto", "Perl_cxinc"].map(|name| functions.extent(name));
    let unsure: Option<Vec<Extent>> = unsure.into_iter().collect();
    let mut unsure = unsure.ok_or("dounwind")?;
    let naming = functions.named("Perl_gv_init_pvn").and_then(|code| elsewhere(&code, facts.interpreter_cop));
    unsure.push(naming.ok_or("gv_init_pvn")?);
    fill(&mut facts.unsure, &unsure).ok_or("dounwind")?;
    facts.call_sv = functions.extent("Perl_call_sv").ok_or("call_sv")?;
    facts.eval_sv = functions.extent("Perl_eval_sv").ok_or("eval_sv")?;
    Ok(())
}

/// Copies a list. `None`: it is too long.
fn fill(to: &mut [Extent], from: &[Extent]) -> Option<()> {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    (from.len() <= to.len()).then_some(())
}

/// A memory operand `[register + displacement]` of this size, but of the native frame.
fn is_field(instruction: &Instruction, operand: u32, displacement: u32, size: usize) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_displacement64() == u64::from(displacement)
        && instruction.memory_index() == Register::None
        && instruction.memory_size().size() == size
        && instruction.segment_prefix() == Register::None
        && !matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::None)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// `call [interpreter + Irunops]`.
fn calls_run_loop(instruction: &Instruction, runops: u32) -> bool {
    instruction.flow_control() == FlowControl::IndirectCall && is_field(instruction, 0, runops, 8)
}

/// `mov interpreter, rdi; ... call [op + op_ppaddr]; mov [interpreter + Iop], rax`: where the interpreter is loaded,
/// where an op has returned, and the register.
fn run_loop(runops: &Code) -> Option<(u64, u64, u32)> {
    const PPADDR: u32 = 16;
    let code = &runops.instructions;
    let load = code.iter().take(NEAR).find(|i| i.mnemonic() == Mnemonic::Mov && i.op1_register() == Register::RDI)?;
    let register = dwarf(load.op0_register()).filter(|number| is_callee_saved(*number))?;
    let call = code.iter().position(|i| i.flow_control() == FlowControl::IndirectCall && is_field(i, 0, PPADDR, 8))?;
    let (call, store) = (code.get(call)?, code.get(call + 1)?);
    let stores = store.mnemonic() == Mnemonic::Mov
        && is_field(store, 0, 8, 8)
        && store.memory_base() == load.op0_register()
        && store.op1_register() == Register::RAX;
    (stores && load.next_ip() < call.ip()).then_some((load.next_ip(), call.next_ip(), register.into()))
}

/// The class of each function that calls a run loop.
fn classes(
    functions: &Functions<'_>,
    holders: &BTreeMap<u64, Vec<u64>>,
    comparators: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, u32>, &'static str> {
    let mut classes = BTreeMap::new();
    let known = [
        ("perl_run", facts::MAIN),
        ("Perl_call_sv", facts::SUB),
        ("Perl_amagic_call", facts::SUB),
        ("Perl_eval_sv", facts::EVAL),
    ];
    for (name, class) in known {
        let start = functions.elf.symbol(name).ok_or("perl_run, call_sv or eval_sv")?.address;
        holders.get(&start).ok_or("run loops of perl_run, call_sv or eval_sv")?;
        classes.insert(start, class);
    }
    // `docatch`, which these two end with.
    let of = |name: &str| functions.named(name).map(|code| functions.targets(&code));
    let (entertry, entereval) = of("Perl_pp_entertry").zip(of("Perl_pp_entereval")).ok_or("pp_entertry")?;
    let catching = entertry.intersection(&entereval).find(|start| holders.contains_key(start)).ok_or("docatch")?;
    classes.insert(*catching, facts::NESTED);
    classes.extend(comparators.iter().filter(|start| holders.contains_key(start)).map(|start| (*start, facts::SORT)));
    let regex = below(functions, "Perl_regexec_flags", holders).filter(|start| !classes.contains_key(start));
    classes.insert(regex.ok_or("regexec")?, facts::REGEX);
    // What is left runs `defer` blocks, each in a context that it makes, or computes constants in an eval.
    for start in holders.keys() {
        if classes.contains_key(start) {
            continue;
        }
        let code = functions.at(*start).ok_or("callers of run loops")?;
        let makes = !fillings(&code.instructions).is_empty();
        classes.insert(*start, if makes { facts::DEFER } else { facts::EVAL });
    }
    let deferring = classes.values().filter(|class| **class == facts::DEFER).count();
    (deferring <= 1).then_some(classes).ok_or("callers of run loops")
}

/// Functions whose addresses a function loads.
fn addresses(code: &Code) -> BTreeSet<u64> {
    let loads = |i: &&Instruction| i.mnemonic() == Mnemonic::Lea && i.memory_base() == Register::RIP;
    code.instructions.iter().filter(loads).map(Instruction::memory_displacement64).collect()
}

/// The first holder of a run loop that calls lead to from a function, breadth first.
fn below(functions: &Functions<'_>, name: &str, holders: &BTreeMap<u64, Vec<u64>>) -> Option<u64> {
    let mut level = functions.targets(&functions.named(name)?);
    let exported: BTreeSet<u64> = ["Perl_call_sv", "Perl_amagic_call"]
        .iter()
        .filter_map(|name| functions.elf.symbol(name))
        .map(|s| s.address)
        .collect();
    let mut seen = BTreeSet::new();
    for _ in 0..DEPTH {
        let found = level.iter().find(|start| holders.contains_key(start) && !exported.contains(start));
        if found.is_some() {
            return found.copied();
        }
        let mut next = BTreeSet::new();
        for start in level {
            if seen.insert(start) {
                next.extend(functions.at(start).map(|code| functions.targets(&code)).unwrap_or_default());
            }
        }
        level = next;
    }
    None
}

/// Where a function stores the number of the innermost context, after which a context exists: `mov [stack + si_cxix],
/// index`, where the index was increased by 1, or is what `cxinc` has returned.
fn makings(code: &[Instruction]) -> Vec<usize> {
    let is_making = |store: &usize| {
        let Some(instruction) = code.get(*store) else { return false };
        let index = instruction.op1_register();
        if instruction.mnemonic() != Mnemonic::Mov || !is_field(instruction, 0, 32, 4) || index == Register::None {
            return false;
        }
        let before = code.get(store.saturating_sub(NEAR)..*store).unwrap_or_default();
        let sets = |i: &&Instruction| {
            index == Register::EAX && is_call(i) || i.op0_register().full_register() == index.full_register()
        };
        let increases = |i: &Instruction| {
            i.mnemonic() == Mnemonic::Add && i.op1_kind() == OpKind::Immediate8to32 && i.immediate(1) == 1
        };
        before.iter().rev().find(sets).is_some_and(|i| is_call(i) || increases(i))
    };
    (0..code.len()).filter(is_making).collect()
}

/// From where contexts are made, to the next call, jump or return: until then they are filled in.
fn fillings(code: &[Instruction]) -> Vec<Extent> {
    let mut found = Vec::new();
    for at in makings(code) {
        let Some(store) = code.get(at) else { continue };
        let rest = code.get(at + 1..).unwrap_or_default();
        let rest = rest.get(..FILLING).unwrap_or(rest);
        let ends =
            |i: &&Instruction| matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::Return);
        let end = rest.iter().find(|i| is_call(i) || ends(i)).map(Instruction::ip);
        let end = end.unwrap_or_else(|| rest.last().map_or(store.next_ip(), Instruction::next_ip));
        found.push(Extent { start: store.next_ip(), end });
    }
    found
}

/// Where a function has set the current line to another one, until it sets it back.
fn elsewhere(code: &Code, field: u32) -> Option<Extent> {
    let stores = |i: &&Instruction| i.mnemonic() == Mnemonic::Mov && is_field(i, 0, field, 8);
    let mut stores = code.instructions.iter().filter(stores);
    let (set, back) = (stores.next()?, stores.next()?);
    stores.next().is_none().then_some(Extent { start: set.next_ip(), end: back.next_ip() })
}

/// In `pp_entersub`: what runs only after a sub's context was made, and what runs both then and otherwise. The latter
/// ends the function, with the next op in rax.
/// `dying`: functions that never return.
fn entering(functions: &Functions<'_>, entersub: &Code, dying: &BTreeSet<u64>) -> Option<(Vec<Extent>, Vec<Extent>)> {
    let code = &entersub.instructions;
    let makes = makings(code);
    let place: BTreeMap<u64, usize> = code.iter().enumerate().map(|(at, i)| (i.ip(), at)).collect();
    let reach = |mut waiting: Vec<usize>, barriers: &[usize]| {
        let mut seen = BTreeSet::new();
        while let Some(at) = waiting.pop() {
            if barriers.contains(&at) || !seen.insert(at) {
                continue;
            }
            let Some(i) = code.get(at) else { continue };
            let jump = place.get(&i.near_branch_target()).copied();
            match i.flow_control() {
                FlowControl::UnconditionalBranch => waiting.extend(jump),
                FlowControl::ConditionalBranch => waiting.extend(jump.into_iter().chain([at + 1])),
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Interrupt => {}
                FlowControl::Call if functions.dies(i, dying) || guards(code, at) => {}
                _ => waiting.push(at + 1),
            }
        }
        seen
    };
    let after = reach(makes.iter().map(|at| at + 1).collect(), &[]);
    let otherwise = reach(vec![0], &makes);
    let ranges = |wanted: &dyn Fn(usize) -> bool| {
        let mut found: Vec<Extent> = Vec::new();
        for at in after.iter().copied().filter(|at| wanted(*at)) {
            let Some(i) = code.get(at) else { continue };
            match found.last_mut() {
                Some(last) if last.end == i.ip() => last.end = i.next_ip(),
                _ => found.push(Extent { start: i.ip(), end: i.next_ip() }),
            }
        }
        found
    };
    let shared = ranges(&|at| otherwise.contains(&at));
    let alone = ranges(&|at| !otherwise.contains(&at));
    let is_end = shared.len() <= RANGES && !shared.is_empty() && !alone.is_empty();
    is_end.then_some((shared, alone))
}

/// Is it the call of `__stack_chk_fail`, which never returns: without arguments, and reached by jumps alone?
fn guards(code: &[Instruction], at: usize) -> bool {
    let Some((call, before)) = code.get(at).zip(code.get(at.wrapping_sub(1))) else { return false };
    let (ip, start) = (call.ip(), code.first().map_or(0, Instruction::ip));
    let is_outside = !(start..code.last().map_or(start, Instruction::next_ip)).contains(&call.near_branch_target());
    let compares = |i: &Instruction| i.segment_prefix() == Register::FS && i.mnemonic() == Mnemonic::Sub;
    let jumps = code
        .windows(2)
        .any(|pair| matches!(pair, [compare, jump] if compares(compare) && jump.near_branch_target() == ip));
    let is_padding = matches!(before.mnemonic(), Mnemonic::Nop | Mnemonic::Fnop);
    is_outside && jumps && (is_padding || before.flow_control() != FlowControl::Next)
}

/// `mov rsi, cv; mov rdi, interpreter; call [body + xcv_root_u]`, or the same by a register. The compiler copies it:
/// all calls by that register are such calls.
fn calls_in_c(code: &Code) -> Vec<Xsub> {
    let code = &code.instructions;
    let loads = |register: Register| {
        code.iter().any(|i| i.mnemonic() == Mnemonic::Mov && i.op0_register() == register && is_field(i, 1, XSUB, 8))
    };
    let is_call = |i: &Instruction| {
        let is_indirect = i.flow_control() == FlowControl::IndirectCall;
        is_indirect && (is_field(i, 0, XSUB, 8) || i.op0_kind() == OpKind::Register && loads(i.op0_register()))
    };
    let argument = |at: usize, register: Register| {
        let before = code.get(at.saturating_sub(NEAR)..at)?;
        let load = before.iter().rev().find(|i| i.op0_register() == register)?;
        let number = dwarf(load.op1_register()).filter(|_| load.mnemonic() == Mnemonic::Mov)?;
        is_callee_saved(number).then_some(u32::from(number))
    };
    let calls: Vec<usize> = code.iter().enumerate().filter(|(_, i)| is_call(i)).map(|(at, _)| at).collect();
    let found = calls.iter().find_map(|at| argument(*at, Register::RSI).zip(argument(*at, Register::RDI)));
    let Some((cv, interpreter)) = found else { return Vec::new() };
    let agrees = |at: usize| {
        let is = |register, number| argument(at, register).is_none_or(|other| other == number);
        is(Register::RSI, cv) && is(Register::RDI, interpreter)
    };
    let calls = calls.iter().filter(|at| agrees(**at)).filter_map(|at| code.get(*at));
    calls.map(|call| Xsub { after: call.next_ip(), cv, interpreter }).collect()
}
