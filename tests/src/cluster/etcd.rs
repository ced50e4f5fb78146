//! An etcd cluster on loopback.
//!
//! Members are real processes in the directory of the test, so that the runner finds and ends
//! them when a test fails. Administration goes through etcd's JSON interface, which needs no
//! client library.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::certificates::Certificates;
use crate::{Cmd, Context, Failure, Outcome, root};

/// How long a member may take to start or an election to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The etcd that the set-up has fetched.
pub fn etcd_binary() -> PathBuf {
    root().join(".cache/etcd/bin/etcd")
}

/// A cluster; its members end when it is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    certificates: Option<Certificates>,
}

#[derive(Debug)]
struct Member {
    /// Where clients connect.
    client: u16,
    /// The JSON interface, which is the same port unless that one wants TLS.
    json: u16,
    health: u16,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl EtcdCluster {
    /// Starts members and waits until they serve requests.
    pub fn start(directory: &Path, members: usize) -> Outcome<Self> {
        Self::with(directory, members, None, &[])
    }

    /// As [`EtcdCluster::start`], with TLS for clients and between members.
    pub fn start_tls(directory: &Path, members: usize) -> Outcome<Self> {
        fs::create_dir_all(directory)?;
        let certificates = Certificates::new(&directory.join("certificates"))?;
        Self::with(directory, members, Some(certificates), &[])
    }

    /// As [`EtcdCluster::start`], with more options for each member.
    pub fn start_with(directory: &Path, members: usize, options: &[&str]) -> Outcome<Self> {
        Self::with(directory, members, None, options)
    }

    fn with(
        directory: &Path,
        count: usize,
        certificates: Option<Certificates>,
        options: &[&str],
    ) -> Outcome<Self> {
        fs::create_dir_all(directory)?;
        let scheme = if certificates.is_some() {
            "https"
        } else {
            "http"
        };
        let ports = free_ports(count * 4)?;
        let peers: Vec<String> = (0..count)
            .map(|i| format!("m{i}={scheme}://127.0.0.1:{}", ports[i * 4 + 1]))
            .collect();
        let mut members = Vec::with_capacity(count);
        for i in 0..count {
            let [client, peer, health, json] = [0, 1, 2, 3].map(|n| ports[i * 4 + n]);
            let mut arguments = vec![
                format!("--name=m{i}"),
                format!("--data-dir={}", directory.join(format!("m{i}")).display()),
                format!("--listen-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--advertise-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--listen-peer-urls={scheme}://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls={scheme}://127.0.0.1:{peer}"),
                format!("--listen-metrics-urls=http://127.0.0.1:{health}"),
                format!("--initial-cluster={}", peers.join(",")),
                format!("--initial-cluster-token={}", directory.display()),
                "--log-level=warn".into(),
            ];
            let mut json_port = client;
            if let Some(certificates) = &certificates {
                arguments.extend(certificates.member_options());
                arguments.push(format!("--listen-client-http-urls=http://127.0.0.1:{json}"));
                json_port = json;
            }
            arguments.extend(options.iter().map(|option| (*option).to_owned()));
            members.push(Member {
                client,
                json: json_port,
                health,
                arguments,
                log: directory.join(format!("m{i}.log")),
                child: None,
            });
        }
        let mut cluster = Self {
            members,
            certificates,
        };
        for member in &mut cluster.members {
            member.spawn()?;
        }
        cluster.wait_healthy()?;
        Ok(cluster)
    }

    /// Members, dead ones included.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The addresses of all members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|i| self.endpoint(i)).collect()
    }

    /// The address of a member.
    pub fn endpoint(&self, i: usize) -> String {
        let scheme = if self.certificates.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://127.0.0.1:{}", self.members[i].client)
    }

