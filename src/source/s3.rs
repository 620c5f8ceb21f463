//! Objects in S3: which of them a URL stands for, and what it means where the service says no.
//!
//! An object is one partition, and what it holds is found by its content, as in a file. How its bytes come is a matter of
//! [`super::ranges`].
//! API: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html> and
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{Builder, ResponseChecksumValidation, StalledStreamProtectionConfig};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::builders::GetObjectFluentBuilder;
use aws_sdk_s3::types::RequestPayer;
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::content::hexadecimal;
use super::ranges::{ObjectReader, Shelf};
use super::{Input, SourceError};
use crate::aws::AwsOptions;
use crate::aws::connection::{self, Connection, Service};
use crate::aws::trouble::{Failure, patiently};
use crate::aws::waits::Waits;

/// The service. The time is that until an answer begins; its body has a time of its own.
const SERVICE: Service = Service {
    name: "S3",
    endpoint_variable: "AWS_ENDPOINT_URL_S3",
    attempt_timeout: Duration::from_secs(20),
    signs: true,
};

/// How many objects are asked about at the same time, where a list does not say enough of them.
const QUESTIONS_AT_ONCE: usize = 16;

/// What a command line names: `s3://BUCKET/KEY`, or everything below `s3://BUCKET/PREFIX/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct S3Url {
    bucket: String,
    /// As it is: nothing in it is encoded.
    key: String,
}

impl S3Url {
    /// Whether it stands for every object whose key begins so.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }
}

impl std::str::FromStr for S3Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' names no object: s3://BUCKET/KEY, or s3://BUCKET/PREFIX/ for all below it");
        let (bucket, key) = text
            .strip_prefix("s3://")
            .map(|path| path.split_once('/').unwrap_or((path, "")))
            .filter(|(bucket, _)| !bucket.is_empty())
            .ok_or_else(fail)?;
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

impl fmt::Display for S3Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

/// How S3 is asked.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// How AWS is reached.
    pub aws: AwsOptions,
    /// Without credentials, as a public bucket allows.
    pub unsigned: bool,
    /// Whoever asks pays, as some buckets want it.
    pub requester_pays: bool,
}

/// What the command line's URLs came to.
#[derive(Debug, Default)]
pub struct Found {
    /// The inputs, ordered by name so that no result depends on the order of arguments.
    pub inputs: Vec<Input>,
    /// Names of objects that another URL leads to as well; they are read once.
    pub repeated: Vec<String>,
}

/// Finds the objects that URLs stand for.
///
/// Keys of zero bytes that end in `/` are what consoles make of a folder: they hold nothing and are passed over.
///
/// # Errors
///
/// Where a URL leads nowhere, or the service does not let us look.
pub fn find(urls: &[S3Url], options: &S3Options) -> Result<Found, SourceError> {
    let mut urls: Vec<&S3Url> = urls.iter().collect();
    urls.sort();
    let Some(first) = urls.first() else { return Ok(Found::default()) };
    let store = Arc::new(S3::open(options).map_err(|error| failure(&first.to_string(), error))?);
    let runtime = connection::runtime().map_err(|error| failure(&first.to_string(), error.to_string()))?;
    runtime.block_on(async {
        let mut objects: BTreeMap<String, Object> = BTreeMap::new();
        let mut repeated = Vec::new();
        for url in urls {
            for object in store.objects(url).await? {
                match objects.get_mut(&object.name()) {
                    Some(known) => {
                        known.named |= object.named;
                        repeated.push(object.name());
                    }
                    None => {
                        objects.insert(object.name(), object);
                    }
                }
            }
        }
        // Not every store that speaks S3 gives ETags in a list.
        let known = objects.into_values().map(|object| async move {
            if object.etag.is_empty() && object.size > 0 { object.ask().await } else { Ok(object) }
        });
        let known: Vec<Object> = stream::iter(known).buffered(QUESTIONS_AT_ONCE).try_collect().await?;
        let shelf = Arc::new(Shelf::new(known.into_iter().map(Arc::new).collect()));
        let input = |place| Input::Object(ObjectInput { shelf: Arc::clone(&shelf), place });
        Ok(Found { inputs: (0..shelf.objects().len()).map(input).collect(), repeated })
    })
}

/// An object, beside the others of the run.
#[derive(Clone, Debug)]
pub struct ObjectInput {
    shelf: Arc<Shelf>,
    place: usize,
}

impl ObjectInput {
    fn object(&self) -> &Arc<Object> {
        &self.shelf.objects()[self.place]
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> String {
        self.object().name()
    }

    /// Its size as stored, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.object().size
    }

