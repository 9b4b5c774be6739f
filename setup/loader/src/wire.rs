//! The messages between the two ends of a plugin's process, over pipes: a length (u32, little-endian) and that
//! number of bytes. The plugin may control its whole process, so its messages are hostile.

use crate::{Plugin, Trouble};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_core::plugin::{Refusal, FACTS_LIMIT, LIST_LIMIT};
use uunwind_language::Language;

/// Largest message, in bytes.
pub const LIMIT: usize = FACTS_LIMIT + 64 * 1024;
/// Limit of each text of a language, in bytes.
pub const TEXT_LIMIT: usize = 255;
/// Limit of all texts of a language, in bytes.
const TEXTS_LIMIT: usize = 64 * 1024;
/// Limit of a label, in bytes.
const LABEL_LIMIT: usize = 16;
/// Limit of the positions in one request, and of the lines in its answer.
pub const POSITIONS_LIMIT: usize = 4096;

/// A request to the plugin's process.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// To analyse a file.
    Analyse {
        /// Where it can be opened.
        file: PathBuf,
        /// Where the program has it.
        path: PathBuf,
    },
    /// To decode lines.
    Lines(Vec<Table>),
}

/// A line table, and positions whose lines are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Kind of the table, a number of the plugin's.
    pub kind: u32,
    /// First line of the code object.
    pub first_line: u32,
    /// The table's bytes.
    pub bytes: Vec<u8>,
    /// The positions.
    pub positions: Vec<u64>,
}

impl Table {
    /// Number of bytes that it takes in a message.
    pub fn len(&self) -> usize {
        16 + self.bytes.len() + 8 * self.positions.len()
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }
}

/// An answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The return value of the plugin's `analyse`.
    pub outcome: i64,
    /// Key of the file that was analysed.
    pub key: u64,
    /// The facts; empty if there are none.
    pub facts: Vec<u8>,
    /// The plugin's note for people; empty if there is none.
    pub note: String,
}

/// Writes a message.
pub fn send(out: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.extend_from_slice(body);
    out.write_all(&message)?;
    out.flush()
}

/// Waits for a message; `None` at the end of the stream.
pub fn receive(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    input.read_exact(&mut len).ok()?;
    let mut body = vec![0; (u32::from_le_bytes(len) as usize).min(LIMIT)];
    input.read_exact(&mut body).ok()?;
    Some(body)
}

/// A message that is longer than [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Removes the first message from the bytes that arrived; `Ok(None)`: it is incomplete. `Err`: it is too long.
pub fn take(arrived: &mut Vec<u8>) -> Result<Option<Vec<u8>>, TooLong> {
    let Some(len) = arrived.first_chunk::<4>().map(|len| u32::from_le_bytes(*len) as usize) else { return Ok(None) };
    if len > LIMIT {
        return Err(TooLong);
    }
    if arrived.len() < 4 + len {
        return Ok(None);
    }
    let body = arrived.get(4..4 + len).unwrap_or_default().to_vec();
    arrived.drain(..4 + len);
    Ok(Some(body))
}

/// The rest of a message that is being decoded.
pub(crate) struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    pub fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*number)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.number()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.number()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.number()?))
    }

    /// A count of items of at least `each` bytes, which the rest of the message can hold.
    pub fn count(&mut self, each: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count <= self.0.len() / each).then_some(count)
    }

    pub fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Encodes the first message: the plugin's description, or why it cannot be used.
pub fn encode_hello(hello: &Result<Plugin, Trouble>) -> Vec<u8> {
    let mut out = Vec::new();
    let (kind, number, text) = match hello {
        Ok(plugin) => (0u8, flags(plugin), plugin.name.as_str()),
        Err(Trouble::NotLoadable(why)) => (1, 0, why.as_str()),
        Err(Trouble::NoEntry) => (2, 0, ""),
        Err(Trouble::Refused(Refusal::Declined)) => (3, 0, ""),
        Err(Trouble::Refused(Refusal::Abi(abi))) => (4, *abi, ""),
        Err(Trouble::Refused(Refusal::Size(size))) => (5, *size, ""),
        Err(_) => (6, 0, ""),
    };
    out.push(kind);
    out.extend(number.to_le_bytes());
    put(&mut out, text.as_bytes());
    if let Ok(plugin) = hello {
        put_language(&mut out, &plugin.language);
    }
    out
}

const ANALYSES: u32 = 1;
const DECODES: u32 = 2;
const BUILT_IN: u32 = 4;

fn flags(plugin: &Plugin) -> u32 {
    let flags = [(plugin.analyses, ANALYSES), (plugin.decodes, DECODES), (plugin.built_in, BUILT_IN)];
    flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum()
}

