//! A pseudo-terminal with a program in it, and what is on its screen.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const ROWS: usize = 30;
const COLUMNS: usize = 120;

/// A terminal whose foreground program it started.
pub struct Terminal {
    master: Option<File>,
    /// The program's side, for its settings.
    slave: File,
    child: Child,
    before: Settings,
    limit: Duration,
    /// What is on the screen.
    pub screen: Screen,
}

/// The modes and special characters of a terminal.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings([u32; 4], [u8; libc::NCCS]);

/// A screen as xterm draws it, as far as programs of this project use it.
pub struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Bytes of a sequence, or of a character, that is not whole yet.
    open: Vec<u8>,
    /// The other screen is shown; what was on this one then.
    pub other: bool,
    before: Vec<Vec<char>>,
    /// The cursor is shown.
    pub cursor: bool,
}

impl Terminal {
    /// Starts a program in a session of its own, with a new terminal for its standard descriptors.
    #[track_caller]
    pub fn start(command: &mut Command, limit: Duration) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: ROWS as u16, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: both numbers are written to live locals, and the size is read.
        let opened = unsafe { libc::openpty(&mut master, &mut slave, none, none.cast(), &raw const size as *mut _) };
        assert_eq!(opened, 0, "openpty: {}", io::Error::last_os_error());
        // SAFETY: fresh descriptors that nobody else closes.
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        for file in [&master, &slave] {
            // SAFETY: plain calls on open descriptors.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: as above.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let before = settings(&slave);
        let copy = || slave.try_clone().expect("a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy()).env("TERM", "xterm");
        // SAFETY: async-signal-safe calls only.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                // As a shell with job control does, whatever the test itself began with.
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("a program");
        Terminal { master: Some(master), slave, child, before, limit, screen: Screen::default() }
    }

    /// The program's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types keys.
    pub fn keys(&mut self, keys: &str) {
        let master = self.master.as_mut().expect("an open terminal");
        master.write_all(keys.as_bytes()).expect("keys");
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Closes the terminal, as an emulator's window is closed.
    pub fn close(&mut self) {
        self.master = None;
    }

    /// Takes what the program has drawn until the screen is as it should be.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&Screen) -> bool) {
        let begun = Instant::now();
        loop {
            while self.pump() {}
            if is_so(&self.screen) {
                return;
            }
            assert!(begun.elapsed() < self.limit, "waited too long for {what}:\n{}", self.screen.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the program's end, and checks that the terminal is as it was before.
    #[track_caller]
    pub fn end_restored(&mut self) -> ExitStatus {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its state") {
                break status;
            }
            assert!(begun.elapsed() < self.limit, "it does not end:\n{}", self.screen.text());
            if !self.pump() {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        while self.pump() {}
        assert_eq!(settings(&self.slave), self.before);
        assert!(!self.screen.other && self.screen.cursor, "the screen is not put back:\n{}", self.screen.text());
        status
    }

    /// Waits for the program's end alone.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("its state") {
                return status;
            }
            assert!(begun.elapsed() < self.limit, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether something was there to take.
    fn pump(&mut self) -> bool {
        let mut part = [0; 4096];
        match self.master.as_mut().map(|master| master.read(&mut part)) {
            Some(Ok(read)) if read > 0 => {
                part[..read].iter().for_each(|byte| self.screen.feed(*byte));
                true
            }
            _ => false,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(slave: &File) -> Settings {
    // SAFETY: all-zero is a valid termios, which the call fills.
    let termios = unsafe {
        let mut termios: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(slave.as_raw_fd(), &mut termios), 0);
        termios
    };
    Settings([termios.c_iflag, termios.c_oflag, termios.c_cflag, termios.c_lflag], termios.c_cc)
}

impl Default for Screen {
    fn default() -> Screen {
        let cells = vec![vec![' '; COLUMNS]; ROWS];
        Screen { before: cells.clone(), cells, at: (0, 0), open: Vec::new(), other: false, cursor: true }
    }
}

impl Screen {
    /// The lines, without the space at their ends.
    pub fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    /// All of them.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Takes a byte that was written to the terminal. A sequence that it does not know fails the test.
    pub fn feed(&mut self, byte: u8) {
        self.open.push(byte);
        let open = std::mem::take(&mut self.open);
        match &open[..] {
            [0x1b] | [0x1b, b'['] => self.open = open,
            [0x1b, b'[', rest @ .., last] if (0x40..=0x7e).contains(last) => {
                self.sequence(std::str::from_utf8(rest).expect("text"), char::from(*last));
            }
            [0x1b, b'[', ..] => self.open = open,
            [0x1b, ..] => panic!("an unknown sequence: {open:?}"),
            [b'\r'] => self.at.1 = 0,
            [b'\n'] => self.new_line(),
            text => match std::str::from_utf8(text) {
                Ok(text) => text.chars().for_each(|character| self.put(character)),
                Err(_) if text.len() < 4 => self.open = open,
                Err(_) => panic!("no UTF-8: {open:?}"),
            },
        }
    }

    fn new_line(&mut self) {
        self.at.0 += 1;
        if self.at.0 == ROWS {
            self.cells.remove(0);
            self.cells.push(vec![' '; COLUMNS]);
            self.at.0 -= 1;
        }
    }

    fn put(&mut self, character: char) {
        if self.at.1 == COLUMNS {
            self.at.1 = 0;
            self.new_line();
        }
        self.cells[self.at.0][self.at.1] = character;
        self.at.1 += 1;
    }

    fn sequence(&mut self, parameters: &str, last: char) {
        match (parameters, last) {
            ("", 'H') => self.at = (0, 0),
            ("", 'K') => self.cells[self.at.0][self.at.1.min(COLUMNS)..].fill(' '),
            ("", 'J') => {
                self.cells[self.at.0][self.at.1.min(COLUMNS)..].fill(' ');
                self.cells[self.at.0 + 1..].iter_mut().for_each(|line| line.fill(' '));
            }
            ("?25", 'l' | 'h') => self.cursor = last == 'h',
            ("?1049", 'h') => {
                self.before = std::mem::replace(&mut self.cells, Screen::default().cells);
                self.other = true;
            }
            ("?1049", 'l') => {
                self.cells = self.before.clone();
                self.other = false;
            }
            (_, 'm') => {}
            _ => panic!("an unknown sequence: ESC [ {parameters} {last}"),
        }
    }
}
