//! The table in DynamoDB: each row is one conditional `UpdateItem`, many of them in flight.
//!
//! The condition makes a retry harmless, so a call whose reply was lost is simply made again. The SDK's own retries are off:
//! they give up after a few tries, and under throttling a run needs more patience than that.
//! API: <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html>.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue,
    ReturnValuesOnConditionCheckFailure, ScalarAttributeType, TableStatus,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use super::ledger::{InputIdentity, Ledger, RunRecord, RunState};
use super::pace::Pace;
use super::write::{Keys, StoreError, TableRow};
use super::{Item, RUN_KEY, WriteMode, Writing, Written, decide};
use crate::aws::AwsOptions;
use crate::aws::connection::{self, Connection, Service};
use crate::aws::trouble::{self, Failure, Trouble, backoff};
use crate::aws::waits::{Spell, Waits};
use crate::row::{Row, Tenths, restore_tenth};

/// Calls in flight at most.
const IN_FLIGHT: usize = 256;

/// The service.
const SERVICE: Service = Service {
    name: "DynamoDB",
    endpoint_variable: "AWS_ENDPOINT_URL_DYNAMODB",
    attempt_timeout: Duration::from_secs(10),
    signs: true,
};

/// How often a row may change between two looks at it.
const RESTLESS_TRIES: u32 = 1_000;

/// How long a new table may take to become active.
const CREATION_PATIENCE: Duration = Duration::from_secs(300);

/// Bytes of inputs in one record item, which holds 400 KB.
const BYTES_PER_PART: usize = 200_000;

/// Segments of a parallel scan.
const SCAN_SEGMENTS: i32 = 8;

/// A table in DynamoDB.
pub struct DynamoStore {
    runtime: &'static Runtime,
    client: Client,
    table: String,
    region: String,
    /// Where it is, for messages.
    endpoint: String,
    waits: Waits,
    write_rate: Option<u32>,
}

type Attributes = HashMap<String, AttributeValue>;

impl DynamoStore {
    /// Connects, and checks that the table is one of windows. With `create`, makes it where there is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be reached, is missing, or has other keys.
    pub fn open(
        name: Option<&str>,
        create: bool,
        options: &AwsOptions,
        write_rate: Option<u32>,
    ) -> Result<Self, StoreError> {
        let table = match name {
            Some(name) => name.to_owned(),
            None => {
                std::env::var("AGG_TABLE").ok().filter(|name| !name.is_empty()).ok_or_else(|| StoreError::Open {
                    table: "dynamodb".to_owned(),
                    error: "no table is named: write dynamodb:TABLE, or set AGG_TABLE".to_owned(),
                })?
            }
        };
        let shown = format!("dynamodb:{table}");
        let open_error = |error: String| StoreError::Open { table: shown.clone(), error };
        let runtime = connection::runtime().map_err(|error| open_error(error.to_string()))?;
        let connection = Connection::open(SERVICE, options, None).map_err(open_error)?;
        let Connection { config, region, endpoint, waits } = connection;
        let store = Self { runtime, client: Client::new(&config), table, region, endpoint, waits, write_rate };
        store.runtime.block_on(store.check_schema(create))?;
        Ok(store)
    }

    fn shown(&self) -> String {
        format!("dynamodb:{}", self.table)
    }

