//! The messages between uu and a process that calls a plugin's signal half, within the frames of [`crate::wire`].
//!
//! uu sends a call; the process sends requests, to each of which uu replies, and then its answer. All that it sends
//! begins with the number of the call, so that nothing late is taken for something else.

use super::description::SentDescription;
use crate::wire::{put, Parts};
use uunwind_core::memory::paged::PAGE;
use uunwind_core::plugin::{CRule, Caller, Owner, Plugin, View, STACK_FRAMES};
use uunwind_core::regs::COUNT;

/// At most this number of frames is emitted by one message.
pub const FRAMES: usize = 128;

/// Which function of the plugin is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `overlay`.
    Overlay,
    /// `step`.
    Step,
    /// `rule`.
    Rule,
    /// `lock`.
    Lock,
}

impl Function {
    /// All of them, in the order of their bits in [`Hello::functions`].
    pub const ALL: [Function; 4] = [Function::Overlay, Function::Step, Function::Rule, Function::Lock];
}

/// The first message of the process.
#[derive(Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`Plugin::flags`].
    pub flags: u32,
    /// [`Plugin::scratch_bytes`].
    pub scratch_bytes: u32,
    /// Bit n: the table has the nth function of [`Function::ALL`].
    pub functions: u8,
}

impl Hello {
    /// What a table has.
    pub fn of(table: &Plugin) -> Hello {
        let has = [table.overlay.is_some(), table.step.is_some(), table.rule.is_some(), table.lock.is_some()];
        let functions = has.iter().enumerate().map(|(bit, has)| u8::from(*has) << bit).sum();
        Hello { flags: table.flags, scratch_bytes: table.scratch_bytes, functions }
    }

    /// Whether the table has a function.
    pub fn has(&self, function: Function) -> bool {
        Function::ALL.iter().position(|f| *f == function).is_some_and(|bit| self.functions & 1 << bit != 0)
    }

    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.flags.to_le_bytes().to_vec();
        out.extend(self.scratch_bytes.to_le_bytes());
        out.push(self.functions);
        out
    }

    /// `None`: it is malformed.
    pub fn decode(body: &[u8]) -> Option<Hello> {
        let mut parts = Parts(body);
        let (flags, scratch_bytes, [functions]) = (parts.u32()?, parts.u32()?, parts.number()?);
        parts.end()?;
        Some(Hello { flags, scratch_bytes, functions })
    }
}

/// Facts in a message: they are sent once, and have a number from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFacts<'f> {
    /// Their number, from 1; 0: there are none.
    pub number: u32,
    /// Their bytes, where the number is new.
    pub bytes: &'f [u8],
}

/// What is called, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'f> {
    /// The number of the call.
    pub call: u32,
    /// The number of the walk: memory, names and scratch memory are one walk's.
    pub walk: u64,
    /// The function.
    pub function: Function,
    /// The facts of the object.
    pub facts: SentFacts<'f>,
    /// Whether the view has scratch memory.
    pub has_scratch: bool,
}

/// Encodes a call. `stack`: the view's, at most [`STACK_FRAMES`] addresses; `caller`: what a step fills.
pub fn encode_call(head: &Head<'_>, view: &View, stack: &[u64], caller: &Caller) -> Vec<u8> {
    let mut out = head.call.to_le_bytes().to_vec();
    out.extend(head.walk.to_le_bytes());
    out.push(head.function as u8);
    put_facts(&mut out, head.facts);
    out.push(head.has_scratch.into());
    for word in [view.pc, view.sp, view.cfa, view.function_start, view.function_end, view.bias] {
        out.extend(word.to_le_bytes());
    }
    for word in [view.thread_pointer, view.tsd_offset, view.range_start, view.range_end, view.generation] {
        out.extend(word.to_le_bytes());
    }
    out.extend(view.registers.iter().flat_map(|word| word.to_le_bytes()));
    for number in [view.exact, view.known, view.plugin, view.flags] {
        out.extend(number.to_le_bytes());
    }
    out.extend((stack.len() as u32).to_le_bytes());
    out.extend(stack.iter().flat_map(|address| address.to_le_bytes()));
    put_caller(&mut out, caller);
    out
}

/// A call as it arrives.
pub struct Sent<'f> {
    /// What is called, and where.
    pub head: Head<'f>,
    /// The view, without its pointers.
    pub view: View,
    /// [`View::stack`].
    pub stack: Vec<u64>,
    /// The caller's frame, which a step fills.
    pub caller: Caller,
}

