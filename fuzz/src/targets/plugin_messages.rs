//! The messages between uu and a plugin's process: a stream cut into messages, each read as a first word, as an
//! answer, as lines and as a request.

use crate::alloc;
use std::path::Path;
use uunwind_loader::wire::{decode_answer, decode_hello, decode_lines, decode_request, encode_request, take};

pub fn run(data: &[u8]) -> bool {
    let mut taken = false;
    let mut arrived = data.to_vec();
    for _ in 0..=data.len() / 4 {
        let Ok(Some(body)) = take(&mut arrived) else { break };
        if let Some(Ok(plugin)) = decode_hello(&body, Path::new("/plugin.so")) {
            let label = &plugin.language.label;
            assert!(!label.is_empty() && label.len() <= 3 * 16 && plugin.language.plugin == plugin.name);
            taken = true;
        }
        if let Some(answer) = decode_answer(&body) {
            assert!(answer.facts.len() as i64 == answer.outcome.max(0));
            taken = true;
        }
        if let Some(request) = decode_request(&body) {
            assert_eq!(encode_request(&request), body);
            taken = true;
        }
        assert!(decode_lines(&body, body.len() / 4).is_some_and(|l| l.len() * 4 == body.len()) || body.len() % 4 != 0);
    }
    assert!(alloc::held() <= 2 * data.len() + alloc::FREE, "{} bytes are held", alloc::held());
    taken
}
