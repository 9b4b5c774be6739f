//! The request to name addresses of one object, and its answer, as bytes: naming runs in a process of its own.

use super::{answer, Files};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::wire::{Malformed, Put, Reader};
use uunwind_recording::{Object, Recording};

/// Limit of a message's length, in bytes.
pub const MESSAGE_LIMIT: usize = 1 << 30;

/// The addresses of one object that are in a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Index in the recording of the canonical object.
    pub object: u32,
    /// Build-id of the mapped file; empty if it has none.
    pub build_id: Vec<u8>,
    /// Its facts key, which distinguishes objects without a build-id.
    pub facts_key: u64,
    /// Where its file may be found, best first.
    pub files: Vec<PathBuf>,
    /// Folders with separate debug information, besides the system's.
    pub folders: Vec<PathBuf>,
    /// File addresses to look up.
    pub addresses: Vec<u64>,
}

/// The questions of a recording, one for each object.
pub fn questions(recording: &Recording, map: &mut ObjectMap, files: &Files<'_>) -> Vec<Question> {
    let wanted = super::wanted(recording, map).into_iter();
    let question = |(index, addresses): (u32, std::collections::BTreeSet<u64>)| {
        let object: &Object = recording.objects.get(index as usize)?;
        Some(Question {
            object: index,
            build_id: object.build_id.clone(),
            facts_key: object.facts_key,
            files: files(object),
            folders: Vec::new(),
            addresses: addresses.into_iter().collect(),
        })
    };
    wanted.filter_map(question).collect()
}

impl Question {
    /// Adds another one about the same file: its addresses, and where else the file may be found.
    pub fn join(&mut self, other: Question) {
        self.addresses.extend(other.addresses);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        for (own, others) in [(&mut self.files, other.files), (&mut self.folders, other.folders)] {
            let new: Vec<PathBuf> = others.into_iter().filter(|path| !own.contains(path)).collect();
            own.extend(new);
        }
    }

    /// The question as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.object);
        out.put_bytes(&self.build_id);
        out.put_u64(self.facts_key);
        for paths in [&self.files, &self.folders] {
            out.put_u32(paths.len() as u32);
            paths.iter().for_each(|path| out.put_bytes(path.as_os_str().as_bytes()));
        }
        out.put_u32(self.addresses.len() as u32);
        self.addresses.iter().for_each(|address| out.put_u64(*address));
        out
    }

    /// Reads a question. Any bytes may be passed; `None` for those that are none.
    pub fn decode(bytes: &[u8]) -> Option<Question> {
        let read = |r: &mut Reader<'_>| -> Result<Question, Malformed> {
            let (object, build_id, facts_key) = (r.u32("object")?, r.bytes("build-id")?.to_vec(), r.u64("facts key")?);
            let paths = |r: &mut Reader<'_>| {
                let count = r.count(4, "number of paths")?;
                (0..count).map(|_| Ok(PathBuf::from(OsStr::from_bytes(r.bytes("path")?)))).collect::<Result<_, _>>()
            };
            let (files, folders) = (paths(r)?, paths(r)?);
            let count = r.count(8, "number of addresses")?;
            let addresses = (0..count).map(|_| r.u64("address")).collect::<Result<_, _>>()?;
            Ok(Question { object, build_id, facts_key, files, folders, addresses })
        };
        let mut reader = Reader::new(bytes);
        read(&mut reader).ok().filter(|_| reader.is_done())
    }
}

/// Writes a message: its length (u32, little-endian), then its bytes.
pub fn send(out: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len())
        .ok()
        .filter(|len| *len as usize <= MESSAGE_LIMIT)
        .ok_or(io::ErrorKind::InvalidInput)?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(body)?;
    out.flush()
}

/// Waits for a message; `None` at the end of the stream, or if it is longer than the limit. Allocates only for bytes
/// that arrive.
pub fn receive(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    input.read_exact(&mut len).ok()?;
    let len = u32::from_le_bytes(len) as usize;
    let mut body = Vec::new();
    input.take(len.min(MESSAGE_LIMIT) as u64).read_to_end(&mut body).ok()?;
    (body.len() == len).then_some(body)
}

/// Answers questions until the input ends: the main loop of the naming process.
pub fn serve(mut input: impl Read, mut output: impl Write) {
    while let Some(question) = receive(&mut input).as_deref().and_then(Question::decode) {
        if send(&mut output, &answer(&question).to_bytes()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_recording::Symbols;

    fn question() -> Question {
        let files = vec![PathBuf::from("/no/such/file"), PathBuf::from("/dev/null")];
        let folders = vec![PathBuf::from("/no/such/folder")];
        Question { object: 3, build_id: vec![1, 2, 3], facts_key: 9, files, folders, addresses: vec![5, 0x1000] }
    }

    #[test]
    fn questions_come_back_as_they_were() {
        let bytes = question().encode();
        assert_eq!(Question::decode(&bytes), Some(question()));
        for cut in 0..bytes.len() {
            assert_eq!(Question::decode(&bytes[..cut]), None);
        }
        assert_eq!(Question::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn a_stream_of_questions_is_answered() {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            send(&mut input, &question().encode()).expect("memory");
        }
        // The last message is cut.
        input.extend([9, 0, 0, 0, 1]);
        serve(&*input, &mut output);
        let mut output = &*output;
        for _ in 0..2 {
            let body = receive(&mut output).expect("an answer");
            let symbols = Symbols::from_bytes(&body, 3).expect("about the object");
            assert_eq!(symbols.unusable, [(3, "it is a character device, not a regular file".to_owned())]);
            assert!(Symbols::from_bytes(&body, 4).is_none(), "about another object");
        }
        assert!(receive(&mut output).is_none());
    }
}