/// Decodes a call. `None`: it is malformed.
pub fn decode_call(body: &[u8]) -> Option<Sent<'_>> {
    let mut parts = Parts(body);
    let (call, walk, [function]) = (parts.u32()?, parts.u64()?, parts.number()?);
    let function = *Function::ALL.get(usize::from(function))?;
    let facts = sent_facts(&mut parts)?;
    let [has_scratch] = parts.number()?;
    let mut view = View::new();
    for word in [
        &mut view.pc,
        &mut view.sp,
        &mut view.cfa,
        &mut view.function_start,
        &mut view.function_end,
        &mut view.bias,
        &mut view.thread_pointer,
        &mut view.tsd_offset,
        &mut view.range_start,
        &mut view.range_end,
        &mut view.generation,
    ] {
        *word = parts.u64()?;
    }
    for register in &mut view.registers {
        *register = parts.u64()?;
    }
    for number in [&mut view.exact, &mut view.known, &mut view.plugin, &mut view.flags] {
        *number = parts.u32()?;
    }
    let frames = parts.count(8).filter(|count| *count <= STACK_FRAMES)?;
    let stack = (0..frames).map(|_| parts.u64()).collect::<Option<Vec<u64>>>()?;
    let caller = caller(&mut parts)?;
    parts.end()?;
    Some(Sent { head: Head { call, walk, function, facts, has_scratch: has_scratch != 0 }, view, stack, caller })
}

fn put_facts(out: &mut Vec<u8>, facts: SentFacts<'_>) {
    out.extend(facts.number.to_le_bytes());
    put(out, facts.bytes);
}

fn sent_facts<'a>(parts: &mut Parts<'a>) -> Option<SentFacts<'a>> {
    Some(SentFacts { number: parts.u32()?, bytes: parts.bytes()? })
}

fn put_caller(out: &mut Vec<u8>, caller: &Caller) {
    out.extend(caller.pc.to_le_bytes());
    out.extend(caller.registers.iter().flat_map(|word| word.to_le_bytes()));
    out.extend(caller.known.to_le_bytes());
    out.extend(caller.exact.to_le_bytes());
}

fn caller(parts: &mut Parts<'_>) -> Option<Caller> {
    let mut caller = Caller { pc: parts.u64()?, registers: [0; COUNT], known: 0, exact: 0 };
    for register in &mut caller.registers {
        *register = parts.u64()?;
    }
    (caller.known, caller.exact) = (parts.u32()?, parts.u32()?);
    Some(caller)
}

fn put_rule(out: &mut Vec<u8>, rule: &CRule) {
    out.extend(rule.size.to_le_bytes());
    out.extend([rule.kind, rule.register, rule.reserved[0], rule.reserved[1]]);
    out.extend(rule.offset.to_le_bytes());
    out.extend(rule.addend.to_le_bytes());
    out.extend(rule.slots.iter().flat_map(|slot| slot.to_le_bytes()));
    out.extend(rule.reserved2.to_le_bytes());
}

fn rule(parts: &mut Parts<'_>) -> Option<CRule> {
    let mut rule = CRule::simple(0, 0);
    rule.size = parts.u32()?;
    [rule.kind, rule.register, rule.reserved[0], rule.reserved[1]] = parts.number()?;
    (rule.offset, rule.addend) = (i32::from_le_bytes(parts.number()?), i32::from_le_bytes(parts.number()?));
    for slot in &mut rule.slots {
        *slot = i16::from_le_bytes(parts.number()?);
    }
    rule.reserved2 = i16::from_le_bytes(parts.number()?);
    Some(rule)
}

/// What the process sends during a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The page at this address. Reply: [`encode_page`].
    Page(u64),
    /// The name id of a code object and a fingerprint. Reply: a number.
    FindName(u64, u64),
    /// The name id of what is described. Reply: a number.
    Describe(Box<SentDescription>),
    /// Emits frames. Reply: a number, 0 if there is no room.
    Emit(Vec<[u64; 2]>),
    /// How many of this number of frames are to be left out. Reply: a number.
    Omit(u32),
    /// What covers an address. Reply: [`encode_owner`].
    Lookup(u64),
    /// A native step. Reply: [`encode_stepped`].
    NativeStep(Box<Caller>),
    /// The end of the call.
    Answer(Box<Answer>),
}

/// What a call has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the function has returned.
    pub answer: u32,
    /// The caller's frame.
    pub caller: Caller,
    /// The rule.
    pub rule: CRule,
    /// The last frames that it emitted.
    pub frames: Vec<[u64; 2]>,
}

