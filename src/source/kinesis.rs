//! A Kinesis stream: its shards, each of which is one partition, and their pages.
//!
//! Every shard is read by a task of its own, a page ahead of whoever decodes. A shard ends where the service says that it is
//! closed and read, or at the tip of the stream. Pages are asked for, within the limits of a shard: five calls and 2 MiB a
//! second, of which [`ReadShare`] is taken, since live consumers read the same shards
//! (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>). Or they are pushed to a registered
//! consumer, which has 2 MiB a second of its own, in subscriptions of five minutes
//! (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>).

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::timeout::TimeoutConfig;
use aws_sdk_kinesis::config::{Config, StalledStreamProtectionConfig};
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::operation::get_shard_iterator::{GetShardIteratorError, GetShardIteratorOutput};
use aws_sdk_kinesis::operation::subscribe_to_shard::SubscribeToShardOutput;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::{
    ConsumerStatus, Shard, ShardFilter, ShardFilterType, ShardIteratorType, StartingPosition, StreamDescriptionSummary,
    StreamStatus, SubscribeToShardEventStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::failed_batch::FailedBatch;
use super::records::{self, Page, Pages, RecordQueue, Unpacked};
use super::{Input, SourceError};
use crate::aws::AwsOptions;
use crate::aws::connection::{self, Connection, Service};
use crate::aws::trouble::{Failure, PATIENCE, Patience, Trouble, backoff, deepest, patiently};
use crate::aws::waits::{Spell, Waits};
use crate::decode::Record;
use crate::time::{NANOS, Timestamp, machine_clock};

/// How long a page may take: it may be 10 MiB.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// The service.
const SERVICE: Service = Service {
    name: "Kinesis",
    endpoint_variable: "AWS_ENDPOINT_URL_KINESIS",
    attempt_timeout: Duration::from_secs(20),
    signs: true,
};

/// Records of one call at most, as the service has it.
const PAGE_RECORDS: i32 = 10_000;

/// Records of a page at least: five such a second are as many as a shard takes in.
const LEAST_PAGE_RECORDS: i32 = 1_000;

/// Records of the pages that all shards may keep.
const RECORDS_AHEAD: i32 = 160_000;

/// Calls a second that a shard answers.
const SHARD_CALLS: u64 = 5;

/// Bytes a second that a shard gives.
const SHARD_BYTES: u64 = 2 << 20;

/// By how much a record may arrive before the event time that it carries: a clock's skew, in seconds. Reading begins so long
/// before the range, and a report further ahead of its arrival is rejected.
pub const SKEW_SECONDS: i64 = 600;

/// How many pages without a record, and without coming nearer to the tip, make a shard idle. The service may go on saying
/// that something lies ahead.
const IDLE_PAGES: u32 = 25;

/// How often in a row an iterator may expire before it is used.
const EXPIRED_TRIES: u32 = 10;

/// How long a subscription may be silent. The service sends an event every few seconds, also of an idle shard.
const SILENCE: Duration = Duration::from_secs(30);

/// Pages that wait for whoever decodes, besides the one that is on its way.
const PAGES_AHEAD: usize = 1;

/// Which share of a shard's limits a run takes, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadShare(NonZeroU32);

impl ReadShare {
    /// All of it.
    pub const WHOLE: Self = Self(NonZeroU32::new(1000).unwrap());

    fn thousandths(self) -> u64 {
        u64::from(self.0.get())
    }

    /// How long a call must be after one that gave so many bytes.
    fn gap(self, bytes: u64) -> Duration {
        let calls = 1_000_000_000 / SHARD_CALLS;
        let bytes = bytes.saturating_mul(1_000_000_000) / SHARD_BYTES;
        Duration::from_nanos(calls.max(bytes).saturating_mul(1000) / self.thousandths())
    }
}

impl std::str::FromStr for ReadShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' is no share: more than 0 and at most 1, with three decimals at most");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole)
            || !digits(decimals)
            || decimals.len() > 3
            || whole.len() + decimals.len() == 0
            || whole.len() > 1
        {
            return Err(fail());
        }
        let thousandths = format!("{whole}{decimals:0<3}").parse().map_err(|_| fail())?;
        NonZeroU32::new(thousandths).filter(|share| share.get() <= 1000).map(Self).ok_or_else(fail)
    }
}

impl std::fmt::Display for ReadShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.get() / 1000, self.0.get() % 1000)
    }
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    /// As the command line has it: a name, or an ARN.
    given: String,
    name: String,
    arn: String,
    region: String,
    endpoint: String,
    waits: Waits,
    retention: Duration,
    created: Option<Timestamp>,
    share: ReadShare,
    /// ARN of the registered consumer to which pages are pushed; without one they are asked for.
    consumer: Option<String>,
    /// The shards that the run knows.
    known: Mutex<BTreeSet<String>>,
    /// What is left of each shard's limits, whoever reads it.
    budgets: Mutex<HashMap<Arc<str>, Arc<Budget>>>,
}

