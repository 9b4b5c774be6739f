//! The terminal while a table is drawn on it: the other screen, keys without their echo, no cursor. Dropping it puts
//! everything back, whatever ends the drawing.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_current_process_group, Signal};
use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The other screen on and off, with the cursor gone and back, as xterm and all that follow it have them
/// (<https://invisible-island.net/xterm/ctlseqs/ctlseqs.html>).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// A terminal that is drawn on.
pub struct Screen {
    terminal: File,
    before: Termios,
    own: Termios,
}

/// What has come from the terminal.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// These bytes; none: the time is over, or a signal has come.
    Keys(Vec<u8>),
    /// It is closed.
    Closed,
}

impl Screen {
    /// Takes over the terminal. Ctrl-C and Ctrl-\ still send their signals; Ctrl-Z, which would stop uu with the
    /// terminal in its hands, is a key ([`Screen::suspend`]).
    pub fn enter(terminal: File) -> io::Result<Screen> {
        let before = tcgetattr(&terminal)?;
        let mut own = before.clone();
        own.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        own.special_codes[SpecialCodeIndex::VSUSP] = 0;
        own.special_codes[SpecialCodeIndex::VMIN] = 1;
        own.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Now, &own)?;
        let mut screen = Screen { terminal, before, own };
        screen.terminal.write_all(ENTER.as_bytes())?;
        Ok(screen)
    }

    /// Puts the terminal back, stops uu and the program as Ctrl-Z does, and takes the terminal over again when they are
    /// continued. Where no shell could continue them, the kernel does not stop them
    /// ([setpgid(2)](https://man7.org/linux/man-pages/man2/setpgid.2.html): orphaned process groups).
    pub fn suspend(&mut self) -> io::Result<()> {
        self.terminal.write_all(LEAVE.as_bytes())?;
        tcsetattr(&self.terminal, OptionalActions::Now, &self.before)?;
        // The kernel gives it to the main thread, this one, before the call returns.
        kill_current_process_group(Signal::TSTP)?;
        tcsetattr(&self.terminal, OptionalActions::Now, &self.own)?;
        self.terminal.write_all(ENTER.as_bytes())
    }

    /// Rows and columns.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.terminal).map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        let (rows, columns) = size.unwrap_or((0, 0));
        (if rows == 0 { 24 } else { rows }, if columns == 0 { 80 } else { columns })
    }

    /// Draws lines from the top, and clears the rest.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[0m\x1b[K")).collect();
        self.terminal.write_all(format!("\x1b[H{}\x1b[J", lines.join("\r\n")).as_bytes())
    }

    /// Waits for keys.
    pub fn input(&mut self, patience: Duration) -> Input {
        let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        // After a signal, no descriptor is ready.
        let _ = poll(&mut fds, Some(&timeout));
        let events = fds.map(|fd| fd.revents())[0];
        if events.is_empty() {
            return Input::Keys(Vec::new());
        }
        let mut keys = [0; 64];
        match self.terminal.read(&mut keys) {
            Ok(read) if read > 0 => Input::Keys(keys.get(..read).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Input::Keys(Vec::new()),
            _ => Input::Closed,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is closed needs neither.
        let _ = self.terminal.write_all(LEAVE.as_bytes());
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};

    #[test]
    fn a_panic_puts_the_terminal_back() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other side");
        let open = || File::from(ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("it"));
        let other = open();
        let before = format!("{:?}", tcgetattr(&other).expect("its settings"));
        let screen = Screen::enter(open()).expect("a screen");
        assert_ne!(format!("{:?}", tcgetattr(&other).expect("its settings")), before);
        let panicked = std::thread::spawn(move || {
            let _screen = screen;
            std::panic::panic_any(());
        });
        panicked.join().expect_err("a panic");
        assert_eq!(format!("{:?}", tcgetattr(&other).expect("its settings")), before);
        // One read may give a part only. Once the other side is closed, what follows the last part is an error.
        drop(other);
        let mut drawn = Vec::new();
        let end = File::from(master).read_to_end(&mut drawn).expect_err("the closed side");
        assert_eq!(end.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        assert!(String::from_utf8_lossy(&drawn).ends_with(LEAVE));
    }
}