    /// What a failed call means, in a sentence with its remedy.
    fn explain<E>(&self, action: &str, error: &SdkError<E>) -> StoreError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let table = self.shown();
        match Failure::of(action, &self.endpoint, error) {
            Failure::Missing => StoreError::Missing {
                table: format!("{table} in region {}", self.region),
                remedy: "--region names another region".to_owned(),
            },
            Failure::Denied(error) => StoreError::Denied { table, error },
            Failure::Call(error) => StoreError::Call { table, error },
        }
    }

    async fn check_schema(&self, create: bool) -> Result<(), StoreError> {
        let mut created = false;
        let give_up = Instant::now() + CREATION_PATIENCE;
        loop {
            let described = self
                .patiently("dynamodb:DescribeTable", || self.client.describe_table().table_name(&self.table).send())
                .await;
            let table = match described {
                Ok(described) => described.table,
                Err(StoreError::Missing { .. }) if create && !created => {
                    self.create().await?;
                    created = true;
                    continue;
                }
                Err(StoreError::Missing { .. }) if created => None,
                Err(error) => return Err(error),
            };
            let creating = table.as_ref().and_then(|table| table.table_status.as_ref()) == Some(&TableStatus::Creating);
            match table {
                Some(table) if !creating => return self.compare_schema(&table),
                _ if Instant::now() > give_up => {
                    return Err(StoreError::Call {
                        table: self.shown(),
                        error: "it is still being made after five minutes".to_owned(),
                    });
                }
                _ => sleep(Duration::from_millis(500)).await,
            }
        }
    }

    fn compare_schema(&self, table: &aws_sdk_dynamodb::types::TableDescription) -> Result<(), StoreError> {
        let kind = |name: &str| {
            table
                .attribute_definitions()
                .iter()
                .find(|attribute| attribute.attribute_name() == name)
                .map_or("?", |attribute| attribute.attribute_type().as_str())
        };
        let keys: Vec<String> = table
            .key_schema()
            .iter()
            .map(|key| format!("{} {} ({})", key.key_type().as_str(), key.attribute_name(), kind(key.attribute_name())))
            .collect();
        if keys == ["HASH cell (S)", "RANGE window_start (N)"] {
            return Ok(());
        }
        Err(StoreError::Schema {
            table: self.shown(),
            error: format!("its key is {}, and it takes HASH cell (S), RANGE window_start (N)", keys.join(", ")),
        })
    }

    /// Makes the table, billed on demand.
    async fn create(&self) -> Result<(), StoreError> {
        let build = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Call {
            table: self.shown(),
            error: error.to_string(),
        };
        let attribute = |name: &str, kind| {
            AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().map_err(build)
        };
        let key =
            |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().map_err(build);
        let request = self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute("cell", ScalarAttributeType::S)?)
            .attribute_definitions(attribute("window_start", ScalarAttributeType::N)?)
            .key_schema(key("cell", KeyType::Hash)?)
            .key_schema(key("window_start", KeyType::Range)?);
        match request.send().await {
            Ok(_) => Ok(()),
            // Somebody else was faster.
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
            Err(error) => Err(self.explain("dynamodb:CreateTable", &error)),
        }
    }

    /// Makes a call until it succeeds, fails for good, or has failed for too long.
    async fn patiently<T, E, F>(&self, action: &str, call: impl FnMut() -> F) -> Result<T, StoreError>
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        trouble::patiently(&self.waits, call).await.map_err(|error| self.explain(action, &error))
    }

    /// The run records.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StoreError> {
        let keys = RangeOfStarts { from: None, to: None };
        let items = self.runtime.block_on(self.query(RUN_KEY, &keys))?;
        // Inputs that had no room in the first item follow in others, by the first one's key and their number.
        let mut further = BTreeMap::new();
        let mut firsts = Vec::new();
        for item in items {
            let record = self.record_of(&item)?;
            match (number_of(&item, "part_of"), number_of(&item, "part")) {
                (Some(first), Some(part)) => drop(further.insert((first, part), record.inputs)),
                _ => firsts.push((record, number_of(&item, "parts").unwrap_or(1))),
            }
        }
        let mut records = Vec::new();
        for (mut record, parts) in firsts {
            let numbers = 1..parts;
            let found: Vec<_> = numbers.clone().filter_map(|part| further.remove(&(record.started_ms, part))).collect();
            // A run that was broken off before its record was whole has written no row: the next one starts afresh.
            if found.len() == numbers.count() {
                record.inputs.extend(found.into_iter().flatten());
                records.push(record);
            }
        }
        Ok(Ledger { table: self.shown(), records })
    }

    fn record_of(&self, item: &Attributes) -> Result<RunRecord, StoreError> {
        let fail = |error: String| StoreError::Record { table: self.shown(), error };
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
        let number = |name: &str| number_of(item, name).unwrap_or(0);
        let inputs: Vec<InputIdentity> = match text("inputs").as_str() {
            "" => Vec::new(),
            json => serde_json::from_str(json).map_err(|error| fail(error.to_string()))?,
        };
        let state = match text("state").as_str() {
            "complete" => RunState::Complete,
            "undone" => RunState::Undone,
            _ => RunState::Writing,
        };
        Ok(RunRecord {
            started_ms: number("window_start"),
            token: text("token"),
            mode: text("mode"),
            inputs,
            options: text("options"),
            state,
            rows: number("rows").unsigned_abs(),
            conflicts: number("conflicts").unsigned_abs(),
            version: text("version"),
        })
    }

    /// Writes a run record; a new one gets the next free key from its start on.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn put_record(&self, record: &mut RunRecord, new: bool) -> Result<(), StoreError> {
        self.runtime.block_on(async {
            let parts = self.parts(&record.inputs)?;
            let first = record.started_ms;
            let whole = Part::First { of: parts.len() };
            record.started_ms = self.put_record_item(record, &parts[0], first, whole, new).await?;
            // They do not change while a run writes.
            if record.state == RunState::Writing {
                let mut last = record.started_ms;
                for (number, part) in (1..).zip(&parts[1..]) {
                    let further = Part::Further { first: record.started_ms, number };
                    last = self.put_record_item(record, part, last + 1, further, true).await?;
                }
            }
            Ok(())
        })
    }

    /// Inputs as JSON arrays, each of which has room in an item. At least one.
    fn parts(&self, inputs: &[InputIdentity]) -> Result<Vec<String>, StoreError> {
        let fail = |error: serde_json::Error| StoreError::Record { table: self.shown(), error: error.to_string() };
        let mut parts = vec!["[]".to_owned()];
        for input in inputs {
            let json = serde_json::to_string(input).map_err(fail)?;
            match parts.last_mut() {
                Some(part) if part.len() == 2 => *part = format!("[{json}]"),
                Some(part) if part.len() + json.len() < BYTES_PER_PART => {
                    part.pop();
                    part.push(',');
                    part.push_str(&json);
                    part.push(']');
                }
                _ => parts.push(format!("[{json}]")),
            }
        }
        Ok(parts)
    }

    async fn put_record_item(
        &self,
        record: &RunRecord,
        inputs: &str,
        mut key: i64,
        part: Part,
        new: bool,
    ) -> Result<i64, StoreError> {
        let state = match record.state {
            RunState::Writing => "writing",
            RunState::Complete => "complete",
            RunState::Undone => "undone",
        };
        loop {
            let put = || {
                let mut request = self
                    .client
                    .put_item()
                    .table_name(&self.table)
                    .item("cell", text(RUN_KEY))
                    .item("window_start", number(key))
                    .item("token", text(&record.token))
                    .item("mode", text(&record.mode))
                    .item("inputs", text(inputs))
                    .item("options", text(&record.options))
                    .item("state", text(state))
                    .item("rows", number(record.rows))
                    .item("conflicts", number(record.conflicts))
                    .item("version", text(&record.version));
                request = match part {
                    Part::First { of } => request.item("parts", number(of)),
                    Part::Further { first, number: part } => {
                        request.item("part_of", number(first)).item("part", number(part))
                    }
                };
                if new {
                    // A put whose reply was lost finds itself there.
                    let same_part = match part {
                        Part::First { .. } => "attribute_not_exists(#part)",
                        Part::Further { .. } => "#part = :part",
                    };
                    request = request
                        .condition_expression(format!(
                            "attribute_not_exists(cell) OR (#token = :token AND {same_part})"
                        ))
                        .expression_attribute_names("#token", "token")
                        .expression_attribute_names("#part", "part")
                        .expression_attribute_values(":token", text(&record.token));
                    if let Part::Further { number: part, .. } = part {
                        request = request.expression_attribute_values(":part", number(part));
                    }
                }
                request.send()
            };
            let began = Instant::now();
            let mut attempt = 0;
            let taken = loop {
                match put().await {
                    Ok(_) => break false,
                    Err(error) if error.code() == Some("ConditionalCheckFailedException") => break true,
                    Err(error) if began.elapsed() > Trouble::of(&error).patience(true) => {
                        return Err(self.explain("dynamodb:PutItem", &error));
                    }
                    Err(_) => sleep(backoff(attempt)).await,
                }
                attempt += 1;
            };
            if !taken {
                return Ok(key);
            }
            key += 1;
        }
    }

    /// Writes rows and tells what became of each.
    ///
    /// # Errors
    ///
    /// Where a call fails for good, or none has succeeded for five minutes.
    pub fn write(
        &self,
        rows: &mut (dyn Iterator<Item = Result<Row, StoreError>> + Send),
        writing: &Writing,
        tell: &mut dyn FnMut(&Row, Written),
    ) -> Result<(), StoreError> {
        let (pace, spell) = (Pace::new(self.write_rate), Spell::default());
        let (pace, spell) = (&pace, &spell);
        self.runtime.block_on(async {
            let mut written = stream::iter(rows)
                .map(|row| async move {
                    let row = row?;
                    let written = self.write_row(&row, writing, pace, spell).await?;
                    Ok::<_, StoreError>((row, written))
                })
                .buffer_unordered(IN_FLIGHT);
            while let Some((row, written)) = written.try_next().await? {
                tell(&row, written);
            }
            Ok(())
        })
    }

    async fn write_row(&self, row: &Row, writing: &Writing, pace: &Pace, spell: &Spell) -> Result<Written, StoreError> {
        let mut attempt = 0;
        loop {
            pace.wait().await;
            let tried = match writing.mode {
                WriteMode::Undo => self.undo_row(row, writing).await,
                _ => self.update_row(row, writing).await,
            };
            match tried {
                Ok(Some(written)) => {
                    pace.succeeded();
                    spell.over();
                    return Ok(written);
                }
                // It changed between two looks at it.
                Ok(None) if attempt < RESTLESS_TRIES => {}
                Ok(None) => {
                    return Err(StoreError::Item {
                        table: self.shown(),
                        cell: row.cell.to_string(),
                        window_start: row.window_start,
                        error: format!("it changed between two looks at it {RESTLESS_TRIES} times running"),
                    });
                }
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing { trouble, reason, error }) => {
                    if trouble == Trouble::Throttled {
                        pace.throttled();
                    }
                    let (waited, patience) = (pace.idle(), trouble.patience(pace.has_succeeded()));
                    if waited > patience {
                        return Err(error);
                    }
                    self.waits.note(spell, waited, patience, || reason);
                    sleep(backoff(attempt)).await;
                }
            }
            attempt += 1;
        }
    }

    /// One conditional update. `None` where its condition failed and, by now, it need not.
    async fn update_row(&self, row: &Row, writing: &Writing) -> Result<Option<Written>, Failed> {
        let mark = writing.token.mark(writing.mode);
        // A row that holds nothing is of no length.
        let window = if writing.window_seconds == writing.live_window_seconds {
            "(attribute_not_exists(#window) OR #window = :window OR #count = :zero)"
        } else {
            "(attribute_not_exists(cell) OR #window = :window OR #count = :zero)"
        };
        let unmarked = "(attribute_not_exists(#applied) OR NOT contains(#applied, :mark))";
        let missing = row.sog_missing > 0;
        let mut names =
            vec![("#count", "count"), ("#sum", "sog_sum"), ("#window", "window_seconds"), ("#applied", "applied")];
        let (update, condition) = match writing.mode {
            WriteMode::Add => {
                let add = if missing { ", #missing :missing" } else { "" };
                (
                    format!("SET #window = :window ADD #count :count, #sum :sum, #applied :marks{add}"),
                    format!("{unmarked} AND {window}"),
                )
            }
            WriteMode::Insert | WriteMode::Replace | WriteMode::Undo => {
                let set = if missing { ", #missing = :missing" } else { "" };
                let remove = if missing { "" } else { " REMOVE #missing" };
                let empty = if writing.mode == WriteMode::Insert {
                    " AND (attribute_not_exists(#count) OR #count = :zero)"
                } else {
                    ""
                };
                (
                    format!("SET #count = :count, #sum = :sum, #window = :window{set}{remove} ADD #applied :marks"),
                    format!("{unmarked} AND {window}{empty}"),
                )
            }
        };
        if missing || writing.mode != WriteMode::Add {
            names.push(("#missing", "sog_missing"));
        }
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("cell", text(&row.cell.to_string()))
            .key("window_start", number(row.window_start))
            .update_expression(update)
            .condition_expression(condition)
            .expression_attribute_values(":count", number(row.count))
            .expression_attribute_values(":sum", number(row.sog_sum))
            .expression_attribute_values(":window", number(writing.window_seconds))
            .expression_attribute_values(":zero", number(0))
            .expression_attribute_values(":mark", text(&mark))
            .expression_attribute_values(":marks", AttributeValue::Ss(vec![mark.clone()]))
            .return_values(ReturnValue::UpdatedOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for (alias, name) in names {
            request = request.expression_attribute_names(alias, name);
        }
        if missing {
            request = request.expression_attribute_values(":missing", number(row.sog_missing));
        }
        match request.send().await {
            Ok(answer) => {
                let had = answer.attributes().and_then(|old| old.get("count")).and_then(|count| count.as_n().ok());
                let was_there = had.is_some_and(|count| count != "0");
                Ok(Some(if was_there { Written::Changed } else { Written::New }))
            }
            Err(error) => match conditional_failure(&error) {
                Some(old) => {
                    let existing = self.item(row, old).map_err(Failed::Final)?;
                    Ok(match decide(existing.as_ref(), row, writing) {
                        (None, written) => Some(written),
                        (Some(_), _) => None,
                    })
                }
                // The keys and the expression are right by then, so it is what the item holds.
                None if error.code() == Some("ValidationException") => Err(Failed::Final(StoreError::Item {
                    table: self.shown(),
                    cell: row.cell.to_string(),
                    window_start: row.window_start,
                    error: format!(
                        "its count, sog_sum or another number is a string or something else ({})",
                        error.message().unwrap_or("no further message")
                    ),
                })),
                None => Err(self.failed("dynamodb:UpdateItem", &error)),
            },
        }
    }

    /// Takes a run's contribution out of a row: looks at it, then updates it if its marks are still the same. What the live
    /// pipeline adds in between touches no mark and is kept.
    async fn undo_row(&self, row: &Row, writing: &Writing) -> Result<Option<Written>, Failed> {
        let got = self
            .client
            .get_item()
            .table_name(&self.table)
            .key("cell", text(&row.cell.to_string()))
            .key("window_start", number(row.window_start))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| self.failed("dynamodb:GetItem", &error))?;
        let existing = match got.item {
            Some(item) => self.item(row, Some(item)).map_err(Failed::Final)?,
            None => None,
        };
        let left = match decide(existing.as_ref(), row, writing) {
            (None, written) => return Ok(Some(written)),
            (Some(left), _) => left,
        };
        let marks: Vec<String> = existing.map(|item| item.applied.into_iter().collect()).unwrap_or_default();
        let mark = writing.token.mark(writing.mode);
        let missing = row.sog_missing > 0;
        let (add, also) = if missing { (", #missing :missing", " AND #missing >= :least_missing") } else { ("", "") };
        // A row of which nothing is left loses its length, unless somebody adds to it in between.
        let emptied = left.count == 0;
        let (remove, at) = if emptied { (" REMOVE #window", "=") } else { ("", ">=") };
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("cell", text(&row.cell.to_string()))
            .key("window_start", number(row.window_start))
            .update_expression(format!("ADD #count :count, #sum :sum{add} DELETE #applied :marks{remove}"))
            .condition_expression(format!(
                "#applied = :known AND #count {at} :least_count AND #sum >= :least_sum{also}"
            ))
            .expression_attribute_names("#count", "count")
            .expression_attribute_names("#sum", "sog_sum")
            .expression_attribute_names("#applied", "applied")
            .expression_attribute_values(":count", number(format_args!("-{}", row.count)))
            .expression_attribute_values(":sum", number(format_args!("-{}", row.sog_sum)))
            .expression_attribute_values(":least_count", number(row.count))
            .expression_attribute_values(":least_sum", number(row.sog_sum))
            .expression_attribute_values(":marks", AttributeValue::Ss(vec![mark]))
            .expression_attribute_values(":known", AttributeValue::Ss(marks));
        if emptied {
            request = request.expression_attribute_names("#window", "window_seconds");
        }
        if missing {
            request = request
                .expression_attribute_names("#missing", "sog_missing")
                .expression_attribute_values(":missing", number(format_args!("-{}", row.sog_missing)))
                .expression_attribute_values(":least_missing", number(row.sog_missing));
        }
        match request.send().await {
            Ok(_) => Ok(Some(Written::Changed)),
            Err(error) if conditional_failure(&error).is_some() => Ok(None),
            Err(error) => Err(self.failed("dynamodb:UpdateItem", &error)),
        }
    }

    fn failed<E>(&self, action: &str, error: &SdkError<E>) -> Failed
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let explained = self.explain(action, error);
        match Trouble::of(error) {
            Trouble::Final => Failed::Final(explained),
            trouble => Failed::Passing { trouble, reason: trouble::reason(error), error: explained },
        }
    }

    /// The item of a row, or `None` for no item or an empty one. A sum that went through a float on its way into the table, such
    /// as 28.299999999999997, is as good as its tenths here: what is added to it or taken from it, the table reckons itself.
    fn item(&self, row: &Row, attributes: Option<Attributes>) -> Result<Option<Item>, StoreError> {
        let Some(mut attributes) = attributes.filter(|attributes| !attributes.is_empty()) else { return Ok(None) };
        if let Some(AttributeValue::N(sum)) = attributes.get_mut("sog_sum")
            && let Some(point) = sum.find('.')
        {
            sum.truncate(point + 2);
        }
        self.item_of(&row.cell.to_string(), row.window_start, &attributes).map(Some)
    }

    fn item_of(&self, cell: &str, window_start: i64, attributes: &Attributes) -> Result<Item, StoreError> {
        let fail = |error: String| StoreError::Item { table: self.shown(), cell: cell.to_owned(), window_start, error };
        let number = |name: &str| match attributes.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(number)) => Ok(Some(number.as_str())),
            Some(other) => Err(fail(format!("its {name} is {}, where a number should be", kind_of(other)))),
        };
        let whole = |name: &str| {
            let parse =
                |text: &str| text.parse::<i64>().map_err(|_| fail(format!("its {name} {text} is not a whole number")));
            number(name)?.map(parse).transpose()
        };
        let counted = |name: &str| {
            let value = whole(name)?.unwrap_or(0);
            u64::try_from(value).map_err(|_| fail(format!("its {name} {value} is below zero")))
        };
        let sum = number("sog_sum")?.unwrap_or("0");
        Ok(Item {
            count: counted("count")?,
            sog_sum: sum.parse::<Tenths>().map_err(|error| fail(format!("its sog_sum {error}")))?,
            sog_missing: counted("sog_missing")?,
            window_seconds: whole("window_seconds")?,
            applied: match attributes.get("applied") {
                None => BTreeSet::new(),
                Some(AttributeValue::Ss(marks)) => marks.iter().cloned().collect(),
                Some(other) => {
                    return Err(fail(format!("its applied is {}, where a string set should be", kind_of(other))));
                }
            },
        })
    }

    /// The rows of some keys, by cell, then window.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn read(&self, keys: &Keys) -> Result<Vec<TableRow>, StoreError> {
        let starts = RangeOfStarts { from: keys.from, to: keys.to };
        let starts = &starts;
        let items: Vec<Attributes> = self.runtime.block_on(async {
            if keys.all_cells() || !keys.prefixes.is_empty() {
                return self.scan(keys).await;
            }
            let cells = keys.cells.iter().map(ToString::to_string);
            let answers: Vec<Vec<Attributes>> = stream::iter(cells)
                .map(|cell| async move { self.query(&cell, starts).await })
                .buffered(16)
                .try_collect()
                .await?;
            Ok(answers.into_iter().flatten().collect())
        })?;
        let mut rows = Vec::with_capacity(items.len());
        for mut item in items {
            let cell = item.get("cell").and_then(|cell| cell.as_s().ok()).cloned().unwrap_or_default();
            let start =
                item.get("window_start").and_then(|start| start.as_n().ok()).and_then(|start| start.parse().ok());
            let Some(window_start) = start else {
                return Err(StoreError::Item {
                    table: self.shown(),
                    cell,
                    window_start: 0,
                    error: "its window_start is no whole number".to_owned(),
                });
            };
            if cell != RUN_KEY && keys.hold_text(&cell, window_start) {
                let restored = match item.get_mut("sog_sum") {
                    Some(AttributeValue::N(sum)) => restore_tenth(sum),
                    _ => false,
                };
                let has_sum = item.contains_key("sog_sum");
                let parsed = self.item_of(&cell, window_start, &item)?;
                rows.push(TableRow { restored, has_sum, ..TableRow::new(&cell, window_start, parsed, &self.shown())? });
            }
        }
        rows.sort_by_key(|row| (row.row.cell, row.row.window_start));
        Ok(rows)
    }

    /// All items of a cell within a range, page after page, consistently.
    async fn query(&self, cell: &str, starts: &RangeOfStarts) -> Result<Vec<Attributes>, StoreError> {
        let mut items = Vec::new();
        let mut from_key = None;
        loop {
            let (condition, values) = starts.condition();
            let page = self
                .patiently("dynamodb:Query", || {
                    let mut request = self
                        .client
                        .query()
                        .table_name(&self.table)
                        .consistent_read(true)
                        .key_condition_expression(condition)
                        .expression_attribute_values(":cell", text(cell))
                        .set_exclusive_start_key(from_key.clone());
                    for (name, value) in &values {
                        request = request.expression_attribute_values(*name, number(value));
                    }
                    request.send()
                })
                .await?;
            items.extend(page.items.unwrap_or_default());
            from_key = page.last_evaluated_key;
            if from_key.is_none() {
                return Ok(items);
            }
        }
    }

    /// Every item of the table, in parallel.
    async fn scan(&self, keys: &Keys) -> Result<Vec<Attributes>, StoreError> {
        // One prefix narrows what comes over the wire; what is read, and paid, stays the whole table.
        let filter = match (keys.cells.as_slice(), keys.prefixes.as_slice()) {
            ([], [prefix]) => Some(prefix.to_string()),
            _ => None,
        };
        let filter = &filter;
        let segments: Vec<Vec<Attributes>> = stream::iter(0..SCAN_SEGMENTS)
            .map(|segment| async move {
                let mut items = Vec::new();
                let mut from_key = None;
                loop {
                    let page = self
                        .patiently("dynamodb:Scan", || {
                            let mut request = self
                                .client
                                .scan()
                                .table_name(&self.table)
                                .consistent_read(true)
                                .segment(segment)
                                .total_segments(SCAN_SEGMENTS)
                                .set_exclusive_start_key(from_key.clone());
                            if let Some(prefix) = filter {
                                request = request
                                    .filter_expression("begins_with(cell, :prefix)")
                                    .expression_attribute_values(":prefix", text(prefix));
                            }
                            request.send()
                        })
                        .await?;
                    items.extend(page.items.unwrap_or_default());
                    from_key = page.last_evaluated_key;
                    if from_key.is_none() {
                        return Ok::<_, StoreError>(items);
                    }
                }
            })
            .buffer_unordered(SCAN_SEGMENTS as usize)
            .try_collect()
            .await?;
        Ok(segments.into_iter().flatten().collect())
    }
}