fn put_frames(out: &mut Vec<u8>, frames: &[[u64; 2]]) {
    out.extend((frames.len() as u32).to_le_bytes());
    out.extend(frames.iter().flatten().flat_map(|word| word.to_le_bytes()));
}

fn frames(parts: &mut Parts<'_>) -> Option<Vec<[u64; 2]>> {
    let count = parts.count(16).filter(|count| *count <= FRAMES)?;
    (0..count).map(|_| Some([parts.u64()?, parts.u64()?])).collect()
}

impl Request {
    /// The message, in this call.
    pub fn encode(&self, call: u32) -> Vec<u8> {
        let mut out = call.to_le_bytes().to_vec();
        match self {
            Request::Page(address) => {
                out.push(0);
                out.extend(address.to_le_bytes());
            }
            Request::FindName(code, fingerprint) => {
                out.push(1);
                out.extend([code, fingerprint].into_iter().flat_map(|word| word.to_le_bytes()));
            }
            Request::Describe(of) => {
                out.push(2);
                of.put(&mut out);
            }
            Request::Emit(frames) => {
                out.push(3);
                put_frames(&mut out, frames);
            }
            Request::Omit(left) => {
                out.push(4);
                out.extend(left.to_le_bytes());
            }
            Request::Lookup(address) => {
                out.push(5);
                out.extend(address.to_le_bytes());
            }
            Request::NativeStep(from) => {
                out.push(6);
                put_caller(&mut out, from);
            }
            Request::Answer(answer) => {
                out.push(7);
                out.extend(answer.answer.to_le_bytes());
                put_caller(&mut out, &answer.caller);
                put_rule(&mut out, &answer.rule);
                put_frames(&mut out, &answer.frames);
            }
        }
        out
    }

    /// Decodes what the process sent in this call. `None`: it is malformed, or belongs to another call.
    pub fn decode(body: &[u8], call: u32) -> Option<Request> {
        let mut parts = Parts(body);
        let (number, [kind]) = (parts.u32()?, parts.number()?);
        if number != call {
            return None;
        }
        let request = match kind {
            0 => Request::Page(parts.u64()?),
            1 => Request::FindName(parts.u64()?, parts.u64()?),
            2 => Request::Describe(Box::new(SentDescription::decode(&mut parts)?)),
            3 => Request::Emit(frames(&mut parts)?),
            4 => Request::Omit(parts.u32()?),
            5 => Request::Lookup(parts.u64()?),
            6 => Request::NativeStep(Box::new(caller(&mut parts)?)),
            7 => {
                let answer = parts.u32()?;
                let (caller, rule) = (caller(&mut parts)?, rule(&mut parts)?);
                Request::Answer(Box::new(Answer { answer, caller, rule, frames: frames(&mut parts)? }))
            }
            _ => return None,
        };
        parts.end()?;
        Some(request)
    }
}

/// A reply that is a number.
pub fn encode_number(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// `None`: it is malformed.
pub fn decode_number(body: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(body.try_into().ok()?))
}

/// A reply that is a page; `None`: it cannot be read.
pub fn encode_page(page: Option<&[u8; PAGE]>) -> Vec<u8> {
    page.map_or(Vec::new(), |page| page.to_vec())
}

/// As [`encode_page`].
pub fn decode_page(body: &[u8]) -> Option<Box<[u8; PAGE]>> {
    body.try_into().ok().map(Box::new)
}

/// A reply that is an owner.
pub fn encode_owner(owner: &Owner, facts: SentFacts<'_>) -> Vec<u8> {
    let words = [owner.start, owner.end, owner.bias, owner.generation];
    let mut out: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    out.extend([owner.kind, owner.plugin].into_iter().flat_map(u32::to_le_bytes));
    put_facts(&mut out, facts);
    out
}

/// Decodes an owner, but for its pointer. `None`: it is malformed.
pub fn decode_owner(body: &[u8]) -> Option<(Owner, SentFacts<'_>)> {
    let mut parts = Parts(body);
    let mut owner = Owner::NONE;
    for word in [&mut owner.start, &mut owner.end, &mut owner.bias, &mut owner.generation] {
        *word = parts.u64()?;
    }
    (owner.kind, owner.plugin) = (parts.u32()?, parts.u32()?);
    let facts = sent_facts(&mut parts)?;
    parts.end()?;
    Some((owner, facts))
}

