//! The part of the protocol buffer wire format (<https://protobuf.dev/programming-guides/encoding/>) that
//! pprof's and OpenTelemetry's profiles need.

/// A message under construction. Fields with the value zero are left out, which the format reads as zero.
#[derive(Default)]
pub struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const FIXED: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    /// The encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    /// Adds a number. Signed fields of pprof are two's complement, so a cast is right.
    pub fn number(&mut self, field: u64, n: u64) {
        if n != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(n);
        }
    }

    /// Adds a number of eight bytes (`fixed64`).
    pub fn fixed(&mut self, field: u64, n: u64) {
        if n != 0 {
            self.varint(field << 3 | FIXED);
            self.bytes.extend_from_slice(&n.to_le_bytes());
        }
    }

    /// Adds numbers of eight bytes as a packed field.
    pub fn packed_fixed(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &bytes);
    }

    /// Adds the fields of another message of this kind.
    pub fn append(&mut self, other: Message) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Adds bytes or a text, also an empty one: in a repeated field every element counts.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a message.
    pub fn message(&mut self, field: u64, message: Message) {
        self.bytes(field, &message.bytes);
    }

    /// Adds numbers as a packed field.
    pub fn packed(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        let mut inner = Message::default();
        for n in numbers {
            inner.varint(n);
        }
        self.bytes(field, &inner.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_format_s_description() {
        // "Encoding" in the protocol buffers documentation: {1: 150}, {2: "testing"}, {3: {1: 150}}, {6: [3, 270,
        // 86942]}.
        let mut m = Message::default();
        m.number(1, 150);
        assert_eq!(m.bytes, [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.bytes(2, b"testing");
        assert_eq!(outer.bytes, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let mut outer = Message::default();
        outer.message(3, m);
        assert_eq!(outer.bytes, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut packed = Message::default();
        packed.packed(6, [3, 270, 86942]);
        assert_eq!(packed.bytes, [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }
}
