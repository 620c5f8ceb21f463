//! DynamoDB for tests: a real server in this process, and a proxy in front of it that makes what a network makes.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use dynoxide::Database;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

/// What the servers run on, for as long as the tests do.
pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// An item, by attribute.
pub type Attributes = HashMap<String, AttributeValue>;

/// Rows of a table: (cell, window start) to (count, tenths of a knot, reports without SOG).
pub type Sums = BTreeMap<(String, i64), (u64, u64, u64)>;

// ---- the server ---------------------------------------------------------------------------------------------------------

/// A DynamoDB of a test's own, empty and in memory.
pub struct Server {
    port: u16,
    client: Client,
}

impl Server {
    pub fn start() -> Self {
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let database = Database::memory().unwrap();
        RUNTIME.spawn(dynoxide::server::serve_on(listener, database));
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-north-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            // A plain ADD that was made again would be a fault of the test.
            .retry_config(RetryConfig::disabled())
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .build();
        Self { port, client: Client::from_conf(config) }
    }

    /// One with a table of windows.
    pub fn with_table(table: &str) -> Self {
        let server = Self::start();
        server.create(table, ("cell", ScalarAttributeType::S), ("window_start", ScalarAttributeType::N));
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes a table of these keys.
    pub fn create(&self, table: &str, hash: (&str, ScalarAttributeType), range: (&str, ScalarAttributeType)) {
        let mut request = self.client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
        for ((name, kind), key) in [(hash, KeyType::Hash), (range, KeyType::Range)] {
            request = request
                .attribute_definitions(
                    AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap(),
                )
                .key_schema(KeySchemaElement::builder().attribute_name(name).key_type(key).build().unwrap());
        }
        RUNTIME.block_on(request.send()).unwrap();
    }

    /// How a table is billed and whether it is there.
    pub fn billing(&self, table: &str) -> Option<String> {
        let described = RUNTIME.block_on(self.client.describe_table().table_name(table).send()).ok()?.table?;
        Some(described.billing_mode_summary?.billing_mode?.as_str().to_owned())
    }

    /// What the live pipeline does: a plain `ADD`, made again by nobody.
    pub fn live_add(&self, table: &str, cell: &str, window_start: i64, count: u64, tenths: u64) {
        let request = self
            .client
            .update_item()
            .table_name(table)
            .key("cell", AttributeValue::S(cell.to_owned()))
            .key("window_start", AttributeValue::N(window_start.to_string()))
            .update_expression("ADD #count :count, sog_sum :sum")
            .expression_attribute_names("#count", "count")
            .expression_attribute_values(":count", AttributeValue::N(count.to_string()))
            .expression_attribute_values(":sum", AttributeValue::N(format!("{}.{}", tenths / 10, tenths % 10)));
        RUNTIME.block_on(request.send()).unwrap();
    }

    /// Puts an item as it is.
    pub fn put(&self, table: &str, item: Attributes) {
        RUNTIME.block_on(self.client.put_item().table_name(table).set_item(Some(item)).send()).unwrap();
    }

    /// Every item of a table, run records among them.
    pub fn items(&self, table: &str) -> BTreeMap<(String, i64), Attributes> {
        let mut items = BTreeMap::new();
        let mut from_key = None;
        loop {
            let request = self.client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(from_key);
            let page = RUNTIME.block_on(request.send()).unwrap();
            for item in page.items.unwrap_or_default() {
                let key = (item["cell"].as_s().unwrap().clone(), item["window_start"].as_n().unwrap().parse().unwrap());
                assert!(items.insert(key, item).is_none(), "a key came twice");
            }
            from_key = page.last_evaluated_key;
            if from_key.is_none() {
                return items;
            }
        }
    }

    /// The run records of a table, in the order of their keys.
    pub fn records(&self, table: &str) -> Vec<Attributes> {
        self.items(table).into_iter().filter(|((cell, _), _)| cell == "~run").map(|(_, item)| item).collect()
    }

    /// What the windows of a table hold; those that hold nothing any more are left out.
    pub fn sums(&self, table: &str) -> Sums {
        let number =
            |item: &Attributes, name: &str| item.get(name).map_or("0".to_owned(), |n| n.as_n().unwrap().clone());
        let sums = self.items(table).into_iter().filter(|((cell, _), _)| cell != "~run").map(|(key, item)| {
            let whole = |name: &str| number(&item, name).parse().unwrap();
            (key, (whole("count"), tenths(&number(&item, "sog_sum")), whole("sog_missing")))
        });
        sums.filter(|(_, sums)| *sums != (0, 0, 0)).collect()
    }
}

/// Tenths of a decimal.
pub fn tenths(decimal: &str) -> u64 {
    let (whole, tenth) = decimal.split_once('.').unwrap_or((decimal, "0"));
    assert_eq!(tenth.len(), 1, "{decimal} is finer than a tenth, or was a float on its way");
    whole.parse::<u64>().unwrap() * 10 + tenth.parse::<u64>().unwrap()
}

// ---- the proxy ----------------------------------------------------------------------------------------------------------

/// What a proxy does to the writes that pass it (`UpdateItem`); each in per cent, drawn from the seed.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    /// Answered with a throttling error.
    pub throttled: u64,
    /// Answered with a 500.
    pub failed: u64,
    /// Done, and the connection closed instead of an answer.
    pub lost: u64,
    /// Done, and the answer cut off.
    pub cut: u64,
    /// Writes by number, from 1, that are neither done nor answered for as long as a client could wait.
    pub stalled: Vec<u64>,
    /// Further writes than this one get no answer, and every other one of them is done.
    pub halt_after: Option<u64>,
    /// How long every call waits.
    pub latency: Duration,
    /// Writes a second that are not throttled.
    pub rate: Option<u32>,
    /// How long after the first write every one is throttled.
    pub outage: Option<Duration>,
    /// Calls of this operation are refused with this error code.
    pub refused: Option<(&'static str, &'static str)>,
    /// Answers writes without doing them, for benches.
    pub hollow: bool,
    /// So many times a table that was found is still being made.
    pub creating: u64,
    /// Reads and run records meet the same faults as writes.
    pub everything: bool,
}