impl Stream {
    /// Finds a stream by its name or its ARN, and the registered consumer by which it is to be read, if one is named.
    ///
    /// # Errors
    ///
    /// Where there is none, or it cannot be read now.
    pub fn open(
        name: &str,
        aws: &AwsOptions,
        share: ReadShare,
        consumer: Option<&str>,
    ) -> Result<Arc<Self>, SourceError> {
        let shown = format!("kinesis:{name}");
        let fail = |error: String| SourceError::Service { name: shown.clone(), error };
        let region = region_of(name);
        if let (Some(own), Some(given)) = (region, &aws.region)
            && own != given
        {
            return Err(fail(format!("its ARN is of region {own}, and --region says {given}: leave --region out")));
        }
        let aws = AwsOptions { region: region.map(str::to_owned).or_else(|| aws.region.clone()), ..aws.clone() };
        let Connection { config, region, endpoint, waits } = Connection::open(SERVICE, &aws, region).map_err(fail)?;
        let mut stream = Self {
            client: Client::new(&config),
            given: name.to_owned(),
            name: name.to_owned(),
            arn: String::new(),
            region,
            endpoint,
            waits,
            retention: Duration::ZERO,
            created: None,
            share,
            consumer: None,
            known: Mutex::default(),
            budgets: Mutex::default(),
        };
        let summary = block_on(stream.describe())??;
        match summary.stream_status() {
            StreamStatus::Creating => {
                return Err(fail("it is still being created, and holds nothing yet".to_owned()));
            }
            StreamStatus::Deleting => return Err(fail("it is being deleted".to_owned())),
            _ => {}
        }
        summary.stream_name().clone_into(&mut stream.name);
        summary.stream_arn().clone_into(&mut stream.arn);
        let hours = u64::try_from(summary.retention_period_hours()).unwrap_or_default();
        stream.retention = Duration::from_secs(hours.saturating_mul(3600));
        stream.created = timestamp(summary.stream_creation_timestamp());
        if let Some(consumer) = consumer {
            stream.consumer = Some(block_on(stream.find_consumer(consumer))??);
        }
        Ok(Arc::new(stream))
    }