    /// The socket of a member.
    pub fn address(&self, i: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.members[i].client))
    }

    /// The certificates of a cluster with TLS.
    pub fn certificates(&self) -> Outcome<&Certificates> {
        self.certificates.as_ref().doing("a cluster without TLS")
    }

    /// Waits until all members that run serve linearizable requests.
    pub fn wait_healthy(&mut self) -> Outcome {
        let begun = Instant::now();
        for i in 0..self.members.len() {
            while self.members[i].child.is_some() && !self.members[i].is_healthy() {
                self.members[i].still_runs()?;
                if begun.elapsed() > PATIENCE {
                    let log = fs::read_to_string(&self.members[i].log).unwrap_or_default();
                    return Err(Failure::new(format!("member {i} is not healthy:\n{log}")));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Ends a member without notice.
    pub fn kill(&mut self, i: usize) -> Outcome {
        self.members[i].end();
        Ok(())
    }

    /// Starts a member again that was killed, and waits until it is healthy.
    pub fn restart(&mut self, i: usize) -> Outcome {
        self.start_member(i)?;
        self.wait_healthy()
    }

    /// Starts a member again that cannot be healthy before others are.
    pub fn start_member(&mut self, i: usize) -> Outcome {
        self.members[i].spawn()
    }

    /// Stops a member: its connections stay, and nothing is answered.
    pub fn freeze(&self, i: usize) -> Outcome {
        self.members[i].signal(Signal::SIGSTOP)
    }

    /// Lets a frozen member go on.
    pub fn thaw(&self, i: usize) -> Outcome {
        self.members[i].signal(Signal::SIGCONT)
    }

    /// The member that leads, once there is one.
    pub fn leader(&self) -> Outcome<usize> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            for i in 0..self.members.len() {
                let Ok(status) = self.ask(i, "/v3/maintenance/status", &json!({})) else {
                    continue;
                };
                let leader = &status["leader"];
                if leader.is_string() && *leader == status["header"]["member_id"] {
                    return Ok(i);
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Failure::new("no member leads"))
    }

    /// Hands the leadership over.
    pub fn move_leader(&self, to: usize) -> Outcome {
        let status = self.ask(to, "/v3/maintenance/status", &json!({}))?;
        let target = &status["header"]["member_id"];
        let path = "/v3/maintenance/transfer-leadership";
        self.ask(self.leader()?, path, &json!({ "targetID": target }))?;
        Ok(())
    }

    /// Forgets all states before this revision.
    pub fn compact(&self, revision: u64) -> Outcome {
        let body = json!({ "revision": revision.to_string(), "physical": true });
        self.ask(self.leader()?, "/v3/kv/compaction", &body)?;
        Ok(())
    }

    /// A request to the JSON interface of a member.
    pub fn ask(&self, i: usize, path: &str, body: &Value) -> Outcome<Value> {
        let answer = http(self.members[i].json, "POST", path, &body.to_string())?;
        let (status, text) = answer.split_once("\r\n").unwrap_or((&answer, ""));
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if !status.contains(" 200 ") {
            return Err(Failure::new(format!("{path}: {status}: {body}")));
        }
        Ok(serde_json::from_str(body)?)
    }
}

impl Member {
    fn spawn(&mut self) -> Outcome {
        let child = Cmd::new(etcd_binary())
            .args(&self.arguments)
            .output_to(&self.log)?
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    fn is_healthy(&self) -> bool {
        http(self.health, "GET", "/health", "").is_ok_and(|text| text.contains("\"true\""))
    }

    fn still_runs(&mut self) -> Outcome {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        match child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                Err(Failure::new(format!("etcd ended with {status}:\n{log}")))
            }
        }
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let child = self.child.as_ref().doing("a member that is dead")?;
        kill(Pid::from_raw(child.id().cast_signed()), signal)?;
        Ok(())
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Also ends one that is frozen.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ports that nobody listens on. They are all held until the last one is found, so they differ.
pub(super) fn free_ports(count: usize) -> Outcome<Vec<u16>> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        held.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    held.iter().map(port).collect()
}

/// The whole answer to a request. HTTP/1.0, so that it is not sent in chunks.
fn http(port: u16, method: &str, path: &str, body: &str) -> Outcome<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
