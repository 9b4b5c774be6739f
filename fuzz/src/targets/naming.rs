//! The messages between uu and its naming process: each message of a stream is read as a question and as an answer, and
//! answered.

use crate::alloc;
use std::path::PathBuf;
use uunwind_recording::Symbols;
use uunwind_symbolize::question::{receive, send, serve, Question};

pub fn run(data: &[u8]) -> bool {
    let (mut rest, mut taken, mut questions) = (data, false, Vec::new());
    while let Some(body) = receive(&mut rest) {
        assert!(body.len() <= data.len());
        if let Some(question) = Question::decode(&body) {
            assert!(question.encode() == body, "a question that comes back as another one");
            // Files of this machine must not become part of an input.
            let files = vec![PathBuf::from("/dev/null")];
            send(&mut questions, &Question { files, folders: Vec::new(), ..question }.encode()).expect("memory");
            taken = true;
        }
        let object = body.get(4..8).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        if let Some(symbols) = Symbols::from_bytes(&body, object) {
            assert!(symbols.entries.iter().all(|entry| entry.object == object));
            taken = true;
        }
    }
    let mut answers = Vec::new();
    serve(&*questions, &mut answers);
    assert!(alloc::held() <= 16 * data.len() + alloc::FREE, "{} bytes are held", alloc::held());
    taken
}
