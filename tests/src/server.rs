//! A real `superfluid serve` under test: started, asked, watched, ended.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::binary;

/// Far beyond what any start takes; a test that waits this long has failed.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
    lines: Mutex<Receiver<String>>,
    agent: ureq::Agent,
}

/// Status and JSON body of a plain request.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its body; `Null` when it is not JSON.
    pub body: Value,
}

impl Server {
    /// Starts `superfluid serve ARGS --port 0` and waits until it is ready.
    ///
    /// # Panics
    /// When it ends or is not ready in time, with its log.
    pub fn start(args: &[&str]) -> Server {
        let mut server = Server::spawn(args);
        let line = server.wait_for_line("listening on http://");
        server.address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split([',', ' ']).next())
            .expect("the line names the address")
            .to_owned();
        server
    }

    /// Starts it without waiting.
    ///
    /// # Panics
    /// When the binary is missing.
    pub fn spawn(args: &[&str]) -> Server {
        let mut child = Command::new(binary("superfluid"))
            .arg("serve")
            .args(args)
            .args(["--port", "0"])
            .env_remove("SUPERFLUID_RUNTIMES")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("superfluid starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let (sender, lines) = channel();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                kept.lock().expect("no holder panics").push(line.clone());
                // The test may have stopped listening; the log goes on.
                drop(sender.send(line));
            }
        });
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(WAIT_MAX)).build();
        Server { child, address: String::new(), log, lines: Mutex::new(lines), agent: config.into() }
    }

    /// Waits for a line of its stderr that contains `part`.
    ///
    /// # Panics
    /// When it ends first or takes too long, with its log.
    pub fn wait_for_line(&self, part: &str) -> String {
        let deadline = Instant::now() + WAIT_MAX;
        let lines = self.lines.lock().expect("no holder panics");
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(part) {
                return line;
            }
        }
        panic!("no line with {part:?} in the log:\n{}", self.log());
    }

    /// Everything it wrote to stderr so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no holder panics").join("\n")
    }

    /// `http://host:port` + path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its workers' process ids.
    pub fn workers(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the server lives");
        let children = |task: std::io::Result<std::fs::DirEntry>| {
            let path = task.expect("a readable folder").path().join("children");
            std::fs::read_to_string(path).unwrap_or_default()
        };
        tasks
            .map(children)
            .collect::<String>()
            .split_whitespace()
            .map(|pid| pid.parse().expect("a number"))
            .collect()
    }

    /// GET.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn get(&self, path: &str) -> Answer {
        answer(self.agent.get(self.url(path)).call())
    }

    /// GET as text.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn get_text(&self, path: &str) -> String {
        let mut response = self.agent.get(self.url(path)).call().expect("an answer");
        response.body_mut().read_to_string().expect("a whole body")
    }

    /// POST of a JSON body.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.agent.post(self.url(path)).send_json(body))
    }

    /// POST of a JSON body with headers of its own.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let request = self.agent.post(self.url(path));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        answer(request.send_json(body))
    }

    /// PUT of a JSON body.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        answer(self.agent.put(self.url(path)).send_json(body))
    }

    /// Sends a POST on a connection of its own and does not read the answer. Dropping it is a client that vanishes.
    ///
    /// # Panics
    /// When the server does not take it.
    pub fn send(&self, path: &str, body: &Value) -> TcpStream {
        let mut connection = TcpStream::connect(&self.address).expect("the server listens");
        let (host, body) = (&self.address, body.to_string());
        let length = body.len();
        write!(
            connection,
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("the server reads");
        connection
    }

    /// POST of any body as `application/json`.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn post_raw(&self, path: &str, body: &[u8]) -> Answer {
        answer(self.agent.post(self.url(path)).header("content-type", "application/json").send(body))
    }

    /// POST whose answer is an event stream. Dropping it closes the connection.
    ///
    /// # Panics
    /// When the answer is not 200.
    pub fn stream(&self, path: &str, body: &Value) -> Events {
        self.stream_with(path, &[], body)
    }

    /// As [`Server::stream`], with headers of its own.
    ///
    /// # Panics
    /// As [`Server::stream`].
    pub fn stream_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Events {
        let request = self.agent.post(self.url(path));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.send_json(body).expect("an answer");
        assert_eq!(response.status(), 200, "{}", self.log());
        let reader: Box<dyn std::io::Read + Send> = Box::new(response.into_body().into_reader());
        Events { lines: BufReader::new(reader).lines() }
    }

    /// Sum of a metric over its labels; 0 when it is absent.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get_text("/metrics");
        let value = |line: &str| -> Option<f64> {
            let rest = line.strip_prefix(name)?;
            (rest.starts_with('{') || rest.starts_with(' ')).then(|| rest.rsplit(' ').next()?.parse().ok())?
        };
        text.lines().filter_map(value).sum()
    }

    /// Polls until a metric has a value.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_for_metric(&self, name: &str, expect: f64) {
        let deadline = Instant::now() + WAIT_MAX;
        while self.metric(name) != expect {
            assert!(Instant::now() < deadline, "{name} is {} and never became {expect}", self.metric(name));
        }
    }

    /// State and reason of the only model.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn model_state(&self) -> (String, String) {
        let card = &self.get("/v1/models").body["data"][0];
        let text = |field: &str| card[field].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    }

    /// Sends SIGTERM.
    ///
    /// # Panics
    /// When it is gone already.
    pub fn terminate(&self) {
        signal(self.pid(), rustix::process::Signal::TERM);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("a child can be waited for")
    }
}

/// Sends a signal to a process.
///
/// # Panics
/// When there is no such process.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the process lives");
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn answer(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut response = response.expect("an answer");
    let status = response.status().as_u16();
    let text = response.body_mut().read_to_string().expect("a whole body");
    Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::Null) }
}

/// The events of a stream up to `[DONE]`.
pub struct Events {
    lines: std::io::Lines<BufReader<Box<dyn std::io::Read + Send>>>,
}

impl Iterator for Events {
    type Item = Value;

    /// # Panics
    /// When the stream breaks or an event is not JSON.
    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.lines.next().expect("a stream ends with [DONE]").expect("an unbroken stream");
            match line.strip_prefix("data: ") {
                Some("[DONE]") => return None,
                Some(data) => return Some(serde_json::from_str(data).expect("an event is JSON")),
                None => {}
            }
        }
    }
}
