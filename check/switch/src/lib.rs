//! A network switch in user space, for tests: delay, loss, rate and cuts for each direction of each link,
//! from a seed.
//!
//! A port is a TAP device, which the caller moves into the network namespace of a host. `fabric` decides what
//! becomes of a frame, `tap` opens devices, and here a thread moves the frames.

mod fabric;
mod tap;

pub use fabric::{Link, Port};

use anyhow::{Context, Result};
use fabric::Fabric;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps at most: a change of a link, or the end, waits for that.
const POLL_MAX: Duration = Duration::from_millis(20);
/// Frames that are read from a port before the others have their turn.
const BURST: usize = 64;
const FRAME_MAX: usize = 65_536;

/// A switch that runs until it is dropped.
pub struct Switch {
    fabric: Arc<Mutex<Fabric>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// With a port for each name, at which a TAP device of that name appears in this network namespace. It
    /// goes when the switch does.
    pub fn start(names: &[String], seed: u64) -> Result<Switch> {
        let ports: Vec<File> = names.iter().map(|name| tap::open(name)).collect::<Result<_>>()?;
        let fabric = Arc::new(Mutex::new(Fabric::new(ports.len(), seed)));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (fabric.clone(), stop.clone());
        let run = move || forward(&ports, &shared, &stopped);
        let thread = std::thread::Builder::new().name("switch".into()).spawn(run);
        Ok(Switch { fabric, stop, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// From now on, for frames from one port to another.
    pub fn set(&self, from: Port, to: Port, link: Link) {
        lock(&self.fabric).set(from, to, link);
    }

    /// The same for all directions.
    pub fn set_all(&self, link: Link) {
        lock(&self.fabric).set_all(link);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(fabric: &Mutex<Fabric>) -> MutexGuard<'_, Fabric> {
    fabric.lock().expect("no thread panics while it holds the lock")
}

fn forward(ports: &[File], fabric: &Mutex<Fabric>, stop: &AtomicBool) {
    let began = Instant::now();
    let mut buffer = vec![0; FRAME_MAX];
    while !stop.load(Ordering::Relaxed) {
        let next = lock(fabric).next_due();
        let pause = next.map_or(POLL_MAX, |due| due.saturating_sub(began.elapsed()).min(POLL_MAX));
        let mut polled: Vec<PollFd> = ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
        if poll(&mut polled, Some(&pause)).is_err() {
            continue; // interrupted
        }
        let readable: Vec<bool> = polled.iter().map(|port| !port.revents().is_empty()).collect();
        for (from, mut port) in ports.iter().enumerate().filter(|(from, _)| readable[*from]) {
            for _ in 0..BURST {
                match port.read(&mut buffer) {
                    Ok(len) => lock(fabric).accept(began.elapsed(), Port(from), &buffer[..len]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    // Nothing is there, or the device is down.
                    Err(_) => break,
                }
            }
        }
        let due = lock(fabric).take_due(began.elapsed());
        for (to, frame) in due {
            // A device that is down or full loses the frame.
            let _ = (&ports[to.0]).write(&frame);
        }
    }
}
