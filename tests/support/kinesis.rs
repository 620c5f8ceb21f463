//! Kinesis for tests: a real server in this process, and a proxy in front of it that makes what the service and a network
//! make.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::retry::RetryConfig;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use base64::Engine as _;
use ferrokinesis::store::{Store, StoreOptions};
use ferrokinesis::types::StoredRecord;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::aws::{Front, RUNTIME, head_end, header, message, mixed};

// ---- the server ---------------------------------------------------------------------------------------------------------

/// A record as it is put.
#[derive(Clone, Debug)]
pub struct Put {
    /// Which part of the stream's keys it goes to, 0 to 255: the first byte of its hash key.
    pub key: u8,
    /// When it arrives, epoch milliseconds.
    pub arrival_ms: i64,
    pub data: Vec<u8>,
}

/// Where a record went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub shard: String,
    pub sequence: String,
}

/// A Kinesis of a test's own.
pub struct Stream {
    port: u16,
    store: Store,
    client: Client,
    pub name: String,
}

impl Stream {
    /// A server with one stream of so many shards.
    pub fn start(name: &str, shards: i32) -> Self {
        Self::with_subscriptions(name, shards, 300_000, 10_000)
    }

    /// The same; subscriptions last so many milliseconds, and their events hold so many records at most.
    pub fn with_subscriptions(name: &str, shards: i32, milliseconds: u64, records: usize) -> Self {
        let options = StoreOptions {
            subscribe_to_shard_session_ms: milliseconds,
            subscribe_to_shard_event_record_limit: records,
            create_stream_ms: 0,
            delete_stream_ms: 0,
            update_stream_ms: 0,
            shard_limit: 100,
            aws_region: "eu-north-1".to_owned(),
            ..StoreOptions::default()
        };
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _inside = RUNTIME.enter();
        let (app, store) = ferrokinesis::create_app(options);
        RUNTIME.spawn(ferrokinesis::serve_plain_http(listener, app, std::future::pending()));
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-north-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .retry_config(RetryConfig::disabled())
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .build();
        let stream = Self { port, store, client: Client::from_conf(config), name: name.to_owned() };
        RUNTIME.block_on(stream.client.create_stream().stream_name(name).shard_count(shards).send()).unwrap();
        stream.settle();
        stream
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn arn(&self) -> String {
        format!("arn:aws:kinesis:eu-north-1:000000000000:stream/{}", self.name)
    }

    /// Registers a consumer, and gives its ARN.
    pub fn register(&self, consumer: &str) -> String {
        let request = self.client.register_stream_consumer().stream_arn(self.arn()).consumer_name(consumer);
        let arn = RUNTIME.block_on(request.send()).unwrap().consumer.unwrap().consumer_arn;
        for _ in 0..1000 {
            let described = RUNTIME.block_on(self.client.describe_stream_consumer().consumer_arn(&arn).send()).unwrap();
            if described.consumer_description.unwrap().consumer_status().as_str() == "ACTIVE" {
                return arn;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the consumer does not become active");
    }

    /// Waits until a change of shards is done.
    fn settle(&self) {
        for _ in 0..1000 {
            let described =
                RUNTIME.block_on(self.client.describe_stream_summary().stream_name(&self.name).send()).unwrap();
            if described.stream_description_summary.unwrap().stream_status().as_str() == "ACTIVE" {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the stream does not become active");
    }

    /// Splits a shard at the middle of its keys.
    pub fn split(&self, shard: u32, at: u8) {
        let key = u128::from(at) << 120;
        let request = self.client.split_shard().stream_name(&self.name).shard_to_split(shard_id(shard));
        RUNTIME.block_on(request.new_starting_hash_key(key.to_string()).send()).unwrap();
        self.settle();
    }

    /// Merges two neighbours.
    pub fn merge(&self, one: u32, other: u32) {
        let request = self.client.merge_shards().stream_name(&self.name).shard_to_merge(shard_id(one));
        RUNTIME.block_on(request.adjacent_shard_to_merge(shard_id(other)).send()).unwrap();
        self.settle();
    }

    /// Puts records in their order.
    pub fn put(&self, records: &[Put]) -> Vec<Place> {
        RUNTIME.block_on(async {
            let mut places = Vec::new();
            for record in records {
                let hash = u128::from(record.key) << 120;
                let allocated = self.store.allocate_sequence(&self.name, &hash).await.unwrap();
                let stored = StoredRecord {
                    partition_key: format!("key {}", record.key),
                    data: base64::engine::general_purpose::STANDARD.encode(&record.data),
                    approximate_arrival_timestamp: seconds(record.arrival_ms),
                };
                self.store.put_record(&self.name, &allocated.stream_key, &stored).await.unwrap();
                places.push(Place { shard: allocated.shard_id, sequence: allocated.seq_num });
            }
            places
        })
    }

    /// Ids of all shards and of their parents.
    pub fn shards(&self) -> Vec<(String, Vec<String>)> {
        let listed = RUNTIME.block_on(self.client.list_shards().stream_name(&self.name).send()).unwrap();
        let shards = listed.shards.unwrap().into_iter().map(|shard| {
            let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id];
            (shard.shard_id, parents.into_iter().flatten().collect())
        });
        shards.collect()
    }
}

/// Milliseconds as seconds, which are floats on the wire.
#[allow(clippy::float_arithmetic, reason = "that is how the service writes them")]
pub fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

pub fn shard_id(number: u32) -> String {
    format!("shardId-{number:012}")
}

// ---- the proxy ----------------------------------------------------------------------------------------------------------

/// What a proxy makes of the calls that pass it.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    pub seed: u64,
    /// Records of a page at most.
    pub page: Option<u64>,
    /// How long each `GetRecords` of a shard waits.
    pub slow: BTreeMap<String, Duration>,
    /// So many pages of each shard are empty before the first that is not, each nearer to the tip.
    pub empty_first: u64,
    /// Shards whose empty pages say that something lies ahead.
    pub never_at_tip: Vec<String>,
    /// Every so many calls of a shard its iterator has expired.
    pub expired_every: Option<u64>,
    /// Per cent of `GetRecords` that are throttled.
    pub throttled: u64,
    /// Per cent that are answered with a 500.
    pub failed: u64,
    /// Per cent whose answer is lost with the connection.
    pub lost: u64,
    /// Per cent whose answer is cut off.
    pub cut: u64,
    /// Lists of shards come in pages of this.
    pub list_page: Option<usize>,
    /// The first list has no shard that came of another.
    pub hide_children: bool,
    /// What the stream's status is said to be.
    pub status: Option<&'static str>,
    /// When the stream is said to have been created, epoch seconds.
    pub created: Option<i64>,
    /// How long after the first `GetRecords` every one is throttled.
    pub outage: Option<Duration>,
    /// Calls of this operation are refused with this error code.
    pub refused: Option<(&'static str, &'static str)>,
}

/// What a proxy has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Calls by operation.
    pub calls: Mutex<BTreeMap<String, u64>>,
    /// `GetRecords` by shard.
    pub reads: Mutex<BTreeMap<String, u64>>,
    /// Faults by kind.
    pub faults: Mutex<BTreeMap<&'static str, u64>>,
    /// When the first `GetRecords` came.
    first: Mutex<Option<Instant>>,
    /// The shard of each iterator.
    iterators: Mutex<HashMap<String, String>>,
    /// Lists that were cut into pages, by the token of what is left.
    lists: Mutex<HashMap<String, Vec<Value>>>,
}

impl Seen {
    pub fn calls_of(&self, operation: &str) -> u64 {
        self.calls.lock().unwrap().get(operation).copied().unwrap_or(0)
    }

    pub fn faults_of(&self, kind: &str) -> u64 {
        self.faults.lock().unwrap().get(kind).copied().unwrap_or(0)
    }

    fn note(&self, kind: &'static str) {
        *self.faults.lock().unwrap().entry(kind).or_default() += 1;
    }
}

/// A proxy in front of a stream's server.
pub type Proxy = Front<Seen>;

impl Proxy {
    pub fn start(stream: &Stream, weather: Weather) -> Self {
        let (upstream, store, weather) = (stream.port, stream.store.clone(), Arc::new(weather));
        Self::serving(move |client, seen| {
            let (store, weather) = (store.clone(), Arc::clone(&weather));
            async move { serve(client, upstream, &store, &weather, &seen).await }
        })
    }
}

/// What becomes of an answer on its way back.
enum Way {
    Through,
    Lost,
    Cut,
}

async fn serve(mut client: TcpStream, upstream: u16, store: &Store, weather: &Weather, seen: &Seen) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    server.set_nodelay(true)?;
    let (mut buffer, mut server_buffer) = (Vec::new(), Vec::new());
    while let Some(request) = message(&mut client, &mut buffer).await? {
        let head = String::from_utf8_lossy(&request[..head_end(&request).unwrap_or(0)]).into_owned();
        let mut body: Value = serde_json::from_slice(&request[head.len()..]).unwrap_or_default();
        let target = header(&head, "x-amz-target").unwrap_or_default();
        let operation = target.split('.').nth(1).unwrap_or_default().to_owned();
        *seen.calls.lock().unwrap().entry(operation.clone()).or_default() += 1;
        // The server knows streams by their names alone.
        if let Some((_, name)) = body["StreamARN"].as_str().and_then(|arn| arn.rsplit_once('/')) {
            seen.note("by ARN");
            body["StreamName"] = json!(name);
        }
        if operation == "SubscribeToShard" {
            return subscribe(client, store, body, seen).await;
        }
        let (early, way) = before(&operation, &mut body, weather, seen).await;
        let answer = match early {
            Some(answer) => answer,
            None => {
                let text = body.to_string();
                let forwarded: String = head
                    .lines()
                    .filter(|line| !line.is_empty() && !line.to_ascii_lowercase().starts_with("content-length"))
                    .map(|line| format!("{line}\r\n"))
                    .collect();
                let forwarded = format!("{forwarded}content-length: {}\r\n\r\n{text}", text.len());
                server.write_all(forwarded.as_bytes()).await?;
                let answer = message(&mut server, &mut server_buffer).await?.unwrap_or_default();
                after(&operation, &body, answer, weather, seen)
            }
        };
        match way {
            Way::Through => client.write_all(&answer).await?,
            Way::Lost => return Ok(()),
            Way::Cut => return client.write_all(&answer[..answer.len() * 2 / 3]).await,
        }
    }
    Ok(())
}

/// A subscription by the server's own code, past its front door, which lets nothing of a starting position through but its
/// type. It is over when its connection is.
async fn subscribe(mut client: TcpStream, store: &Store, body: Value, seen: &Seen) -> io::Result<()> {
    if body["StartingPosition"]["SequenceNumber"].is_string() {
        seen.note("subscribed behind a record");
    }
    let events = ferrokinesis::actions::subscribe_to_shard::execute_streaming(store, body, "application/json").await;
    let Ok(events) = events else { return client.write_all(&error(400, "ResourceNotFoundException")).await };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\nconnection: close\r\n\r\n";
    client.write_all(head.as_bytes()).await?;
    let mut events = events.into_data_stream();
    while let Some(event) = events.next().await {
        client.write_all(&event.map_err(io::Error::other)?).await?;
    }
    Ok(())
}

/// What is answered without the server, and what becomes of the answer.
async fn before(operation: &str, body: &mut Value, weather: &Weather, seen: &Seen) -> (Option<Vec<u8>>, Way) {
    if let Some((refused, code)) = weather.refused
        && refused == operation
    {
        return (Some(error(400, code)), Way::Through);
    }
    if operation == "ListShards" {
        let token = body["NextToken"].as_str().unwrap_or_default();
        let rest = seen.lists.lock().unwrap().remove(token);
        return (rest.map(|rest| list(rest, weather, seen)), Way::Through);
    }
    if operation != "GetRecords" {
        return (None, Way::Through);
    }
    let iterator = body["ShardIterator"].as_str().unwrap_or_default().to_owned();
    let shard = seen.iterators.lock().unwrap().get(&iterator).cloned().unwrap_or_default();
    let number = {
        let mut reads = seen.reads.lock().unwrap();
        let number = reads.entry(shard.clone()).or_default();
        *number += 1;
        *number
    };
    if let Some(slow) = weather.slow.get(&shard) {
        sleep(*slow).await;
    }
    if let Some(page) = weather.page {
        body["Limit"] = json!(page);
    }
    let mut drawn = mixed(
        weather.seed.wrapping_mul(1_000_003).wrapping_add(number + 7919 * shard.bytes().map(u64::from).sum::<u64>()),
    ) % 100;
    let mut falls = |share: u64| {
        let hit = drawn < share;
        drawn = if hit { u64::MAX } else { drawn.saturating_sub(share) };
        hit
    };
    if weather.expired_every.is_some_and(|every| number.is_multiple_of(every)) {
        seen.note("expired");
        return (Some(error(400, "ExpiredIteratorException")), Way::Through);
    }
    let began = *seen.first.lock().unwrap().get_or_insert_with(Instant::now);
    if weather.outage.is_some_and(|outage| began.elapsed() < outage) || falls(weather.throttled) {
        seen.note("throttled");
        return (Some(error(400, "ProvisionedThroughputExceededException")), Way::Through);
    }
    if falls(weather.failed) {
        seen.note("failed");
        return (Some(error(500, "InternalFailure")), Way::Through);
    }
    if number <= weather.empty_first {
        let behind = 3_600_000 / (number + 1);
        let page = json!({ "Records": [], "NextShardIterator": iterator, "MillisBehindLatest": behind });
        return (Some(answer(200, &page)), Way::Through);
    }
    if falls(weather.lost) {
        seen.note("lost");
        return (None, Way::Lost);
    }
    if falls(weather.cut) {
        seen.note("cut");
        return (None, Way::Cut);
    }
    (None, Way::Through)
}

/// What is made of the server's answer.
fn after(operation: &str, request: &Value, given: Vec<u8>, weather: &Weather, seen: &Seen) -> Vec<u8> {
    let end = head_end(&given).unwrap_or(0);
    if !given.starts_with(b"HTTP/1.1 200") {
        return given;
    }
    let mut body: Value = serde_json::from_slice(&given[end..]).unwrap_or_default();
    match operation {
        "GetShardIterator" => {
            let iterator = body["ShardIterator"].as_str().unwrap_or_default().to_owned();
            let shard = request["ShardId"].as_str().unwrap_or_default().to_owned();
            seen.iterators.lock().unwrap().insert(iterator, shard);
        }
        "GetRecords" => {
            let mut iterators = seen.iterators.lock().unwrap();
            let iterator = request["ShardIterator"].as_str().unwrap_or_default();
            let shard = iterators.get(iterator).cloned().unwrap_or_default();
            if let Some(next) = body["NextShardIterator"].as_str() {
                iterators.insert(next.to_owned(), shard.clone());
            }
            let records = body["Records"].as_array().map_or(0, Vec::len) as u64;
            // The server says 0 of every page, the service only of the last.
            if weather.page.is_some_and(|page| records >= page) {
                body["MillisBehindLatest"] = json!(60_000);
            }
            if records == 0 && weather.never_at_tip.contains(&shard) {
                body["MillisBehindLatest"] = json!(42_000);
            }
        }
        "ListShards" => {
            let mut shards = body["Shards"].as_array().cloned().unwrap_or_default();
            let is_first = seen.calls.lock().unwrap()["ListShards"] == 1;
            if weather.hide_children && is_first {
                shards.retain(|shard| shard["ParentShardId"].is_null());
            }
            return list(shards, weather, seen);
        }
        "DescribeStreamSummary" => {
            let summary = &mut body["StreamDescriptionSummary"];
            if let Some(status) = weather.status {
                summary["StreamStatus"] = json!(status);
            }
            if let Some(created) = weather.created {
                summary["StreamCreationTimestamp"] = json!(created);
            }
        }
        _ => {}
    }
    answer(200, &body)
}

/// A list of shards, or its first page.
fn list(mut shards: Vec<Value>, weather: &Weather, seen: &Seen) -> Vec<u8> {
    let rest = weather.list_page.filter(|page| shards.len() > *page).map(|page| shards.split_off(page));
    let mut body = json!({ "Shards": shards });
    if let Some(rest) = rest {
        let mut lists = seen.lists.lock().unwrap();
        let token = format!("page {} of {}", lists.len(), rest.len());
        body["NextToken"] = json!(token);
        lists.insert(token, rest);
    }
    answer(200, &body)
}

fn error(status: u16, code: &str) -> Vec<u8> {
    answer(status, &json!({ "__type": code, "message": "the proxy of a test says so" }))
}

fn answer(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status} .\r\ncontent-type: application/x-amz-json-1.1\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
