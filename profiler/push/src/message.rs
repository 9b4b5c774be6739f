//! Messages of [protocol buffers](https://protobuf.dev/programming-guides/encoding/) that stores answer with, read.

/// The value of a field of a message.
pub(crate) enum Value<'m> {
    /// Of a variable width.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'m [u8]),
    /// Of a fixed width.
    Fixed,
}

/// The fields of a message, with their numbers; `None`: it is none.
pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let mut take = |len: usize| {
            let (taken, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(taken)
        };
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => take(8).map(|_| Value::Fixed)?,
            5 => take(4).map(|_| Value::Fixed)?,
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let (taken, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                Value::Bytes(taken)
            }
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        all.push((tag >> 3, value));
    }
    Some(all)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