    /// What people call it.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("kinesis:{}", self.name)
    }

    /// Its ARN.
    #[must_use]
    pub fn arn(&self) -> &str {
        &self.arn
    }

    /// For how many hours it keeps a record.
    #[must_use]
    pub fn retention_hours(&self) -> u64 {
        self.retention.as_secs() / 3600
    }

    /// When the oldest record that it still holds at `now` may have arrived; `None` where it holds all that ever arrived.
    #[must_use]
    pub fn oldest(&self, now: Timestamp) -> Option<Timestamp> {
        let kept = i64::try_from(self.retention.as_nanos()).unwrap_or(i64::MAX);
        let oldest = Timestamp::from_nanos(now.nanos().saturating_sub(kept));
        self.created.is_none_or(|created| created < oldest).then_some(oldest)
    }

    /// Every shard that holds records from an instant on, by their names.
    ///
    /// # Errors
    ///
    /// Where they cannot be listed.
    pub fn shards(self: &Arc<Self>, from: Timestamp) -> Result<Vec<Input>, SourceError> {
        let filter = ShardFilter::builder().r#type(ShardFilterType::FromTimestamp).timestamp(date_time(from)).build();
        let filter = filter.map_err(|error| self.failure(error.to_string()))?;
        let mut shards = block_on(self.list(Some(filter)))??;
        shards.sort_by(|one, other| one.shard_id().cmp(other.shard_id()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(shards.iter().map(|shard| shard.shard_id().to_owned()));
        Ok(shards.iter().map(|shard| self.input(shard, Stretch::From(from))).collect())
    }

    /// The records of a failed batch.
    #[must_use]
    pub fn batch(self: &Arc<Self>, batch: &FailedBatch) -> ShardInput {
        ShardInput {
            stream: Arc::clone(self),
            shard: batch.shard.as_str().into(),
            parents: Vec::new(),
            is_closed: false,
            stretch: Stretch::Batch {
                name: batch.name.clone(),
                first: batch.first.as_str().into(),
                last: batch.last.as_str().into(),
            },
        }
    }

    fn input(self: &Arc<Self>, shard: &Shard, stretch: Stretch) -> Input {
        let parents = [shard.parent_shard_id(), shard.adjacent_parent_shard_id()];
        Input::Shard(ShardInput {
            stream: Arc::clone(self),
            shard: shard.shard_id().into(),
            parents: parents.into_iter().flatten().map(Into::into).collect(),
            is_closed: shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number().is_some()),
            stretch,
        })
    }

    /// The shards that came of one that has ended, and of which the run does not know yet.
    fn children(self: &Arc<Self>, parent: &str, stretch: &Stretch) -> Result<Vec<Input>, SourceError> {
        let is_child =
            |shard: &Shard| shard.parent_shard_id() == Some(parent) || shard.adjacent_parent_shard_id() == Some(parent);
        let mut shards = block_on(self.list(None))??;
        shards.retain(is_child);
        shards.sort_by(|one, other| one.shard_id().cmp(other.shard_id()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        shards.retain(|shard| known.insert(shard.shard_id().to_owned()));
        Ok(shards.iter().map(|shard| self.input(shard, stretch.clone())).collect())
    }

    /// The budget of a shard, which all who read it share.
    fn budget(&self, shard: &Arc<str>) -> Arc<Budget> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Budget { share: self.share, next: tokio::sync::Mutex::new(None) });
        Arc::clone(budgets.entry(Arc::clone(shard)).or_insert_with(fresh))
    }

    /// Records of a page at most: fewer where many shards keep one each.
    fn page_records(&self) -> i32 {
        let shards = self.known.lock().unwrap_or_else(PoisonError::into_inner).len();
        let share = RECORDS_AHEAD / i32::try_from(shards.max(1)).unwrap_or(i32::MAX);
        share.clamp(LEAST_PAGE_RECORDS, PAGE_RECORDS)
    }

    fn failure(&self, error: String) -> SourceError {
        SourceError::Service { name: format!("kinesis:{}", self.given), error }
    }

    /// What a failed call means, in a sentence with its remedy.
    fn explain<E>(&self, name: &str, action: &str, error: &SdkError<E>) -> SourceError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let error = match Failure::of(action, &self.endpoint, error) {
            Failure::Missing => format!(
                "there is no such stream or shard in region {} ({}); --region names another region",
                self.region,
                error.message().unwrap_or("no further message")
            ),
            Failure::Denied(error) | Failure::Call(error) => error,
        };
        SourceError::Service { name: name.to_owned(), error }
    }

    fn arn_if_given(&self) -> Option<String> {
        self.given.starts_with("arn:").then(|| self.given.clone())
    }

    fn name_if_given(&self) -> Option<String> {
        (!self.given.starts_with("arn:")).then(|| self.given.clone())
    }

    async fn describe(&self) -> Result<StreamDescriptionSummary, SourceError> {
        let call = || {
            let request = self.client.describe_stream_summary();
            request.set_stream_name(self.name_if_given()).set_stream_arn(self.arn_if_given()).send()
        };
        let shown = format!("kinesis:{}", self.given);
        let answer = patiently(&self.waits, call).await;
        let answer = answer.map_err(|error| self.explain(&shown, "kinesis:DescribeStreamSummary", &error))?;
        answer.stream_description_summary.ok_or_else(|| self.failure("the service does not describe it".to_owned()))
    }

    /// The ARN of a registered consumer that can be used.
    async fn find_consumer(&self, consumer: &str) -> Result<String, SourceError> {
        let shown = format!("{}, consumer {consumer}", self.shown());
        let fail = |error: &str| SourceError::Service { name: shown.clone(), error: error.to_owned() };
        let call = || {
            let request = self.client.describe_stream_consumer();
            if consumer.starts_with("arn:") {
                request.consumer_arn(consumer)
            } else {
                request.stream_arn(&self.arn).consumer_name(consumer)
            }
            .send()
        };
        let described = patiently(&self.waits, call).await.map_err(|error| match error.code() {
            Some("ResourceNotFoundException") => fail(
                "there is no such consumer: aws kinesis register-stream-consumer makes one, and AWS charges for it while it is \
                 there",
            ),
            _ => self.explain(&shown, "kinesis:DescribeStreamConsumer", &error),
        })?;
        let described = described.consumer_description.ok_or_else(|| fail("the service does not describe it"))?;
        if described.stream_arn() != self.arn && !described.stream_arn().is_empty() {
            return Err(fail(&format!("it is a consumer of {}", described.stream_arn())));
        }
        match described.consumer_status() {
            ConsumerStatus::Active => Ok(described.consumer_arn),
            status => Err(fail(&format!("it is {}, and can be read by once it is ACTIVE", status.as_str()))),
        }
    }

    /// All pages of a list of shards.
    async fn list(&self, filter: Option<ShardFilter>) -> Result<Vec<Shard>, SourceError> {
        let mut shards = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let call = || {
                let request = self.client.list_shards();
                // A token stands for the stream and the filter too.
                match &token {
                    Some(token) => request.next_token(token),
                    None => request
                        .set_stream_name(self.name_if_given())
                        .set_stream_arn(self.arn_if_given())
                        .set_shard_filter(filter.clone()),
                }
                .send()
            };
            let answer = patiently(&self.waits, call).await;
            let answer = answer.map_err(|error| self.explain(&self.shown(), "kinesis:ListShards", &error))?;
            shards.extend(answer.shards.unwrap_or_default());
            token = answer.next_token;
            if token.is_none() {
                return Ok(shards);
            }
        }
    }
}