/// What a proxy has seen and done.
#[derive(Debug, Default)]
pub struct Seen {
    writes: AtomicU64,
    /// Calls by operation.
    pub calls: Mutex<BTreeMap<String, u64>>,
    /// Bodies of reads.
    pub reads: Mutex<Vec<String>>,
    /// Faults by kind.
    pub faults: Mutex<BTreeMap<&'static str, u64>>,
    /// When each hollow write was taken.
    pub taken: Mutex<Vec<Instant>>,
    /// How often a table was found.
    found: AtomicU64,
    /// When the first write came.
    first: Mutex<Option<Instant>>,
    /// When the next write fits the rate.
    next: Mutex<Option<Instant>>,
}

impl Seen {
    /// Writes that came in, faulty ones among them.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub fn calls_of(&self, operation: &str) -> u64 {
        self.calls.lock().unwrap().get(operation).copied().unwrap_or(0)
    }

    pub fn faults_of(&self, kind: &str) -> u64 {
        self.faults.lock().unwrap().get(kind).copied().unwrap_or(0)
    }

    fn note(&self, kind: &'static str) {
        *self.faults.lock().unwrap().entry(kind).or_default() += 1;
    }

    fn is_over_rate(&self, rate: u32) -> bool {
        // A bucket of a tenth of a second's writes.
        let (now, gap) = (Instant::now(), Duration::from_secs(1) / rate);
        let mut next = self.next.lock().unwrap();
        let due = next.unwrap_or(now).max(now);
        if due - now > Duration::from_millis(100) {
            return true;
        }
        *next = Some(due + gap);
        false
    }
}

/// A proxy in front of a server, and what it has seen.
pub struct Front<S> {
    port: u16,
    pub seen: Arc<S>,
    task: tokio::task::JoinHandle<()>,
}

