//! Crash reports: what is wrong with daemons that crashed. The reports are values of the config-key store.

use crate::commands::crash::recent;
use crate::services::Context;
use crate::services::health::{Checks, warn};

/// Daemons that crashed lately.
pub fn health(cx: &Context<'_>, checks: &mut Checks) {
    let state = cx.state;
    let news = recent(state, cx.now.wall);
    if !news.is_empty() {
        let summary = format!("{} daemons have recently crashed", news.len());
        warn(checks, "RECENT_CRASH", news.len(), summary, news);
    }
}
