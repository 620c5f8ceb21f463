//! Failure-destination documents: any bytes are batches or one clear sentence, and what is named is what was written.

#![no_main]

use ais_replay::source::failed_batch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match failed_batch::parse("document", data) {
        Ok(batches) => {
            assert!(!batches.is_empty());
            for batch in batches {
                assert!(batch.name.starts_with("document"));
                assert!(!batch.stream_arn.contains("/consumer/"));
                for number in [&batch.first, &batch.last] {
                    assert!(!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
                }
                assert_eq!(batch.enclosed.is_some(), batch.enclosed_input().is_some());
            }
        }
        Err(error) => assert!(error.to_string().starts_with("document is no failure-destination document: ")),
    }
});
