//! Where an instruction leads: jumps, tables of jumps, calls and returns.

use super::{Fault, Function, Next, Others, Returns, Wait, FUNCTION_ALIGNMENT};
use crate::code::Code;
use crate::state::{Compared, State, Value, RAX, RSP};
use crate::step::{self, branch, Stepper, MOST_ENTRIES, UNLIMITED};
use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl in Linux): those that never return here, and those
/// that return on another stack, or twice.
const EXIT: [u64; 2] = [60, 231];
const OTHER_STACK: [u64; 3] = [15, 56, 435];

impl Function {
    pub(super) fn instruction(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        code: &Code<'_>,
        stepper: &mut Stepper,
        others: &mut dyn Others,
    ) -> Next {
        let next = instruction.next_ip();
        if instruction.mnemonic() == Mnemonic::Syscall {
            match state.get(RAX) {
                Value::Constant(number) if EXIT.contains(&number) => return Next::End,
                Value::Constant(number) if OTHER_STACK.contains(&number) => {
                    self.fault = Some(Fault::SystemCall);
                    return Next::End;
                }
                _ => {}
            }
            stepper.step(state, instruction);
            return Next::On;
        }
        match instruction.flow_control() {
            FlowControl::Next => {
                match instruction.mnemonic() {
                    Mnemonic::Hlt => return Next::End,
                    Mnemonic::INVALID | Mnemonic::Iretq | Mnemonic::Sysret | Mnemonic::Sysretq => {
                        self.fault = Some(Fault::NoInstruction);
                        return Next::End;
                    }
                    _ => {}
                }
                stepper.step(state, instruction);
                Next::On
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                stepper.step(state, instruction);
                if matches!(instruction.op0_kind(), OpKind::NearBranch64) {
                    let target = instruction.near_branch_target();
                    if state.compared == Compared::Nothing {
                        self.jump(target, state, code, others);
                    } else {
                        let mut taken = state.clone();
                        branch(&mut taken, instruction, true);
                        self.jump(target, &taken, code, others);
                    }
                    branch(state, instruction, false);
                }
                Next::On
            }
            FlowControl::UnconditionalBranch => {
                if instruction.is_jmp_far() {
                    self.fault = Some(Fault::NoInstruction);
                    return Next::End;
                }
                self.jump(instruction.near_branch_target(), state, code, others);
                Next::End
            }
            FlowControl::IndirectBranch => {
                self.indirect(instruction, state, code, others);
                Next::End
            }
            FlowControl::Return => {
                let plain = matches!(instruction.code(), Opcode::Retnq);
                if plain && state.is_as_at_entry() {
                    (self.returns, self.returned) = (true, true);
                    self.prove(true);
                } else {
                    (self.returns, self.fault) = (true, Some(Fault::Return));
                }
                Next::End
            }
            FlowControl::Call => self.call(instruction, state, code, stepper, others),
            FlowControl::IndirectCall => {
                let word = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address());
                if word.is_some_and(|word| code.never_by_word.contains(&word)) || ends_here(code, next, others) {
                    return Next::End;
                }
                if self.is_misaligned(state) {
                    self.fault = Some(Fault::Misaligned);
                    return Next::End;
                }
                if word.is_some_and(|word| code.returning_by_word.contains(&word)) {
                    state.after_call(instruction.ip());
                    return Next::On;
                }
                self.after(instruction, state, others)
            }
            // A breakpoint: whoever handles it goes on there. But it fills the space behind functions, too.
            FlowControl::Interrupt => {
                let wait = self.wait(0, instruction.next_ip(), state.clone());
                self.after_unknown(wait, others);
                Next::End
            }
            FlowControl::Exception => Next::End,
        }
    }

    /// The block ends so that it proves the frame. `by_return`: by a return, of its own or of the function that it
    /// jumps to.
    fn prove(&mut self, by_return: bool) {
        self.proved = true;
        self.by_return |= by_return;
        self.proves(self.current);
    }

    /// A jump to a place of the file.
    fn jump(&mut self, target: u64, state: &State, code: &Code<'_>, others: &mut dyn Others) {
        let outside = code.part(target).is_none();
        if !state.is_as_at_entry() {
            if outside {
                self.fault = Some(Fault::IndirectJump);
            } else {
                self.go_on(target, state, others);
            }
            return;
        }
        let mut state = state.clone();
        let had_frame = state.end_frame();
        let begins = || others.begins(target) || had_frame && others.was_analysed(target);
        if outside || target != self.entry && begins() {
            // It returns to the caller of this one.
            let never = code.never.contains(&target);
            self.returns |= !never;
            let returns = code.returning.contains(&target) || others.returns(target) == Returns::Yes;
            self.returned |= returns;
            self.prove(returns);
        } else if (had_frame || !self.is_guessed()) && self.is_function_apart(target, others) {
            if !self.waits.iter().any(|wait| wait.is_tail && (wait.callee, wait.from) == (target, self.current)) {
                let wait = Wait { is_tail: true, ..self.wait(target, target, state) };
                self.waits.push(wait);
            }
        } else {
            self.go_on(target, &state, others);
        }
    }

    /// Whether a jump leads to what seems to be another function: it is aligned as functions are, and lies before this
    /// one, or after the next one.
    fn is_function_apart(&mut self, target: u64, others: &dyn Others) -> bool {
        self.is_apart_from_home(target, others) && target.is_multiple_of(FUNCTION_ALIGNMENT) && !self.has_block(target)
    }

    /// Goes on in a block, unless it is another function's and the same was found there.
    fn go_on(&mut self, target: u64, state: &State, others: &mut dyn Others) {
        if !self.is_guessed() && self.has_block(target) {
            self.follow(target, state);
            return;
        }
        let is_doubtful = |address| others.is_doubtful(address, self.origin);
        match others.claimed(target) {
            Some(claimed) if !self.has_block(target) && state.has_facts(claimed) => {
                self.returns = true;
                self.prove(true);
            }
            Some(_) if self.is_guessed() => self.fault = Some(Fault::Disagreement),
            None if self.is_guessed() && is_doubtful(target) && !is_doubtful(self.entry) => {
                self.fault = Some(Fault::Disagreement);
            }
            _ => self.follow(target, state),
        }
    }

    fn indirect(&mut self, instruction: &Instruction, state: &State, code: &Code<'_>, others: &mut dyn Others) {
        let mut is_limited = true;
        let mut table = |count| is_limited = count != UNLIMITED;
        let targets = if instruction.op0_kind() == OpKind::Memory {
            match step::table(state, instruction, 8) {
                Some((at, count)) if instruction.memory_index() != Register::None => {
                    table(count);
                    far(code, at, count)
                }
                _ => None,
            }
        } else {
            match step::number(instruction.op0_register()).map(|register| state.get(register)) {
                Some(Value::Near(at, count)) => {
                    table(count);
                    near(code, at, count)
                }
                Some(Value::Far(at, count)) => {
                    table(count);
                    far(code, at, count)
                }
                Some(Value::Constant(target)) => Some(vec![target]),
                _ => None,
            }
        };
        // A table that ends nobody knows where belongs to this function as far as it leads into it.
        let leads = |target: u64| {
            let (start, end) = (target.min(self.home), target.max(self.home));
            code.part(target).is_some() && (is_limited || !others.begins_between(start + 1, end + 1))
        };
        match targets {
            Some(targets) if targets.iter().all(|target| leads(*target)) => {
                // For a value that cannot be, LLVM's tables lead to the end of the function: to the space after it.
                let is_end = |target: u64| {
                    let after = others.after_padding(target);
                    after != target && after.is_multiple_of(FUNCTION_ALIGNMENT)
                };
                let targets: Vec<u64> = targets.into_iter().filter(|target| !is_end(*target)).collect();
                for target in targets {
                    self.jump(target, state, code, others);
                }
            }
            // It may be a jump within a function of which this is only a part.
            _ if self.is_guessed()
                && !(state.is_as_at_entry() && state.has_saved())
                && !instruction.is_ip_rel_memory_operand() =>
            {
                (self.returns, self.fault) = (true, Some(Fault::IndirectJump));
            }
            _ if state.is_as_at_entry() => {
                self.returns = true;
                self.prove(false);
            }
            _ => (self.returns, self.fault) = (true, Some(Fault::IndirectJump)),
        }
    }

    fn call(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        code: &Code<'_>,
        stepper: &mut Stepper,
        others: &mut dyn Others,
    ) -> Next {
        if instruction.op0_kind() != OpKind::NearBranch64 {
            self.fault = Some(Fault::NoInstruction);
            return Next::End;
        }
        let (target, next) = (instruction.near_branch_target(), instruction.next_ip());
        if fetches_its_address(instruction, code) {
            stepper.step(state, instruction);
            return Next::On;
        }
        if self.is_misaligned(state) {
            self.fault = Some(Fault::Misaligned);
            return Next::End;
        }
        self.calls_aligned |= has_aligned_frame(state);
        if code.never.contains(&target) || ends_here(code, next, others) {
            return Next::End;
        }
        if code.returning.contains(&target) {
            state.after_call(instruction.ip());
            return Next::On;
        }
        if code.part(target).is_none() {
            return self.after(instruction, state, others);
        }
        match others.returns(target) {
            Returns::Yes if !self.is_apart => {
                state.after_call(instruction.ip());
                Next::On
            }
            Returns::Yes | Returns::Perhaps => self.after(instruction, state, others),
            Returns::Never => Next::End,
            Returns::Unsettled => {
                state.after_call(instruction.ip());
                match self.waits.iter_mut().find(|wait| !wait.is_tail && (wait.callee, wait.next) == (target, next)) {
                    Some(wait) => {
                        wait.state.join(state);
                    }
                    None => {
                        let wait = self.wait(target, next, state.clone());
                        self.waits.push(wait);
                    }
                }
                Next::End
            }
        }
    }

    /// After a call of which nothing says that it never returns. Where a function may begin next, it may be one.
    fn after(&mut self, instruction: &Instruction, state: &mut State, others: &dyn Others) -> Next {
        state.after_call(instruction.ip());
        let wait = self.wait(0, instruction.next_ip(), state.clone());
        self.after_unknown(wait, others);
        Next::End
    }

    /// A call in the block that is carried out.
    fn wait(&self, callee: u64, next: u64, state: State) -> Wait {
        Wait { callee, from: self.current, is_apart: self.is_apart, is_tail: false, next, state }
    }

    /// Goes on after a call of a function that may return. Returns whether there is something to do.
    pub fn after_unknown(&mut self, wait: Wait, others: &dyn Others) -> bool {
        let goes_on = wait.is_tail || !self.may_end(&wait, others);
        if goes_on {
            self.resume(wait, true);
        }
        goes_on
    }

    /// Whether the function, or its part, may end with the call before this place. Between parts there is no space, and
    /// the function that is called may be one that returns or not, as its arguments say.
    fn may_end(&mut self, wait: &Wait, others: &dyn Others) -> bool {
        let begins = if wait.is_apart { wait.next } else { others.after_padding(wait.next) };
        if !(wait.is_apart || begins.is_multiple_of(FUNCTION_ALIGNMENT)) || self.has_block(begins) {
            return false;
        }
        match self.doubtful.iter_mut().find(|known| known.next == begins) {
            Some(known) => {
                known.state.join(&wait.state);
            }
            None => {
                self.doubtful.push(Wait { callee: 0, next: begins, state: wait.state.clone(), ..*wait });
            }
        }
        true
    }

    /// Whether this is the middle of a function whose frame is another one: the ABI has the stack pointer aligned at
    /// calls.
    fn is_misaligned(&self, state: &State) -> bool {
        self.is_guessed() && matches!(state.get(RSP), Value::Cfa(at) if at % 16 != 0)
    }
}

