//! A Rust program that contains Lua 5.4: Lua functions and Rust closures that call each other. For each sample that it
//! takes of itself it prints the Lua functions that the stack should have, outermost first.

use mlua::{Function, Lua, Result};

/// The sampling signal, sent to oneself.
fn cap(expected: &str) {
    println!("{expected}");
    // SAFETY: plain calls; the signal has uu's handler, or the test fails by its exit code.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGPROF) };
}

fn main() -> Result<()> {
    let lua = Lua::new();
    let inner = lua.create_function(|_, expected: String| {
        cap(&expected);
        Ok(1)
    })?;
    lua.globals().set("inner", inner)?;
    let source = "local function helper(e)\n  local r = inner(e)\n  return r\nend\nfunction outer(e)\n  local r = helper(e)\n  return r\nend";
    lua.load(source).set_name("@outer.lua").exec()?;
    let outer: Function = lua.globals().get("outer")?;
    outer.call::<i32>("outer.lua:6 outer.lua:2")?;
    // A closure of Rust between two activations.
    let again = outer.clone();
    lua.globals().set("through", lua.create_function(move |_, e: String| again.call::<i32>(e))?)?;
    lua.load("\nlocal r = through('chunk.lua:2 outer.lua:6 outer.lua:2')").set_name("@chunk.lua").exec()?;
    // A coroutine that Rust resumes.
    let body: Function =
        lua.load("return function(e)\n coroutine.yield()\n local r = inner(e)\nend").set_name("@co.lua").eval()?;
    let thread = lua.create_thread(body)?;
    thread.resume::<()>("co.lua:3")?;
    thread.resume::<()>(())?;
    // Another state, from a function that the first one calls.
    let other = Lua::new();
    other.globals().set(
        "inner",
        other.create_function(|_, e: String| {
            cap(&e);
            Ok(())
        })?,
    )?;
    let run =
        lua.create_function(move |_, e: String| other.load(format!("inner('{e}')")).set_name("@other.lua").exec())?;
    lua.globals().set("run", run)?;
    lua.load("run('main.lua:1 other.lua:1')\nrun('main.lua:2 other.lua:1')").set_name("@main.lua").exec()
}
