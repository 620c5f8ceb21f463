//! The way to AWS that tables, objects and streams share.

#[cfg(feature = "aws")]
pub mod connection;
#[cfg(feature = "aws")]
pub mod trouble;

/// How AWS is reached. What is not given comes from the standard configuration and environment of AWS.
#[derive(Clone, Debug, Default)]
pub struct AwsOptions {
    /// Profile of the shared configuration.
    pub profile: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Another endpoint than AWS's own.
    pub endpoint_url: Option<String>,
}