/// Whether a frame was set up, so that the stack pointer is aligned as the ABI has it at calls.
fn has_aligned_frame(state: &State) -> bool {
    matches!(state.get(RSP), Value::Cfa(at) if at < -8 && at % 16 == 0)
}

/// Whether a call leads to the next instruction, which takes the return address: no function is called.
pub(super) fn fetches_its_address(instruction: &Instruction, code: &Code<'_>) -> bool {
    let next = instruction.next_ip();
    let bytes = code.part(next).and_then(|part| part.from(next)).unwrap_or(&[]);
    // pop, of one of the lower registers or of one of the upper ones.
    instruction.near_branch_target() == next && matches!(bytes, [0x58..=0x5f, ..] | [0x41, 0x58..=0x5f, ..])
}

/// Whether nothing follows a call: another function begins there, or what fills the space before it.
fn ends_here(code: &Code<'_>, next: u64, others: &dyn Others) -> bool {
    if others.begins(next) || code.begins_part(next) {
        return true;
    }
    code.part(next).is_none() || others.begins(others.after_padding(next))
}

/// The targets of a table of distances from its start.
fn near(code: &Code<'_>, at: u64, count: u32) -> Option<Vec<u64>> {
    let target = |n: &[u8; 4]| at.wrapping_add_signed(i64::from(i32::from_le_bytes(*n)));
    if count == UNLIMITED {
        return all_in_code(code, code.table(at)?.as_chunks::<4>().0.iter().map(target));
    }
    Some(code.constant(at, count as usize * 4)?.as_chunks::<4>().0.iter().map(target).collect())
}

/// The targets of a table of addresses.
fn far(code: &Code<'_>, at: u64, count: u32) -> Option<Vec<u64>> {
    let target = |n: &[u8; 8]| u64::from_le_bytes(*n);
    if count == UNLIMITED {
        return all_in_code(code, code.table(at)?.as_chunks::<8>().0.iter().map(target));
    }
    Some(code.constant(at, count as usize * 8)?.as_chunks::<8>().0.iter().map(target).collect())
}

/// The targets of a table up to the first one that is none. `None`: there are too many, or none at all.
fn all_in_code(code: &Code<'_>, targets: impl Iterator<Item = u64>) -> Option<Vec<u64>> {
    let most = MOST_ENTRIES as usize;
    let targets: Vec<u64> = targets.take(most + 1).take_while(|target| code.part(*target).is_some()).collect();
    (1..=most).contains(&targets.len()).then_some(targets)
}
