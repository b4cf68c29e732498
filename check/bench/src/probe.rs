//! The least that a write with three durable copies costs on a disk: three processes, each of which
//! appends 4 KiB durably to a log of its own, and no protocol. What varies here, varies everywhere.

use crate::cluster::cpu_of;
use crate::rbd::Measured;
use anyhow::{Context, Result};
use nacre_node::FileDisk;
use nacre_store::Disk;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Options {
    /// The file that it appends to.
    log: PathBuf,
    /// Where the others listen, if it is the first of three.
    others: Vec<SocketAddr>,
}

const BLOCK: usize = 4096;
const LOG_LEN: u64 = 256 << 20;
const DONE: [u8; 1] = [1];

/// One of the three processes: says on stdout where it listens, and ends with whoever asks it.
pub fn serve(options: &Options) -> Result<()> {
    let log = FileDisk::create(&options.log, LOG_LEN)?;
    let zeros = vec![0; 4 << 20];
    (0..LOG_LEN / zeros.len() as u64).try_for_each(|n| log.write_at(n * zeros.len() as u64, &zeros))?;
    log.flush()?;
    let mut others = options.others.iter().map(|&other| connect(other)).collect::<Result<Vec<_>>>()?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?);
    let (mut asker, _) = listener.accept()?;
    asker.set_nodelay(true)?;
    let mut block = [0; BLOCK];
    let mut done = [0; DONE.len()];
    for n in 0.. {
        if asker.read_exact(&mut block).is_err() {
            break;
        }
        others.iter_mut().try_for_each(|other| other.write_all(&block))?;
        log.write_durable(n * BLOCK as u64 % LOG_LEN, &block)?;
        others.iter_mut().try_for_each(|other| other.read_exact(&mut done))?;
        asker.write_all(&DONE)?;
    }
    Ok(())
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The three of them.
pub struct Probe {
    folder: PathBuf,
    processes: Vec<Child>,
    first: TcpStream,
}

impl Probe {
    /// With their logs in a folder of their own.
    pub fn start(folder: &Path) -> Result<Probe> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder)?;
        let (mut processes, mut addresses) = (Vec::new(), Vec::<SocketAddr>::new());
        for n in 0..3 {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("probe").arg(folder.join(format!("log{n}")));
            if n == 2 {
                command.args(addresses.iter().map(SocketAddr::to_string));
            }
            let mut child = command.stdout(Stdio::piped()).spawn()?;
            let mut line = String::new();
            BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
            processes.push(child);
            addresses.push(line.trim().parse().with_context(|| format!("a probe said '{line}'"))?);
        }
        Ok(Probe { folder: folder.to_path_buf(), processes, first: connect(addresses[2])? })
    }

    /// One write after the other.
    pub fn measure(&mut self, seconds: u32) -> Result<Measured> {
        let pids: Vec<u32> = self.processes.iter().map(Child::id).collect();
        let (cpu, begun) = (cpu_of(&pids)?, Instant::now());
        let (mut waits, mut done) = (Vec::new(), DONE);
        while begun.elapsed() < Duration::from_secs(seconds.into()) {
            let asked = Instant::now();
            self.first.write_all(&[7; BLOCK])?;
            self.first.read_exact(&mut done)?;
            waits.push(asked.elapsed().as_secs_f64() * 1000.0);
        }
        let cpu = cpu_of(&pids)? - cpu;
        waits.sort_by(f64::total_cmp);
        let at = |part: f64| waits[(waits.len() as f64 * part) as usize];
        Ok(Measured {
            ops_per_second: waits.len() as f64 / begun.elapsed().as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            cpu_per_1000: cpu.as_secs_f64() / waits.len() as f64 * 1000.0,
        })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