/// A reply that is a native step: its outcome, and the frame.
pub fn encode_stepped(outcome: i32, frame: &Caller) -> Vec<u8> {
    let mut out = outcome.to_le_bytes().to_vec();
    put_caller(&mut out, frame);
    out
}

/// `None`: it is malformed.
pub fn decode_stepped(body: &[u8]) -> Option<(i32, Caller)> {
    let mut parts = Parts(body);
    let stepped = (i32::from_le_bytes(parts.number()?), caller(&mut parts)?);
    parts.end()?;
    Some(stepped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::plugin::{Description, Text, OWN_TEXT};

    fn a_caller() -> Caller {
        Caller { pc: 0x1234, registers: std::array::from_fn(|n| n as u64 * 3), known: 0xffff, exact: 1 }
    }

    #[test]
    fn calls_and_replies_come_back_as_they_were() {
        let facts = SentFacts { number: 3, bytes: &[1, 2, 3] };
        for function in Function::ALL {
            let head = Head { call: 7, walk: 9, function, facts, has_scratch: true };
            let view = View { pc: 1, sp: 2, cfa: 3, generation: 4, known: 5, flags: 1, exact: 1, ..View::new() };
            let stack = [0x1000, 0x2000];
            let body = encode_call(&head, &view, &stack, &a_caller());
            let Sent { head: decoded, view: as_sent, stack: frames, caller } = decode_call(&body).expect("whole");
            assert_eq!((decoded, caller, &frames[..]), (head, a_caller(), &stack[..]));
            let words = |view: &View| ([view.pc, view.sp, view.cfa, view.generation], view.known, view.exact);
            assert_eq!(words(&as_sent), words(&view));
            assert!((0..body.len()).all(|cut| decode_call(&body[..cut]).is_none()));
            let long = encode_call(&head, &view, &[0; STACK_FRAMES + 1], &a_caller());
            assert!(decode_call(&long).is_none(), "more frames than a view has");
        }
        let owner = Owner { start: 1, end: 2, bias: 3, generation: 4, kind: 1, plugin: 2, ..Owner::NONE };
        assert_eq!(decode_owner(&encode_owner(&owner, facts)), Some((owner, facts)));
        assert_eq!(decode_stepped(&encode_stepped(-7, &a_caller())), Some((-7, a_caller())));
        assert_eq!(decode_page(&encode_page(Some(&[5; PAGE]))).as_deref(), Some(&[5; PAGE]));
        assert_eq!((decode_page(&encode_page(None)), decode_number(&encode_number(9))), (None, Some(9)));
        let hello = Hello { flags: 5, scratch_bytes: 8, functions: 0b1001 };
        assert!(hello.has(Function::Overlay) && hello.has(Function::Lock) && !hello.has(Function::Step));
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
    }

    #[test]
    fn requests_come_back_as_they_were_and_others_are_refused() {
        let name = [b'n'; 20];
        let text = |own: u16| Text { address: name.as_ptr() as u64, len: 20, width: 1, utf8: own };
        let given = Description {
            code: 1,
            fingerprint: 2,
            name: text(OWN_TEXT | 1),
            file: text(1),
            table: text(0),
            first_line: 3,
            table_kind: 4,
        };
        // SAFETY: the name is a live local.
        let described = unsafe { SentDescription::of(&given) };
        assert_eq!((&described.texts[0].own[..], described.texts[1].own.len()), (&name[..], 0));
        assert_eq!(described.description().file.address, name.as_ptr() as u64);
        let answer =
            Answer { answer: 0x101, caller: a_caller(), rule: CRule::simple(7, 16), frames: vec![[1, 2], [3, 4]] };
        let requests = [
            Request::Page(0x1000),
            Request::FindName(1, 2),
            Request::Describe(Box::new(described)),
            Request::Emit(vec![[1, 2]; FRAMES]),
            Request::Omit(5),
            Request::Lookup(6),
            Request::NativeStep(Box::new(a_caller())),
            Request::Answer(Box::new(answer)),
        ];
        for request in requests {
            let body = request.encode(11);
            assert_eq!(Request::decode(&body, 11), Some(request));
            assert_eq!(Request::decode(&body, 12), None, "another call's");
            assert!((0..body.len()).all(|cut| Request::decode(&body[..cut], 11).is_none()));
            assert_eq!(Request::decode(&[&body[..], &[0]].concat(), 11), None);
        }
        assert_eq!(Request::decode(&Request::Emit(vec![[0; 2]; FRAMES + 1]).encode(1), 1), None);
    }
}