/// Window starts from and to, both included.
struct RangeOfStarts {
    from: Option<i64>,
    to: Option<i64>,
}

impl RangeOfStarts {
    fn condition(&self) -> (&'static str, Vec<(&'static str, i64)>) {
        match (self.from, self.to) {
            (None, None) => ("cell = :cell", vec![]),
            (Some(from), None) => ("cell = :cell AND window_start >= :from", vec![(":from", from)]),
            (None, Some(to)) => ("cell = :cell AND window_start <= :to", vec![(":to", to)]),
            (Some(from), Some(to)) => {
                ("cell = :cell AND window_start BETWEEN :from AND :to", vec![(":from", from), (":to", to)])
            }
        }
    }
}

/// Which part of a record an item is.
#[derive(Clone, Copy)]
enum Part {
    /// The one with everything but further inputs, and how many parts there are.
    First { of: usize },
    /// Further inputs: the key of the first, and a number from 1.
    Further { first: i64, number: u32 },
}

/// A failed try to write a row.
enum Failed {
    /// It will fail again.
    Final(StoreError),
    /// It may succeed later.
    Passing {
        /// What kind of failure it is.
        trouble: Trouble,
        /// Why, in a few words.
        reason: String,
        /// What it means where it is borne no more.
        error: StoreError,
    },
}

/// The item behind a failed condition: `Some(None)` where there was none.
#[allow(clippy::option_option, reason = "no failure, and a failure without an item, are two things")]
fn conditional_failure(error: &SdkError<UpdateItemError>) -> Option<Option<Attributes>> {
    match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(failure)) => Some(failure.item().cloned()),
        _ => None,
    }
}

fn number_of(item: &Attributes, name: &str) -> Option<i64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// A number goes as its decimal text, never through a float.
fn number(value: impl std::fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn kind_of(value: &AttributeValue) -> &'static str {
    match value {
        AttributeValue::S(_) => "a string",
        AttributeValue::N(_) => "a number",
        AttributeValue::Bool(_) => "a truth value",
        AttributeValue::Null(_) => "null",
        AttributeValue::L(_) => "a list",
        AttributeValue::M(_) => "a map",
        AttributeValue::Ss(_) => "a string set",
        AttributeValue::Ns(_) => "a number set",
        _ => "binary data",
    }
}
