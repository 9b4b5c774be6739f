//! Rust code for stepper.c to step through: generics, closures through `dyn`, slices, strings, collections.
#![crate_type = "staticlib"]

use std::collections::BTreeMap;
use std::hint::black_box;

trait Shape {
    fn area(&self) -> i32;
}

struct Square(i32);
struct Circle(i32);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> i32 {
        self.0 * self.0
    }
}

impl Shape for Circle {
    #[inline(never)]
    fn area(&self) -> i32 {
        black_box(self.0) * 3 + self.0.count_ones() as i32
    }
}

#[inline(never)]
fn fold<T: Copy>(values: &[T], f: &dyn Fn(i32, T) -> i32) -> i32 {
    values.iter().fold(0, |sum, v| f(sum, *v))
}

/// Called by routines.c.
#[no_mangle]
pub extern "C" fn rust_routine(n: i32) -> i32 {
    let (square, circle) = (Square(n), Circle(n));
    let shapes: [&dyn Shape; 2] = [black_box(&square), black_box(&circle)];
    let areas = fold(&shapes, &|sum, s| sum + s.area());
    let mut numbers: Vec<i32> = (0..6).map(|i| (i * 7919 + n) % 13).collect();
    numbers.sort_unstable();
    let mut map = BTreeMap::new();
    for i in &numbers {
        *map.entry(*i).or_insert(0) += fold(&numbers, &|a, b: i32| a ^ b);
    }
    areas + map.values().sum::<i32>() + format!("{n:>4}").len() as i32
}
