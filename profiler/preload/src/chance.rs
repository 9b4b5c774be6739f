//! What is sampled. Every byte that a thread allocates is drawn with the same small chance, independently of all
//! others, and an allocation is sampled if one of its bytes is: so the distances from one such byte to the next are
//! exponentially distributed, and an allocation of `size` bytes is sampled with the probability `1 - exp(-size /
//! interval)`. A report divides by it, at the sample's own size.

/// The next number of a thread's: 64 bits ([xorshift64](https://www.jstatsoft.org/article/view/v008i14)). `state` is not
/// 0.
pub fn next(state: u64) -> u64 {
    let state = state ^ state << 13;
    let state = state ^ state >> 7;
    state ^ state << 17
}

/// An exponentially distributed distance of this mean, in bytes, at least 1. `random`: any number.
pub fn distance(random: u64, mean: u32) -> i64 {
    const BITS: u32 = 52;
    // In (0, 1).
    let uniform = ((random >> (64 - BITS)) as f64 + 0.5) / (1u64 << BITS) as f64;
    let distance = -logarithm(uniform) * f64::from(mean);
    (distance as i64).max(1)
}

/// The natural logarithm of a positive normal number. There is none without a library; this one is exact to 1e-9.
fn logarithm(number: f64) -> f64 {
    const FRACTION: u32 = 52;
    const BIAS: i64 = 1023;
    let bits = number.to_bits();
    let exponent = (bits >> FRACTION & 0x7ff) as i64 - BIAS;
    // In [1, 2); then, for the series, in [0.7, 1.4].
    let fraction = f64::from_bits(bits & ((1 << FRACTION) - 1) | (BIAS as u64) << FRACTION);
    let (fraction, exponent) =
        if fraction > core::f64::consts::SQRT_2 { (fraction / 2.0, exponent + 1) } else { (fraction, exponent) };
    let ratio = (fraction - 1.0) / (fraction + 1.0);
    let square = ratio * ratio;
    // ln((1 + r) / (1 - r)) = 2 (r + r^3/3 + r^5/5 + ...)
    let mut sum = 0.0;
    for term in (0..=5).rev() {
        sum = sum * square + 1.0 / f64::from(2 * term + 1);
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * ratio * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_library() {
        for n in 1..10_000u32 {
            for number in [f64::from(n) / 10_000.0, f64::from(n) * 1e-19, f64::from(n) * 777.0] {
                let (own, library) = (logarithm(number), number.ln());
                assert!((own - library).abs() < 1e-8, "{number}: {own}, {library}");
            }
        }
    }

    #[test]
    fn distances_are_exponentially_distributed() {
        const MEAN: u32 = 512 << 10;
        const NUMBERS: usize = 1_000_000;
        let mut state = 0x1234_5678_9abc_def0;
        let mut distances = Vec::with_capacity(NUMBERS);
        for _ in 0..NUMBERS {
            state = next(state);
            distances.push(distance(state, MEAN));
        }
        let mean = distances.iter().map(|distance| *distance as f64).sum::<f64>() / NUMBERS as f64;
        // Its standard deviation is a thousandth of it.
        assert!((mean / f64::from(MEAN) - 1.0).abs() < 0.006, "{mean}");
        // Of each size, the share that is sampled.
        for size in [16, 4096, 100_000, 512 << 10, 4 << 20] {
            let share = distances.iter().filter(|distance| **distance <= size).count() as f64 / NUMBERS as f64;
            let wanted = 1.0 - (-(size as f64) / f64::from(MEAN)).exp();
            let deviation = (wanted * (1.0 - wanted) / NUMBERS as f64).sqrt();
            assert!((share - wanted).abs() < 6.0 * deviation + 1e-6, "{size}: {share}, {wanted}");
        }
    }
}
