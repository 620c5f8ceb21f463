//! Configuration of a service's client, and what everything that waits for AWS runs on.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use aws_config::default_provider::region;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::ProvideCredentials;
use tokio::runtime::{Builder, Runtime};

use super::AwsOptions;
use super::trouble::deepest;
use super::waits::Waits;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A service of AWS.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// What people call it.
    pub name: &'static str,
    /// The variable that names another endpoint of this service alone.
    pub endpoint_variable: &'static str,
    /// How long one try of a call may take.
    pub attempt_timeout: Duration,
    /// Whether calls are signed.
    pub signs: bool,
}

/// What a client is made of.
///
/// The SDK's own retries are off: they give up after a few tries, and a run needs more patience than that
/// ([`super::trouble`]).
#[derive(Clone, Debug)]
pub struct Connection {
    /// The configuration.
    pub config: SdkConfig,
    /// The region.
    pub region: String,
    /// Where the service is, for messages.
    pub endpoint: String,
    /// What is told of waiting for it.
    pub waits: Waits,
}

impl Connection {
    /// Finds out how a service is reached. `region` is the region where none is given by any flag, variable or profile.
    ///
    /// # Errors
    ///
    /// What is missing, in a sentence.
    pub fn open(service: Service, options: &AwsOptions, region: Option<&str>) -> Result<Self, String> {
        let runtime = runtime().map_err(|error| error.to_string())?;
        let mut loader =
            aws_config::defaults(BehaviorVersion::latest()).retry_config(RetryConfig::disabled()).timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(CONNECT_TIMEOUT)
                    .operation_attempt_timeout(service.attempt_timeout)
                    .build(),
            );
        if let Some(profile) = &options.profile {
            // By itself the chain would take keys of the environment before those of a profile that the command line names.
            let region = match &options.region {
                Some(region) => Some(Region::new(region.clone())),
                None => runtime.block_on(region::Builder::default().profile_name(profile).build().region()),
            };
            let asked = ProviderConfig::default().with_region(region);
            let of_profile = ProfileFileCredentialsProvider::builder().configure(&asked).profile_name(profile).build();
            loader = loader.profile_name(profile).credentials_provider(of_profile);
        }
        if let Some(region) = &options.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &options.endpoint_url {
            loader = loader.endpoint_url(endpoint);
        }
        if !service.signs {
            loader = loader.no_credentials();
        }
        let mut config = runtime.block_on(loader.load());
        if let (Some(profile), Some(provider), true) = (&options.profile, config.credentials_provider(), service.signs)
        {
            let found = runtime.block_on(provider.provide_credentials());
            found.map_err(|error| format!("--profile {profile} gives no credentials: {}", deepest(&error)))?;
        }
        if let (None, Some(region)) = (config.region(), region) {
            config = config.into_builder().region(Region::new(region.to_owned())).build();
        }
        let Some(region) = config.region().map(ToString::to_string).filter(|region| !region.is_empty()) else {
            return Err("no AWS region is set: give --region, or set AWS_REGION".to_owned());
        };
        let own_endpoint = || std::env::var(service.endpoint_variable).ok();
        let other_endpoint = || config.endpoint_url().map(str::to_owned);
        let endpoint = options.endpoint_url.clone().or_else(own_endpoint).or_else(other_endpoint);
        let endpoint = endpoint.unwrap_or_else(|| format!("{} in region {region}", service.name));
        Ok(Self { config, region, endpoint, waits: Waits::new(service.name, options.watcher.clone()) })
    }
}

/// What all calls run on: one for the process, made when it is first needed, so that a run without AWS starts no thread
/// for it.
///
/// # Errors
///
/// Where the system gives no thread.
pub fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}
