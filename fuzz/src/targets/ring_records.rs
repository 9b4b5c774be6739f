//! A thread's ring, as the recorder copied it out of the shared memory.

use uunwind_recorder::records::records;

pub fn run(data: &[u8]) -> bool {
    let mut taken = false;
    for (n, record) in records(data).enumerate() {
        // Every record takes at least eight bytes; one damaged record may follow.
        assert!(n <= data.len() / 8, "record {n} of {} bytes", data.len());
        taken |= record.is_ok();
    }
    taken
}
