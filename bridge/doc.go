// Package bridge carries the live streams of threads: publish, subscribe, replay from an offset. It owns the order of records and
// how long they stay; what is in them is its callers' business.
//
// A subscriber first gets the kept records above the offset it names, then every record published after it subscribed: each once,
// in order. Publishers never wait for subscribers: what a slow reader has not read goes to disk, and a reader that falls further behind than
// may go there is dropped with ErrSlow, and comes back with the last offset it saw.
//
// Records of resumable runs are kept for replay, within bounds per thread, until some time after the thread's last such run ended.
// When the bounds are hit tokens go first, since the message they make up follows them in the same stream; then the oldest records. What
// was dropped so is remembered, and a subscriber that asked for it is told: Subscription.Gap. A bridge knows nothing of records
// from before it was opened; callers read those from the database.
//
// Memory serves one process. Package bridgetest holds what every implementation must do.
package bridge
