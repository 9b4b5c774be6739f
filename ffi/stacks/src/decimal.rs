//! Numbers as digits, without a formatter: those of `core` may panic.

/// The digits of a number, in decimal.
pub fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut first = buffer.len();
    for place in buffer.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    buffer.get(first..).unwrap_or(&[])
}