    /// Whether the command line names the object itself.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.object().named
    }

    /// What a table knows it by: SHA-256 of its bucket, key, ETag and size, in hexadecimal.
    #[must_use]
    pub fn identity(&self) -> String {
        let Object { bucket, key, etag, size, .. } = &**self.object();
        let mut hasher = Sha256::new();
        for field in [bucket, key, etag, &size.to_string()] {
            // The length before each, so that no two run together into what others are.
            hasher.update((field.len() as u64).to_be_bytes());
            hasher.update(field);
        }
        hexadecimal(&hasher.finalize())
    }

    /// Begins to read it. What goes wrong is told by reading.
    #[must_use]
    pub fn open(&self) -> Box<dyn Read + Send> {
        Box::new(ObjectReader::new(Arc::clone(&self.shelf), self.place))
    }
}

/// What is known of an object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) store: Arc<S3>,
    bucket: String,
    key: String,
    pub(super) size: u64,
    /// Empty for an object of no bytes, which is never asked for.
    pub(super) etag: String,
    named: bool,
}

impl Object {
    pub(super) fn name(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key)
    }

    pub(super) fn get(&self) -> GetObjectFluentBuilder {
        let request = self.store.client.get_object().bucket(&self.bucket).key(&self.key);
        request.set_request_payer(self.store.payer())
    }

    /// What a failed request for the object means.
    pub(super) fn explain<E>(&self, error: &SdkError<E>) -> SourceError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        self.store.explain(&self.name(), &self.bucket, "s3:GetObject", error)
    }

    pub(super) fn failure(&self, error: impl fmt::Display) -> SourceError {
        failure(&self.name(), error.to_string())
    }

    /// It is not what it was when the run began.
    pub(super) fn changed(&self) -> SourceError {
        self.failure("the object was changed while the run was at it: run again to read it as it is now")
    }

    /// The same with the size and ETag that the service tells. Its first byte is asked for, because a refusal to `HeadObject`
    /// comes without a reason.
    async fn ask(mut self) -> Result<Self, SourceError> {
        let answer = patiently(&self.store.waits, || self.get().range("bytes=0-0").send()).await;
        match answer {
            Ok(answer) => {
                self.store.note_success();
                let whole = answer.content_range().and_then(|text| ContentRange::parse(text)?.total);
                let size = whole.or(answer.content_length().and_then(|bytes| u64::try_from(bytes).ok()));
                let (Some(size), Some(etag)) = (size, answer.e_tag()) else {
                    return Err(
                        self.failure("the service tells neither size nor ETag of it, so it cannot be read safely")
                    );
                };
                self.size = size;
                self.etag = if size == 0 { String::new() } else { etag.to_owned() };
                Ok(self)
            }
            // A range of nothing.
            Err(error) if status(&error) == Some(416) => {
                self.store.note_success();
                self.size = 0;
                Ok(self)
            }
            Err(error) => Err(self.explain(&error)),
        }
    }
}

/// The service, as a run asks it.
#[derive(Debug)]
pub(super) struct S3 {
    client: Client,
    region: String,
    endpoint: String,
    unsigned: bool,
    requester_pays: bool,
    /// Whether it has answered at all.
    has_succeeded: AtomicBool,
    pub(super) waits: Waits,
}

impl S3 {
    fn open(options: &S3Options) -> Result<Self, String> {
        let service = Service { signs: !options.unsigned, ..SERVICE };
        let Connection { config, region, endpoint, waits } = Connection::open(service, &options.aws, None)?;
        // Other stores have no name for each bucket, so the bucket is in the path there.
        let is_aws = !endpoint.contains("://");
        let config = Builder::from(&config)
            .force_path_style(!is_aws)
            // It takes a reader that pauses for a body that stalls. Bodies are read into memory here, and watched.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // A checksum of the whole cannot hold for a range; where the whole is asked for, so is its checksum.
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .build();
        Ok(Self {
            client: Client::from_conf(config),
            region,
            endpoint,
            unsigned: options.unsigned,
            requester_pays: options.requester_pays,
            has_succeeded: AtomicBool::new(false),
            waits,
        })
    }

    fn payer(&self) -> Option<RequestPayer> {
        self.requester_pays.then_some(RequestPayer::Requester)
    }

    pub(super) fn note_success(&self) {
        self.has_succeeded.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.has_succeeded.load(Ordering::Relaxed)
    }

