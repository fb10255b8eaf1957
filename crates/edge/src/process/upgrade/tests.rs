use super::*;
use dwell_evloop::EventLoop;
use std::sync::Mutex;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

fn upgrader() -> Arc<Upgrader> {
    let event_loop = EventLoop::<Message>::new().unwrap();
    Arc::new(Upgrader {
        fleet: Arc::new(Fleet::new(vec![event_loop.sender()])),
        settings: Published::new(Settings::default()),
        handoff: Handoff::new(1),
        service: None,
        metrics: Arc::new(Metrics::new(1, Vec::new(), 0)),
        notifier: None,
        is_under_way: AtomicBool::new(false),
    })
}

/// State of an upgrader at each event that is logged.
struct AtEvents {
    upgrader: Arc<Upgrader>,
    is_under_way: Arc<Mutex<Vec<bool>>>,
}

impl<S: tracing::Subscriber> Layer<S> for AtEvents {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        let is_under_way = self.upgrader.is_under_way.load(Ordering::Acquire);
        self.is_under_way.lock().unwrap().push(is_under_way);
    }
}

#[test]
fn the_next_upgrade_may_be_asked_for_once_the_end_of_one_is_logged() {
    let upgrader = upgrader();
    upgrader.is_under_way.store(true, Ordering::Release);
    let is_under_way = Arc::default();
    let layer = AtEvents {
        upgrader: Arc::clone(&upgrader),
        is_under_way: Arc::clone(&is_under_way),
    };
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || upgrader.report_failure(&UpgradeError::Busy));
    assert_eq!(*is_under_way.lock().unwrap(), [false]);
    assert_eq!(upgrader.metrics.upgrades_failed().value(), 1);
}

#[test]
fn only_a_closed_channel_is_the_end_of_the_new_process() {
    let talk = |kind: io::ErrorKind| UpgradeError::Talk("greeting it", kind.into());
    assert!(talk(io::ErrorKind::UnexpectedEof).is_end());
    assert!(talk(io::ErrorKind::BrokenPipe).is_end());
    assert!(!talk(io::ErrorKind::TimedOut).is_end());
    assert!(!UpgradeError::Talk("greeting it", io::Error::other("Ready expected")).is_end());
    assert!(!UpgradeError::Ending.is_end());
}