/// The region in a stream's ARN: `arn:aws:kinesis:REGION:ACCOUNT:stream/NAME`.
fn region_of(name: &str) -> Option<&str> {
    name.strip_prefix("arn:")?.split(':').nth(2).filter(|region| !region.is_empty())
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, SourceError> {
    let runtime = connection::runtime();
    let runtime =
        runtime.map_err(|error| SourceError::Service { name: "kinesis".to_owned(), error: error.to_string() })?;
    Ok(runtime.block_on(future))
}

fn timestamp(time: &DateTime) -> Option<Timestamp> {
    i64::try_from(time.as_nanos()).ok().map(Timestamp::from_nanos)
}

/// An instant as the service takes it: to the millisecond, never later.
fn date_time(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.nanos().div_euclid(NANOS / 1000))
}

/// What of a shard is read.
#[derive(Clone, Debug)]
enum Stretch {
    /// What arrived from an instant on.
    From(Timestamp),
    /// The records of a failed batch, both ends included.
    Batch {
        /// The document that names it.
        name: String,
        /// Sequence numbers.
        first: Arc<str>,
        last: Arc<str>,
    },
}

/// A shard, or a stretch of one.
#[derive(Clone, Debug)]
pub struct ShardInput {
    stream: Arc<Stream>,
    shard: Arc<str>,
    parents: Vec<Arc<str>>,
    /// Whether nothing more will come into it.
    is_closed: bool,
    stretch: Stretch,
}

impl ShardInput {
    /// What people call it.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.stretch {
            Stretch::From(_) => format!("{}/{}", self.stream.shown(), self.shard),
            Stretch::Batch { name, .. } => format!("{name}, {}/{}", self.stream.shown(), self.shard),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shard
    }

    /// The shards that it came from.
    #[must_use]
    pub fn parents(&self) -> &[Arc<str>] {
        &self.parents
    }

    /// Whether the first record of a batch is still there, so that the batch is whole.
    ///
    /// # Errors
    ///
    /// Where the stream cannot be asked.
    pub fn still_holds_batch(&self) -> Result<bool, SourceError> {
        if matches!(self.stretch, Stretch::From(_)) {
            return Ok(true);
        }
        // The first page tells, whatever its records hold.
        match self.start(1)?.next_page() {
            Err(SourceError::Gone { .. }) => Ok(false),
            page => page.map(|_| true),
        }
    }

    /// Whether it is all of a shard from an instant on, rather than a stretch of one.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.stretch, Stretch::From(_))
    }

    /// Begins to read it.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread to read on.
    pub fn open(&self) -> Result<RecordQueue, SourceError> {
        let pages = self.start(self.stream.page_records())?;
        Ok(RecordQueue::new(Box::new(pages)))
    }

    /// Begins to read it, in pages of so many records at most.
    fn start(&self, page_records: i32) -> Result<ShardPages, SourceError> {
        let fail = |error: std::io::Error| SourceError::Service { name: self.name(), error: error.to_string() };
        let runtime = connection::runtime().map_err(fail)?;
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let reader = ShardReader {
            input: self.clone(),
            name: self.name(),
            shard: format!("{}/{}", self.stream.arn, self.shard).into(),
            page_records,
            last: None,
            reached: None,
            has_succeeded: false,
            budget: self.stream.budget(&self.shard),
        };
        let task = runtime.spawn(reader.run(sender));
        Ok(ShardPages { input: self.clone(), pages, task, ended: None })
    }
}

/// The pages of a shard as its task sends them.
struct ShardPages {
    input: ShardInput,
    pages: mpsc::Receiver<Result<Sent, SourceError>>,
    task: JoinHandle<()>,
    ended: Option<Ended>,
}

enum Sent {
    Page(Page),
    Ended(Ended),
}

type Sender = mpsc::Sender<Result<Sent, SourceError>>;

/// Where a shard ended.
struct Ended {
    /// At its own end rather than at the tip.
    is_closed: bool,
    /// Where the stretch was to end, rather than where the shard did.
    is_wanted_end: bool,
    warning: Option<String>,
}

impl Ended {
    fn closed() -> Self {
        Self { is_closed: true, is_wanted_end: false, warning: None }
    }
}

/// What a page says of its place in the shard.
struct Reached {
    /// The shard is closed, and this is its end.
    is_closed: bool,
    /// Milliseconds to the tip.
    millis_behind: Option<i64>,
}

impl Drop for ShardPages {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pages for ShardPages {
    fn next_page(&mut self) -> Result<Option<Page>, SourceError> {
        match self.pages.blocking_recv() {
            Some(Ok(Sent::Page(page))) => Ok(Some(page)),
            Some(Ok(Sent::Ended(ended))) => {
                self.ended = Some(ended);
                Ok(None)
            }
            Some(Err(error)) => Err(error),
            // A task that ended without a word has lost records.
            None => Err(SourceError::Service { name: self.input.name(), error: "its reading broke off".to_owned() }),
        }
    }