/// Texts beyond the limit are left out.
fn put_language(out: &mut Vec<u8>, language: &Language) {
    put(out, language.label.as_bytes());
    let mut left = TEXTS_LIMIT;
    for list in [&language.glue, &language.loaders, &language.starters] {
        let fits = |text: &&String| {
            left = left.saturating_sub(4 + text.len());
            left > 0
        };
        let texts: Vec<&String> = list.iter().take(LIST_LIMIT).take_while(fits).collect();
        out.extend((texts.len() as u32).to_le_bytes());
        texts.iter().for_each(|text| put(out, text.as_bytes()));
    }
}

/// A label that is no word is replaced by the plugin's name.
fn language(parts: &mut Parts<'_>, plugin: &str) -> Option<Language> {
    let label = parts.text()?;
    let is_word = !label.is_empty() && label.len() <= LABEL_LIMIT && label.chars().all(|c| c.is_ascii_graphic());
    let mut list = || {
        let count = parts.count(4).filter(|count| *count <= LIST_LIMIT)?;
        (0..count).map(|_| parts.text().filter(|text| text.len() <= 3 * TEXT_LIMIT)).collect::<Option<Vec<_>>>()
    };
    let (glue, loaders, starters) = (list()?, list()?, list()?);
    let unknown = Language::unknown(plugin);
    Some(Language { label: if is_word { label } else { unknown.label.clone() }, glue, loaders, starters, ..unknown })
}

/// Decodes the first message. `None`: it is malformed.
pub fn decode_hello(body: &[u8], path: &Path) -> Option<Result<Plugin, Trouble>> {
    let mut parts = Parts(body);
    let ([kind], number, text) = (parts.number()?, parts.u32()?, parts.text()?);
    let language = match kind {
        0 => Some(language(&mut parts, &text)?),
        _ => None,
    };
    parts.end()?;
    let language = language.filter(|_| !text.is_empty() && text.len() <= 16);
    Some(match (kind, language) {
        (0, Some(language)) => {
            let [analyses, decodes, built_in] = [ANALYSES, DECODES, BUILT_IN].map(|flag| number & flag != 0);
            Ok(Plugin { name: text, path: path.to_owned(), analyses, decodes, built_in, language })
        }
        (1, _) => Err(Trouble::NotLoadable(text)),
        (2, _) => Err(Trouble::NoEntry),
        (3, _) => Err(Trouble::Refused(Refusal::Declined)),
        (4, _) => Err(Trouble::Refused(Refusal::Abi(number))),
        (5, _) => Err(Trouble::Refused(Refusal::Size(number))),
        (0 | 6, _) => Err(Trouble::NoName),
        _ => return None,
    })
}

/// Encodes a request.
pub fn encode_request(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    match request {
        Request::Analyse { file, path } => {
            out.push(0);
            put(&mut out, file.as_os_str().as_bytes());
            put(&mut out, path.as_os_str().as_bytes());
        }
        Request::Lines(tables) => {
            out.push(1);
            out.extend((tables.len() as u32).to_le_bytes());
            for table in tables {
                out.extend(table.kind.to_le_bytes());
                out.extend(table.first_line.to_le_bytes());
                put(&mut out, &table.bytes);
                out.extend((table.positions.len() as u32).to_le_bytes());
                out.extend(table.positions.iter().flat_map(|position| position.to_le_bytes()));
            }
        }
    }
    out
}

