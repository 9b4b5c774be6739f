//! A report's text: a buffer that is written when it is full; numbers, texts of others, JSON.

use super::destination::Destination;
use crate::threads::Deadline;
use uunwind_stacks::decimal::decimal;

fn hexadecimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut first = buffer.len();
    for place in buffer.iter_mut().rev() {
        *place = digit((number & 15) as u8);
        number >>= 4;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    buffer.get(first..).unwrap_or(&[])
}

fn digit(value: u8) -> u8 {
    match value & 15 {
        value @ 0..=9 => b'0' + value,
        value => b'a' + value - 10,
    }
}

/// Collects text and writes it.
#[derive(Debug)]
pub struct Out {
    to: Destination,
    deadline: Deadline,
    buffer: [u8; 1024],
    len: usize,
    lost: bool,
    /// JSON: a member stands before the next one.
    comma: bool,
}

impl Out {
    /// Writes to `to`, until the deadline at the latest.
    pub fn new(to: Destination, deadline: Deadline) -> Out {
        Out { to, deadline, buffer: [0; 1024], len: 0, lost: false, comma: false }
    }

    /// The descriptor that it writes to; `None`: it does not take all that is written.
    pub fn destination(&self) -> Option<i32> {
        (!self.lost).then(|| self.to.fd())
    }

    /// Writes what is in the buffer.
    pub fn flush(&mut self) {
        let bytes = self.buffer.get(..self.len).unwrap_or(&[]);
        self.lost = self.lost || !self.to.write(bytes, self.deadline);
        self.len = 0;
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Out {
        for byte in bytes {
            if self.len == self.buffer.len() {
                self.flush();
            }
            if let Some(place) = self.buffer.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
        self
    }

    /// A text of ours.
    pub fn text(&mut self, text: &str) -> &mut Out {
        self.bytes(text.as_bytes())
    }

    /// A text that others chose: without control characters, and quoted for JSON.
    pub fn foreign(&mut self, text: &[u8]) -> &mut Out {
        for chunk in text.utf8_chunks() {
            for byte in chunk.valid().bytes() {
                match byte {
                    b'"' | b'\\' => self.bytes(&[b'\\', byte]),
                    0..=31 | 127 => self.bytes(b"\\u00").bytes(&[digit(byte >> 4), digit(byte)]),
                    _ => self.bytes(&[byte]),
                };
            }
            if !chunk.invalid().is_empty() {
                self.text("\u{fffd}");
            }
        }
        self
    }

    /// A number in decimal.
    pub fn number(&mut self, number: u64) -> &mut Out {
        self.bytes(decimal(number, &mut [0; 20]))
    }

    /// A signed number in decimal.
    pub fn signed(&mut self, number: i64) -> &mut Out {
        if number < 0 {
            self.bytes(b"-");
        }
        self.number(number.unsigned_abs())
    }

    /// A number as `0x...`.
    pub fn hex(&mut self, number: u64) -> &mut Out {
        self.bytes(b"0x").bytes(hexadecimal(number, &mut [0; 20]))
    }

    /// Bytes as two digits each.
    pub fn octets(&mut self, bytes: &[u8]) -> &mut Out {
        for byte in bytes {
            self.bytes(&[digit(byte >> 4), digit(*byte)]);
        }
        self
    }

    /// Begins a JSON line: an object of this type.
    pub fn begin(&mut self, kind: &str) -> &mut Out {
        self.text("{\"type\":\"").text(kind).text("\"");
        self.comma = true;
        self
    }

    /// Ends a line.
    pub fn end(&mut self) {
        self.text("}\n");
        // A report that is cut off ends with a whole line.
        self.flush();
    }

    fn key(&mut self, key: &str) -> &mut Out {
        self.text(if self.comma { ",\"" } else { "\"" }).text(key).text("\":");
        self.comma = true;
        self
    }

    /// A member with a number.
    pub fn with(&mut self, key: &str, number: i64) -> &mut Out {
        self.key(key).signed(number)
    }

    /// A member with an address: a string, since JSON's numbers are no 64-bit ones.
    pub fn with_address(&mut self, key: &str, address: u64) -> &mut Out {
        self.key(key).text("\"").hex(address).text("\"")
    }

    /// A member with a text that others chose.
    pub fn with_text(&mut self, key: &str, text: &[u8]) -> &mut Out {
        self.key(key).text("\"").foreign(text).text("\"")
    }

    /// A member that is true or false.
    pub fn with_bool(&mut self, key: &str, value: bool) -> &mut Out {
        self.key(key).text(if value { "true" } else { "false" })
    }

    /// A member with bytes in hexadecimal.
    pub fn with_octets(&mut self, key: &str, bytes: &[u8]) -> &mut Out {
        self.key(key).text("\"").octets(bytes).text("\"")
    }
}
