//! The least that writes with three durable copies cost on a disk: three processes, each of which appends
//! durably, in one go, what came meanwhile to a log of its own, and no protocol. What varies here, varies
//! everywhere; what is not reached here, is not reached.

use crate::cluster::{cpu_of, own_cpu};
use anyhow::{Context, Result, ensure};
use nacre_node::FileDisk;
use nacre_store::Disk;
use std::collections::VecDeque;
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

/// What its line in a table is called.
pub const PROBE: &str = "probe";

const BLOCK: usize = 4096;
/// Writes that are dealt with together, at most.
const TOGETHER: usize = 64;
const LOG_LEN: u64 = 256 << 20;

/// One of the three processes: says on stdout where it listens, and ends with the process that asks it.
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
    let (mut blocks, mut len) = (vec![0; TOGETHER * BLOCK], 0);
    let (mut at, mut done) = (0, [0; TOGETHER]);
    loop {
        match asker.read(&mut blocks[len..]) {
            Ok(read) if read > 0 => len += read,
            _ => return Ok(()),
        }
        let whole = len / BLOCK * BLOCK;
        if whole == 0 {
            continue;
        }
        others.iter_mut().try_for_each(|other| other.write_all(&blocks[..whole]))?;
        if at + whole as u64 > LOG_LEN {
            at = 0;
        }
        log.write_durable(at, &blocks[..whole])?;
        at += whole as u64;
        let done = &mut done[..whole / BLOCK];
        others.iter_mut().try_for_each(|other| other.read_exact(done))?;
        asker.write_all(done)?;
        blocks.copy_within(whole..len, 0);
        len -= whole;
    }
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

    /// With this many writes under way all the time.
    pub fn measure(&mut self, seconds: u32, depth: usize) -> Result<Probed> {
        let pids: Vec<u32> = self.processes.iter().map(Child::id).collect();
        let (cpu, client, begun) = (cpu_of(&pids)?, own_cpu()?, Instant::now());
        let end = begun + Duration::from_secs(seconds.into());
        let (mut waits, mut done) = (Vec::new(), [0; TOGETHER]);
        let (mut asked, mut free) = (VecDeque::new(), depth.min(TOGETHER));
        let blocks = vec![7; TOGETHER * BLOCK];
        loop {
            if Instant::now() < end {
                self.first.write_all(&blocks[..free * BLOCK])?;
                asked.extend(std::iter::repeat_n(Instant::now(), free));
            }
            if asked.is_empty() {
                break;
            }
            free = self.first.read(&mut done)?;
            ensure!(free > 0, "a process of the probe died");
            waits.extend(asked.drain(..free).map(|asked: Instant| asked.elapsed().as_secs_f64() * 1000.0));
        }
        let (cpu, client) = (cpu_of(&pids)? - cpu, own_cpu()? - client);
        let took = begun.elapsed().as_secs_f64();
        waits.sort_by(f64::total_cmp);
        let at = |part: f64| waits[(waits.len() as f64 * part) as usize];
        Ok(Probed {
            ops_per_second: waits.len() as f64 / took,
            mean: waits.iter().sum::<f64>() / waits.len() as f64,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            cpu_per_1000: cpu.as_secs_f64() / waits.len() as f64 * 1000.0,
            client: client.as_secs_f64() / took,
        })
    }
}

/// Times are in milliseconds.
pub struct Probed {
    pub ops_per_second: f64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// What the three processes took for 1000 writes, in seconds.
    pub cpu_per_1000: f64,
    /// Processors that the asking process kept busy.
    pub client: f64,
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