/// Decodes a request. `None`: it is malformed.
pub fn decode_request(body: &[u8]) -> Option<Request> {
    let mut parts = Parts(body);
    let [kind] = parts.number()?;
    let request = match kind {
        0 => {
            let mut path = || Some(PathBuf::from(OsStr::from_bytes(parts.bytes()?)));
            Request::Analyse { file: path()?, path: path()? }
        }
        1 => {
            let count = parts.count(16)?;
            let mut table = || {
                let (kind, first_line, bytes) = (parts.u32()?, parts.u32()?, parts.bytes()?.to_vec());
                let count = parts.count(8)?;
                let positions = (0..count).map(|_| parts.number().map(u64::from_le_bytes)).collect::<Option<_>>()?;
                Some(Table { kind, first_line, bytes, positions })
            };
            Request::Lines((0..count).map(|_| table()).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    parts.end()?;
    Some(request)
}

/// Encodes the lines of positions.
pub fn encode_lines(lines: &[u32]) -> Vec<u8> {
    lines.iter().flat_map(|line| line.to_le_bytes()).collect()
}

/// Decodes the lines of `count` positions; 0: not available. `None`: there are more or less of them.
pub fn decode_lines(body: &[u8], count: usize) -> Option<Vec<u32>> {
    let (lines, rest) = body.as_chunks::<4>();
    (rest.is_empty() && lines.len() == count).then(|| lines.iter().map(|line| u32::from_le_bytes(*line)).collect())
}

/// Encodes an answer.
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = answer.outcome.to_le_bytes().to_vec();
    out.extend(answer.key.to_le_bytes());
    put(&mut out, &answer.facts);
    put(&mut out, answer.note.as_bytes());
    out
}

/// Decodes an answer. `None`: it is malformed.
pub fn decode_answer(body: &[u8]) -> Option<Answer> {
    let mut parts = Parts(body);
    let (outcome, key) = (i64::from_le_bytes(parts.number()?), u64::from_le_bytes(parts.number()?));
    let (facts, note) = (parts.bytes()?.to_vec(), parts.text()?);
    parts.end()?;
    let agrees =
        usize::try_from(outcome).map_or(facts.is_empty(), |len| len == facts.len()) && facts.len() <= FACTS_LIMIT;
    agrees.then_some(Answer { outcome, key, facts, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let answer = Answer { outcome: 3, key: 7, facts: vec![1, 2, 3], note: "one line".into() };
        let body = encode_answer(&answer);
        assert_eq!(decode_answer(&body).as_ref(), Some(&answer));
        let mut arrived = Vec::new();
        send(&mut arrived, &body).expect("memory");
        let mut half = arrived[..arrived.len() - 1].to_vec();
        assert_eq!(take(&mut half), Ok(None));
        assert_eq!(take(&mut arrived), Ok(Some(body)));
        assert!(arrived.is_empty());
        let plugin = Plugin {
            name: "mine".into(),
            path: "/p.so".into(),
            analyses: true,
            decodes: false,
            built_in: true,
            language: Language {
                label: "m".into(),
                glue: vec!["run_*".into(), "call".into()],
                ..Language::unknown("mine")
            },
        };
        let hello = decode_hello(&encode_hello(&Ok(plugin.clone())), Path::new("/p.so"));
        assert!(matches!(hello, Some(Ok(decoded)) if decoded == plugin));
        let refused = decode_hello(&encode_hello(&Err(Trouble::Refused(Refusal::Abi(9)))), Path::new("/p.so"));
        assert!(matches!(refused, Some(Err(Trouble::Refused(Refusal::Abi(9))))));
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let table = |bytes: &[u8], positions: &[u64]| {
            let (bytes, positions) = (bytes.to_vec(), positions.to_vec());
            Table { kind: 7, first_line: 3, bytes, positions }
        };
        let tables = vec![table(&[1, 2, 3], &[0, u64::MAX]), table(&[], &[5])];
        let long: usize = tables.iter().map(Table::len).sum();
        let file = Request::Analyse { file: "/proc/7/fd/9".into(), path: "/usr/bin/x".into() };
        for request in [file, Request::Lines(tables)] {
            let body = encode_request(&request);
            assert!(matches!(request, Request::Analyse { .. }) || body.len() == long + 5);
            assert_eq!(decode_request(&body), Some(request));
            for cut in 0..body.len() {
                assert_eq!(decode_request(&body[..cut]), None);
            }
            assert_eq!(decode_request(&[&body[..], &[0]].concat()), None);
        }
        assert_eq!(decode_lines(&encode_lines(&[1, 0, 9]), 3), Some(vec![1, 0, 9]));
        assert!(decode_lines(&encode_lines(&[1, 0, 9]), 2).is_none() && decode_lines(&[0; 7], 2).is_none());
    }

    #[test]
    fn a_language_is_cut_to_its_limits() {
        let label = |label: &str| {
            let language = Language { label: label.to_owned(), ..Language::unknown("mine") };
            let plugin = Plugin {
                name: "mine".into(),
                path: "/p.so".into(),
                analyses: false,
                decodes: true,
                built_in: false,
                language,
            };
            decode_hello(&encode_hello(&Ok(plugin)), Path::new(""))
                .and_then(Result::ok)
                .expect("a plugin")
                .language
                .label
        };
        assert_eq!(label("m"), "m");
        for bad in ["", "two words", "line\n", "longer than sixteen"] {
            assert_eq!(label(bad), "mine", "{bad:?}");
        }
        let glue = vec!["x".repeat(TEXT_LIMIT); 2 * LIST_LIMIT];
        let mut body = Vec::new();
        put_language(&mut body, &Language { glue, ..Language::unknown("mine") });
        assert!(body.len() <= TEXTS_LIMIT + 100 && body.len() > TEXTS_LIMIT - 2 * TEXT_LIMIT, "{}", body.len());
        let decoded = language(&mut Parts(&body), "mine").expect("whole");
        assert!(decoded.glue.len() > 200 && decoded.loaders.is_empty());
    }

    #[test]
    fn malformed_messages_are_refused() {
        assert_eq!(take(&mut vec![255; 8]), Err(TooLong));
        let lie = Answer { outcome: 4, key: 0, facts: vec![1], note: String::new() };
        assert_eq!(decode_answer(&encode_answer(&lie)), None);
        let body = encode_answer(&Answer { outcome: 0, key: 0, facts: vec![], note: "x".into() });
        for cut in 0..body.len() {
            assert_eq!(decode_answer(&body[..cut]), None);
        }
        assert!(decode_hello(&[9; 9], Path::new("")).is_none() && decode_hello(&[], Path::new("")).is_none());
    }
}
