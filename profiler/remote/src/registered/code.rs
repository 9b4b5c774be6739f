//! Rules made from the machine code of functions that windows, or the list for GDB, have without unwind data. The
//! process stands still: what is read of its code is what runs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_recorder::code_rules::{made, Made, Piece, LARGEST_PIECE};
use uunwind_recorder::jit::gdb as list;

/// At most this number of bytes of objects is read from a process's lists.
const OBJECTS: u64 = 16 << 20;
/// At most this number of functions is noted.
const FUNCTIONS: usize = 1 << 16;
/// At most this number of bytes of code is analysed for one process.
const ANALYSED: usize = 4 << 20;

/// A function, and where its tables of jumps may lie: process addresses.
struct Function {
    span: Span,
    constants: usize,
}

/// What is known of the functions of a process.
#[derive(Default)]
pub struct Functions {
    /// By address, once the lists were read.
    functions: Option<Vec<Function>>,
    constants: Vec<Vec<Span>>,
    /// The rules of what was read at an address; a hash of its bytes.
    made: HashMap<(u64, u64), Option<Made>>,
    analysed: usize,
}

impl Functions {
    /// The lists have changed.
    pub fn forget(&mut self) {
        (self.functions, self.constants) = (None, Vec::new());
    }

    /// The rule of a frame, if its function is in one of the lists whose heads lie at these process addresses.
    pub fn rule(&mut self, heads: &[u64], cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        let lookup = cursor.lookup_pc();
        if self.functions.is_none() {
            self.read(heads, reader);
        }
        let functions = self.functions.as_ref()?;
        let before = functions.partition_point(|function| function.span.start <= lookup);
        let function = functions.get(before.checked_sub(1)?).filter(|function| function.span.contains(lookup))?;
        let (span, constants) = (function.span, self.constants.get(function.constants)?.clone());
        self.rule_of(span, &constants, cursor, reader)
    }

    /// The rule of a frame in the function with these addresses. `constants`: where its tables of jumps may lie.
    pub fn rule_of(
        &mut self,
        span: Span,
        constants: &[Span],
        cursor: &Cursor,
        reader: &mut Reader<'_>,
    ) -> Option<Packed> {
        if !cursor.exact && !call_site::precedes(cursor.regs.pc, reader) {
            return None;
        }
        let mut piece = |span: Span| {
            let mut bytes = vec![0; usize::try_from(span.len()).ok().filter(|len| *len <= LARGEST_PIECE)?];
            reader.read(span.start, &mut bytes).then_some(Piece { start: span.start, bytes })
        };
        let code = piece(span)?;
        let constants: Vec<Piece> = constants.iter().filter_map(|span| piece(*span)).collect();
        let mut hasher = DefaultHasher::new();
        (&code, &constants).hash(&mut hasher);
        let key = (code.start, hasher.finish());
        if !self.made.contains_key(&key) {
            self.analysed += code.bytes.len();
            if self.analysed > ANALYSED {
                return None;
            }
            self.made.insert(key, made(&code, &constants));
        }
        let rule = self.made.get(&key)?.as_ref()?.rule_at((cursor.lookup_pc() - code.start) as u32)?;
        Packed::from_words(rule).filter(|rule| !rule.is_failed())
    }

    fn read(&mut self, heads: &[u64], reader: &mut Reader<'_>) {
        let (mut functions, mut left, mut objects): (Vec<Function>, u64, usize) = (Vec::new(), OBJECTS, 0);
        for head in heads {
            super::gdb::each(*head, reader, &mut |address, size, reader| {
                objects += 1;
                let mut image = vec![0; if size <= left { size as usize } else { 0 }];
                left = left.saturating_sub(size);
                if image.is_empty() || !reader.read(address, &mut image) {
                    return left > 0 && objects < list::MOST;
                }
                self.constants.push(list::constants(&image));
                let constants = self.constants.len() - 1;
                list::functions(&image, |code| {
                    functions.push(Function { span: Span::new(code.start, code.end), constants });
                    functions.len() < FUNCTIONS
                });
                functions.len() < FUNCTIONS && objects < list::MOST
            });
        }
        functions.sort_by_key(|function| function.span.start);
        self.functions = Some(functions);
    }
}
