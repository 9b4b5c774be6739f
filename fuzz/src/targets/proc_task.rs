//! `/proc/self/task`: the entries of the folder, and the text of a thread's `status`.
//!
//! | bytes | |
//! |---|---|
//! | 1 | even: entries of the folder, as getdents64(2) gives them; odd: a text |
//! | rest | those |

use uunwind_crashes::threads::list::ids;
use uunwind_crashes::threads::status::Status;

pub fn run(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else { return false };
    if kind % 2 == 1 {
        let status = Status::parse(bytes);
        for signal in [1, 9, 32, 64] {
            std::hint::black_box((status.is_pending(signal), status.holds_back(signal)));
        }
        return status != Status::default();
    }
    let mut found = 0;
    ids(bytes, &mut |_| found += 1);
    assert!(found <= bytes.len() / 19, "more entries than there is room for");
    found != 0
}
