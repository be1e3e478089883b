//! When faults have ended everything answers again, within bounded virtual time.

use std::time::Duration;

/// Longer than every time-out and grace in the product.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Waits for `what`; an error says who still waits.
pub async fn within<T>(what: &str, work: impl Future<Output = T>, waiting: impl Fn() -> Vec<String>) -> Result<T, (&'static str, String)> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => Ok(done),
        Err(_) => Err(("liveness", format!("{what}: not done after {} s; waiting: {:?}", PATIENCE.as_secs(), waiting()))),
    }
}