    /// The objects that a URL stands for.
    async fn objects(self: &Arc<Self>, url: &S3Url) -> Result<Vec<Object>, SourceError> {
        if url.is_prefix() {
            let objects = self.list(url, &url.key, None).await?;
            return match objects.is_empty() {
                true => Err(failure(&url.to_string(), "there is no object whose key begins so".to_owned())),
                false => Ok(objects),
            };
        }
        let object = Object {
            store: Arc::clone(self),
            bucket: url.bucket.clone(),
            key: url.key.clone(),
            size: 0,
            etag: String::new(),
            named: true,
        };
        let missing = match object.ask().await {
            Err(error @ SourceError::NoObject { .. }) => error,
            asked => return Ok(vec![asked?]),
        };
        // Who may not list has the answer to what was asked all the same.
        let below = self.list(url, &format!("{}/", url.key), Some(1)).await.unwrap_or_default();
        Err(match below.is_empty() {
            true => missing,
            false => {
                failure(&url.to_string(), format!("there is no such object, but there are some below it: give {url}/"))
            }
        })
    }

    /// Objects whose keys begin so: all of them, from as many pages as there are, or just the first few.
    async fn list(self: &Arc<Self>, url: &S3Url, prefix: &str, most: Option<i32>) -> Result<Vec<Object>, SourceError> {
        let fail = |error: &str| failure(&url.to_string(), error.to_owned());
        let mut objects = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let call = || {
                let request = self.client.list_objects_v2().bucket(&url.bucket).prefix(prefix).set_max_keys(most);
                request.set_continuation_token(token.clone()).set_request_payer(self.payer()).send()
            };
            let answer = patiently(&self.waits, call).await;
            let answer =
                answer.map_err(|error| self.explain(&url.to_string(), &url.bucket, "s3:ListBucket", &error))?;
            self.note_success();
            for listed in answer.contents.unwrap_or_default() {
                let size = listed.size.and_then(|size| u64::try_from(size).ok());
                let (Some(key), Some(size)) = (listed.key, size) else {
                    return Err(fail("the service lists an object without its key or size"));
                };
                if size == 0 && key.ends_with('/') {
                    continue;
                }
                let etag = if size == 0 { String::new() } else { listed.e_tag.unwrap_or_default() };
                let (store, bucket) = (Arc::clone(self), url.bucket.clone());
                objects.push(Object { store, bucket, key, size, etag, named: false });
            }
            if most.is_some() || !answer.is_truncated.unwrap_or(false) {
                return Ok(objects);
            }
            if answer.next_continuation_token.is_none() || answer.next_continuation_token == token {
                return Err(fail("the service breaks off its list of objects"));
            }
            token = answer.next_continuation_token;
        }
    }

    /// What a failed call means, in a sentence with its remedy.
    /// Codes: <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>.
    fn explain<E>(&self, name: &str, bucket: &str, action: &str, error: &SdkError<E>) -> SourceError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let region = &self.region;
        let error = match (error.code(), status(error)) {
            (Some("NoSuchKey"), _) => return SourceError::NoObject { name: name.to_owned() },
            (Some("NoSuchBucket"), _) => {
                format!("there is no bucket {bucket} at {}; check its name and --endpoint-url", self.endpoint)
            }
            (Some("PermanentRedirect" | "AuthorizationHeaderMalformed"), _) | (_, Some(301)) => {
                match right_region(error) {
                    Some(right) => format!(
                        "bucket {bucket} is in region {right}, not in {region}: give --region {right}, or --bucket-region \
                         {right} where a table is in another"
                    ),
                    None => format!("bucket {bucket} is not in region {region}: give its own with --region"),
                }
            }
            (Some("InvalidObjectState"), _) => {
                "the object is archived and cannot be read as it is: restore it first, as with aws s3api restore-object"
                    .to_owned()
            }
            (Some("AccessDenied" | "AllAccessDisabled"), _) | (None, Some(403)) if self.unsigned => {
                "the bucket does not let everybody read it: leave --no-sign-request out".to_owned()
            }
            _ => match Failure::of(action, &self.endpoint, error) {
                Failure::Missing => format!("there is no such bucket or object at {}", self.endpoint),
                Failure::Denied(error) if error.contains(action) && !self.requester_pays => {
                    format!("{error}; a bucket whose requesters pay also needs --request-payer")
                }
                Failure::Denied(error) | Failure::Call(error) => error,
            },
        };
        failure(name, error)
    }
}

fn failure(name: &str, error: String) -> SourceError {
    SourceError::Service { name: name.to_owned(), error }
}

