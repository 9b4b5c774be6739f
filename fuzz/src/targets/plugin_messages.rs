//! What a plugin's process sends to uu: a stream cut into messages, each read as a first word and as an answer.

use std::path::Path;
use uunwind_loader::wire::{decode_answer, decode_hello, take};

pub fn run(data: &[u8]) -> bool {
    let mut taken = false;
    let mut arrived = data.to_vec();
    for _ in 0..=data.len() / 4 {
        let Ok(Some(body)) = take(&mut arrived) else { break };
        taken |= decode_hello(&body, Path::new("/plugin.so")).is_some_and(|hello| hello.is_ok());
        if let Some(answer) = decode_answer(&body) {
            assert!(answer.facts.len() as i64 == answer.outcome.max(0));
            taken = true;
        }
    }
    taken
}
