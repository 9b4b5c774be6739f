//! Bounds for counts under a timer: so wide that chance does not reach them, and so narrow that a defect does.

/// Standard deviations that chance exceeds once in a thousand million runs.
const SIGMAS: f64 = 6.0;

/// Seconds for which a program is interrupted at random: `short`, or ten times that if `UU_CAMPAIGNS` is set
/// (`ci/nightly`).
pub fn seconds(short: f64) -> f64 {
    if std::env::var_os("UU_CAMPAIGNS").is_some() {
        short * 10.0
    } else {
        short
    }
}

fn deviation(of: usize, probability: f64) -> f64 {
    SIGMAS * (of as f64 * probability * (1.0 - probability)).sqrt()
}

/// Whether `count` of `of` is too low to be chance, if each one has at least this probability.
pub fn too_few(count: usize, of: usize, probability: f64) -> bool {
    (count as f64) < of as f64 * probability - deviation(of, probability)
}

/// Whether `count` of `of` is too high to be chance, if each one has at most this probability. One may always occur.
pub fn too_many(count: usize, of: usize, probability: f64) -> bool {
    count > 1 && count as f64 > of as f64 * probability + deviation(of, probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_binomial_distribution() {
        // 1000 of a fifth: 200, with a standard deviation of 12.65.
        assert!(!too_few(125, 1000, 0.2) && too_few(124, 1000, 0.2));
        assert!(!too_many(275, 1000, 0.2) && too_many(276, 1000, 0.2));
        // Small numbers prove nothing.
        assert!(!too_few(0, 100, 0.2) && !too_many(1, 1, 0.01));
        assert!(too_many(92, 100, 0.4));
    }
}
