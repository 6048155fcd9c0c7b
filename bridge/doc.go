// Package bridge carries the live streams of threads: publish, subscribe, replay from an offset. It owns the order of records and how long
// they are kept; callers own their content.
//
// A subscriber first gets the kept records above the offset it names, then every record published after it subscribed: each once, in order.
// Publishers never wait for subscribers: unread records of a slow reader move to disk. A reader that exceeds the disk limit is dropped with
// ErrSlow, and subscribes again with the last offset it saw.
//
// Records of resumable runs are kept for replay, within limits per thread, until some time after the thread's last such run ended. At the
// limits tokens are evicted first, since their complete message follows in the same stream; then the oldest records. The bridge remembers
// what it evicted, and Subscription.Gap reports it. Records from before the bridge was opened are not in it; callers read those from the
// database.
//
// Memory serves one process. Package bridgetest is the test suite of all implementations.
package bridge
