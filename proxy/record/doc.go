// Package record is the recording half of the proxy: it records the threads of an upstream server from the answers that pass, stores
// their messages as events and transcripts, and shows them where clients read messages. It does no network I/O: package proxy passes it
// bodies and events, and sends its requests.
//
// It records checkpoints from snapshots of the upstream, each once and after its parent. Checkpoints missing from an answer are fetched
// from the upstream's history, with the credentials of the caller that needs them. A thread is identified by its `created_at`: if that
// changes, it is a new thread, and the old recordings are deleted.
//
// Nothing here makes a call fail. A body that cannot be recorded or shown passes unchanged, the error is logged, and the next read tries
// again.
package record