impl<S> Drop for Front<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<S: Default> Front<S> {
    /// Serves each connection by itself.
    pub fn serving<F>(serve: impl Fn(TcpStream, Arc<S>) -> F + Send + 'static) -> Self
    where
        S: Send + Sync + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(S::default());
        let its_seen = Arc::clone(&seen);
        let task = RUNTIME.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let served = serve(client, Arc::clone(&its_seen));
                // A client that went away is nobody's failure.
                tokio::spawn(async move { served.await.unwrap_or_default() });
            }
        });
        Self { port, seen, task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A proxy in front of a DynamoDB.
pub type Proxy = Front<Seen>;

impl Proxy {
    pub fn start(server: &Server, faults: Faults) -> Self {
        let (upstream, faults) = (server.port, Arc::new(faults));
        Self::serving(move |client, seen| {
            let faults = Arc::clone(&faults);
            async move { serve(client, upstream, &faults, &seen).await }
        })
    }
}

/// What becomes of a call.
enum Fate {
    Done,
    Hollow,
    Answered(u16, &'static str),
    Lost,
    Cut,
    Hangs { done: bool },
}

fn fate(operation: &str, faults: &Faults, seen: &Seen) -> Fate {
    if let Some((refused, code)) = faults.refused
        && refused == operation
    {
        return Fate::Answered(400, code);
    }
    let is_write = operation == "UpdateItem";
    if !is_write && !faults.everything {
        return Fate::Done;
    }
    let number = seen.writes.fetch_add(1, Ordering::SeqCst) + 1;
    if faults.halt_after.is_some_and(|last| number > last) {
        return Fate::Hangs { done: number.is_multiple_of(2) };
    }
    if faults.stalled.contains(&number) {
        seen.note("stalled");
        return Fate::Hangs { done: false };
    }
    let began = *seen.first.lock().unwrap().get_or_insert_with(Instant::now);
    if faults.outage.is_some_and(|outage| began.elapsed() < outage) {
        seen.note("throttled");
        return Fate::Answered(400, "ProvisionedThroughputExceededException");
    }
    if is_write && faults.rate.is_some_and(|rate| seen.is_over_rate(rate)) {
        seen.note("throttled");
        return Fate::Answered(400, "ProvisionedThroughputExceededException");
    }
    let mut drawn = mixed(faults.seed.wrapping_mul(1_000_003).wrapping_add(number)) % 100;
    let mut falls = |share: u64| {
        let hit = drawn < share;
        drawn = if hit { u64::MAX } else { drawn.saturating_sub(share) };
        hit
    };
    let (kind, fate) = if falls(faults.throttled) {
        ("throttled", Fate::Answered(400, "ProvisionedThroughputExceededException"))
    } else if falls(faults.failed) {
        ("failed", Fate::Answered(500, "InternalServerError"))
    } else if falls(faults.lost) {
        ("lost", Fate::Lost)
    } else if falls(faults.cut) {
        ("cut", Fate::Cut)
    } else if faults.hollow {
        seen.taken.lock().unwrap().push(Instant::now());
        return Fate::Hollow;
    } else {
        return Fate::Done;
    };
    seen.note(kind);
    fate
}

/// Splitmix64.
pub fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

async fn serve(mut client: TcpStream, upstream: u16, faults: &Faults, seen: &Seen) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = None;
    let mut buffer = Vec::new();
    while let Some(request) = message(&mut client, &mut buffer).await? {
        let head = String::from_utf8_lossy(&request[..head_end(&request).unwrap_or(0)]).into_owned();
        let operation = header(&head, "x-amz-target").and_then(|target| target.split('.').nth(1)).unwrap_or_default();
        *seen.calls.lock().unwrap().entry(operation.to_owned()).or_default() += 1;
        if matches!(operation, "Query" | "Scan" | "CreateTable") {
            seen.reads.lock().unwrap().push(String::from_utf8_lossy(&request[head.len()..]).into_owned());
        }
        if !faults.latency.is_zero() {
            sleep(faults.latency).await;
        }
        let fate = fate(operation, faults, seen);
        let done = !matches!(fate, Fate::Hollow | Fate::Answered(..) | Fate::Hangs { done: false });
        let answer = if done {
            let server = match &mut server {
                Some(server) => server,
                none => {
                    let stream = TcpStream::connect(("127.0.0.1", upstream)).await?;
                    stream.set_nodelay(true)?;
                    none.insert((stream, Vec::new()))
                }
            };
            server.0.write_all(&request).await?;
            message(&mut server.0, &mut server.1).await?.unwrap_or_default()
        } else {
            Vec::new()
        };
        match fate {
            Fate::Done if operation == "DescribeTable" => {
                client.write_all(&still_creating(answer, faults, seen)).await?
            }
            Fate::Done => client.write_all(&answer).await?,
            Fate::Hollow => client.write_all(&response(200, "{}")).await?,
            Fate::Answered(status, code) => {
                let body = format!(
                    r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"the proxy of a test says so"}}"#
                );
                client.write_all(&response(status, &body)).await?;
            }
            Fate::Lost => return Ok(()),
            Fate::Cut => return client.write_all(&answer[..answer.len() * 2 / 3]).await,
            Fate::Hangs { .. } => {
                sleep(Duration::from_secs(30)).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A table that was found, as one that is still being made for the first few times.
fn still_creating(answer: Vec<u8>, faults: &Faults, seen: &Seen) -> Vec<u8> {
    let text = String::from_utf8_lossy(&answer);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let is_found = body.contains(r#""TableStatus":"ACTIVE""#);
    if is_found && seen.found.fetch_add(1, Ordering::SeqCst) < faults.creating {
        return response(200, &body.replace("ACTIVE", "CREATING"));
    }
    answer
}

pub fn response(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} .\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4)
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The next HTTP message of a stream, head and body; `None` where the stream ends before it.
pub async fn message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = head_end(buffer) {
            let head = String::from_utf8_lossy(&buffer[..end]);
            let length: usize = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            if buffer.len() >= end + length {
                let rest = buffer.split_off(end + length);
                return Ok(Some(std::mem::replace(buffer, rest)));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

// ---- the binary ---------------------------------------------------------------------------------------------------------

/// The binary with credentials and nothing else that AWS could find.
pub struct Caller {
    home: TempDir,
}

impl Caller {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    /// The binary with an empty environment and an empty home.
    pub fn without_credentials(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ais-replay"));
        command.env_clear().current_dir(env!("CARGO_MANIFEST_DIR")).env("HOME", self.home.path());
        command.env("AWS_REGION", "eu-north-1").env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    /// The same with credentials, which no server here checks.
    pub fn command(&self, port: u16, arguments: &[&str]) -> Command {
        let mut command = self.without_credentials();
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.args(arguments).args(["--endpoint-url", &format!("http://127.0.0.1:{port}")]);
        command
    }
}
