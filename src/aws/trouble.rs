//! What a failed call means: whether to make it again, for how long, and what to tell people.

use std::time::Duration;

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use tokio::time::{Instant, sleep};

use super::waits::{Spell, Waits};

/// How long nothing at all may succeed before a run gives up.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The same before anything has succeeded: a wrong endpoint should not be waited for.
const FIRST_PATIENCE: Duration = Duration::from_secs(12);

/// What kind of failure a call met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Too many calls.
    Throttled,
    /// The service or the network, for now.
    Transient,
    /// For good.
    Final,
}

impl Trouble {
    /// How long to put up with it while nothing succeeds.
    #[must_use]
    pub fn patience(self, has_succeeded: bool) -> Duration {
        match self {
            Self::Final => Duration::ZERO,
            Self::Transient if !has_succeeded => FIRST_PATIENCE,
            Self::Throttled | Self::Transient => PATIENCE,
        }
    }

    /// What kind a failure is.
    pub fn of<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata,
    {
        match error.code() {
            Some(
                "ProvisionedThroughputExceededException"
                | "KMSThrottlingException"
                | "ThrottlingException"
                | "RequestLimitExceeded"
                | "Throttling"
                | "SlowDown"
                | "TransactionConflictException"
                | "LimitExceededException",
            ) => return Self::Throttled,
            _ if error.raw_response().is_some_and(|response| response.status().is_server_error()) => {
                return Self::Transient;
            }
            Some(
                "InternalServerError" | "InternalFailure" | "InternalError" | "ServiceUnavailable" | "RequestTimeout",
            ) => return Self::Transient,
            Some(_) => return Self::Final,
            None => {}
        }
        match error {
            SdkError::TimeoutError(_) | SdkError::ResponseError(_) => Self::Transient,
            // A connection that was closed instead of an answer is neither an I/O error nor a timeout to the SDK. What is not
            // a matter of the connection at all is that the request could not be signed.
            SdkError::DispatchFailure(failure) if !failure.is_user() && !lacks_credentials(error) => Self::Transient,
            // A page of some proxy instead of an answer.
            SdkError::ServiceError(answer) if !answer.raw().status().is_client_error() => Self::Transient,
            _ => Self::Final,
        }
    }
}

/// Why a call is made again, in a few words.
pub fn reason<E>(error: &SdkError<E>) -> String
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match (error.code(), error) {
        (Some(code), _) if Trouble::of(error) == Trouble::Throttled => format!("throttled ({code})"),
        (Some(code), _) => format!("it answers {code}"),
        (None, SdkError::ServiceError(answer)) => format!("it answers with status {}", answer.raw().status()),
        (None, _) => format!("it cannot be reached ({})", deepest(error)),
    }
}

/// Makes a call until it succeeds, fails for good, or has failed for too long.
///
/// # Errors
///
/// The last failure.
pub async fn patiently<T, E, F>(waits: &Waits, mut call: impl FnMut() -> F) -> Result<T, SdkError<E>>
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
    F: Future<Output = Result<T, SdkError<E>>>,
{
    let mut patience = Patience { since: Some(Instant::now()), ..Patience::new(waits) };
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if patience.bears(Trouble::of(&error), false, &error).await => drop(error),
            Err(error) => return Err(error),
        }
    }
}

/// How long failures of one call have been borne.
#[derive(Debug)]
pub struct Patience<'w> {
    /// From when on; unless it is set, from the first failure.
    since: Option<Instant>,
    attempt: u32,
    waits: &'w Waits,
    spell: Spell,
}

impl<'w> Patience<'w> {
    /// That of a call that has not failed yet.
    #[must_use]
    pub fn new(waits: &'w Waits) -> Self {
        Self { since: None, attempt: 0, waits, spell: Spell::default() }
    }

    /// Waits before a further try; false where there should be none.
    pub async fn bears<E>(&mut self, trouble: Trouble, has_succeeded: bool, error: &SdkError<E>) -> bool
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let since = *self.since.get_or_insert_with(Instant::now);
        let (waited, patience) = (since.elapsed(), trouble.patience(has_succeeded));
        if trouble == Trouble::Final || waited > patience {
            return false;
        }
        self.waits.note(&self.spell, waited, patience, || reason(error));
        sleep(backoff(self.attempt)).await;
        self.attempt += 1;
        true
    }
}

/// How long to wait before a further try: from 25 ms up to about 3 s, by a spread of half of it.
#[must_use]
pub fn backoff(attempt: u32) -> Duration {
    let most = 25_u64 << attempt.min(7);
    // Calls that failed together should not come back together; the clock's last digits are spread enough for that.
    let spread = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| u64::from(now.subsec_nanos() / 64))
        % (most / 2 + 1);
    Duration::from_millis(most / 2 + spread)
}

/// Why a call failed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such thing.
    Missing,
    /// The service says no; the reason and what helps.
    Denied(String),
    /// Anything else.
    Call(String),
}

impl Failure {
    /// What a failure of `action` (such as `kinesis:GetRecords`) at `endpoint` means.
    pub fn of<E>(action: &str, endpoint: &str, error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let service_says = || error.message().unwrap_or("no further message").to_owned();
        match error.code() {
            Some("ResourceNotFoundException" | "NoSuchBucket" | "NoSuchKey") => Self::Missing,
            Some("AccessDeniedException" | "AccessDenied" | "KMSAccessDeniedException") => Self::Denied(format!(
                "the credentials do not allow {action} ({}); the README lists the actions that each command needs",
                service_says()
            )),
            Some(
                "UnrecognizedClientException"
                | "InvalidSignatureException"
                | "ExpiredTokenException"
                | "MissingAuthenticationTokenException"
                | "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken",
            ) => Self::Denied(format!(
                "AWS does not accept the credentials ({}); check --profile and AWS_PROFILE, or log in anew",
                service_says()
            )),
            Some("RequestTimeTooSkewed" | "RequestExpired") => {
                Self::Denied(format!("AWS refuses {action}, since this machine's clock is off: set it, and try again"))
            }
            Some(code) => Self::Call(format!("{action} failed: {code}: {}", service_says())),
            None => match error {
                _ if lacks_credentials(error) => Self::Denied(
                    "no AWS credentials were found: set AWS_PROFILE or give --profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                        .to_owned(),
                ),
                SdkError::ServiceError(answer) => Self::Call(format!(
                    "{action} failed: {endpoint} answered with status {} and no reason; check --endpoint-url and --region",
                    answer.raw().status()
                )),
                _ => Self::Call(format!(
                    "{action} failed: {endpoint} cannot be reached ({}); check the network, --endpoint-url and --region",
                    deepest(error)
                )),
            },
        }
    }
}

/// Whether a call was not even sent, for want of credentials.
fn lacks_credentials<E>(error: &SdkError<E>) -> bool {
    let SdkError::DispatchFailure(failure) = error else { return false };
    failure.as_connector_error().is_some_and(|error| DisplayErrorContext(error).to_string().contains("credential"))
}

/// What an error goes back to.
#[must_use]
pub fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
