//! The share of the devices' time that background work takes.
//!
//! What always holds: while no client asks for anything it is not slowed at all; while one does, a step of time t is followed by a pause of
//! t·(1 − share) / share, so a slow device slows the work down by itself.

use holdfast_objstore_client::Upkeep;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A pause never lasts longer: a single slow step must not stop the work.
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Pace {
    objects: Arc<dyn Upkeep>,
    idle_after: Duration,
    /// What clients had asked when last looked, and when that last changed.
    seen: Mutex<(u64, Option<Instant>)>,
}

impl Pace {
    pub fn new(objects: Arc<dyn Upkeep>, idle_after: Duration) -> Pace {
        let seen = Mutex::new((objects.activity(), None));
        Pace { objects, idle_after, seen }
    }

    /// Whether a client asked for something lately.
    pub fn busy(&self) -> bool {
        let (asked, now) = (self.objects.activity(), Instant::now());
        let mut seen = self.seen.lock();
        if seen.0 != asked {
            *seen = (asked, Some(now));
        }
        seen.1.is_some_and(|at| now.duration_since(at) < self.idle_after)
    }

    /// Leaves clients their part after a step that took `took`.
    pub async fn after(&self, took: Duration, share: f64) {
        if !self.busy() {
            return tokio::task::yield_now().await;
        }
        tokio::time::sleep(pause(took, share)).await;
    }
}

fn pause(took: Duration, share: f64) -> Duration {
    let share = share.clamp(0.01, 1.0);
    took.mul_f64((1.0 - share) / share).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_client::Fake;
    use holdfast_objstore_client::{Objects, conformance};
    use holdfast_objstore_proto::Code;

    #[test]
    fn a_pause_leaves_clients_their_share() {
        assert_eq!(pause(Duration::from_millis(30), 0.25), Duration::from_millis(90));
        assert_eq!(pause(Duration::from_secs(60), 0.1), PAUSE_MAX);
        assert_eq!(pause(Duration::from_secs(1), 1.0), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_slowed_while_nobody_asks() {
        let fake = Fake::new();
        let pace = Pace::new(fake.clone(), Duration::from_millis(200));
        let begun = Instant::now();
        pace.after(Duration::from_secs(1), 0.5).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        fake.write(conformance::stripe(1, Code::new(4, 2), 100)).await.unwrap();
        pace.after(Duration::from_secs(1), 0.5).await;
        assert!(begun.elapsed() >= Duration::from_secs(1));
        assert!(!pace.busy(), "it was a while ago");
    }
}