/// HTTP status of an answer, where there is one.
pub(super) fn status<E>(error: &SdkError<E>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

/// The region that a bucket is in, where the service tells it beside its refusal.
fn right_region<E>(error: &SdkError<E>) -> Option<String> {
    let response = error.raw_response()?;
    if let Some(region) = response.headers().get("x-amz-bucket-region") {
        return Some(region.to_owned());
    }
    let body = std::str::from_utf8(response.body().bytes()?).ok()?;
    let (_, rest) = body.split_once("<Region>")?;
    rest.split_once("</Region>").map(|(region, _)| region.to_owned())
}

/// `Content-Range: bytes FIRST-LAST/TOTAL` (RFC 9110, section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// First byte that is in the body.
    pub(super) first: u64,
    /// Bytes of the whole, where that is told.
    pub(super) total: Option<u64>,
}

impl ContentRange {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, _) = range.split_once('-')?;
        Some(Self { first: first.trim().parse().ok()?, total: total.trim().parse().ok() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_objects_and_prefixes() {
        let parsed = |text: &str| text.parse::<S3Url>().map(|url| (url.is_prefix(), url.bucket, url.key));
        let url = |prefix, bucket: &str, key: &str| Ok((prefix, bucket.to_owned(), key.to_owned()));
        assert_eq!(parsed("s3://ais/2026/05/a b+c%20å.gz"), url(false, "ais", "2026/05/a b+c%20å.gz"));
        assert_eq!(parsed("s3://my.bucket/logs/"), url(true, "my.bucket", "logs/"));
        assert_eq!(parsed("s3://ais"), url(true, "ais", ""));
        assert_eq!(parsed("s3://ais/"), url(true, "ais", ""));
        assert_eq!(parsed("s3://ais//a"), url(false, "ais", "/a"));
        for text in ["", "s3:", "s3://", "s3:///key", "ais/key", "https://ais/key", "S3://ais/key"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn content_ranges_say_where_they_begin_and_of_what() {
        let range = |first, total| Some(ContentRange { first, total });
        assert_eq!(ContentRange::parse("bytes 300000-524287/1048576"), range(300_000, Some(1_048_576)));
        assert_eq!(ContentRange::parse("bytes 0-0/*"), range(0, None));
        for text in ["", "bytes", "bytes */100", "lines 0-1/2", "bytes 0-1"] {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_bucket_is_in_the_name_of_the_host_where_it_can_be() {
        use aws_sdk_s3::config::Credentials;
        use aws_sdk_s3::presigning::PresigningConfig;
        let url = |endpoint: Option<&str>, bucket: &str| {
            let region = Some("eu-north-1".to_owned());
            let aws = AwsOptions { region, endpoint_url: endpoint.map(str::to_owned), ..AwsOptions::default() };
            let store = S3::open(&S3Options { aws, ..S3Options::default() }).unwrap();
            let credentials = Credentials::new("test", "test", None, None, "tests");
            let config = store.client.config().to_builder().credentials_provider(credentials).build();
            let expires = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
            let request = Client::from_conf(config).get_object().bucket(bucket).key("a b+c").presigned(expires);
            let request = connection::runtime().unwrap().block_on(request).unwrap();
            request.uri().split('?').next().unwrap().to_owned()
        };
        assert_eq!(url(None, "ais"), "https://ais.s3.eu-north-1.amazonaws.com/a%20b%2Bc");
        // No certificate holds for a name with dots.
        assert_eq!(url(None, "my.bucket"), "https://s3.eu-north-1.amazonaws.com/my.bucket/a%20b%2Bc");
        assert_eq!(url(Some("http://store:9000"), "ais"), "http://store:9000/ais/a%20b%2Bc");
    }

    #[test]
    fn an_identity_is_of_bucket_key_etag_and_size() {
        let store = S3::open(&S3Options {
            aws: AwsOptions { region: Some("eu-north-1".to_owned()), ..AwsOptions::default() },
            unsigned: true,
            requester_pays: false,
        });
        let store = Arc::new(store.unwrap());
        let identity = |bucket: &str, key: &str, etag: &str, size| {
            let (bucket, key, etag) = (bucket.to_owned(), key.to_owned(), etag.to_owned());
            let object = Object { store: Arc::clone(&store), bucket, key, etag, size, named: size % 2 == 0 };
            ObjectInput { shelf: Arc::new(Shelf::new(vec![Arc::new(object)])), place: 0 }.identity()
        };
        let of = identity("ais", "a", "\"e1\"", 11);
        assert_eq!(of, identity("ais", "a", "\"e1\"", 11));
        let others = [
            identity("aisa", "", "\"e1\"", 11),
            identity("ai", "sa", "\"e1\"", 11),
            identity("ais", "b", "\"e1\"", 11),
            identity("ais", "a", "\"e2\"", 11),
            identity("ais", "a", "\"e1\"1", 1),
            identity("ais", "a", "\"e1\"", 12),
        ];
        assert!(!others.contains(&of));
    }
}
