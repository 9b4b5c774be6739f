//! What the two ends of a plugin's process say to each other, over pipes: messages of a length (u32, little-endian) and so
//! many bytes. The plugin's process may have been taken over by the plugin, so its messages are hostile.

use crate::{Plugin, Trouble};
use std::io::{self, Read, Write};
use std::path::Path;
use uunwind_core::plugin::{Refusal, FACTS_LIMIT};

/// Most bytes of a message.
pub const LIMIT: usize = FACTS_LIMIT + 64 * 1024;

/// An answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// As the plugin's `analyse` answered.
    pub outcome: i64,
    /// Key of the file that was looked at.
    pub key: u64,
    /// The facts.
    pub facts: Vec<u8>,
    /// What the plugin told a person; empty when it told nothing.
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

/// A message that is longer than any may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Takes the first message out of what has arrived; `Ok(None)`: it is not whole yet. `Err`: it can be none.
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

/// What is left of a message.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*number)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.number()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// The first message: which plugin it is, or why it cannot be used.
pub fn encode_hello(hello: &Result<Plugin, Trouble>) -> Vec<u8> {
    let mut out = Vec::new();
    let (kind, number, text) = match hello {
        Ok(plugin) => (0u8, u32::from(plugin.analyses), plugin.name.as_str()),
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
    out
}

/// The same, read.
pub fn decode_hello(body: &[u8], path: &Path) -> Option<Result<Plugin, Trouble>> {
    let mut parts = Parts(body);
    let ([kind], number, text) = (parts.number()?, u32::from_le_bytes(parts.number()?), parts.text()?);
    parts.end()?;
    let known = !text.is_empty() && text.len() <= 16;
    Some(match kind {
        0 if known => Ok(Plugin { name: text, path: path.to_owned(), analyses: number != 0 }),
        1 => Err(Trouble::NotLoadable(text)),
        2 => Err(Trouble::NoEntry),
        3 => Err(Trouble::Refused(Refusal::Declined)),
        4 => Err(Trouble::Refused(Refusal::Abi(number))),
        5 => Err(Trouble::Refused(Refusal::Size(number))),
        0 | 6 => Err(Trouble::NoName),
        _ => return None,
    })
}

/// An answer.
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = answer.outcome.to_le_bytes().to_vec();
    out.extend(answer.key.to_le_bytes());
    put(&mut out, &answer.facts);
    put(&mut out, answer.note.as_bytes());
    out
}

/// The same, read.
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
        let plugin = Plugin { name: "mine".into(), path: "/p.so".into(), analyses: true };
        let hello = decode_hello(&encode_hello(&Ok(plugin.clone())), Path::new("/p.so"));
        assert!(matches!(hello, Some(Ok(told)) if told == plugin));
        let refused = decode_hello(&encode_hello(&Err(Trouble::Refused(Refusal::Abi(9)))), Path::new("/p.so"));
        assert!(matches!(refused, Some(Err(Trouble::Refused(Refusal::Abi(9))))));
    }

    #[test]
    fn lies_are_seen() {
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
