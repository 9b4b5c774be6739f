//! Frame words as a program may pass them: described, and kept under a number.
//!
//! | bytes | |
//! |---|---|
//! | rest | words; addresses of which some are this process's own |

use crate::input::Input;
use std::cell::RefCell;
use uunwind_core::frame::frame_words;
use uunwind_core::memory::Reader;
use uunwind_stacks::describe::{describe, FrameInfo};
use uunwind_stacks::interned::Interned;

/// Small, so that it fills.
type Table = Interned<4, 1>;

pub fn run(data: &[u8]) -> bool {
    thread_local! {
        static TABLE: RefCell<&'static Table> = RefCell::new(Box::leak(Box::new(Table::new())));
    }
    let words: Vec<u64> = data.chunks(8).map(|word| Input::new(word).u64()).collect();
    let mut info = FrameInfo::EMPTY;
    let mut reader = Reader::probed();
    let (mut at, mut described) = (0, 0);
    while let Some(first) = words.get(at) {
        let rest = &words[at..];
        match describe(rest, &mut info, &mut reader) {
            Some(count) => {
                assert_eq!(count, frame_words(*first));
                for text in [&info.function[..], &info.file] {
                    assert!(text.contains(&0), "a text without an end");
                }
                assert!(info.build_id_len as usize <= info.build_id.len());
                described += 1;
                at += count;
            }
            None => at += 1,
        }
    }
    TABLE.with_borrow(|table| {
        let lost = table.lost();
        match table.add(&words) {
            0 => assert_eq!(table.lost(), lost + 1),
            id => {
                assert_eq!(table.get(id), Some(&words[..]), "another stack has this number");
                assert_eq!(table.add(&words), id);
            }
        }
        for id in [0, u32::MAX, table.count() + 1] {
            assert_eq!(table.get(id), None);
        }
    });
    described != 0
}