    fn successors(&self) -> Result<Vec<Input>, SourceError> {
        match (&self.input.stretch, &self.ended) {
            (Stretch::From(_), Some(Ended { is_closed: true, .. })) => {
                self.input.stream.children(&self.input.shard, &self.input.stretch)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn may_repeat(&self) -> bool {
        matches!(self.input.stretch, Stretch::Batch { .. })
    }

    fn warning(&self) -> Option<String> {
        self.ended.as_ref()?.warning.clone()
    }
}

/// Reads one shard.
struct ShardReader {
    input: ShardInput,
    name: String,
    /// Stream and shard, as records name it.
    shard: Arc<str>,
    /// Records of a page at most.
    page_records: i32,
    /// Sequence number of the last record that was taken.
    last: Option<Arc<str>>,
    /// Up to when the shard has been read, by arrival.
    reached: Option<Timestamp>,
    /// Whether any call was answered.
    has_succeeded: bool,
    budget: Arc<Budget>,
}

impl ShardReader {
    async fn run(mut self, sender: Sender) {
        let ended = self.read(&sender).await.map(Sent::Ended);
        // Whoever went away wants to hear of no end.
        let _ = sender.send(ended).await;
    }

    async fn read(&mut self, sender: &Sender) -> Result<Ended, SourceError> {
        let ended = match self.input.stream.consumer.clone() {
            None => self.ask(sender).await?,
            Some(consumer) => self.subscribe(sender, &consumer).await?,
        };
        match &self.input.stretch {
            Stretch::Batch { .. } if !ended.is_wanted_end => Err(self.gone()),
            _ => Ok(ended),
        }
    }

    /// Asks for page after page.
    async fn ask(&mut self, sender: &Sender) -> Result<Ended, SourceError> {
        let mut iterator = self.iterator().await?;
        let mut expired = 0;
        let mut stillness = Stillness::default();
        loop {
            let Some(answer) = self.page(&iterator).await? else {
                expired += 1;
                if expired > EXPIRED_TRIES {
                    return Err(self.failure("its iterators expire before they can be used"));
                }
                iterator = self.iterator().await?;
                continue;
            };
            expired = 0;
            let GetRecordsOutput { records, next_shard_iterator, millis_behind_latest, .. } = answer;
            let place = Reached { is_closed: next_shard_iterator.is_none(), millis_behind: millis_behind_latest };
            match (self.take(sender, records, place, &mut stillness).await?, next_shard_iterator) {
                (Some(ended), _) => return Ok(ended),
                (None, Some(next)) => iterator = next,
                // It is closed, so it has ended.
                (None, None) => return Ok(Ended::closed()),
            }
        }
    }

    /// Has pages pushed, in one subscription after the other.
    async fn subscribe(&mut self, sender: &Sender, consumer: &str) -> Result<Ended, SourceError> {
        let mut stillness = Stillness::default();
        let mut continuation: Option<String> = None;
        // Where a shard is closed its last events name what came of it.
        let mut has_children = false;
        let (mut last_event, mut fruitless) = (Instant::now(), 0);
        let spell = Spell::default();
        loop {
            let mut subscription = match self.subscription(consumer, continuation.as_deref(), has_children).await? {
                Some(subscription) => subscription,
                None => return Ok(Ended::closed()),
            };
            loop {
                // A subscription that ends, breaks or falls silent is followed by another, from where it was.
                let event = match timeout(SILENCE, subscription.event_stream.recv()).await {
                    Ok(Ok(Some(SubscribeToShardEventStream::SubscribeToShardEvent(event)))) => event,
                    Ok(Ok(Some(_))) => continue,
                    over => {
                        let why = match over {
                            Ok(Err(error)) => deepest(&error),
                            _ => "without a word".to_owned(),
                        };
                        let why = format!("its subscriptions end before they give anything ({why})");
                        let waited = last_event.elapsed();
                        if waited > PATIENCE {
                            return Err(self.failure(&why));
                        }
                        self.input.stream.waits.note(&spell, waited, PATIENCE, || format!("{}: {why}", self.name));
                        sleep(backoff(fruitless)).await;
                        fruitless += 1;
                        break;
                    }
                };
                fruitless = 0;
                has_children = !event.child_shards().is_empty();
                let place = Reached {
                    is_closed: has_children && event.records.is_empty(),
                    millis_behind: Some(event.millis_behind_latest),
                };
                if !event.continuation_sequence_number.is_empty() {
                    continuation = Some(event.continuation_sequence_number);
                }
                if let Some(ended) = self.take(sender, event.records, place, &mut stillness).await? {
                    return Ok(ended);
                }
                // Whoever decodes may have kept this waiting for long.
                last_event = Instant::now();
                spell.over();
            }
        }
    }

    /// A subscription from behind the last record; `None` where a closed shard has no more of it.
    async fn subscription(
        &mut self,
        consumer: &str,
        continuation: Option<&str>,
        has_children: bool,
    ) -> Result<Option<SubscribeToShardOutput>, SourceError> {
        let at = StartingPosition::builder();
        let position = match (&self.last, continuation, &self.input.stretch) {
            (Some(last), _, _) => at.r#type(ShardIteratorType::AfterSequenceNumber).sequence_number(&**last),
            (None, Some(next), _) => at.r#type(ShardIteratorType::AtSequenceNumber).sequence_number(next),
            (None, None, Stretch::From(from)) => at.r#type(ShardIteratorType::AtTimestamp).timestamp(date_time(*from)),
            (None, None, Stretch::Batch { first, .. }) => {
                at.r#type(ShardIteratorType::AtSequenceNumber).sequence_number(&**first)
            }
        };
        let position = position.build().map_err(|error| self.failure(&error.to_string()))?;
        let stream = Arc::clone(&self.input.stream);
        let mut patience = Patience::new(&stream.waits);
        loop {
            let request = stream.client.subscribe_to_shard().consumer_arn(consumer);
            let request = request.shard_id(&*self.input.shard).starting_position(position.clone()).customize();
            // An idle shard is silent for seconds, and that is no stall.
            let own = Config::builder().stalled_stream_protection(StalledStreamProtectionConfig::disabled());
            let error = match request.config_override(own).send().await {
                Ok(subscription) => {
                    self.has_succeeded = true;
                    return Ok(Some(subscription));
                }
                Err(error) => error,
            };
            let is_batch = matches!(self.input.stretch, Stretch::Batch { .. });
            let trouble = match error.code() {
                Some("InvalidArgumentException" | "ResourceNotFoundException") if has_children => return Ok(None),
                Some("InvalidArgumentException" | "ResourceNotFoundException") if is_batch && self.last.is_none() => {
                    return Err(self.gone());
                }
                // The last subscription of the same consumer is not over yet.
                Some("ResourceInUseException") => Trouble::Throttled,
                _ => Trouble::of(&error),
            };
            if !patience.bears(trouble, self.has_succeeded, &error).await {
                return Err(stream.explain(&self.name, "kinesis:SubscribeToShard", &error));
            }
        }
    }

    /// Sends a page's records on. Tells whether the shard has ended with them.
    async fn take(
        &mut self,
        sender: &Sender,
        records: Vec<aws_sdk_kinesis::types::Record>,
        reached: Reached,
        stillness: &mut Stillness,
    ) -> Result<Option<Ended>, SourceError> {
        let given = records.len();
        let (page, is_behind_batch) = self.unpack(records)?;
        if let Some(millis) = reached.millis_behind {
            self.reached = Some(Timestamp::from_nanos(
                machine_clock().nanos().saturating_sub(millis.saturating_mul(NANOS / 1000)),
            ));
        }
        let wanted = Ended { is_closed: false, is_wanted_end: true, warning: None };
        // Whoever went away wants no more.
        if !page.records.is_empty() && sender.send(Ok(Sent::Page(page))).await.is_err() || is_behind_batch {
            return Ok(Some(wanted));
        }
        let Reached { is_closed, millis_behind } = reached;
        let at_tip = millis_behind == Some(0) && given < self.page_records.unsigned_abs() as usize;
        let ended = if is_closed {
            Some(Ended::closed())
        } else if at_tip && !self.input.is_closed {
            Some(Ended { is_wanted_end: false, ..wanted })
        } else if stillness.is_idle(given, millis_behind) && !self.input.is_closed {
            let warning = millis_behind.filter(|millis| *millis > 0).map(|millis| {
                format!(
                    "{}: {IDLE_PAGES} pages in a row held no record, though the stream says that its tip is {} s ahead; it was \
                     taken for idle",
                    self.name,
                    millis / 1000
                )
            });
            Some(Ended { is_closed: false, is_wanted_end: false, warning })
        } else {
            None
        };
        Ok(ended)
    }

    /// An iterator behind the last record, or at the beginning.
    async fn iterator(&mut self) -> Result<String, SourceError> {
        let stream = Arc::clone(&self.input.stream);
        let mut patience = Patience::new(&stream.waits);
        loop {
            let error = match self.ask_for_iterator().await {
                Ok(answer) => {
                    self.has_succeeded = true;
                    return answer.shard_iterator.ok_or_else(|| self.failure("the service gave no iterator"));
                }
                Err(error) => error,
            };
            let is_batch = matches!(self.input.stretch, Stretch::Batch { .. });
            match error.code() {
                // The stream knows the number or the shard no more.
                Some("InvalidArgumentException" | "ResourceNotFoundException") if is_batch => return Err(self.gone()),
                _ if patience.bears(Trouble::of(&error), self.has_succeeded, &error).await => {}
                _ => return Err(stream.explain(&self.name, "kinesis:GetShardIterator", &error)),
            }
        }
    }

    async fn ask_for_iterator(&self) -> Result<GetShardIteratorOutput, SdkError<GetShardIteratorError>> {
        let stream = &self.input.stream;
        let request = {
            let request = stream
                .client
                .get_shard_iterator()
                .set_stream_name(stream.name_if_given())
                .set_stream_arn(stream.arn_if_given())
                .shard_id(&*self.input.shard);
            match (&self.last, &self.input.stretch) {
                (Some(last), _) => request
                    .shard_iterator_type(ShardIteratorType::AfterSequenceNumber)
                    .starting_sequence_number(&**last),
                (None, Stretch::From(from)) => {
                    request.shard_iterator_type(ShardIteratorType::AtTimestamp).timestamp(date_time(*from))
                }
                (None, Stretch::Batch { first, .. }) => {
                    request.shard_iterator_type(ShardIteratorType::AtSequenceNumber).starting_sequence_number(&**first)
                }
            }
        };
        request.send().await
    }

    /// One page, however often it has to be asked for; `None` where the iterator has expired.
    async fn page(&mut self, iterator: &str) -> Result<Option<GetRecordsOutput>, SourceError> {
        let stream = Arc::clone(&self.input.stream);
        let mut patience = Patience::new(&stream.waits);
        loop {
            self.check_horizon()?;
            let budget = Arc::clone(&self.budget);
            let turn = budget.turn().await;
            let request = stream.client.get_records().shard_iterator(iterator).limit(self.page_records).customize();
            let patient = TimeoutConfig::builder().operation_attempt_timeout(PAGE_TIMEOUT).build();
            let answer = request.config_override(Config::builder().timeout_config(patient)).send().await;
            let error = match answer {
                Ok(answer) => {
                    turn.gave(answer.records().iter().map(bytes_of).sum());
                    self.has_succeeded = true;
                    return Ok(Some(answer));
                }
                Err(error) => error,
            };
            turn.gave(0);
            if error.code() == Some("ExpiredIteratorException") {
                return Ok(None);
            }
            if !patience.bears(Trouble::of(&error), self.has_succeeded, &error).await {
                return Err(stream.explain(&self.name, "kinesis:GetRecords", &error));
            }
        }
    }

    /// What the stream drops before it is read would be lost without a word: it goes on at the oldest that is left.
    fn check_horizon(&self) -> Result<(), SourceError> {
        let (Some(reached), Some(oldest)) = (self.reached, self.input.stream.oldest(machine_clock())) else {
            return Ok(());
        };
        if reached < oldest {
            return Err(self.failure(
                "the stream drops its records before they can be read: give a later --since, or a larger --read-share",
            ));
        }
        Ok(())
    }

    /// The records of a page that belong to the stretch; and whether it ends with them.
    fn unpack(&mut self, given: Vec<aws_sdk_kinesis::types::Record>) -> Result<(Page, bool), SourceError> {
        let mut page = Page::default();
        for record in given {
            let aws_sdk_kinesis::types::Record {
                sequence_number,
                approximate_arrival_timestamp,
                data,
                partition_key,
                ..
            } = record;
            let data = data.into_inner();
            page.stored_bytes += (data.len() + partition_key.len()) as u64;
            let arrival = approximate_arrival_timestamp.as_ref().and_then(timestamp);
            if let Some(last) = &self.last
                && in_order(last, &sequence_number) != Ordering::Less
            {
                page.records.push(Unpacked::Duplicate);
                continue;
            }
            match &self.input.stretch {
                // What an iterator gives from before its instant is none of the range.
                Stretch::From(from)
                    if self.last.is_none() && arrival.is_some_and(|arrival| is_before(arrival, *from)) =>
                {
                    continue;
                }
                Stretch::Batch { first, .. } if self.last.is_none() && **first != *sequence_number => {
                    return Err(self.gone());
                }
                Stretch::Batch { last, .. } if in_order(&sequence_number, last) == Ordering::Greater => {
                    return Ok((page, true));
                }
                _ => {}
            }
            let sequence: Arc<str> = sequence_number.into();
            self.last = Some(Arc::clone(&sequence));
            let record = Record { arrival, shard: Arc::clone(&self.shard), sequence, sub_sequence: None };
            records::unpack(record, data, &mut |unpacked| page.records.push(unpacked));
        }
        let is_behind_batch = match (&self.input.stretch, &self.last) {
            (Stretch::Batch { last, .. }, Some(taken)) => in_order(taken, last) != Ordering::Less,
            _ => false,
        };
        Ok((page, is_behind_batch))
    }

    fn failure(&self, error: &str) -> SourceError {
        SourceError::Service { name: self.name.clone(), error: error.to_owned() }
    }

    fn gone(&self) -> SourceError {
        SourceError::Gone { name: self.name.clone() }
    }
}

/// Bytes of a record as the service counts them.
fn bytes_of(record: &aws_sdk_kinesis::types::Record) -> u64 {
    (record.data().as_ref().len() + record.partition_key().len()) as u64
}

/// Whether a record arrived before an instant, by the millisecond to which the service counts.
fn is_before(arrival: Timestamp, instant: Timestamp) -> bool {
    arrival.nanos().div_euclid(NANOS / 1000) < instant.nanos().div_euclid(NANOS / 1000)
}

/// The order of two sequence numbers, which have up to 56 digits: by value, as text.
fn in_order(one: &str, other: &str) -> Ordering {
    let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// A shard's calls, kept within its limits.
#[derive(Debug)]
struct Budget {
    share: ReadShare,
    /// When the next call may be made. Whoever makes one holds it until the answer is there.
    next: tokio::sync::Mutex<Option<Instant>>,
}

impl Budget {
    /// Waits for this call's turn.
    async fn turn(&self) -> Turn<'_> {
        let next = self.next.lock().await;
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        Turn { share: self.share, next }
    }
}

/// A call that is being made.
struct Turn<'b> {
    share: ReadShare,
    next: tokio::sync::MutexGuard<'b, Option<Instant>>,
}

impl Turn<'_> {
    /// Takes note of what it gave.
    fn gave(mut self, bytes: u64) {
        *self.next = Some(Instant::now() + self.share.gap(bytes));
    }
}

/// How long a shard has given nothing and come no nearer to the tip.
#[derive(Debug)]
struct Stillness {
    least_behind: i64,
    pages: u32,
}

impl Default for Stillness {
    fn default() -> Self {
        Self { least_behind: i64::MAX, pages: 0 }
    }
}

impl Stillness {
    /// Takes note of a page, and tells whether it was one too many.
    fn is_idle(&mut self, records: usize, millis_behind: Option<i64>) -> bool {
        let behind = millis_behind.unwrap_or(i64::MAX);
        if records > 0 {
            // Time may have passed before the next page was asked for, and the tip has gone on.
            *self = Self::default();
            return false;
        }
        if behind < self.least_behind {
            self.pages = 0;
        } else {
            self.pages += 1;
        }
        self.least_behind = self.least_behind.min(behind);
        self.pages >= IDLE_PAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_in_order_of_value() {
        let long = "49601189658422359378836298521827638475320189012309704722";
        let longer = "149601189658422359378836298521827638475320189012309704722";
        for (less, more) in [("9", "10"), (long, longer), ("0009", "10"), (long, &format!("5{}", &long[1..]))] {
            assert_eq!(in_order(less, more), Ordering::Less);
            assert_eq!(in_order(more, less), Ordering::Greater);
        }
        assert_eq!(in_order("007", "7"), Ordering::Equal);
    }

    #[test]
    fn a_share_is_a_decimal_of_a_shard() {
        for (text, thousandths) in [("1", 1000), ("1.0", 1000), ("0.5", 500), (".25", 250), ("0.001", 1)] {
            assert_eq!(text.parse::<ReadShare>().unwrap().thousandths(), thousandths, "{text}");
        }
        for text in ["0", "0.0", "1.001", "2", "-1", "half", "", ".", "0.0001", "1e0", "0,5"] {
            assert!(text.parse::<ReadShare>().is_err(), "{text}");
        }
        assert_eq!("0.5".parse::<ReadShare>().unwrap().to_string(), "0.500");
    }

    #[test]
    fn calls_keep_to_five_and_two_mebibytes_a_second() {
        assert_eq!(ReadShare::WHOLE.gap(0), Duration::from_millis(200));
        assert_eq!(ReadShare::WHOLE.gap(10 << 20), Duration::from_secs(5));
        let half: ReadShare = "0.5".parse().unwrap();
        assert_eq!(half.gap(0), Duration::from_millis(400));
        assert_eq!(half.gap(1 << 20), Duration::from_secs(1));
    }

    #[test]
    fn a_shard_is_idle_when_it_neither_gives_nor_moves() {
        let mut stillness = Stillness::default();
        assert!(!(0..1000).any(|page| stillness.is_idle(0, Some(10_000 - page))));
        assert_eq!((0..100).position(|_| stillness.is_idle(0, Some(9_001))), Some(IDLE_PAGES as usize - 1));
        let mut stillness = Stillness::default();
        assert_eq!(
            (0..100).position(|page| stillness.is_idle(usize::from(page == 7), None)),
            Some(IDLE_PAGES as usize + 7)
        );
    }

    #[test]
    fn regions_are_in_arns() {
        assert_eq!(region_of("arn:aws:kinesis:eu-north-1:000000000000:stream/ais"), Some("eu-north-1"));
        assert_eq!(region_of("ais"), None);
    }
}
