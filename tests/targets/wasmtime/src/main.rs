//! Host -> guest -> guest -> host and back, for some seconds; and guests that trap, which wasmtime meets by signal.
//! Arguments: seconds, and `perfmap` if functions are to be named.

use std::time::{Duration, Instant};
use wasmtime::{Caller, Config, Engine, Func, Instance, Module, ProfilingStrategy, Store};

const GUEST: &str = r#"(module
  (import "host" "work" (func $work (param i32) (result i32)))
  (memory 1)
  (func $guest_inner (param i32) (result i32) (i32.add (call $work (local.get 0)) (i32.const 1)))
  (func $guest_outer (export "guest_outer") (param i32) (result i32) (i32.mul (call $guest_inner (local.get 0)) (i32.const 3)))
  (func $guest_loop (export "guest_loop") (param i32) (result i32) (local i32)
    (loop $again
      (local.set 1 (i32.rem_u (i32.add (i32.mul (local.get 1) (i32.const 31)) (local.get 0)) (i32.const 1009)))
      (br_if $again (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
    (local.get 1))
  (func $guest_trap (export "guest_trap") (param i32) (result i32) (i32.div_u (i32.const 7) (i32.load (i32.shl (local.get 0) (i32.const 30))))))"#;

#[inline(never)]
fn host_work(n: i32) -> i32 {
    (0..800).fold(n, |sum, i| std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i)))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let mut config = Config::new();
    if arguments.next().as_deref() == Some("perfmap") {
        config.profiler(ProfilingStrategy::PerfMap);
    }
    let engine = Engine::new(&config).expect("an engine");
    let (mut calls, mut traps, mut modules) = (0u64, 0u64, 0u64);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        // Compiled anew each time: code comes and goes.
        let module = Module::new(&engine, GUEST).expect("a module");
        let mut store = Store::new(&engine, ());
        let work = Func::wrap(&mut store, |_: Caller<'_, ()>, n: i32| host_work(n));
        let instance = Instance::new(&mut store, &module, &[work.into()]).expect("an instance");
        let outer = instance.get_typed_func::<i32, i32>(&mut store, "guest_outer").expect("a function");
        let spin = instance.get_typed_func::<i32, i32>(&mut store, "guest_loop").expect("a function");
        let trap = instance.get_typed_func::<i32, i32>(&mut store, "guest_trap").expect("a function");
        for n in 0..2000 {
            outer.call(&mut store, n).expect("a result");
            calls += 1;
        }
        for n in 0..20 {
            spin.call(&mut store, 100_000 + n).expect("a result");
            // 0: a division by zero (SIGFPE); 3: far outside the memory (SIGSEGV).
            traps += u64::from(trap.call(&mut store, 0).is_err()) + u64::from(trap.call(&mut store, 3).is_err());
        }
        modules += 1;
    }
    assert_eq!(traps, modules * 40, "every trap was met");
    println!("{calls} calls, {traps} traps, {modules} modules");
}
